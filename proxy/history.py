"""What was said, in PostgreSQL: sessions, turns and their deliveries.

A turn is written when it begins, and whole when it ends. The second write does not need the first, and
is tried again until it succeeds: a database that was away loses nothing of a turn that this process
saw to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import asyncpg
import structlog

from proxy.chat_request import exchange_digest
from proxy.live import LiveTurn, SessionKey
from proxy.stream.events import Delivery
from rag.errors import StoreUnavailable
from rag.pool import translated
from rag.queries import load

log = structlog.get_logger()

SQL = load("proxy", "history.sql")
MAIN = "main"
TITLE_LENGTH = 80
WRITE_SECONDS = 2.0
RETRY_SECONDS = 2.0
KEEP_SECONDS = 0.2
MAX_UNWRITTEN = 1000
MAX_TOLD = 10_000


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a session's history."""

    role: str
    content: str
    created_at: datetime
    turn_id: str
    origin: str
    deliveries: tuple[Delivery, ...] = ()
    error: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One conversation in the list."""

    session_id: str
    title: str
    created_at: datetime
    updated_at: datetime
    turns: int


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """A turn as it is written; `context` is the digest of what the agent was told, None while it is not yet."""

    turn: LiveTurn
    deliveries: tuple[Delivery, ...]
    context: str | None


class History:
    """The history's only writer and reader. An async context: entering marks this service's turns that a
    restart cut off, leaving writes what is still unwritten."""

    def __init__(self, pool: asyncpg.Pool, service: str) -> None:
        self._pool = pool
        self._service = service
        self._unwritten: list[TurnRecord] = []
        self._told: dict[SessionKey, str] = {}
        self._catching_up: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._unkept: dict[str, Callable[[], TurnRecord]] = {}
        self._something_unkept = asyncio.Event()

    async def __aenter__(self) -> History:
        await self._pool.execute(SQL["interrupt_own_turns"], self._service)
        self._keeping = asyncio.create_task(self._keep_all())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        tasks = [task for task in (self._keeping, self._catching_up) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for record in self._unwritten:
            if not await self._written(record):
                log.error("history_lost", turn_id=record.turn.turn_id)

    @asynccontextmanager
    async def _borrowed(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection for a short while: nobody waits long for a store that is away. Raises StoreUnavailable."""
        with translated():
            async with asyncio.timeout(WRITE_SECONDS), self._pool.acquire() as connection:
                yield connection

    async def told(self, session: SessionKey) -> str | None:
        """The digest of the context that the agent was last told in this session; None if that is not known."""
        if session in self._told:
            return self._told[session]
        try:
            async with self._borrowed() as connection:
                found: str | None = await connection.fetchval(SQL["context_of_session"], *_columns(session))
        except StoreUnavailable as error:
            log.warning("context_not_looked_up", reason=error.reason)
            return None
        return found

    def keep(self, turn_id: str, now: Callable[[], TurnRecord]) -> None:
        """Have a running turn written as it is a moment from now: at its beginning, and whenever it said something.

        A kill of the service then loses nothing older than `KEEP_SECONDS`. A store that is away costs the turn
        nothing: its end is written whole.
        """
        self._unkept[turn_id] = now
        self._something_unkept.set()

    async def _keep_all(self) -> None:
        """All turns that changed, in one round trip and one commit, at once and then every so often."""
        while True:
            await self._something_unkept.wait()
            self._something_unkept.clear()
            unkept, self._unkept = self._unkept, {}
            try:
                rows = [self._row(now(), "running") for now in unkept.values()]
                async with self._borrowed() as connection:
                    await connection.executemany(SQL["write_turn"], rows)
            except (StoreUnavailable, asyncpg.PostgresError) as error:
                log.warning("history_not_kept", error=type(error).__name__)
            await asyncio.sleep(KEEP_SECONDS)

    def _row(self, record: TurnRecord, state: str) -> tuple[object, ...]:
        """The arguments of `write_turn`."""
        turn, failure, files = record.turn, record.turn.failure, record.deliveries
        return (
            *_columns(turn.session),
            " ".join(turn.user_text.split())[:TITLE_LENGTH],
            exchange_digest(turn.user_text, turn.answer) if turn.answer and state != "running" else None,
            record.context,
            turn.turn_id,
            turn.origin,
            state,
            turn.user_text,
            turn.answer,
            failure.code if failure else None,
            failure.message if failure else None,
            self._service,
            datetime.fromtimestamp(turn.created_at, UTC),
            [file.state for file in files],
            [file.name for file in files],
            [file.path for file in files],
            [file.size for file in files],
            [file.reason for file in files],
        )

    async def end(self, turn: LiveTurn, deliveries: tuple[Delivery, ...], context: str | None) -> None:
        """Write the whole turn, now or, if the store is away, as soon as it is back."""
        self._unkept.pop(turn.turn_id, None)
        record = TurnRecord(turn, deliveries, context)
        if context is not None:
            self._remember(turn.session, context)
        if not await self._written(record):
            self._unwritten.append(record)
            if len(self._unwritten) > MAX_UNWRITTEN:
                log.error("history_lost", turn_id=self._unwritten.pop(0).turn.turn_id)
            if self._catching_up is None or self._catching_up.done():
                self._catching_up = asyncio.create_task(self._catch_up())

    def _remember(self, session: SessionKey, context: str) -> None:
        self._told.pop(session, None)
        self._told[session] = context
        if len(self._told) > MAX_TOLD:
            del self._told[next(iter(self._told))]

    def forget_project(self, project: str) -> None:
        """A project is gone with its conversations: another of the same id begins anew."""
        for session in [session for session in self._told if session.project == project]:
            del self._told[session]

    async def _catch_up(self) -> None:
        while self._unwritten:
            await asyncio.sleep(RETRY_SECONDS)
            while self._unwritten and await self._written(self._unwritten[0]):
                self._unwritten.pop(0)

    async def _written(self, record: TurnRecord) -> bool:
        failure = record.turn.failure
        state = "failed" if failure else "stopped" if record.turn.stopped else "done"
        try:
            async with self._borrowed() as connection:
                await connection.execute(SQL["write_turn"], *self._row(record, state))
        except StoreUnavailable as error:
            log.warning("history_not_written", reason=error.reason, turn_id=record.turn.turn_id)
            return False
        except asyncpg.PostgresError:
            # The store refuses this turn for good: trying again would only hold up those behind it.
            log.exception("history_lost", turn_id=record.turn.turn_id)
        return True

    async def session_of(
        self, agent: str, member: str, project: str | None, first_exchange: str | None
    ) -> str | None:
        """The member's latest session that began with this exchange; None is a new one."""
        if first_exchange is None:
            return None
        try:
            async with self._borrowed() as connection:
                found: str | None = await connection.fetchval(
                    SQL["session_by_first_exchange"], agent, member, project or MAIN, first_exchange
                )
        except StoreUnavailable as error:
            log.warning("session_not_looked_up", reason=error.reason)
            return None
        return found

    async def has_turn(self, member: str, turn_id: str) -> bool:
        """Whether this turn is one of the member's. Raises StoreUnavailable."""
        async with self._borrowed() as connection:
            return bool(await connection.fetchval(SQL["turn_of_member"], turn_id, member))

    async def sessions(
        self, agent: str, member: str, project: str | None, *, before: tuple[datetime, str] | None, limit: int
    ) -> list[SessionSummary]:
        """Conversations, the one that changed last first. Raises StoreUnavailable."""
        edge, edge_id = before or (None, None)
        async with self._borrowed() as connection:
            rows = await connection.fetch(
                SQL["sessions_of_member"], agent, member, project or MAIN, edge, edge_id, limit
            )
        return [SessionSummary(**row) for row in rows]

    async def rename(self, session: SessionKey, title: str) -> bool:
        """Give a conversation a title; whether there is such a one. Raises StoreUnavailable."""
        async with self._borrowed() as connection:
            return await connection.fetchval(SQL["rename_session"], *_columns(session), title) is not None

    async def forget(self, session: SessionKey) -> bool:
        """Remove a conversation with its turns; whether there was one. Raises StoreUnavailable."""
        self._told.pop(session, None)
        async with self._borrowed() as connection:
            return await connection.fetchval(SQL["delete_session"], *_columns(session)) is not None

    async def messages(self, session: SessionKey, *, limit: int, before: str | None) -> list[Message]:
        """The last messages of a session (before the turn `before`), oldest first. Raises StoreUnavailable."""
        async with self._borrowed() as connection:
            turns = await connection.fetch(SQL["turns_of_session"], *_columns(session), before, limit)
            deliveries = await connection.fetch(SQL["deliveries_of_turns"], [row["turn_id"] for row in turns])
        of_turn: dict[str, list[Delivery]] = {}
        for row in deliveries:
            of_turn.setdefault(row["turn_id"], []).append(
                Delivery(row["state"], row["name"], row["path"], row["size"], row["reason"])
            )
        found = [
            message for row in reversed(turns) for message in _messages(row, of_turn.get(row["turn_id"], []))
        ]
        return found[-limit:]


def _messages(row: asyncpg.Record, deliveries: list[Delivery]) -> list[Message]:
    """A turn's user message, if it had one, and its answer, if it is over."""
    messages = []
    turn_id, origin = row["turn_id"], row["origin"]
    if row["user_text"] is not None:
        messages.append(Message("user", row["user_text"], row["created_at"], turn_id, origin))
    if row["state"] != "running":
        error = {"code": row["error_code"], "message": row["error_message"]} if row["error_code"] else None
        ended = row["ended_at"] or row["created_at"]
        messages.append(Message("assistant", row["answer"], ended, turn_id, origin, tuple(deliveries), error))
    return messages


def _columns(session: SessionKey) -> tuple[str, str, str, str]:
    return session.agent, session.member, session.project or MAIN, session.session_id
