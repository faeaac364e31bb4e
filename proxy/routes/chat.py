"""Chat: the list of agents, one turn as a stream or as one answer, and a session's history."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial

import structlog
from aiohttp import web

from proxy import keys
from proxy.chat_request import ChatRequest, check_session_id, parse_chat
from proxy.connections import is_gone
from proxy.errors import InvalidRequest, TurnFailed
from proxy.history import Message
from proxy.live import LiveTurn, SessionKey
from proxy.message_parts import attachment_line
from proxy.place import Place, prepare
from proxy.projects import Projects
from proxy.rights import Action
from proxy.routes.body import QUICK_BYTES, json_body, query_number, query_value
from proxy.routing import Credential, Route
from proxy.scope import resolve
from proxy.stream.events import Content, DeliveryNotice, Frame
from proxy.stream.notices import notice
from proxy.stream.sse import PING, Renderer, completion
from workspace.paths import RelPath

STREAM_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}
log = structlog.get_logger()

Render = Callable[[list[tuple[int, Frame]]], bytes]

CLIENT_HEADER = "X-Isthmus-Client"
PUBLIC_FOLDER = RelPath(())
GONE_CHECK_SECONDS = 1.0
HISTORY_LIMIT, HISTORY_AT_MOST = 100, 500


async def models(request: web.Request) -> web.Response:
    """The agents that this member may use, in OpenAI's list shape."""
    agents = request.app[keys.SERVICE].agents.of(request[keys.MEMBER])
    data = [{"id": agent.key, "object": "model", "created": 0, "owned_by": "isthmus"} for agent in agents]
    return web.json_response({"object": "list", "data": data})


async def completions(request: web.Request) -> web.StreamResponse:
    """One turn. The member's message goes to the agent once, whatever becomes of this connection."""
    service = request.app[keys.SERVICE]
    settings = service.settings
    with service.large_bodies.held() as grown:
        body = await json_body(
            request, settings.chat.max_body_bytes, settings.media.idle_timeout, grown=grown
        )
        headers = [request.headers.get(name) for name in settings.chat.session_headers]
        parse = partial(parse_chat, body, headers, settings.media)
        # Base64 of many megabytes is worked on beside the event loop.
        quick = request.content_length is not None and request.content_length <= QUICK_BYTES
        chat = parse() if quick else await asyncio.to_thread(parse)
        place = await resolve(request, chat.agent, chat.project, Action.CHAT)
        user_text = await _stored(chat, place, service.projects)
    session_id = chat.session_id or await service.history.session_of(
        place.agent.key, place.member.id, place.project_id, chat.first_exchange
    )
    turn = LiveTurn(
        turn_id=secrets.token_hex(16),
        session=SessionKey(
            place.agent.key, place.member.id, place.project_id, session_id or secrets.token_hex(16)
        ),
        user_text=user_text,
        created_at=time.time(),
        replay_bytes=settings.chat.replay_bytes,
    )
    if chat.stream:
        with service.streams.slot(place.member.id):
            return await _streamed(request, chat, turn, place)
    return await _whole(request, chat, turn, place)


async def _stored(chat: ChatRequest, place: Place, projects: Projects) -> str:
    """The message's text, its files stored in `public/` and named in it as the agent can open them."""
    lines = []
    if chat.attachments:
        await prepare(place, projects)
    for attachment in chat.attachments:
        async with place.workspace.receive(PUBLIC_FOLDER) as incoming:
            await incoming.write(attachment.content)
            published = await incoming.publish(attachment.name)
        log.info("audit_upload", agent=place.agent.key, project=place.project_id, size=published.size)
        lines.append(attachment_line(place.told(published.path)))
    return "\n\n".join(part for part in (chat.text, "\n".join(lines)) if part)


async def _streamed(
    request: web.Request, chat: ChatRequest, turn: LiveTurn, place: Place
) -> web.StreamResponse:
    relay = request.app[keys.SERVICE].relay
    render = renderer(request, turn, include_usage=chat.include_usage, event_ids=chat.event_ids)
    run = relay.admit(turn, place)
    response = web.StreamResponse(headers={**STREAM_HEADERS, "X-Session-Id": turn.session.session_id})
    opened = turn.end_seq
    try:
        # The member sees that the turn began before the agent is even contacted.
        await response.prepare(request)
        await response.write(render(turn.since(0)))
    finally:
        relay.start(run)
    if not await follow(request, response, turn, render, opened) and _stops(request, chat, place):
        relay.leave(turn)
    return response


def _stops(request: web.Request, chat: ChatRequest, place: Place) -> bool:
    """Whether leaving means stopping: as the request says, else as the agent's setting does for clients that can
    come back; for the others leaving is their only Stop button."""
    if chat.on_leave is not None:
        return chat.on_leave == "stop"
    if chat.session_id is not None or CLIENT_HEADER in request.headers:
        return place.agent.settings.on_client_leave == "stop"
    return True


async def follow(
    request: web.Request, response: web.StreamResponse, turn: LiveTurn, render: Render, seq: int
) -> bool:
    """Write a turn's frames from `seq` to its end, with a comment for every silence; whether the client stayed."""
    heartbeat = request.app[keys.SERVICE].settings.chat.heartbeat
    clock = asyncio.get_running_loop().time
    silent_since = clock()
    while not (turn.over and seq >= turn.end_seq):
        if is_gone(request):
            return False
        due = silent_since + heartbeat
        try:
            async with asyncio.timeout_at(min(due, clock() + GONE_CHECK_SECONDS)):
                await turn.changed(seq)
        except TimeoutError:
            if clock() < due:
                continue
            data = PING
        else:
            data, seq = render(turn.since(seq)), turn.end_seq
        try:
            await response.write(data)
        except ConnectionError:
            return False
        silent_since = clock()
    return True


async def _whole(request: web.Request, chat: ChatRequest, turn: LiveTurn, place: Place) -> web.Response:
    relay = request.app[keys.SERVICE].relay
    relay.start(relay.admit(turn, place))
    said, seq = "", 0
    while not turn.over:
        with suppress(TimeoutError):
            async with asyncio.timeout(GONE_CHECK_SECONDS):
                await turn.changed(seq)
        said, seq = said + _said(request, turn, seq), turn.end_seq
        if is_gone(request) and _stops(request, chat, place):
            relay.leave(turn)
            break
    said += _said(request, turn, seq)
    if turn.failure is not None:
        raise TurnFailed(turn.failure.code, turn.failure.message, said)
    body = completion(
        turn_id=turn.turn_id, model=turn.session.agent, created=int(turn.created_at), content=said
    )
    return web.json_response(body, headers={"X-Session-Id": turn.session.session_id})


def _said(request: web.Request, turn: LiveTurn, seq: int) -> str:
    """The text of the frames from `seq` on, notices included."""
    texts = []
    for _, frame in turn.since(seq):
        match frame:
            case Content(text):
                texts.append(text)
            case DeliveryNotice(delivery):
                texts.append(notice(delivery, show_link=shows_links(request)))
    return "".join(texts)


async def history(request: web.Request) -> web.Response:
    """A session's messages, oldest first; deliveries stand beside the answer that brought them."""
    raw_session_id = query_value(request, "session_id")
    if raw_session_id is None:
        raise InvalidRequest("session_id", "name the session")
    place = await resolve(
        request, query_value(request, "agent"), query_value(request, "project"), Action.LIST
    )
    session = SessionKey(place.agent.key, place.member.id, place.project_id, check_session_id(raw_session_id))
    service = request.app[keys.SERVICE]
    messages = await service.history.messages(
        session,
        limit=query_number(request, "limit", HISTORY_LIMIT, HISTORY_AT_MOST),
        before=query_value(request, "before"),
    )
    return web.json_response({"messages": [_message(message) for message in messages]})


def _message(message: Message) -> dict[str, object]:
    shown: dict[str, object] = {
        "role": message.role,
        "content": message.content,
        "created_at": message.created_at.isoformat(),
        "turn_id": message.turn_id,
        "origin": message.origin,
        "deliveries": [asdict(delivery) for delivery in message.deliveries],
    }
    if message.error is not None:
        shown["error"] = message.error
    return shown


def renderer(request: web.Request, turn: LiveTurn, *, include_usage: bool, event_ids: bool) -> Render:
    """How this client's frames are written: its options, bound to the turn."""
    bound = Renderer(
        turn_id=turn.turn_id,
        model=turn.session.agent,
        created=int(turn.created_at),
        include_usage=include_usage,
        show_links=shows_links(request),
    )

    def render(frames: list[tuple[int, Frame]]) -> bytes:
        return b"".join(bound.render(frame, seq if event_ids else None) for seq, frame in frames)

    return render


def shows_links(request: web.Request) -> bool:
    """Clients that know our frames make links of them; the others get them as text."""
    return CLIENT_HEADER not in request.headers


ROUTES = [
    Route("GET", "/v1/models", models, Credential.MEMBER, "reads"),
    Route("POST", "/v1/chat/completions", completions, Credential.MEMBER, "turns"),
    Route("GET", "/v1/sessions/history", history, Credential.MEMBER, "reads"),
]
