"""The page: plain files read once at start, under a policy that runs nothing but them."""

from __future__ import annotations

import hashlib
from importlib import resources

from aiohttp import web

from proxy.routing import Credential, Handler, Route

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
MODULES = (
    "answer confirm conversation composer dom files folder folder-form page projects search service state stream text"
).split()
FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    **{f"/{module}.js": (f"{module}.js", "text/javascript") for module in MODULES},
}


def _serve(name: str, content_type: str) -> Handler:
    body = resources.files("web").joinpath(name).read_bytes()
    headers = {
        "Cache-Control": "no-cache",
        "ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }

    async def page(request: web.Request) -> web.Response:
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=headers)

    return page


ROUTES = [
    Route(method, path, _serve(name, content_type), Credential.NONE)
    for path, (name, content_type) in FILES.items()
    for method in ("GET", "HEAD")
]
