"""The pico reader: what a frame says, what it may not say, and what we send."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.stream.events import (
    Deleted,
    HarnessError,
    Ignored,
    Malformed,
    Media,
    MediaRef,
    Placeholder,
    Text,
    Thought,
    ToolCall,
    ToolCalls,
    Typing,
)
from proxy.stream.harness.pico import (
    MAX_FRAME,
    encode_send,
    harness_session_id,
    is_failure,
    is_stop_answer,
    media_path,
    read_frame,
)


def read(frame_type: str, user_text: str | None = None, /, **payload: Any) -> Any:
    events = read_frame(json.dumps({"type": frame_type, "payload": payload}), user_text=user_text)
    return events[0] if len(events) == 1 else events


def problem(raw: str | bytes) -> str:
    (event,) = read_frame(raw, user_text=None)
    assert isinstance(event, Malformed)
    return event.problem


def test_plain_message_is_text_and_context_usage_makes_it_final() -> None:
    assert read("message.create", message_id="m", content="Hi") == Text("m", "Hi")
    assert read("message.update", message_id="m", content="Hi", context_usage={}) == Text(
        "m", "Hi", final=True
    )


def test_other_kinds_of_message_are_no_text() -> None:
    assert read("message.create", message_id="m", content="…", placeholder=True) == Placeholder("m", "…")
    assert read("message.create", message_id="m", content="hm", kind="thought") == Thought("m", "hm")
    assert read("message.create", message_id="m", content="hm", thought=True) == Thought("m", "hm")
    assert read("message.delete", message_id="m") == Deleted("m")


def test_signals() -> None:
    assert read("typing.start") == Typing(True)
    assert read("typing.stop") == Typing(False)
    assert read("pong") == read("x_crab_error") == Ignored()
    assert read("error", code="invalid_message", message="no") == HarnessError("invalid_message", "no")
    assert read("error", code="c", message="m", request_id="r") == HarnessError("c", "m", "r")


def test_error_text_is_marked_unless_it_is_the_final_answer() -> None:
    failed = "Error processing message: boom"
    assert is_failure(failed)
    assert not is_failure(f"It says: {failed}")
    assert read("message.create", message_id="m", content=failed) == Text("m", failed, is_error=True)
    assert read("message.update", message_id="m", content=failed, context_usage={}) == Text("m", failed, True)


def attachment(url: object, **more: object) -> dict[str, object]:
    return {"url": url, "filename": "a.txt", "content_type": "text/plain", **more}


@pytest.mark.parametrize("kind", ["message.create", "message.update", "media.create"])
def test_attachments_are_references_with_their_caption(kind: str) -> None:
    event = read(kind, message_id="m", content="Here", attachments=[attachment("/pico/media/6bd1e457-94ed")])
    assert event == Media("m", "Here", (MediaRef("/pico/media/6bd1e457-94ed", "a.txt", "text/plain"),))


def test_attachments_on_the_final_frame_are_files_and_the_end() -> None:
    media, text = read(
        "message.create",
        message_id="m",
        content="",
        context_usage={},
        attachments=[attachment("/pico/media/1")],
    )
    assert media.references[0].url == "/pico/media/1"
    assert text == Text("m", "", final=True)


@pytest.mark.parametrize(
    "raw_url",
    [
        "http://127.0.0.1:18790/pico/media/6bd1e457",
        "//evil/pico/media/6bd1e457",
        "/pico/media/../token",
        "/pico/media/..",
        "/pico/media/%2e%2e",
        "/pico/media/a/b",
        "/pico/media/",
        "/pico/media/a?x=1",
        "/pico/media/a#x",
        "/pico/media/a\n",
        "/pico/media/é",
        "/pico/media/" + "a" * 129,
        "pico/media/a",
        "file:///etc/passwd",
        "data:text/plain,x",
        "",
        None,
        {},
    ],
)
def test_any_other_reference_is_refused_as_foreign(raw_url: object) -> None:
    if isinstance(raw_url, str):
        assert media_path(raw_url) is None
    event = read("message.create", message_id="m", content="", attachments=[attachment(raw_url)])
    assert event.references[0].refused == "foreign_reference"


def test_attachment_that_is_no_object_is_refused_too() -> None:
    event = read("message.create", message_id="m", content="", attachments=["/pico/media/1"])
    assert event.references == (MediaRef("", refused="foreign_reference"),)


def tool(explanation: object, name: object = "shell") -> dict[str, object]:
    return {"function": {"name": name}, "extra_content": {"tool_feedback_explanation": explanation}}


@pytest.mark.parametrize(
    ("explanation", "shown"),
    [
        ("do it\n", None),
        ("Continuing the current task.: do it", None),
        ("Continuing the current task.: [deliver to: /w]\ndo it", None),
        ("Reading the report", "Reading the report"),
        (None, None),
        (7, None),
    ],
)
def test_explanation_is_shown_only_if_it_is_not_the_members_message(
    explanation: object, shown: str | None
) -> None:
    event = read(
        "message.create", "do it ", message_id="m", kind="tool_calls", tool_calls=[tool(explanation)]
    )
    assert event == ToolCalls("m", (ToolCall("shell", shown),))


def test_tool_calls_of_any_shape_are_read() -> None:
    calls = [tool("x", None), {}, "no", {"function": "no"}]
    event = read("message.create", "", message_id="m", kind="tool_calls", tool_calls=calls)
    assert event.tools == (ToolCall("tool", "x"), ToolCall("tool"), ToolCall("tool"))
    assert read("message.create", message_id="m", kind="tool_calls") == ToolCalls("m", ())


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "{",
        b"\xff\xfe\xff",
        "[]",
        '"x"',
        "null",
        '{"type":"message.create","payload":{"content":"x"}}',
        '{"type":"message.create","payload":{"content":"x","message_id":7}}',
        '{"type":"message.create","payload":[]}',
        '{"type":"message.delete"}',
        '{"type":"message.create","payload":{"message_id":"' + "m" * 257 + '"}}',
    ],
)
def test_what_is_not_of_the_protocol_is_malformed(raw: str | bytes) -> None:
    assert problem(raw)


def nested(levels: int) -> str:
    return '{"type":"pong","payload":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


def test_64_levels_are_read_and_65_are_not() -> None:
    assert read_frame(nested(64), user_text=None) == (Ignored(),)
    assert "nested" in problem(nested(65))
    assert "nested" in problem(nested(500_000))


def test_integers_have_at_most_18_digits() -> None:
    frame = '{"type":"pong","timestamp":%s}'
    assert read_frame(frame % ("-" + "9" * 18), user_text=None) == (Ignored(),)
    assert "digits" in problem(frame % ("9" * 19))
    assert "digits" in problem(frame % ("9" * 100_000))


def test_frame_has_at_most_8_mib_of_utf8() -> None:
    def frame(filler: str) -> str:
        head, tail = '{"type":"pong","x":"', '"}'
        return head + filler * ((MAX_FRAME - len(head) - len(tail)) // len(filler.encode())) + tail

    assert read_frame(frame("x"), user_text=None) == (Ignored(),)
    assert "large" in problem(frame("x") + "  ")
    assert "large" in problem(frame("é") + "    ")
    assert "large" in problem((frame("x") + "  ").encode())


def test_nan_and_infinity_are_not_handed_on() -> None:
    raw = '{"type":"message.create","payload":{"message_id":"m","content":NaN,"context_usage":-Infinity}}'
    assert read_frame(raw, user_text=None) == (Text("m", ""),)


def test_lone_surrogates_are_cleaned_and_half_a_pair_at_the_end_waits_for_the_other() -> None:
    assert read("message.create", message_id="m", content="a\udc00b") == Text("m", "a\ufffdb")
    assert read("message.create", message_id="m", content="a\ud83d") == Text("m", "a")
    assert read("message.create", message_id="m", content="a\ud83d\ude00") == Text("m", "a😀")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(
    st.sampled_from(["message_id", "content", "kind", "attachments", "tool_calls", "function", "url"]), x)),
    st.sampled_from(["message.create", "message.delete", "error", "media.create"]))  # fmt: skip
def test_no_payload_breaks_the_reader(payload: object, kind: str) -> None:
    events = read_frame(json.dumps({"type": kind, "payload": payload}), user_text="x")
    assert events
    repr(events).encode("utf-8")


def test_sent_message_has_the_shape_of_the_protocol_and_valid_utf8() -> None:
    raw = encode_send("m1", "s1", 'Olá "😀"\ud800')
    assert json.loads(raw.encode("utf-8")) == {
        "type": "message.send",
        "id": "m1",
        "session_id": "s1",
        "payload": {"content": 'Olá "😀"'},
    }


def test_session_id_is_a_hash_over_length_prefixed_parts_with_the_project_in_front() -> None:
    expected = hashlib.sha256(b"3:anax::1").hexdigest()[:32]
    assert harness_session_id("ana", "x::1", None) == expected
    assert harness_session_id("ana", "x::1", "p1") == f"p.p1.{expected}"
    assert harness_session_id("ana::x", "1", None) != harness_session_id("ana", "::x1", None)
    assert harness_session_id("ana\udc80", "1", None).islower()


def test_answers_to_stop_are_known() -> None:
    assert is_stop_answer("Task stopped. Cancelled 1 turn.")
    assert is_stop_answer("No active task to stop.")
    assert not is_stop_answer("The task stopped.")
