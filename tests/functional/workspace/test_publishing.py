"""Files on their way in: whole or not at all, the agent's own, and never outside."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.functional.workspace.conftest import AGENT_GID, AGENT_UID, Site, as_agent, names_in, needs_root
from workspace import confine
from workspace.errors import (
    FolderMoved,
    InvalidName,
    IsAFile,
    IsAFolder,
    MountInside,
    NoSpace,
    NoSuchFolder,
    NotPermitted,
    PublicIsNotAFolder,
)
from workspace.location import Location
from workspace.paths import RelPath
from workspace.publish import Published
from workspace.registry import Workspaces
from workspace.settings import AgentTree

ROOT = RelPath()
ATTACHMENTS = RelPath(("attachments",))


async def put(site: Site, name: str, data: bytes, folder: RelPath = ROOT, *, make: bool = False) -> Published:
    async with site.workspace.receive(folder, make_folder=make) as incoming:
        await incoming.write(data)
        return await incoming.publish(name)


def owner_and_mode(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


async def test_a_prepared_workspace_is_the_agents_below_a_folder_that_is_the_services(site: Site) -> None:
    await site.workspace.prepare()
    assert owner_and_mode(site.tree.root / "ana") == (os.geteuid(), os.getegid(), 0o755)
    for folder in (site.directory, site.public, site.attachments):
        assert owner_and_mode(folder) == (AGENT_UID, AGENT_GID, 0o750)
    assert names_in(site.directory) == ["public"]
    assert names_in(site.public) == ["attachments"]


@needs_root
async def test_a_workspace_that_a_kill_left_before_it_was_given_away_is_given_away(site: Site) -> None:
    os.chown(site.directory, 0, 0)
    await site.workspace.prepare()
    assert owner_and_mode(site.directory) == (AGENT_UID, AGENT_GID, 0o750)


@needs_root
async def test_in_a_members_folder_that_the_agent_may_write_the_service_gives_nothing_away(
    site: Site,
) -> None:
    member = site.tree.root / "ana"
    os.chown(member, AGENT_UID, AGENT_GID)
    (member / "workspace-own").mkdir(mode=0o700)
    registry = Workspaces(durable=False)
    with pytest.raises(NotPermitted):
        await registry.open("demo", site.tree, Location("ana", "own")).prepare()
    assert owner_and_mode(member / "workspace-own")[:2] == (0, 0)
    await registry.open("demo", site.tree, Location("ana", "new")).prepare()
    assert owner_and_mode(member / "workspace-new") == (AGENT_UID, AGENT_GID, 0o750)
    await registry.close()


@pytest.mark.parametrize("umask", [0o000, 0o077])
async def test_a_file_is_the_agents_with_the_configured_mode_whatever_the_umask(
    site: Site, umask: int
) -> None:
    before = os.umask(umask)
    try:
        published = await put(site, "a.txt", b"hello", RelPath(("reports", "2026")), make=True)
    finally:
        os.umask(before)
    file = site.public / "reports" / "2026" / "a.txt"
    status = file.stat()
    assert published == Published(
        "public/reports/2026/a.txt", "a.txt", 5, False, (status.st_ino, status.st_mtime_ns, 5)
    )
    assert file.read_bytes() == b"hello"
    assert owner_and_mode(file) == (AGENT_UID, AGENT_GID, 0o640)
    assert owner_and_mode(file.parent) == (AGENT_UID, AGENT_GID, 0o750)


async def test_a_name_that_is_taken_gets_the_new_file_and_nothing_is_left_beside_it(site: Site) -> None:
    first = await put(site, "a.txt", b"one")
    second = await put(site, "a.txt", b"second")
    assert (first.replaced, second.replaced) == (False, True)
    assert first.identity != second.identity
    assert (site.public / "a.txt").read_bytes() == b"second"
    assert names_in(site.public) == ["a.txt", "attachments"]


async def test_an_empty_file_is_a_file(site: Site) -> None:
    async with site.workspace.receive(ROOT) as incoming:
        assert (await incoming.publish("empty")).size == 0
    assert (site.public / "empty").read_bytes() == b""


async def test_without_a_publication_nothing_is_left(site: Site) -> None:
    async with site.workspace.receive(ROOT) as incoming:
        await incoming.write(b"half")
        assert incoming.size == 4

    async def break_off() -> None:
        async with site.workspace.receive(ROOT) as incoming:
            await incoming.write(b"half")
            raise ConnectionError

    with pytest.raises(ConnectionError):
        await break_off()
    assert names_in(site.public) == ["attachments"]


async def test_a_file_system_without_unnamed_files_gets_a_private_name_for_the_while(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> int:
        raise OSError(errno.EOPNOTSUPP, "no unnamed files")

    monkeypatch.setattr(confine, "open_unnamed", refuse)
    async with site.workspace.receive(ROOT) as incoming:
        await incoming.write(b"half")
        assert [name[:9] for name in names_in(site.public)] == [".isthmus-", "attachmen"]
        assert [entry.name for entry in (await site.workspace.list(ROOT, cursor=None, limit=9)).files] == [
            "attachments"
        ]
    assert names_in(site.public) == ["attachments"]
    assert (await put(site, "a.txt", b"one")).replaced is False
    assert (await put(site, "a.txt", b"two")).replaced is True
    assert names_in(site.public) == ["a.txt", "attachments"]
    assert (site.public / "a.txt").read_bytes() == b"two"
    with pytest.raises(IsAFolder):
        await put(site, "attachments", b"x")
    assert names_in(site.public) == ["a.txt", "attachments"]


async def test_a_folder_of_the_name_stays(site: Site) -> None:
    with pytest.raises(IsAFolder) as caught:
        await put(site, "attachments", b"x")
    assert caught.value.path == "public/attachments"
    assert names_in(site.public) == ["attachments"]
    assert site.attachments.is_dir()


@pytest.mark.parametrize("kind", ["fifo", "socket", "link", "dangling"])
async def test_whatever_else_has_the_name_is_replaced_and_never_opened(
    site: Site, tmp_path: Path, kind: str
) -> None:
    target = site.public / "a.txt"
    outside = site.tree.root / "outside.txt"
    outside.write_bytes(b"outside")
    outside.chmod(0o666)
    with socket.socket(socket.AF_UNIX) as listener:
        match kind:
            case "fifo":
                os.mkfifo(target)
            case "socket":
                listener.bind(str(target))
            case "link":
                target.symlink_to(outside)
            case "dangling":
                target.symlink_to(site.tree.root / "made.txt")
        assert (await put(site, "a.txt", b"new")).replaced is True
    assert stat.S_ISREG(target.lstat().st_mode)
    assert target.read_bytes() == b"new"
    assert outside.read_bytes() == b"outside"
    assert not (site.tree.root / "made.txt").exists()


@pytest.mark.parametrize("name", ["..", "a/b", "a b", ".isthmus-0", "", "a\0"])
async def test_only_a_clean_name_can_be_published(site: Site, name: str) -> None:
    with pytest.raises(InvalidName):
        await put(site, name, b"x")
    assert names_in(site.public) == ["attachments"]


async def test_a_missing_folder_is_made_only_when_asked_and_only_with_clean_names(site: Site) -> None:
    with pytest.raises(NoSuchFolder) as missing:
        await put(site, "a", b"x", RelPath(("no", "where")))
    assert missing.value.path == "public/no/where"
    with pytest.raises(InvalidName) as unclean:
        await put(site, "a", b"x", RelPath(("no where",)), make=True)
    assert unclean.value.suggestion == "no_where"
    assert names_in(site.public) == ["attachments"]
    as_agent(lambda: os.mkdir(site.public / "its own name"))
    await put(site, "a", b"x", RelPath(("its own name",)), make=True)
    assert names_in(site.public / "its own name") == ["a"]


async def test_a_link_is_no_folder_anywhere_in_the_path(site: Site) -> None:
    outside = site.tree.root / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    (site.public / "link").symlink_to(outside)
    for folder in (RelPath(("link",)), RelPath(("link", "deeper"))):
        for make in (False, True):
            with pytest.raises((IsAFile, NoSuchFolder)):
                await put(site, "a", b"x", folder, make=make)
    site.attachments.rmdir()
    site.attachments.symlink_to(outside)
    await site.workspace.prepare()  # uploads elsewhere go on
    with pytest.raises(IsAFile) as caught:
        await put(site, "a", b"x", RelPath(("attachments",)), make=True)
    assert caught.value.path == "public/attachments"
    assert site.attachments.is_symlink()
    assert names_in(outside) == []


@pytest.mark.parametrize("kind", ["link", "file"])
async def test_public_that_is_no_folder_is_said_and_never_followed(site: Site, kind: str) -> None:
    outside = site.tree.root / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    site.attachments.rmdir()
    site.public.rmdir()
    site.public.symlink_to(outside) if kind == "link" else site.public.write_bytes(b"")
    with pytest.raises(PublicIsNotAFolder):
        await put(site, "a", b"x")
    with pytest.raises(PublicIsNotAFolder):
        await site.workspace.prepare()
    with pytest.raises(PublicIsNotAFolder):
        await site.workspace.list(ROOT, cursor=None, limit=10)
    with pytest.raises(PublicIsNotAFolder):
        await site.workspace.open(RelPath(("a",)))
    assert names_in(outside) == []


async def test_a_folder_that_was_moved_meanwhile_gets_no_file(site: Site) -> None:
    async with site.workspace.receive(RelPath(("box",)), make_folder=True) as incoming:
        await incoming.write(b"x")
        os.rename(site.public / "box", site.public / "moved")
        with pytest.raises(FolderMoved):
            await incoming.publish("a")
        os.mkdir(site.public / "box")
        with pytest.raises(FolderMoved):
            await incoming.publish("a")
    assert names_in(site.public / "moved") == []


async def test_two_uploads_of_one_name_leave_one_of_them_whole(site: Site) -> None:
    for round_number in range(25):
        contents = [bytes([65 + side]) * (200_000 + round_number) for side in (0, 1)]

        async def upload(data: bytes) -> None:
            async with site.workspace.receive(ROOT) as incoming:
                for start in range(0, len(data), 50_000):
                    await incoming.write(data[start : start + 50_000])
                await incoming.publish("same.bin")

        await asyncio.gather(*map(upload, contents))
        assert (site.public / "same.bin").read_bytes() in contents
        assert names_in(site.public) == ["attachments", "same.bin"]


async def test_a_reader_sees_the_old_file_or_the_new_one(site: Site) -> None:
    contents = [bytes([65 + side]) * 100_000 for side in (0, 1)]
    await put(site, "a.bin", contents[0])
    ended = threading.Event()
    broken: list[int] = []

    def read() -> None:
        while not ended.is_set():
            data = (site.public / "a.bin").read_bytes()
            if data not in contents:
                broken.append(len(data))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for turn in range(60):
            await put(site, "a.bin", contents[turn % 2])
    finally:
        ended.set()
        reader.join()
    assert broken == []


async def test_an_upload_that_was_cancelled_leaves_no_file_and_no_descriptor(site: Site) -> None:
    """The descriptors are counted by the guard that stands over each test."""

    async def upload() -> None:
        async with site.workspace.receive(ROOT) as incoming:
            while True:
                await incoming.write(bytes(100_000))

    for delay in (0.0, 0.0005, 0.001, 0.005, 0.02):
        task = asyncio.create_task(upload())
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (await put(site, "a", b"x")).size == 1
    assert names_in(site.public) == ["a", "attachments"]


KILLED = """
import asyncio, sys
from pathlib import Path
from workspace.location import Location
from workspace.paths import RelPath
from workspace.registry import Workspaces
from workspace.settings import AgentTree

async def main():
    tree = AgentTree(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), 0o600, 0o700, 0.0)
    async with Workspaces().open("demo", tree, Location("ana")).receive(RelPath(())) as incoming:
        await incoming.write(bytes(1_000_000))
        print("half", flush=True)
        await asyncio.sleep(30)

asyncio.run(main())
"""


async def test_a_kill_in_the_middle_of_an_upload_leaves_nothing(site: Site) -> None:
    command = [sys.executable, "-c", KILLED, str(site.tree.root), str(AGENT_UID), str(AGENT_GID)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"half\n"
        child.kill()
        assert child.wait() == -signal.SIGKILL
    assert names_in(site.public) == ["attachments"]


async def test_a_file_that_the_system_takes_no_further_is_no_space_and_leaves_nothing(site: Site) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    await put(site, "a.bin", b"old")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        with pytest.raises(NoSpace):
            await put(site, "a.bin", bytes(2_000_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names_in(site.public) == ["a.bin", "attachments"]
    assert (site.public / "a.bin").read_bytes() == b"old"


@needs_root
async def test_a_full_disk_is_no_space_and_leaves_what_was_there(
    site: Site, workspaces: Workspaces, tree: AgentTree
) -> None:
    disk = tree.root / "ben"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m,mode=755", "tmpfs", str(disk)], check=True)
    try:
        workspace = workspaces.open("demo", tree, Location("ben"))
        await workspace.prepare()
        public = disk / "workspace" / "public"
        other = Site(workspace, tree, public.parent)
        await put(other, "a.bin", b"old")
        with pytest.raises(NoSpace):
            await put(other, "a.bin", bytes(8 * 1024 * 1024))
        assert (public / "a.bin").read_bytes() == b"old"
        assert names_in(public) == ["a.bin", "attachments"]
        reserved = workspaces.open("reserved", replace(tree, min_free=0.5), Location("ben"))
        async with reserved.receive(ROOT) as incoming:
            await incoming.write(bytes(3 * 1024 * 1024))
            with pytest.raises(NoSpace):
                await incoming.publish("b.bin")
        assert names_in(public) == ["a.bin", "attachments"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@needs_root
async def test_a_mount_inside_a_workspace_is_not_entered(site: Site) -> None:
    inside = site.public / "mnt"
    inside.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "tmpfs", str(inside)], check=True)
    try:
        with pytest.raises(MountInside) as caught:
            await put(site, "a", b"x", RelPath(("mnt",)))
        assert caught.value.path == "public/mnt"
        page = await site.workspace.list(ROOT, cursor=None, limit=10)
        assert [entry.name for entry in page.files] == ["attachments", "mnt"]
        assert page.omitted.unreadable == 1
        assert names_in(inside) == []
    finally:
        subprocess.run(["umount", str(inside)], check=True)


@needs_root
async def test_a_folder_of_somebody_else_takes_no_file(site: Site) -> None:
    (site.public / "roots").mkdir()
    with pytest.raises(NotPermitted):
        await put(site, "a", b"x", RelPath(("roots",)))
    assert names_in(site.public / "roots") == []
