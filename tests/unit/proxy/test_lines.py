from __future__ import annotations

import pytest

from proxy.lines import is_one_line


@pytest.mark.parametrize("text", ["می‌خواهم", "क्‍ष", "👩‍👩‍👧 x", "計画 2", "", "a\u00a0b", "Straße"])
def test_spelling_of_every_script_is_a_line(text: str) -> None:
    assert is_one_line(text)


@pytest.mark.parametrize(
    "text", ["a\nb", "a\x00", "a\x7f", "a\u2028b", "a\u202eb", "\u2066a", "\ud800", "a\x85b"]
)
def test_breaks_controls_and_direction_overrides_are_not(text: str) -> None:
    assert not is_one_line(text)
