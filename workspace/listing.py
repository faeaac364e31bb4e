"""Listings: pages over everything that a folder holds, and the state of the deliveries' directory.

Runs on agent threads only.
"""

from __future__ import annotations

import base64
import binascii
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from workspace.directory import WorkspaceDirectory
from workspace.errors import InvalidPath, NoSuchFolder
from workspace.paths import ATTACHMENTS, PUBLIC, RelPath
from workspace.walk import Budget, BytesPath, Found, Walk

_MAX_CURSOR = 4096
_LAST_SECOND = 253_402_300_799  # of the year 9999: an agent may set any time

FileState = tuple[int, int, int]
"""(inode, size in bytes, mtime in ns)"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder; ``path`` as members see it, ``modified`` in ISO 8601, UTC; the size of a folder is 0."""

    path: str
    name: str
    size: int
    is_dir: bool
    modified: str


@dataclass(slots=True)
class Omitted:
    """How many entries a page leaves out, or enters not: ``too_deep``, ``unreadable`` and ``too_large`` folders.

    ``undecodable`` are names that no path can spell: not UTF-8, or with control characters.
    """

    links: int = 0
    special: int = 0
    undecodable: int = 0
    too_deep: int = 0
    unreadable: int = 0
    too_large: int = 0


@dataclass(frozen=True, slots=True)
class Listing:
    """A page; ``next_cursor`` is None on the last one."""

    files: list[Entry]
    next_cursor: str | None
    omitted: Omitted


def modified(seconds: float) -> str:
    """Seconds since 1970 as ISO 8601 in UTC, to the millisecond; what no calendar holds becomes its first or last."""
    moment = datetime.fromtimestamp(min(max(seconds, 0), _LAST_SECOND), UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def list_page(
    directory: WorkspaceDirectory, folder: RelPath, cursor: str | None, limit: int, budget: Budget
) -> Listing:
    """At most ``limit`` entries below ``folder``, at all depths, after the one at which ``cursor`` stands.

    A page may be shorter, even empty, and still have a next one: the budget was spent. Raises InvalidPath for a
    cursor that is none, and what ``WorkspaceDirectory.open_folder`` raises; a workspace that has no public
    directory yet has an empty listing.
    """
    after = _decode_cursor(cursor)
    try:
        top = directory.open_folder(folder)
    except NoSuchFolder:
        if folder.segments:
            raise
        return Listing([], None, Omitted())
    base = _base(folder)
    with Walk(top, base, batch=limit + 1, now=time.time(), after=after) as walk:
        return _fill(walk, base, after, limit, budget)


def attachments_state(directory: WorkspaceDirectory, budget: Budget) -> dict[str, FileState]:
    """Every regular file below ``public/attachments``, by its path as members see it; none if there is no such folder.

    Raises what ``WorkspaceDirectory.open_folder`` raises otherwise.
    """
    folder = RelPath((ATTACHMENTS,))
    try:
        top = directory.open_folder(folder)
    except NoSuchFolder:
        return {}
    base = _base(folder)
    state: dict[str, FileState] = {}
    with Walk(top, base, batch=budget.entries, now=time.time()) as walk:
        for found in walk:
            if not budget.spend():
                break
            if found.is_listed and not found.is_folder:
                status = found.status
                state[_text(base, found.path)] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return state


def _fill(walk: Walk, base: BytesPath, after: BytesPath, limit: int, budget: Budget) -> Listing:
    page = Listing([], None, Omitted())
    position = after
    for found in walk:
        is_full = found.is_listed and len(page.files) == limit
        # Each page gets at least one entry further, so that a slow disk has pages without end only if it has entries.
        if is_full or (not budget.spend() and position != after):
            return Listing(page.files, _encode_cursor(position), page.omitted)
        position = found.path
        if found.omission:
            setattr(page.omitted, found.omission, getattr(page.omitted, found.omission) + 1)
        if found.is_listed:
            page.files.append(_entry(base, found))
    return page


def _entry(base: BytesPath, found: Found) -> Entry:
    size = 0 if found.is_folder else found.status.st_size
    return Entry(
        _text(base, found.path),
        found.path[-1].decode(),
        size,
        found.is_folder,
        modified(found.status.st_mtime),
    )


def _base(folder: RelPath) -> BytesPath:
    return tuple(os.fsencode(name) for name in (PUBLIC, *folder.segments))


def _text(base: BytesPath, path: BytesPath) -> str:
    return b"/".join(base + path).decode()


def _encode_cursor(path: BytesPath) -> str:
    return base64.urlsafe_b64encode(b"/".join(path)).decode().rstrip("=")


def _decode_cursor(cursor: str | None) -> BytesPath:
    if cursor is None:
        return ()
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidPath("the cursor is not one of ours") from error
    path = tuple(raw.split(b"/"))
    if len(raw) > _MAX_CURSOR or any(name in {b"", b".", b".."} or b"\0" in name for name in path):
        raise InvalidPath("the cursor is not one of ours")
    return path
