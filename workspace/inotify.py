"""inotify(7) through ctypes: the four calls and the reading of events that a watch needs."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from workspace.confine import descriptor_path

MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE, DELETE_SELF, MOVE_SELF = 0x40, 0x80, 0x100, 0x200, 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED, IS_FOLDER = 0x2000, 0x4000, 0x8000, 0x40000000
_ONLYDIR, _EXCL_UNLINK = 0x01000000, 0x04000000
# EXCL_UNLINK keeps back what is written to files that have no name, not yet or not any more.
_MASK = (
    MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF
    | _ONLYDIR | _EXCL_UNLINK
)  # fmt: skip

READ_BYTES = 64 * 1024
_HEAD = struct.Struct("iIII")  # struct inotify_event: wd, mask, cookie, len; then len bytes of name

# f_type of statfs(2) where another machine may make changes: NFS, CIFS, SMB2, FUSE, 9P, Ceph, AFS.
_REMOTE = frozenset({0x6969, 0xFF534D42, 0xFE534D42, 0x65735546, 0x01021997, 0x00C36400, 0x5346414F})

_libc = ctypes.CDLL(None, use_errno=True)


class Event(NamedTuple):
    """What happened to ``name`` in the folder of ``watch``, or, without a name, to that folder itself."""

    watch: int
    mask: int
    name: bytes


def open_instance() -> int:
    """A descriptor to read events from without waiting. Raises OSError: EMFILE when the user has too many."""
    return _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def add_folder(instance: int, folder: int) -> int:
    """Watch the folder that a descriptor holds; the watch's number.

    Raises OSError: ENOSPC when the user has too many, EACCES for what this thread may not read.
    """
    # The last part of the path is itself a link, so IN_DONT_FOLLOW would watch that.
    return _checked(_libc.inotify_add_watch(instance, descriptor_path(folder).encode(), _MASK))


def remove(instance: int, watch: int) -> None:
    """End a watch, if it has not ended by itself."""
    _libc.inotify_rm_watch(instance, watch)


def events(data: bytes) -> Iterator[Event]:
    """What one read of an instance gave: whole events. Pure."""
    position = 0
    while position < len(data):
        watch, mask, _, length = _HEAD.unpack_from(data, position)
        position += _HEAD.size + length
        yield Event(watch, mask, data[position - length : position].rstrip(b"\0"))


def is_remote(folder: int) -> bool:
    """Whether changes may be made where this kernel does not see them. Raises OSError."""
    filled = ctypes.create_string_buffer(
        256
    )  # struct statfs: f_type is its first word, of the size of a long
    _checked(_libc.fstatfs(folder, filled))
    return int(ctypes.c_long.from_buffer(filled).value) & 0xFFFFFFFF in _REMOTE


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
