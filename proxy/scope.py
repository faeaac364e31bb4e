"""From the names in a request to a place: which agent, whose workspace, and whether the member may."""

from __future__ import annotations

from aiohttp import web

from proxy import keys
from proxy.agents import Agent
from proxy.errors import Forbidden, UnknownProject
from proxy.place import Place
from proxy.projects import Project
from proxy.rights import Action, Role, allowed
from workspace.location import Location


async def resolve(request: web.Request, agent: str | None, project: str | None, action: Action) -> Place:
    """The place that a request names. Raises UnknownAgent, AgentRequired, UnknownProject, Forbidden.

    Nothing is made and nothing is written: an unknown project is refused before any byte lands, and
    no request ever falls back to the main workspace.
    """
    service, member = request.app[keys.SERVICE], request[keys.MEMBER]
    if project is None:
        return _place(request, service.agents.choose(member, agent), Location(member.id, None), None, action)
    row = await service.projects.get(member, project)
    if agent is not None and service.agents.choose(member, agent).key != row.agent:
        raise UnknownProject(project[:100])
    chosen = service.agents.choose(member, row.agent)
    return _place(request, chosen, Location(row.owner, row.id), row, action)


async def resolve_project(request: web.Request, action: Action) -> tuple[Place, Project]:
    """The place and the row of the project in the route's own path. Raises UnknownProject, Forbidden."""
    place = await resolve(request, None, request.match_info["project"], action)
    if place.project is None:
        raise UnknownProject("")
    return place, place.project


def _place(
    request: web.Request, agent: Agent, location: Location, project: Project | None, action: Action
) -> Place:
    if not allowed(project.role if project else Role.OWNER, action):
        raise Forbidden(action.value)
    workspace = request.app[keys.SERVICE].workspaces.open(agent.key, agent.tree, location)
    return Place(agent, request[keys.MEMBER], location, workspace, project)
