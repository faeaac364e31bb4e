"""A browser signs in with its token once and carries a cookie from then on, so that links and images work."""

from __future__ import annotations

from aiohttp import web

from proxy import keys
from proxy.errors import Unauthenticated
from proxy.identity import COOKIE, COOKIE_SECONDS
from proxy.routing import Credential, Route


async def sign_in(request: web.Request) -> web.Response:
    """Set the cookie that counts as the bearer token of this request."""
    authenticator = request.app[keys.SERVICE].authenticator
    digest = authenticator.bearer_digest(request)
    if digest is None:
        raise Unauthenticated
    response = web.json_response({"member": request[keys.MEMBER].id})
    response.set_cookie(
        COOKIE,
        authenticator.sign_in_cookie(digest),
        max_age=COOKIE_SECONDS,
        httponly=True,
        samesite="Strict",
        secure=_over_https(request),
        path="/",
    )
    return response


async def sign_out(request: web.Request) -> web.Response:
    """End the cookie."""
    response = web.json_response({"member": None})
    response.del_cookie(COOKIE, path="/", httponly=True, samesite="Strict", secure=_over_https(request))
    return response


def _over_https(request: web.Request) -> bool:
    public_url = request.app[keys.SERVICE].settings.server.public_url
    return request.secure or public_url.startswith("https://")


ROUTES = [
    Route("POST", "/v1/sign-in", sign_in, Credential.MEMBER),
    Route("DELETE", "/v1/sign-in", sign_out, Credential.MEMBER),
]
