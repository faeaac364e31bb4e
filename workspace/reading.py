"""Reading: one regular file, opened so that neither a device, a pipe nor a lease can hold the thread."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from workspace import confine
from workspace.confine import closing, facts, open_at
from workspace.directory import WorkspaceDirectory
from workspace.errors import Busy, NoSuchFolder, NotFound
from workspace.offload import AgentThreads, Lane
from workspace.paths import RelPath, display


class Leased(Busy):
    """Somebody holds a lease on the file, which the kernel is taking back: ask again soon."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A descriptor and what the file was when it was opened; times in ns."""

    fd: int
    size: int
    mtime_ns: int
    ctime_ns: int
    ino: int

    def close(self) -> None:
        os.close(self.fd)


def open_regular(directory: WorkspaceDirectory, path: RelPath) -> Opened:
    """Open a file below the public directory. Runs on an agent thread.

    Raises NotFound for anything but a regular file, NotReadable, PublicIsNotAFolder, MountInside, Leased.
    """
    shown = display(path)
    if not path.segments:
        raise NotFound(shown)
    try:
        public = directory.open_public()
    except NoSuchFolder as error:
        raise NotFound(shown) from error
    with closing(public), facts(shown):
        name = open_at(public, path.segments, confine.NAME_ONLY)
    with closing(name):
        if not stat.S_ISREG(os.fstat(name).st_mode):
            raise NotFound(shown)
        fd = _reopen(name, shown)
    status = os.fstat(fd)
    return Opened(fd, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class OpenFile:
    """A file that is being read: an async context manager; the attributes are those of ``Opened``."""

    def __init__(self, opened: Opened, threads: AgentThreads, path: RelPath) -> None:
        self.fd = opened.fd
        self.size = opened.size
        self.mtime_ns = opened.mtime_ns
        self.ctime_ns = opened.ctime_ns
        self.ino = opened.ino
        self._shown = display(path)
        self._lane = Lane(threads, opened.close)

    async def read(self, offset: int, count: int) -> bytes:
        """At most ``count`` bytes; none at the end of the file, wherever that is now. Raises ReadOnly, Busy."""
        with facts(self._shown):
            return await self._lane.run(os.pread, self.fd, count, offset)

    async def close(self) -> None:
        """Close the descriptor, after a read that still runs."""
        await self._lane.close()

    async def __aenter__(self) -> OpenFile:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _reopen(name: int, shown: str) -> int:
    with facts(shown):
        try:
            return confine.reopen_for_reading(name)
        except BlockingIOError as error:
            raise Leased() from error
