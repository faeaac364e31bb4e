"""Frames as bytes, and bytes as records, wherever they were cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.stream.events import (
    Content,
    Delivery,
    DeliveryNotice,
    Failure,
    Frame,
    Gap,
    Opening,
    Progress,
    Steering,
    Terminal,
    Usage,
)
from proxy.stream.sse import DONE, MAX_RECORD, PING, Record, Renderer, SseDecoder, completion

STORED = Delivery("stored", "a b.txt", path="public/attachments/a b.txt", size=7, url="https://x/d/1")


def renderer(*, include_usage: bool = False, show_links: bool = False) -> Renderer:
    return Renderer(
        turn_id="t1", model='gan"glion', created=1700, include_usage=include_usage, show_links=show_links
    )


def chunk(frame: Frame, **options: bool) -> dict[str, Any]:
    raw = renderer(**options).render(frame)
    assert raw.startswith(b"data: ")
    assert raw.endswith(b"\n\n")
    assert raw.count(b"\n") == 2
    read: dict[str, Any] = json.loads(raw.removeprefix(b"data: "))
    return read


def envelope(delta: dict[str, object], finish_reason: str | None = None, **more: object) -> dict[str, object]:
    return {
        "id": "chatcmpl-t1",
        "object": "chat.completion.chunk",
        "created": 1700,
        "model": 'gan"glion',
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
        **more,
    }


FAULT = {"code": "agent_failed", "message": "It failed."}


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (Opening(), envelope({"role": "assistant", "content": ""})),
        (Content('Olá "x"\r\n\u2028\x85😀'), envelope({"content": 'Olá "x"\r\n\u2028\x85😀'})),
        (
            Progress("tool", tool="shell"),
            envelope({}, x_crab_progress={"kind": "tool", "tool": "shell"}),
        ),
        (
            Progress("typing", state="start"),
            envelope({}, x_crab_progress={"kind": "typing", "state": "start"}),
        ),
        (Steering(True, False), envelope({}, x_crab_steering={"folded": True, "queued": False})),
        (Gap(3, 9), envelope({}, x_crab_gap={"from": 3, "to": 9})),
        (Failure("agent_failed", "It failed."), envelope({}, x_crab_error=FAULT, error=FAULT)),
        (
            DeliveryNotice(STORED),
            envelope(
                {"content": "\n\n📎 a b.txt — public/attachments/a b.txt\n"},
                x_crab_delivery={
                    "state": "stored",
                    "name": "a b.txt",
                    "path": "public/attachments/a b.txt",
                    "size": 7,
                    "url": "https://x/d/1",
                },
            ),
        ),
        (
            DeliveryNotice(Delivery("failed", "a.txt", reason="http_404")),
            envelope(
                {"content": "\n\n⚠ a.txt could not be delivered: http_404\n"},
                x_crab_delivery={"state": "failed", "name": "a.txt", "reason": "http_404"},
            ),
        ),
    ],
)
def test_frame_is_one_chunk_of_exactly_these_fields(frame: Frame, expected: dict[str, object]) -> None:
    assert chunk(frame) == expected
    assert chunk(frame, include_usage=True) == {**expected, "usage": None}


def test_link_is_one_more_line_for_clients_that_want_it() -> None:
    shown = chunk(DeliveryNotice(STORED), show_links=True)
    assert shown["choices"][0]["delta"]["content"] == (
        "\n\n📎 a b.txt — public/attachments/a b.txt\nhttps://x/d/1\n"
    )


def test_name_cannot_end_its_line_nor_turn_the_text_around() -> None:
    evil = Delivery("refused", "a\n\n📎 x\u2028\u202ey", reason="bad_name")
    content = chunk(DeliveryNotice(evil))["choices"][0]["delta"]["content"]
    assert content == "\n\n⚠ a__📎 x__y could not be delivered: bad_name\n"


def test_terminal_is_one_write_that_ends_with_done() -> None:
    assert renderer().render(Terminal("error")) == (
        b"data: " + json.dumps(envelope({}, "error"), separators=(",", ":")).encode() + b"\n\n" + DONE
    )


@pytest.mark.parametrize("usage", [None, Usage(3, 4, 7)])
def test_usage_chunk_comes_between_finish_and_done_when_asked(usage: Usage | None) -> None:
    raw = renderer(include_usage=True).render(Terminal("stop", usage))
    finish, counted, done = (record.data for record in SseDecoder().feed(raw))
    assert json.loads(finish) == envelope({}, "stop", usage=None)
    numbers = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7} if usage else None
    assert json.loads(counted) == {**envelope({}), "choices": [], "usage": numbers}
    assert done == "[DONE]"


def test_sequence_number_stands_on_its_own_line_and_never_on_done() -> None:
    assert renderer().render(Content("x"), 7) == b"id: 7\n" + renderer().render(Content("x"))
    records = SseDecoder().feed(renderer(include_usage=True).render(Terminal("stop"), 8))
    assert [record.id for record in records] == ["8", None, None]


def test_heartbeat_is_a_comment() -> None:
    assert SseDecoder().feed(PING) == []


@given(st.text(st.characters(codec=None), max_size=40))
def test_any_text_is_valid_utf8_in_one_record_even_to_a_general_line_splitter(text: str) -> None:
    raw = renderer().render(Content(text)).decode("utf-8")
    assert raw.splitlines() == [raw[:-2], ""]
    said = json.loads(raw.removeprefix("data: "))["choices"][0]["delta"]["content"]
    assert said == "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)


def test_completion_is_a_chat_completion_with_valid_text() -> None:
    assert completion(turn_id="t1", model="g", created=1, content="Hi\ud800", usage=Usage(1, 2, 3)) == {
        "id": "chatcmpl-t1",
        "object": "chat.completion",
        "created": 1,
        "model": "g",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "Hi\ufffd"}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }
    assert completion(turn_id="t1", model="g", created=1, content="")["usage"] is None


# --- decoding ---

STREAM = (
    "\ufeffdata: one\n\n"
    ": ping\n\n"
    "data:two\r\ndata: three\r\n\r\n"
    "event: tool\rid: 7\rdata: é漢😀\u2028\x85\x0bx\r\r"
    "retry: 10\nevent: lost without data\n\n"
    "id: a\0b\ndata\n\n"
    "data:  two spaces\nunknown: x\n:data: no\n\r\n"
    "data: unfinished\n"
).encode()
RECORDS = [
    Record(data="one"),
    Record(data="two\nthree"),
    Record(event="tool", id="7", data="é漢😀\u2028\x85\x0bx"),
    Record(data=""),
    Record(data=" two spaces"),
]


def decode(*reads: bytes) -> list[Record]:
    decoder = SseDecoder()
    return [record for read in reads for record in decoder.feed(read)]


def test_whole_stream_and_single_bytes_give_the_same_records() -> None:
    assert decode(STREAM) == RECORDS
    assert decode(*(STREAM[i : i + 1] for i in range(len(STREAM)))) == RECORDS


def test_every_cut_in_three_gives_the_same_records() -> None:
    size = len(STREAM)
    for first in range(size + 1):
        for second in range(first, size + 1):
            assert decode(STREAM[:first], STREAM[first:second], STREAM[second:]) == RECORDS


def test_record_of_5_mb_passes_and_one_over_the_bound_is_an_error_after_which_the_stream_goes_on() -> None:
    large = b"data: " + b"x" * 5_000_000 + b"\n\n"
    (record,) = decode(large)
    assert len(record.data) == 5_000_000
    reads = [b"data: " + b"x" * MAX_RECORD, b"x\ndata: more\n", b"\ndata: next\n\n"]
    dropped, after = decode(*reads)
    assert dropped.error is not None
    assert dropped.data == ""
    assert after == Record(data="next")


def test_bound_counts_all_lines_of_a_record_and_each_record_anew() -> None:
    decoder = SseDecoder(max_record=20)
    assert decoder.feed(b"data: 12345678901234\n\n" * 3) == [Record(data="12345678901234")] * 3
    records = decoder.feed(b"data: 1\ndata: 2\ndata: 3\n\ndata: 4\n\n")
    assert [record.error is None for record in records] == [False, True]


def test_every_cut_of_an_overlong_record_gives_the_same() -> None:
    raw = b"data: 0123456789abcdef\r\ndata: x\r\n\r\ndata: next\r\n\r\n"

    def limited(*reads: bytes) -> list[Record]:
        decoder = SseDecoder(max_record=18)
        return [record for read in reads for record in decoder.feed(read)]

    whole = limited(raw)
    assert [record.data for record in whole] == ["", "next"]
    for first in range(len(raw)):
        for second in range(first, len(raw)):
            assert limited(raw[:first], raw[first:second], raw[second:]) == whole


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=20)), st.data())
def test_decoder_reads_back_what_was_written_in_any_cuts(texts: list[str], data: st.DataObject) -> None:
    raw = "".join(f"data: {text}\n\n" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=5)))
    reads = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert [record.data for record in decode(*reads)] == texts


def test_broken_utf8_becomes_replacement_characters() -> None:
    assert decode(b"data: a\xffb\n\n") == [Record(data="a\ufffdb")]
