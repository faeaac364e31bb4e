"""A folder as it is uploaded: what is indexed, what is skipped with which reason, what refuses the whole."""

from __future__ import annotations

import tracemalloc

import pytest

from rag.errors import (
    DuplicatePath,
    NothingIndexable,
    TooManyBytes,
    TooManyChunks,
    TooManyFiles,
    UnsafePath,
)
from rag.ingest import AttachedFile, FolderUpload
from rag.model import IndexedFile, Skipped, SkipReason
from tests.support.folders import Limits, prepare


def skips(files: dict[str, str | bytes], limits: Limits | None = None) -> dict[str, tuple[str, int]]:
    return {skip.path: (skip.reason, skip.files) for skip in prepare("p", files, limits).skipped}


def test_each_skipped_file_has_its_reason_and_a_directory_is_listed_once():
    assert skips(
        {
            "folder/ok.md": "text",
            "folder/node_modules/a/b.js": "x",
            "folder/node_modules/c.js": "x",
            "folder/.github/a.md": "x",
            "folder/.env": "A=1",
            "folder/a.png": b"\x89PNG",
            "folder/big.txt": "long line\n" * 60_000,
            "folder/bin.txt": b"a\x00\x00b\x01",
            "folder/odd.txt": b"\x81\x8d",
            "folder/nothing.txt": "  \n",
            "folder/app.min.js": "var a=1;" * 10_000,
            "folder/key.txt": "-----BEGIN RSA PRIVATE KEY-----\n",
            "folder/.gitignore": "gen/\n*.log.txt\n",
            "folder/gen/a.md": "x",
            "folder/gen/b/c.md": "x",
            "folder/x.log.txt": "x",
        }
    ) == {
        "node_modules/": ("ignored", 2),
        ".github/": ("hidden", 1),
        ".env": ("secret", 1),
        "a.png": ("extension", 1),
        "big.txt": ("too_large", 1),
        "bin.txt": ("binary", 1),
        "odd.txt": ("encoding", 1),
        "nothing.txt": ("empty", 1),
        "app.min.js": ("minified", 1),
        "key.txt": ("secret", 1),
        ".gitignore": ("hidden", 1),
        "gen/": ("ignored", 2),
        "x.log.txt": ("ignored", 1),
    }


def test_five_thousand_files_with_three_broken_ones_list_exactly_three():
    files: dict[str, str | bytes] = {f"folder/{n}.txt": f"text {n}" for n in range(5000)}
    files |= {f"folder/{n}.txt": b"\x00\x00\x00" for n in (7, 70, 700)}
    prepared = prepare("p", files, Limits(max_files=5000))
    assert [skip.path for skip in prepared.skipped] == ["7.txt", "70.txt", "700.txt"]
    assert len(prepared.files) == 4997


def test_a_folder_that_is_itself_named_like_an_ignored_one_is_indexed():
    upload = FolderUpload(Limits())
    for path in ("dist/a.md", "dist/sub/b.md"):
        upload.add(AttachedFile(path, b"text"))
    prepared = upload.prepare("p", "dist")
    assert [file.path for file in prepared.files] == ["a.md", "sub/b.md"]


def test_a_common_folder_of_another_name_stays():
    upload = FolderUpload(Limits())
    upload.add(AttachedFile("src/a.md", b"text"))
    assert upload.prepare("p", "project").files == (IndexedFile("src/a.md", 1),)


def test_without_a_name_the_common_folder_gives_it():
    upload = FolderUpload(Limits())
    upload.add(AttachedFile("notes/a.md", b"text"))
    prepared = upload.prepare("p")
    assert (prepared.folder_name, prepared.files) == ("notes", (IndexedFile("a.md", 1),))


def test_a_file_of_which_something_was_left_out_says_why():
    token = "ghp_" + "a1B2c3D4e5" * 4
    files = prepare("p", {"s.txt": f"{token}\n" + "prose\n" * 200, "n.txt": "text\n" * 1000 + "\x00"}).files
    assert {file.path: file.reason for file in files} == {
        "s.txt": SkipReason.SECRET,
        "n.txt": SkipReason.ENCODING,
    }


@pytest.mark.parametrize(
    ("limits", "error", "count", "limit"),
    [
        (Limits(max_files=2), TooManyFiles, 3, 2),
        (Limits(max_bytes=10), TooManyBytes, 12, 10),
        (Limits(max_chunks=2), TooManyChunks, 3, 2),
    ],
)
def test_a_passed_cap_refuses_the_whole_with_count_and_limit(limits, error, count, limit):
    files: dict[str, str | bytes] = {f"{name}.txt": "text" for name in "abc"} | {
        "node_modules/x.js": "y" * 99
    }
    with pytest.raises(error) as caught:
        prepare("p", files, limits)
    assert (caught.value.count, caught.value.limit) == (count, limit)


def test_paths_equal_after_nfc_refuse_the_whole():
    with pytest.raises(DuplicatePath):
        prepare("p", {"caf\u00e9.md": "a", "cafe\u0301.md": "b"})


def test_an_unsafe_path_refuses_the_whole_even_in_an_ignored_directory():
    with pytest.raises(UnsafePath):
        prepare("p", {"a.md": "a", "node_modules/../x.md": "b"})


def test_nothing_to_index_is_an_error_and_no_empty_folder():
    for files in ({}, {"a.png": b"x"}, {"k.txt": "-----BEGIN PRIVATE KEY-----"}):
        with pytest.raises(NothingIndexable) as caught:
            prepare("p", files)
        assert caught.value.files == len(files)


def test_late_gitignore_saves_a_folder_and_what_is_held_is_bounded():
    limits = Limits(max_bytes=1000)
    upload = FolderUpload(limits)
    upload.add(AttachedFile("f/a.txt", b"text\n" * 100))
    upload.add(AttachedFile("f/gen/b.txt", b"text\n" * 300))
    upload.add(AttachedFile("f/.gitignore", b"gen/"))
    assert upload.prepare("p", "f").skipped[1] == Skipped("gen/", SkipReason.IGNORED, 1)
    for number in range(7):  # the fifth is one too many, and gen/ makes room for it
        upload.add(AttachedFile(f"f/{number}.txt", b"text\n" * 100))
    with pytest.raises(TooManyBytes) as caught:
        upload.add(AttachedFile("f/7.txt", b"text\n" * 100))
    assert (caught.value.count, caught.value.limit) == (4500, 1000)


def test_content_that_is_not_looked_at_need_not_be_read():
    upload = FolderUpload(Limits(max_file_bytes=100))
    assert upload.useful_bytes("f/node_modules/a.js") == 0
    assert upload.useful_bytes("f/photo.png") == 0
    assert upload.useful_bytes("f/a.md") == 401


def test_skipped_bytes_are_not_kept():
    upload = FolderUpload(Limits())
    tracemalloc.start()
    for number in range(50):
        upload.add(AttachedFile(f"f/{number}.txt", b"\x00" * 400_000))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 400_000


def test_unchanged_chunks_keep_their_ids_and_twins_have_different_ones():
    first = prepare("p", {"a.md": "# A\n\none\n\n# B\n\ntwo\n", "b.md": "# A\n\none\n"})
    again = prepare("p", {"a.md": "# New\n\nzero\n\n# A\n\none\n\n# B\n\ntwo changed\n"})
    ids = {(c.source_path, c.heading_path): c.chunk_id for c in first.chunks}
    now = {(c.source_path, c.heading_path): c.chunk_id for c in again.chunks}
    assert now["a.md", ("A",)] == ids["a.md", ("A",)]
    assert now["a.md", ("B",)] != ids["a.md", ("B",)]
    assert len(set(ids.values())) == 3
    twins = prepare("p", {"a.md": "# A\n\none\n\n# A\n\none\n"}).chunks
    assert len({chunk.chunk_id for chunk in twins}) == len(twins) == 2
    assert prepare("q", {"b.md": "# A\n\none\n"}).chunks[0].chunk_id != ids["b.md", ("A",)]
