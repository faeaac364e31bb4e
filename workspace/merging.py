"""Merge one folder into another, name by name, so that an interruption at any step loses and doubles nothing.

Iterative, with few descriptors whatever the depth. Runs on agent threads only.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, islice

from workspace.confine import FOLDER, closing, open_at
from workspace.paths import MAX_SEGMENT_BYTES, MAX_SEGMENTS
from workspace.renaming import keep_newer, rename_to_free_name

MAX_TOLD = 20
_MAX_NUMBER = 1000

Names = tuple[str, ...]


@dataclass(slots=True)
class Merge:
    """Moves what ``source`` holds into ``target``; both are open folders of one workspace, and stay open.

    Of two files of one name the one with the newer mtime is kept, the target's if they are equal. Folders of one
    name are merged, any other two entries are both kept, the incoming one as ``<stem>-<label><ext>``. Links are left
    where they are, and so is what the agent's rights or a mount keep from being moved: ``left`` tells the first few,
    path and reason. A folder with no namesake moves whole, with everything in it.
    """

    source: int
    target: int
    label: str
    moved: int = 0
    left: list[tuple[str, str]] = field(default_factory=list)
    left_count: int = 0

    def steps(self) -> Iterator[None]:
        """One step an entry. To stop is to close the iterator; a later merge goes on with what is there then."""
        pending: list[tuple[Names, bool]] = [((), False)]
        while pending:
            path, is_merged = pending.pop()
            if is_merged:
                self._remove(path)
                continue
            if path:
                pending.append((path, True))
            try:
                yield from self._folder(path, pending)
            except OSError as error:
                self._leave(path, reason(error))

    def _folder(self, path: Names, pending: list[tuple[Names, bool]]) -> Iterator[None]:
        with (
            closing(open_at(self.source, path, FOLDER)) as source,
            closing(open_at(self.target, path, FOLDER)) as target,
            os.scandir(source) as entries,
        ):
            for entry in entries:
                inner = (*path, entry.name)
                try:
                    if entry.is_symlink():
                        self._leave(inner, "link")
                    elif self._move(source, target, entry.name, depth=len(inner)):
                        pending.append((inner, False))
                except OSError as error:
                    self._leave(inner, reason(error))
                yield

    def _move(self, source: int, target: int, name: str, *, depth: int) -> bool:
        """Whether both are folders, to be merged. Raises OSError."""
        if move_to_free_name(source, name, target, name):
            self.moved += 1
            return False
        incoming = os.stat(name, dir_fd=source, follow_symlinks=False)
        present = os.stat(name, dir_fd=target, follow_symlinks=False)
        if stat.S_ISREG(incoming.st_mode) and stat.S_ISREG(present.st_mode):
            keep_newer(source, target, name)
        elif stat.S_ISDIR(incoming.st_mode) and stat.S_ISDIR(present.st_mode) and depth < MAX_SEGMENTS:
            return True
        else:
            keep_both(source, name, target, self.label)
        self.moved += 1
        return False

    def _remove(self, path: Names) -> None:
        """A folder that was merged. One that is not empty holds what was left, or what came meanwhile."""
        with suppress(OSError), closing(open_at(self.source, path[:-1], FOLDER)) as parent:
            os.rmdir(path[-1], dir_fd=parent)

    def _leave(self, path: Names, why: str) -> None:
        self.left_count += 1
        if len(self.left) < MAX_TOLD:
            self.left.append((os.fsencode("/".join(path)).decode(errors="replace"), why))


def keep_both(source: int, name: str, target: int, label: str) -> None:
    """Move the entry to the first name beside its namesake's that is free. Raises OSError."""
    for candidate in islice(_labelled(name, label), _MAX_NUMBER):
        if move_to_free_name(source, name, target, candidate):
            return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def move_to_free_name(source: int, name: str, target: int, new_name: str) -> bool:
    """Whether the name was free, which the kernel decides. Raises OSError."""
    try:
        rename_to_free_name(source, name, target, new_name)
    except OSError as error:
        if error.errno in {errno.EEXIST, errno.ENOTEMPTY}:
            return False
        raise
    return True


def _labelled(name: str, label: str) -> Iterator[str]:
    """``a.pdf`` → ``a-<label>.pdf``, ``a-<label>-2.pdf`` …, the stem cut to what a directory can hold.

    The names are as the disk has them, so not always Unicode.
    """
    stem, extension = os.path.splitext(name)
    for number in count(1):
        ending = f"-{label}{extension}" if number == 1 else f"-{label}-{number}{extension}"
        room = MAX_SEGMENT_BYTES - len(os.fsencode(ending))
        kept = os.fsencode(stem)
        # Only a stem that is cut may lose bytes that are no character.
        yield (stem if len(kept) <= room else kept[: max(room, 0)].decode(errors="ignore")) + ending


def reason(error: OSError) -> str:
    """The error's name in errno(3), such as ``EACCES``."""
    return errno.errorcode.get(error.errno or 0, "EIO")
