"""Migrations against the real server."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import asyncpg
import pytest

from rag.embedded.binaries import find_binaries
from rag.errors import DatabaseNewer, MigrationChanged
from rag.migrate import Migration, load_migrations, migrate
from rag.pool import open_pool
from tests.support.postgres import TestServer, fresh_database

SHIPPED = load_migrations()
BINARIES = find_binaries()


async def drop_tables(conn: asyncpg.Connection) -> None:
    """Back to a database that was never migrated."""
    for row in await conn.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        await conn.execute(f'DROP TABLE IF EXISTS "{row["tablename"]}" CASCADE')


async def applied(conn: asyncpg.Connection) -> list[str]:
    return [row["name"] for row in await conn.fetch("SELECT name FROM migrations ORDER BY applied_at, name")]


@pytest.fixture
async def bare(conn: asyncpg.Connection) -> asyncpg.Connection:
    """A connection to a database without any table."""
    await drop_tables(conn)
    return conn


async def test_a_migrated_database_has_nothing_more_to_do(conn: asyncpg.Connection) -> None:
    assert await migrate(conn) == []
    assert await applied(conn) == [migration.name for migration in SHIPPED]


async def test_migrations_are_applied_in_order_and_once(bare: asyncpg.Connection) -> None:
    steps = (Migration("0001_a", "CREATE TABLE a (n int)"), Migration("0002_b", "ALTER TABLE a ADD m int"))
    assert await migrate(bare, steps[:1]) == ["0001_a"]
    assert await migrate(bare, steps) == ["0002_b"]
    assert await migrate(bare, steps) == []
    assert await applied(bare) == ["0001_a", "0002_b"]


async def test_five_services_that_start_at_once_apply_each_migration_once(postgres: TestServer) -> None:
    async with fresh_database(postgres) as connect:
        conn = await asyncpg.connect(**connect)
        await drop_tables(conn)
        steps = tuple(Migration(f"{n:04}_t", f"CREATE TABLE t{n} (n int)") for n in range(1, 8))
        pools = await asyncio.gather(*(open_pool(connect) for _ in range(5)))
        done = await asyncio.gather(*(migrate(pool, steps) for pool in pools))
        await asyncio.gather(*(pool.close() for pool in pools))
        assert sorted(name for names in done for name in names) == [step.name for step in steps]
        assert await applied(conn) == [step.name for step in steps]
        await conn.close()


async def test_a_migration_that_fails_leaves_nothing_and_those_before_it_stay(
    bare: asyncpg.Connection,
) -> None:
    steps = (
        Migration("0001_a", "CREATE TABLE a (n int)"),
        Migration("0002_b", "CREATE TABLE b (n int); SELECT 1/0"),
    )
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(bare, steps)
    assert await applied(bare) == ["0001_a"]
    assert await bare.fetchval("SELECT to_regclass('a') IS NOT NULL AND to_regclass('b') IS NULL")


async def test_an_edited_migration_is_refused(conn: asyncpg.Connection) -> None:
    first, *rest = SHIPPED
    with pytest.raises(MigrationChanged) as refused:
        await migrate(conn, (Migration(first.name, first.sql + "-- edited"), *rest))
    assert refused.value.name == "0001_turns"


async def test_a_newer_database_is_refused(conn: asyncpg.Connection) -> None:
    await migrate(conn, (*SHIPPED, Migration("9999_later", "CREATE TABLE later (n int)")))
    with pytest.raises(DatabaseNewer) as refused:
        await migrate(conn)
    assert refused.value.names == ("9999_later",)


async def test_a_deleted_session_takes_its_turns_and_deliveries_along(conn: asyncpg.Connection) -> None:
    await conn.execute("INSERT INTO sessions (agent, member, session_id) VALUES ('demo', 'ana', 's')")
    await conn.execute(
        "INSERT INTO turns (turn_id, agent, member, project, session_id, origin, state, service)"
        " VALUES ('t', 'demo', 'ana', 'main', 's', 'member', 'running', 'p')"
    )
    await conn.execute(
        "INSERT INTO deliveries (turn_id, position, state, name) VALUES ('t', 0, 'failed', 'a.txt')"
    )
    await conn.execute("DELETE FROM sessions")
    assert await conn.fetchval("SELECT (SELECT count(*) FROM turns) + (SELECT count(*) FROM deliveries)") == 0


@pytest.mark.parametrize(
    ("column", "value"),
    [("origin", "'system'"), ("state", "'lost'"), ("state", "'done'"), ("ended_at", "now()")],
)
async def test_a_turn_that_makes_no_sense_is_refused(
    conn: asyncpg.Connection, column: str, value: str
) -> None:
    await conn.execute("INSERT INTO sessions (agent, member, session_id) VALUES ('demo', 'ana', 's')")
    await conn.execute(
        "INSERT INTO turns (turn_id, agent, member, project, session_id, origin, state, service)"
        " VALUES ('t', 'demo', 'ana', 'main', 's', 'member', 'running', 'p')"
    )
    with pytest.raises(asyncpg.CheckViolationError):
        await conn.execute(f"UPDATE turns SET {column} = {value}")


async def test_a_dump_goes_into_a_store_that_was_made_anew(postgres: TestServer, tmp_path: Path) -> None:
    dump = tmp_path / "store.dump"
    async with fresh_database(postgres) as old, fresh_database(postgres) as new:
        reach = ["--host", old["host"], "--username", old["user"]]
        conn = await asyncpg.connect(**old)
        await conn.execute(
            "INSERT INTO sessions (agent, member, session_id, title) VALUES ('demo', 'ana', 's', 'é')"
        )
        await conn.close()
        dumping = ("--data-only", "--exclude-table", "migrations", "--format", "custom", "--file", str(dump))
        for program in (
            [BINARIES.program("pg_dump"), *reach, *dumping, old["database"]],
            [
                BINARIES.program("pg_restore"),
                *reach,
                "--dbname",
                new["database"],
                "--single-transaction",
                str(dump),
            ],
        ):
            done = await asyncio.to_thread(subprocess.run, program, capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")
        conn = await asyncpg.connect(**new)
        assert await conn.fetchval("SELECT title FROM sessions") == "é"
        await conn.close()
