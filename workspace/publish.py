"""Publishing: a file is written without a name and gets it at once, whole, or never.

An unnamed file (``O_TMPFILE``) in the target folder itself is linked to its name. Where the name is taken it is
linked to a private name beside it and renamed onto the other: atomic, and a reader sees the old file or the new
one. Rename and link between mounts, and between XFS projects, fail: hence no staging directory elsewhere.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiofiles

from workspace import confine
from workspace.confine import closing, descriptor_path, facts
from workspace.directory import WorkspaceDirectory, same_folder
from workspace.errors import FolderMoved, IsAFolder, NoSpace, NotPermitted, WorkspaceError
from workspace.names import require_clean
from workspace.offload import Lane
from workspace.paths import PRIVATE_PREFIX, RelPath, display

# What open(2) says where a file system has no unnamed files (NFS, some FUSE; EISDIR: kernels before 3.11).
_NO_UNNAMED_FILES = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})


PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Published:
    """A file that has its name. ``identity`` is (inode, mtime in ns, size): another file of the name differs."""

    path: str
    name: str
    size: int
    replaced: bool
    identity: tuple[int, int, int]


class Draft:
    """A file in its folder that is not published yet. Runs on agent threads only."""

    def __init__(
        self, directory: WorkspaceDirectory, folder: RelPath, *, make_folder: bool, durable: bool
    ) -> None:
        """Raises what ``WorkspaceDirectory.open_folder`` or ``make_folder`` raise, NotPermitted, NoSpace, ReadOnly."""
        self._directory = directory
        self._path = folder
        self._durable = durable
        self._private: str | None = None
        self._folder = directory.make_folder(folder) if make_folder else directory.open_folder(folder)
        try:
            self._require_space()
            with facts(display(folder), denied=NotPermitted):
                self.fd = self._open_file()
        except BaseException:
            os.close(self._folder)
            raise

    def publish(self, name: str) -> Published:
        """Give the file its name, replacing whatever has it, unless that is a folder.

        Raises InvalidName unless the name is clean, IsAFolder, FolderMoved, NoSpace, NotPermitted, ReadOnly.
        """
        require_clean(name)
        path = display(RelPath((*self._path.segments, name)))
        with facts(path, denied=NotPermitted):
            os.fchmod(self.fd, self._directory.tree.file_mode & 0o777)
            if self._durable:
                os.fsync(self.fd)
            self._require_space()
            self._require_folder()
            replaced = self._place(name, path)
            if self._durable:
                os.fsync(self._folder)
            status = os.fstat(self.fd)
        try:
            self._require_folder()
        except WorkspaceError:
            if not replaced:
                self._withdraw(name, status)
            raise
        return Published(
            path, name, status.st_size, replaced, (status.st_ino, status.st_mtime_ns, status.st_size)
        )

    def discard(self) -> None:
        """Close the file: without a publication nothing is left of it."""
        if self._private is not None:
            with suppress(OSError):  # swept later
                os.unlink(self._private, dir_fd=self._folder)
        os.close(self.fd)
        os.close(self._folder)

    def _open_file(self) -> int:
        try:
            return confine.open_unnamed(self._folder)
        except OSError as error:
            if error.errno not in _NO_UNNAMED_FILES:
                raise
        private = private_name()
        fd = confine.open_new(self._folder, private)
        self._private = private
        return fd

    def _place(self, name: str, path: str) -> bool:
        """Whether something had the name before."""
        if self._private is None:
            try:
                self._link(name)
            except FileExistsError:
                private = private_name()
                self._link(private)
                self._private = private
            else:
                return False
        replaced = _exists(self._folder, name)
        try:
            os.rename(self._private, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except IsADirectoryError as error:
            raise IsAFolder(path) from error
        self._private = None
        return replaced

    def _link(self, name: str) -> None:
        os.link(descriptor_path(self.fd), name, dst_dir_fd=self._folder, follow_symlinks=True)

    def _withdraw(self, name: str, status: os.stat_result) -> None:
        with suppress(OSError):
            if os.path.samestat(os.stat(name, dir_fd=self._folder, follow_symlinks=False), status):
                os.unlink(name, dir_fd=self._folder)

    def _require_folder(self) -> None:
        """The path must still lead to the folder whose descriptor we hold."""
        try:
            with closing(self._directory.open_folder(self._path)) as now:
                if same_folder(now, self._folder):
                    return
        except WorkspaceError as error:
            raise FolderMoved(display(self._path)) from error
        raise FolderMoved(display(self._path))

    def _require_space(self) -> None:
        disk = os.fstatvfs(self._folder)
        share = self._directory.tree.min_free
        # Some file systems (btrfs) count no inodes and say 0 of 0.
        if disk.f_bavail < disk.f_blocks * share or disk.f_favail < disk.f_files * share:
            raise NoSpace()


class Incoming:
    """A file on its way into a folder: written in pieces, then published under a name."""

    def __init__(self, draft: Draft, lane: Lane, file: Any, folder: RelPath) -> None:
        self._draft = draft
        self._lane = lane
        self._file = file  # an aiofiles file: it has no public type
        self._shown = display(folder)
        self.size = 0

    @classmethod
    async def begin(cls, draft: Draft, lane: Lane, folder: RelPath) -> Incoming:
        """Wrap a draft; ``lane`` keeps its jobs in order and owns its descriptors."""
        # Unbuffered: a piece is on its way to the disk, and its error known, when ``write`` returns.
        file = await aiofiles.open(draft.fd, "wb", buffering=0, closefd=False, executor=lane)
        return cls(draft, lane, file, folder)

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append. Raises NoSpace, ReadOnly, Busy."""
        rest = memoryview(data)
        with facts(self._shown, denied=NotPermitted):
            while rest:
                written = await self._file.write(rest)
                self.size += written
                rest = rest[written:]

    async def pieces(self) -> AsyncIterator[bytes]:
        """What was written, in order, at most PIECE_BYTES at a time. Raises ReadOnly, Busy."""
        position = 0
        with facts(self._shown):
            while piece := await self._lane.run(os.pread, self._draft.fd, PIECE_BYTES, position):
                position += len(piece)
                yield piece

    async def publish(self, name: str) -> Published:
        """Give the file its name: see ``Draft.publish`` for what it raises."""
        return await self._lane.run(self._draft.publish, name)


def private_name() -> str:
    """A name that no client is shown, and that nothing else has."""
    return PRIVATE_PREFIX + secrets.token_hex(8)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
