"""Listings: everything, in one order, page by page, and an honest count of what is left out."""

from __future__ import annotations

import base64
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.workspace.conftest import Site, as_agent, names_in, needs_root
from workspace import walk
from workspace.directory import WorkspaceDirectory
from workspace.errors import InvalidPath, IsAFile, NoSuchFolder
from workspace.listing import Listing, Omitted, list_page
from workspace.location import Location, project_root
from workspace.paths import RelPath
from workspace.registry import Workspaces
from workspace.rights import Rights
from workspace.settings import AgentTree
from workspace.walk import Budget

ROOT = RelPath()


def fill(folder: Path, *files: str) -> None:
    for file in files:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.encode())


async def pages(site: Site, limit: int, folder: RelPath = ROOT) -> list[Listing]:
    found = [await site.workspace.list(folder, cursor=None, limit=limit)]
    while (cursor := found[-1].next_cursor) is not None:
        found.append(await site.workspace.list(folder, cursor=cursor, limit=limit))
    return found


def paths(found: list[Listing]) -> list[str]:
    return [entry.path for page in found for entry in page.files]


async def test_what_is_not_there_is_an_empty_list_and_nothing_is_made(
    tree: AgentTree, workspaces: Workspaces
) -> None:
    workspace = workspaces.open("demo", tree, Location("nobody"))
    assert await workspace.list(ROOT, cursor=None, limit=10) == Listing([], None, Omitted())
    assert await workspace.snapshot() == {}
    assert names_in(tree.root) == []


async def test_everything_is_listed_depth_first_by_bytes(site: Site) -> None:
    fill(site.public, "b/z", "b/a/x", "b-", "B", "é", "a", "b0/y")
    (site.public / "empty").mkdir()
    expected = ["B", "a", "attachments", "b", "b/a", "b/a/x", "b/z", "b-", "b0", "b0/y", "empty", "é"]
    whole = [
        "public/" + path
        for path in sorted(expected, key=lambda path: [part.encode() for part in path.split("/")])
    ]
    for limit in (1, 2, 3, 5, len(whole) - 1, len(whole), 100):
        found = await pages(site, limit)
        assert paths(found) == whole
        assert len(found) == -(-len(whole) // limit)
    assert paths(await pages(site, 2, RelPath(("b",)))) == ["public/b/a", "public/b/a/x", "public/b/z"]


async def test_an_entry_tells_size_kind_and_time(site: Site) -> None:
    fill(site.public, "a.txt")
    os.utime(site.public / "a.txt", ns=(0, 1_767_225_600_123_456_789))
    page = await site.workspace.list(ROOT, cursor=None, limit=10)
    first, second = page.files
    assert (first.path, first.name, first.size, first.is_dir) == ("public/a.txt", "a.txt", 5, False)
    assert first.modified == "2026-01-01T00:00:00.123Z"
    assert (second.name, second.size, second.is_dir) == ("attachments", 0, True)


async def test_links_special_files_and_names_no_path_can_spell_are_counted(site: Site) -> None:
    fill(site.public, "a", "z")
    (site.public / "link").symlink_to("/etc")
    (site.public / "dangling").symlink_to("nowhere")
    os.mkfifo(site.public / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(site.public / "socket"))
    os.mkdir(os.fsencode(site.public) + b"/\xff\xfe")
    fill(site.public, "line\nbreak")
    for limit in (1, 2, 100):
        found = await pages(site, limit)
        assert paths(found) == ["public/a", "public/attachments", "public/z"]
        assert sum(page.omitted.links for page in found) == 2
        assert sum(page.omitted.special for page in found) == 2
        assert sum(page.omitted.undecodable for page in found) == 2


async def test_the_services_own_names_are_swept_when_they_are_old_and_never_listed(site: Site) -> None:
    fill(site.public, ".isthmus-0000000000000000", ".isthmus-1111111111111111")
    os.utime(site.public / ".isthmus-0000000000000000", (0, 1_000_000_000))
    as_agent(lambda: os.chmod(site.public, 0o770))
    assert paths(await pages(site, 10)) == ["public/attachments"]
    assert names_in(site.public) == [".isthmus-1111111111111111", "attachments"]


async def test_every_listed_path_can_be_sent_back_and_deeper_ones_are_counted(site: Site) -> None:
    deep = site.public
    for _ in range(40):
        deep = deep / "d"
    deep.mkdir(parents=True)
    long = site.public / "long"
    for _ in range(6):
        long = long / ("x" * 200)
        long.mkdir(parents=True)
    for limit in (7, 1000):
        found = await pages(site, limit)
        assert all(str(RelPath.parse(path)) == path for path in paths(found))
        assert max(path.count("/") for path in paths(found)) == 31
        assert sum(page.omitted.too_deep for page in found) == 2


async def test_a_tree_without_end_costs_no_more_than_32_descriptors(site: Site) -> None:
    parent = os.open(site.public, os.O_PATH)
    for _ in range(4000):
        os.mkdir("d", dir_fd=parent)
        child = os.open("d", os.O_PATH | os.O_NOFOLLOW, dir_fd=parent)
        os.close(parent)
        parent = child
    os.close(parent)
    directory = WorkspaceDirectory(
        site.tree, project_root(Location("ana")), Rights(site.tree.uid, site.tree.gid)
    )
    before = len(os.listdir("/proc/self/fd"))
    most = 0

    def visit() -> int:
        nonlocal most
        count = 0
        with walk.Walk(directory.open_folder(ROOT), (b"public",), batch=10, now=0) as everything:
            for _ in everything:
                count += 1
                most = max(most, len(os.listdir("/proc/self/fd")))
        return count

    assert as_agent(visit) == 32  # 31 folders and attachments
    assert most - before <= 32
    _remove_deep(site.public)


def _remove_deep(public: Path) -> None:
    """Hoist each folder out of its parent: rmtree would recurse."""
    for turn in range(4000):
        os.rename(public / "d", public / f"t{turn}")
        if not os.path.exists(public / f"t{turn}" / "d"):
            break
        os.rename(public / f"t{turn}" / "d", public / "d")


async def test_20_000_entries_are_paged_without_loss(site: Site) -> None:
    for number in range(20_000):
        os.close(os.open(site.public / f"{number:05}.txt", os.O_CREAT | os.O_WRONLY))
    found = await pages(site, 1000)
    assert paths(found) == [f"public/{number:05}.txt" for number in range(20_000)] + ["public/attachments"]
    assert len(found) == 21


async def test_entries_that_come_and_go_between_pages_lose_no_others(site: Site) -> None:
    fill(site.public, "a/1", "a/2", "b/1", "c")
    first = await site.workspace.list(ROOT, cursor=None, limit=2)
    assert paths([first]) == ["public/a", "public/a/1"]
    for gone in ("1", "2"):
        (site.public / "a" / gone).unlink()
    (site.public / "a").rmdir()
    fill(site.public, "0", "az")
    second = await site.workspace.list(ROOT, cursor=first.next_cursor, limit=20)
    assert paths([second]) == [f"public/{path}" for path in ("attachments", "az", "b", "b/1", "c")]


async def test_a_request_that_has_spent_its_budget_ends_its_page_and_the_next_goes_on(site: Site) -> None:
    fill(site.public, "a", "b", "c/d")
    for number in range(10):
        (site.public / f"link{number}").symlink_to("x")
    directory = WorkspaceDirectory(
        site.tree, project_root(Location("ana")), Rights(site.tree.uid, site.tree.gid)
    )

    def all_pages(budgets: Iterator[Budget]) -> list[Listing]:
        found = [list_page(directory, ROOT, None, 10, next(budgets))]
        while found[-1].next_cursor is not None:
            found.append(list_page(directory, ROOT, found[-1].next_cursor, 10, next(budgets)))
        return found

    few = as_agent(lambda: all_pages(Budget(entries=3) for _ in range(100)))
    slow = as_agent(lambda: all_pages(Budget(seconds=-1) for _ in range(100)))
    for found in (few, slow):
        assert paths(found) == [f"public/{path}" for path in ("a", "attachments", "b", "c", "c/d")]
        assert sum(page.omitted.links for page in found) == 10
    assert len(slow) == 15


async def test_a_folder_with_more_names_than_can_be_sorted_is_left_out_and_said(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "MAX_NAMES", 5)
    fill(site.public, *(f"big/{number}" for number in range(6)), "z")
    for limit in (1, 10):
        found = await pages(site, limit)
        assert paths(found) == ["public/attachments", "public/big", "public/z"]
        assert max(page.omitted.too_large for page in found) == 1


@needs_root
async def test_a_folder_that_the_agent_may_not_read_is_listed_without_its_contents(site: Site) -> None:
    fill(site.public, "hidden/a", "z")
    (site.public / "hidden").chmod(0o700)
    found = await pages(site, 10)
    assert paths(found) == ["public/attachments", "public/hidden", "public/z"]
    assert found[0].omitted == Omitted(unreadable=1)


async def test_only_a_folder_can_be_listed(site: Site) -> None:
    fill(site.public, "file")
    (site.public / "link").symlink_to(".")
    for name in ("file", "link"):
        with pytest.raises(IsAFile):
            await site.workspace.list(RelPath((name,)), cursor=None, limit=10)
    with pytest.raises(NoSuchFolder):
        await site.workspace.list(RelPath(("none",)), cursor=None, limit=10)


@pytest.mark.parametrize("raw", [b"..", b"a/../../b", b"/etc", b"a//b", b"a\0", b"", b"x" * 5000])
async def test_a_cursor_that_is_none_of_ours_is_refused(site: Site, raw: bytes) -> None:
    with pytest.raises(InvalidPath):
        await site.workspace.list(ROOT, cursor=base64.urlsafe_b64encode(raw).decode(), limit=10)


@pytest.mark.parametrize("cursor", ["%", "ü", "a"])
async def test_text_that_is_no_cursor_is_refused(site: Site, cursor: str) -> None:
    with pytest.raises(InvalidPath):
        await site.workspace.list(ROOT, cursor=cursor, limit=10)


async def test_the_snapshot_has_the_state_of_each_delivered_file(site: Site) -> None:
    fill(site.attachments, "a.txt", "deep/er/b.txt")
    fill(site.public, "elsewhere.txt")
    (site.attachments / "link").symlink_to("a.txt")
    os.mkfifo(site.attachments / "fifo")
    fill(site.attachments, ".isthmus-0000000000000000")
    os.mkdir(os.fsencode(site.attachments) + b"/\xff")
    expected = {}
    for name in ("a.txt", "deep/er/b.txt"):
        status = (site.attachments / name).stat()
        expected[f"public/attachments/{name}"] = (status.st_ino, status.st_size, status.st_mtime_ns)
    assert await site.workspace.snapshot() == expected
    (site.attachments / "a.txt").write_bytes(b"other content")
    assert (await site.workspace.snapshot())["public/attachments/a.txt"] != expected[
        "public/attachments/a.txt"
    ]


async def test_attachments_that_are_a_link_show_nothing_of_its_target(site: Site) -> None:
    outside = site.tree.root / "outside"
    fill(outside, "secret")
    site.attachments.rmdir()
    site.attachments.symlink_to(outside)
    with pytest.raises(IsAFile):
        await site.workspace.snapshot()
    page = await site.workspace.list(ROOT, cursor=None, limit=10)
    assert (page.files, page.omitted) == ([], Omitted(links=1))
