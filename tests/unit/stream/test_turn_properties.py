"""Whatever comes, in whatever order and at whatever time: the promises a client can rely on."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.stream.events import (
    Announced,
    Cancelled,
    Deleted,
    Delivery,
    Failure,
    HarnessError,
    Ignored,
    Lost,
    Malformed,
    Media,
    MediaRef,
    Placeholder,
    Stopping,
    Terminal,
    Text,
    Thought,
    Tick,
    ToolCall,
    ToolCalls,
    Typing,
)
from proxy.stream.sse import DONE, Renderer, SseDecoder
from proxy.stream.turn import TurnLimits
from tests.unit.stream.driver import Driver

TIGHT = TurnLimits(
    grace=0.5,
    delivery_settle=20,
    silence_timeout=600,
    turn_timeout=3000,
    max_text=60,
    max_deliveries=3,
    max_progress=4,
)
ids = st.sampled_from(["a", "b", "c"])
words = st.text(st.sampled_from("ab \n\u2028é漢😀"), max_size=12)
references = st.builds(
    MediaRef,
    st.sampled_from(["/pico/media/1", "/pico/media/2", "/pico/media/3", "/pico/media/4", "x"]),
    st.sampled_from(["r.txt", "r\n📎.txt", None]),
    st.none(),
    st.sampled_from([None, "foreign_reference"]),
)
frames = st.one_of(
    st.builds(Text, ids, words, st.booleans(), st.booleans()),
    st.builds(Text, ids, words),
    st.builds(Typing, st.booleans()),
    st.builds(Thought, ids, words),
    st.builds(Placeholder, ids, words),
    st.builds(ToolCalls, ids, st.tuples(st.builds(ToolCall, words))),
    st.builds(Media, ids, words, st.lists(references, max_size=3).map(tuple)),
    st.builds(Deleted, ids),
    st.just(Ignored()),
    st.just(Malformed("x")),
)
others = st.sampled_from(
    [
        HarnessError("x", "y"),
        Lost("reset"),
        Tick(),
        Cancelled(),
        Stopping(),
        Announced(Delivery("stored", "own.txt", path="public/attachments/own.txt", size=1)),
    ]
)
gaps = st.sampled_from([0, 0.05, 0.3, 1, 19, 25, 590, 700])
sequences = st.lists(st.tuples(gaps, st.one_of(frames, frames, frames, others)), max_size=14)
seconds = st.sampled_from([0, 0.2, 5, 65, None])


def play(sequence: list[tuple[float, object]], **options: object) -> Driver:
    driver = Driver(**options)
    at = 0.0
    for gap, event in sequence:
        at += gap
        driver.at(at, event)
    return driver


@settings(max_examples=400, deadline=None)
@given(sequences, seconds, seconds)
def test_every_turn_has_one_terminal_last_and_ticking_at_deadlines_reaches_it(
    sequence: list[tuple[float, object]], fetch: float | None, listing: float | None
) -> None:
    driver = play(sequence, limits=TIGHT, fetch_seconds=fetch, listing_seconds=listing).end()
    kinds = [type(frame) for frame in driver.sent]
    assert kinds.count(Terminal) == 1
    assert kinds[-1] is Terminal
    assert kinds.count(Failure) == (0 if driver.failure is None else 1)
    assert driver.finished == 1


@settings(max_examples=200, deadline=None)
@given(sequences, seconds)
def test_every_byte_to_a_client_is_valid_and_every_file_has_one_state(
    sequence: list[tuple[float, object]], fetch: float | None
) -> None:
    driver = play(sequence, limits=TIGHT, fetch_seconds=fetch).end()
    renderer = Renderer(turn_id="t", model="m", created=1, include_usage=False, show_links=True)
    wire = b"".join(renderer.render(frame) for frame in driver.sent)
    wire.decode("utf-8")
    records = SseDecoder().feed(wire)
    assert [record.data == "[DONE]" for record in records] == [False] * len(driver.sent) + [True]
    assert wire.endswith(DONE)
    assert sorted(map(repr, driver.turn.deliveries)) == sorted(map(repr, driver.notices))
    assert len(driver.turn.deliveries) <= 2 * TIGHT.max_deliveries


@given(st.lists(words, min_size=1, max_size=12), st.data())
def test_deltas_of_a_text_that_only_extends_concatenate_to_it(parts: list[str], data: st.DataObject) -> None:
    driver = Driver()
    said = ""
    for part in parts:
        said += part
        noise = data.draw(st.sampled_from([[], [Typing(True)], [Thought("t", "hm")], [Media("f", "", ())]]))
        driver.at(0, *noise, Text("m", said))
    driver.end()
    assert driver.streamed == driver.turn.answer == said


@given(st.lists(words.filter(bool), max_size=12))
def test_stream_of_whole_messages_reads_like_the_history(texts: list[str]) -> None:
    driver = Driver()
    for number, text in enumerate(texts):
        driver.at(0, Text(f"m{number}", text[:1]), Text(f"m{number}", text))
    driver.end()
    assert driver.streamed == driver.turn.answer == "\n\n".join(texts)
