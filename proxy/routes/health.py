"""Whether the service lives, and whether what it needs is there."""

from __future__ import annotations

from aiohttp import web

from proxy import keys
from proxy.routing import Credential, Route


async def health(_request: web.Request) -> web.Response:
    """Live: the event loop answers."""
    return web.json_response({"status": "ok"})


async def ready(request: web.Request) -> web.Response:
    """Each dependency: ok, or degraded. Reasons are for operators, who find them in the log."""
    service = request.app[keys.SERVICE]
    store = "ok" if await service.store_answers() else "degraded"
    stopping = service.live.stopping
    status = "stopping" if stopping else store
    body = {"status": status, "dependencies": {"store": {"status": store}}}
    return web.json_response(body, status=503 if stopping else 200)


ROUTES = [
    Route("GET", "/health", health, Credential.NONE),
    Route("HEAD", "/health", health, Credential.NONE),
    Route("GET", "/ready", ready, Credential.NONE),
]
