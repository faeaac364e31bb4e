"""Where a workspace lies: the one place that turns a member and a project into a path. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import NewType

from workspace.errors import InvalidName
from workspace.paths import RelPath

ProjectId = NewType("ProjectId", str)

_PROJECT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_RESERVED_PROJECT = "main"
_PLAIN_MEMBER = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_HASHED_MEMBER = re.compile(r"m-[0-9a-f]{32}")


def parse_project_id(raw: str) -> ProjectId:
    """A project's id; ``main`` stands for no project and is none. Raises InvalidName."""
    if not _PROJECT_ID.fullmatch(raw) or raw == _RESERVED_PROJECT:
        raise InvalidName(raw)
    return ProjectId(raw)


@dataclass(frozen=True, slots=True)
class Location:
    """The managed workspace of a member (``project`` None: the main one); of a project, ``member`` is the owner."""

    member: str
    project: str | None = None

    def __post_init__(self) -> None:
        if self.project is not None:
            parse_project_id(self.project)


def member_segment(member_id: str) -> str:
    """The one directory name of a member.

    An id that is a plain lower-case name is used as it is, every other by its SHA-256, so that ids which differ in
    case, or only in characters that a directory cannot hold, never share a folder; and no plain id looks hashed.
    """
    if _PLAIN_MEMBER.fullmatch(member_id) and not _HASHED_MEMBER.fullmatch(member_id):
        return member_id
    return "m-" + hashlib.sha256(member_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def workspace_name(location: Location) -> str:
    """``workspace``, or ``workspace-<project>`` beside it."""
    return "workspace" if location.project is None else f"workspace-{location.project}"


def project_root(location: Location) -> RelPath:
    """The workspace below the agent's tree; nothing else derives it."""
    return RelPath((member_segment(location.member), workspace_name(location)))


def told_path(
    path: str,
    *,
    location: Location,
    container_path: str,
    isolates_members: bool,
    isolates_projects: bool,
) -> str:
    """The path by which the agent opens ``path`` (``public/a.pdf``) of this workspace.

    Relative where the harness works in the workspace itself: any workspace of an agent with one container a
    project, the main workspace of one with a container a member. Else absolute, below the mount that the agent
    sees at ``container_path``.
    """
    if isolates_projects or (isolates_members and location.project is None):
        return path
    member = () if isolates_members else (member_segment(location.member),)
    return "/".join((container_path.rstrip("/"), *member, workspace_name(location), path))
