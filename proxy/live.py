"""The turns that run now: each with the frames it has made so far, whoever listens or not.

A turn belongs to the service, never to the request that began it: a client reads its frames by
position and may leave at any time. The frames are bounded by the turn machine's own bounds, so a
client that does not read costs its socket's buffer and nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from proxy.errors import Stopping, TooManyStreams
from proxy.stream.events import Failure, Frame


@dataclass(frozen=True, slots=True)
class SessionKey:
    """One conversation of one member with one agent, in one project (or the main workspace)."""

    agent: str
    member: str
    project: str | None
    session_id: str


@dataclass(slots=True, eq=False)
class LiveTurn:
    """A running turn. `created_at` is wall-clock seconds."""

    turn_id: str
    session: SessionKey
    user_text: str
    created_at: float
    frames: list[Frame] = field(default_factory=list)
    over: bool = False
    answer: str = ""
    failure: Failure | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def append(self, frame: Frame) -> None:
        self.frames.append(frame)
        self._wake()

    def end(self) -> None:
        self.over = True
        self._wake()

    async def changed(self, position: int) -> None:
        """Return once there is a frame at `position`, or the turn is over."""
        while len(self.frames) <= position and not self.over:
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class LiveTurns:
    """All running turns, their bounds, and the order within each session."""

    def __init__(self, *, per_member: int, total: int, session_queue: int) -> None:
        self._per_member = per_member
        self._total = total
        self._session_queue = session_queue
        self._turns: dict[str, LiveTurn] = {}
        self._sessions: dict[SessionKey, list[LiveTurn]] = {}
        self._turn_over = asyncio.Event()
        self.stopping = False

    def running(self, session: SessionKey) -> list[LiveTurn]:
        """The turns of a session, oldest first: the first runs, the others wait for it."""
        return list(self._sessions.get(session, ()))

    def in_project(self, project: str) -> bool:
        """Whether a turn runs or waits in this project."""
        return any(session.project == project for session in self._sessions)

    def __len__(self) -> int:
        return len(self._turns)

    @contextmanager
    def admitted(self, turn: LiveTurn) -> Iterator[None]:
        """Count a turn while it waits and runs. Raises Stopping, TooManyStreams."""
        if self.stopping:
            raise Stopping
        mine = sum(other.session.member == turn.session.member for other in self._turns.values())
        waiting = self._sessions.setdefault(turn.session, [])
        if mine >= self._per_member or len(self._turns) >= self._total or len(waiting) > self._session_queue:
            if not waiting:
                del self._sessions[turn.session]
            raise TooManyStreams(mine)
        self._turns[turn.turn_id] = turn
        waiting.append(turn)
        try:
            yield
        finally:
            del self._turns[turn.turn_id]
            waiting.remove(turn)
            if not waiting:
                del self._sessions[turn.session]
            self._turn_over.set()
            self._turn_over = asyncio.Event()

    async def own_place(self, turn: LiveTurn) -> None:
        """Return once the turn is the oldest of its session."""
        while self._sessions[turn.session][0] is not turn:
            await self._turn_over.wait()
