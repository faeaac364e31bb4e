"""Every threat names its guard, a test that exists, and when to look again."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith("| threat")
]
REFERENCE = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def functions_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_there_are_threats() -> None:
    assert len(ROWS) > 40


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_threat_has_a_guard_tests_that_exist_and_a_moment_to_revise(row: list[str]) -> None:
    assert len(row) == 4
    assert all(row)
    references = REFERENCE.findall(row[2])
    assert references
    assert row[2] == ", ".join(f"`{file}::{name}`" for file, name in references)
    for file, name in references:
        assert name in functions_in(ROOT / "tests" / file)
