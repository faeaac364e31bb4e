"""Read ``multipart/form-data`` (RFC 7578, RFC 2046 §5.1): bytes in, events out; no I/O and no clock.

The same body gives the same parts however the network cuts it. Memory is bounded by what one `feed` is
given plus `MAX_HEADER_BYTES`: content is passed on at once, never gathered.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from proxy.errors import MalformedBody, UnsupportedMediaType

MEDIA_TYPE = "multipart/form-data"
MAX_PARTS = 16
MAX_HEADER_BYTES = 8 * 1024

_BOUNDARY = re.compile(
    r";[ \t]*boundary=(?:\"([0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-])\""
    r"|([0-9A-Za-z'()+_./:=?-]{1,70}))[ \t]*(?=;|\Z)",
    re.IGNORECASE,
)

# A parameter of Content-Disposition. In a quoted value a quote behind a backslash belongs to the value (old
# clients write one so), unless the value can end there: browsers send backslashes as they are, and a name
# may end in one.
_PARAMETER = re.compile(
    rb";[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)="
    rb"(?:\"((?:[^\"]|(?<=\\)\"(?![ \t]*(?:;|\Z)))*)\"|([^\";\s]+))[ \t]*"
)


@dataclass(frozen=True, slots=True)
class PartBegan:
    """A part's headers are read. `raw_filename` None: a text field; else the bytes that the client sent."""

    name: str
    raw_filename: bytes | None


@dataclass(frozen=True, slots=True)
class PartData:
    """The next bytes of the part's content, never empty: a view, so that content is not copied again."""

    data: memoryview


@dataclass(frozen=True, slots=True)
class PartEnded:
    """The part is whole."""


Event = PartBegan | PartData | PartEnded


class _State(Enum):
    PREAMBLE = auto()
    HEADERS = auto()
    CONTENT = auto()
    EPILOGUE = auto()


def boundary_of(content_type: str) -> bytes:
    """The boundary that a Content-Type header names.

    Raises UnsupportedMediaType for any other type and MalformedBody when the boundary is missing, given
    twice, or not made of 1 to 70 of RFC 2046's characters.
    """
    media_type, semicolon, rest = content_type.partition(";")
    if media_type.strip().lower() != MEDIA_TYPE:
        raise UnsupportedMediaType(MEDIA_TYPE)
    found = _BOUNDARY.findall(semicolon + rest)
    if len(found) != 1:
        raise MalformedBody("the Content-Type needs one boundary")
    quoted, plain = map(str, found[0])
    return (quoted or plain).encode()


class FormParser:
    """One body: feed it in order, then call `finish`. All that it raises is MalformedBody."""

    def __init__(self, boundary: bytes, max_parts: int = MAX_PARTS) -> None:
        self._max_parts = max_parts
        self._delimiter = b"\r\n--" + boundary
        self._delimiter_line = re.compile(re.escape(self._delimiter) + rb"(\r\n|--)")
        # The first delimiter needs no line end before it (RFC 2046): with one here it is like all others.
        self._rest = b"\r\n"
        self._state = _State.PREAMBLE
        self._parts = 0

    def feed(self, data: bytes) -> list[Event]:
        """What these bytes complete. What follows the closing delimiter is dropped."""
        events: list[Event] = []
        window = self._window(data, events)
        position, more = 0, True
        while more:
            if self._state is _State.HEADERS:
                position, more = self._read_headers(window, position, events)
            elif self._state is _State.EPILOGUE:
                position, more = len(window), False
            else:
                position, more = self._read_content(window, position, events)
        self._rest = window[position:]
        return events

    def finish(self) -> None:
        """The body is over. Raises MalformedBody when the closing delimiter has not come."""
        if self._state is not _State.EPILOGUE:
            raise MalformedBody("the form ends before its closing boundary")

    def _window(self, data: bytes, events: list[Event]) -> bytes:
        """What is to be read now: the rest and the data, or, where the rest is plain content, the data alone.

        So the usual read, all content, is not copied.
        """
        reach = len(self._delimiter) + 1  # of a delimiter line that begins in the rest's last byte
        if self._state is _State.CONTENT and self._rest and len(data) >= reach:
            seam = self._delimiter_line.search(self._rest + data[:reach])
            if seam is None or seam.start() >= len(self._rest):
                events.append(PartData(memoryview(self._rest)))
                return data
        return self._rest + data

    def _read_content(self, window: bytes, start: int, events: list[Event]) -> tuple[int, bool]:
        """Content or preamble from `start` on: where it stops, and whether the window has more to read."""
        # find() is several times faster than a pattern over content that holds no delimiter.
        near = window.find(self._delimiter, start)
        line = self._delimiter_line.search(window, near) if near >= 0 else None
        # The last bytes may be the beginning of a delimiter: they wait for what follows them.
        end = line.start() if line else max(start, len(window) - len(self._delimiter) - 1)
        if self._state is _State.CONTENT and end > start:
            events.append(PartData(memoryview(window)[start:end]))
        if line is None:
            return end, False
        if self._state is _State.CONTENT:
            events.append(PartEnded())
        self._state = _State.HEADERS if line[1] == b"\r\n" else _State.EPILOGUE
        return line.end(), True

    def _read_headers(self, window: bytes, start: int, events: list[Event]) -> tuple[int, bool]:
        """The headers of one part, when they are whole."""
        end = window.find(b"\r\n\r\n", start)
        if (end if end >= 0 else len(window) - 3) - start > MAX_HEADER_BYTES:
            raise MalformedBody(f"a part has more than {MAX_HEADER_BYTES} bytes of headers")
        if end < 0:
            return start, False
        self._parts += 1
        if self._parts > self._max_parts:
            raise MalformedBody(f"the form has more than {self._max_parts} parts")
        events.append(_part(window[start:end]))
        self._state = _State.CONTENT
        return end + 4, True


def _part(block: bytes) -> PartBegan:
    """A part from its header lines. Everything that could be read in two ways is refused."""
    headers: dict[bytes, bytes] = {}
    for line in block.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        key = name.lower()
        if not colon or not re.fullmatch(rb"[!#$%&'*+.^_`|~0-9a-z-]+", key) or re.search(rb"[\r\n\0]", value):
            raise MalformedBody("a part has a broken header")
        if key in headers:
            raise MalformedBody("a part has a header twice")
        headers[key] = value.strip(b" \t")
    if headers.get(b"content-type", b"").lower().startswith(b"multipart/"):
        raise MalformedBody("a part is a form of its own")
    if headers.get(b"content-transfer-encoding", b"binary").lower() not in {b"7bit", b"8bit", b"binary"}:
        raise MalformedBody("a part has a Content-Transfer-Encoding")
    return _disposition(headers.get(b"content-disposition", b""))


def _disposition(value: bytes) -> PartBegan:
    kind, semicolon, rest = value.partition(b";")
    if kind.strip(b" \t").lower() != b"form-data":
        raise MalformedBody("a part has no Content-Disposition: form-data")
    parameters = _parameters(semicolon + rest)
    try:
        name = parameters.get(b"name", b"").decode("utf-8")
    except UnicodeDecodeError:
        name = ""
    if not name:
        raise MalformedBody("a part has no usable name")
    return PartBegan(name, parameters.get(b"filename"))


def _parameters(rest: bytes) -> dict[bytes, bytes]:
    """The parameters by lower-case name. ``filename*`` is one of its own, and never used (RFC 7578 §4.2)."""
    found: dict[bytes, bytes] = {}
    position = 0
    while position < len(rest):
        match = _PARAMETER.match(rest, position)
        if match is None or match[1].lower() in found:
            raise MalformedBody("a part has a broken Content-Disposition")
        quoted, plain = match[2], match[3]
        found[match[1].lower()] = _unescaped(plain if quoted is None else quoted.replace(b'\\"', b'"'))
        position = match.end()
    return found


def _unescaped(value: bytes) -> bytes:
    """Undo the three escapes of browsers (HTML standard, multipart/form-data encoding), and no other."""
    return value.replace(b"%22", b'"').replace(b"%0D", b"\r").replace(b"%0A", b"\n")
