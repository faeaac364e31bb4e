"""Landlock: a thread gives up, for good, whatever lies outside the one workspace that it works on.

See landlock(7). The confinement is the thread's own and is inherited by the threads that it starts, never taken
back; so a thread that has it never works on another workspace. It is a second wall: the first is ``confine``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from functools import cache

from workspace.confine import closing
from workspace.errors import AgentRightsUnavailable, Replaced

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_ASK_VERSION = 1
_PATH_BENEATH = 1
_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _MAKE_REG, _IOCTL_DEV = 1 << 0, 1 << 1, 1 << 2, 1 << 8, 1 << 15
_RIGHTS_OF_ABI = {2: 14, 3: 15, 4: 15, 5: 16}
"""How many rights over files each version knows, from bit 0 on; later versions add none that we use."""

# Version 1 refuses every rename and link from one folder to another: moves would not work.
_OLDEST = min(_RIGHTS_OF_ABI)
_LATEST = max(_RIGHTS_OF_ABI)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_this_thread = threading.local()


class _RulesetAttr(ctypes.Structure):
    """The part of ``struct landlock_ruleset_attr`` that is about files."""

    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneathAttr(ctypes.Structure):
    """``struct landlock_path_beneath_attr``."""

    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


@cache
def is_available() -> bool:
    """Whether this kernel has Landlock of version 2 or later, and nothing forbids its use."""
    return _version() >= _OLDEST


def confine_this_thread(workspace: int, lock_files: int | None = None) -> None:
    """Leave this thread nothing but the workspace, and regular files in the directory ``lock_files``.

    Both are open, at least as names. Raises AgentRightsUnavailable if the kernel refuses.
    """
    known = (1 << _RIGHTS_OF_ABI[min(_version(), _LATEST)]) - 1
    try:
        with closing(
            _checked(_call(_CREATE_RULESET, *_sized(_RulesetAttr(known)), ctypes.c_uint(0)))
        ) as rules:
            _allow(rules, workspace, known & ~(_EXECUTE | _IOCTL_DEV))
            if lock_files is not None:
                _allow(rules, lock_files, _WRITE_FILE | _READ_FILE | _MAKE_REG)
            # Asked for by the kernel, unless the service is all-powerful; it is this thread's alone.
            _checked(_libc.prctl(_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))))
            _checked(_call(_RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint(0)))
    except OSError as error:
        raise AgentRightsUnavailable(f"Landlock does not confine the thread: {error.strerror}") from error
    _this_thread.workspace = _identity(workspace)


def is_confined() -> bool:
    """Whether this thread is confined already."""
    return hasattr(_this_thread, "workspace")


def require_workspace(workspace: int) -> None:
    """Raises Replaced if this thread is confined to another directory than this one."""
    if is_confined() and _this_thread.workspace != _identity(workspace):
        raise Replaced()


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _version() -> int:
    return _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_ASK_VERSION))


def _allow(rules: int, folder: int, access: int) -> None:
    rule = _PathBeneathAttr(access, folder)
    _checked(
        _call(
            _ADD_RULE, ctypes.c_int(rules), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint(0)
        )
    )


def _sized(attributes: ctypes.Structure) -> tuple[object, ctypes.c_size_t]:
    return ctypes.byref(attributes), ctypes.c_size_t(ctypes.sizeof(attributes))


def _call(number: int, *arguments: object) -> int:
    return int(_libc.syscall(ctypes.c_long(number), *arguments))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno() or errno.EPERM
        raise OSError(code, os.strerror(code))
    return result
