"""Folders made, entries deleted and moved: what the kernel decides, what is refused, and that nothing is replaced."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from pathlib import Path

import pytest

from tests.functional.workspace.conftest import (
    AGENT_GID,
    AGENT_UID,
    IS_ROOT,
    Site,
    as_agent,
    names_in,
    needs_root,
)
from workspace import changes, confine, handle, walk
from workspace.changes import ExtensionLists
from workspace.directory import WorkspaceDirectory
from workspace.errors import (
    CannotMoveHere,
    Exists,
    ExtensionNotAllowed,
    InvalidName,
    InvalidPath,
    IsAFile,
    IsAFolder,
    MountInside,
    NoSuchFolder,
    NotFound,
    NotPermitted,
    PublicIsNotAFolder,
)
from workspace.location import Location, project_root
from workspace.paths import RelPath
from workspace.registry import Workspaces
from workspace.rights import Rights
from workspace.settings import AgentTree

LISTS = ExtensionLists(("txt", "pdf"), ("Makefile",))


def at(text: str) -> RelPath:
    return RelPath(tuple(text.split("/")))


def fill(site: Site, *files: str) -> None:
    """As the agent does; a name that ends with a slash is a folder."""

    def make() -> None:
        for file in files:
            path = site.public / file
            (path if file.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
            if not file.endswith("/"):
                path.write_bytes(file.encode())

    as_agent(lambda: make() or True)


def directory_of(site: Site) -> WorkspaceDirectory:
    return WorkspaceDirectory(site.tree, project_root(Location("ana")), Rights(AGENT_UID, AGENT_GID))


def without_noreplace(*_: object) -> None:
    raise OSError(errno.EINVAL, "no such flag")


@pytest.fixture(params=["in one step", "in two steps"])
def renaming(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file system can rename without replacing, and where it cannot."""
    if request.param == "in two steps":
        monkeypatch.setattr(confine, "rename_noreplace", without_noreplace)


async def test_a_folder_is_made_with_its_parents_as_the_agents_own(
    tree: AgentTree, workspaces: Workspaces
) -> None:
    workspace = workspaces.open("demo", tree, Location("new"))
    await workspace.make_folder(at("a/b/c"))
    await workspace.make_folder(at("a/b/c"))
    public = tree.root / "new" / "workspace" / "public"
    made = os.stat(public / "a" / "b" / "c")
    assert (made.st_uid, made.st_gid, made.st_mode & 0o777) == (AGENT_UID, AGENT_GID, 0o750)
    assert names_in(public) == ["a", "attachments"]


async def test_a_folder_is_made_in_one_of_any_name_but_has_a_clean_one_itself(site: Site) -> None:
    fill(site, "my reports/")
    await site.workspace.make_folder(at("my reports/2026"))
    assert names_in(site.public / "my reports") == ["2026"]
    with pytest.raises(InvalidName) as refused:
        await site.workspace.make_folder(at("my reports/first half/x"))
    assert refused.value.suggestion == "first_half"
    assert names_in(site.public / "my reports") == ["2026"]


@pytest.mark.parametrize("way", ["file", "link", "file/deeper", "link/deeper"])
async def test_a_file_or_a_link_in_the_way_of_a_folder_is_a_conflict(site: Site, way: str) -> None:
    fill(site, "file")
    (site.directory / "elsewhere").mkdir(mode=0o777)
    (site.public / "link").symlink_to(site.directory / "elsewhere")
    with pytest.raises(IsAFile):
        await site.workspace.make_folder(at(way))
    assert names_in(site.directory / "elsewhere") == []


async def test_a_file_is_deleted_and_a_link_only_as_a_name(site: Site) -> None:
    fill(site, "a/x.txt", "kept.txt")
    (site.public / "link").symlink_to("kept.txt")
    (site.public / "to-folder").symlink_to("a")
    for path in ("a/x.txt", "link", "to-folder"):
        await site.workspace.delete_file(at(path))
    assert names_in(site.public) == ["a", "attachments", "kept.txt"]
    assert names_in(site.public / "a") == []


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("gone", NotFound),
        ("gone/x", NotFound),
        ("kept.txt/x", NotFound),
        ("link/x.txt", NotFound),
        ("a", IsAFolder),
    ],
)
async def test_what_is_no_file_is_not_deleted(site: Site, path: str, error: type[Exception]) -> None:
    fill(site, "a/x.txt", "kept.txt")
    (site.public / "link").symlink_to("a")
    with pytest.raises(error):
        await site.workspace.delete_file(at(path))
    assert names_in(site.public / "a") == ["x.txt"]


async def test_a_folder_is_deleted_with_all_that_is_in_it_and_no_link_is_followed(site: Site) -> None:
    outside = site.directory / "outside"
    as_agent(lambda: outside.mkdir() or (outside / "kept").write_bytes(b"kept"))
    fill(site, "r/a", "r/b/c", "r/b/d/e", "r/empty/", "other")

    def plant() -> None:
        (site.public / "r" / "link").symlink_to(outside)
        (site.public / "r" / "b" / "link").symlink_to(outside / "kept")
        os.mkfifo(site.public / "r" / "fifo")
        os.mkdir(os.fsencode(site.public) + b"/r/\xff\xfe")
        (site.public / "r" / "b" / "d").chmod(0)
        (site.public / "r" / "b").chmod(0o500)
        (site.public / "r").chmod(0o500)

    as_agent(lambda: plant() or True)
    emptied = await site.workspace.delete_folder(at("r"))
    assert (emptied.files, emptied.in_time) == (6, True)
    assert names_in(site.public) == ["attachments", "other"]
    assert names_in(outside) == ["kept"]


async def test_a_folder_without_rights_is_deleted_from_inside_another(site: Site) -> None:
    fill(site, "a/b/c")
    as_agent(lambda: (site.public / "a" / "b").chmod(0) or True)
    assert (await site.workspace.delete_folder(at("a/b"))).files == 1
    assert names_in(site.public / "a") == []


@pytest.mark.parametrize(
    ("path", "error"), [("gone", NoSuchFolder), ("x.txt", IsAFile), ("link", IsAFile), ("x.txt/y", IsAFile)]
)
async def test_what_is_no_folder_is_not_deleted_as_one(site: Site, path: str, error: type[Exception]) -> None:
    fill(site, "x.txt", "a/y")
    (site.public / "link").symlink_to("a")
    with pytest.raises(error):
        await site.workspace.delete_folder(at(path))
    assert names_in(site.public) == ["a", "attachments", "link", "x.txt"]


def make_deep(public: Path, levels: int) -> None:
    parent = os.open(public, os.O_PATH)
    for _ in range(levels):
        os.mkdir("d", dir_fd=parent)
        child = os.open("d", os.O_PATH | os.O_NOFOLLOW, dir_fd=parent)
        os.close(parent)
        parent = child
    os.close(os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=parent))
    os.close(parent)


async def only_attachments_left(site: Site) -> None:
    """What is not taken away before the answer is soon after it."""
    async with asyncio.timeout(30):
        while names_in(site.public) != ["attachments"]:
            await asyncio.sleep(0.01)


async def test_a_tree_without_end_is_deleted(site: Site) -> None:
    as_agent(lambda: make_deep(site.public, 4000) or True)
    await site.workspace.delete_folder(at("d"))
    await only_attachments_left(site)


async def test_what_takes_long_is_gone_at_once_and_taken_away_after_the_answer(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(site, *(f"big/{number}" for number in range(3000)))
    monkeypatch.setattr(handle, "_EMPTYING_SLICE_SECONDS", 0.002)
    emptied = await site.workspace.delete_folder(at("big"))
    assert not emptied.in_time
    assert emptied.files < 3000
    assert not (site.public / "big").exists()
    await only_attachments_left(site)


async def test_a_folder_left_behind_by_a_kill_is_swept_by_the_listings_that_see_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(site, *(f"old/{number}" for number in range(50)), "young/x")

    def kill() -> str:
        directory = directory_of(site)
        os.utime(site.public / changes.set_aside(directory, at("old")), (0, 0))
        os.utime(site.public / "young", (0, 0))  # when it was deleted counts, not when it was written to
        return changes.set_aside(directory, at("young"))

    young = as_agent(kill)
    monkeypatch.setattr(walk, "SWEEP_SECONDS", -1.0)
    await site.workspace.list(RelPath(), cursor=None, limit=10)
    assert len(names_in(site.public)) == 3
    monkeypatch.setattr(walk, "SWEEP_SECONDS", 10.0)
    page = await site.workspace.list(RelPath(), cursor=None, limit=10)
    assert [entry.path for entry in page.files] == ["public/attachments"]
    assert names_in(site.public) == [young, "attachments"]


async def test_an_emptying_that_was_cut_is_taken_up_by_the_next_listing(site: Site) -> None:
    fill(site, *(f"big/{number}" for number in range(100)))

    def cut() -> changes.Emptied:
        directory = directory_of(site)
        return changes.empty_aside(directory, changes.set_aside(directory, at("big")), seconds=-1)

    assert as_agent(cut) == changes.Emptied(0, in_time=False)
    await site.workspace.list(RelPath(), cursor=None, limit=10)
    assert names_in(site.public) == ["attachments"]


@needs_root
async def test_a_mount_is_neither_deleted_nor_emptied(site: Site) -> None:
    fill(site, "a/m/", "a/b/c", *(f"a/{number}" for number in range(20)))
    mounted = site.public / "a" / "m"
    if os.system(f"mount -t tmpfs none {mounted}") != 0:
        pytest.skip("this sandbox makes no mounts")
    try:
        (mounted / "kept").write_bytes(b"kept")
        with pytest.raises(MountInside):
            await site.workspace.delete_folder(at("a/m"))
        with pytest.raises((MountInside, CannotMoveHere)):
            await site.workspace.move(at("a/b/c"), at("a/m/c"), None)
        emptied = await site.workspace.delete_folder(at("a"))
        (left,) = [name for name in names_in(site.public) if name.startswith(".isthmus-")]
        assert (emptied.files, names_in(site.public / left)) == (21, ["m"])
        mounted = site.public / left / "m"
        assert names_in(mounted) == ["kept"]
    finally:
        os.system(f"umount {mounted}")


@pytest.mark.usefixtures("renaming")
async def test_an_entry_is_renamed_and_moved(site: Site) -> None:
    fill(site, "a.txt", "b/c.txt", "d/")
    inode = os.stat(site.public / "a.txt").st_ino
    await site.workspace.move(at("a.txt"), at("b/new.txt"), LISTS)
    await site.workspace.move(at("b"), at("d/e"), LISTS)
    await site.workspace.move(at("d"), at("f"), LISTS)
    assert names_in(site.public) == ["attachments", "f"]
    assert names_in(site.public / "f" / "e") == ["c.txt", "new.txt"]
    assert os.stat(site.public / "f" / "e" / "new.txt").st_ino == inode


@pytest.mark.usefixtures("renaming")
@pytest.mark.parametrize("source", ["a.txt", "b"])
@pytest.mark.parametrize(
    "target", ["file.txt", "full", "empty", "link", "dangling", "hard.txt", "a.txt", "b"]
)
async def test_a_move_replaces_nothing(site: Site, source: str, target: str) -> None:
    fill(site, "a.txt", "b/c.txt", "file.txt", "full/x", "empty/")
    (site.public / "link").symlink_to("file.txt")
    (site.public / "dangling").symlink_to("nowhere")
    as_agent(lambda: os.link(site.public / "a.txt", site.public / "hard.txt") or True)
    before = names_in(site.public)
    with pytest.raises(Exists) as refused:
        await site.workspace.move(at(source), at(target), None)
    assert refused.value.path == f"public/{target}"
    assert names_in(site.public) == before
    assert (site.public / "file.txt").read_bytes() == b"file.txt"
    assert names_in(site.public / "b") == ["c.txt"]


@pytest.mark.usefixtures("renaming")
@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        ("gone", "x", NotFound),
        ("gone/a", "x", NotFound),
        ("link/c.txt", "x.txt", NotFound),
        ("a.txt", "gone/a.txt", NoSuchFolder),
        ("a.txt", "file/a.txt", IsAFile),
        ("a.txt", "link/a.txt", IsAFile),
        ("b", "b/b", InvalidPath),
        ("b", "b/deep/b", InvalidPath),
    ],
)
async def test_a_move_that_cannot_be_changes_nothing(
    site: Site, source: str, target: str, error: type[Exception]
) -> None:
    fill(site, "a.txt", "b/c.txt", "b/deep/", "file")
    (site.public / "link").symlink_to("b")
    with pytest.raises(error):
        await site.workspace.move(at(source), at(target), None)
    assert names_in(site.public) == ["a.txt", "attachments", "b", "file", "link"]
    assert names_in(site.public / "b") == ["c.txt", "deep"]


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        ("a.txt", "a.pdf", True),
        ("a.txt", "b.TXT", True),
        ("a.txt", "a.exe", False),
        ("a.txt", "Makefile", True),
        ("a.txt", "plain", False),
        ("odd.exe", "other.exe", True),
        ("folder", "folder.exe", True),
    ],
)
async def test_a_file_gets_another_extension_only_from_the_lists(
    site: Site, source: str, target: str, allowed: bool
) -> None:
    fill(site, "a.txt", "odd.exe", "folder/")
    if allowed:
        await site.workspace.move(at(source), at(target), LISTS)
        assert target in names_in(site.public)
        return
    with pytest.raises(ExtensionNotAllowed):
        await site.workspace.move(at(source), at(target), LISTS)
    assert source in names_in(site.public)


@needs_root
async def test_between_mounts_nothing_is_moved(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(site, "a.txt", "b/")

    def other_mount(*_: object) -> None:
        raise OSError(errno.EXDEV, "another mount")

    monkeypatch.setattr(confine, "rename_noreplace", other_mount)
    with pytest.raises(CannotMoveHere):
        await site.workspace.move(at("a.txt"), at("b/a.txt"), None)
    assert names_in(site.public / "b") == []


@pytest.mark.skipif(not IS_ROOT, reason="only root makes what is not the agent's")
async def test_what_is_not_the_agents_is_left_as_it_is(site: Site) -> None:
    (site.public / "foreign" / "inner").mkdir(parents=True)
    (site.public / "foreign" / "x.txt").write_bytes(b"x")
    (site.public / "foreign").chmod(0o755)
    with pytest.raises(NotPermitted):
        await site.workspace.delete_file(at("foreign/x.txt"))
    with pytest.raises(NotPermitted):
        await site.workspace.delete_folder(at("foreign/inner"))
    with pytest.raises(NotPermitted):
        await site.workspace.move(at("foreign/x.txt"), at("x.txt"), None)
    with pytest.raises(NotPermitted):
        await site.workspace.make_folder(at("foreign/new"))
    assert names_in(site.public / "foreign") == ["inner", "x.txt"]


async def test_public_being_a_link_is_no_way_out(site: Site) -> None:
    outside = site.directory / "outside"
    as_agent(lambda: outside.mkdir() or (outside / "a").write_bytes(b"a"))
    os.rename(site.public, site.directory / "was")
    site.public.symlink_to(outside)
    for change in (
        site.workspace.make_folder(at("b")),
        site.workspace.delete_file(at("a")),
        site.workspace.delete_folder(at("a")),
        site.workspace.move(at("a"), at("b"), None),
    ):
        with pytest.raises(PublicIsNotAFolder):
            await change
    assert names_in(outside) == ["a"]


async def test_one_of_many_moves_to_one_name_wins(site: Site) -> None:
    fill(site, *(f"{number}.txt" for number in range(10)))
    began = time.monotonic()
    moves = (site.workspace.move(at(f"{number}.txt"), at("one.txt"), None) for number in range(10))
    answers = await asyncio.gather(*moves, return_exceptions=True)
    assert [type(answer) for answer in answers].count(Exists) == 9
    assert len(names_in(site.public)) == 11
    assert time.monotonic() - began < 5
