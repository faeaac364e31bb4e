"""A refusal reaches clients that are still sending."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from proxy import linger
from proxy.linger import LingeringResponse


@asynccontextmanager
async def refusing(seconds: float) -> AsyncIterator[tuple[str, int]]:
    """A server that refuses every request without reading its body."""

    async def refuse(request: web.Request) -> web.Response:
        return LingeringResponse(request, text="no", status=413, content_type="text/plain", linger=seconds)

    app = web.Application()
    app.router.add_post("/", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][:2]
    finally:
        await runner.cleanup()


def head(length: int) -> bytes:
    return f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()


async def test_a_client_that_sends_everything_first_still_reads_the_answer() -> None:
    size = 20 * 1024 * 1024
    async with refusing(10) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(head(size))
        for _ in range(size // 65536):
            writer.write(b"a" * 65536)
            await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 5)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"\r\nConnection: close\r\n" in answer
        assert answer.endswith(b"\r\n\r\nno")
        writer.close()
        await writer.wait_closed()


async def test_our_side_is_closed_at_once_and_the_rest_is_waited_for_no_longer_than_asked() -> None:
    async with refusing(0.3) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        began = time.monotonic()
        writer.write(head(1000))
        answer = await asyncio.wait_for(reader.read(), 5)
        assert answer.endswith(b"no")
        assert time.monotonic() - began < 0.3
        # The peer closes for good once the time is over: what is then sent is answered by a reset.
        async with asyncio.timeout(5):
            while not writer.transport.is_closing():
                writer.write(b"a")
                await asyncio.sleep(0.02)
        assert time.monotonic() - began >= 0.3


async def test_no_more_than_the_bound_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linger, "MAX_DROPPED_BYTES", 100_000)
    async with refusing(30) as (host, port):
        _, writer = await asyncio.open_connection(host, port)
        writer.write(head(10**12))
        async with asyncio.timeout(5):
            while not writer.transport.is_closing():
                writer.write(b"a" * 65536)
                await asyncio.sleep(0.001)


async def test_a_body_that_was_read_keeps_the_connection() -> None:
    async with refusing(10) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        for _ in range(2):
            writer.write(head(0))
            answer = await asyncio.wait_for(reader.readuntil(b"no"), 5)
            assert b"\r\nConnection: close\r\n" not in answer
        writer.close()
        await writer.wait_closed()
