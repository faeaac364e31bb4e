"""When a turn is over: the states of the turn machine, what each waits for, and what leads where.

picoclaw sends no end frame, so the end is known by waiting. `TABLE` and `NEXT` are what the machine runs on,
and what the documentation prints; nothing about waits is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


@dataclass(frozen=True, kw_only=True)
class TurnLimits:
    """Waits in seconds, bounds in pieces and bytes. ``turn_timeout`` 0 means none."""

    grace: float
    delivery_settle: float
    silence_timeout: float
    turn_timeout: float
    final_grace: float = 0.1
    fetch_total: float = 60.0
    listing_total: float = 10.0
    max_text: int = 4 * 1024 * 1024
    max_deliveries: int = 100
    max_progress: int = 10_000


class State(Enum):
    """What the turn has shown so far; the last two are the way out."""

    WAITING = "nothing shown yet"
    EMPTY = "typing stopped and nothing was shown"
    WORKING = "tools, and nothing plain since the last of them"
    SAID = "plain content, no tool so far"
    SAID_THEN_FILE = "plain content, then a file, no tool so far"
    SAID_AFTER_TOOL = "plain content after a tool"
    DELIVERED = "a file, and nothing plain since"
    FINAL = "a text that the harness marked as the last"
    FAILED = "a text that reports a failed turn"
    CLOSING = "the end is decided; files may still be on their way"
    OVER = "the terminal was sent"


class Input(Enum):
    """What a harness event means for the end of the turn."""

    TYPING_ON = "typing.start"
    TYPING_OFF = "typing.stop"
    CONTENT = "plain content before any tool"
    CONTENT_AFTER_TOOL = "plain content after a tool"
    FINAL = "final text"
    FAILURE = "error text"
    TOOL = "tool frame"
    FILE = "file"
    OTHER = "anything else"


class Wait(Enum):
    """A wait, by the name of its length in `TurnLimits`."""

    SILENCE = "silence_timeout"
    GRACE = "grace"
    FINAL_GRACE = "final_grace"
    SETTLE = "delivery_settle"

    def seconds(self, limits: TurnLimits) -> float:
        length: float = getattr(limits, self.value)
        return length


class Verdict(Enum):
    """How a turn ends whose wait ran out: well, or with this code."""

    STOP = "stop"
    EMPTY = "empty_answer"
    SILENT = "agent_silent"
    FAILED = "agent_failed"


class Row(NamedTuple):
    """``suspended``: while the agent shows that it types, only the silence budget runs."""

    wait: Wait
    suspended: bool
    verdict: Verdict


# Every frame restarts the wait. None runs longer than the silence budget, and none runs out while a file is
# being fetched. `EMPTY` and `SILENT` give way to success once a file of the turn is stored.
TABLE: dict[State, Row] = {
    State.WAITING: Row(Wait.SILENCE, True, Verdict.SILENT),
    State.EMPTY: Row(Wait.SETTLE, True, Verdict.EMPTY),
    State.WORKING: Row(Wait.SILENCE, True, Verdict.SILENT),
    State.SAID: Row(Wait.GRACE, True, Verdict.STOP),
    State.SAID_THEN_FILE: Row(Wait.GRACE, True, Verdict.STOP),
    State.SAID_AFTER_TOOL: Row(Wait.SETTLE, True, Verdict.STOP),
    State.DELIVERED: Row(Wait.SETTLE, True, Verdict.STOP),
    State.FINAL: Row(Wait.FINAL_GRACE, False, Verdict.STOP),
    State.FAILED: Row(Wait.FINAL_GRACE, False, Verdict.FAILED),
}

# Plain text leads to its state from wherever the turn was.
SPEECH = {
    Input.CONTENT: State.SAID,
    Input.CONTENT_AFTER_TOOL: State.SAID_AFTER_TOOL,
    Input.FINAL: State.FINAL,
    Input.FAILURE: State.FAILED,
}

# An input that a row does not name leaves the state as it is.
NEXT: dict[State, dict[Input, State]] = {
    State.WAITING: {
        **SPEECH,
        Input.TYPING_OFF: State.EMPTY,
        Input.TOOL: State.WORKING,
        Input.FILE: State.DELIVERED,
    },
    State.EMPTY: {
        **SPEECH,
        Input.TYPING_ON: State.WAITING,
        Input.TOOL: State.WORKING,
        Input.FILE: State.DELIVERED,
    },
    State.WORKING: {**SPEECH, Input.FILE: State.DELIVERED},
    State.SAID: {**SPEECH, Input.TOOL: State.WORKING, Input.FILE: State.SAID_THEN_FILE},
    # A file may come before the tool frame of its own call: that frame is not new work.
    State.SAID_THEN_FILE: {**SPEECH, Input.TOOL: State.DELIVERED},
    State.SAID_AFTER_TOOL: {**SPEECH, Input.TOOL: State.WORKING, Input.FILE: State.DELIVERED},
    State.DELIVERED: SPEECH,
    State.FINAL: {Input.FAILURE: State.FAILED},
    State.FAILED: {Input.FINAL: State.FINAL},
}


def following(state: State, given: Input) -> State:
    """The state that this input leads to."""
    return NEXT[state].get(given, state)


FAILURES = {
    "agent_failed": "The agent could not finish this turn.",
    "agent_unreachable": "The agent could not be reached; try again in a moment.",
    "agent_silent": "The agent has sent nothing for too long; ask again, or stop and start over.",
    "empty_answer": "The agent ended without an answer and without a file; ask again.",
    "interrupted": "The turn was cut before its end; what was said so far stands.",
    "answer_too_long": "The answer is longer than can be carried; ask for a file instead.",
}
