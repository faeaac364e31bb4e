"""Lexical indexes in memory, one a generation, built from the store when a search first needs them.

A generation never changes, so what is cached is never stale, in any number of processes; the least recently
used leave when the bytes run out.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from dataclasses import dataclass
from weakref import WeakValueDictionary

import asyncpg
import numpy as np
from numpy.typing import NDArray

from rag.lexical import LexicalIndex, build_index
from rag.queries import load

GENERATION_TERMS = load("rag", "index.sql").generation_terms
MAX_BYTES = 256 * 1024 * 1024
ROWS_AT_ONCE = 500
# A question is stemmed in the languages that a project speaks; the rarest of many are not worth the time.
MAX_LANGUAGES = 6


@dataclass(frozen=True, slots=True)
class GenerationIndex:
    """``sources[row]`` numbers the file or session of a row; ``languages`` are the most frequent first."""

    lexical: LexicalIndex
    sources: NDArray[np.int32]
    languages: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        return self.lexical.nbytes + self.sources.nbytes


class IndexCache:
    """One for each process. Never holds more than ``max_bytes``, save that the last one built always stays."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._indexes: OrderedDict[int, GenerationIndex] = OrderedDict()
        self._building: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    async def get(self, conn: asyncpg.Connection, project: str, generation: int) -> GenerationIndex:
        """The index of a generation that ``conn``'s transaction sees; others who want it wait for the first."""
        lock = self._building.setdefault(generation, asyncio.Lock())
        async with lock:
            if generation not in self._indexes:
                self._indexes[generation] = await _build(conn, project, generation)
                self._evict()
            self._indexes.move_to_end(generation)
            return self._indexes[generation]

    def _evict(self) -> None:
        size = sum(index.nbytes for index in self._indexes.values())
        while size > self._max_bytes and len(self._indexes) > 1:
            size -= self._indexes.popitem(last=False)[1].nbytes


async def _build(conn: asyncpg.Connection, project: str, generation: int) -> GenerationIndex:
    terms: list[bytes] = []
    sources: list[int] = []
    numbers: dict[str, int] = {}
    languages: Counter[str] = Counter()
    # In batches: decoding all rows at once would keep the event loop for longer than other requests can wait.
    async for row in conn.cursor(GENERATION_TERMS, project, generation, prefetch=ROWS_AT_ONCE):
        terms.append(row["terms"])
        sources.append(numbers.setdefault(row["source"], len(numbers)))
        languages[row["language"]] += 1
    lexical = await asyncio.to_thread(build_index, terms)
    common = sorted(languages, key=lambda language: (-languages[language], language))
    return GenerationIndex(lexical, np.array(sources, dtype=np.int32), tuple(common[:MAX_LANGUAGES]))
