"""A folder read as an archive, and how much it holds: what is in, what is left out and said, and the bounds."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Generator
from pathlib import Path

import pytest

from proxy.archives import zip_of
from tests.functional.workspace.conftest import AGENT_GID, AGENT_UID, Site, as_agent, needs_root
from tests.functional.workspace.test_changes import at, fill, make_deep
from workspace import archive
from workspace.archive import Contents
from workspace.directory import WorkspaceDirectory
from workspace.errors import ArchiveTooLarge, IsAFile, NoSuchFolder
from workspace.location import Location, project_root
from workspace.paths import RelPath
from workspace.registry import Workspaces
from workspace.rights import Rights
from workspace.settings import AgentTree
from workspace.usage import Usage, usage
from workspace.walk import Budget

ROOT = RelPath()


async def packed(site: Site, folder: RelPath = ROOT) -> zipfile.ZipFile:
    data = bytearray()
    async with site.workspace.archive(folder, zip_of) as stream:
        async for piece in stream:
            data += piece
    found = zipfile.ZipFile(io.BytesIO(data))
    assert found.testzip() is None
    return found


async def test_an_archive_has_the_files_and_the_empty_folders_of_all_depths(site: Site) -> None:
    fill(site, "r/a.txt", "r/b/c/d.txt", "r/b/empty/", "r/none", "other.txt")
    content = os.urandom(3_000_000)
    as_agent(lambda: (site.public / "r" / "big").write_bytes(content))
    (site.public / "r" / "none").write_bytes(b"")
    found = await packed(site, at("r"))
    assert found.namelist() == ["a.txt", "b/c/d.txt", "b/empty/", "big", "none"]
    assert found.read("b/c/d.txt") == b"r/b/c/d.txt"
    assert (found.read("big"), found.read("none"), found.comment) == (content, b"", b"")
    assert "other.txt" in (await packed(site)).namelist()


async def test_links_and_special_files_are_left_out_and_counted(site: Site) -> None:
    outside = site.directory / "outside"
    outside.mkdir(mode=0o755)
    (outside / "secret").write_bytes(b"secret")
    fill(site, "a.txt", ".isthmus-0000000000000000")
    (site.public / "file").symlink_to(outside / "secret")
    (site.public / "folder").symlink_to(outside)
    os.mkfifo(site.public / "fifo")
    os.mkdir(os.fsencode(site.public) + b"/\xff\xfe")
    found = await packed(site)
    assert found.namelist() == ["a.txt", "attachments/"]
    assert found.comment == b"left out: 2 links, 1 special, 1 undecodable"


@needs_root
async def test_what_the_agent_may_not_read_is_left_out_and_counted(site: Site) -> None:
    fill(site, "a.txt")
    for name in ("roots.txt", "closed"):
        (site.public / name).mkdir(0o700) if name == "closed" else (site.public / name).write_bytes(b"secret")
    (site.public / "roots.txt").chmod(0o600)
    found = await packed(site)
    assert [name for name in found.namelist() if not name.endswith("/")] == ["a.txt"]
    assert found.comment == b"left out: 2 unreadable"


async def test_member_names_are_clean_and_no_two_are_the_same(site: Site) -> None:
    fill(
        site, "a b.txt", "a_b.txt", "A_b.txt", "a_B.txt", "..\\..\\up.txt", "C:x", "con.txt", "…/in", "___/x"
    )
    names = (await packed(site)).namelist()
    assert sorted(names) == [
        "A_b.txt", "C_x", "_-2/in", "_/x", "_con.txt", "a_B-3.txt", "a_b-2.txt", "a_b-4.txt", "attachments/", "up.txt",
    ]  # fmt: skip


async def test_a_tree_without_end_is_packed_as_far_as_paths_reach(site: Site) -> None:
    fill(site, "a.txt")
    as_agent(lambda: make_deep(site.public, 4000) or True)
    found = await packed(site)
    assert found.namelist()[0] == "a.txt"
    assert max(name.count("/") for name in found.namelist()) == 31
    assert found.comment == b"left out: 1 too_deep"
    await site.workspace.delete_folder(at("d"))  # the fixture's own removal would recurse


@pytest.mark.parametrize(("limit", "value"), [("MAX_FILES", 5), ("MAX_BYTES", 500_000)])
async def test_more_than_an_archive_holds_is_refused_before_a_byte(
    site: Site, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    fill(site, "r/a", "r/b", "r/c", "r/d")
    as_agent(lambda: (site.public / "r" / "e").write_bytes(bytes(500_000 - 12)))
    monkeypatch.setattr(archive, limit, value)
    assert len((await packed(site, at("r"))).namelist()) == 5
    fill(site, "r/f")
    with pytest.raises(ArchiveTooLarge):
        await packed(site, at("r"))


async def test_a_walk_that_takes_too_long_is_refused(site: Site) -> None:
    fill(site, "a", "b")
    with pytest.raises(ArchiveTooLarge):
        as_agent_raising(lambda: Contents(directory_of(site), ROOT, Budget(entries=2)))
    with pytest.raises(ArchiveTooLarge):
        as_agent_raising(lambda: Contents(directory_of(site), ROOT, Budget(seconds=-1)))


async def test_files_that_grow_shrink_or_go_while_they_are_packed_leave_a_whole_archive(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(site, "a", "gone", "grows", "shrinks", "too-large", "z")
    as_agent(lambda: (site.public / "shrinks").write_bytes(bytes(10_000)))
    monkeypatch.setattr(archive, "MAX_BYTES", 100_000)

    def change() -> None:
        (site.public / "gone").unlink()
        (site.public / "grows").write_bytes(b"grown" * 100)
        (site.public / "too-large").write_bytes(bytes(100_001))

    def encode(contents: Contents) -> Generator[bytes]:
        change()
        for piece in zip_of(contents):
            yield piece
            if b"shrinks" in piece:  # the member's head; its bytes come next
                os.truncate(site.public / "shrinks", 10)
            if b"grows" in piece:
                os.truncate(site.public / "grows", 200_000)

    data = b""
    async with site.workspace.archive(ROOT, encode) as stream:
        async for piece in stream:
            data += piece
    found = zipfile.ZipFile(io.BytesIO(data))
    assert found.testzip() is None
    assert found.namelist() == ["a", "attachments/", "grows", "shrinks", "z"]
    assert (found.read("grows"), found.read("shrinks")) == (b"grown" * 100, bytes(10))
    assert found.comment == b"left out: 1 unreadable, 1 too_large"


async def test_a_reader_that_leaves_leaves_nothing_open(site: Site) -> None:
    as_agent(lambda: (site.public / "big").write_bytes(os.urandom(5_000_000)))
    before = len(os.listdir("/proc/self/fd"))
    async with site.workspace.archive(ROOT, zip_of) as stream:
        async for _ in stream:
            break
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize(("folder", "error"), [("gone", NoSuchFolder), ("a", IsAFile), ("link", IsAFile)])
async def test_what_is_no_folder_is_no_archive(site: Site, folder: str, error: type[Exception]) -> None:
    fill(site, "a")
    (site.public / "link").symlink_to("attachments")
    with pytest.raises(error):
        await packed(site, at(folder))


async def test_usage_is_the_size_of_all_regular_files(site: Site) -> None:
    fill(site, "12345", "a/b/12345678")
    (site.public / "link").symlink_to(site.public / "12345")
    as_agent(lambda: Path(os.fsdecode(os.fsencode(site.public) + b"/\xff")).write_bytes(b"123"))
    assert await site.workspace.usage() == Usage(5 + 12 + 3, is_whole=True)


async def test_usage_of_nothing_is_nothing_and_makes_nothing(tree: AgentTree, workspaces: Workspaces) -> None:
    assert await workspaces.open("demo", tree, Location("nobody")).usage() == Usage(0, is_whole=True)
    assert list(tree.root.iterdir()) == []


async def test_usage_says_when_it_is_not_the_whole(site: Site) -> None:
    fill(site, "a", "b")
    assert as_agent(lambda: usage(directory_of(site), Budget(entries=2))) == Usage(1, is_whole=False)
    as_agent(lambda: make_deep(site.public, 40) or True)
    assert await site.workspace.usage() == Usage(2, is_whole=False)


def directory_of(site: Site) -> WorkspaceDirectory:
    return WorkspaceDirectory(site.tree, project_root(Location("ana")), Rights(AGENT_UID, AGENT_GID))


def as_agent_raising(work: object) -> None:
    """Do it as the agent; what it raises is raised here."""

    def run() -> object:
        try:
            work()  # type: ignore[operator]  # any callable without arguments
        except Exception as error:
            return error
        return True

    result = as_agent(run)
    if isinstance(result, Exception):
        raise result
