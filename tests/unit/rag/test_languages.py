"""Languages are told apart by script and small words, and by nothing else."""

from __future__ import annotations

import pytest
import snowballstemmer

from rag.languages import _SCRIPTS, _SMALL_WORDS, guess_language, stemming_languages


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The house is on the hill, and it was built for the owner.", "english"),
        ("A casa fica no alto da colina e foi feita para o dono, que não mora lá.", "portuguese"),
        ("Дом стоит на холме, и хозяин в нём не живёт.", "russian"),
        ("Das Haus ist auf dem Hügel und wird von den Leuten nicht bewohnt.", "german"),
        ("La maison est sur la colline et elle a été faite pour le maître, qui ne vit pas dans la ville.", "french"),
        ("Το σπίτι είναι στον λόφο", "greek"),
        ("def main(): return 0", "english"),
        ("", "english"),
        ("天気予報", "english"),
    ],
)  # fmt: skip
def test_language(text: str, language: str):
    assert guess_language(text) == language


def test_few_small_words_do_not_outvote_the_likely_language():
    assert guess_language("x = de", "portuguese") == "portuguese"
    assert guess_language("x = 1", "german") == "german"


def test_every_language_has_a_stemmer():
    assert set(_SMALL_WORDS) | set(_SCRIPTS) - {"latin"} <= set(snowballstemmer.algorithms())


def test_a_word_is_stemmed_by_languages_of_its_script():
    languages = ["russian", "portuguese", "german"]
    assert stemming_languages("casa", languages) == ["portuguese", "german"]
    assert stemming_languages("дом", languages) == ["russian"]
    assert stemming_languages("house", ["russian"]) == ["english"]
    assert stemming_languages("дом", ["english"]) == []
