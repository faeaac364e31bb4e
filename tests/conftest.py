"""Fixtures for all tests, and the guards that stand over each: no task, thread or descriptor left, loopback only."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from blockbuster import blockbuster_ctx

from proxy.logs import configure_logging
from proxy.settings import LogSettings
from tests.support.demo import Demo, running_demo
from tests.support.postgres import TestServer, event_loop, fresh_database, session_server
from tests.support.service import AGENT_GID, AGENT_UID, RunningService, running_service

LOOPBACK = ("127.", "::1", "localhost")
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
    # The loop's own executor ("asyncio_0") ends with the loop, after the fixtures.
    return {t for t in threading.enumerate() if not t.daemon and not t.name.startswith("asyncio_")}


def _descriptors() -> set[tuple[str, str]]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))
        except FileNotFoundError:
            continue
    return found


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Every thread and descriptor that a test opens is closed when it ends."""
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


@pytest.fixture(autouse=True)
async def _no_task_left() -> AsyncIterator[None]:
    """Every task that a test starts is over when it ends."""
    before = asyncio.all_tasks()
    yield
    deadline = time.monotonic() + SETTLE_SECONDS
    while left := asyncio.all_tasks() - before - {asyncio.current_task()}:
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(0.01)
    assert not left, f"tasks left: {left}"


@pytest.fixture(autouse=True)
def _no_blocking_call() -> Iterator[None]:
    """A call of ours that would stop the event loop is an error."""
    with blockbuster_ctx(scanned_modules=["proxy", "rag", "workspace"]) as guard:
        # Log lines go to standard error as they are made.
        guard.functions["io.TextIOWrapper.write"].can_block_in("structlog/_output.py", {"msg"})
        # A traceback that goes to the log reads the lines it shows.
        for name in ("os.stat", "io.TextIOWrapper.read", "io.BufferedReader.read"):
            guard.functions[name].can_block_in("linecache.py", {"checkcache", "updatecache"})
        # asyncpg looks for its optional key files once, when a pool opens its first connection.
        # The library's short locks (executors, queues) are not what this guard is about.
        guard.functions["threading.Lock.acquire"].deactivate()
        guard.functions["os.stat"].can_block_in("asyncpg/connect_utils.py", {"_parse_connect_arguments"})
        guard.functions["os.stat"].can_block_in("asyncpg/connect_utils.py", {"_parse_connect_dsn_and_args"})
        yield


@pytest.fixture(autouse=True, scope="session")
def _logging() -> None:
    """The service's own log lines, as in production."""
    configure_logging(LogSettings())


@pytest.fixture(scope="session")
def postgres() -> Iterator[TestServer]:
    """One embedded PostgreSQL for the whole run, with a migrated template."""
    with session_server() as server:
        yield server


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory that any uid may walk into, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="isthmus-") as top:
        Path(top).chmod(0o755)
        yield Path(top)


@pytest.fixture(scope="session")
def demo_agent() -> Iterator[tuple[Demo, Path]]:
    """One demo agent for the whole run, and its workspaces: each test has members of its own."""
    with tempfile.TemporaryDirectory(prefix="isthmus-agents-") as top:
        Path(top).chmod(0o755)
        with event_loop() as loop:
            switch = (AGENT_UID, AGENT_GID) if os.geteuid() == 0 else (None, None)
            context = running_demo(Path(top), *switch, word_delay=0.002)
            demo = asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(60)
            try:
                yield demo, Path(top)
            finally:
                asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(60)


@pytest.fixture
async def service(
    postgres: TestServer, demo_agent: tuple[Demo, Path], open_dir: Path
) -> AsyncIterator[RunningService]:
    """The whole service on loopback, with an empty database and members that no test had before."""
    async with (
        fresh_database(postgres) as connect,
        running_service(open_dir, connect, *demo_agent) as running,
    ):
        yield running
