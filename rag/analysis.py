"""Text to index terms: one function for what is stored and for what is asked. Pure.

A *compound* is a run of letters, digits and the joiners of identifiers and paths (``src/app/main.py``,
``getUserById``, ``RN-233``). It yields itself, its path segments, its words and the humps of its words, so
that any of them finds it. A word yields its folded form (case, width, accents), its own form where accents
change it, and its Snowball stem, marked as one. Runs of scripts written without spaces yield their 2-grams.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b

import snowballstemmer

from rag.languages import stemming_languages

STEM_MARK = "~"
# What a term counts in a question. Measured (docs/adr/0010): 2 for stems is worth .007 in Russian, 0 elsewhere.
STEM_WEIGHT = 2.0
WORD_WEIGHT = 1.0

# Thai, Lao, Khmer, Myanmar; kana; Han with extensions; Hangul.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
# `re` knows no \p{M}: a combining mark belongs to its word (Devanagari vowels, decomposed accents).
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f"
    "\u0981-\u0983\u09bc-\u09cd\u0a01-\u0a03\u0a3c-\u0a4d\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03\u0b3c-\u0b4d"
    "\u0b82\u0bbe-\u0bcd\u0c00-\u0c04\u0c3e-\u0c56\u0c81-\u0c83\u0cbc-\u0cd6\u0d00-\u0d03\u0d3b-\u0d4d"
)
# Possessive: what a word has taken it never gives back, so the time is linear.
_WORD = f"(?:[^\\W_{_UNSPACED}]++[{_MARKS}]*+)++"
_SHARP = r"[A-Za-z](?:\+\+|#)(?![\w#+])"  # C++, C#, F#
_COMPOUND = re.compile(
    f"[{_UNSPACED}]+"  # first, for Thai vowels are no \\w and would cut the run
    f"|{_SHARP}|{_WORD}(?:[-._/:\\\\]+{_WORD})*"
)
_ASCII_COMPOUND = re.compile(f"{_SHARP}|[A-Za-z0-9]++(?:[-._/:\\\\]+[A-Za-z0-9]++)*", re.ASCII)
_RUN = re.compile(f"[{_UNSPACED}]")
_JOINERS = re.compile(r"[-._/:\\]+")
_SEGMENTS = re.compile(r"[/\\]+")
# userID → user, ID; HTTPServer → HTTP, Server; utf8 → utf, 8 (numbers too: "RN233" is asked as "RN 233").
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^A-Z\d]+|\d+")
_HAS_HUMPS = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]|[^\W\d_]\d|\d[^\W\d_]")
_ACCENTS = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670]")
# й is a letter of its own, not an accented и; this private character stands for it while accents go.
_SHELTER = "\ue000"
_LETTERS_WITHOUT_DECOMPOSITION = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ı": "i", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th"}
)
MAX_REMEMBERED = 100_000  # words, then new ones are worked out each time
MAX_STEMMED = 64  # characters; no ending matters in what is longer
_DIGIT = re.compile(r"\d")


def normalise(text: str) -> str:
    """NFKC: full-width letters, ligatures and decomposed accents become their plain forms."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _compounds(text: str) -> list[str]:
    """Most text is ASCII, and finding its words takes a third of the time then."""
    if text.isascii():
        return _ASCII_COMPOUND.findall(text)
    return _COMPOUND.findall(normalise(text))


def fold(word: str) -> str:
    """Case and accents taken away: ``Migração`` and ``migracao`` fold alike."""
    lowered = word.casefold()
    if lowered.isascii():
        return lowered
    bare = _ACCENTS.sub("", unicodedata.normalize("NFD", lowered.replace("й", _SHELTER))).replace(
        _SHELTER, "й"
    )
    return unicodedata.normalize("NFC", bare).translate(_LETTERS_WITHOUT_DECOMPOSITION)


def term_id(term: str) -> int:
    """The 64-bit number under which a term is stored; two terms in one project sharing one is not expected."""
    return int.from_bytes(blake2b(term.encode(), digest_size=8).digest(), "little")


class Analyser:
    """Analysis with memory: words repeat, and a stem costs some 50 µs.

    Not for use from two threads at once (a Snowball stemmer has state); each owner makes its own.
    """

    def __init__(self) -> None:
        self._stemmers: dict[str, snowballstemmer.StemmerBase] = {}
        self._stems: dict[tuple[str, str], str] = {}
        self._ids: dict[tuple[str, ...], dict[str, tuple[int, ...]]] = {}

    def terms(self, text: str, languages: Iterable[str]) -> Iterator[str]:
        """All terms of ``text``, in order and repeated as often as they occur."""
        chosen = tuple(languages)
        for compound in _compounds(text):
            yield from self._terms(compound, chosen)

    def count_terms(self, text: str, languages: Iterable[str]) -> Counter[int]:
        """How often each term of ``text`` occurs, by its number."""
        chosen = tuple(languages)
        known = self._ids.setdefault(chosen, {})
        counts: Counter[int] = Counter()
        for compound, repeated in Counter(_compounds(text)).items():
            ids = known.get(compound)
            if ids is None:
                ids = tuple(map(term_id, self._terms(compound, chosen)))
                if len(known) < MAX_REMEMBERED:
                    known[compound] = ids
            for number in ids:
                counts[number] += repeated
        return counts

    def question(self, text: str, languages: Iterable[str]) -> dict[str, float]:
        """The terms of a question and what each counts in it."""
        weights: dict[str, float] = {}
        for term in self.terms(text, languages):
            weight = STEM_WEIGHT if term.startswith(STEM_MARK) else WORD_WEIGHT
            weights[term] = weights.get(term, 0.0) + weight
        return weights

    def _terms(self, compound: str, languages: tuple[str, ...]) -> Iterator[str]:
        if _RUN.match(compound):
            yield from _two_grams(compound)
            return
        if compound[-1] in "+#":
            yield compound.casefold()
            return
        words = _JOINERS.split(compound)
        if len(words) > 1:
            segments = _SEGMENTS.split(compound)
            yield from dict.fromkeys(fold(part) for part in (compound, *segments) if part not in words)
        for word in words:
            if _HAS_HUMPS.search(word):
                yield fold(word)
                for hump in _HUMPS.findall(word):
                    yield from self._word_terms(hump, languages)
            else:
                yield from self._word_terms(word, languages)

    def _word_terms(self, word: str, languages: tuple[str, ...]) -> Iterator[str]:
        lowered, folded = word.casefold(), fold(word)
        yield folded
        if lowered != folded:
            yield lowered
        if not _DIGIT.search(word):
            stems = (self._stem(lowered, language) for language in stemming_languages(word, languages))
            yield from dict.fromkeys(STEM_MARK + fold(stem) for stem in stems)

    def _stem(self, word: str, language: str) -> str:
        stem = self._stems.get((word, language))
        if stem is None:
            if language not in self._stemmers:
                self._stemmers[language] = snowballstemmer.stemmer(language)
            stem = self._stemmers[language].stemWord(word[:MAX_STEMMED])
            if len(self._stems) < MAX_REMEMBERED:
                self._stems[word, language] = stem
        return stem


def _two_grams(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
    for position in range(len(run) - 1):
        yield run[position : position + 2]
