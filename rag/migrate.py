"""Schema changes: numbered SQL files that are only ever added, each applied once, in order.

A file is ``sql/migrations/NNNN_name.sql``. Each has a transaction of its own that first takes one advisory lock, so
any number of services may start at once on one database. The table ``migrations`` has what was applied.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

import asyncpg

from rag.errors import DatabaseNewer, MigrationChanged

LOCK = 0x1574_4D05  # any number that nothing else in the database takes
FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")

APPLIED_TABLE = """\
CREATE TABLE IF NOT EXISTS migrations (
    name       text PRIMARY KEY,
    sha256     text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)"""


@dataclass(frozen=True)
class Migration:
    name: str  # "0001_turns"
    sql: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def load_migrations(directory: Traversable | None = None) -> tuple[Migration, ...]:
    """All migrations in order. Raises ValueError: a file is misnamed, or the numbers are not 1, 2, 3 …"""
    directory = directory or files("rag").joinpath("sql", "migrations")
    found = sorted(
        (entry for entry in directory.iterdir() if entry.name.endswith(".sql")), key=lambda e: e.name
    )
    for number, entry in enumerate(found, start=1):
        match = FILE_NAME.fullmatch(entry.name)
        if match is None or int(match[1]) != number:
            raise ValueError(f"{entry.name}: migrations are NNNN_name.sql, numbered from 0001 without a gap")
    return tuple(Migration(e.name.removesuffix(".sql"), e.read_text(encoding="utf-8")) for e in found)


def pending(migrations: tuple[Migration, ...], applied: dict[str, str]) -> tuple[Migration, ...]:
    """What is still to do, given name → sha256 of what was done. Raises DatabaseNewer, MigrationChanged."""
    unknown = sorted(applied.keys() - {migration.name for migration in migrations})
    if unknown:
        raise DatabaseNewer(tuple(unknown))
    for migration in migrations:
        if applied.get(migration.name, migration.sha256) != migration.sha256:
            raise MigrationChanged(migration.name)
    return tuple(migration for migration in migrations if migration.name not in applied)


async def migrate(
    conn_or_pool: asyncpg.Connection | asyncpg.Pool, migrations: tuple[Migration, ...] | None = None
) -> list[str]:
    """Bring the database up to this code; the names of what this call applied, in order.

    Raises DatabaseNewer and MigrationChanged (nothing was changed), and PostgreSQL's error for a migration that
    fails (it left nothing behind; those before it stay).
    """
    if isinstance(conn_or_pool, asyncpg.Pool):
        async with conn_or_pool.acquire() as conn:
            return await migrate(conn, migrations)
    todo = await asyncio.to_thread(load_migrations) if migrations is None else migrations
    done: list[str] = []
    while name := await _apply_next(conn_or_pool, todo):
        done.append(name)
    return done


async def _apply_next(conn: asyncpg.Connection, migrations: tuple[Migration, ...]) -> str | None:
    """Apply the first pending migration, if any. What is pending is asked under the lock: others may be at it."""
    async with conn.transaction():
        await conn.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        await conn.execute("SET LOCAL client_min_messages = warning")
        await conn.execute(APPLIED_TABLE)
        rows = await conn.fetch("SELECT name, sha256 FROM migrations")
        todo = pending(migrations, {row["name"]: row["sha256"] for row in rows})
        if not todo:
            return None
        await conn.execute(todo[0].sql)
        await conn.execute(
            "INSERT INTO migrations (name, sha256) VALUES ($1, $2)", todo[0].name, todo[0].sha256
        )
        return todo[0].name
