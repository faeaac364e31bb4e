"""Server-sent events, both ways: frames to bytes for clients, bytes to records from harnesses.

Wire format: WHATWG HTML, "Server-sent events". Chunk format: OpenAI's ``chat.completion.chunk``; what is ours
stands in extra top-level fields (``x_crab_…``) beside an empty delta.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass

from proxy.stream.events import (
    Content,
    DeliveryNotice,
    Failure,
    FinishReason,
    Frame,
    Gap,
    Opening,
    Progress,
    Steering,
    Terminal,
    Usage,
)
from proxy.stream.notices import notice
from proxy.stream.text import without_surrogates

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
MAX_RECORD = 8 * 1024 * 1024

_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
# Not line ends in SSE, but clients that split with a general text function take them for such.
_FALSE_LINE_END = re.compile("[\x85\u2028\u2029]")


def _filled(value: object) -> dict[str, object]:
    """A dataclass as a JSON object, without the fields that are None."""
    return {k: v for k, v in asdict(value).items() if v is not None}  # type: ignore[call-overload]  # any dataclass


def _wire(text: str) -> bytes:
    """One JSON text as one ``data:`` record; always valid UTF-8."""
    if not text.isascii():
        text = _FALSE_LINE_END.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
        text = without_surrogates(text)
    return b"data: " + text.encode() + b"\n\n"


class Renderer:
    """Frames of one turn as bytes for one client.

    ``include_usage``: the client asked for ``stream_options.include_usage``. ``show_links``: notices carry
    their link as a line of text, for clients that know nothing of ``x_crab_delivery``.
    """

    def __init__(
        self, *, turn_id: str, model: str, created: int, include_usage: bool, show_links: bool
    ) -> None:
        identity = {
            "id": f"chatcmpl-{turn_id}",
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        chunk = _json(identity)[:-1]
        self._head = f'{chunk},"choices":[{{"index":0,"delta":'
        self._tail = ',"usage":null}' if include_usage else "}"
        self._usage_head = f'{chunk},"choices":[],"usage":'
        self._include_usage = include_usage
        self._show_links = show_links

    def render(self, frame: Frame, seq: int | None = None) -> bytes:
        """The frame's bytes, one write. ``seq`` puts an ``id:`` line in front (never one on ``[DONE]``)."""
        body = self._body(frame)
        return body if seq is None else b"id: %d\n" % seq + body

    def _body(self, frame: Frame) -> bytes:
        match frame:
            case Content(text):
                return self._content(text)
            case Opening():
                return self._chunk('{"role":"assistant","content":""}')
            case DeliveryNotice(delivery):
                text = notice(delivery, show_link=self._show_links)
                return self._content(text, {"x_crab_delivery": _filled(delivery)})
            case Progress():
                return self._extension({"x_crab_progress": _filled(frame)})
            case Steering():
                return self._extension({"x_crab_steering": asdict(frame)})
            case Gap(first, last):
                return self._extension({"x_crab_gap": {"from": first, "to": last}})
            case Failure():
                fault = asdict(frame)
                return self._extension({"x_crab_error": fault, "error": fault})
            case Terminal(reason, usage):
                return self._terminal(reason, usage)

    def _content(self, text: str, extension: dict[str, object] | None = None) -> bytes:
        return self._chunk(f'{{"content":{_json(text)}}}', extension)

    def _extension(self, extension: dict[str, object]) -> bytes:
        return self._chunk("{}", extension)

    def _chunk(
        self, delta: str, extension: dict[str, object] | None = None, finish_reason: str = "null"
    ) -> bytes:
        more = f",{_json(extension)[1:-1]}" if extension else ""
        return _wire(f'{self._head}{delta},"finish_reason":{finish_reason}}}]{more}{self._tail}')

    def _terminal(self, reason: FinishReason, usage: Usage | None) -> bytes:
        parts = [self._chunk("{}", finish_reason=_json(reason))]
        if self._include_usage:
            parts.append(_wire(f"{self._usage_head}{_json(asdict(usage) if usage else None)}}}"))
        return b"".join([*parts, DONE])


def completion(
    *, turn_id: str, model: str, created: int, content: str, usage: Usage | None = None
) -> dict[str, object]:
    """The ``chat.completion`` of a turn that was not streamed; ``content`` has its notices already."""
    message = {"role": "assistant", "content": without_surrogates(content)}
    return {
        "id": f"chatcmpl-{turn_id}",
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": asdict(usage) if usage else None,
    }


@dataclass(frozen=True, slots=True)
class Record:
    """One event of a stream. ``error`` stands for a record that was dropped, with the reason."""

    event: str = "message"
    id: str | None = None
    data: str = ""
    error: str | None = None


_LINE_END = re.compile(rb"\r\n|\r|\n")


class SseDecoder:
    """Bytes in, whole records out, wherever the bytes were cut.

    Lines end with CR, LF or CRLF and nothing else. UTF-8 is decoded per record: a character may be cut too.
    A record over ``max_record`` bytes becomes one record with an ``error``, and the stream goes on after it.
    An unfinished record at the end of the stream is dropped, as WHATWG says. Memory: one record, one read.
    """

    def __init__(self, max_record: int = MAX_RECORD) -> None:
        self._max = max_record
        self._line = bytearray()
        self._after_cr = False
        self._first = True
        self._reset()

    def _reset(self) -> None:
        self._data: list[bytes] = []
        self._event = b""
        self._id: bytes | None = None
        self._size = 0
        self._overlong = False

    def feed(self, chunk: bytes) -> list[Record]:
        """The records that this read completed."""
        if not chunk:
            return []
        if self._after_cr and chunk[0] == 0x0A:
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        records: list[Record] = []
        *lines, rest = _LINE_END.split(chunk)
        for part in lines:
            self._take(part, records)
            self._end_line(records)
        self._take(rest, records)
        return records

    def _take(self, part: bytes, records: list[Record]) -> None:
        """A piece of the current line, unless the record is too long by now."""
        self._size += len(part)
        if self._size > self._max and not self._overlong:
            self._overlong = True
            self._data.clear()
            records.append(Record(error=f"a record of more than {self._max} bytes was dropped"))
        if self._overlong:
            # One byte is enough to tell this line from the empty one that ends the record.
            self._line[:] = self._line[:1] or part[:1]
        else:
            self._line += part

    def _end_line(self, records: list[Record]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if self._first:
            line = line.removeprefix(b"\xef\xbb\xbf")
            self._first = False
        if line:
            if not self._overlong:
                self._field(line)
            return
        if self._data:
            records.append(self._record())
        self._reset()

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value
        elif name == b"id" and b"\0" not in value:
            self._id = value

    def _record(self) -> Record:
        return Record(
            event=self._event.decode(errors="replace") or "message",
            id=None if self._id is None else self._id.decode(errors="replace"),
            data=b"\n".join(self._data).decode(errors="replace"),
        )
