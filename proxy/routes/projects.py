"""Projects: list, create, rename, instruct, delete (`/v1/projects`)."""

from __future__ import annotations

from typing import Any

import structlog
from aiohttp import web

from proxy import keys
from proxy.errors import InvalidRequest, TurnRunning
from proxy.projects import Project, checked_instructions, checked_name
from proxy.rights import Action
from proxy.routes.body import json_object
from proxy.routing import Credential, Route
from proxy.scope import resolve_project

log = structlog.get_logger()

FIXED = ("id", "mode", "path", "agent", "owner")


async def list_projects(request: web.Request) -> web.Response:
    """The member's projects, oldest first."""
    projects = await request.app[keys.SERVICE].projects.of(request[keys.MEMBER])
    return web.json_response({"projects": [_shown(project) for project in projects]})


async def create(request: web.Request) -> web.Response:
    """A new project; its directory is made at the first upload or turn."""
    service, member = request.app[keys.SERVICE], request[keys.MEMBER]
    body = await json_object(request)
    if body.get("mode", "container") != "container" or body.get("path") is not None:
        raise InvalidRequest("mode", "this version has projects of mode container, without a path")
    agent = body.get("agent")
    if agent is not None and not isinstance(agent, str):
        raise InvalidRequest("agent", "send a string")
    project = await service.projects.create(
        member.id,
        service.agents.choose(member, agent).key,
        checked_name(body.get("name")),
        checked_instructions(body.get("instructions") or ""),
    )
    log.info("audit_project_created", project=project.id, agent=project.agent)
    return web.json_response({"project": _shown(project)}, status=201)


async def show(request: web.Request) -> web.Response:
    _, project = await resolve_project(request, Action.LIST)
    return web.json_response({"project": _shown(project)})


async def change(request: web.Request) -> web.Response:
    """Rename, or give other instructions. Where a project lives is decided once."""
    body = await json_object(request)
    for field in FIXED:
        if field in body:
            raise InvalidRequest(field, "it cannot be changed")
    _, project = await resolve_project(request, Action.MANAGE)
    name = checked_name(body["name"]) if body.get("name") is not None else None
    instructions = body.get("instructions")
    changed = await request.app[keys.SERVICE].projects.change(
        project, name, None if instructions is None else checked_instructions(instructions)
    )
    log.info("audit_project_changed", project=changed.id)
    return web.json_response({"project": _shown(changed)})


async def delete(request: web.Request) -> web.Response:
    """Remove the project: its row, its index, its conversations, and its managed files."""
    service = request.app[keys.SERVICE]
    place, project = await resolve_project(request, Action.MANAGE)
    async with service.projects.steady(project.id):
        if service.live.in_project(project.id):
            raise TurnRunning(project.id)
        await service.projects.delete(project)
        service.history.forget_project(project.id)
        await place.workspace.remove()
    log.info("audit_project_deleted", project=project.id)
    return web.json_response({"status": "deleted", "id": project.id})


def _shown(project: Project) -> dict[str, Any]:
    return {
        "id": project.id,
        "name": project.name,
        "agent": project.agent,
        "owner": project.owner,
        "instructions": project.instructions,
        "mode": project.mode,
        "path": project.path,
        "role": project.role.name.lower(),
        "created_at": project.created_at.isoformat(),
    }


ROUTES = [
    Route("GET", "/v1/projects", list_projects, Credential.MEMBER, "reads"),
    Route("POST", "/v1/projects", create, Credential.MEMBER, "changes"),
    Route("GET", "/v1/projects/{project}", show, Credential.MEMBER, "reads"),
    Route("PATCH", "/v1/projects/{project}", change, Credential.MEMBER, "changes"),
    Route("DELETE", "/v1/projects/{project}", delete, Credential.MEMBER, "changes"),
]
