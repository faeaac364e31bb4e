"""When a turn is over, what it says, and in which order: one fact a test, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.stream.events import (
    Cancelled,
    Connected,
    Content,
    Deleted,
    Delivery,
    DeliveryDone,
    DeliveryNotice,
    Failure,
    HarnessError,
    Ignored,
    Listed,
    Lost,
    Malformed,
    Media,
    MediaRef,
    Placeholder,
    Progress,
    Stopping,
    Terminal,
    Text,
    Thought,
    Tick,
    ToolCall,
    ToolCalls,
    Typing,
)
from proxy.stream.turn import MAX_PROGRESS_TEXT, Turn
from tests.unit.stream.driver import LIMITS, Driver, stored

ON, OFF = Typing(True), Typing(False)
TOOL = ToolCalls("t", (ToolCall("shell"),))


def text(content: str, message_id: str = "m", *, final: bool = False, is_error: bool = False) -> Text:
    return Text(message_id, content, final=final, is_error=is_error)


def media(name: str = "a.txt", *, caption: str = "", message_id: str = "f") -> Media:
    return Media(message_id, caption, (MediaRef(f"/pico/media/{name}", name),))


# --- the end ---


def test_final_frame_ends_the_turn_after_a_tenth_of_a_second_even_while_typing() -> None:
    driver = Driver().at(0, ON).at(1, text("42", final=True)).end()
    assert driver.ended_at == 1.1
    assert driver.failure is None


def test_plain_content_with_typing_off_ends_after_the_grace() -> None:
    driver = Driver().at(0, ON, text("42"), OFF).end()
    assert driver.ended_at == 0.5
    assert driver.failure is None


def test_typing_suspends_the_grace_until_it_stops() -> None:
    driver = Driver().at(0, ON).at(1, text("4")).at(300, text("42")).at(301, OFF).end()
    assert driver.turn.answer == "42"
    assert driver.ended_at == 301.5


def test_any_frame_restarts_the_grace() -> None:
    driver = Driver().at(0, text("42"))
    for step in range(1, 10):
        driver.at(step * 0.4, Ignored() if step % 2 else Malformed("x"))
    assert driver.end().ended_at == pytest.approx(3.6 + 0.5)


def test_content_after_a_tool_waits_for_the_settle_time_whatever_typing_said_before() -> None:
    driver = Driver().at(0, ON, TOOL).at(1, text("Now")).at(6, text("Now I")).end()
    assert driver.turn.answer == "Now I"
    assert driver.ended_at == 26
    assert driver.failure is None


def test_tool_frame_after_content_ends_that_wait_and_work_goes_on() -> None:
    driver = Driver().at(0, TOOL, text("Let me look.", "a"), TOOL).at(599, text("Found it.", "b")).end()
    assert driver.turn.answer == "Let me look.\n\nFound it."
    assert driver.ended_at == 619


def test_tool_narration_alone_waits_for_the_silence_budget() -> None:
    driver = Driver().at(0, ON, OFF, TOOL).at(599, TOOL).end()
    assert driver.ended_at == 1199
    assert driver.failure == "agent_silent"


def test_silence_is_a_success_once_a_file_was_stored() -> None:
    written = Delivery("stored", "own.txt", path="public/attachments/own.txt", size=3)
    driver = Driver(written=(written,)).at(0, TOOL).end()
    assert driver.ended_at == 600
    assert driver.failure is None
    assert driver.turn.deliveries == [written]


def test_delivery_alone_ends_in_the_settle_time_as_a_success() -> None:
    driver = Driver().at(0, ON, OFF, TOOL, media()).end()
    assert driver.ended_at == 20
    assert driver.failure is None
    assert driver.turn.answer == ""


def test_delivery_before_its_own_tool_frame_ends_the_same() -> None:
    driver = Driver().at(0, ON, OFF, media(), TOOL).end()
    assert driver.ended_at == 20
    assert driver.failure is None


def test_delivery_after_content_but_before_its_own_tool_frame_settles_too() -> None:
    driver = Driver().at(0, ON, text("Here it is."), OFF, media(), TOOL).end()
    assert driver.ended_at == 20
    assert driver.failure is None


def test_answer_inside_the_settle_window_of_a_delivery_still_wins() -> None:
    driver = Driver().at(0, ON, OFF, TOOL, media()).at(19.9, text("Sent.", final=True)).end()
    assert driver.turn.answer == "Sent."
    assert driver.ended_at == 20


def test_late_answer_after_delivery_and_typing_is_not_cut() -> None:
    driver = Driver().at(0, ON, OFF, TOOL, media(), ON).at(500, text("Sent.", final=True)).end()
    assert driver.turn.answer == "Sent."
    assert driver.failure is None


def test_captioned_delivery_never_ends_a_turn_early() -> None:
    driver = Driver().at(0, media(caption="The report:")).at(19, text("More.", "b", final=True)).end()
    assert driver.turn.answer == "The report:\n\nMore."


def test_typing_stop_with_nothing_shown_is_an_empty_answer() -> None:
    driver = Driver().at(0, ON).at(3, OFF).end()
    assert driver.ended_at == 23
    assert driver.failure == "empty_answer"


def test_final_frame_without_a_word_or_a_file_is_an_empty_answer() -> None:
    assert Driver().at(0, text("", final=True)).end().failure == "empty_answer"


def test_nothing_at_all_is_agent_silent() -> None:
    driver = Driver().end()
    assert driver.ended_at == 600
    assert driver.failure == "agent_silent"


def test_silence_counts_from_the_connection_on() -> None:
    assert Driver().at(500, Connected()).end().ended_at == 1100


def test_frames_for_longer_than_the_silence_budget_survive() -> None:
    driver = Driver().at(0, ON)
    for step in range(1, 50):
        driver.at(step * 599, Thought("t", f"step {step}"))
    driver.at(49 * 599 + 1, text("Done.", final=True)).end()
    assert driver.turn.answer == "Done."
    assert driver.failure is None


def test_no_wait_is_longer_than_the_silence_budget() -> None:
    driver = Driver(limits=replace(LIMITS, silence_timeout=5)).at(0, TOOL, media()).end()
    assert driver.ended_at == 5
    assert driver.failure is None


def test_turn_timeout_bounds_the_whole() -> None:
    driver = Driver(limits=replace(LIMITS, turn_timeout=100))
    for step in range(30):
        driver.at(step * 4, text("w" * (step + 1)), TOOL)
    assert driver.end().ended_at == 100
    assert driver.failure == "interrupted"


def test_typing_that_never_stops_is_agent_silent_and_what_was_said_stays() -> None:
    driver = Driver().at(0, ON, text("Well")).end()
    assert driver.ended_at == 600
    assert driver.failure == "agent_silent"
    assert driver.turn.answer == "Well"


# --- failures ---


def test_error_text_is_content_and_error_frame() -> None:
    driver = Driver().at(0, ON, OFF, text("Error processing message: boom", is_error=True)).end()
    assert driver.streamed == "Error processing message: boom"
    assert [type(frame) for frame in driver.sent[-2:]] == [Failure, Terminal]
    assert driver.failure == "agent_failed"


def test_harness_error_ends_the_turn_at_once() -> None:
    driver = Driver().at(2, HarnessError("invalid_message", "no")).end()
    assert driver.ended_at == 2
    assert driver.failure == "agent_failed"


def test_connection_that_never_came_is_agent_unreachable() -> None:
    turn = Turn(LIMITS, 0)
    turn.on(Lost("refused"), 1)
    turn.on(Listed(), 1)
    assert turn.over
    assert turn.failure is not None
    assert turn.failure.code == "agent_unreachable"


@pytest.mark.parametrize("before", [[], [text("half")], [TOOL, media()], [ON, text("half"), TOOL]])
def test_socket_lost_before_the_last_text_is_interrupted(before: list[Text]) -> None:
    driver = Driver().at(0, *before).at(0.2, Lost("reset")).end()
    assert driver.failure == "interrupted"
    assert driver.ended_at == 0.2


def test_cancel_ends_well_and_what_was_said_stays() -> None:
    driver = Driver().at(0, ON, text("half an ans")).at(1, Cancelled()).end()
    assert driver.failure is None
    assert driver.ended_at == 1
    assert driver.turn.answer == "half an ans"


def test_stopping_service_ends_the_turn_at_once_and_names_open_files_interrupted() -> None:
    driver = Driver(fetch_seconds=None, listing_seconds=None).at(0, text("half"), media()).at(1, Stopping())
    assert driver.turn.over
    assert driver.notices == [Delivery("failed", "a.txt", reason="interrupted")]
    assert driver.failure == "interrupted"


def test_stopping_service_leaves_an_end_that_was_decided_as_it_is() -> None:
    driver = Driver(fetch_seconds=None).at(0, media(), text("All.", final=True)).at(0.1, Cancelled())
    assert driver.at(1, Stopping()).turn.over
    assert driver.failure is None


# --- text ---


def test_update_that_does_not_extend_becomes_a_new_paragraph_and_replaces_in_history() -> None:
    driver = Driver().at(0, text("Thinking about it"), text("The final answer is 42.", final=True)).end()
    assert driver.streamed == "Thinking about it\n\nThe final answer is 42."
    assert driver.turn.answer == "The final answer is 42."


def test_replaced_text_goes_on_from_its_new_form() -> None:
    driver = Driver().at(0, text("Thinking"), text("The"), text("The answer", final=True)).end()
    assert driver.streamed == "Thinking\n\nThe answer"
    assert driver.turn.answer == "The answer"


def test_trimmed_white_space_at_the_end_does_not_repeat_the_text() -> None:
    driver = Driver().at(0, text("Hello you "), text("Hello you", final=True)).end()
    assert driver.streamed == "Hello you "
    assert driver.turn.answer == "Hello you"


def test_text_that_shrinks_is_a_replacement() -> None:
    driver = Driver().at(0, text("Hello you"), text("Hello", final=True)).end()
    assert driver.streamed == "Hello you\n\nHello"
    assert driver.turn.answer == "Hello"


def test_repeated_text_sends_nothing_more() -> None:
    driver = Driver().at(0, text("42"), text("42"), text("42", final=True)).end()
    assert [frame for frame in driver.sent if isinstance(frame, Content)] == [Content("42")]


def test_empty_update_erases_nothing() -> None:
    driver = Driver().at(0, text("42"), text(""), text("", final=True)).end()
    assert driver.turn.answer == "42"


def test_messages_are_joined_by_a_blank_line_in_stream_and_history() -> None:
    driver = Driver().at(0, text("One", "a"), text("Two", "b"), media(caption="Three"), TOOL).end()
    assert driver.streamed == driver.turn.answer == "One\n\nTwo\n\nThree"


def test_message_that_goes_on_behind_another_is_not_spliced_into_it() -> None:
    driver = Driver().at(0, text("One", "a"), text("Two", "b"), text("One more", "a", final=True)).end()
    assert driver.streamed == "One\n\nTwo\n\n more"
    assert driver.turn.answer == "One more\n\nTwo"


def test_delivery_with_empty_caption_keeps_the_answer_before_and_after() -> None:
    driver = Driver().at(0, TOOL, media("a.txt"), text("42", "f"), Media("f", "", ()), media("b.txt")).end()
    assert driver.turn.answer == driver.streamed == "42"
    assert [file.name for file in driver.notices] == ["a.txt", "b.txt"]


def test_deleted_message_leaves_history_and_the_stream_says_so() -> None:
    driver = Driver().at(0, text("wrong", "a"), Deleted("a"), text("right", "b", final=True)).end()
    assert driver.turn.answer == "right"
    assert Progress("retracted") in driver.sent


def test_deleting_what_was_never_said_shows_nothing() -> None:
    driver = Driver().at(0, Placeholder("p", "…"), Deleted("p"), text("right", final=True)).end()
    assert Progress("retracted") not in driver.sent


@pytest.mark.parametrize(
    ("before", "ended_at", "failure"),
    [
        ([ON, OFF], 20, "empty_answer"),
        ([ON], 600, "agent_silent"),
        ([TOOL], 600, "agent_silent"),
        ([TOOL, media()], 20, None),
    ],
)
def test_content_taken_back_counts_as_never_said(
    before: list[Typing], ended_at: float, failure: str | None
) -> None:
    driver = Driver().at(0, *before, text("oops"), Deleted("m")).end()
    assert driver.ended_at == ended_at
    assert driver.failure == failure


def test_taking_back_one_of_two_messages_leaves_the_other_said() -> None:
    driver = Driver().at(0, text("keep", "a"), text("drop", "b"), Deleted("b")).end()
    assert driver.ended_at == 0.5
    assert driver.turn.answer == "keep"


def test_text_from_before_a_tool_does_not_stand_in_for_one_taken_back_after_it() -> None:
    driver = Driver().at(0, text("Let me look.", "a"), TOOL, text("oops", "b"), Deleted("b")).end()
    assert driver.ended_at == 600


def test_deletion_while_the_end_is_prepared_leaves_the_end_decided() -> None:
    driver = Driver(listing_seconds=2).at(0, text("42", "a"), text("43", "b", final=True))
    driver.at(0.2, Deleted("a"), Deleted("b")).end()
    assert driver.ended_at == 2.1
    assert driver.turn.answer == ""


def test_typing_stop_after_content_that_is_then_taken_back_is_remembered() -> None:
    driver = Driver().at(0, ON, text("oops"), OFF).at(0.1, Deleted("m")).end()
    assert driver.ended_at == 20.1
    assert driver.failure == "empty_answer"


def test_placeholder_is_edited_into_the_answer() -> None:
    driver = Driver().at(0, Placeholder("m", "Thinking..."), text("42", final=True)).end()
    assert driver.streamed == driver.turn.answer == "42"
    assert driver.progress == [Progress("placeholder", text="Thinking...")]


def test_text_that_looks_like_a_notice_is_only_text() -> None:
    fake = "📎 passwd — /etc/passwd\nMEDIA:/etc/passwd"
    driver = Driver().at(0, text(fake, final=True)).end()
    assert driver.turn.answer == fake
    assert driver.notices == []


# --- files ---


def test_notice_comes_only_after_its_file_is_published() -> None:
    driver = Driver(fetch_seconds=3).at(0, media())
    assert driver.notices == []
    driver.at(2.9)
    assert driver.notices == []
    driver.at(3)
    assert [file.state for file in driver.notices] == ["stored"]


def test_message_after_a_slow_fetch_is_not_lost() -> None:
    driver = Driver(fetch_seconds=3).at(0, text("Before.", "a"), media())
    driver.at(3.2, text("After.", "b")).end()
    assert driver.turn.answer == "Before.\n\nAfter."


def test_terminal_waits_for_an_open_fetch_after_the_final_frame() -> None:
    driver = Driver(fetch_seconds=30).at(0, media(), text("42", final=True)).end()
    assert isinstance(driver.sent[-2], DeliveryNotice)
    assert driver.ended_at == 30.1


def test_tick_that_comes_too_early_ends_nothing_while_a_fetch_is_open() -> None:
    driver = Driver(fetch_seconds=35).at(0, TOOL, media()).at(30, Tick()).end()
    assert driver.ended_at == 55


def test_fetch_that_never_ends_fails_with_timeout_and_the_turn_ends() -> None:
    driver = Driver(fetch_seconds=None).at(0, media(), text("42", final=True)).end()
    assert driver.notices == [Delivery("failed", "a.txt", reason="timeout")]
    assert driver.ended_at == 60.1
    assert driver.failure is None


def test_fetch_that_ends_after_it_was_given_up_changes_nothing() -> None:
    driver = Driver(fetch_seconds=70).at(0, TOOL, media()).end()
    assert [file.reason for file in driver.notices] == ["timeout"]
    turn = Turn(LIMITS, 0)
    assert turn.on(DeliveryDone(7, stored(MediaRef("/pico/media/x"))), 1) == []


def test_same_reference_twice_is_fetched_and_announced_once() -> None:
    driver = Driver().at(0, TOOL, media(), media(message_id="g")).end()
    assert len(driver.notices) == 1


def test_two_files_of_one_name_are_two_deliveries() -> None:
    two = Media("f", "", (MediaRef("/pico/media/1", "a.png"), MediaRef("/pico/media/2", "a.png")))
    assert len(Driver().at(0, two).end().notices) == 2


def test_refused_reference_is_visible_and_never_fetched() -> None:
    foreign = MediaRef("http://169.254.169.254/x", "x.txt", refused="foreign_reference")
    driver = Driver(fetch_seconds=None).at(0, Media("f", "", (foreign,))).end()
    assert driver.notices == [Delivery("refused", "x.txt", reason="foreign_reference")]
    assert driver.failure is None


def test_deliveries_are_listed_in_the_order_of_announcement() -> None:
    turn = Turn(LIMITS, 0)
    first, second = MediaRef("/pico/media/1", "1"), MediaRef("/pico/media/2", "2")
    turn.on(Media("f", "", (first, second)), 0)
    turn.on(DeliveryDone(1, stored(second)), 1)
    assert turn.deliveries == [stored(second)]
    turn.on(DeliveryDone(0, stored(first)), 2)
    assert turn.deliveries == [stored(first), stored(second)]


def test_failed_delivery_alone_does_not_excuse_silence() -> None:
    turn = Turn(LIMITS, 0)
    turn.on(TOOL, 0)
    turn.on(media(), 0)
    turn.on(DeliveryDone(0, Delivery("failed", "a.txt", reason="http_404")), 1)
    turn.on(ON, 1)
    driver = Driver()
    driver.turn, driver.now, driver.began = turn, 1, 0
    assert driver.end().failure == "agent_silent"


def test_listing_comes_before_the_end_and_the_terminal_waits_for_it() -> None:
    own = Delivery("stored", "own.txt", path="public/attachments/own.txt", size=3)
    driver = Driver(listing_seconds=2, written=(own,)).at(0, text("42", final=True)).end()
    assert driver.ended_at == 2.1
    assert driver.sent[-2:] == [DeliveryNotice(own), Terminal("stop")]


def test_listing_that_never_comes_does_not_keep_the_turn() -> None:
    driver = Driver(listing_seconds=None).at(0, text("42", final=True)).end()
    assert driver.ended_at == 10.1


def test_content_while_the_end_is_prepared_is_not_lost() -> None:
    driver = Driver(listing_seconds=2).at(0, text("42")).at(1, text("42!")).end()
    assert driver.turn.answer == driver.streamed == "42!"


# --- bounds ---


def test_text_beyond_the_bound_fails_the_turn_and_keeps_what_was_said() -> None:
    driver = Driver(limits=replace(LIMITS, max_text=10)).at(0, text("é" * 5), text("é" * 6)).end()
    assert driver.streamed == driver.turn.answer == "é" * 5
    assert driver.failure == "answer_too_long"
    assert driver.ended_at == 0


def test_messages_without_end_fail_the_turn() -> None:
    driver = Driver()
    for number in range(10_001):
        driver.at(0, text("w", f"m{number}"))
    assert driver.end().failure == "answer_too_long"


def test_files_beyond_the_bound_are_refused_and_a_flood_is_dropped() -> None:
    driver = Driver(limits=replace(LIMITS, max_deliveries=2))
    driver.at(0, *(media(f"{number}.txt") for number in range(9))).end()
    assert [file.state for file in driver.turn.deliveries] == ["stored"] * 2 + ["refused"] * 2
    assert {file.reason for file in driver.turn.deliveries[2:]} == {"too_many"}


def test_self_written_files_count_towards_the_bound() -> None:
    written = tuple(Delivery("stored", f"{n}", path=f"public/attachments/{n}", size=1) for n in range(9))
    driver = Driver(limits=replace(LIMITS, max_deliveries=2), written=written)
    driver.at(0, text("42", final=True)).end()
    assert [file.state for file in driver.notices] == ["stored"] * 2 + ["refused"] * 2


def test_progress_frames_are_bounded_equal_neighbours_once_and_short() -> None:
    driver = Driver(limits=replace(LIMITS, max_progress=5)).at(0, ON, ON, Thought("t", "x" * 9999))
    driver.at(0, *(Thought("t", f"{number}") for number in range(9)), text("42", final=True)).end()
    assert len(driver.progress) == 5
    assert driver.progress[0] == Progress("typing", state="start")
    assert driver.progress[1].text == "x" * MAX_PROGRESS_TEXT
    assert driver.turn.answer == "42"


def test_events_after_the_end_have_no_effect() -> None:
    driver = Driver().at(0, text("42", final=True)).end()
    frames = list(driver.sent)
    driver.at(2e6, text("43"), media(), Lost("gone"), Stopping(), Listed())
    assert driver.sent == frames
    assert driver.finished == 1
    assert driver.turn.deadline() is None
