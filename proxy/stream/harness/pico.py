"""The pico protocol of picoclaw: one WebSocket frame in, its events out; and what we send.

Frames: ``{"type", "session_id", "timestamp", "payload"}``. An update carries the whole text so far;
``context_usage`` stands on the final answer text only; there is no end-of-turn frame. A frame belongs to the
socket it came on, so its own ``session_id`` is not looked at. Nothing of a frame is handed on but the typed,
cleaned values below.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from proxy.stream.events import (
    Deleted,
    HarnessError,
    HarnessEvent,
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
from proxy.stream.text import clean

MAX_FRAME = 8 * 1024 * 1024  # bytes
MAX_DEPTH = 64
MAX_INTEGER_DIGITS = 18
MAX_ID = 256
STOP = "/stop"

_FAILURE = "Error processing message:"
_STOPPED = ("Task stopped.", "No active task to stop.")
_MEDIA_PATH = re.compile(r"/pico/media/[A-Za-z0-9_-]{1,128}")
_TOO_BIG = "the frame is too large"
_TOO_DEEP = "the frame is nested too deeply"


class _Breach(ValueError):
    """A bound of the protocol was broken; the text says which."""


def read_frame(raw: str | bytes, *, user_text: str | None) -> tuple[HarnessEvent, ...]:
    """What one frame says, in at least one event.

    Never raises: what cannot be read is `Malformed`, what says nothing of the turn is `Ignored`.
    ``user_text`` is the member's message: picoclaw echoes what it was sent as the explanation of each tool
    call, where it explains nothing.
    """
    try:
        frame = _parse(raw)
    except _Breach as breach:
        return (Malformed(str(breach)),)
    except RecursionError:
        return (Malformed(_TOO_DEEP),)
    except ValueError:
        return (Malformed("the frame is not JSON"),)
    if not isinstance(frame, dict):
        return (Malformed("the frame is not an object"),)
    payload = frame.get("payload")
    payload = payload if isinstance(payload, dict) else {}
    if frame.get("type") in ("message.create", "message.update", "media.create"):
        return _message(payload, user_text)
    return (_signal(frame.get("type"), payload),)


def _signal(kind: object, payload: dict[str, Any]) -> HarnessEvent:
    match kind:
        case "message.delete":
            message_id = _id(payload)
            return Deleted(message_id) if message_id else Malformed("a deletion names no message")
        case "typing.start":
            return Typing(True)
        case "typing.stop":
            return Typing(False)
        case "error":
            return HarnessError(
                _text(payload, "code"), _text(payload, "message"), _text(payload, "request_id") or None
            )
        case _:
            return Ignored()


def _parse(raw: str | bytes) -> object:
    if _size(raw) > MAX_FRAME:
        raise _Breach(_TOO_BIG)
    # NaN and Infinity pass here and end here: no number of a frame is handed on.
    frame: object = _decode(raw if isinstance(raw, str) else raw.decode("utf-8"))
    _check_depth(frame)
    return frame


def _size(raw: str | bytes) -> int:
    """Bytes of UTF-8; of a text that cannot pass the bound an upper estimate, which spares encoding it."""
    if isinstance(raw, bytes) or raw.isascii():
        return len(raw)
    most = 4 * len(raw)
    return most if most <= MAX_FRAME else len(raw.encode("utf-8", "replace"))


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_INTEGER_DIGITS:
        raise _Breach(f"the frame has an integer of more than {MAX_INTEGER_DIGITS} digits")
    return int(digits)


# Made once: `json.loads` with a hook makes one for each frame.
_decode = json.JSONDecoder(parse_int=_integer).decode


def _check_depth(frame: object) -> None:
    level = [frame]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for value in level
            if isinstance(value, (dict, list))
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise _Breach(_TOO_DEEP)


def _text(mapping: dict[str, Any], key: str) -> str:
    value = mapping.get(key)
    return clean(value) if isinstance(value, str) else ""


def _id(payload: dict[str, Any]) -> str | None:
    message_id = _text(payload, "message_id")
    return message_id if 0 < len(message_id) <= MAX_ID else None


def _message(payload: dict[str, Any], user_text: str | None) -> tuple[HarnessEvent, ...]:
    message_id = _id(payload)
    if message_id is None:
        return (Malformed("a message has no id, or one that is too long"),)
    content = _text(payload, "content")
    if payload.get("kind") == "tool_calls":
        return (ToolCalls(message_id, _tools(payload.get("tool_calls"), user_text)),)
    if payload.get("kind") == "thought" or payload.get("thought") is True:
        return (Thought(message_id, content),)
    if payload.get("placeholder") is True:
        return (Placeholder(message_id, content),)
    final = isinstance(payload.get("context_usage"), dict)
    text = Text(message_id, content, final=final, is_error=is_failure(content) and not final)
    attachments = payload.get("attachments")
    if isinstance(attachments, list) and attachments:
        media = Media(message_id, content, tuple(map(_reference, attachments)))
        return (media, text) if final else (media,)
    return (text,)


def _tools(raw_calls: object, user_text: str | None) -> tuple[ToolCall, ...]:
    calls = [call for call in raw_calls if isinstance(call, dict)] if isinstance(raw_calls, list) else []
    return tuple(_tool(call, user_text) for call in calls)


def _tool(call: dict[str, Any], user_text: str | None) -> ToolCall:
    function, extra = call.get("function"), call.get("extra_content")
    name = _text(function, "name") if isinstance(function, dict) else ""
    explanation = _text(extra, "tool_feedback_explanation") if isinstance(extra, dict) else ""
    # The echo has words of picoclaw's own in front, and our block of context where one was sent.
    echo = (user_text or "").strip()
    if echo and explanation.rstrip().endswith(echo):
        explanation = ""
    return ToolCall(name or "tool", explanation or None)


def _reference(raw_attachment: object) -> MediaRef:
    attachment = raw_attachment if isinstance(raw_attachment, dict) else {}
    raw_url = _text(attachment, "url")
    path = media_path(raw_url)
    return MediaRef(
        url=raw_url if path is None else path,
        filename=_text(attachment, "filename") or None,
        content_type=_text(attachment, "content_type") or None,
        refused="foreign_reference" if path is None else None,
    )


def media_path(raw_url: str) -> str | None:
    """The path of a file in the gateway's own media store, or None for any other reference.

    Only the plain relative form counts: a host, a query, dot segments or ``%2e`` would carry the bearer to
    another place.
    """
    return raw_url if _MEDIA_PATH.fullmatch(raw_url) else None


def is_failure(text: str) -> bool:
    """picoclaw reports a failed turn as an ordinary message that begins so."""
    return text.startswith(_FAILURE)


def is_stop_answer(text: str) -> bool:
    """The gateway's answer to `STOP`: the turn is stopped, or none was running."""
    return text.startswith(_STOPPED)


def encode_send(message_id: str, session_id: str, text: str) -> str:
    """The frame that hands a message to the agent, or steers its running turn."""
    frame = {
        "type": "message.send",
        "id": message_id,
        "session_id": session_id,
        "payload": {"content": clean(text)},
    }
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":"))


def harness_session_id(member_id: str, session_id: str, project: str | None) -> str:
    """The session's name at the gateway: lower case, told apart by member, and by project if in one.

    The length in front keeps ``ana`` + ``x::1`` and ``ana::x`` + ``1`` apart.
    """
    digest = hashlib.sha256(f"{len(member_id)}:{member_id}{session_id}".encode("utf-8", "surrogatepass"))
    name = digest.hexdigest()[:32]
    return name if project is None else f"p.{project}.{name}"
