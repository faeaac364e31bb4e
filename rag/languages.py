"""Which language a piece of text is probably in: script first, then the most common small words. Pure.

The guess only chooses the Snowball stemmer. A wrong one costs a little recall and nothing else, since the
words themselves are indexed beside the stems; so the lists are short and there is no model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

DEFAULT_LANGUAGE = "english"
GUESS_CHARACTERS = 4000
SHARED_VOTE = 12
CLEAR_LEAD = 1.5  # code and tables have few small words, and those few mislead

# Scripts that have one stemmer, by its name; Latin text needs the word lists below.
_SCRIPTS = {
    "russian": re.compile("[\u0400-\u04ff]"),
    "greek": re.compile("[\u0370-\u03ff\u1f00-\u1fff]"),
    "arabic": re.compile("[\u0600-\u06ff]"),
    "armenian": re.compile("[\u0530-\u058f]"),
    "hindi": re.compile("[\u0900-\u097f]"),
    "tamil": re.compile("[\u0b80-\u0bff]"),
    "latin": re.compile("[A-Za-z\u00c0-\u024f]"),
}
_LATIN_WORD = re.compile("[a-z\u00df-\u024f]+")

# Words that are frequent in one language and rare in the others; a word of several lists votes for each.
_SMALL_WORDS = {
    "english": "the and of to is that for with was are this from which not have it be by as on an at or",
    "portuguese": "de que não do da em um uma para com os dos das é ao pela pelo são mais foi como se no na",
    "spanish": "de que el la los las del y en un una para con por es al lo como más pero su se fue son",
    "french": "de le la les des et est un une du que pour dans qui sur pas avec au aux sont par il elle",
    "italian": "di che il la le gli della e è un una per con del dei nel non sono si alla da come più",
    "german": "der die und das ist nicht ein eine den von mit für dem des auf im zu sich auch wird werden",
    "dutch": "de het een en van is dat niet op voor met zijn die te aan er ook wordt door naar bij",
    "swedish": "och att det som en är för på av med den till inte ett om har de från kan var",
    "danish": "og at det er en af til på som med den for der ikke et har de fra kan blev",
    "norwegian": "og at det er en av til på som med den for ikke et har de fra kan ble eller",
    "finnish": "ja on ei että se oli ovat myös mutta kun joka tai hän sekä kuin niin ole jotka",
    "hungarian": "a az és hogy nem egy is volt meg ez csak mint már vagy még de van ki",
    "polish": "i w nie na się że jest do z to jak o po co ale od za przez dla oraz są",
    "czech": "a se v na je že s z do o to jako i pro by ale byl jsou nebo jeho",
    "romanian": "și de în a la cu pe că nu o din este un pentru care mai sau fost prin sunt",
    "turkish": "ve bir bu için ile da de olarak çok daha olan gibi sonra kadar ise değil var",
    "indonesian": "yang dan di dari untuk dengan ini pada itu dalam tidak adalah ke akan oleh juga",
    "catalan": "de que i la el els les del en un una per amb és no al com més seva",
}
_VOTES: dict[str, tuple[str, ...]] = {}
for _language, _words in _SMALL_WORDS.items():
    for _word in _words.split():
        _VOTES[_word] = (*_VOTES.get(_word, ()), _language)


def stemming_languages(word: str, languages: Iterable[str]) -> list[str]:
    """Which of ``languages`` can stem this word: those of its script; Latin words always have a stemmer."""
    script = "latin" if word.isascii() else _script(word)
    if script != "latin":
        return [language for language in languages if language == script]
    return [language for language in languages if language not in _SCRIPTS] or [DEFAULT_LANGUAGE]


def _script(text: str) -> str | None:
    """The first of the known scripts that ``text`` has a letter of."""
    return next((name for name, pattern in _SCRIPTS.items() if pattern.search(text)), None)


@lru_cache(maxsize=4096)
def _character_script(character: str) -> str | None:
    return _script(character)


def guess_language(text: str, likely: str = DEFAULT_LANGUAGE) -> str:
    """The Snowball name of the language: ``likely``, unless script or small words clearly tell another.

    Reads at most GUESS_CHARACTERS from the start. Ties fall to the name that sorts first, so that the same
    text always has the same answer.
    """
    sample = text[:GUESS_CHARACTERS]
    if sample.isascii():
        return _latin_language(sample, likely)
    letters: Counter[str] = Counter()
    for character, repeated in Counter(sample).items():
        if script := _character_script(character):
            letters[script] += repeated
    script = max(letters, key=lambda name: (letters[name], name), default="latin")
    return _latin_language(sample, likely) if script == "latin" else script


def _latin_language(sample: str, likely: str) -> str:
    votes: Counter[str] = Counter()
    for word, repeated in Counter(_LATIN_WORD.findall(sample.casefold())).items():
        for language in _VOTES.get(word, ()):
            # A word that many languages share says little about any of them.
            votes[language] += repeated * SHARED_VOTE // len(_VOTES[word])
    best = min(votes, key=lambda language: (-votes[language], language), default=likely)
    return best if votes[best] > CLEAR_LEAD * votes[likely] else likely
