"""Errors of the edge, and the one table that gives every error of the service its status, code and message.

An error is a fact with data: the dataclass fields of an exception are what the member is shown beside
``code`` and ``message``. A 5xx also carries ``request_id``. An error that is not in the table is
``internal``: its text stays in the log, the member gets the id.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import NamedTuple

from rag import errors as rag
from workspace import errors as workspace


class ProxyError(Exception):
    """Base of every fact that the edge raises."""


@dataclass(eq=False)
class InvalidRequest(ProxyError):
    field: str
    problem: str


@dataclass(eq=False)
class RepeatedField(ProxyError):
    field: str


@dataclass(eq=False)
class MalformedBody(ProxyError):
    problem: str


@dataclass(eq=False)
class BadIdentity(ProxyError):
    problem: str


@dataclass(eq=False)
class AgentRequired(ProxyError):
    agents: tuple[str, ...]


@dataclass(eq=False)
class Unauthenticated(ProxyError):
    pass


@dataclass(eq=False)
class TooManySignIns(ProxyError):
    retry_after: int


@dataclass(eq=False)
class Forbidden(ProxyError):
    action: str


@dataclass(eq=False)
class CrossSite(ProxyError):
    pass


@dataclass(eq=False)
class AgentTokenUsed(ProxyError):
    pass


@dataclass(eq=False)
class RouteNotFound(ProxyError):
    pass


@dataclass(eq=False)
class MethodNotAllowed(ProxyError):
    method: str
    allowed: tuple[str, ...]


@dataclass(eq=False)
class MisdirectedHost(ProxyError):
    pass


@dataclass(eq=False)
class UnknownAgent(ProxyError):
    agent: str


@dataclass(eq=False)
class UnknownProject(ProxyError):
    project: str


@dataclass(eq=False)
class NameTaken(ProxyError):
    name: str


@dataclass(eq=False)
class QuotaExceeded(ProxyError):
    limit: int
    usage: int


@dataclass(eq=False)
class OverQuota(ProxyError):
    """`usage` bytes lie below the public directory; the file would bring it over `limit`."""

    limit: int
    usage: int


@dataclass(eq=False)
class TurnRunning(ProxyError):
    project: str


@dataclass(eq=False)
class NotAttached(ProxyError):
    pass


@dataclass(eq=False)
class BodyTimeout(ProxyError):
    seconds: float


@dataclass(eq=False)
class FileTooLarge(ProxyError):
    limit: int
    size: int | None = None


@dataclass(eq=False)
class BodyTooLarge(ProxyError):
    limit: int


@dataclass(eq=False)
class RangeNotSatisfiable(ProxyError):
    size: int


@dataclass(eq=False)
class UnsupportedMediaType(ProxyError):
    expected: str


@dataclass(eq=False)
class UnsupportedEncoding(ProxyError):
    encoding: str


@dataclass(eq=False)
class RateLimited(ProxyError):
    limit: int
    retry_after: int


@dataclass(eq=False)
class TooManyStreams(ProxyError):
    limit: int
    retry_after: int = 5


@dataclass(eq=False)
class TooManyUploads(ProxyError):
    limit: int
    retry_after: int = 2


@dataclass(eq=False)
class TooManyArchives(ProxyError):
    limit: int
    retry_after: int = 5


@dataclass(eq=False)
class ServiceBusy(ProxyError):
    retry_after: int = 2


@dataclass(eq=False)
class Stopping(ProxyError):
    retry_after: int = 5


@dataclass(eq=False)
class TurnGone(ProxyError):
    pass


@dataclass(eq=False)
class UnknownTurn(ProxyError):
    pass


@dataclass(eq=False)
class SessionBusy(ProxyError):
    session_id: str


@dataclass(eq=False)
class NotAcknowledged(ProxyError):
    pass


@dataclass(eq=False)
class TurnFailed(ProxyError):
    """A turn's failure in sync mode; ``code`` and ``reason`` come from the turn, ``partial`` is what was said."""

    code: str
    reason: str
    partial: str


class Row(NamedTuple):
    status: int
    code: str
    message: str


TABLE: dict[type[Exception], Row] = {
    InvalidRequest: Row(400, "invalid_request", "{field}: {problem}"),
    RepeatedField: Row(400, "repeated_field", "Give {field} once."),
    MalformedBody: Row(400, "malformed_body", "The body cannot be read: {problem}"),
    BadIdentity: Row(400, "bad_identity", "The front door's identity header cannot be used: {problem}"),
    AgentRequired: Row(400, "agent_required", "Name the agent; yours are in `agents`."),
    workspace.InvalidName: Row(400, "invalid_name", "This name cannot be used; `suggestion`, if there is one, can."),
    workspace.InvalidPath: Row(400, "invalid_path", "The path cannot be used: {problem}"),
    workspace.ExtensionNotAllowed: Row(
        400, "extension_not_allowed", "Files like {name} are not taken here."
    ),
    Unauthenticated: Row(401, "unauthenticated", "Sign in, or send `Authorization: Bearer <token>`."),
    Forbidden: Row(403, "forbidden", "Your role does not allow this."),
    CrossSite: Row(403, "cross_site", "Another site's page asked for this in your name; it was refused."),
    AgentTokenUsed: Row(403, "agent_token", "An agent's token opens only the routes made for agents."),
    workspace.ManagedBySystem: Row(
        403, "managed_by_system", "attachments/ holds deliveries; choose another folder for your own files."
    ),
    workspace.NotReadable: Row(403, "not_readable", "The agent has no right to read this file."),
    RouteNotFound: Row(404, "not_found", "There is nothing at this address."),
    workspace.NotFound: Row(404, "not_found", "There is no such file."),
    workspace.NoSuchFolder: Row(404, "no_such_folder", "There is no such folder; make it first."),
    UnknownTurn: Row(404, "not_found", "You have no such turn or conversation."),
    UnknownAgent: Row(404, "unknown_agent", "You have no agent of this name; GET /v1/models lists yours."),
    rag.UnsafePath: Row(400, "invalid_path", "{path} cannot be in an attached folder: {problem}. Nothing changed."),
    rag.DuplicatePath: Row(400, "duplicate_path", "{path} is there twice. Nothing changed."),
    rag.NothingIndexable: Row(
        400, "nothing_indexable", "None of the {files} files can be indexed. Nothing changed."
    ),
    rag.TooManyFiles: Row(
        400, "too_many_files", "{count} files to index; the limit is {limit}. Nothing changed."
    ),
    rag.TooManyBytes: Row(
        400, "too_many_bytes", "{count} bytes of text to index; the limit is {limit}. Nothing changed."
    ),
    rag.TooManyChunks: Row(
        400, "too_many_chunks", "The text makes {count} chunks; the limit is {limit}. Nothing changed."
    ),
    NotAttached: Row(404, "not_found", "No folder is attached to this project."),
    rag.UnknownProject: Row(404, "unknown_project", "You have no project of this id."),
    UnknownProject: Row(404, "unknown_project", "You have no project of this id."),
    MethodNotAllowed: Row(405, "method_not_allowed", "This address does not take {method}."),
    BodyTimeout: Row(408, "body_timeout", "No byte of the body came for {seconds:g} seconds."),
    workspace.IsAFolder: Row(409, "is_a_folder", "A folder of this name is there."),
    workspace.IsAFile: Row(409, "is_a_file", "A file stands where a folder is needed."),
    workspace.PublicIsNotAFolder: Row(
        409, "public_is_not_a_folder", "Something else lies where the public directory was; ask the agent to undo that."
    ),
    workspace.NotPermitted: Row(409, "not_permitted", "The agent's own rights do not allow this change."),
    workspace.FolderMoved: Row(409, "folder_moved", "The folder was moved meanwhile; nothing was stored. Try again."),
    workspace.MountInside: Row(409, "mount_inside", "Another file system is mounted inside the workspace here."),
    workspace.Exists: Row(409, "exists", "Something has this name already; nothing was changed."),
    workspace.CannotMoveHere: Row(
        409, "cannot_move_here", "The two folders lie on different disks; download the file and upload it there."
    ),
    NameTaken: Row(409, "name_taken", "You have a project called {name} with this agent already."),
    TurnRunning: Row(409, "turn_running", "A turn runs in this project; wait for its end."),
    QuotaExceeded: Row(413, "quota_exceeded", "You have {usage} projects; the limit is {limit}."),
    OverQuota: Row(413, "quota_exceeded", "Your files take {usage} bytes of {limit}; delete some first."),
    workspace.ArchiveTooLarge: Row(
        413, "archive_too_large", "An archive holds {max_files} entries of {max_bytes} bytes in all; take sub-folders."
    ),
    SessionBusy: Row(409, "turn_running", "A turn of this conversation runs; stop it or wait for its end."),
    TurnGone: Row(410, "turn_gone", "This turn can no longer be replayed; the history has what was said."),
    FileTooLarge: Row(413, "file_too_large", "The file is larger than the limit of {limit} bytes."),
    BodyTooLarge: Row(413, "body_too_large", "The request is larger than the limit of {limit} bytes."),
    UnsupportedMediaType: Row(415, "unsupported_media_type", "Send this as {expected}."),
    UnsupportedEncoding: Row(415, "unsupported_media_type", "Send the body without Content-Encoding {encoding}."),
    RangeNotSatisfiable: Row(416, "range_not_satisfiable", "The file has {size} bytes."),
    MisdirectedHost: Row(421, "misdirected_host", "This service does not answer to that host name (server.hosts)."),
    RateLimited: Row(429, "rate_limited", "More than {limit} of these a minute; try again in {retry_after} s."),
    TooManySignIns: Row(429, "rate_limited", "Too many failed sign-ins; try again in {retry_after} s."),
    TooManyStreams: Row(429, "too_many_streams", "You have {limit} streams or turns open; let one end."),
    TooManyUploads: Row(429, "too_many_uploads", "You have {limit} uploads under way; let one end."),
    TooManyArchives: Row(429, "too_many_archives", "You have an archive under way; let it end."),
    NotAcknowledged: Row(502, "not_acknowledged", "The agent did not confirm that it stopped; it may still work."),
    TurnFailed: Row(502, "", "{reason}"),
    rag.StoreUnavailable: Row(503, "store_unavailable", "The database does not answer now; try again soon."),
    workspace.Busy: Row(503, "busy", "Too much is under way in this workspace; try again soon."),
    workspace.AgentRightsUnavailable: Row(503, "busy", "The service lacks rights here; the log has why."),
    ServiceBusy: Row(503, "busy", "Too much is under way; try again soon."),
    Stopping: Row(503, "stopping", "The service is stopping; try again in a moment."),
    workspace.NoSpace: Row(507, "no_space", "The disk or its quota is full."),
    workspace.ReadOnly: Row(507, "no_space", "The disk takes no writes now."),
}  # fmt: skip

INTERNAL = Row(500, "internal", "Something went wrong on our side; quote the request id to the operator.")


def facts(error: Exception) -> dict[str, object]:
    """The public data of a typed error, fields that are None left out."""
    if not is_dataclass(error):
        return {}
    found = {field.name: getattr(error, field.name) for field in fields(error)}
    return {name: value for name, value in found.items() if value is not None}


def row_of(error: Exception) -> Row:
    """The table's row for an error, or `INTERNAL`."""
    for kind in type(error).__mro__:
        if kind in TABLE:
            return TABLE[kind]
    return INTERNAL


class Answer(NamedTuple):
    """What a client is told of an error."""

    status: int
    code: str
    message: str
    body: dict[str, dict[str, object]]
    retry_after: int | None


def answer(error: Exception, request_id: str) -> Answer:
    """The error's HTTP answer: the one body that every route uses."""
    row = row_of(error)
    data = facts(error) if row is not INTERNAL else {}
    message = row.message.format_map(data)
    code = str(data.pop("code", "")) if isinstance(error, TurnFailed) else row.code
    if isinstance(error, TurnFailed):
        data.pop("reason")
    retry_after = data.get("retry_after")
    inside: dict[str, object] = {"code": code, "message": message, **data}
    if row.status >= 500:
        inside["request_id"] = request_id
    return Answer(
        row.status, code, message, {"error": inside}, retry_after if isinstance(retry_after, int) else None
    )
