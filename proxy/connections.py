"""A bound on connections: how many there are, and how long one may take to send a request's headers."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

from aiohttp import web

from proxy.settings import ServerSettings

HALF_OPEN_MILLISECONDS = 60_000
LAST_REQUEST_SECONDS = 1.0
RECEIVE_BYTES = 64 * 1024


class ConnectionDoor(asyncio.BufferedProtocol):
    """Stands between a transport and aiohttp's protocol: bounds how many connections there are and how
    long one may take to send a request's headers, which the library leaves unbounded.

    It also receives at most `RECEIVE_BYTES` at a time: whatever a client sends at once is held by its request, and
    the loop's own reads of four times as much made twenty uploads cost three times their buffers.
    """

    open_connections = 0
    # One for all: what was received is copied and passed on before the loop receives anything else.
    _received = memoryview(bytearray(RECEIVE_BYTES))

    def __init__(self, inner: asyncio.Protocol, settings: ServerSettings) -> None:
        self._inner = inner
        self._settings = settings
        self._timer: asyncio.TimerHandle | None = None
        self._request: web.BaseRequest | None = None
        self._is_fed = False
        self._at_eof = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        type(self).open_connections += 1
        if self.open_connections > self._settings.max_connections:
            self._transport.abort()
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in {socket.AF_INET, socket.AF_INET6}:
            # A peer that vanished (a phone asleep, a cut cable) frees its stream after this.
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, HALF_OPEN_MILLISECONDS)
        self._inner.connection_made(transport)
        self._wait_for_headers()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # the loop's own wish, always -1
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        if self._request is None:
            self._is_fed = True
            if self._timer is None:
                self._wait_for_headers()
        self._inner.data_received(bytes(self._received[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        type(self).open_connections -= 1
        self._stop_waiting()
        self._inner.connection_lost(exc)

    def eof_received(self) -> bool | None:
        """The client sends no more. Its request, if one is under way, still gets its answer (RFC 9112, 9.6)."""
        self._at_eof = True
        if self._request is not None:
            self._end_body(self._request)
        elif self._is_fed:
            # What came may still become a request, or was all of one that nobody will complete.
            self._stop_waiting()
            self._timer = asyncio.get_running_loop().call_later(LAST_REQUEST_SECONDS, self._too_slow)
        else:
            return self._inner.eof_received()
        return True

    @staticmethod
    def _end_body(request: web.BaseRequest) -> None:
        """A body that is not whole will never be."""
        if not request.content.is_eof():
            request.content.feed_eof()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def request_began(self, request: web.BaseRequest) -> None:
        """The headers are complete: from here on the route bounds its body."""
        self._request = request
        self._stop_waiting()
        if self._at_eof:
            self._end_body(request)

    @property
    def at_eof(self) -> bool:
        """Whether the client sends no more: its answer is then the connection's last."""
        return self._at_eof

    def request_ended(self) -> None:
        self._request = None
        self._is_fed = False

    def _wait_for_headers(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._settings.header_timeout, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self._transport is not None:
            self._transport.abort()


def is_gone(request: web.BaseRequest) -> bool:
    """Whether the client has closed its connection, or its side of it: who waits for a stream and says that no
    more will come has left."""
    if request.transport is None or request.transport.is_closing():
        return True
    door = request.transport.get_protocol()
    return isinstance(door, ConnectionDoor) and door.at_eof
