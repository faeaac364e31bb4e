"""Fixtures of the store's tests: data directories, and servers on them."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from rag.embedded import EmbeddedServer
from tests.support.postgres import UID, TestServer, fresh_database, start_service


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A place for a data directory that any uid may walk to, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="isthmus-") as top:
        Path(top).chmod(0o711)
        yield Path(top) / "data"


@pytest.fixture(scope="session")
def made_dir() -> Iterator[Path]:
    """A data directory with a complete cluster whose server does not run; shared: a test leaves it as it was."""
    with tempfile.TemporaryDirectory(prefix="isthmus-") as top:
        directory = Path(top) / "data"
        child = start_service(directory)
        out, _ = child.communicate("")
        assert out == "ready\n"
        yield directory


@pytest.fixture
async def conn(postgres: TestServer) -> AsyncIterator[asyncpg.Connection]:
    """A connection to an empty migrated database."""
    async with fresh_database(postgres) as connect:
        connection = await asyncpg.connect(**connect)
        try:
            yield connection
        finally:
            await connection.close()


@asynccontextmanager
async def running(directory: Path, lines: list[str] | None = None) -> AsyncIterator[asyncpg.Connection]:
    """An embedded server and a connection to it; ``lines`` collects its log."""
    async with EmbeddedServer(directory, UID, (lines if lines is not None else []).append) as connect:
        connection = await asyncpg.connect(**connect)
        try:
            yield connection
        finally:
            connection.terminate()
