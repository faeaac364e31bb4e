"""How a stored file is sent: validators, ranges, types and headers (RFC 9110, RFC 6266, RFC 8187). Pure.

A file is the work of an agent, or of another member: nothing of it may run in the page's origin. So it is
``application/octet-stream`` to be saved, and has a type of its own only when it was asked for inline and its
first bytes are a raster image, a PDF or text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from email.utils import formatdate, parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import quote, unquote

from proxy.errors import RangeNotSatisfiable

OPAQUE = "application/octet-stream"
TEXT = "text/plain; charset=utf-8"
SNIFFED_BYTES = 4096

PROTECTION = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}


class Stamp(NamedTuple):
    """What identifies one state of a file: its inode, size in bytes and times in nanoseconds."""

    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @property
    def etag(self) -> str:
        """A strong validator: the ctime moves with every change, and no program can set it back."""
        return '"' + "-".join(format(value, "x") for value in self) + '"'

    @property
    def last_modified(self) -> str:
        return formatdate(self.mtime_ns // 1_000_000_000, usegmt=True)


class Span(NamedTuple):
    """The bytes from `start` up to, not including, `stop`."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Conditions:
    """The request's headers that decide between 200, 206, 304 and 416; None where one is absent."""

    if_none_match: str | None = None
    if_modified_since: str | None = None
    range: str | None = None
    if_range: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer: its status, and the bytes to send (none for 304)."""

    status: int
    span: Span


def plan(stamp: Stamp, asked: Conditions) -> Plan:
    """Decide as RFC 9110 §13.2.2 orders it. Raises RangeNotSatisfiable."""
    if _not_modified(stamp, asked):
        return Plan(304, Span(0, 0))
    if asked.range is not None and _range_counts(stamp, asked.if_range):
        span = parse_range(asked.range, stamp.size)
        if span is not None:
            return Plan(206, span)
    return Plan(200, Span(0, stamp.size))


def _not_modified(stamp: Stamp, asked: Conditions) -> bool:
    if asked.if_none_match is not None:  # it silences If-Modified-Since (§13.1.3)
        listed = [tag.strip().removeprefix("W/") for tag in asked.if_none_match.split(",")]
        return listed == ["*"] or stamp.etag in listed
    since = _date(asked.if_modified_since)
    return since is not None and stamp.mtime_ns // 1_000_000_000 <= since


def _range_counts(stamp: Stamp, if_range: str | None) -> bool:
    """Whether the client's part is of this very state; a weak tag or a date never shows it (§13.1.5)."""
    return if_range is None or if_range.strip() == stamp.etag


def _date(value: str | None) -> int | None:
    """The whole seconds of an HTTP date; None when it is no date, which makes the header void."""
    if value is None:
        return None
    try:
        parsed: datetime = parsedate_to_datetime(value)
        return int(parsed.timestamp())
    except (ValueError, OverflowError):
        return None


def parse_range(header: str, size: int) -> Span | None:
    """The one range that a Range header asks for; None when the header is void or has several (§14.2 allows
    to send the whole file then). Raises RangeNotSatisfiable when it begins beyond the end."""
    match = re.fullmatch(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", header, re.IGNORECASE)
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        start, stop = max(0, size - int(match[2])), size
    else:
        start, stop = int(match[1]), size
        if match[2]:
            if int(match[2]) < start:
                return None
            stop = min(size, int(match[2]) + 1)
    if start >= stop:
        raise RangeNotSatisfiable(size)
    return Span(start, stop)


def disposition(kind: str, name: str) -> str:
    """A Content-Disposition (RFC 6266): an ASCII name for old clients, the exact one coded by RFC 8187."""
    exact = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    plain = re.sub(r"[^A-Za-z0-9._ ()+,=@~!#$&'-]", "_", exact)
    coded = quote(exact, safe="!#$&+-.^_`|~")
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{coded}"


_PARAMETER = re.compile(r';\s*([\w!#$&+.^`|~*-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*+)"|([^";\s]+))', re.ASCII)


def disposition_filename(header: str) -> str | None:
    """The file name that a Content-Disposition gives: ``filename*`` before ``filename`` (RFC 6266 §4.3).

    The answer is as the sender wrote it, and so still to be cleaned; None when there is none.
    """
    found = {name.lower(): re.sub(r"\\(.)", r"\1", quoted) or plain
             for name, quoted, plain in _PARAMETER.findall(header)}  # fmt: skip
    charset, _, rest = found.get("filename*", "").partition("'")
    coded = rest.partition("'")[2]
    if coded and charset.lower() in {"utf-8", "iso-8859-1"}:
        return unquote(coded, charset, "replace")
    return found.get("filename") or None


class Kind(NamedTuple):
    extensions: frozenset[str]
    signature: re.Pattern[bytes]
    content_type: str


INLINE_KINDS = (
    Kind(frozenset({"png"}), re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    Kind(frozenset({"jpg", "jpeg"}), re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    Kind(frozenset({"gif"}), re.compile(rb"GIF8[79]a"), "image/gif"),
    Kind(frozenset({"webp"}), re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
    Kind(frozenset({"bmp"}), re.compile(rb"BM.{4}\0{4}", re.DOTALL), "image/bmp"),
    Kind(frozenset({"avif"}), re.compile(rb".{4}ftypavi[fs]", re.DOTALL), "image/avif"),
    Kind(frozenset({"pdf"}), re.compile(rb"%PDF-"), "application/pdf"),
)


def inline_type(name: str, first_bytes: bytes) -> str | None:
    """The type under which a file may be shown, None when it may only be saved.

    Extension and first bytes must agree on an image or a PDF. Anything else is text if its first
    `SNIFFED_BYTES` are UTF-8 without control characters: HTML, SVG and scripts are shown as their source.
    """
    extension = name.rpartition(".")[2].lower()
    for kind in INLINE_KINDS:
        if extension in kind.extensions:
            return kind.content_type if kind.signature.match(first_bytes) else None
    return TEXT if _is_text(first_bytes) else None


def _is_text(first_bytes: bytes) -> bool:
    if re.search(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]", first_bytes):
        return False
    try:
        first_bytes.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character cut by the end of the sample is no fault of the text.
        return error.reason == "unexpected end of data" and len(first_bytes) >= SNIFFED_BYTES
    return True


def headers(name: str, stamp: Stamp, answer: Plan, shown_as: str | None) -> dict[str, str]:
    """All headers of a 200, 206 or 304. `shown_as` is `inline_type`'s answer, None to have the file saved."""
    always = {
        **PROTECTION,
        "ETag": stamp.etag,
        "Last-Modified": stamp.last_modified,
        "Accept-Ranges": "bytes",
    }
    if answer.status == 304:
        return always
    described = {
        **always,
        "Content-Type": shown_as or OPAQUE,
        "Content-Disposition": disposition("inline" if shown_as else "attachment", name),
        "Content-Length": str(answer.span.stop - answer.span.start),
    }
    if answer.status == 206:
        described["Content-Range"] = f"bytes {answer.span.start}-{answer.span.stop - 1}/{stamp.size}"
    return described
