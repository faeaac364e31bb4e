"""BM25 with OR semantics over one generation, as arrays. Pure; an index is never changed once it is built.

Okapi BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009) with the IDF that is never
negative, ``ln(1 + (N - df + 0.5) / (df + 0.5))``. Several generations searched together share N, df and the
mean length, so that their scores can be compared.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

K1 = 0.8  # measured (docs/adr/0010); 0.6 to 1.5 differ by less than .003
B = 0.75
MAX_COUNT = 255  # a count is stored in one byte; BM25 is flat long before that
_ID_BYTES = 8


def encode_terms(counts: Counter[int]) -> bytes:
    """The stored form of a chunk's terms: their 64-bit numbers, then their counts, one byte each."""
    ids = struct.pack(f"<{len(counts)}Q", *counts.keys())
    return ids + bytes([count if count < MAX_COUNT else MAX_COUNT for count in counts.values()])


@dataclass(frozen=True, slots=True)
class LexicalIndex:
    """The postings of one generation, by term (compressed sparse rows); a row number is a chunk's ordinal."""

    terms: NDArray[np.uint64]  # sorted, distinct
    starts: NDArray[np.int64]  # terms[i] has the postings starts[i]:starts[i + 1]
    rows: NDArray[np.int32]
    counts: NDArray[np.uint8]
    lengths: NDArray[np.float32]  # terms of each row, counted with their repetitions

    @property
    def size(self) -> int:
        """How many chunks it holds."""
        return len(self.lengths)

    @property
    def total_length(self) -> float:
        """The terms of all rows together."""
        return float(self.lengths.sum())

    @property
    def nbytes(self) -> int:
        arrays = (self.terms, self.starts, self.rows, self.counts, self.lengths)
        return sum(array.nbytes for array in arrays)

    def postings(self, term: int) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """The rows that have the term, and how often."""
        place = int(np.searchsorted(self.terms, np.uint64(term)))
        if place == len(self.terms) or self.terms[place] != term:
            return self.rows[:0], self.counts[:0]
        span = slice(int(self.starts[place]), int(self.starts[place + 1]))
        return self.rows[span], self.counts[span]


def build_index(encoded: Sequence[bytes]) -> LexicalIndex:
    """Index what ``encode_terms`` made, one entry a chunk, in the order of their ordinals.

    Meant for a thread beside an event loop: no step holds the interpreter for long.
    """
    sizes = np.fromiter(
        (len(blob) // (_ID_BYTES + 1) for blob in encoded), dtype=np.int64, count=len(encoded)
    )
    ends = np.cumsum(sizes)
    ids = np.empty(int(sizes.sum()), dtype=np.uint64)
    counts = np.empty(len(ids), dtype=np.uint8)
    lengths = np.zeros(len(encoded), dtype=np.float32)
    for row, (blob, size, end) in enumerate(zip(encoded, sizes.tolist(), ends.tolist(), strict=True)):
        ids[end - size : end] = np.frombuffer(blob, dtype="<u8", count=size)
        own = np.frombuffer(blob, dtype="u1", offset=size * _ID_BYTES)
        counts[end - size : end] = own
        lengths[row] = own.sum(dtype=np.int64)
    rows = np.repeat(np.arange(len(encoded), dtype=np.int32), sizes)
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    first = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))[: len(ids)]
    return LexicalIndex(ids[first], np.append(first, len(ids)), rows[order], counts[order], lengths)


def rarity(indexes: Sequence[LexicalIndex], terms: Iterable[int]) -> dict[int, float]:
    """The IDF of each term over all the indexes together: near 0 for a word that every chunk has."""
    total = sum(index.size for index in indexes)
    found = {term: sum(len(index.postings(term)[0]) for index in indexes) for term in terms}
    return {term: float(np.log1p((total - df + 0.5) / (df + 0.5))) for term, df in found.items()}


def score(
    indexes: Sequence[LexicalIndex], question: Mapping[int, float], idf: Mapping[int, float]
) -> list[NDArray[np.float32]]:
    """The BM25 score of every row of each index for a question's weighted terms; 0 where none occurs.

    ``idf`` is ``rarity(indexes, question)``.
    """
    total = sum(index.size for index in indexes)
    mean = sum(index.total_length for index in indexes) / max(total, 1)
    scores = []
    for index in indexes:
        norm = (K1 * (1 - B) + K1 * B / max(mean, 1.0) * index.lengths).astype(np.float32)
        into = np.zeros(index.size, dtype=np.float32)
        for term, importance in question.items():
            rows, counts = index.postings(term)
            if len(rows):
                frequency = counts.astype(np.float32)
                into[rows] += np.float32(importance * idf[term] * (K1 + 1)) * (
                    frequency / (frequency + norm[rows])
                )
        scores.append(into)
    return scores
