"""Publishing on each kind of file system, and what becomes of an upload when the file system gives out."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.functional.workspace.conftest import AGENT_GID, AGENT_UID, Site, as_agent, names_in, needs_root
from tests.support import mounts
from workspace.errors import IsAFolder, NotPermitted, ReadOnly
from workspace.location import Location
from workspace.paths import RelPath
from workspace.registry import Workspaces
from workspace.settings import AgentTree

pytestmark = needs_root

needs_ext4 = pytest.mark.skipif(
    not shutil.which("mkfs.ext4") or not Path("/dev/loop-control").exists(),
    reason="mkfs.ext4 and loop devices make the disks of this test",
)
MIB = 2**20
ROOT = RelPath()
PREPARED = ["attachments"]

MakeSite = Callable[[AgentTree], Awaitable[Site]]


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory beside the tree, that any uid may walk into."""
    with tempfile.TemporaryDirectory(prefix="isthmus-disk-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
async def make_site(confined_by: str) -> AsyncIterator[MakeSite]:
    """Durable, as in production: what a disk says to fsync is heard."""
    registry = Workspaces()

    async def make(tree: AgentTree) -> Site:
        workspace = registry.open("demo", tree, Location("ana"))
        await workspace.prepare()
        return Site(workspace, tree, tree.root / "ana" / "workspace")

    yield make
    await registry.close()


async def put(site: Site, name: str, data: bytes) -> bool:
    """Whether it replaced another."""
    async with site.workspace.receive(ROOT) as incoming:
        await incoming.write(data)
        return (await incoming.publish(name)).replaced


def file_system(kind: str, where: Path, outside: Path) -> AbstractContextManager[Path]:
    match kind:
        case "tmpfs":
            return mounts.tmpfs(where)
        case "overlayfs":
            return mounts.overlay(where, outside / "layers")
        case "ext4":
            return mounts.ext4(where, outside / "image")
        case _:
            (outside / "bound").mkdir()
            return mounts.mounted(where, "--bind", outside / "bound")


KINDS = ["tmpfs", "overlayfs", pytest.param("ext4", marks=needs_ext4), "bind mount"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["ana", "ana/workspace"])
async def test_files_are_published_and_replaced_alike_on_every_file_system(
    tree: AgentTree, make_site: MakeSite, outside: Path, kind: str, place: str
) -> None:
    """Mounted for a member, and for one workspace alone: `public` and what is in it lie on one mount."""
    (tree.root / "ana").mkdir(mode=0o755)
    with file_system(kind, tree.root / place, outside):
        if place == "ana/workspace":
            os.chown(tree.root / place, AGENT_UID, AGENT_GID)
        site = await make_site(tree)
        assert [await put(site, "a.txt", data) for data in (b"one", b"two")] == [False, True]
        with pytest.raises(IsAFolder):
            await put(site, "attachments", b"x")
        assert (site.public / "a.txt").read_bytes() == b"two"
        assert names_in(site.public) == ["a.txt", *PREPARED]
        status = (site.public / "a.txt").stat()
        assert (status.st_uid, status.st_gid) == (AGENT_UID, AGENT_GID)
        await site.workspace.move(RelPath(("a.txt",)), RelPath(("attachments", "b.txt")), None)
        async with await site.workspace.open(RelPath(("attachments", "b.txt"))) as opened:
            assert await opened.read(0, 9) == b"two"
        assert (await site.workspace.delete_folder(RelPath(("attachments",)))).files == 1
        assert names_in(site.public) == []


async def test_a_file_system_that_is_read_only_takes_nothing(tree: AgentTree, make_site: MakeSite) -> None:
    with mounts.tmpfs(tree.root / "ana") as disk:
        site = await make_site(tree)
        await put(site, "a.txt", b"old")
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(ReadOnly):
            await put(site, "a.txt", b"new")
        with pytest.raises(ReadOnly):
            await site.workspace.make_folder(RelPath(("box",)))
        async with await site.workspace.open(RelPath(("a.txt",))) as opened:
            assert await opened.read(0, 9) == b"old"
        assert names_in(site.public) == ["a.txt", *PREPARED]


async def test_a_folder_that_the_agent_closed_to_itself_takes_nothing(site: Site) -> None:
    as_agent(lambda: site.attachments.chmod(0o500) or True)
    with pytest.raises(NotPermitted) as caught:
        async with site.workspace.receive(RelPath(("attachments",))):
            raise AssertionError("it was opened")
    assert caught.value.path == "public/attachments"
    assert names_in(site.attachments) == []


@needs_ext4
async def test_a_disk_that_fails_to_write_is_said_and_nothing_is_published(
    tree: AgentTree, make_site: MakeSite, outside: Path
) -> None:
    """The disk becomes shorter than its file system: what the page cache took, it refuses when that is synced."""
    with mounts.ext4(tree.root / "ana", outside / "image", mebibytes=64) as disk:
        site = await make_site(tree)
        await put(site, "a.bin", b"old")
        mounts.shorten(disk, outside / "image", 16)
        with pytest.raises(ReadOnly):
            await put(site, "a.bin", os.urandom(40 * MIB))
        assert (site.public / "a.bin").read_bytes() == b"old"
        assert names_in(site.public) == ["a.bin", *PREPARED]
