"""A member's conversations: list, rename, delete."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime

from aiohttp import web

from proxy import keys
from proxy.chat_request import check_session_id
from proxy.errors import InvalidRequest, SessionBusy, UnknownTurn
from proxy.history import SessionSummary
from proxy.lines import is_one_line
from proxy.live import SessionKey
from proxy.message_parts import clean_text
from proxy.rights import Action
from proxy.routes.body import json_object, query_number, query_value
from proxy.routing import Credential, Route
from proxy.scope import resolve

PAGE, PAGE_AT_MOST = 50, 200
MAX_TITLE = 200


async def list_sessions(request: web.Request) -> web.Response:
    """The conversations with one agent in one project, the one that changed last first."""
    place = await resolve(
        request, query_value(request, "agent"), query_value(request, "project"), Action.LIST
    )
    service = request.app[keys.SERVICE]
    limit = query_number(request, "limit", PAGE, PAGE_AT_MOST)
    found = await service.history.sessions(
        place.agent.key,
        place.member.id,
        place.project_id,
        before=_edge(query_value(request, "cursor")),
        limit=limit + 1,
    )
    page, more = found[:limit], len(found) > limit
    running = {turn.session for turn in service.live.of_member(place.member.id)}
    return web.json_response(
        {
            "sessions": [
                {
                    "session_id": session.session_id,
                    "title": session.title,
                    "project": place.project_id,
                    "member": place.member.id,
                    "created_at": session.created_at.isoformat(),
                    "updated_at": session.updated_at.isoformat(),
                    "turns": session.turns,
                    "running": SessionKey(
                        place.agent.key, place.member.id, place.project_id, session.session_id
                    )
                    in running,
                }
                for session in page
            ],
            "next_cursor": _cursor(page[-1]) if more else None,
        }
    )


def _cursor(last: SessionSummary) -> str:
    text = f"{last.updated_at.isoformat()} {last.session_id}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def _edge(cursor: str | None) -> tuple[datetime, str] | None:
    if cursor is None:
        return None
    try:
        moment, _, session_id = base64.urlsafe_b64decode(cursor).decode().partition(" ")
        return datetime.fromisoformat(moment), check_session_id(session_id)
    except (ValueError, binascii.Error) as error:
        raise InvalidRequest("cursor", "send the next_cursor of the page before") from error


async def rename(request: web.Request) -> web.Response:
    """Give a conversation another title."""
    session = await _session(request)
    title = (await json_object(request)).get("title")
    if (
        not isinstance(title, str)
        or not 1 <= len(title.strip()) <= MAX_TITLE
        or not is_one_line(title.strip())
    ):
        raise InvalidRequest("title", f"use one line of 1 to {MAX_TITLE} characters")
    if not await request.app[keys.SERVICE].history.rename(session, clean_text(title.strip())):
        raise UnknownTurn
    return web.json_response({"session_id": session.session_id, "title": title.strip()})


async def delete(request: web.Request) -> web.Response:
    """Remove a conversation; files that it brought stay."""
    session = await _session(request)
    service = request.app[keys.SERVICE]
    if service.live.running(session):
        raise SessionBusy(session.session_id)
    if not await service.history.forget(session):
        raise UnknownTurn
    service.live.forget_session(session)
    return web.json_response({"status": "deleted", "session_id": session.session_id})


async def _session(request: web.Request) -> SessionKey:
    raw_session_id = query_value(request, "session_id")
    if raw_session_id is None:
        raise InvalidRequest("session_id", "name the session")
    place = await resolve(
        request, query_value(request, "agent"), query_value(request, "project"), Action.CHAT
    )
    return SessionKey(place.agent.key, place.member.id, place.project_id, check_session_id(raw_session_id))


ROUTES = [
    Route("GET", "/v1/sessions", list_sessions, Credential.MEMBER, "reads"),
    Route("PATCH", "/v1/sessions", rename, Credential.MEMBER, "changes"),
    Route("DELETE", "/v1/sessions", delete, Credential.MEMBER, "changes"),
]
