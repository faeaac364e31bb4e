"""What happens to every request: an id and a log line, errors made into the one body, and the door.

The door asks in this order: host name, credential (with the cross-site rule), request encoding, rate.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from ipaddress import ip_address

import structlog
from aiohttp import web
from aiohttp.typedefs import Middleware

from proxy import errors, keys
from proxy.connections import ConnectionDoor
from proxy.limits import RateLimiter
from proxy.linger import LingeringResponse
from proxy.routing import Credential, Handler, Route, send_continue
from proxy.settings import LimitSettings, Settings

log = structlog.get_logger()

LOOPBACK_NAMES = {"localhost"}


@web.middleware
async def with_request_id(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give the request an id (the front door's, if it is a plain one) and leave one line about it in the log."""
    given = request.headers.get("X-Request-Id", "")
    request_id = given if re.fullmatch(r"[A-Za-z0-9._-]{8,64}", given) else secrets.token_hex(8)
    request[keys.REQUEST_ID] = request_id
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=request_id)
    began = time.monotonic()
    connection = (
        request.transport.get_protocol() if isinstance(request.transport, asyncio.Transport) else None
    )
    if isinstance(connection, ConnectionDoor):
        connection.request_began(request)
    try:
        response = await handler(request)
    finally:
        if isinstance(connection, ConnectionDoor):
            connection.request_ended()
    if isinstance(connection, ConnectionDoor) and connection.at_eof:
        response.force_close()
    if not response.prepared:
        response.headers["X-Request-Id"] = request_id
    route = request.match_info.route.resource
    log.info(
        "request",
        method=request.method,
        route=route.canonical if route else None,
        status=response.status,
        seconds=round(time.monotonic() - began, 4),
    )
    return response


@web.middleware
async def with_error_body(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn an error into its answer, unless headers are out: then the connection is closed instead."""
    try:
        return await handler(request)
    except Exception as error:  # the one place where every error ends
        if request.get(keys.STARTED):
            log.warning("response_cut", error=type(error).__name__, detail=str(errors.facts(error)))
            if request.transport is not None:
                request.transport.abort()
            raise
        return error_response(request, _translated(request, error))


def error_response(request: web.Request, error: Exception) -> web.Response:
    """The answer that the table gives for an error; unknown ones go to the log with their traceback."""
    request_id = request[keys.REQUEST_ID]
    answer = errors.answer(error, request_id)
    if answer.code == errors.INTERNAL.code:
        log.error("internal_error", exc_info=error)
    response = LingeringResponse(
        request,
        text=json.dumps(answer.body),
        status=answer.status,
        content_type="application/json",
        linger=request.app[keys.SERVICE].settings.media.linger,
    )
    if answer.retry_after is not None:
        response.headers["Retry-After"] = str(answer.retry_after)
    if isinstance(error, errors.MethodNotAllowed):
        response.headers["Allow"] = ", ".join(error.allowed)
    if isinstance(error, errors.RangeNotSatisfiable):
        response.headers["Content-Range"] = f"bytes */{error.size}"
    if answer.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _translated(request: web.Request, error: Exception) -> Exception:
    """The library's own errors as ours."""
    if isinstance(error, web.HTTPNotFound):
        return errors.RouteNotFound()
    if isinstance(error, web.HTTPMethodNotAllowed):
        return errors.MethodNotAllowed(error.method, tuple(sorted(error.allowed_methods)))
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return errors.BodyTooLarge(request.client_max_size)
    return error


def door(settings: Settings, limiter: RateLimiter) -> Middleware:
    """The middleware that decides whether a request gets to its handler at all."""

    @web.middleware
    async def at_the_door(request: web.Request, handler: Handler) -> web.StreamResponse:
        # A container's health check asks by an address of its own choice, and learns nothing.
        if request.path != "/health":
            check_host(request.host, settings)
        route = request.app[keys.ROUTES].get(request.match_info.route)
        if route is None:
            return await handler(request)
        encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if route.credential is Credential.MEMBER:
            service = request.app[keys.SERVICE]
            found = service.authenticator.identify(request)
            request[keys.MEMBER] = found.member
            structlog.contextvars.bind_contextvars(member=found.member.id)
            _take(limiter, route, found.member.id, service.settings.limits)
        if encoding not in {"", "identity"}:
            raise errors.UnsupportedEncoding(encoding[:40])
        if route.expect_handler is None:
            await send_continue(request)
        return await handler(request)

    return at_the_door


def _take(limiter: RateLimiter, route: Route, member: str, limits: LimitSettings) -> None:
    if route.limit is not None:
        limiter.take(member, route.limit, getattr(limits, f"{route.limit}_per_minute"), time.monotonic())


def check_host(host: str, settings: Settings) -> None:
    """Refuse a foreign name: bound to loopback only loopback names count (a page that rebinds its name to
    127.0.0.1 cannot then read us), elsewhere the operator's list if there is one. Raises MisdirectedHost."""
    name = _host_name(host)
    if name in {_host_name(listed) for listed in settings.server.hosts}:
        return
    if _is_loopback(settings.server.host):
        if not _is_loopback(name):
            raise errors.MisdirectedHost
    elif settings.server.hosts:
        raise errors.MisdirectedHost


def _host_name(host: str) -> str:
    return re.sub(r":\d*\Z", "", host).strip("[]").lower().rstrip(".")


def _is_loopback(name: str) -> bool:
    if name in LOOPBACK_NAMES:
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
