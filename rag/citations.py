"""From ranked chunks to what is shown: neighbours merged, few a file, the part that matched. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from rag.chunking import OVERLAP_CHARACTERS
from rag.model import Scope

EXCERPT_CHARACTERS = 320
# Shorter needles match whole words only: "is" is not found in "this".
SHORT_NEEDLE = 3
_NEEDLES = 64


@dataclass(frozen=True, slots=True)
class Passage:
    """A stored chunk on its way to becoming a hit; ``rank`` is its place in the lexical leg, from 1."""

    rank: int
    score: float
    scope: Scope
    chunk_id: UUID
    source: str  # the file's path or the session's id
    event_id: str | None
    start_line: int
    end_line: int
    heading_path: tuple[str, ...]
    title: str | None
    content: str


def select(ranked: Iterable[Passage], limit: int, per_source: int | None) -> list[Passage]:
    """The first ``limit`` passages, overlapping neighbours merged into the better one, few from one source."""
    chosen: list[Passage] = []
    counts: Counter[tuple[Scope, str]] = Counter()
    for passage in ranked:
        for position, better in enumerate(chosen):
            if merged := _merged(better, passage):
                chosen[position] = merged
                break
        else:
            if len(chosen) < limit and (
                per_source is None or counts[passage.scope, passage.source] < per_source
            ):
                counts[passage.scope, passage.source] += 1
                chosen.append(passage)
    return chosen


def _merged(better: Passage, other: Passage) -> Passage | None:
    """One passage with the text of both, if they are of one file, share lines, and one's end is the other's start."""
    if (better.scope, better.source) != (other.scope, other.source) or better.scope is Scope.SESSION:
        return None
    first, second = sorted((better, other), key=lambda passage: (passage.start_line, passage.end_line))
    if second.start_line > first.end_line:
        return None
    for length in range(min(OVERLAP_CHARACTERS, len(first.content), len(second.content)), 0, -1):
        if first.content.endswith(second.content[:length]):
            content = first.content + second.content[length:]
            end_line = max(first.end_line, second.end_line)
            return replace(better, content=content, start_line=first.start_line, end_line=end_line)
    return None


def excerpt(content: str, needles: Mapping[str, float]) -> str:
    """The window of at most EXCERPT_CHARACTERS that holds the most telling needles, cut between words.

    ``needles`` are folded words, stems or 2-grams and what each is worth. The start of the text if none occurs.
    """
    if len(content) <= EXCERPT_CHARACTERS:
        return content.strip()
    matches = _matches(content, needles)
    start, end = _best_span(matches, needles) if matches else (0, 0)
    # The matched part in the middle of the window, the window inside the text.
    start = max(0, min(start - (EXCERPT_CHARACTERS - (end - start)) // 2, len(content) - EXCERPT_CHARACTERS))
    return _between_words(content, start, start + EXCERPT_CHARACTERS).strip()


def _matches(content: str, needles: Mapping[str, float]) -> list[tuple[int, int, str]]:
    best = sorted((needle for needle in needles if needle), key=lambda needle: (-needles[needle], needle))[
        :_NEEDLES
    ]
    parts = [rf"\b{re.escape(n)}\b" if len(n) < SHORT_NEEDLE and n.isascii() else re.escape(n) for n in best]
    if not parts:
        return []
    # The longest alternative first, so that a word counts as itself and not as its stem.
    parts.sort(key=len, reverse=True)
    flat = content.translate(_FLAT)
    return [(match.start(), match.end(), match[0]) for match in re.finditer("|".join(parts), flat)]


def _best_span(matches: list[tuple[int, int, str]], needles: Mapping[str, float]) -> tuple[int, int]:
    """Two pointers over the matches: the window with the highest sum of distinct needles, the first of equals."""
    inside: Counter[str] = Counter()
    worth = best = 0.0
    span = matches[0][:2]
    left = 0
    for _, end, needle in matches:
        worth += needles[needle] if not inside[needle] else 0.0
        inside[needle] += 1
        while end - matches[left][0] > EXCERPT_CHARACTERS:
            gone = matches[left][2]
            inside[gone] -= 1
            worth -= needles[gone] if not inside[gone] else 0.0
            left += 1
        if worth > best + 1e-9:
            best, span = worth, (matches[left][0], end)
    return span


def _between_words(content: str, start: int, end: int) -> str:
    """``content[start:end]`` without the halves of words at its ends, if there is white space near them."""
    if start > 0 and (space := re.search(r"\s", content[start : start + 40])):
        start += space.end()
    if end < len(content) and (space := re.search(r"\s\S*$", content[end - 40 : end])):
        end += space.start() - 40
    return content[start:end]


class _Flat(dict[int, int]):
    """One folded character for each character, so that places in the folded text are places in the text."""

    def __missing__(self, code: int) -> int:
        folded = unicodedata.normalize("NFKD", chr(code).casefold())[:1] if chr(code) != "й" else "й"
        self[code] = ord(folded) if folded else code
        return self[code]


_FLAT = _Flat()
