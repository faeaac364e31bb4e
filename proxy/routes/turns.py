"""Running turns: which there are, their frames again, and stopping one."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from aiohttp import web

from proxy import keys
from proxy.chat_request import check_session_id
from proxy.errors import InvalidRequest, TurnGone, UnknownTurn
from proxy.live import LiveTurn, SessionKey
from proxy.rights import Action
from proxy.routes.body import json_object, query_value
from proxy.routes.chat import STREAM_HEADERS, follow, renderer
from proxy.routing import Credential, Route
from proxy.scope import resolve


async def running(request: web.Request) -> web.Response:
    """The member's running and waiting turns, oldest first."""
    service, member = request.app[keys.SERVICE], request[keys.MEMBER]
    agent = query_value(request, "agent")
    if agent is not None:
        agent = service.agents.choose(member, agent).key
    turns = [turn for turn in service.live.of_member(member.id) if agent in {None, turn.session.agent}]
    return web.json_response({"turns": [_shown(turn) for turn in turns]})


def _shown(turn: LiveTurn) -> dict[str, object]:
    return {
        "turn_id": turn.turn_id,
        "session_id": turn.session.session_id,
        "project": turn.session.project,
        "origin": turn.origin,
        "since": datetime.fromtimestamp(turn.created_at, UTC).isoformat(),
    }


async def stream(request: web.Request) -> web.StreamResponse:
    """A turn's frames again from behind `Last-Event-ID`, or all of them, then live to its end."""
    service, member = request.app[keys.SERVICE], request[keys.MEMBER]
    turn_id = request.match_info["turn_id"]
    seq = _next_seq(request.headers.get("Last-Event-ID"))
    turn = service.live.find(turn_id)
    if turn is None and turn_id.isalnum() and await service.history.has_turn(member.id, turn_id):
        raise TurnGone
    if turn is None or turn.session.member != member.id:
        raise UnknownTurn
    if turn.over and seq >= turn.end_seq:
        # Everything has come already: this answer tells an EventSource not to ask again.
        return web.Response(status=204)
    render = renderer(request, turn, include_usage=False, event_ids=True)
    response = web.StreamResponse(headers={**STREAM_HEADERS, "X-Session-Id": turn.session.session_id})
    with service.streams.slot(member.id):
        await response.prepare(request)
        await follow(request, response, turn, render, seq)
    return response


def _next_seq(last_event_id: str | None) -> int:
    if not last_event_id:
        return 0
    if not re.fullmatch(r"[0-9]{1,9}", last_event_id):
        raise InvalidRequest("Last-Event-ID", "send the number of the last frame that came")
    return int(last_event_id) + 1


async def cancel(request: web.Request) -> web.Response:
    """Stop a conversation's running turn; answers once the agent confirmed it."""
    body = await json_object(request)
    names = {field: body.get(field) for field in ("session_id", "agent", "project")}
    for field, value in names.items():
        if value is not None and not isinstance(value, str):
            raise InvalidRequest(field, "send a string")
    if names["session_id"] is None:
        raise InvalidRequest("session_id", "name the session")
    place = await resolve(request, names["agent"], names["project"], Action.CHAT)
    session = SessionKey(
        place.agent.key, place.member.id, place.project_id, check_session_id(names["session_id"])
    )
    return web.json_response({"cancelled": await request.app[keys.SERVICE].relay.cancel(session)})


ROUTES = [
    Route("GET", "/v1/turns/running", running, Credential.MEMBER, "reads"),
    Route("GET", "/v1/turns/{turn_id}/stream", stream, Credential.MEMBER, "reads"),
    Route("POST", "/v1/chat/cancel", cancel, Credential.MEMBER, "changes"),
]
