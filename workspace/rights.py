"""The agent's rights, taken by one thread: the kernel then answers it as it would answer the agent.

Raw system calls, because glibc's ``setgroups`` and Python's ``os.setgroups`` change every thread of the process.
See setfsuid(2): the calls return the previous id and no error, so the result is read back.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from workspace.errors import AgentRightsUnavailable

# setgroups, setfsuid, setfsgid, capget
_CALLS = {"x86_64": (116, 122, 123, 125), "aarch64": (159, 151, 152, 90), "riscv64": (159, 151, 152, 90)}
_NO_ID = -1  # an id that cannot be set: the call only tells the present one
# CAP_CHOWN … CAP_FSETID, CAP_LINUX_IMMUTABLE, CAP_MKNOD, CAP_MAC_OVERRIDE: what setfsuid(2) takes from a thread
# that leaves uid 0, unless a secure bit or a service that is not root keeps it from doing so.
_FILE_CAPABILITIES = 0b11111 | 1 << 9 | 1 << 27 | 1 << 32
_CAPABILITY_VERSION = 0x20080522

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


@dataclass(frozen=True, slots=True)
class Rights:
    """The ids of an agent, and the calls by which a thread works with them."""

    uid: int
    gid: int

    @property
    def _switches(self) -> bool:
        return os.geteuid() == 0 or self.uid != os.geteuid()

    def take(self) -> None:
        """Make this thread the agent's, if it is not yet. Raises AgentRightsUnavailable if the kernel refuses."""
        if not self._switches or self._held():
            return
        setgroups, *_ = _numbers()
        _syscall(ctypes.c_long(setgroups), ctypes.c_size_t(0), None)
        _set_ids(self.uid, self.gid)
        if not self._held() or os.getgroups():
            raise AgentRightsUnavailable(f"uid {self.uid} and gid {self.gid} cannot be taken on")
        if self.uid != 0 and _effective_capabilities() & _FILE_CAPABILITIES:
            raise AgentRightsUnavailable("the thread keeps capabilities that override the rights of files")

    @contextmanager
    def service(self) -> Iterator[None]:
        """Give an agent thread the service's own rights, for what only the service may do beside the tree."""
        if self._switches:
            _set_ids(os.geteuid(), os.getegid())
        try:
            yield
        finally:
            self.take()

    def _held(self) -> bool:
        _, setfsuid, setfsgid, _ = _numbers()
        return (_call(setfsuid, _NO_ID), _call(setfsgid, _NO_ID)) == (self.uid, self.gid)


def _set_ids(uid: int, gid: int) -> None:
    _, setfsuid, setfsgid, _ = _numbers()
    # The group first: a thread that has left uid 0 keeps CAP_SETGID, one in a stricter sandbox may not.
    _call(setfsgid, gid)
    _call(setfsuid, uid)


def _call(number: int, value: int) -> int:
    return int(_syscall(ctypes.c_long(number), ctypes.c_long(value)))


def _numbers() -> tuple[int, int, int, int]:
    machine = platform.machine()
    if machine not in _CALLS:
        raise AgentRightsUnavailable(f"the system calls of {machine} are not known here")
    return _CALLS[machine]


def _effective_capabilities() -> int:
    """Those of this thread: capget(2), since a confined thread may have no way to /proc."""
    *_, capget = _numbers()
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    words = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; then the same of the higher 32
    if _syscall(ctypes.c_long(capget), header, words):
        raise AgentRightsUnavailable("the capabilities of the thread cannot be read")
    return int(words[0] | words[3] << 32)
