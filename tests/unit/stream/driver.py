"""Recorded picoclaw turns, and a driver that plays events to the turn machine in virtual time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.stream.events import (
    Announced,
    Connected,
    Content,
    Delivery,
    DeliveryDone,
    DeliveryNotice,
    Event,
    Failure,
    Fetch,
    Finish,
    Frame,
    HarnessEvent,
    ListAttachments,
    Listed,
    Lost,
    MediaRef,
    Progress,
    Send,
    Terminal,
    Tick,
)
from proxy.stream.harness import pico
from proxy.stream.turn import Turn, TurnLimits

RECORDINGS = Path(__file__).parents[2] / "data" / "streams" / "picoclaw"
LIMITS = TurnLimits(grace=0.5, delivery_settle=20, silence_timeout=600, turn_timeout=0)
MAX_TICKS = 1000


@dataclass(frozen=True)
class Recorded:
    """One turn of one recording: what the harness sent, each with its time since the send."""

    user_text: str
    frames: list[tuple[float, dict[str, Any]]]
    dropped_at: float | None = None

    def events(self) -> list[tuple[float, HarnessEvent]]:
        return [
            (at, event)
            for at, frame in self.frames
            for event in pico.read_frame(json.dumps(frame), user_text=self.user_text)
        ]

    @property
    def last_plain_text(self) -> str:
        plain = [
            frame["payload"]["content"]
            for _, frame in self.frames
            if frame["type"] in {"message.create", "message.update"}
            and not {"kind", "placeholder", "attachments"} & frame["payload"].keys()
        ]
        return plain[-1] if plain else ""


def recording(name: str) -> list[Recorded]:
    """The turns of a recording: one for each message sent, the first cut at a drop of its socket."""
    turns: list[Recorded] = []
    began, cut = 0.0, False
    for line in (RECORDINGS / f"{name}.jsonl").read_text(encoding="ascii").splitlines()[1:]:
        step = json.loads(line)
        if step.get("event") == "drop":
            turns[-1] = Recorded(turns[-1].user_text, turns[-1].frames, step["t"] - began)
            cut = True
        elif "frame" in step and step["dir"] == ">":
            turns.append(Recorded(step["frame"]["payload"]["content"], []))
            began, cut = step["t"], False
        elif "frame" in step and not cut:
            turns[-1].frames.append((step["t"] - began, step["frame"]))
    return turns


NAMES = sorted(path.stem for path in RECORDINGS.glob("*.jsonl"))


def stored(reference: MediaRef) -> Delivery:
    name = reference.filename or "attachment"
    return Delivery("stored", name, path=f"public/attachments/{name}", size=1)


@dataclass
class Driver:
    """Plays one turn. Fetches take `fetch_seconds` (None: never end), listings `listing_seconds`."""

    limits: TurnLimits = LIMITS
    fetch_seconds: float | None = 0.0
    listing_seconds: float | None = 0.0
    written: tuple[Delivery, ...] = ()
    now: float = 1000.0
    frames: list[tuple[float, Frame]] = field(default_factory=list)
    finished: int = 0

    def __post_init__(self) -> None:
        self.began = self.now
        self.turn = Turn(self.limits, self.now)
        self._answers: list[tuple[float, Event]] = []
        self._give(Connected())

    def at(self, seconds: float, *events: Event) -> Driver:
        """Let time run to this point of the turn, then give the events."""
        self.run_until(self.began + seconds)
        for event in events:
            self._give(event)
        return self

    def play(self, events: Iterable[tuple[float, Event]]) -> Driver:
        for seconds, event in events:
            self.at(seconds, event)
        return self

    def run_until(self, moment: float) -> None:
        for _ in range(MAX_TICKS):
            deadline = self.turn.deadline()
            answer = min((at for at, _ in self._answers), default=None)
            due = min((at for at in (deadline, answer) if at is not None), default=None)
            if due is None or due > moment:
                self.now = moment
                return
            self.now = max(self.now, due)
            if answer is not None and answer <= due:
                index = next(i for i, (at, _) in enumerate(self._answers) if at == answer)
                self._give(self._answers.pop(index)[1])
            else:
                self._give(Tick())
        raise AssertionError("the turn does not come to its end")

    def end(self) -> Driver:
        """Let all waits run out."""
        self.run_until(self.now + 10**6)
        assert self.turn.over
        return self

    def _give(self, event: Event) -> None:
        for effect in self.turn.on(event, self.now):
            match effect:
                case Send(frame):
                    self.frames.append((self.now - self.began, frame))
                case Fetch(key, reference):
                    if self.fetch_seconds is not None:
                        done = DeliveryDone(key, stored(reference))
                        self._answers.append((self.now + self.fetch_seconds, done))
                case ListAttachments():
                    if self.listing_seconds is not None:
                        at = self.now + self.listing_seconds
                        self._answers += [(at, Announced(file)) for file in self.written]
                        self._answers.append((at, Listed()))
                case Finish():
                    self.finished += 1

    # --- what the member saw ---

    @property
    def sent(self) -> list[Frame]:
        return [frame for _, frame in self.frames]

    @property
    def streamed(self) -> str:
        return "".join(frame.text for frame in self.sent if isinstance(frame, Content))

    @property
    def notices(self) -> list[Delivery]:
        return [frame.delivery for frame in self.sent if isinstance(frame, DeliveryNotice)]

    @property
    def progress(self) -> list[Progress]:
        return [frame for frame in self.sent if isinstance(frame, Progress)]

    @property
    def failure(self) -> str | None:
        """The code of the error frame, checked against the terminal and the turn's own account."""
        failures = [frame for frame in self.sent if isinstance(frame, Failure)]
        assert len(failures) <= 1
        code = failures[0].code if failures else None
        assert self.sent[-1] == Terminal("error" if code else "stop")
        assert (self.turn.failure.code if self.turn.failure else None) == code
        return code

    @property
    def ended_at(self) -> float:
        """Seconds from the start of the turn to its terminal."""
        at, frame = self.frames[-1]
        assert isinstance(frame, Terminal)
        return round(at, 6)


def replay(turn: Recorded, **options: Any) -> Driver:
    driver = Driver(**options).play(turn.events())
    if turn.dropped_at is not None:
        driver.at(turn.dropped_at, Lost("reset"))
    return driver.end()
