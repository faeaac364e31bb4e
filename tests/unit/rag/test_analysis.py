"""A question finds a text when they share a term; these are the pairs that must and must not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.analysis import STEM_WEIGHT, WORD_WEIGHT, Analyser, fold, term_id


def shared(query: str, text: str, language: str = "english") -> set[str]:
    analyser = Analyser()
    return set(analyser.question(query, [language])) & set(analyser.terms(text, [language]))


@pytest.mark.parametrize(
    ("query", "text", "language"),
    [
        ("migracao", "a migração do banco", "portuguese"),
        ("migração", "a MIGRACAO do banco", "portuguese"),
        ("migrations", "one migration", "english"),
        ("миграции", "миграция базы", "russian"),
        ("main.ts", "see apps/api/src/main.ts", "english"),
        ("apps/api/src/main.ts", "main.ts starts it", "english"),
        ("delete by scope", "calls deleteByScope(x)", "english"),
        ("deleteByScope", "delete by scope", "english"),
        ("user", "getUserById", "english"),
        ("snake", "snake_case_name", "english"),
        ("RN 233", "fixed in RN-233", "english"),
        ("rn-233", "fixed in RN-233", "english"),
        ("C++", "written in C++, mostly", "english"),
        ("c#", "C# and F#", "english"),
        ("天気", "東京都の天気予報", "english"),
        ("날씨", "오늘날씨가 좋다", "english"),
        ("กรุงเทพ", "ไปกรุงเทพมหานคร", "english"),
        ("cafe\u0301", "café", "french"),
        ("ＡＢＣ", "abc", "english"),
        ("straße", "STRASSE", "german"),
        ("हिन्दी", "यह हिन्दी है", "hindi"),
        ("ёлка", "елка", "russian"),
        ("HTTP", "HTTPServer", "english"),
    ],
)
def test_question_finds_text(query: str, text: str, language: str):
    assert shared(query, text, language)


@pytest.mark.parametrize(
    ("query", "text"), [("C++", "C# is another"), ("C#", "C and C++"), ("c", "C++"), ("天気", "東京都の電気")]
)
def test_question_does_not_find_text(query: str, text: str):
    assert not shared(query, text)


def test_short_i_is_a_letter_of_its_own():
    assert fold("Йод") == "йод"
    assert fold("Ёж") == "еж"


def test_stems_count_more_than_words_in_a_question():
    assert Analyser().question("houses", ["english"]) == {"houses": WORD_WEIGHT, "~hous": STEM_WEIGHT}


def test_word_of_another_script_is_stemmed_by_its_own_language():
    assert "~migrat" in Analyser().question("migrations", ["russian"])


@given(st.text(max_size=200))
def test_counts_are_the_terms_and_the_same_each_time(text: str):
    analyser = Analyser()
    expected: dict[int, int] = {}
    for term in analyser.terms(text, ["english"]):
        expected[term_id(term)] = expected.get(term_id(term), 0) + 1
    assert analyser.count_terms(text, ["english"]) == expected
    assert analyser.count_terms(text, ["english"]) == expected


def test_a_file_of_one_letter_takes_linear_time():
    assert len(list(Analyser().terms("é" * 500_000, ["english"]))) == 3
