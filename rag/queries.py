"""Named SQL: statements live in text files, and code takes them by name when it is imported.

::

    -- name: insert_turn
    INSERT INTO turns …

A module binds its statements at its top (``INSERT_TURN = load("proxy", "history.sql").insert_turn``), so a name
that the file does not have stops the import and never a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files

HEADER = re.compile(r"--[ \t]*name:[ \t]*(.*)")
NAME = re.compile(r"[a-z][a-z0-9_]*")


class Queries(Mapping[str, str]):
    """The statements of one file by name, as items or as attributes."""

    def __init__(self, source: str, statements: Mapping[str, str]) -> None:
        self._source = source
        self._statements = dict(statements)

    def __getitem__(self, name: str) -> str:
        return self._statements[name]

    def __getattr__(self, name: str) -> str:
        """Raises AttributeError naming the file and the statements it does have."""
        try:
            return self.__dict__["_statements"][name]  # type: ignore[no-any-return]  # __dict__ is untyped
        except KeyError:
            known = ", ".join(self.__dict__.get("_statements", ())) or "none"
            raise AttributeError(
                f"{self.__dict__.get('_source')} has no statement {name!r}; it has: {known}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._statements)

    def __len__(self) -> int:
        return len(self._statements)


def load(package: str, name: str) -> Queries:
    """The statements of the file ``<package>/sql/<name>``. Raises FileNotFoundError, ValueError (see ``parse``)."""
    text = files(package).joinpath("sql", name).read_text(encoding="utf-8")
    return parse(text, f"{package}/sql/{name}")


def parse(text: str, source: str) -> Queries:
    """Cut a file at its ``-- name:`` lines; what stands above the first is for the reader and may only be comment.

    Raises ValueError: SQL before the first name, a name that is malformed or there twice, a statement without text.
    """
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.split("\n"):
        header = HEADER.fullmatch(line.strip())
        if header is None:
            if not sections and line.strip() and not line.lstrip().startswith("--"):
                raise ValueError(f"{source}: SQL before the first '-- name:'")
            current.append(line)
            continue
        name = header[1].strip()
        if not NAME.fullmatch(name):
            raise ValueError(f"{source}: {name!r} is not a name")
        if name in sections:
            raise ValueError(f"{source}: {name!r} is there twice")
        current = sections[name] = []
    statements = {name: "\n".join(lines).strip() for name, lines in sections.items()}
    for name, statement in statements.items():
        if not any(line.strip() and not line.lstrip().startswith("--") for line in statement.split("\n")):
            raise ValueError(f"{source}: {name!r} has no statement")
    return Queries(source, statements)
