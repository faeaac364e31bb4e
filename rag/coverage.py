"""The honest account of what is indexed, counted in SQL without reading texts or vectors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from rag.pool import connection
from rag.queries import load

COVERAGE = load("rag", "index.sql").coverage


@dataclass(frozen=True, slots=True)
class LocalCoverage:
    """The attached folder. It has no total to compare with: it says what is indexed now.

    ``files_indexed`` and ``partial`` are different files; ``skipped`` counts files by reason.
    """

    folder_name: str
    files_indexed: int
    partial: int
    skipped: dict[str, int]
    last_attached_at: datetime


@dataclass(frozen=True, slots=True)
class Coverage:
    """``local`` is None while no folder is attached."""

    local: LocalCoverage | None
    chunks: int
    chunks_without_vector: int


async def coverage(pool: asyncpg.Pool, project: str) -> Coverage:
    """Count what the project's index holds. Raises StoreUnavailable."""
    async with connection(pool) as conn:
        row = await conn.fetchrow(COVERAGE, project)
    if row is None:
        return Coverage(None, 0, 0)
    local = LocalCoverage(
        row["folder_name"],
        row["files_indexed"],
        row["partial"],
        json.loads(row["skipped"]),
        row["last_attached_at"],
    )
    return Coverage(local, row["chunks"], row["without_vector"])
