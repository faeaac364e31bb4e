"""Turns as picoclaw really sent them: the answer is whole and the end is right, whatever the pauses."""

from __future__ import annotations

import os

import pytest

from proxy.stream.events import Delivery, Lost, Progress, Text, ToolCalls
from tests.unit.stream.driver import LIMITS, NAMES, Driver, Recorded, recording, replay

MANY_PAUSES = 100  # of one recording are enough outside the full run
ONE_TURN = [name for name in NAMES if name not in {"11-steering", "15-drop-and-reconnect"}]
FILES = {
    "05-send-file-only": ["report.txt"],
    "05b-send-file-only-swapped": ["report.txt"],
    "07-tool-and-send-file-then-answer": ["report.txt"],
    "17-empty-file": ["empty.txt"],
}


def only(name: str) -> Recorded:
    (turn,) = recording(name)
    return turn


@pytest.mark.parametrize("name", ONE_TURN)
def test_recorded_turn_ends_with_the_recorded_text_and_files(name: str) -> None:
    turn = only(name)
    driver = replay(turn)
    assert driver.turn.answer == turn.last_plain_text
    assert driver.streamed == turn.last_plain_text
    assert [file.name for file in driver.notices] == FILES.get(name, [])
    assert driver.turn.deliveries == driver.notices
    assert driver.failure == ("agent_failed" if name == "09-model-error" else None)


@pytest.mark.parametrize(
    ("name", "after_last_frame"),
    [
        ("01-plain", 0.1),
        ("03-placeholder-thought", 0.1),
        ("05-send-file-only", 20),
        ("05b-send-file-only-swapped", 20),
        ("07-tool-and-send-file-then-answer", 0.1),
        ("09-model-error", 0.1),
    ],
)
def test_recorded_turn_ends_when_its_best_signal_says_so(name: str, after_last_frame: float) -> None:
    turn = only(name)
    assert replay(turn).ended_at == pytest.approx(turn.frames[-1][0] + after_last_frame, abs=0.001)


def pauses(turn: Recorded) -> list[tuple[int, float]]:
    """For every gap between two frames: what makes it just shorter than each wait that may run there."""
    waits = (LIMITS.final_grace, LIMITS.grace, LIMITS.delivery_settle, LIMITS.silence_timeout)
    found = []
    for gap in range(1, len(turn.frames)):
        driver = Driver().play(Recorded(turn.user_text, turn.frames[:gap]).events())
        deadline = driver.turn.deadline()
        assert deadline is not None
        room = deadline - driver.now
        length = turn.frames[gap][0] - turn.frames[gap - 1][0]
        found += [(gap, wait - length - 0.001) for wait in waits if length < wait - 0.001 <= room]
    return found


def whole(name: str) -> Recorded:
    """A recording as one turn: a steering message joins the turn it steers, a second socket's turn stands alone."""
    turns = recording(name)
    if name == "11-steering":
        first, second = turns
        return Recorded(
            first.user_text, [*first.frames, *((at + 2.002, frame) for at, frame in second.frames)]
        )
    return turns[-1]


@pytest.mark.parametrize("name", NAMES)
def test_pause_just_under_a_wait_between_any_two_frames_changes_nothing(name: str) -> None:
    turn = whole(name)
    plain = replay(turn)
    tried = pauses(turn)
    assert tried
    if os.environ.get("ISTHMUS_TEST_SIZE") != "full" and len(tried) > MANY_PAUSES:
        tried = tried[:: len(tried) // MANY_PAUSES]
    for gap, pause in tried:
        late = [(at + pause if i >= gap else at, frame) for i, (at, frame) in enumerate(turn.frames)]
        driver = replay(Recorded(turn.user_text, late))
        assert driver.turn.answer == plain.turn.answer, (gap, pause)
        assert driver.streamed == plain.streamed, (gap, pause)
        assert driver.notices == plain.notices, (gap, pause)
        assert driver.failure == plain.failure, (gap, pause)


def test_five_seconds_between_any_two_words_after_a_tool_lose_nothing() -> None:
    turn = only("07-tool-and-send-file-then-answer")
    events = turn.events()
    first_word = next(i for i, (_, event) in enumerate(events) if isinstance(event, Text))
    assert any(isinstance(event, ToolCalls) for _, event in events[:first_word])
    for gap in range(first_word + 1, len(events) - 1):
        slow = [(at + 5 if i >= gap else at, event) for i, (at, event) in enumerate(events)]
        driver = Driver().play(slow).end()
        assert driver.streamed == "I have sent you the report."
        assert driver.failure is None


def test_echo_of_the_member_message_is_no_explanation() -> None:
    for name in FILES:
        tools = [step for step in replay(only(name)).progress if step.kind == "tool"]
        assert {step.tool for step in tools} <= {"send_file", "list_dir"}
        assert [step.text for step in tools] == [None] * len(tools)


def test_placeholder_and_thought_are_progress_and_never_answer() -> None:
    driver = replay(only("03-placeholder-thought"))
    assert Progress("placeholder", text="Thinking...") in driver.progress
    assert Progress("thought", text="let me think about it") in driver.progress
    assert driver.turn.answer == "I have thought about it and the answer is 42."


def test_steered_turn_takes_back_the_first_text_and_keeps_the_second() -> None:
    first, second = recording("11-steering")
    both = Recorded(first.user_text, [*first.frames, *((at + 2.002, frame) for at, frame in second.frames)])
    driver = replay(both)
    assert driver.turn.answer == "This answers the second message."
    assert driver.streamed.endswith("w39\n\nThis answers the second message.")
    assert [step.kind for step in driver.progress].count("retracted") == 1
    assert driver.failure is None


def test_socket_lost_while_the_answer_streams_is_interrupted_and_keeps_what_was_said() -> None:
    first, _ = recording("15-drop-and-reconnect")
    driver = replay(first)
    assert driver.turn.answer == "Stub answer to: SLOW please . w0 w1 w2 w3 "
    assert driver.failure == "interrupted"
    assert driver.ended_at == pytest.approx(2.002)


def test_turn_after_a_reconnect_is_whole() -> None:
    _, second = recording("15-drop-and-reconnect")
    driver = replay(second)
    assert driver.turn.answer == "Second turn."
    assert driver.failure is None


def test_socket_lost_after_the_final_frame_is_a_success() -> None:
    turn = only("07-tool-and-send-file-then-answer")
    driver = Driver(fetch_seconds=3).play(turn.events())
    driver.at(turn.frames[-1][0] + 0.01, Lost("reset")).end()
    assert driver.turn.answer == turn.last_plain_text
    assert driver.turn.deliveries == [
        Delivery("stored", "report.txt", path="public/attachments/report.txt", size=1)
    ]
    assert driver.failure is None
