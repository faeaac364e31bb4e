"""From the names in a request to a place: which agent, whose workspace, and whether the member may."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from proxy import keys
from proxy.agents import Agent
from proxy.errors import Forbidden, UnknownProject
from proxy.identity import Member
from proxy.rights import Action, Role, allowed
from workspace.handle import Workspace
from workspace.location import Location, told_path


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request's files live: one workspace of one agent."""

    agent: Agent
    member: Member
    location: Location
    workspace: Workspace
    role: Role

    @property
    def project(self) -> str | None:
        return self.location.project

    def told(self, path: str) -> str:
        """A path below the workspace (``public/a.pdf``) as this place's harness can open it."""
        settings = self.agent.settings
        return told_path(
            container_path=settings.container_path,
            isolates_members=settings.isolates_members,
            isolates_projects=settings.isolates_projects,
            location=self.location,
            path=path,
        )


async def resolve(request: web.Request, agent: str | None, project: str | None, action: Action) -> Place:
    """The place that a request names. Raises UnknownAgent, AgentRequired, UnknownProject, Forbidden.

    Nothing is made and nothing is written: an unknown project is refused before any byte lands, and
    no request ever falls back to the main workspace.
    """
    service = request.app[keys.SERVICE]
    member = request[keys.MEMBER]
    chosen = service.agents.choose(member, agent)
    if project is not None:
        raise UnknownProject(project[:100])
    role = Role.OWNER
    if not allowed(role, action):
        raise Forbidden(action.value)
    location = Location(member=member.id, project=None)
    workspace = service.workspaces.open(chosen.key, chosen.tree, location)
    return Place(chosen, member, location, workspace, role)
