"""A pool on an empty migrated database, and a project in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from rag.pool import open_pool
from tests.support.folders import add_project
from tests.support.postgres import TestServer, fresh_database


@pytest.fixture
async def pool(postgres: TestServer) -> AsyncIterator[asyncpg.Pool]:
    async with fresh_database(postgres) as connect:
        pool = await open_pool(connect)
        await add_project(pool, "p")
        yield pool
        await pool.close()
