"""The application: routes, middlewares, and the service's lifecycle in one cleanup context."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from proxy import keys
from proxy.lifecycle import running
from proxy.limits import RateLimiter
from proxy.middleware import door, with_error_body, with_request_id
from proxy.routes import (
    archive,
    changes,
    chat,
    events,
    health,
    media,
    page,
    projects,
    rag,
    sessions,
    sign_in,
    turns,
)
from proxy.routing import register
from proxy.settings import Settings


def build_app(settings: Settings) -> web.Application:
    """The whole service as an aiohttp application; nothing is started before the application is."""
    app = web.Application(
        middlewares=[with_request_id, with_error_body, door(settings, RateLimiter())],
        client_max_size=settings.chat.max_body_bytes,
    )
    app[keys.ROUTES] = register(
        app,
        [
            *health.ROUTES,
            *page.ROUTES,
            *sign_in.ROUTES,
            *chat.ROUTES,
            *turns.ROUTES,
            *sessions.ROUTES,
            *media.ROUTES,
            *changes.ROUTES,
            *archive.ROUTES,
            *events.ROUTES,
            *projects.ROUTES,
            *rag.ROUTES,
        ],
    )
    app.on_response_prepare.append(_mark_started)
    app.on_shutdown.append(events.end_streams)
    app.cleanup_ctx.append(partial(running, settings=settings))
    return app


async def _mark_started(request: web.Request, _response: web.StreamResponse) -> None:
    request[keys.STARTED] = True
