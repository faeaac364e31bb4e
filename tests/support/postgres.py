"""A real embedded PostgreSQL for tests: one server a test session, one migrated database a test."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from rag.embedded import ConnectArgs, EmbeddedServer
from rag.migrate import migrate

ROOT = Path(__file__).parents[2]
UID = 42070
TEMPLATE = "isthmus"
START_TIMEOUT = 60.0  # seconds

_numbers = itertools.count(1)


@dataclass(frozen=True)
class TestServer:
    """A running server whose database TEMPLATE is migrated and has no connections."""

    __test__ = False

    connect: ConnectArgs

    def database(self, name: str) -> ConnectArgs:
        return ConnectArgs(**{**self.connect, "database": name})


@contextmanager
def session_server() -> Iterator[TestServer]:
    """Start a server and migrate the template. It lives in a thread: it outlives the event loop of each test."""
    with tempfile.TemporaryDirectory(prefix="isthmus-store-") as directory, event_loop() as loop:
        server = EmbeddedServer(Path(directory), UID, lambda _line: None)

        async def start() -> TestServer:
            connect = await server.start()
            conn = await asyncpg.connect(**connect)
            try:
                await migrate(conn)
            finally:
                await conn.close()
            return TestServer(connect)

        try:
            yield asyncio.run_coroutine_threadsafe(start(), loop).result(START_TIMEOUT)
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(START_TIMEOUT)


@contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs in a thread of its own."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever, name="store", daemon=True)
        thread.start()
        try:
            yield loop
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


@asynccontextmanager
async def fresh_database(server: TestServer) -> AsyncIterator[ConnectArgs]:
    """How to connect to a migrated, empty database of the test's own; dropped at the end."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    keeper = await asyncpg.connect(**server.database("postgres"))
    try:
        await keeper.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        try:
            yield server.database(name)
        finally:
            await keeper.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await keeper.close()


def start_service(
    directory: Path, uid: int | None = None, prefix: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    """A process of its own that runs an EmbeddedServer until its standard input ends.

    It writes ``ready`` on standard output, or the error that stopped it. ``uid``: as an ordinary user without an
    account; ``prefix``: a command that runs the command it is given.
    """
    program = [
        sys.executable if uid is None else reachable_python(),
        "-m",
        "tests.support.postgres",
        str(directory),
    ]
    user: dict[str, Any] = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    return subprocess.Popen(
        [*prefix, *program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": os.pathsep.join(["", *sys.path]), "HOME": str(directory)},
        **user,
    )


def reachable_python() -> str:
    """An interpreter of this version that any uid can run; "" if there is none."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, shutil.which(name, path="/usr/local/bin:/usr/bin")):
        if candidate and all(parent.stat().st_mode & 0o001 for parent in Path(candidate).resolve().parents):
            return candidate
    return ""


async def serve(directory: Path) -> None:
    async with EmbeddedServer(directory, UID, lambda line: print(line, file=sys.stderr)):
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    try:
        asyncio.run(serve(Path(sys.argv[1])))
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
