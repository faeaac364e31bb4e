from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.public_changes import entry_to_change, new_entry, new_folder
from proxy.rights import Action, Role, allowed
from workspace.errors import InvalidName, InvalidPath, ManagedBySystem
from workspace.paths import RelPath, is_reserved

PARSERS = [entry_to_change, new_entry, new_folder]


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "raw", ["", "public", "public/", "uploads", "..", "a/../b", "/a", "a//b", ".isthmus-1", "a\0"]
)
def test_the_root_and_what_is_no_path_are_refused(parse: Callable[[str], RelPath], raw: str) -> None:
    with pytest.raises(InvalidPath):
        parse(raw)


@pytest.mark.parametrize("raw", ["attachments", "public/attachments/", "uploads/ATTACHMENTS", "attachmentſ"])
@pytest.mark.parametrize("parse", PARSERS)
def test_attachments_itself_is_refused_in_any_spelling(parse: Callable[[str], RelPath], raw: str) -> None:
    with pytest.raises(ManagedBySystem):
        parse(raw)


def test_what_lies_in_attachments_may_go_but_nothing_may_come() -> None:
    assert entry_to_change("attachments/x/y") == RelPath(("attachments", "x", "y"))
    for parse in (new_entry, new_folder):
        with pytest.raises(ManagedBySystem):
            parse("attachments/x")


def test_only_the_new_name_of_a_move_must_be_clean() -> None:
    assert new_entry("my reports/a.txt") == RelPath(("my reports", "a.txt"))
    assert entry_to_change("my reports/a b.txt") == RelPath(("my reports", "a b.txt"))
    with pytest.raises(InvalidName) as refused:
        new_entry("reports/a b.txt")
    assert refused.value.suggestion == "a_b.txt"


@given(st.text())
def test_no_text_becomes_a_reserved_place_for_something_new(raw: str) -> None:
    for parse in (new_entry, new_folder):
        try:
            path = parse(raw)
        except (InvalidPath, InvalidName, ManagedBySystem):
            continue
        assert path.segments
        assert not is_reserved(path)


def test_changes_need_more_than_a_viewer() -> None:
    assert not allowed(Role.VIEWER, Action.CHANGE_FILES)
    assert allowed(Role.MEMBER, Action.CHANGE_FILES)
