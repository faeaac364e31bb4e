"""Connections to the store, embedded or the operator's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from rag.errors import ExtensionMissing, StoreTooOld, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST_POSTGRESQL = (15, 0)
OLDEST_VECTOR = (0, 8)

MIN_SIZE = 1
MAX_SIZE = 10
CONNECT_TIMEOUT = 5.0  # seconds to open one connection
ACQUIRE_TIMEOUT = 5.0  # seconds to wait for a free one
STATEMENT_TIMEOUT = 60.0  # seconds for one statement, where the caller says nothing shorter

# The server is away, stops, starts or takes no more connections; not: it refuses what was asked of it.
UNAVAILABLE = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.exceptions.OperatorInterventionError,
    asyncpg.exceptions.InsufficientResourcesError,
    asyncpg.exceptions.InvalidAuthorizationSpecificationError,
    asyncpg.exceptions.InvalidCatalogNameError,
)


async def open_pool(
    connect: Mapping[str, object] | str,
    *,
    min_size: int = MIN_SIZE,
    max_size: int = MAX_SIZE,
    application_name: str = "isthmus",
    init: Callable[[Any], Awaitable[None]] | None = None,
) -> asyncpg.Pool:
    """A pool on the store: ``connect`` is a DSN, or keyword arguments of ``asyncpg.connect``.

    ``init`` prepares each new connection (codecs). Raises StoreUnavailable when no connection can be opened now.
    """
    target: dict[str, object] = {"dsn": connect} if isinstance(connect, str) else dict(connect)
    with translated():
        return await asyncpg.create_pool(
            **target,
            min_size=min_size,
            max_size=max_size,
            timeout=CONNECT_TIMEOUT,
            command_timeout=STATEMENT_TIMEOUT,
            init=init,
            server_settings={"application_name": application_name, "timezone": "UTC"},
        )


@asynccontextmanager
async def connection(
    pool: asyncpg.Pool, timeout: float = ACQUIRE_TIMEOUT
) -> AsyncIterator[asyncpg.Connection]:
    """Borrow a connection for at most the block. Raises StoreUnavailable, also for what happens in the block."""
    with translated():
        async with pool.acquire(timeout=timeout) as borrowed:
            yield borrowed


@contextmanager
def translated() -> Iterator[None]:
    """Turn what means "PostgreSQL is away" into StoreUnavailable; every other error passes as it is."""
    try:
        yield
    except TimeoutError as error:
        raise StoreUnavailable("PostgreSQL did not answer in time") from error
    except UNAVAILABLE as error:
        raise StoreUnavailable(_reason(error)) from error


def _reason(error: Exception) -> str:
    """A short text without paths, addresses or SQL."""
    if isinstance(error, asyncpg.exceptions.InvalidAuthorizationSpecificationError):
        return "PostgreSQL refuses the sign-in"
    if isinstance(error, asyncpg.exceptions.InvalidCatalogNameError):
        return "the database does not exist"
    if isinstance(error, asyncpg.exceptions.TooManyConnectionsError):
        return "PostgreSQL has no connection left"
    if isinstance(error, asyncpg.exceptions.InsufficientResourcesError):
        return "PostgreSQL has no disk space or memory left"
    if isinstance(error, asyncpg.exceptions.OperatorInterventionError):
        return "PostgreSQL starts, stops or cut the connection"
    return "PostgreSQL cannot be reached"


async def require_capable_server(conn: asyncpg.Connection) -> None:
    """See that a server is one the store can live in, and that pgvector is installed in its database.

    Raises StoreTooOld (PostgreSQL below 15, pgvector below 0.8) and ExtensionMissing.
    """
    number = int(await conn.fetchval("SHOW server_version_num"))
    require("PostgreSQL", (number // 10000, number % 10000), OLDEST_POSTGRESQL)
    try:
        await conn.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except (
        asyncpg.InsufficientPrivilegeError,
        asyncpg.UndefinedFileError,
        asyncpg.FeatureNotSupportedError,
    ) as error:
        raise ExtensionMissing("vector") from error
    version = await conn.fetchval("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    require("pgvector", tuple(int(part) for part in version.split(".")[:2]), OLDEST_VECTOR)


def require(component: str, found: tuple[int, ...], oldest: tuple[int, ...]) -> None:
    """Raises StoreTooOld."""
    if found < oldest:
        raise StoreTooOld(component, ".".join(map(str, found)), ".".join(map(str, oldest)))
