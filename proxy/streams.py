"""How many streams a member may have open, whatever flows in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from proxy.errors import TooManyStreams


class StreamSlots:
    """Each member's open streams. One for the process."""

    def __init__(self, per_member: int) -> None:
        self._per_member = per_member
        self._open: Counter[str] = Counter()

    @contextmanager
    def slot(self, member_id: str) -> Iterator[None]:
        """One of the member's slots, held for the length of a stream. Raises TooManyStreams."""
        if self._open[member_id] >= self._per_member:
            raise TooManyStreams(self._per_member)
        self._open[member_id] += 1
        try:
            yield
        finally:
            self._open[member_id] -= 1
            if not self._open[member_id]:
                del self._open[member_id]
