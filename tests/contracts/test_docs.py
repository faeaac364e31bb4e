"""The documentation names what is there, and what is there is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.errors import INTERNAL, TABLE, TurnFailed
from proxy.stream.states import FAILURES

ROOT = Path(__file__).parents[2]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
TREE = ARCHITECTURE.split("```")[1]
ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
ERROR_ROWS = re.findall(r"^\| (\d{3}) \| `(\w+)` \|([^|]*)\|", ERRORS, re.MULTILINE)
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_every_path_in_the_concept_table_exists() -> None:
    named = re.findall(r"`([\w./]+\.(?:py|toml|md|sql))`", ARCHITECTURE)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("package", ["proxy", "rag", "workspace"])
def test_every_module_stands_in_the_tree(package: str) -> None:
    words = set(re.findall(r"\w+", TREE))
    packages = {"embedded", "extract"}  # named as wholes
    missing = [
        str(path.relative_to(ROOT))
        for path in (ROOT / package).rglob("*.py")
        if path.stem != "__init__"
        and path.parent.name not in packages
        and path.stem.strip("_") not in words
        and path.stem not in words
        and path.stem not in {"body", "errors", "settings", "model"}
    ]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target


def test_the_errors_that_are_documented_are_those_that_exist_with_their_status() -> None:
    documented = [(int(status), code) for status, code, _ in ERROR_ROWS]
    raised = {(row.status, row.code) for row in [*TABLE.values(), INTERNAL] if row.code}
    failed = {(TABLE[TurnFailed].status, code) for code in FAILURES}
    assert set(documented) == raised | failed
    assert len(documented) == len(set(documented))


def test_the_data_that_an_error_carries_is_documented() -> None:
    documented = {code: set(re.findall(r"`(\w+)`", data)) for _, code, data in ERROR_ROWS}
    missing = [
        (kind.__name__, name)
        for kind, row in TABLE.items()
        for name in getattr(kind, "__dataclass_fields__", ())
        if row.code and name not in documented[row.code]
    ]
    assert missing == []
