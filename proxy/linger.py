"""An answer to a request whose body is still on its way.

A connection closed with unread bytes is reset, and the client then reports a network error in place of the
answer. So the answer is written, our side is closed, and what still comes is read and dropped for a while.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from aiohttp import web

MAX_DROPPED_BYTES = 256 * 1024 * 1024
LOOK_SECONDS = 0.2


class LingeringResponse(web.Response):
    """A response that closes the connection gently when the request's body has not come to its end.

    `linger` is the longest wait in seconds for the client to stop sending; 0 closes at once.
    """

    def __init__(
        self, request: web.BaseRequest, /, *, text: str, status: int, content_type: str, linger: float
    ) -> None:
        super().__init__(text=text, status=status, content_type=content_type)
        self._request = request
        self._linger = linger
        self._body_is_open = not request.content.is_eof()
        if self._body_is_open:
            self.force_close()

    async def write_eof(self, data: bytes = b"") -> None:
        await super().write_eof(data)
        if not self._body_is_open:
            return
        self._body_is_open = False
        await drop_body(self._request, self._linger)
        # Whatever is left is not waited for: the library would do so once more.
        self._request.protocol.force_close()


async def drop_body(request: web.BaseRequest, seconds: float) -> None:
    """Close our sending side where the transport can (TLS cannot), then read until a bound is met."""
    transport = request.transport
    if transport is not None and transport.can_write_eof():
        transport.write_eof()
    deadline = time.monotonic() + seconds
    dropped = 0
    # Once a request is answered the library tells its body no more of a lost connection: it is looked after.
    while request.transport is not None and dropped <= MAX_DROPPED_BYTES and time.monotonic() < deadline:
        with suppress(TimeoutError):
            try:
                async with asyncio.timeout(min(LOOK_SECONDS, seconds)):
                    data = await request.content.readany()
            except (ConnectionError, web.RequestPayloadError):
                return  # the client is gone, or sends what is no body
            if not data:
                return
            dropped += len(data)
