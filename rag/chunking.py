"""A text cut into chunks that each know their lines. Pure.

Every chunk is a slice of the text (`text[start:end]`), so its lines are exact by construction; the slices
together hold every line that is not blank. Markdown is cut at headings first. Lines count from 1 and end at
``\\n`` only: ``rag.extract`` turns CRLF and CR into it before, and U+2028 or form feeds are text.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from rag.markdown import Section, is_markdown, outline

CHUNK_CHARACTERS = 1200
OVERLAP_CHARACTERS = 150
# A file may have this many chunks, and one more for each so many characters, before its sections are packed.
FREE_SECTIONS = 64
CHARACTERS_PER_SECTION = 400

_BLANK = re.compile(r"\n[^\S\n]*(?=\n)")
_LINE = re.compile(r"\n")
_SPACE = re.compile(r"\s")
# Nothing is cut in front of these: joiner, variation selectors, keycap, skin tones, flag halves, tags.
_GLUE = re.compile(
    "[\u200d\ufe00-\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U0001f1e6-\U0001f1ff\U000e0020-\U000e007f]"
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A slice of one text. ``start_line`` and ``end_line`` are inclusive, the first line is 1."""

    content: str
    start_line: int
    end_line: int
    heading_path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChunkedText:
    """The chunks of one text and its title: front matter's, else the first heading's, else None."""

    title: str | None
    chunks: tuple[Chunk, ...]


def chunk_text(text: str, path: str) -> ChunkedText:
    """Cut ``text``; ``path`` tells by its extension whether it is Markdown. A blank text has no chunks."""
    document = outline(text) if is_markdown(path) else None
    sections = document.sections if document else (Section(0, len(text), ()),)
    if len(sections) > FREE_SECTIONS + len(text) // CHARACTERS_PER_SECTION:
        sections = _packed(sections)
    line_starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
    chunks = []
    for section in sections:
        for start, end in _slices(text, section.start, section.end):
            first, last = (bisect_right(line_starts, offset) for offset in (start, end - 1))
            chunks.append(Chunk(text[start:end], first, last, section.heading_path))
    return ChunkedText(document.title if document else None, tuple(chunks))


def _packed(sections: tuple[Section, ...]) -> tuple[Section, ...]:
    """Neighbouring small sections joined under the headings they share, so that their number is bounded."""
    packed = [sections[0]]
    for section in sections[1:]:
        last = packed[-1]
        if section.end - last.start <= CHUNK_CHARACTERS:
            packed[-1] = Section(last.start, section.end, _shared(last.heading_path, section.heading_path))
        else:
            packed.append(section)
    return tuple(packed)


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return one[:length]


def _slices(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Slices of ``text[start:end]`` of at most CHUNK_CHARACTERS, blank ends trimmed, each overlapping the last."""
    fresh = start  # where the text begins that no slice has yet
    while True:
        fresh, end = _trimmed(text, fresh, end)
        if fresh >= end:
            return
        start = _trimmed(text, max(start, _overlap_start(text, start, fresh)), end)[0]
        if end - start <= CHUNK_CHARACTERS:
            yield start, end
            return
        cut = _cut(text, fresh, start + CHUNK_CHARACTERS)
        yield start, _trimmed(text, start, cut)[1]
        fresh = cut


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Blank lines in front and white space behind taken away; the first line keeps its indentation."""
    while end > start and text[end - 1].isspace():
        end -= 1
    first = start
    while first < end and text[first].isspace():
        first += 1
    line = text.rfind("\n", start, first) + 1
    return (max(line, start) if first < end else end), end


def _overlap_start(text: str, previous: int, fresh: int) -> int:
    """Where the next slice begins: at most OVERLAP_CHARACTERS back, less than any slice before, at a line or word."""
    earliest = max(fresh - OVERLAP_CHARACTERS, previous)
    if earliest >= fresh or previous == fresh:
        return fresh
    for boundary in (_LINE, _SPACE):
        match = boundary.search(text, earliest, fresh)
        if match and match.end() < fresh:
            return match.end()
    return _whole_character(text, earliest, fresh)


def _cut(text: str, start: int, limit: int) -> int:
    """The best place to end a slice in the second half of ``start:limit``: blank line, line, word, character."""
    half = start + (limit - start) // 2
    for boundary in (_BLANK, _LINE, _SPACE):
        places = [match.end() for match in boundary.finditer(text, half, limit)]
        if places:
            return places[-1]
    return _whole_character(text, limit, start + 1)


def _whole_character(text: str, offset: int, other: int) -> int:
    """``offset`` moved towards ``other`` until it splits no combined character; at most 32 places."""
    step = -1 if other < offset else 1
    for place in range(offset, offset + 32 * step, step):
        if place == other:
            return other
        joined = unicodedata.combining(text[place]) or _GLUE.match(text[place]) or text[place - 1] == "\u200d"
        if not joined:
            return place
    return offset
