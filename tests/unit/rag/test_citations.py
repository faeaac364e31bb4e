"""Which passages become hits, and which part of one is shown."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from rag.chunking import chunk_text
from rag.citations import EXCERPT_CHARACTERS, Passage, excerpt, select
from rag.model import Scope


def passage(
    rank: int, source: str = "a.txt", lines: tuple[int, int] = (1, 1), content: str = "text"
) -> Passage:
    return Passage(
        rank, 10.0 - rank, Scope.LOCAL, UUID(int=rank), source, None, lines[0], lines[1], (), None, content
    )


def test_overlapping_neighbours_become_one_hit_with_the_text_of_both():
    text = "".join(f"Line number {n} of the whole text.\n" for n in range(60))
    first, second, *_ = chunk_text(text, "a.txt").chunks
    ranked = [
        passage(1, lines=(second.start_line, second.end_line), content=second.content),
        passage(2, lines=(first.start_line, first.end_line), content=first.content),
    ]
    (hit,) = select(ranked, 10, 3)
    assert (hit.rank, hit.start_line, hit.end_line) == (1, first.start_line, second.end_line)
    assert hit.content == "\n".join(text.split("\n")[: second.end_line])


def test_a_file_has_three_hits_unless_asked_and_the_limit_holds():
    ranked = [passage(n, lines=(n * 10, n * 10 + 1)) for n in range(1, 8)] + [passage(9, "b.txt")]
    assert [hit.rank for hit in select(ranked, 10, 3)] == [1, 2, 3, 9]
    assert [hit.rank for hit in select(ranked, 2, 3)] == [1, 2]
    assert len(select(ranked, 10, None)) == 8


def test_the_part_that_matched_is_shown():
    content = "Nothing to see here. " * 40 + "The migration of the ledger failed. " + "More of nothing. " * 40
    shown = excerpt(content, {"migrat": 3.0, "ledger": 4.0, "nothing": 0.1})
    assert "migration of the ledger" in shown
    assert len(shown) <= EXCERPT_CHARACTERS
    assert shown[0] != " "


def test_accents_and_two_grams_are_found_where_they_stand():
    content = "x " * 300 + "a migração feita, 東京都の天気予報 " + "y " * 300
    assert "migração" in excerpt(content, {"migracao": 2.0})
    assert "天気" in excerpt(content, {"天気": 2.0})


def test_short_needles_match_whole_words_only():
    content = "this " * 100 + "it is here " + "that " * 100
    assert "it is here" in excerpt(content, {"is": 1.0})


@given(st.text(max_size=2000), st.dictionaries(st.text(max_size=6), st.floats(0, 10), max_size=6))
def test_an_excerpt_is_a_part_of_the_text(content: str, needles: dict[str, float]):
    shown = excerpt(content, needles)
    assert shown in content
    assert len(shown) <= EXCERPT_CHARACTERS
