"""Text from a harness made fit for UTF-8."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def without_surrogates(text: str) -> str:
    """The text with U+FFFD for each lone surrogate, so that it has an encoding."""
    try:
        text.encode()  # much faster than the search, and nearly always enough
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def clean(text: str) -> str:
    """NULs go (no store keeps them); lone surrogates become U+FFFD, but a high one at the very end is left out.

    A cumulative text may be cut between the halves of a pair: the next update brings both, and then extends
    what was taken of this one.
    """
    if "\ud800" <= text[-1:] <= "\udbff":
        text = text[:-1]
    return without_surrogates(text.replace("\0", ""))
