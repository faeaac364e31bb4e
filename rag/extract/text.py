"""Bytes to text: which encoding, and whether it is text at all. Pure.

Order: byte order mark, UTF-8, UTF-16 by the pattern of its NUL bytes, cp1252. Line ends become ``\\n``. What
PostgreSQL's ``text`` cannot hold (NUL, lone surrogates) is dropped and counted.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

MAX_NUL_SHARE = 1 / 1000
MAX_CONTROL_SHARE = 1 / 100
MINIFIED_MIN_CHARACTERS = 20_000
MINIFIED_MEAN_LINE = 1000
MINIFIED_LONGEST_LINE = 50_000
# The widest encoding (UTF-32) spends this many times the bytes of UTF-8 on the same text.
MAX_ENCODING_FACTOR = 4

_MARKS = (  # UTF-32's little-endian mark begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROLS = re.compile("[\x01-\x06\x0e-\x1a\x1c-\x1f]")


@dataclass(frozen=True, slots=True)
class DecodedText:
    """``dropped`` counts the characters that could not be kept."""

    text: str
    dropped: int


def decode_text(content: bytes) -> DecodedText | str:
    """The text, or why there is none: ``binary``, ``encoding``, ``empty``, ``minified``."""
    raw_text = _decode(content)
    if raw_text is None:
        return "encoding"
    if raw_text.count("\x00") > len(raw_text) * MAX_NUL_SHARE or _mostly_controls(raw_text):
        return "binary"
    text, dropped = _UNSTORABLE.subn("", raw_text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        return "empty"
    return "minified" if is_minified(text) else DecodedText(text, dropped)


def is_minified(text: str) -> bool:
    """Machine-made lines that nobody reads: long on average in a file of some size, or one enormous line."""
    lines = text.rstrip("\n").split("\n")
    if len(text) > MINIFIED_MIN_CHARACTERS and len(text) / len(lines) >= MINIFIED_MEAN_LINE:
        return True
    return max(map(len, lines)) > MINIFIED_LONGEST_LINE


def _decode(content: bytes) -> str | None:
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return _decoded(content[len(mark) :], encoding)
    wide = _utf16_order(content)
    if wide:
        return _decoded(content, wide)
    text = _decoded(content, "utf-8")
    return _decoded(content, "cp1252", errors="strict") if text is None else text


def _decoded(content: bytes, encoding: str, errors: str = "surrogatepass") -> str | None:
    try:
        return content.decode(encoding, errors)
    except UnicodeDecodeError:
        return None


def _utf16_order(content: bytes) -> str | None:
    """UTF-16 without a mark: spaces, digits and line ends leave a NUL in every high byte, and only there."""
    if len(content) % 2 or not content:
        return None
    even, odd = content[::2].count(0), content[1::2].count(0)
    high, low, encoding = (odd, even, "utf-16-le") if odd > even else (even, odd, "utf-16-be")
    if high * 100 < len(content) // 2 or low * 20 > high:
        return None
    text = _decoded(content, encoding)
    return encoding if text is not None and not _CONTROLS.search(text) and "\x00" not in text else None


def _mostly_controls(text: str) -> bool:
    return len(_CONTROLS.findall(text)) > len(text) * MAX_CONTROL_SHARE
