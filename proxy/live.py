"""The turns that run now, and for a while those that are over: each with its frames, whoever listens or not.

A turn belongs to the service, never to the request that began it: a client reads its frames by
sequence number, may leave at any time and read on later. The oldest frames go when a turn has more than
its share, so a client that does not read costs its socket's buffer and then an explicit gap, nothing more.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from proxy.errors import Stopping, TooManyStreams
from proxy.stream.events import Failure, Frame, Gap


@dataclass(frozen=True, slots=True)
class SessionKey:
    """One conversation of one member with one agent, in one project (or the main workspace)."""

    agent: str
    member: str
    project: str | None
    session_id: str


FRAME_BYTES = 200  # what a frame costs besides its text


@dataclass(slots=True, eq=False)
class LiveTurn:
    """A turn's frames by sequence number, from `first` on. `created_at` is wall-clock seconds."""

    turn_id: str
    session: SessionKey
    user_text: str
    created_at: float
    replay_bytes: int = 8 * 1024 * 1024
    origin: str = "member"
    first: int = 0
    over: bool = False
    answer: str = ""
    failure: Failure | None = None
    stopped: bool = False
    size: int = 0
    _frames: list[Frame] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def end_seq(self) -> int:
        """The sequence number that the next frame will have."""
        return self.first + len(self._frames)

    def append(self, frame: Frame) -> None:
        self._frames.append(frame)
        self.size += _cost(frame)
        if self.size > self.replay_bytes:
            self._forget_oldest()
        self._wake()

    def end(self) -> None:
        self.over = True
        self._wake()

    def since(self, seq: int) -> list[tuple[int, Frame]]:
        """The frames from `seq` on, numbered; a `Gap` in front, numbered before them, if some are gone."""
        gap: list[tuple[int, Frame]] = []
        if seq < self.first:
            gap = [(self.first - 1, Gap(seq, self.first - 1))]
        start = max(seq, self.first)
        return gap + list(enumerate(self._frames[start - self.first :], start))

    async def changed(self, seq: int) -> None:
        """Return once there is a frame of this number, or the turn is over."""
        while self.end_seq <= seq and not self.over:
            await self._changed.wait()

    def _forget_oldest(self) -> None:
        """Down to three quarters of the share, so that this is rare; the last frame always stays."""
        count = 0
        while self.size > self.replay_bytes * 3 // 4 and count < len(self._frames) - 1:
            self.size -= _cost(self._frames[count])
            count += 1
        del self._frames[:count]
        self.first += count

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _cost(frame: Frame) -> int:
    """About what a frame costs in memory."""
    text = getattr(frame, "text", None)
    return FRAME_BYTES + (len(text) if text else 0)


class LiveTurns:
    """All running turns, their bounds, and the order within each session; and the turns that can be replayed."""

    def __init__(
        self,
        *,
        per_member: int,
        total: int,
        session_queue: int,
        replay_keep: float = 600,
        replay_total: int = 256 * 1024 * 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._replay_keep = replay_keep
        self._replay_total = replay_total
        self._clock = clock
        self._ended: OrderedDict[str, tuple[LiveTurn, float]] = OrderedDict()
        self._ended_size = 0
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
            raise TooManyStreams(self._per_member)
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
            self._keep(turn)

    def _keep(self, turn: LiveTurn) -> None:
        self._ended[turn.turn_id] = turn, self._clock()
        self._ended_size += turn.size
        self._forget()

    def _forget(self) -> None:
        """Let go of ended turns: the old ones, then the oldest until all fit into the total."""
        while self._ended:
            turn, since = next(iter(self._ended.values()))
            if self._clock() - since <= self._replay_keep and self._ended_size <= self._replay_total:
                return
            self._let_go(turn.turn_id)

    def _let_go(self, turn_id: str) -> None:
        turn, _ = self._ended.pop(turn_id)
        self._ended_size -= turn.size

    def find(self, turn_id: str) -> LiveTurn | None:
        """A turn that runs, or whose frames are still there."""
        if turn_id in self._turns:
            return self._turns[turn_id]
        self._forget()
        found = self._ended.get(turn_id)
        return found[0] if found else None

    def forget_session(self, session: SessionKey) -> None:
        """Let go of the frames of a conversation that was deleted."""
        for turn_id, (turn, _) in list(self._ended.items()):
            if turn.session == session:
                self._let_go(turn_id)

    def of_member(self, member: str) -> list[LiveTurn]:
        """The member's running and waiting turns, oldest first."""
        return [turn for turn in self._turns.values() if turn.session.member == member]

    async def own_place(self, turn: LiveTurn) -> None:
        """Return once the turn is the oldest of its session."""
        while self._sessions[turn.session][0] is not turn:
            await self._turn_over.wait()
