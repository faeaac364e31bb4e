"""The one loop: a harness's frames and the clock drive the turn machine, its effects become frames and fetches.

A turn runs as a task of the service. Clients read its frames from `LiveTurn` and may leave without
touching it. It ends in exactly one way: its row in the history, then its terminal frame.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Coroutine
from contextlib import ExitStack

import aiohttp
import structlog

from proxy import errors
from proxy.agents import AgentUnreachable, Harnesses
from proxy.context import DELIVERY_DIRECTORY, Context, with_context
from proxy.delivery import Claims, TurnDeliveries, shown_name
from proxy.history import History, TurnRecord
from proxy.live import LiveTurn, LiveTurns, SessionKey
from proxy.place import Place, prepare
from proxy.projects import Projects
from proxy.settings import ChatSettings, DeliverySettings
from proxy.stream.events import (
    Announced,
    Cancelled,
    Connected,
    Delivery,
    DeliveryDone,
    Effect,
    Event,
    Failure,
    Fetch,
    Finish,
    ListAttachments,
    Listed,
    Lost,
    MediaRef,
    Opening,
    Send,
    Steering,
    Stopping,
    Terminal,
    Text,
    Tick,
)
from proxy.stream.harness import pico
from proxy.stream.turn import Turn, TurnLimits
from workspace.errors import IsAFile, MountInside, NotPermitted, PublicIsNotAFolder, WorkspaceError

log = structlog.get_logger()

INBOX_EVENTS = 256
ACKNOWLEDGE_SECONDS = 10


class Relay:
    """Runs every turn of the service."""

    def __init__(
        self,
        chat: ChatSettings,
        deliveries: DeliverySettings,
        *,
        harnesses: Harnesses,
        live: LiveTurns,
        history: History,
        projects: Projects,
    ) -> None:
        self.chat = chat
        self.deliveries = deliveries
        self.harnesses = harnesses
        self.history = history
        self.projects = projects
        self.claims = Claims()
        self._live = live
        self._runs: dict[asyncio.Task[None], _Run] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def admit(self, turn: LiveTurn, place: Place) -> _Run:
        """Count the turn and give it its first frames. Raises Stopping, TooManyStreams."""
        run = _Run(self, turn, place)
        run.admission.enter_context(self._live.admitted(turn))
        turn.append(Opening())
        if self._live.running(turn.session)[0] is not turn:
            turn.append(Steering(folded=False, queued=True))
        return run

    def start(self, run: _Run) -> None:
        """Run an admitted turn to its end, whoever listens."""
        task = asyncio.create_task(self._to_the_end(run), name=f"turn {run.turn.turn_id}")
        self._runs[task] = run
        task.add_done_callback(lambda done: self._runs.pop(done))

    async def _to_the_end(self, run: _Run) -> None:
        structlog.contextvars.bind_contextvars(turn_id=run.turn.turn_id)
        with run.admission:
            await self._live.own_place(run.turn)
            await run.run(refused=self._live.stopping)

    async def cancel(self, session: SessionKey) -> bool:
        """Stop the session's running turn; whether there was one. Returns once the harness confirmed it.

        Raises NotAcknowledged when it did not in time; the turn then goes on.
        """
        running = self._live.running(session)
        if not running:
            return False
        run = next((run for run in self._runs.values() if run.turn is running[0]), None)
        if run is not None:
            await run.cancel()
        return run is not None

    def leave(self, turn: LiveTurn) -> None:
        """Stop a turn because its client left; nobody waits for it."""
        task = asyncio.create_task(self._stop_left(turn))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _stop_left(self, turn: LiveTurn) -> None:
        for run in list(self._runs.values()):
            if run.turn is turn:
                try:
                    await run.cancel()
                except errors.NotAcknowledged:
                    log.warning("stop_not_acknowledged", turn_id=turn.turn_id)

    async def drain(self, seconds: float) -> None:
        """Take no new turns; give the running ones their time, then end each with an error and its terminal."""
        self._live.stopping = True
        if self._runs:
            await asyncio.wait(set(self._runs), timeout=seconds)
        while self._runs:
            await asyncio.gather(*(run.inbox.put(Stopping()) for run in self._runs.values()))
            await asyncio.wait(set(self._runs), timeout=1)
        if self._leaving:
            await asyncio.wait(self._leaving)


class _Run:
    """One turn under way: its socket, its machine and what runs beside its loop."""

    def __init__(self, relay: Relay, turn: LiveTurn, place: Place) -> None:
        self.turn = turn
        self.inbox: asyncio.Queue[Event] = asyncio.Queue(INBOX_EVENTS)
        self.admission = ExitStack()
        self._relay = relay
        self._place = place
        self._deliveries = TurnDeliveries(place, relay.harnesses, relay.claims, relay.deliveries)
        self._machine = Turn(_limits(relay.chat, relay.deliveries), asyncio.get_running_loop().time())
        self._beside: set[asyncio.Task[None]] = set()
        self._fetches: set[asyncio.Task[None]] = set()
        self._address = ""
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._told: str | None = None
        self._stop_asked = False
        self._stop_confirmed = asyncio.Event()
        self._terminal = Terminal("error")

    async def run(self, *, refused: bool) -> None:
        """Everything from the directories to the terminal frame; raises nothing."""
        self._relay.history.keep(self.turn.turn_id, self._record)
        context = self._context()
        digest = hashlib.sha256(context.encode()).hexdigest()
        try:
            if refused:
                raise errors.Stopping  # a queued turn ends as any refused one does
            await self._converse(context, digest)
        except Exception as error:  # a turn always ends with its terminal
            self._fail(error)
        finally:
            for task in self._beside:
                task.cancel()
            await asyncio.gather(*self._beside, return_exceptions=True)
            self.turn.answer, self.turn.failure = (
                self._machine.answer,
                self.turn.failure or self._machine.failure,
            )
            await self._relay.history.end(self.turn, tuple(self._machine.deliveries), self._told)
            self.turn.append(self._terminal)
            self.turn.end()
            self._stop_confirmed.set()

    async def cancel(self) -> None:
        """Ask the harness to stop this turn and wait until it says so. Raises NotAcknowledged."""
        self._stop_asked = True
        try:
            async with asyncio.timeout(ACKNOWLEDGE_SECONDS):
                if self._socket is None:
                    # Nothing was sent to the harness yet: there is nobody to ask.
                    await self.inbox.put(Cancelled())
                else:
                    await self._say(self._socket, pico.STOP)
                await self._stop_confirmed.wait()
        except (TimeoutError, ConnectionError, aiohttp.ClientError) as error:
            raise errors.NotAcknowledged from error

    async def _converse(self, context: str, digest: str) -> None:
        """Send the message once the agent's directories are there, and play the answer to its end."""
        opening = asyncio.create_task(self._connect())
        try:
            _, told = await asyncio.gather(self._prepare(), self._relay.history.told(self.turn.session))
            if not self._stop_asked:
                try:
                    socket = await opening
                except AgentUnreachable as error:
                    await self.inbox.put(Lost(str(error)))
                else:
                    text = (
                        self.turn.user_text if told == digest else with_context(self.turn.user_text, context)
                    )
                    await self._send(socket, text)
                    # A command goes without the context: the next message brings it.
                    self._told = digest if told == digest or text != self.turn.user_text else None
                    self._start_beside(self._read(socket, text))
            await self._loop()
        finally:
            await self._close(opening)

    async def _prepare(self) -> None:
        """Make the directories. If the agent put something in their way the turn goes on: the agent is who can
        undo that, and a file that it delivers meanwhile fails visibly. Raises UnknownProject."""
        try:
            await prepare(self._place, self._relay.projects)
            await self._deliveries.begin()
        except (PublicIsNotAFolder, IsAFile, NotPermitted, MountInside) as error:
            log.warning("workspace_not_prepared", error=type(error).__name__)

    @staticmethod
    async def _close(opening: asyncio.Task[aiohttp.ClientWebSocketResponse]) -> None:
        opening.cancel()
        (opened,) = await asyncio.gather(opening, return_exceptions=True)
        if isinstance(opened, aiohttp.ClientWebSocketResponse):
            await opened.close()

    async def _connect(self) -> aiohttp.ClientWebSocketResponse:
        agent, owner, project = self._place.agent, self._place.owner, self._place.project_id
        url = agent.socket_url(owner, project, self._harness_session)
        socket = await self._relay.harnesses.open_socket(url, agent.authorization())
        peer = socket.get_extra_info("peername")
        self._address = peer[0] if isinstance(peer, tuple) else ""
        return socket

    @property
    def _harness_session(self) -> str:
        return pico.harness_session_id(
            self._place.member.id, self.turn.session.session_id, self._place.project_id
        )

    async def _send(self, socket: aiohttp.ClientWebSocketResponse, text: str) -> None:
        await self.inbox.put(Connected())
        try:
            await self._say(socket, text)
            self._socket = socket
            if self._stop_asked:
                await self._say(socket, pico.STOP)
        except (ConnectionError, aiohttp.ClientError):
            await self.inbox.put(Lost("the connection broke before the message was sent"))

    async def _say(self, socket: aiohttp.ClientWebSocketResponse, text: str) -> None:
        await socket.send_str(pico.encode_send(secrets.token_hex(16), self._harness_session, text))

    async def _read(self, socket: aiohttp.ClientWebSocketResponse, sent: str) -> None:
        async for message in socket:
            if message.type in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}:
                for event in pico.read_frame(message.data, user_text=sent):
                    if self._confirms_stop(event):
                        self._stop_confirmed.set()
                        await self.inbox.put(Cancelled())
                    else:
                        await self.inbox.put(event)
        await self.inbox.put(Lost("the agent closed the connection"))

    def _confirms_stop(self, event: Event) -> bool:
        return self._stop_asked and isinstance(event, Text) and pico.is_stop_answer(event.content)

    async def _loop(self) -> None:
        clock = asyncio.get_running_loop().time
        while not self._machine.over:
            event: Event
            try:
                async with asyncio.timeout_at(self._machine.deadline()):
                    event = await self.inbox.get()
            except TimeoutError:
                event = Tick()
            for effect in self._machine.on(event, clock()):
                self._apply(effect)
            self._relay.history.keep(self.turn.turn_id, self._record)
            if isinstance(event, Cancelled):
                self._stop_fetches()

    def _stop_fetches(self) -> None:
        """The member stopped the turn: no file is waited for any more."""
        self.turn.stopped = True
        for task in self._fetches:
            task.cancel()

    def _record(self) -> TurnRecord:
        """The turn as it is now."""
        self.turn.answer = self._machine.answer
        return TurnRecord(self.turn, tuple(self._machine.deliveries), None)

    def _apply(self, effect: Effect) -> None:
        match effect:
            case Send(frame=Terminal() as terminal):
                # Held back until the history has the turn: who has seen the end can read all of it.
                self._terminal = terminal
            case Send(frame=frame):
                self.turn.append(frame)
            case Fetch(key=key, reference=reference):
                self._begin_fetch(key, reference)
            case ListAttachments():
                self._start_beside(self._list())
            case Finish():
                pass

    def _start_beside(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    def _begin_fetch(self, key: int, reference: MediaRef) -> None:
        task = self._start_beside(self._fetch(key, reference))
        self._fetches.add(task)
        # A task that is cancelled before its first step never runs: the answer comes from here then.
        task.add_done_callback(lambda done: self._fetch_stopped(key, reference) if done.cancelled() else None)

    async def _fetch(self, key: int, reference: MediaRef) -> None:
        try:
            outcome = await self._deliveries.fetch(reference, self._address)
        except Exception:  # every announced file ends in a visible state
            log.exception("delivery_failed")
            outcome = Delivery("failed", shown_name(reference), reason="store_failed")
        log.info("delivery", state=outcome.state, size=outcome.size, reason=outcome.reason)
        await self.inbox.put(DeliveryDone(key, outcome))

    def _fetch_stopped(self, key: int, reference: MediaRef) -> None:
        if not self._machine.over:
            outcome = Delivery("failed", shown_name(reference), reason="interrupted")
            self._start_beside(self.inbox.put(DeliveryDone(key, outcome)))

    async def _list(self) -> None:
        try:
            for outcome in await self._deliveries.written_by_agent():
                log.info("delivery", state=outcome.state, size=outcome.size)
                await self.inbox.put(Announced(outcome))
        except WorkspaceError as error:
            log.warning("attachments_not_listed", error=type(error).__name__)
        await self.inbox.put(Listed())

    def _context(self) -> str:
        place, project = self._place, self._place.project
        name, instructions = (project.name, project.instructions) if project else (None, "")
        return Context(
            name, place.told("").rstrip("/") or ".", place.told(DELIVERY_DIRECTORY), instructions
        ).block()

    def _fail(self, error: Exception) -> None:
        """End the turn for a reason that the machine does not know: nothing of the agent's is missing then."""
        answer = errors.answer(error, self.turn.turn_id)
        if answer.code == errors.INTERNAL.code:
            log.error("turn_failed", exc_info=error)
        self.turn.failure = Failure(answer.code, answer.message)
        self.turn.append(self.turn.failure)
        self._terminal = Terminal("error")


def _limits(chat: ChatSettings, deliveries: DeliverySettings) -> TurnLimits:
    return TurnLimits(
        grace=chat.grace,
        delivery_settle=chat.delivery_settle,
        silence_timeout=chat.silence_timeout,
        turn_timeout=chat.turn_timeout,
        fetch_total=deliveries.timeout,
    )
