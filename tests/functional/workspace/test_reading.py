"""Reading: regular files that the agent may read, and nothing that could hold the reader."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from pathlib import Path

import pytest

from tests.functional.workspace.conftest import Site, as_agent, needs_root
from workspace import handle
from workspace.errors import Busy, NotFound, NotReadable
from workspace.location import Location
from workspace.paths import RelPath
from workspace.registry import Workspaces
from workspace.settings import AgentTree


async def test_a_file_is_read_in_pieces_with_the_facts_of_its_opening(site: Site) -> None:
    (site.public / "sub").mkdir()
    file = site.public / "sub" / "a.txt"
    file.write_bytes(b"hello world")
    async with await site.workspace.open(RelPath(("sub", "a.txt"))) as opened:
        status = file.stat()
        assert (opened.size, opened.mtime_ns, opened.ctime_ns, opened.ino) == (
            11,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_ino,
        )
        assert os.fstat(opened.fd).st_ino == status.st_ino
        assert await opened.read(0, 5) == b"hello"
        assert await opened.read(6, 100) == b"world"
        assert await opened.read(11, 100) == b""
    with pytest.raises(ValueError, match="closed"):
        await opened.read(0, 1)
    await opened.close()


@pytest.mark.parametrize(
    "kind", ["nothing", "folder", "link", "fifo", "socket", "file in the way", "link in the way"]
)
async def test_anything_but_a_regular_file_is_not_found(site: Site, kind: str) -> None:
    outside = site.tree.root / "outside"
    outside.mkdir()
    (outside / "a").write_bytes(b"secret")
    entry, path = site.public / "a", RelPath(("a",))
    with socket.socket(socket.AF_UNIX) as listener:
        match kind:
            case "folder":
                entry.mkdir()
            case "link":
                entry.symlink_to(outside / "a")
            case "fifo":
                os.mkfifo(entry)
            case "socket":
                listener.bind(str(entry))
            case "file in the way":
                entry.write_bytes(b"")
                path = RelPath(("a", "a"))
            case "link in the way":
                entry.symlink_to(outside)
                path = RelPath(("a", "a"))
        with pytest.raises(NotFound) as caught:
            await site.workspace.open(path)
    assert caught.value.path == f"public/{path}"


async def test_the_public_directory_itself_is_no_file(site: Site) -> None:
    with pytest.raises(NotFound):
        await site.workspace.open(RelPath())


async def test_in_a_workspace_that_was_never_made_nothing_is_found(
    tree: AgentTree, workspaces: Workspaces
) -> None:
    with pytest.raises(NotFound):
        await workspaces.open("demo", tree, Location("nobody")).open(RelPath(("a",)))
    assert os.listdir(tree.root) == []


@needs_root
async def test_a_file_of_root_that_the_agent_renamed_into_public_is_not_readable(site: Site) -> None:
    secret = site.directory / "secret"
    secret.write_bytes(b"of root")
    secret.chmod(0o600)
    as_agent(lambda: os.rename(secret, site.public / "mine.txt"))
    with pytest.raises(NotReadable) as caught:
        await site.workspace.open(RelPath(("mine.txt",)))
    assert caught.value.path == "public/mine.txt"
    page = await site.workspace.list(RelPath(), cursor=None, limit=10)
    assert [entry.name for entry in page.files] == ["attachments", "mine.txt"]


@pytest.mark.parametrize("given_up", [True, False])
async def test_a_lease_holds_a_reader_for_a_moment_at_most(
    site: Site, monkeypatch: pytest.MonkeyPatch, given_up: bool
) -> None:
    """The holder of a write lease is told by a signal, and a plain open waits for it up to 45 s."""
    monkeypatch.setattr(handle, "LEASE_SECONDS", 0.3)
    file = Path(site.public / "a.txt")
    file.write_bytes(b"leased")
    os.chown(file, site.tree.uid, site.tree.gid)
    holder = os.open(file, os.O_RDWR)
    told = []

    def give_up(*_: object) -> None:
        told.append(True)
        if given_up:
            fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    before = signal.signal(signal.SIGIO, give_up)
    try:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        if given_up:
            async with await site.workspace.open(RelPath(("a.txt",))) as opened:
                assert await opened.read(0, 10) == b"leased"
        else:
            with pytest.raises(Busy):
                await site.workspace.open(RelPath(("a.txt",)))
        assert told
    finally:
        os.close(holder)
        signal.signal(signal.SIGIO, before)
