"""The typed keys under which things hang on the application and on a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from proxy.identity import Member
    from proxy.routing import Route
    from proxy.service import Service

SERVICE: web.AppKey[Service] = web.AppKey("isthmus_service")
ROUTES: web.AppKey[dict[web.AbstractRoute, Route]] = web.AppKey("isthmus_routes")

MEMBER: web.RequestKey[Member] = web.RequestKey("isthmus_member")
REQUEST_ID: web.RequestKey[str] = web.RequestKey("isthmus_request_id")
STARTED: web.RequestKey[bool] = web.RequestKey("isthmus_response_started")
