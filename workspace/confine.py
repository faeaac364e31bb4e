"""The only opener: a descriptor and names in, a descriptor out, never above the first and never through a link.

``openat2(2)`` through ctypes, since neither the C library of Python 3.11 nor a wheel offers it. Where the kernel
has none, or a sandbox refuses it, the same answer comes from a walk of single names that are never followed. Every
other call of this package takes one name and a descriptor that was opened here.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal

from workspace.errors import (
    Busy,
    InvalidPath,
    MountInside,
    NoSpace,
    NotFound,
    NotReadable,
    ReadOnly,
    WorkspaceError,
)

FOLDER = os.O_RDONLY | os.O_DIRECTORY
NAME_ONLY = os.O_PATH | os.O_NOFOLLOW

_OPENAT2 = 437  # the same on every architecture
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
# A rename or mount elsewhere may make the kernel give up on a path for the moment.
_ATTEMPTS = 64

_RENAMEAT2 = {"x86_64": 316, "aarch64": 276, "riscv64": 276}
_NOREPLACE, _EXCHANGE = 0x01, 0x02

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


class _OpenHow(ctypes.Structure):
    """``struct open_how`` of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_at(folder: int, names: tuple[str | bytes, ...], flags: int, *, one_mount: bool = True) -> int:
    """Open what lies ``names`` below ``folder``; no names is the folder itself.

    No link is followed; with ``one_mount`` no mount is entered. The names are checked ones: no separator, no dots,
    no NUL. Raises OSError: ELOOP or ENOTDIR where a link or a file stands in the way, EXDEV at a mount.
    """
    encoded = [os.fsencode(name) for name in names] or [b"."]
    flags |= os.O_CLOEXEC
    if confinement() == "openat2":
        mounts = _NO_XDEV if one_mount else 0
        return _openat2(folder, b"/".join(encoded), flags, _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS | mounts)
    return _walk(folder, encoded, flags, one_mount)


def open_tree(path: Path) -> int:
    """The operator's own directory, by its configured path. Raises OSError."""
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def open_unnamed(folder: int) -> int:
    """A file in ``folder`` that has no name and vanishes with its descriptor. Raises OSError where none can be."""
    return os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=folder)


def open_new(folder: int, name: str) -> int:
    """A new file of this name. Raises OSError (EEXIST)."""
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, 0o600, dir_fd=folder)


def rename_noreplace(source: int, name: str | bytes, target: int, new_name: str | bytes) -> None:
    """Rename an entry of one folder to a free name in another, in one step that replaces nothing.

    renameat2(2) with RENAME_NOREPLACE. Raises OSError: EEXIST when the name is taken, EINVAL or ENOSYS where the
    file system or the kernel cannot do this (EINVAL also for a folder that would come to lie in itself).
    """
    _renameat2(source, name, target, new_name, _NOREPLACE)


def rename_exchange(source: int, name: str | bytes, target: int, new_name: str | bytes) -> None:
    """Let two entries change places in one step.

    renameat2(2) with RENAME_EXCHANGE. Raises OSError as ``rename_noreplace``, ENOENT when one is missing.
    """
    _renameat2(source, name, target, new_name, _EXCHANGE)


def reopen_for_reading(fd: int) -> int:
    """Open for reading the regular file that an O_PATH descriptor holds.

    Raises OSError: EACCES without the right to read, EAGAIN while a lease on the file is being broken (which a
    plain open would wait for).
    """
    return os.open(descriptor_path(fd), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def descriptor_path(fd: int) -> str:
    """The one path that is ever given to the kernel: that of a descriptor of ours."""
    return f"/proc/self/fd/{fd}"


@contextmanager
def closing(fd: int) -> Iterator[int]:
    """The descriptor, closed at the end."""
    try:
        yield fd
    finally:
        os.close(fd)


@cache
def confinement() -> Literal["openat2", "walk"]:
    """Which of the two ways confines here; tried once, by doing it."""
    with closing(open_tree(Path("/"))) as root:
        try:
            os.close(_openat2(root, b".", os.O_PATH | os.O_CLOEXEC, _BENEATH | _NO_SYMLINKS | _NO_XDEV))
        except OSError:
            return "walk"
    return "openat2"


Fact = Callable[[str], WorkspaceError]


@contextmanager
def facts(
    path: str, *, missing: Fact = NotFound, in_the_way: Fact = NotFound, denied: Fact = NotReadable
) -> Iterator[None]:
    """Tell an OSError as a fact about ``path``.

    ``missing`` is for ENOENT, ``in_the_way`` for a link or a file where a folder was meant, ``denied`` for rights
    that do not reach. What nobody expects stays an OSError.
    """
    try:
        yield
    except OSError as error:
        fact = _fact(error, path, missing, in_the_way, denied)
        if fact is None:
            raise
        raise fact from error


def _fact(error: OSError, path: str, missing: Fact, in_the_way: Fact, denied: Fact) -> WorkspaceError | None:
    match error.errno:
        case errno.ENOENT | errno.ESTALE:
            return missing(path)
        case errno.ELOOP | errno.ENOTDIR:
            return in_the_way(path)
        case errno.EACCES | errno.EPERM:
            return denied(path)
        case errno.EXDEV | errno.EBUSY:
            return MountInside(path)
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return NoSpace()
        case errno.EROFS | errno.EIO:
            return ReadOnly()
        case errno.ENAMETOOLONG:
            return InvalidPath("the file system does not hold names or paths of this length")
        case errno.EAGAIN | errno.EMFILE | errno.ENFILE | errno.ENOMEM:
            return Busy()
    return None


def _openat2(folder: int, path: bytes, flags: int, resolve: int) -> int:
    how = _OpenHow(flags, 0, resolve)
    code = 0
    for _ in range(_ATTEMPTS):
        fd = int(
            _syscall(
                ctypes.c_long(_OPENAT2),
                ctypes.c_int(folder),
                ctypes.c_char_p(path),
                ctypes.byref(how),
                ctypes.c_size_t(ctypes.sizeof(how)),
            )
        )
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(code, os.strerror(code))


def _renameat2(source: int, name: str | bytes, target: int, new_name: str | bytes, flags: int) -> None:
    number = _RENAMEAT2.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    failed = _syscall(
        ctypes.c_long(number),
        ctypes.c_int(source),
        ctypes.c_char_p(os.fsencode(name)),
        ctypes.c_int(target),
        ctypes.c_char_p(os.fsencode(new_name)),
        ctypes.c_uint(flags),
    )
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _walk(folder: int, names: list[bytes], flags: int, one_mount: bool) -> int:
    """One name at a time, each opened unfollowed from the descriptor of the one before it."""
    device = os.fstat(folder).st_dev
    current = folder
    try:
        for name in names[:-1]:
            following = os.open(name, NAME_ONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=current)
            if current != folder:
                os.close(current)
            current = following
            _require_device(current, device, one_mount)
        last = os.open(names[-1], flags | os.O_NOFOLLOW, dir_fd=current)
    finally:
        if current != folder:
            os.close(current)
    try:
        _require_device(last, device, one_mount)
    except OSError:
        os.close(last)
        raise
    return last


def _require_device(fd: int, device: int, one_mount: bool) -> None:
    """Only directories: overlayfs gives the files of its layers device numbers of their own."""
    status = os.fstat(fd)
    if one_mount and stat.S_ISDIR(status.st_mode) and status.st_dev != device:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
