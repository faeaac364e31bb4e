"""The life of the embedded server: start, watch, start again, stop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from rag.embedded import launch
from rag.embedded.binaries import Binaries, binaries_for_others, find_binaries
from rag.embedded.client import DATABASE, PORT, ROLE, ConnectArgs, fits, open_short_path, socket_directory
from rag.embedded.directory import (
    ServerUser,
    launch_argv,
    lock,
    prepare,
    refusal_error,
    reported,
    server_user,
)
from rag.errors import EmbeddedFailed, StoreVersionMismatch

T = TypeVar("T")

FIRST_DELAY = 0.2  # seconds before a server that ended by itself is started again; doubled each time
LONGEST_DELAY = 5.0
STEADY_AFTER = 30.0  # seconds of life after which the delay begins anew
FIRST_TRIES = 5  # how often it may end before it was ever ready
START_PATIENCE = 300.0  # seconds until ready; recovery after a crash reads up to max_wal_size of log
STOP_STEPS = ((signal.SIGINT, 15.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))  # fast, immediate, forced

READY = "LOG:  database system is ready to accept connections"
LINE_LIMIT = 8192  # bytes of one line of the server's log that are kept
LINES_KEPT = 50  # the last lines, to tell why it ended

SETTINGS = {
    "listen_addresses": "",  # no TCP
    "port": str(PORT),
    "log_destination": "stderr",
    "logging_collector": "off",
    "log_line_prefix": "",  # READY is looked for
    "log_error_verbosity": "terse",  # details and statements can hold what members wrote
    "log_min_error_statement": "panic",
    "log_checkpoints": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "fsync": "on",
}


class LogPipe(asyncio.Protocol):
    """Cuts what the server says into lines; bounded, and never lets the server wait."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_line = on_line
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:LINE_LIMIT]
        for line in lines:
            self._on_line(line[:LINE_LIMIT].decode("utf-8", "replace"))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's signature
        if self._rest:
            self._on_line(self._rest.decode("utf-8", "replace"))
        _settle(self.closed)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _in_thread(work: Callable[[], T]) -> T:
    """Run what blocks; if this is cancelled the work is waited for, because it uses the directory."""
    job = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.wait({job})
        raise


class EmbeddedServer:
    """One PostgreSQL below ``directory``, which this object alone may use while it runs.

    As root the server has the bare uid ``uid``; as an ordinary user it runs as that user and ``uid`` is not
    looked at. ``log`` gets what the server and the programs that make it say, line by line, in the event loop.
    """

    def __init__(self, directory: Path, uid: int, log: Callable[[str], None]) -> None:
        self._directory = directory.absolute()
        self._uid = uid
        self._log = log
        self._descriptors: list[int] = []  # the lock's and, where its path is long, the socket directory's
        self._process: subprocess.Popen[bytes] | None = None
        self._handle: int | None = None  # its pidfd
        self._last_lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._supervision: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ConnectArgs:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> ConnectArgs:
        """Make the cluster if there is none, start the server, and return when it answers.

        Raises StoreInUse, StoreDirectoryUnusable, StoreVersionMismatch, EmbeddedUnavailable, EmbeddedFailed.
        """
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> ConnectArgs:
        loop = asyncio.get_running_loop()
        user, binaries, connect = await _in_thread(partial(self._prepare, loop))
        self._supervision = asyncio.create_task(self._supervise(user, binaries), name="embedded PostgreSQL")
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait(
                {self._supervision, ready}, timeout=START_PATIENCE, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            ready.cancel()
        if not self._ready.is_set():
            if self._supervision.done():
                self._supervision.result()  # raises why
            raise EmbeddedFailed("start", f"not ready after {START_PATIENCE:.0f} s; the log says why")
        return connect

    def _prepare(self, loop: asyncio.AbstractEventLoop) -> tuple[ServerUser, Binaries, ConnectArgs]:
        """All that has to be done before the server runs; blocks."""

        def log(line: str) -> None:
            loop.call_soon_threadsafe(self._log, line)

        user = server_user(self._uid)
        self._descriptors.append(lock(self._directory))
        with reported("binaries"):
            binaries = binaries_for_others(self._directory) if user.separate else find_binaries()
        prepare(self._directory, user, binaries, log)
        sockets = socket_directory(self._directory)
        host = str(sockets)
        if not fits(sockets):
            host, descriptor = open_short_path(sockets)
            self._descriptors.append(descriptor)
        return user, binaries, ConnectArgs(host=host, port=PORT, user=ROLE, database=DATABASE)

    async def stop(self) -> None:
        """End the server (its clients are cut off, what was committed stays) and let go of the directory."""
        self._stopping.set()
        if self._supervision is not None:
            for number, patience in STOP_STEPS:
                self._signal(number)
                done, _ = await asyncio.wait({self._supervision}, timeout=patience)
                if done:
                    break
            self._supervision.cancel()
            await asyncio.wait({self._supervision})
            self._supervision = None
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _signal(self, number: signal.Signals) -> None:
        if self._handle is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    async def _supervise(self, user: ServerUser, binaries: Binaries) -> None:
        """Run the server until ``stop``. Raises if it was never ready, and why is known or it ended too often."""
        loop = asyncio.get_running_loop()
        tries, delay, was_ready = 0, FIRST_DELAY, False
        while not self._stopping.is_set():
            began = loop.time()
            await self._run(user, binaries)
            if self._stopping.is_set():
                return
            was_ready = was_ready or self._ready.is_set()
            self._ready.clear()
            tries += 1
            if not was_ready:
                self._raise_if_hopeless(binaries, tries)
            if loop.time() - began > STEADY_AFTER:
                delay = FIRST_DELAY
            self._log(f"PostgreSQL ended by itself and is started again in {delay:.1f} s")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)
            delay = min(delay * 2, LONGEST_DELAY)

    def _raise_if_hopeless(self, binaries: Binaries, tries: int) -> None:
        for line in self._last_lines:
            if line.startswith(launch.REPORT):
                report = json.loads(line.removeprefix(launch.REPORT))
                if report["kind"] == "version":
                    raise StoreVersionMismatch(report["detail"], str(binaries.major))
                raise refusal_error("start", [line])
        if tries >= FIRST_TRIES:
            raise refusal_error("start", list(self._last_lines))

    async def _run(self, user: ServerUser, binaries: Binaries) -> None:
        """Start the server once and wait for its end."""
        self._last_lines.clear()
        reader, writer = os.pipe()
        transport, pipe = await asyncio.get_running_loop().connect_read_pipe(
            partial(LogPipe, self._on_line), os.fdopen(reader, "rb", 0)
        )
        try:
            try:
                handle = await _in_thread(partial(self._spawn, user, binaries, writer))
            finally:
                os.close(writer)
            await self._wait_for_end(handle)
            # Children that outlive their postmaster hold the pipe for the moment until they notice.
            await asyncio.wait({pipe.closed}, timeout=FIRST_DELAY)
        finally:
            transport.close()
            self._reap()

    def _spawn(self, user: ServerUser, binaries: Binaries, output: int) -> int:
        """Start the process; its pidfd."""
        held = [os.open(self._directory / name, os.O_PATH | os.O_DIRECTORY) for name in ("pg", "socket")]
        try:
            settings = {**SETTINGS, "unix_socket_directories": f"/proc/self/fd/{held[1]}"}
            argv = [binaries.program("postgres"), "-D", launch.DATA_DIRECTORY]
            argv += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
            serve = (held[1], binaries.major, user.account)
            order = launch.Order(tuple(argv), held[0], user.uid, user.gid, user.appear_as, serve)
            self._process = subprocess.Popen(  # noqa: S603  # our own program and the wheel's
                launch_argv(order), env={}, pass_fds=held, process_group=0,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
            self._handle = os.pidfd_open(self._process.pid)
            return self._handle
        finally:
            for descriptor in held:
                os.close(descriptor)

    async def _wait_for_end(self, handle: int) -> None:
        if self._stopping.is_set():  # asked for while there was nothing to signal
            self._signal(signal.SIGINT)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        loop.add_reader(handle, partial(_settle, ended))
        try:
            await ended
        finally:
            loop.remove_reader(handle)

    def _reap(self) -> None:
        """Let go of the ended server; one that still runs, because the supervision was cancelled, is killed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _on_line(self, line: str) -> None:
        self._last_lines.append(line)
        if line == READY:
            self._ready.set()
        self._log(line)
