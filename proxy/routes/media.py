"""The member's files: upload, list, download, and the limits of all that (`/v1/media`)."""

from __future__ import annotations

from dataclasses import asdict

import structlog
from aiohttp import web

from proxy import downloads, keys, scope
from proxy.errors import InvalidRequest
from proxy.multipart_form import boundary_of
from proxy.place import Place
from proxy.rights import Action
from proxy.routes.body import single_values
from proxy.routing import Credential, Route, answer_later, send_continue
from proxy.uploads import check_declared_length
from workspace.archive import MAX_BYTES, MAX_FILES
from workspace.paths import MAX_PATH_BYTES, MAX_SEGMENT_BYTES, MAX_SEGMENTS, public_path
from workspace.reading import OpenFile

log = structlog.get_logger()

DEFAULT_LIMIT = 500
MAX_LIMIT = 1000
SEND_BYTES = 256 * 1024


async def upload(request: web.Request) -> web.StreamResponse:
    """Take one file of a multipart form into `public/`."""
    service = request.app[keys.SERVICE]
    check_declared_length(request.content_length, service.settings.media)
    boundary = boundary_of(request.headers.get("Content-Type", ""))

    async def find_place(agent: str | None, project: str | None) -> Place:
        return await scope.resolve(request, agent, project, Action.UPLOAD)

    with service.uploads.slot(request[keys.MEMBER].id):
        await send_continue(request)
        place, published = await service.uploads.receive(
            request.content, boundary, find_place, service.quota.admit
        )
    log.info(
        "audit_upload",
        agent=place.agent.key,
        project=place.project_id,
        path=published.path,
        size=published.size,
        replaced=published.replaced,
    )
    return web.json_response(
        {
            "path": published.path,
            "name": published.name,
            "size": published.size,
            "replaced": published.replaced,
            "told_path": place.told(published.path),
        }
    )


async def read(request: web.Request) -> web.StreamResponse:
    """One file's bytes when `path` is given, else the list."""
    query = single_values(request)
    if "path" in query:
        return await _download(request, query)
    return await _list(request, query)


async def _place(request: web.Request, query: dict[str, str], action: Action) -> Place:
    return await scope.resolve(request, query.get("agent") or None, query.get("project") or None, action)


async def _list(request: web.Request, query: dict[str, str]) -> web.Response:
    limit = _limit(query.get("limit"))
    folder = public_path(query.get("folder", ""))
    place = await _place(request, query, Action.LIST)
    listing = await place.workspace.list(folder, cursor=query.get("cursor") or None, limit=limit)
    usage = await _usage(request, place) if query.get("usage") == "1" else {}
    return web.json_response(
        {
            "files": [
                {
                    "path": entry.path,
                    "name": entry.name,
                    "size": entry.size,
                    "isDir": entry.is_dir,
                    "modified": entry.modified,
                }
                for entry in listing.files
            ],
            "next_cursor": listing.next_cursor,
            "omitted": asdict(listing.omitted),
            **usage,
        }
    )


async def _usage(request: web.Request, place: Place) -> dict[str, object]:
    quota = request.app[keys.SERVICE].quota
    usage = await quota.usage(place)
    told = {"bytes": usage.bytes, "quota": quota.limit}
    return {"usage": told if usage.is_whole else {**told, "truncated": True}}


def _limit(raw: str | None) -> int:
    if raw is None:
        return DEFAULT_LIMIT
    if not (raw.isascii() and raw.isdigit() and len(raw) <= 4 and 1 <= int(raw) <= MAX_LIMIT):
        raise InvalidRequest("limit", f"it is a whole number from 1 to {MAX_LIMIT}")
    return int(raw)


async def _download(request: web.Request, query: dict[str, str]) -> web.StreamResponse:
    wanted = query.get("disposition", "attachment")
    if wanted not in {"attachment", "inline"}:
        raise InvalidRequest("disposition", "it is attachment or inline")
    path = public_path(query["path"])
    place = await _place(request, query, Action.DOWNLOAD)
    async with await place.workspace.open(path) as file:
        stamp = downloads.Stamp(file.ino, file.size, file.mtime_ns, file.ctime_ns)
        answer = downloads.plan(stamp, _conditions(request))
        shown_as = None
        if wanted == "inline":
            shown_as = downloads.inline_type(path.name, await file.read(0, downloads.SNIFFED_BYTES))
        response = web.StreamResponse(
            status=answer.status, headers=downloads.headers(path.name, stamp, answer, shown_as)
        )
        await response.prepare(request)
        if request.method != "HEAD":
            await _send(file, answer.span, response)
    await response.write_eof()
    return response


def _conditions(request: web.Request) -> downloads.Conditions:
    return downloads.Conditions(
        if_none_match=request.headers.get("If-None-Match"),
        if_modified_since=request.headers.get("If-Modified-Since"),
        # A range is for GET alone (RFC 9110 §14.2).
        range=request.headers.get("Range") if request.method == "GET" else None,
        if_range=request.headers.get("If-Range"),
    )


class FileShrank(Exception):
    """The file ended before the length that its headers promised: only closing the connection tells."""


async def _send(file: OpenFile, span: downloads.Span, response: web.StreamResponse) -> None:
    position = span.start
    while position < span.stop:
        data = await file.read(position, min(SEND_BYTES, span.stop - position))
        if not data:
            raise FileShrank
        await response.write(data)
        position += len(data)


async def limits(request: web.Request) -> web.Response:
    """Every limit that a client can keep to by itself. They are the same in all places."""
    settings = request.app[keys.SERVICE].settings
    media = settings.media
    return web.json_response(
        {
            "max_bytes": media.max_bytes,
            "extensions": media.extensions,
            "extensionless": media.extensionless,
            "quota_bytes": media.quota_bytes or None,
            "idle_timeout": media.idle_timeout,
            "min_rate": media.min_rate,
            "at_once": {"uploads": settings.server.max_uploads_per_member, "archives": 1},
            "per_minute": {
                "uploads": settings.limits.uploads_per_minute or None,
                "reads": settings.limits.reads_per_minute or None,
                "changes": settings.limits.changes_per_minute or None,
            },
            "path": {"segments": MAX_SEGMENTS, "segment_bytes": MAX_SEGMENT_BYTES, "bytes": MAX_PATH_BYTES},
            "list": {"entries": MAX_LIMIT},
            "archive": {"entries": MAX_FILES, "bytes": MAX_BYTES},
        }
    )


ROUTES = [
    Route("POST", "/v1/media", upload, Credential.MEMBER, limit="uploads", expect_handler=answer_later),
    Route("GET", "/v1/media", read, Credential.MEMBER, limit="reads"),
    Route("HEAD", "/v1/media", read, Credential.MEMBER, limit="reads"),
    Route("GET", "/v1/media/limits", limits, Credential.MEMBER, limit="reads"),
]
