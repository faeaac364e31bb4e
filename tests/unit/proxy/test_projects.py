from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.projects import project_id


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Relatório", "relatorio"),
        ("  Plan B (2026)  ", "plan-b-2026"),
        ("main", "main-2"),
        ("MAIN", "main-2"),
        ("計画", "project"),
        ("_x", "x"),
        ("--", "project"),
        ("a_b-c", "a_b-c"),
        ("x" * 80, "x" * 64),
        ("İstanbul", "istanbul"),
    ],
)
def test_a_name_gives_its_id(name: str, expected: str) -> None:
    assert project_id(name, lambda _: False) == expected


def test_a_taken_id_is_numbered_and_stays_short() -> None:
    assert project_id("plan", {"plan", "plan-2"}.__contains__) == "plan-3"
    assert project_id("x" * 64, {"x" * 64}.__contains__) == "x" * 62 + "-2"


@given(st.text(max_size=120), st.sets(st.text(max_size=5)))
def test_every_name_gives_a_plain_word_that_is_free(name: str, taken: set[str]) -> None:
    found = project_id(name, taken.__contains__)
    assert re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", found)
    assert found not in taken
    assert found != "main"
