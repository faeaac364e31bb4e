"""Times in a listing: an agent may set any."""

from __future__ import annotations

import pytest

from workspace.listing import modified


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_767_225_600.123, "2026-01-01T00:00:00.123Z"),
        (-1e12, "1970-01-01T00:00:00.000Z"),
        (1e13, "9999-12-31T23:59:59.000Z"),
    ],
)
def test_any_time_is_told(seconds: float, text: str) -> None:
    assert modified(seconds) == text
