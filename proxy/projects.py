"""Projects: named spaces of a member, each with its own workspace, sessions, instructions and index."""

from __future__ import annotations

import asyncio
import re
import time
import unicodedata
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from proxy.errors import InvalidRequest, NameTaken, QuotaExceeded, UnknownProject
from proxy.identity import Member
from proxy.lines import is_one_line
from proxy.rights import Role
from rag.errors import StoreUnavailable
from rag.pool import connection
from rag.queries import load

SQL = load("proxy", "projects.sql")
MAIN = "main"
MAX_ID = 64
MAX_NAME = 100
MAX_INSTRUCTIONS_BYTES = 32 * 1024
MAX_OF_OWNER = 100
CACHE_SECONDS = 60.0
MAX_CACHED = 10_000


@dataclass(frozen=True, slots=True)
class Project:
    """One project's row; `role` is that of the member who asked."""

    id: str
    agent: str
    owner: str
    name: str
    instructions: str
    mode: str
    path: str | None
    created_at: datetime
    role: Role = Role.OWNER


def project_id(name: str, taken: Callable[[str], bool]) -> str:
    """The id that a name gives: accents fold, lower case, runs of other characters become `-`, numbered if taken."""
    folded = unicodedata.normalize("NFKD", name)
    plain = "".join(c for c in folded if not unicodedata.combining(c)).casefold()
    # An id begins with a letter or a digit, so that it is a plain word in every path and address.
    base = re.sub(r"[^a-z0-9_-]+", "-", plain).lstrip("-_").rstrip("-")[:MAX_ID].rstrip("-") or "project"
    found, number = base, 1
    while found == MAIN or taken(found):
        number += 1
        suffix = f"-{number}"
        found = base[: MAX_ID - len(suffix)] + suffix
    return found


def checked_name(raw_name: object) -> str:
    """A project's name: one line of 1 to 100 characters. Raises InvalidRequest."""
    if not isinstance(raw_name, str):
        raise InvalidRequest("name", "send a string")
    name = unicodedata.normalize("NFC", raw_name).strip()
    if not 1 <= len(name) <= MAX_NAME or not is_one_line(name):
        raise InvalidRequest("name", f"use one line of 1 to {MAX_NAME} characters")
    return name


def checked_instructions(raw_instructions: object) -> str:
    """What the agent is told in each session of the project. Raises InvalidRequest."""
    if not isinstance(raw_instructions, str) or "\x00" in raw_instructions:
        raise InvalidRequest("instructions", "send a string without NUL")
    text = raw_instructions.encode("utf-8", "replace")
    if len(text) > MAX_INSTRUCTIONS_BYTES:
        raise InvalidRequest("instructions", f"send at most {MAX_INSTRUCTIONS_BYTES} bytes")
    return text.decode()


class Projects:
    """The rows' only reader and writer. All methods raise StoreUnavailable."""

    def __init__(self, pool: asyncpg.Pool, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._clock = clock
        self._seen: dict[str, tuple[Project, float]] = {}
        self._steady: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def steady(self, project_id: str) -> AsyncIterator[None]:
        """While something is made for the project or the project is removed: one of these at a time, so that
        nothing of a removed project comes back."""
        lock, users = self._steady.get(project_id, (asyncio.Lock(), 0))
        self._steady[project_id] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            users = self._steady[project_id][1] - 1
            if users:
                self._steady[project_id] = lock, users
            else:
                del self._steady[project_id]

    async def get(self, member: Member, raw_id: str) -> Project:
        """The project, if the member has a role in it. Raises UnknownProject.

        While the store is away, a row that was read within the last minute still counts: uploads and
        deliveries in a project go on.
        """
        try:
            async with connection(self._pool) as conn:
                row = await conn.fetchrow(SQL["project_by_id"], raw_id) if raw_id.isprintable() else None
        except StoreUnavailable:
            project, since = self._seen.get(raw_id, (None, 0.0))
            if project is None or self._clock() - since > CACHE_SECONDS:
                raise
        else:
            project = self._remembered(raw_id, row)
        if project is None or project.owner != member.id or not member.may_use(project.agent):
            raise UnknownProject(raw_id[:100])
        return project

    def _remembered(self, raw_id: str, row: asyncpg.Record | None) -> Project | None:
        self._seen.pop(raw_id, None)
        if row is None:
            return None
        project = Project(**row)
        self._seen[raw_id] = project, self._clock()
        if len(self._seen) > MAX_CACHED:
            del self._seen[next(iter(self._seen))]
        return project

    async def of(self, member: Member) -> list[Project]:
        """The member's projects with agents that the member may use, oldest first."""
        async with connection(self._pool) as conn:
            rows = await conn.fetch(SQL["projects_of_owner"], member.id)
        return [Project(**row) for row in rows if member.may_use(row["agent"])]

    async def create(self, owner: str, agent: str, name: str, instructions: str) -> Project:
        """A new project with an id that no other has. Raises NameTaken, QuotaExceeded."""
        # Two projects whose names give one id race for it: the loser takes the next number.
        while True:
            try:
                async with connection(self._pool) as conn, conn.transaction():
                    return await self._insert(conn, owner, agent, name, instructions)
            except asyncpg.UniqueViolationError as error:
                if error.constraint_name != "projects_pkey":
                    raise NameTaken(name) from error

    async def _insert(self, conn: Any, owner: str, agent: str, name: str, instructions: str) -> Project:
        await conn.execute(SQL["lock_owner"], owner)
        count = await conn.fetchval(SQL["count_of_owner"], owner)
        if count >= MAX_OF_OWNER:
            raise QuotaExceeded(MAX_OF_OWNER, count)
        base = project_id(name, lambda _: False)
        like = base[: MAX_ID - 8].replace("_", r"\_") + "%"
        rows = await conn.fetch(SQL["ids_like"], base, like)
        taken = {row["id"] for row in rows}
        found = project_id(name, taken.__contains__)
        row = await conn.fetchrow(
            SQL["insert_project"], found, agent, owner, name, name.casefold(), instructions
        )
        return Project(**row)

    async def change(self, project: Project, name: str | None, instructions: str | None) -> Project:
        """Rename or give other instructions; None leaves as is. Raises NameTaken, UnknownProject."""
        key = name.casefold() if name is not None else None
        try:
            async with connection(self._pool) as conn:
                row = await conn.fetchrow(
                    SQL["update_project"], project.id, project.owner, name, key, instructions
                )
        except asyncpg.UniqueViolationError as error:
            raise NameTaken(name or project.name) from error
        changed = self._remembered(project.id, row)
        if changed is None:
            raise UnknownProject(project.id)
        return changed

    async def delete(self, project: Project) -> None:
        """Remove the row with its index and its conversations. Raises UnknownProject if it is gone already."""
        async with connection(self._pool) as conn, conn.transaction():
            if await conn.fetchval(SQL["delete_project"], project.id, project.owner) is None:
                raise UnknownProject(project.id)
            await conn.execute(SQL["delete_sessions_of_project"], project.id)
        self._seen.pop(project.id, None)
