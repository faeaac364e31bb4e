"""Search over the scopes of a project: rank, choose, cite."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import asyncpg
import numpy as np
from numpy.typing import NDArray

from rag.analysis import STEM_MARK, Analyser, term_id
from rag.citations import Passage, excerpt, select
from rag.index_cache import GenerationIndex, IndexCache
from rag.lexical import rarity, score
from rag.model import FileOrigin, Hit, Ranks, Scope, Searched, SearchResult, SessionOrigin, VectorLeg
from rag.pool import connection
from rag.queries import load

_SQL = load("rag", "index.sql")
CURRENT_GENERATIONS = _SQL.current_generations
CHUNKS_BY_ORDINAL = _SQL.chunks_by_ordinal

HITS_A_SOURCE = 3
# Candidates read from the store for each hit asked for: merging and the cap on a file's hits use some up.
CANDIDATES_A_HIT = 2
SORTED_AT_ONCE = 1000
NO_VECTORS = VectorLeg(False, "this version searches by words; it makes no vectors")

_Place = tuple[int, int, float]  # which generation (by position), which row of it, its score


class Searcher:
    """Searches one store. One for each process: it keeps the indexes and the stems that it needed."""

    def __init__(self, pool: asyncpg.Pool, cache: IndexCache | None = None) -> None:
        self._pool = pool
        self._cache = cache or IndexCache()
        self._analyser = Analyser()

    async def search(
        self,
        project: str,
        query: str,
        scopes: Collection[Scope] = tuple(Scope),
        limit: int = 10,
        per_source: int | None = HITS_A_SOURCE,
    ) -> SearchResult:
        """Find chunks of the project that share words with the query (OR), best first; equals in reading order.

        ``per_source`` caps the hits of one file or session, None does not. A project that is not there has no
        hits. Raises StoreUnavailable.
        """
        async with (
            connection(self._pool) as conn,
            # One snapshot: a generation replaced meanwhile is still there, whole, until the search is over.
            conn.transaction(isolation="repeatable_read", readonly=True),
        ):
            generations = await conn.fetch(CURRENT_GENERATIONS, project, [str(scope) for scope in scopes])
            indexes = [await self._cache.get(conn, project, row["id"]) for row in generations]
            languages = dict.fromkeys(language for index in indexes for language in index.languages)
            question = self._analyser.question(query, languages)
            places, idf = await asyncio.to_thread(_rank, indexes, question, limit, per_source)
            ids = [generations[position]["id"] for position, _, _ in places]
            rows = await conn.fetch(CHUNKS_BY_ORDINAL, project, ids, [row for _, row, _ in places])
        stored = {(row["generation"], row["ordinal"]): row for row in rows}
        passages = [
            _passage(rank, place[2], stored[generation, place[1]])
            for rank, (generation, place) in enumerate(zip(ids, places, strict=True), start=1)
        ]
        folders = {Scope(row["scope"]): row["folder_name"] for row in generations}
        searched = {
            Scope(row["scope"]): Searched(row["id"], index.lexical.size, row["without_vector"])
            for row, index in zip(generations, indexes, strict=True)
        }
        hits = tuple(
            _hit(passage, idf, folders[passage.scope]) for passage in select(passages, limit, per_source)
        )
        return SearchResult(uuid4(), query, hits, NO_VECTORS, searched)


def _rank(
    indexes: Sequence[GenerationIndex], question: Mapping[str, float], limit: int, per_source: int | None
) -> tuple[list[_Place], dict[str, float]]:
    """The best rows of all indexes, enough for ``limit`` hits, and what each word of the question is worth."""
    if not indexes or not question:
        return [], {}
    lexical = [index.lexical for index in indexes]
    numbers = {term: term_id(term) for term in question}
    idf = rarity(lexical, numbers.values())
    weights = {numbers[term]: weight for term, weight in question.items()}
    scores = np.concatenate(score(lexical, weights, idf))
    ends = np.cumsum([index.lexical.size for index in indexes])
    needles = {term.removeprefix(STEM_MARK): idf[number] for term, number in numbers.items()}
    places: list[_Place] = []
    taken: Counter[tuple[int, int]] = Counter()
    hits = 0
    for flat in _best_first(scores):
        position = int(np.searchsorted(ends, flat, side="right"))
        row = flat - int(ends[position]) + indexes[position].lexical.size
        source = (position, int(indexes[position].sources[row]))
        if per_source is None or taken[source] < per_source * CANDIDATES_A_HIT:
            hits += per_source is None or taken[source] < per_source
            taken[source] += 1
            places.append((position, row, float(scores[flat])))
        if hits == limit * CANDIDATES_A_HIT:
            break
    return places, needles


def _best_first(scores: NDArray[np.float32]) -> Iterator[int]:
    """The rows with a score, best first, equals in order; all but the first thousand are sorted only if asked for."""
    found = np.flatnonzero(scores)
    values = scores[found]
    least = np.partition(values, -SORTED_AT_ONCE)[-SORTED_AT_ONCE] if len(found) > SORTED_AT_ONCE else 0
    for part in (found[values >= least], found[values < least]):
        yield from part[np.argsort(-scores[part], kind="stable")].tolist()


def _passage(rank: int, score_: float, row: Mapping[str, Any]) -> Passage:
    return Passage(
        rank=rank,
        score=score_,
        scope=Scope(row["scope"]),
        chunk_id=row["chunk_id"],
        source=row["source_path"] if row["session_id"] is None else row["session_id"],
        event_id=row["event_id"],
        start_line=row["start_line"] or 0,
        end_line=row["end_line"] or 0,
        heading_path=tuple(row["heading_path"]),
        title=row["title"],
        content=row["content"],
    )


def _hit(passage: Passage, needles: Mapping[str, float], folder_name: str | None) -> Hit:
    origin: FileOrigin | SessionOrigin
    if passage.event_id is not None:
        origin = SessionOrigin(passage.source, passage.event_id, passage.title)
    else:
        origin = FileOrigin(
            passage.source,
            passage.start_line,
            passage.end_line,
            passage.heading_path,
            passage.title,
            folder_name,
        )
    return Hit(
        chunk_id=passage.chunk_id,
        scope=passage.scope,
        content=passage.content,
        excerpt=excerpt(passage.content, needles),
        score=round(passage.score, 4),
        ranks=Ranks(lexical=passage.rank, vector=None),
        origin=origin,
    )
