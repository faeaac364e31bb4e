"""Fixtures for all tests, and the guards that stand over each: no task, thread or descriptor left, loopback only."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

LOOPBACK = ("127.", "::1", "localhost")
SLOW_CALLBACK_SECONDS = 0.5
SETTLE_SECONDS = 3.0


@pytest.fixture(autouse=True)
def _loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection to anything but this machine is an error."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and not str(address[0]).startswith(LOOPBACK):
            raise AssertionError(f"a test connects to {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not thread.daemon}


def _descriptors() -> set[tuple[str, str]]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))
        except FileNotFoundError:
            continue
    return found


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every thread and descriptor that a test opens is closed when it ends."""
    if "module_keeps_open" in request.fixturenames:
        yield
        return
    threads, descriptors = _threads(), _descriptors()
    yield
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        gc.collect()
        left_threads = _threads() - threads
        left = {item for item in _descriptors() - descriptors if _ours(item[1])}
        if not (left_threads or left) or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    assert not left_threads, f"threads left: {left_threads}"
    assert not left, f"descriptors left: {left}"


def _ours(target: str) -> bool:
    return not target.startswith(("/dev/", "anon_inode:[pidfd]", "/proc/")) and ".hypothesis" not in target
