"""Paths: what a client may write, and which folder it means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspace.errors import InvalidPath
from workspace.paths import RelPath, display, is_reserved, public_path


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "/",
        "/etc/passwd",
        "a//b",
        "a//",
        ".",
        "..",
        "a/../b",
        "a/./b",
        "a\0b",
        "a\nb",
        "a\x85b",
        "a/\ud800",
        "x" * 256,
        "漢" * 86,
        "/".join("a" * 33),
        "/".join(["x" * 250] * 5),
        ".isthmus-0123456789abcdef",
        "a/.isthmus-x/b",
    ],
)
def test_a_path_that_names_nothing_inside_is_refused(raw: str) -> None:
    with pytest.raises(InvalidPath):
        RelPath.parse(raw)


def test_a_path_is_its_segments() -> None:
    path = RelPath.parse("a/b c/漢.pdf/")
    assert path.segments == ("a", "b c", "漢.pdf")
    assert (str(path), path.name, str(path.parent)) == ("a/b c/漢.pdf", "漢.pdf", "a/b c")
    assert RelPath.parse("/".join("a" * 32)).segments == ("a",) * 32
    assert RelPath.parse("x" * 255).name == "x" * 255
    assert RelPath.parse("a..b/...").segments == ("a..b", "...")


@given(st.text(st.characters(), max_size=60) | st.text("ab./\0\n漢", max_size=60))
def test_a_parsed_path_reads_back_and_never_climbs(raw: str) -> None:
    try:
        path = RelPath.parse(raw)
    except InvalidPath:
        return
    assert str(path) == raw.removesuffix("/")
    assert RelPath.parse(str(path)) == path
    assert not {"", ".", ".."} & set(path.segments)


@pytest.mark.parametrize("segments", [("..",), ("a/b",), ("",), ("a\0",)])
def test_no_path_can_be_made_of_what_is_no_name(segments: tuple[str, ...]) -> None:
    with pytest.raises(InvalidPath):
        RelPath(segments)


@pytest.mark.parametrize(
    ("raw", "segments"),
    [
        ("", ()),
        ("public", ()),
        ("uploads", ()),
        ("public/", ()),
        ("public/a.pdf", ("a.pdf",)),
        ("uploads/a.pdf", ("a.pdf",)),
        ("a.pdf", ("a.pdf",)),
        ("public/uploads", ("uploads",)),
        ("uploads/public/x", ("public", "x")),
        ("Public/x", ("Public", "x")),
    ],
)
def test_exactly_one_prefix_is_taken_off(raw: str, segments: tuple[str, ...]) -> None:
    assert public_path(raw).segments == segments


@pytest.mark.parametrize(
    ("raw", "reserved"),
    [
        ("public/attachments", True),
        ("uploads/attachments/x", True),
        ("ATTACHMENTS/x", True),
        ("public/uploads/attachments", False),
        ("reports/attachments", False),
        ("attachments2", False),
        ("", False),
    ],
)
def test_only_the_top_level_attachments_are_reserved(raw: str, reserved: bool) -> None:
    assert is_reserved(public_path(raw)) is reserved


def test_members_see_the_public_directory_in_front() -> None:
    assert display(RelPath(("a", "b.pdf"))) == "public/a/b.pdf"
    assert display(RelPath()) == "public"
