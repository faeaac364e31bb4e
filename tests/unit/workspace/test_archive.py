from __future__ import annotations

from workspace.archive import MAX_FILES, MemberNames


def test_as_many_names_as_an_archive_holds_may_clean_to_one_and_differ_in_case() -> None:
    names = MemberNames()
    given = []
    for number in range(MAX_FILES):
        letters = "".join("aA"[number >> bit & 1] for bit in range(14))
        given.append(names.add((f"{letters}!.txt".encode(),)))
    assert len({name.casefold() for name in given}) == MAX_FILES
    assert given[-1].endswith(f"_-{MAX_FILES}.txt")


def test_what_lies_in_a_folder_follows_the_name_that_the_folder_got() -> None:
    names = MemberNames()
    assert [names.add(path) for path in ((b"a b",), (b"a b", b"x"), (b"a_b",), (b"a_b", b"x"))] == [
        "a_b",
        "a_b/x",
        "a_b-2",
        "a_b-2/x",
    ]
