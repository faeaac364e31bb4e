"""A folder as one zip file (`/v1/media/archive`)."""

from __future__ import annotations

import structlog
from aiohttp import web

from proxy import keys, scope
from proxy.archives import zip_of
from proxy.downloads import PROTECTION, disposition
from proxy.rights import Action
from proxy.routes.body import single_values
from proxy.routing import Credential, Route
from workspace.paths import PUBLIC, display, public_path

log = structlog.get_logger()


async def archive(request: web.Request) -> web.StreamResponse:
    """Pack a folder while it is sent; without `path` the whole public directory."""
    query = single_values(request)
    folder = public_path(query.get("path", ""))
    place = await scope.resolve(
        request, query.get("agent") or None, query.get("project") or None, Action.DOWNLOAD
    )
    with request.app[keys.SERVICE].archives.slot(request[keys.MEMBER].id):
        async with place.workspace.archive(folder, zip_of) as stream:
            response = web.StreamResponse(headers=_headers(folder.name or PUBLIC))
            await response.prepare(request)
            async for data in stream:
                await response.write(data)
    await response.write_eof()
    log.info("audit_archive", agent=place.agent.key, project=place.project_id, path=display(folder))
    return response


def _headers(name: str) -> dict[str, str]:
    return {
        **PROTECTION,
        "Content-Type": "application/zip",
        "Content-Disposition": disposition("attachment", f"{name}.zip"),
    }


ROUTES = [Route("GET", "/v1/media/archive", archive, Credential.MEMBER, "reads")]
