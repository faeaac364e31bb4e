"""Headers that never end, and connections beyond the limit, on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

from proxy.connections import RECEIVE_BYTES, ConnectionDoor
from proxy.settings import ServerSettings


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert isinstance(self.transport, asyncio.Transport)
        self.transport.write(data)


async def serve(**settings: float) -> tuple[asyncio.Server, int]:
    limits = ServerSettings.model_validate(settings)
    server = await asyncio.get_running_loop().create_server(
        lambda: ConnectionDoor(Echo(), limits), "127.0.0.1", 0
    )
    return server, server.sockets[0].getsockname()[1]


async def all_closed() -> None:
    async with asyncio.timeout(5):
        while ConnectionDoor.open_connections:
            await asyncio.sleep(0.01)


async def test_a_connection_that_never_completes_its_headers_is_cut() -> None:
    server, port = await serve(header_timeout=0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HT")
    began = time.monotonic()
    try:
        await reader.readexactly(8)
        rest = await reader.read()
    except ConnectionResetError:
        rest = b""
    assert rest == b""
    assert time.monotonic() - began < 5
    writer.close()
    server.close()


async def test_connections_beyond_the_limit_are_closed_at_once_and_leave_room_when_they_end() -> None:
    server, port = await serve(header_timeout=30, max_connections=1)
    first_reader, first = await asyncio.open_connection("127.0.0.1", port)
    first.write(b"1")
    assert await first_reader.readexactly(1) == b"1"
    second_reader, second = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionResetError):
        assert await second_reader.read() == b""
    second.close()
    first.close()
    await all_closed()
    reader, third = await asyncio.open_connection("127.0.0.1", port)
    third.write(b"3")
    assert await reader.readexactly(1) == b"3"
    third.close()
    server.close()
    await all_closed()


async def test_what_is_sent_at_once_is_received_in_bounded_pieces_whole_and_in_order() -> None:
    pieces: list[bytes] = []

    class Collect(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            pieces.append(data)

    server = await asyncio.get_running_loop().create_server(
        lambda: ConnectionDoor(Collect(), ServerSettings()), "127.0.0.1", 0
    )
    sent = os.urandom(10 * RECEIVE_BYTES + 7)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(sent)
    async with asyncio.timeout(5):
        while sum(map(len, pieces)) < len(sent):
            await asyncio.sleep(0.005)
    assert b"".join(pieces) == sent
    assert max(map(len, pieces)) <= RECEIVE_BYTES
    writer.close()
    await writer.wait_closed()
    server.close()
    await all_closed()
