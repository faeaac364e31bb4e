"""The reading side of a relay bench: turns of `bench.pico_agent`, through Isthmus or straight to the agent."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from typing import Literal

import aiohttp

from bench.pico_agent import Order

TURNS_PER_MEMBER = 4  # chat.max_turns_per_member as it is by default
STAMP = re.compile(rb"(\d{20}) ")

Way = Literal["straight", "through"]
WAYS: tuple[Way, ...] = ("straight", "through")


@dataclass(frozen=True)
class Paths:
    """The two ways to the agent. `tokens` has one for each member."""

    service: str
    agent: str
    tokens: tuple[str, ...]


class Incomplete(Exception):
    """A turn had other frames than were ordered: a figure from it would mean nothing."""


@dataclass
class Reading:
    """What one turn's reader saw, in seconds. `first` counts from the request on, connecting included."""

    began: float = field(default_factory=time.monotonic)
    first: float = 0.0
    ended: float = 0.0
    ages: list[float] = field(default_factory=list)

    def take(self, raw_stamp: bytes | str) -> None:
        now = time.monotonic_ns()
        self.ended = now / 1e9
        if not self.ages:
            self.first = self.ended - self.began
        self.ages.append((now - int(raw_stamp)) / 1e9)

    def of(self, order: Order) -> Reading:
        """Itself. Raises Incomplete."""
        if len(self.ages) != order.frames:
            raise Incomplete(f"{len(self.ages)} of {order.frames} frames came")
        return self


class Reader:
    """A client with connections of its own. An async context."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    async def __aenter__(self) -> Reader:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
        )
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._session.close()

    async def read(self, way: Way, number: int, order: Order) -> Reading:
        """One whole turn. Each stream `number` has a session of its own. Raises Incomplete."""
        return await (self._straight(order) if way == "straight" else self._through(number, order))

    async def _through(self, number: int, order: Order) -> Reading:
        reading = Reading()
        async with self.post(number, order) as response:
            rest = b""
            async for data in response.content.iter_any():
                whole, end, rest = (rest + data).rpartition(b"\n\n")
                for stamp in STAMP.findall(whole + end):
                    reading.take(stamp)
        return reading.of(order)

    async def _straight(self, order: Order) -> Reading:
        reading = Reading()
        async with self.open_socket() as socket:
            await self.converse(socket, order, reading)
        return reading.of(order)

    async def converse(self, socket: aiohttp.ClientWebSocketResponse, order: Order, reading: Reading) -> None:
        """Send the order and read its frames; the newest stamp ends each text."""
        content = json.dumps(asdict(order))
        await socket.send_json({"type": "message.send", "id": "1", "payload": {"content": content}})
        async for message in socket:
            frame = json.loads(message.data)
            if frame["type"] != "typing.start":
                reading.take(frame["payload"]["content"][-21:-1])
            if len(reading.ages) == order.frames:
                return

    def open_socket(self) -> AbstractAsyncContextManager[aiohttp.ClientWebSocketResponse]:
        return self._session.ws_connect(f"{self._paths.agent}/member/pico/ws?session_id=s", compress=0)

    def post(self, number: int, order: Order) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The request alone, for a stream that is to stay open."""
        body = {
            "model": "bench",
            "stream": True,
            "session_id": f"stream-{number}",
            "messages": [{"role": "user", "content": json.dumps(asdict(order))}],
        }
        token = self._paths.tokens[number // TURNS_PER_MEMBER]
        return self._session.post(
            f"{self._paths.service}/v1/chat/completions",
            json=body,
            headers={"Authorization": f"Bearer {token}"},
            raise_for_status=True,
        )


async def together(
    reader: Reader, way: Way, numbers: range, order: Order, *, spread: float = 0.0
) -> list[Reading]:
    """So many turns at once, their beginnings spread evenly over `spread` seconds."""

    async def one(place: int, number: int) -> Reading:
        await asyncio.sleep(spread * place / len(numbers))
        return await reader.read(way, number, order)

    return await asyncio.gather(*(one(place, number) for place, number in enumerate(numbers)))


def load(paths: Paths, way: Way, numbers: range, order: Order, spread: float) -> list[Reading]:
    """`together` in a process of its own, so that a measuring client does not wait behind its own load."""

    async def run() -> list[Reading]:
        async with Reader(paths) as reader:
            return await together(reader, way, numbers, order, spread=spread)

    return asyncio.run(run())


async def in_turn(count: int, *measures: Callable[[], Awaitable[float]]) -> list[list[float]]:
    """Each measure `count` times, alternating, so that all meet the same machine."""
    taken: list[list[float]] = [[] for _ in measures]
    for _ in range(count):
        for measure, figures in zip(measures, taken, strict=True):
            figures.append(await measure())
    return taken
