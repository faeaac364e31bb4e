"""A place: one workspace of one agent, as a member of some role meets it."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.agents import Agent
from proxy.identity import Member
from proxy.projects import Project, Projects
from workspace.handle import Workspace
from workspace.location import Location, told_path


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request's files live: one workspace of one agent. `project` None is the main workspace."""

    agent: Agent
    member: Member
    location: Location
    workspace: Workspace
    project: Project | None

    @property
    def project_id(self) -> str | None:
        return self.location.project

    @property
    def owner(self) -> str:
        """The member in whose container the agent works: the project's owner, else the member."""
        return self.location.member

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


async def prepare(place: Place, projects: Projects) -> None:
    """Make the place's directories; nothing of a project that was removed meanwhile is made anew.

    Raises UnknownProject, and what `Workspace.prepare` raises.
    """
    if place.project is None:
        await place.workspace.prepare()
        return
    async with projects.steady(place.project.id):
        await projects.get(place.member, place.project.id)
        await place.workspace.prepare()
