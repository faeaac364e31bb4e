"""Named SQL files are cut into statements."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.queries import load, parse

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True)
BODIES = st.text(st.characters(exclude_characters="\r\0", codec="utf-8"), min_size=1).map(
    lambda t: f"SELECT 1 {t}"
)


def test_statements_are_found_by_item_and_by_attribute() -> None:
    queries = parse("-- what this is\n\n-- name: one\nSELECT 1;\n-- name:two\n\nSELECT\n  2\n", "x.sql")
    assert queries["one"] == queries.one == "SELECT 1;"
    assert queries.two == "SELECT\n  2"
    assert list(queries) == ["one", "two"]


def test_a_comment_inside_a_statement_stays_with_it() -> None:
    assert (
        parse("-- name: one\n-- why\nSELECT 1 -- name: no\n", "x.sql").one == "-- why\nSELECT 1 -- name: no"
    )


def test_a_name_that_the_file_lacks_is_an_attribute_error_that_names_what_there_is() -> None:
    queries = parse("-- name: one\nSELECT 1", "x.sql")
    with pytest.raises(AttributeError, match=re.escape("x.sql has no statement 'too'; it has: one")):
        _ = queries.too
    with pytest.raises(KeyError):
        queries["too"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SELECT 0\n-- name: one\nSELECT 1", "SQL before"),
        ("-- name: one\nSELECT 1\n-- name: one\nSELECT 2", "twice"),
        ("-- name: One Two\nSELECT 1", "is not a name"),
        ("-- name:\nSELECT 1", "is not a name"),
        ("-- name: one\n-- only words\n-- name: two\nSELECT 2", "'one' has no statement"),
    ],
)
def test_a_file_that_can_be_misread_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse(text, "x.sql")


@given(st.dictionaries(NAMES, BODIES.filter(lambda t: "name:" not in t), min_size=1))
def test_what_is_written_is_what_is_read(statements: dict[str, str]) -> None:
    text = "\n".join(f"-- name: {name}\n{body}" for name, body in statements.items())
    assert dict(parse(text, "x.sql")) == {name: body.strip() for name, body in statements.items()}


def test_a_missing_file_stops_the_import() -> None:
    with pytest.raises(FileNotFoundError):
        load("rag", "nothing.sql")
