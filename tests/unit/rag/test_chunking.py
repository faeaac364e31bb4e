"""Chunks are slices of the text with exact lines, under the right headings, and never too many."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rag.chunking import (
    CHARACTERS_PER_SECTION,
    CHUNK_CHARACTERS,
    FREE_SECTIONS,
    OVERLAP_CHARACTERS,
    chunk_text,
)

GUIDE = """\
---
title: "The Guide"
---
# Guide

## Install

Run pip.

```sh
# not a heading
```

Usage
-----

Call it.

### Deep ##
More.
"""

lines = st.one_of(
    st.sampled_from(
        ["", "", "# Top", "## Sub", "```", "~~~", "---", "===", "    # code", "word " * 40, "x" * 1500]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\x00"), max_size=80),
)
texts = st.lists(lines, max_size=60).map("\n".join)


def test_each_chunk_knows_its_lines_and_its_headings():
    found = chunk_text(GUIDE, "guide.md")
    assert found.title == "The Guide"
    assert [(chunk.start_line, chunk.end_line, chunk.heading_path) for chunk in found.chunks] == [
        (1, 3, ()),
        (4, 12, ("Guide", "Install")),
        (14, 17, ("Guide", "Usage")),
        (19, 20, ("Guide", "Usage", "Deep")),
    ]


def test_continuation_chunks_keep_the_heading_path_and_overlap():
    text = "# Top\n\n## Long\n\n" + "\n".join(f"Sentence number {n} of a long section." for n in range(100))
    chunks = chunk_text(text, "a.md").chunks
    assert len(chunks) > 3
    assert {chunk.heading_path for chunk in chunks} == {("Top", "Long")}
    for first, second in pairwise(chunks):
        shared = first.end_line - second.start_line + 1
        assert shared >= 1
        assert second.content.splitlines()[0] in first.content


def test_code_is_not_read_as_markdown():
    chunk = chunk_text("# comment\nx = 1\n", "a.py").chunks[0]
    assert (chunk.heading_path, chunk.start_line, chunk.end_line) == ((), 1, 2)


def test_a_first_line_keeps_its_indentation():
    assert chunk_text("\n\n    indented\n", "a.py").chunks[0].content == "    indented"


def test_a_legal_file_of_headings_makes_few_chunks():
    for text in ("# a\n\n\n" * 87_381, "# a\nb\n" * 87_381, "a\n\n" * 170_000, "x" * 524_288):
        assert len(chunk_text(text, "a.md").chunks) <= FREE_SECTIONS + len(text) // CHARACTERS_PER_SECTION


def test_a_hard_cut_does_not_split_a_family():
    family = "👨‍👩‍👧"
    for chunk in chunk_text("x" + family * 1000, "a.txt").chunks:
        assert chunk.content.removeprefix("x").startswith("👨")
        assert chunk.content.endswith("👧")


@given(texts, st.sampled_from(["a.md", "a.txt"]))
def test_every_chunk_is_the_text_of_its_lines_and_no_line_is_lost(text: str, path: str):
    chunks = chunk_text(text, path).chunks
    source = text.split("\n")
    covered: set[int] = set()
    for chunk in chunks:
        stands = "\n".join(source[chunk.start_line - 1 : chunk.end_line])
        assert chunk.content in stands
        assert chunk.content.count("\n") == chunk.end_line - chunk.start_line
        assert 0 < len(chunk.content) <= CHUNK_CHARACTERS
        assert chunk.content.strip()
        covered |= set(range(chunk.start_line, chunk.end_line + 1))
    assert {number for number, line in enumerate(source, start=1) if line.strip()} <= covered
    assert sum(len(chunk.content) for chunk in chunks) <= len(text) + OVERLAP_CHARACTERS * len(chunks)


@given(texts)
def test_no_chunk_repeats_the_whole_of_the_one_before(text: str):
    chunks = chunk_text(text, "a.txt").chunks
    for first, second in pairwise(chunks):
        assert not (second.start_line <= first.start_line and second.content.startswith(first.content))
