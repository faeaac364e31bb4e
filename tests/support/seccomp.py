"""A process in which the kernel refuses openat2 and Landlock, as old kernels and some sandboxes do.

``python -m tests.support.seccomp ENOSYS …`` runs pytest there with the rest of the arguments.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

import pytest

from workspace import landlock
from workspace.confine import confinement

OPENAT2, LANDLOCK_CREATE_RULESET = 437, 444
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER_MODE = 38, 22, 2


class _Instruction(ctypes.Structure):
    """``struct sock_filter``."""

    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def refuse(numbers: tuple[int, ...], code: int) -> None:
    """Have these system calls fail with ``code``, for this thread and all that it starts from now on."""
    checks = [
        _Instruction(_JUMP_IF_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)
    ]
    listed = [
        _Instruction(_LOAD_WORD, 0, 0, 0),  # the number is the first word of struct seccomp_data
        *checks,
        _Instruction(_RETURN, 0, 0, _ALLOW),
        _Instruction(_RETURN, 0, 0, _ERRNO | code),
    ]
    program = _Program(len(listed), (_Instruction * len(listed))(*listed))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*(ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments)):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main(code: str, *arguments: str) -> int:
    refuse((OPENAT2, LANDLOCK_CREATE_RULESET), getattr(errno, code))
    assert ctypes.CDLL(None, use_errno=True).syscall(OPENAT2, -100, b".", None, 0) == -1
    assert ctypes.get_errno() == getattr(errno, code)
    print(f"confinement {confinement()}, Landlock {landlock.is_available()}", flush=True)
    return int(pytest.main([*arguments]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
