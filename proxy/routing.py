"""A route, and who may call it: the credential is a required field, so no route can forget it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Literal, NamedTuple

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Limit = Literal["uploads", "turns", "searches", "reads", "changes"]


class Credential(Enum):
    """Whose credential opens a route."""

    NONE = "none"
    MEMBER = "member"
    AGENT = "agent"


class Route(NamedTuple):
    method: str
    path: str
    handler: Handler
    credential: Credential
    limit: Limit | None = None
    expect_handler: Callable[[web.Request], Awaitable[None]] | None = None


def register(app: web.Application, routes: list[Route]) -> dict[web.AbstractRoute, Route]:
    """Add the routes; the mapping tells the middlewares which `Route` a request matched."""
    return {
        app.router.add_route(
            route.method, route.path, route.handler, expect_handler=route.expect_handler or answer_later
        ): route
        for route in routes
    }


async def answer_later(_request: web.Request) -> None:
    """Leave `Expect: 100-continue` to the middleware: the library would answer before any of our checks."""


async def send_continue(request: web.Request) -> None:
    """Ask a client that waits for it (RFC 9110, 10.1.1) to send its body."""
    if request.headers.get("Expect", "").lower() == "100-continue" and request.version >= (1, 1):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # The library counts what was written; the interim answer is not part of the response.
        request.writer.output_size = 0
