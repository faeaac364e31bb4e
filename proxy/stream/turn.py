"""The turn machine: harness and transport events with their times in, effects out. No I/O, no clock.

The relay feeds every event of one turn to `Turn.on`, carries out the effects in order, and feeds a `Tick`
when `Turn.deadline` has come. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from proxy.stream.deliveries import Deliveries
from proxy.stream.events import (
    Announced,
    Cancelled,
    Connected,
    Content,
    Deleted,
    Delivery,
    DeliveryDone,
    DeliveryNotice,
    Effect,
    Event,
    Failure,
    Fetch,
    Finish,
    Frame,
    HarnessError,
    HarnessEvent,
    ListAttachments,
    Listed,
    Lost,
    Media,
    Placeholder,
    Progress,
    ProgressKind,
    Send,
    Stopping,
    Terminal,
    Text,
    Thought,
    Tick,
    ToolCalls,
    Typing,
)
from proxy.stream.states import FAILURES, SPEECH, TABLE, Input, State, TurnLimits, Verdict, Wait, following
from proxy.stream.transcript import Transcript

__all__ = ["Turn", "TurnLimits"]

MAX_PROGRESS_TEXT = 2000  # characters of one progress frame; the rest of a long thought is not carried


class Turn:
    """One running turn. After `over`, further events have no effect.

    It ends with exactly one `Terminal`, after every notice, followed by `Finish`. The opening frame is the
    relay's: it goes out before the harness is contacted.
    """

    def __init__(self, limits: TurnLimits, now: float) -> None:
        self._limits = limits
        self._state = State.WAITING
        # The state as it would be had nothing plain been said since the last tool: a message that is taken
        # back counts as never said.
        self._unsaid = State.WAITING
        self._said_since_tool: set[str] = set()
        self._tools_seen = False
        self._typing = False
        self._connected = False
        self._transcript = Transcript(limits.max_text)
        self._files = Deliveries(limits.max_deliveries)
        self._failure: Failure | None = None
        self._listing = False
        self._progress_left = limits.max_progress
        self._last_frame: Frame | None = None
        self._out: list[Effect] = []
        self._now = self._started = self._heard = self._fetch_moved = self._closed = now

    # --- what the relay sees ---

    @property
    def over(self) -> bool:
        return self._state is State.OVER

    @property
    def answer(self) -> str:
        """The text for history: what was replaced is replaced, what was taken back is out."""
        return self._transcript.text

    @property
    def deliveries(self) -> list[Delivery]:
        """What became of the files so far, in the order in which they were announced."""
        return self._files.outcomes

    @property
    def failure(self) -> Failure | None:
        """Why the turn failed; final once it is over."""
        return self._failure

    def deadline(self) -> float | None:
        """When a `Tick` is due, or None once the turn is over."""
        if self.over:
            return None
        if self._state is State.CLOSING:
            due = []
            if self._listing:
                due.append(self._closed + self._limits.listing_total)
        else:
            due = [self._closing_time()] if self._limits.turn_timeout else []
            if not self._files.open:
                due.append(self._wait_end())
        if self._files.open:
            due.append(self._fetch_end())
        return min(due)

    def on(self, event: Event, now: float) -> list[Effect]:
        """Take one event; the effects are to be carried out in order, all of them."""
        if self.over:
            return []
        self._out, self._now = [], now
        match event:
            case Tick():
                self._tick()
            case Connected():
                self._connected, self._heard = True, now
            case Lost():
                self._lost()
            case DeliveryDone(key, outcome):
                self._fetched(key, outcome)
            case Announced(outcome):
                self._tell(self._files.announce(outcome))
            case Listed():
                self._listing = False
            case Cancelled():
                self._close(None)
            case Stopping():
                self._stop()
            case _:
                self._hear(event)
        if self._state is State.CLOSING and not self._listing and not self._files.open:
            self._finish()
        return self._out

    # --- time ---

    def _closing_time(self) -> float:
        return self._started + self._limits.turn_timeout

    def _suspended(self) -> bool:
        return self._typing and TABLE[self._state].suspended

    def _wait_end(self) -> float:
        silence = Wait.SILENCE.seconds(self._limits)
        if self._suspended():
            return self._heard + silence
        return self._heard + min(TABLE[self._state].wait.seconds(self._limits), silence)

    def _fetch_end(self) -> float:
        """No later than `fetch_total` after the last file began or ended, nor after the turn's end."""
        since = self._closed if self._state is State.CLOSING else self._fetch_moved
        return since + self._limits.fetch_total

    def _tick(self) -> None:
        if self._files.open and self._now >= self._fetch_end():
            self._give_up_fetches("timeout")
        if self._state is State.CLOSING:
            if self._now >= self._closed + self._limits.listing_total:
                self._listing = False
        elif self._limits.turn_timeout and self._now >= self._closing_time():
            self._close("interrupted")
        elif not self._files.open and self._now >= self._wait_end():
            self._run_out()

    # --- the end ---

    def _run_out(self) -> None:
        """The state's wait is over, or nothing more can come of it."""
        verdict = Verdict.SILENT if self._suspended() else TABLE[self._state].verdict
        if verdict is Verdict.STOP and not self._transcript and not self._files:
            verdict = Verdict.EMPTY
        self._close(None if verdict is Verdict.STOP else verdict.value)

    def _lost(self) -> None:
        if self._state in (State.FINAL, State.FAILED):
            self._run_out()
        else:
            self._close("interrupted" if self._connected else "agent_unreachable")

    def _stop(self) -> None:
        """The service goes: what has not come by now will not. An end that was decided before stands."""
        self._close("interrupted")
        self._give_up_fetches("interrupted")
        self._listing = False

    def _close(self, code: str | None) -> None:
        """Decide the end; the first decision stands."""
        if self._state is State.CLOSING:
            return
        self._state = State.CLOSING
        self._closed = self._now
        self._failure = None if code is None else Failure(code, FAILURES[code])
        self._listing = True
        self._out.append(ListAttachments())

    def _finish(self) -> None:
        excused = {Verdict.EMPTY.value, Verdict.SILENT.value}
        if self._failure and self._failure.code in excused and self._files.any_stored:
            self._failure = None
        if self._failure:
            self._send(self._failure)
        self._send(Terminal("error" if self._failure else "stop"))
        self._out.append(Finish())
        self._state = State.OVER

    # --- frames of the harness ---

    def _hear(self, event: HarnessEvent) -> None:
        self._heard = self._now
        given = self._take(event)
        if self._transcript.full:
            self._close("answer_too_long")
        if self._state is State.CLOSING:
            return
        self._state = following(self._state, given)
        if given not in SPEECH:
            self._unsaid = following(self._unsaid, given)

    def _take(self, event: HarnessEvent) -> Input:
        """Show the event, and say what it means for the end."""
        match event:
            case Text():
                return self._text(event)
            case Typing(on):
                self._typing = on
                self._progress("typing", state="start" if on else "stop")
                return Input.TYPING_ON if on else Input.TYPING_OFF
            case Thought(_, content):
                self._progress("thought", text=content)
            case Placeholder(_, content):
                self._progress("placeholder", text=content)
            case ToolCalls():
                return self._tools(event)
            case Media():
                return self._media(event)
            case Deleted(message_id):
                self._retract(message_id)
            case HarnessError():
                self._close("agent_failed")
            case _:
                pass
        return Input.OTHER

    def _text(self, text: Text) -> Input:
        if text.content:
            self._say(text.message_id, text.content)
            self._said_since_tool.add(text.message_id)
        if text.final:
            return Input.FINAL
        if not text.content:
            return Input.OTHER
        if text.is_error:
            return Input.FAILURE
        return Input.CONTENT_AFTER_TOOL if self._tools_seen else Input.CONTENT

    def _say(self, message_id: str, content: str) -> None:
        addition = self._transcript.say(message_id, content)
        if addition:
            self._send(Content(addition))

    def _tools(self, calls: ToolCalls) -> Input:
        for tool in calls.tools:
            self._progress("tool", tool=tool.name, text=tool.explanation)
        if not self._tools_seen:
            # Typing was about the answer before the tools; from here on it only counts if it starts anew.
            self._typing = False
        self._tools_seen = True
        self._said_since_tool.clear()
        return Input.TOOL

    def _media(self, media: Media) -> Input:
        # A caption is content, but a file never becomes the answer: the caption leaves the wait alone.
        if media.caption:
            self._say(media.message_id, media.caption)
        for reference in media.references:
            step = self._files.offer(reference)
            if isinstance(step, Fetch):
                self._fetch_moved = self._now
                self._out.append(step)
            elif step:
                self._tell(step)
        return Input.FILE

    def _retract(self, message_id: str) -> None:
        if self._transcript.retract(message_id):
            self._progress("retracted")
        if message_id not in self._said_since_tool or self._state is State.CLOSING:
            return
        self._said_since_tool.discard(message_id)
        if not self._said_since_tool:
            self._state = self._unsaid

    # --- files and frames to the member ---

    def _fetched(self, key: int, outcome: Delivery) -> None:
        if self._files.done(key, outcome):
            self._heard = self._fetch_moved = self._now
            self._tell(outcome)

    def _give_up_fetches(self, reason: str) -> None:
        for outcome in self._files.give_up(reason):
            self._tell(outcome)
        self._heard = self._now

    def _tell(self, outcome: Delivery | None) -> None:
        if outcome:
            self._send(DeliveryNotice(outcome))

    def _progress(
        self,
        kind: ProgressKind,
        *,
        text: str | None = None,
        tool: str | None = None,
        state: str | None = None,
    ) -> None:
        frame = Progress(kind, text and text[:MAX_PROGRESS_TEXT], tool and tool[:MAX_PROGRESS_TEXT], state)
        if self._progress_left and frame != self._last_frame:
            self._progress_left -= 1
            self._send(frame)

    def _send(self, frame: Frame) -> None:
        self._last_frame = frame
        self._out.append(Send(frame))
