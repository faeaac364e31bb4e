"""The outline of a Markdown text: sections with their headings, and the title. Pure.

CommonMark's block rules as far as headings need them: ATX and setext headings, fenced code (where ``#`` is
text), front matter. Inline markup in a heading is kept as it is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

EXTENSIONS = (".md", ".mdx", ".markdown")

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
# A line that a setext underline does not make a heading of: list, quote, table, indented code, blank.
_NO_PARAGRAPH = re.compile(r"[ \t]*$|\t| {4}| {0,3}(?:[-*+>|]|\d{1,9}[.)][ \t]|<)")
_FRONT_TITLE = re.compile(r"title:[ \t]*(.+?)[ \t]*")


@dataclass(frozen=True, slots=True)
class Section:
    """``text[start:end]`` and the headings it stands under, outermost first (its own heading included)."""

    start: int
    end: int
    heading_path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """The sections of a text, without gaps, and its title."""

    title: str | None
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class _Heading:
    start: int
    end: int
    level: int
    text: str


def is_markdown(path: str) -> bool:
    """By the extension, whatever its case."""
    return path.lower().endswith(EXTENSIONS)


def outline(text: str) -> Outline:
    """Find the headings of ``text``. A heading that nothing but deeper headings follow joins the next section."""
    front_title, body = _front_matter(text)
    headings = _headings(text, body)
    title = front_title or next((heading.text for heading in headings if heading.text), None)
    sections: list[Section] = []
    path: list[tuple[int, str]] = []
    start = 0
    for heading, following in zip([None, *headings], [*headings, None], strict=True):
        if heading:
            path = [(level, name) for level, name in path if level < heading.level]
            path.append((heading.level, heading.text))
        end = following.start if following else len(text)
        blank = not text[heading.end if heading else 0 : end].strip()
        if blank and following and (heading is None or following.level > heading.level):
            continue
        if end > start:
            sections.append(Section(start, end, tuple(name for _, name in path if name)))
            start = end
    return Outline(title, tuple(sections) or (Section(0, len(text), ()),))


def _front_matter(text: str) -> tuple[str | None, int]:
    """Its title and where it ends; (None, 0) without front matter."""
    if not text.startswith("---\n"):
        return None, 0
    offset, title = 4, None
    for line in text[4:].split("\n"):
        offset += len(line) + 1
        if line.rstrip() in {"---", "..."}:
            return title, min(offset, len(text))
        if match := _FRONT_TITLE.fullmatch(line):
            title = match[1].strip("\"'") or None
    return None, 0


def _headings(text: str, start: int) -> list[_Heading]:
    headings: list[_Heading] = []
    fence = ""
    previous, previous_start = "", start
    offset = start
    for line in text[start:].split("\n"):
        end = offset + len(line)
        if fence:
            if _closes(line, fence):
                fence = ""
            previous = ""
        elif (match := _FENCE.fullmatch(line)) and not (match[1][0] == "`" and "`" in match[2]):
            fence, previous = match[1], ""
        elif match := _ATX.fullmatch(line):
            headings.append(_Heading(offset, end, len(match[1]), (match[2] or "").strip("# \t")))
            previous = ""
        elif (match := _SETEXT.fullmatch(line)) and not _NO_PARAGRAPH.match(previous):
            headings.append(_Heading(previous_start, end, 1 if match[1][0] == "=" else 2, previous.strip()))
            previous = ""
        else:
            previous = line
        previous_start, offset = offset, end + 1
    return headings


def _closes(line: str, fence: str) -> bool:
    match = _FENCE.fullmatch(line)
    return bool(match and match[1][0] == fence[0] and len(match[1]) >= len(fence) and not match[2].strip())
