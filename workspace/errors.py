"""What can go wrong in a workspace, as facts with data.

No error here knows an HTTP status: the one table in ``proxy.errors`` gives each its status, code and message.
The fields of an error are shown to the member, so none ever holds a host path.
"""

from __future__ import annotations

from dataclasses import dataclass


class WorkspaceError(Exception):
    """Base of every fact that this package raises; the dataclass fields of a subclass are its public data."""


@dataclass(eq=False)
class InvalidName(WorkspaceError):
    """A name that cleaning changes (``suggestion`` is what it became) or of which nothing is left (None)."""

    name: str
    suggestion: str | None = None


@dataclass(eq=False)
class InvalidPath(WorkspaceError):
    """A client's path that names nothing inside a tree: empty segments, dots, NUL, too long, too deep."""

    problem: str


@dataclass(eq=False)
class ExtensionNotAllowed(WorkspaceError):
    """The operator's list does not have this extension (or this extensionless name)."""

    name: str
    allowed: tuple[str, ...]


@dataclass(eq=False)
class NotFound(WorkspaceError):
    """No regular file of this path, or something else lies there."""

    path: str


@dataclass(eq=False)
class NoSuchFolder(WorkspaceError):
    """A folder in the path is missing."""

    path: str


@dataclass(eq=False)
class NotReadable(WorkspaceError):
    """The agent's own rights do not reach this file."""

    path: str


@dataclass(eq=False)
class NotPermitted(WorkspaceError):
    """The agent's own rights do not allow this change."""

    path: str


@dataclass(eq=False)
class IsAFolder(WorkspaceError):
    """A folder stands where a file was meant."""

    path: str


@dataclass(eq=False)
class IsAFile(WorkspaceError):
    """A file stands where a folder was meant."""

    path: str


@dataclass(eq=False)
class Exists(WorkspaceError):
    """Something has the name already, and is not replaced."""

    path: str


@dataclass(eq=False)
class CannotMoveHere(WorkspaceError):
    """The two folders lie on different mounts or disk quotas, between which nothing can be renamed."""

    path: str


@dataclass(eq=False)
class ArchiveTooLarge(WorkspaceError):
    """The folder holds more than one archive may: ``max_files`` entries, ``max_bytes`` of content."""

    max_files: int
    max_bytes: int


@dataclass(eq=False)
class ManagedBySystem(WorkspaceError):
    """``attachments/`` is Isthmus's own: members take files out of it, only deliveries go in."""

    path: str


@dataclass(eq=False)
class PublicIsNotAFolder(WorkspaceError):
    """``public`` is a link or a file, and is never followed."""


@dataclass(eq=False)
class FolderMoved(WorkspaceError):
    """The folder was moved or replaced while a file for it was being written; nothing was published."""

    path: str


@dataclass(eq=False)
class MountInside(WorkspaceError):
    """Another file system is mounted inside the workspace at this path."""

    path: str


@dataclass(eq=False)
class NoSpace(WorkspaceError):
    """The disk, the disk quota or the inodes are used up, or would fall below the reserve."""


@dataclass(eq=False)
class Busy(WorkspaceError):
    """Too much work waits for this workspace, or a file's holder does not let go of it."""

    retry_after: int = 1


@dataclass(eq=False)
class Replaced(Busy):
    """The workspace is not the one that the thread was confined to; a fresh thread may work on it."""


@dataclass(eq=False)
class ReadOnly(WorkspaceError):
    """The workspace lies on a file system that is mounted read-only or fails to write."""


@dataclass(eq=False)
class AgentRightsUnavailable(WorkspaceError):
    """The service cannot take the agent's rights here, so it does not touch the agent's tree at all."""

    reason: str
