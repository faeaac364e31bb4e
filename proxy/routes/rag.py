"""A project's index: attach a folder, see what is in it, search it (`/v1/projects/{project}/rag`)."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import structlog
from aiohttp import web

from proxy import keys
from proxy.errors import BodyTooLarge, InvalidRequest, NotAttached
from proxy.folder_upload import MAX_JSON_BYTES, MAX_PARTS, receive_form, receive_json
from proxy.multipart_form import MEDIA_TYPE, boundary_of
from proxy.rights import Action
from proxy.routes.body import json_body, json_object
from proxy.routing import Credential, Limit, Route, answer_later, send_continue
from proxy.scope import resolve_project
from rag import filters
from rag.coverage import coverage as count_coverage
from rag.model import FileOrigin, Hit, Scope
from rag.search import NO_VECTORS
from rag.store import detach_local, local_status, replace_local

log = structlog.get_logger()

QUERY_LENGTH = (2, 500)
HITS, HITS_AT_MOST = 10, 50
PREFIX = "/v1/projects/{project}/rag"


async def attach(request: web.Request) -> web.Response:
    """Replace the attached folder by this one, whole or not at all."""
    service = request.app[keys.SERVICE]
    limits, media = service.settings.rag.local, service.settings.media
    _, project = await resolve_project(request, Action.ATTACH_FOLDER)
    if (request.content_length or 0) > limits.max_body_bytes:
        raise BodyTooLarge(limits.max_body_bytes)
    with service.uploads.slot(request[keys.MEMBER].id):
        if request.content_type == MEDIA_TYPE:
            boundary = boundary_of(request.headers.get("Content-Type", ""))
            await send_continue(request)
            received = await receive_form(request.content, boundary, limits, media)
        else:
            await send_continue(request)
            body = await json_body(request, min(MAX_JSON_BYTES, limits.max_body_bytes), media.idle_timeout)
            received = await receive_json(body, limits)
        prepared = await asyncio.to_thread(received.upload.prepare, project.id, received.folder_name)
        report = await replace_local(service.pool, project.id, prepared, attached_by=request[keys.MEMBER].id)
    log.info(
        "audit_folder_attached", project=project.id, files=len(report.files), chunks=report.chunks_created
    )
    return web.json_response(
        {
            "folder_name": report.folder_name,
            "generation": report.generation,
            "files_indexed": len(report.files),
            "files_skipped": report.files_skipped,
            "skipped": [_skipped(skip) for skip in report.skipped],
            "chunks_created": report.chunks_created,
            "embedding": {"available": False, "pending": report.chunks_created, "reason": NO_VECTORS.reason},
        }
    )


def _skipped(skip: Any) -> dict[str, object]:
    shown: dict[str, object] = {"path": skip.path, "reason": skip.reason}
    if skip.path.endswith("/"):
        shown["files"] = skip.files
    return shown


async def attached(request: web.Request) -> web.Response:
    """What is attached, file by file; nulls and no files while nothing is."""
    _, project = await resolve_project(request, Action.SEARCH)
    status = await local_status(request.app[keys.SERVICE].pool, project.id)
    if status is None:
        return web.json_response({"folder_name": None, "attached_at": None, "attached_by": None, "files": []})
    files = [{k: v for k, v in asdict(file).items() if v is not None} for file in status.files]
    return web.json_response(
        {
            "folder_name": status.folder_name,
            "attached_at": status.attached_at.isoformat(),
            "attached_by": status.attached_by,
            "files": files,
        }
    )


async def detach(request: web.Request) -> web.Response:
    """Take the attached folder out of the index."""
    _, project = await resolve_project(request, Action.ATTACH_FOLDER)
    if not await detach_local(request.app[keys.SERVICE].pool, project.id):
        raise NotAttached
    log.info("audit_folder_detached", project=project.id)
    return web.json_response({"status": "detached"})


async def limits(request: web.Request) -> web.Response:
    """Every limit and list that a client needs, so that it copies no constant."""
    await resolve_project(request, Action.SEARCH)
    settings = request.app[keys.SERVICE].settings.rag.local
    return web.json_response(
        {
            **settings.model_dump(mode="json"),
            "max_parts": MAX_PARTS,
            "max_json_bytes": min(MAX_JSON_BYTES, settings.max_body_bytes),
            "extensionless": sorted(filters.EXTENSIONLESS_NAMES),
            "ignored_directories": sorted(filters.IGNORED_DIRECTORIES),
            "ignored_names": sorted(filters.IGNORED_NAMES),
            "query_length": list(QUERY_LENGTH),
            "max_hits": HITS_AT_MOST,
        }
    )


async def coverage(request: web.Request) -> web.Response:
    """What the index holds, counted."""
    _, project = await resolve_project(request, Action.SEARCH)
    found = await count_coverage(request.app[keys.SERVICE].pool, project.id)
    local = None
    if found.local is not None:
        local = {**asdict(found.local), "last_attached_at": found.local.last_attached_at.isoformat()}
    return web.json_response(
        {
            "local": local,
            "chunks": found.chunks,
            "chunks_without_vector": found.chunks_without_vector,
            "embedding": {"model": None, "available": False, "reason": NO_VECTORS.reason},
        }
    )


async def search(request: web.Request) -> web.Response:
    """The best passages for a question, each with its citation."""
    _, project = await resolve_project(request, Action.SEARCH)
    query, scopes, limit = _question(await json_object(request))
    found = await request.app[keys.SERVICE].searcher.search(project.id, query, scopes, limit)
    vector = {k: v for k, v in asdict(found.vector).items() if v is not None}
    return web.json_response(
        {
            "query": found.query,
            "search_id": str(found.search_id),
            "hits": [_hit(hit) for hit in found.hits],
            "vector": vector,
            "searched": {scope: asdict(state) for scope, state in found.searched.items()},
        }
    )


def _question(body: dict[str, Any]) -> tuple[str, tuple[Scope, ...], int]:
    query, scopes, limit = body.get("query"), body.get("scopes"), body.get("limit", HITS)
    shortest, longest = QUERY_LENGTH
    if not isinstance(query, str) or not shortest <= len(query.strip()) <= longest:
        raise InvalidRequest("query", f"send {shortest} to {longest} characters")
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= HITS_AT_MOST:
        raise InvalidRequest("limit", f"give a whole number from 1 to {HITS_AT_MOST}")
    known = {str(scope) for scope in Scope}
    if scopes is not None and (
        not isinstance(scopes, list)
        or not scopes
        or any(not isinstance(s, str) or s not in known for s in scopes)
    ):
        raise InvalidRequest("scopes", f"send a list of {', '.join(sorted(known))}")
    return query.strip(), tuple(Scope(scope) for scope in dict.fromkeys(scopes or known)), limit


def _hit(hit: Hit) -> dict[str, object]:
    kind = "file" if isinstance(hit.origin, FileOrigin) else "session"
    origin = {k: v for k, v in asdict(hit.origin).items() if v is not None}
    return {
        "chunk_id": str(hit.chunk_id),
        "scope": hit.scope,
        "content": hit.content,
        "excerpt": hit.excerpt,
        "score": hit.score,
        "ranks": asdict(hit.ranks),
        "origin": {"kind": kind, **origin},
    }


def _member(method: str, path: str, handler: Any, limit: Limit, **more: Any) -> Route:
    return Route(method, PREFIX + path, handler, Credential.MEMBER, limit, **more)


ROUTES = [
    _member("POST", "/local", attach, "uploads", expect_handler=answer_later),
    _member("GET", "/local", attached, "reads"),
    _member("DELETE", "/local", detach, "changes"),
    _member("GET", "/limits", limits, "reads"),
    _member("GET", "/coverage", coverage, "reads"),
    _member("POST", "/search", search, "searches"),
]
