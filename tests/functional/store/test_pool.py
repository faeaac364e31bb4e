"""The pool and the checks of a server, on the real one."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from rag.embedded import EmbeddedServer
from rag.errors import ExtensionMissing, StoreTooOld, StoreUnavailable
from rag.pool import connection, open_pool, require, require_capable_server
from tests.support.postgres import UID, TestServer, fresh_database


async def test_a_pool_names_itself_and_counts_in_utc(postgres: TestServer) -> None:
    async with fresh_database(postgres) as connect:
        pool = await open_pool(connect, application_name="isthmus-test")
        async with connection(pool) as conn:
            assert await conn.fetchval("SHOW application_name") == "isthmus-test"
            assert await conn.fetchval("SHOW timezone") == "UTC"
        await pool.close()
        with pytest.raises(StoreUnavailable):
            async with connection(pool):
                pass


async def test_a_dsn_opens_a_pool_too(postgres: TestServer) -> None:
    async with fresh_database(postgres) as connect:
        dsn = f"postgresql://{connect['user']}@/{connect['database']}?host={connect['host']}&port={connect['port']}"
        async with await open_pool(dsn) as pool, connection(pool) as conn:
            assert await conn.fetchval("SELECT current_database()") == connect["database"]


async def test_a_pool_says_when_the_server_is_away_and_works_when_it_is_back(made_dir: Path) -> None:
    first = EmbeddedServer(made_dir, UID, lambda _line: None)
    pool = await open_pool(await first.start())
    try:
        await first.stop()
        with pytest.raises(StoreUnavailable) as away:
            async with connection(pool):
                pass
        assert away.value.reason == "PostgreSQL cannot be reached"
        async with EmbeddedServer(made_dir, UID, lambda _line: None), connection(pool) as conn:
            assert await conn.fetchval("SELECT 1") == 1
    finally:
        pool.terminate()


async def test_a_pool_cannot_be_opened_where_there_is_no_server(data_dir: Path) -> None:
    with pytest.raises(StoreUnavailable) as away:
        await open_pool({"host": str(data_dir), "user": "isthmus_app", "database": "isthmus"})
    assert str(data_dir) not in away.value.reason


async def test_an_exhausted_pool_is_unavailable(postgres: TestServer) -> None:
    async with fresh_database(postgres) as connect, await open_pool(connect, max_size=1) as pool:
        async with connection(pool):
            with pytest.raises(StoreUnavailable) as waited:
                async with connection(pool, timeout=0.05):
                    pass
        assert waited.value.reason == "PostgreSQL did not answer in time"


async def test_what_the_server_refuses_is_not_called_unavailable(postgres: TestServer) -> None:
    async with fresh_database(postgres) as connect, await open_pool(connect) as pool:
        with pytest.raises(asyncpg.UndefinedTableError):
            async with connection(pool) as conn:
                await conn.execute("SELECT * FROM nowhere")


async def test_the_embedded_server_is_capable(conn: asyncpg.Connection) -> None:
    await require_capable_server(conn)


async def test_a_database_without_vector_whose_role_may_not_create_it_is_refused(
    postgres: TestServer,
) -> None:
    conn = await asyncpg.connect(**postgres.database("postgres"))
    try:
        with pytest.raises(ExtensionMissing) as refused:
            await require_capable_server(conn)
        assert refused.value.extension == "vector"
    finally:
        await conn.close()


@pytest.mark.parametrize(
    ("component", "found", "oldest"), [("PostgreSQL", (14, 12), (15, 0)), ("pgvector", (0, 7), (0, 8))]
)
def test_what_is_too_old_is_named_with_both_versions(
    component: str, found: tuple[int, ...], oldest: tuple[int, ...]
) -> None:
    with pytest.raises(StoreTooOld) as refused:
        require(component, found, oldest)
    assert str(refused.value) == (
        f"store.url: {component} is {found[0]}.{found[1]}, and {oldest[0]}.{oldest[1]} or newer is needed"
    )
    require(component, oldest, oldest)
