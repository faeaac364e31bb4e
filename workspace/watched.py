"""What a watch looks at: the folders of one public directory under inotify, or, where that cannot be, its snapshots."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from dataclasses import dataclass, field

from workspace import inotify
from workspace.confine import FOLDER, closing, open_at
from workspace.directory import WorkspaceDirectory
from workspace.errors import NoSuchFolder
from workspace.paths import PUBLIC, has_control_character, is_private
from workspace.walk import Budget, BytesPath, Walk

MAX_FOLDERS = 512
MAX_LEVELS = 16
MAX_READS = 16
"""Reads of ``inotify.READ_BYTES`` at a time: the rest is read the next time."""
SNAPSHOT_ENTRIES = 20_000
SNAPSHOT_SECONDS = 0.5

# Of one folder: it went away, became something else, is another mount or not the agent's to read.
_NOT_WATCHED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.EACCES, errno.EPERM})
_NO_NAME = re.compile(rb"#[0-9]+")
_COME = inotify.CREATE | inotify.MOVED_TO
_GONE = inotify.MOVED_FROM | inotify.DELETE

Names = tuple[str, ...]


class CannotWatch(Exception):
    """Too many folders or levels, a remote file system, or the kernel grants no more: it is polled instead."""


@dataclass(slots=True)
class Batch:
    """What happened since the last one. ``folders`` are new and not watched yet; ``lost``: no more can be known."""

    changed: set[Names] = field(default_factory=set)
    folders: set[Names] = field(default_factory=set)
    lost: bool = False


class WatchedFolders:
    """One inotify instance, and which folder each of its watches stands for.

    All but ``read`` runs on agent threads, one call at a time.
    """

    def __init__(self, directory: WorkspaceDirectory) -> None:
        """Watch everything. Raises CannotWatch, OSError, and what ``WorkspaceDirectory.open_public`` raises."""
        self._directory = directory
        self._folders: dict[int, Names] = {}
        self.instance = inotify.open_instance()
        try:
            self.add({()})
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        os.close(self.instance)

    def add(self, folders: set[Names]) -> set[Names]:
        """Watch these folders with all that is in them, which is returned: it may have come before its watch did.

        Raises CannotWatch, OSError, and what ``WorkspaceDirectory.open_public`` raises.
        """
        found: set[Names] = set()
        pending = list(folders)
        budget = Budget()
        with closing(self._directory.open_public()) as public:
            while pending:
                path = pending.pop()
                try:
                    self._add_one(public, path, found, pending, budget)
                except OSError as error:
                    if error.errno not in _NOT_WATCHED:
                        raise CannotWatch from error
        return found

    def _add_one(
        self, public: int, path: Names, found: set[Names], pending: list[Names], budget: Budget
    ) -> None:
        with closing(open_at(public, path, FOLDER)) as folder:
            if len(self._folders) >= MAX_FOLDERS or len(path) > MAX_LEVELS or inotify.is_remote(folder):
                raise CannotWatch
            self._folders[inotify.add_folder(self.instance, folder)] = path
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not budget.spend():
                        raise CannotWatch
                    if _is_shown(os.fsencode(entry.name)):
                        found.add((*path, entry.name))
                        if entry.is_dir(follow_symlinks=False):
                            pending.append((*path, entry.name))

    def read(self) -> Batch:
        """What has come by now; does not wait."""
        batch = Batch()
        gone: set[Names] = set()
        for _ in range(MAX_READS):
            try:
                data = os.read(self.instance, inotify.READ_BYTES)
            except BlockingIOError:
                break
            for event in inotify.events(data):
                self._take(event, batch, gone)
        self._forget(gone)
        return batch

    def _take(self, event: inotify.Event, batch: Batch, gone: set[Names]) -> None:
        if event.mask & inotify.OVERFLOW:
            batch.lost = True
        folder = self._folders.get(event.watch)
        if folder is None:
            return  # a watch that was ended while its last events waited
        if not event.name:
            if event.mask & inotify.IGNORED:
                del self._folders[event.watch]
            if folder == () and event.mask & (inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.UNMOUNT):
                batch.lost = True
            return
        if not _is_shown(event.name) or _is_of_no_name(event):
            return
        path = (*folder, event.name.decode())
        batch.changed.add(path)
        if event.mask & inotify.IS_FOLDER:
            if event.mask & _COME:
                batch.folders.add(path)
            if event.mask & _GONE:
                gone.add(path)

    def _forget(self, gone: set[Names]) -> None:
        """End the watches of folders that went elsewhere; one that came back is among the new ones."""
        if not gone:
            return
        for watch, path in list(self._folders.items()):
            if any(path[:length] in gone for length in range(1, len(path) + 1)):
                inotify.remove(self.instance, watch)
                del self._folders[watch]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every entry, by its path, with what differs when it changed; ``end`` is the last one if there are more."""

    entries: dict[BytesPath, tuple[int, ...]]
    end: BytesPath | None = None

    def difference(self, other: Snapshot) -> set[Names]:
        """What is only in one, or not the same in both, as far as both go. Pure."""
        ends = [snapshot.end for snapshot in (self, other) if snapshot.end is not None]
        return {
            tuple(name.decode() for name in path)
            for path in self.entries.keys() | other.entries.keys()
            if self.entries.get(path) != other.entries.get(path) and all(path <= end for end in ends)
        }


def take_snapshot(directory: WorkspaceDirectory) -> Snapshot:
    """The public directory as it is now, as far as a bounded walk gets; nothing if there is none.

    Raises what ``WorkspaceDirectory.open_public`` raises otherwise. Runs on an agent thread.
    """
    try:
        top = directory.open_public()
    except NoSuchFolder:
        return Snapshot({})
    budget = Budget(SNAPSHOT_ENTRIES, SNAPSHOT_SECONDS)
    entries: dict[BytesPath, tuple[int, ...]] = {}
    with Walk(top, (PUBLIC.encode(),), batch=SNAPSHOT_ENTRIES, now=time.time()) as walk:
        for found in walk:
            if found.is_listed:
                entries[found.path] = _state(found.status)
            if not budget.spend():
                return Snapshot(entries, found.path)
    return Snapshot(entries)


def _state(status: os.stat_result) -> tuple[int, ...]:
    # A folder's own times change with what is in it, and that is told by itself.
    if stat.S_ISDIR(status.st_mode):
        return (status.st_ino,)
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _is_of_no_name(event: inotify.Event) -> bool:
    """Whether it may be about a file that has no name yet, which the kernel calls by ``#`` and its inode number.

    It tells only of changed attributes then (the rest is kept back by IN_EXCL_UNLINK), as when the file gets its mode.
    """
    return event.mask == inotify.ATTRIB and _NO_NAME.fullmatch(event.name) is not None


def _is_shown(name: bytes) -> bool:
    """Whether a listing would have an entry of this name."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return False
    return not is_private(text) and not has_control_character(text)
