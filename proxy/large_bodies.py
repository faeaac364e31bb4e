"""A bound on how many large request bodies are held in memory at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from proxy.errors import ServiceBusy

LARGE_BYTES = 1024 * 1024
AT_ONCE = 4


class LargeBodies:
    """Counts the bodies that have grown over `LARGE_BYTES` and are not let go of yet."""

    def __init__(self) -> None:
        self._held = 0

    @contextmanager
    def held(self) -> Iterator[Callable[[int], None]]:
        """While a body is read and worked on: call what this gives with its size so far. Raises ServiceBusy."""
        large = False

        def grown(size: int) -> None:
            nonlocal large
            if not large and size > LARGE_BYTES:
                if self._held >= AT_ONCE:
                    raise ServiceBusy
                self._held += 1
                large = True

        try:
            yield grown
        finally:
            self._held -= large
