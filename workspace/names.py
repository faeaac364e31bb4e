"""File names: what an outsider's name becomes before it may stand in a directory. Pure.

The rules serve three readers: a shell (no spaces, quotes, leading dashes), a person (no invisible or reversing
characters) and other systems (Windows devices, 255 bytes). Letters of every script stay.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection

from workspace.errors import ExtensionNotAllowed, InvalidName

MAX_NAME_BYTES = 255
REPLACEMENT = "\ufffd"
_SURROGATES = re.compile("[\ud800-\udfff]")
_SEPARATORS = re.compile(r"[/\\]")
_KEPT_PUNCTUATION = frozenset("._-")
# Names that Windows gives to devices, whatever follows the first dot.
_DEVICE = re.compile(r"(?:CON|PRN|AUX|NUL|(?:COM|LPT)[1-9¹²³])", re.IGNORECASE)
# The part that survives a cut: the last extension if it is a plausible one, with ".tar" before it.
_PARTED = re.compile(r"(?P<stem>.+?)(?P<extension>(?:\.tar)?\.[^.]{1,16})", re.IGNORECASE | re.DOTALL)


def clean_name(raw: str | bytes) -> str:
    """The name under which a file called ``raw`` is kept; cleaning a clean name changes nothing.

    Raises InvalidName when nothing is left of it.
    """
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else _SURROGATES.sub(REPLACEMENT, raw)
    name = _SEPARATORS.split(text.rstrip("/\\"))[-1]
    name = "".join(char for char in name if unicodedata.category(char) not in {"Cc", "Cf"})
    name = unicodedata.normalize("NFC", name).strip()
    name = _replace_runs(name).strip(".")
    if name.startswith("-"):
        name = "_" + name[1:]
    if _DEVICE.fullmatch(name.partition(".")[0]):
        name = "_" + name
    name = _fit(name, suffix="")
    if not name.strip("_."):
        raise InvalidName(text)
    return name


def is_clean(name: str) -> bool:
    """Whether cleaning changes nothing."""
    try:
        return clean_name(name) == name
    except InvalidName:
        return False


def require_clean(name: str) -> None:
    """Raises InvalidName, with what the name would become, unless it is clean."""
    if (suggestion := clean_name(name)) != name:
        raise InvalidName(name, suggestion)


def extension(name: str) -> str:
    """The last extension in lower case, without its dot; empty if there is none."""
    stem, _, last = name.rpartition(".")
    return last.lower() if stem else ""


def check_extension(name: str, extensions: Collection[str], extensionless: Collection[str]) -> None:
    """Hold a clean name to the operator's lists; ``"*"`` among the extensions allows every name.

    Raises ExtensionNotAllowed with the list that the name was held to.
    """
    if "*" in extensions:
        return
    last = extension(name)
    sought, allowed = (last, extensions) if last else (name.lower(), extensionless)
    if sought not in {item.lower() for item in allowed}:
        raise ExtensionNotAllowed(name, tuple(allowed))


def number_name(name: str, number: int) -> str:
    """``report.pdf`` → ``report-2.pdf``: the name that is tried when the plain one is taken."""
    return _fit(name, suffix=f"-{number}")


def _replace_runs(name: str) -> str:
    """Each run of characters that are no letter, mark, digit, dot, underscore or dash becomes one underscore."""
    kept: list[str] = []
    in_run = False
    for char in name:
        if char in _KEPT_PUNCTUATION or unicodedata.category(char)[0] in "LMN":
            kept.append(char)
            in_run = False
        elif not in_run:
            kept.append("_")
            in_run = True
    return "".join(kept)


def _fit(name: str, *, suffix: str) -> str:
    """Put ``suffix`` behind the stem and cut the stem, on a code-point border, to what a directory can hold."""
    parts = _PARTED.fullmatch(name)
    stem, ending = parts.group("stem", "extension") if parts else (name, "")
    room = MAX_NAME_BYTES - len((suffix + ending).encode())
    return (stem.encode()[:room].decode("utf-8", "ignore") + suffix + ending).rstrip(".")
