"""A file's bytes while its place is not settled: in memory while few, then in an unnamed file of our own."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TypeVar

from workspace.errors import NoSpace

T = TypeVar("T")

PIECE = 256 * 1024


class Spool:
    """What was written, to be read once from its beginning. Raises NoSpace when our own disk is full."""

    def __init__(self, file: SpooledTemporaryFile[bytes], threads: ThreadPoolExecutor) -> None:
        self._file = file
        self._threads = threads

    async def write(self, data: bytes | memoryview) -> None:
        await self._run(lambda: self._file.write(data))

    async def pieces(self) -> AsyncIterator[bytes]:
        """All the bytes, in order, at most `PIECE` at a time."""
        await self._run(lambda: self._file.seek(0))
        while piece := await self._run(lambda: self._file.read(PIECE)):
            yield piece

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise NoSpace from error
            raise


class Spools:
    """Opens spools below one directory, on two threads of their own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="spool")

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Spool]:
        """A new spool; leaving the context frees its bytes."""
        loop = asyncio.get_running_loop()
        file = await loop.run_in_executor(self._threads, self._open)
        try:
            yield Spool(file, self._threads)
        finally:
            await loop.run_in_executor(self._threads, file.close)

    def _open(self) -> SpooledTemporaryFile[bytes]:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return SpooledTemporaryFile(max_size=PIECE, dir=str(self._directory))

    def close(self) -> None:
        """End the threads, without waiting for them; nothing may be open any more."""
        self._threads.shutdown(wait=False)
