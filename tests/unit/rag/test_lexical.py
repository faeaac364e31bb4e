"""BM25 over arrays equals BM25 written out."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rag.lexical import K1, MAX_COUNT, B, build_index, encode_terms, rarity, score

documents = st.lists(st.dictionaries(st.integers(0, 12), st.integers(1, 300), max_size=8), max_size=12)


def plain_bm25(rows: list[dict[int, int]], query: dict[int, float]) -> list[float]:
    lengths = [sum(row.values()) for row in rows]
    mean = max(sum(lengths) / max(len(rows), 1), 1.0)
    scores = []
    for row, length in zip(rows, lengths, strict=True):
        total = 0.0
        for term, weight in query.items():
            df = sum(term in other for other in rows)
            idf = math.log(1 + (len(rows) - df + 0.5) / (df + 0.5))
            tf = row.get(term, 0)
            total += weight * idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * length / mean)) if tf else 0.0
        scores.append(total)
    return scores


@given(
    documents,
    st.dictionaries(st.integers(0, 14), st.sampled_from([1.0, 2.0]), max_size=5),
    st.integers(0, 12),
)
def test_scores_are_bm25_also_when_the_rows_lie_in_two_indexes(rows, query, cut):
    stored = [{term: min(count, MAX_COUNT) for term, count in row.items()} for row in rows]
    encoded = [encode_terms(Counter(row)) for row in rows]
    indexes = [build_index(encoded[:cut]), build_index(encoded[cut:])]
    found = np.concatenate(score(indexes, query, rarity(indexes, query)))
    assert np.allclose(found, plain_bm25(stored, query), rtol=1e-4)


def test_large_term_numbers_survive():
    index = build_index([encode_terms(Counter({2**64 - 1: 2, 2**63: 1}))])
    rows, counts = index.postings(2**64 - 1)
    assert (rows.tolist(), counts.tolist()) == ([0], [2])
    assert index.postings(5)[0].tolist() == []


def test_a_word_that_all_rows_have_is_worth_little():
    index = build_index([encode_terms(Counter({1: 1, 2 + n: 1})) for n in range(100)])
    worth = rarity([index], [1, 2])
    assert worth[1] < 0.01
    assert worth[2] > 3
