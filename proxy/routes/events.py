"""What changes in the member's files, as a stream (`/v1/media/events`)."""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

from proxy import keys
from proxy.connections import is_gone
from proxy.rights import Action
from proxy.routes.body import query_value
from proxy.routes.chat import GONE_CHECK_SECONDS, STREAM_HEADERS
from proxy.routing import Credential, Route
from proxy.scope import resolve
from proxy.stream.sse import PING
from workspace.watch import Changes, Subscription


async def events(request: web.Request) -> web.StreamResponse:
    """Every change below `public/`, whoever makes it, until the client leaves; a comment for every silence.

    The first comment says that nothing changes unseen from then on: who lists after it misses nothing.
    """
    service = request.app[keys.SERVICE]
    place = await resolve(
        request, query_value(request, "agent"), query_value(request, "project"), Action.LIST
    )
    with service.streams.slot(place.member.id):
        async with place.workspace.watch() as subscription:
            response = web.StreamResponse(headers=STREAM_HEADERS)
            await response.prepare(request)
            await response.write(PING)
            await _follow(request, response, subscription, service.settings.chat.heartbeat)
    return response


async def _follow(
    request: web.Request, response: web.StreamResponse, subscription: Subscription, heartbeat: float
) -> None:
    clock = asyncio.get_running_loop().time
    silent_since = clock()
    while not is_gone(request):
        due = silent_since + heartbeat
        try:
            async with asyncio.timeout_at(min(due, clock() + GONE_CHECK_SECONDS)):
                changes = await subscription.next()
        except TimeoutError:
            if clock() < due:
                continue
            await response.write(PING)
        else:
            if changes is None:
                return
            await response.write(_frame(changes))
        silent_since = clock()


def _frame(changes: Changes) -> bytes:
    shown = {"changed": changes.paths, "gap": changes.gap}
    return f"data: {json.dumps(shown, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


async def end_streams(app: web.Application) -> None:
    """End these streams by themselves when the service stops: nothing else would before its patience ends."""
    await app[keys.SERVICE].workspaces.end_watches()


ROUTES = [Route("GET", "/v1/media/events", events, Credential.MEMBER, limit="reads")]
