"""What counts as one line of text that people may give things as a name (pure)."""

from __future__ import annotations

import unicodedata

# Joiners are spelling in Persian, Hindi and emoji; what turns the reading direction is not.
_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_NEVER = {"Cc", "Cs", "Zl", "Zp"}


def is_one_line(text: str) -> bool:
    """Whether the text has no line break, control character, lone surrogate or direction override."""
    return not any(character in _DIRECTION or unicodedata.category(character) in _NEVER for character in text)
