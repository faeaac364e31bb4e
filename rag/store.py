"""The index in PostgreSQL: attach and detach a folder, and what is attached.

A generation is built beside the one that searches see, and takes its place in the same transaction: whoever
searches sees all of the old or all of the new, and an attach that fails or is killed leaves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import asyncpg

from rag.errors import UnknownProject
from rag.model import (
    AttachReport,
    IndexedFile,
    LocalFile,
    LocalStatus,
    PreparedChunk,
    PreparedFolder,
    Scope,
    Skipped,
    SkipReason,
)
from rag.pool import connection
from rag.queries import load

_SQL = load("rag", "index.sql")
LOCK_PROJECT = _SQL.lock_project
ADD_GENERATION = _SQL.add_generation
CARRY_VECTORS = _SQL.carry_vectors
DROP_GENERATIONS = _SQL.drop_generations
MAKE_CURRENT = _SQL.make_current
DETACH = _SQL.detach
ATTACHED = _SQL.attached
ATTACHED_FILES = _SQL.attached_files

_COLUMNS = (
    "generation", "ordinal", "chunk_id", "project", "scope", "source_path", "start_line", "end_line", "title",
    "heading_path", "content", "language", "terms",
)  # fmt: skip


async def replace_local(
    pool: asyncpg.Pool, project: str, prepared: PreparedFolder, *, attached_by: str
) -> AttachReport:
    """Make ``prepared`` the attached folder of the project, all of it or nothing. Attaches wait for each other.

    Only this and ``detach_local`` change scope ``local``. A reindex never does: the folder is on the member's
    machine, and there is nothing on the server to read it from again (docs/adr/0010-lexical-index.md).
    Raises UnknownProject, StoreUnavailable.
    """
    report = _report_json(prepared, attached_by)
    async with connection(pool) as conn:
        try:
            async with conn.transaction():
                await conn.execute(LOCK_PROJECT, project)
                generation = await conn.fetchval(ADD_GENERATION, project, Scope.LOCAL, report)
                rows = _rows(prepared.chunks, generation, project)
                await conn.copy_records_to_table("chunks", records=rows, columns=_COLUMNS)
                await conn.execute(CARRY_VECTORS, generation, project, Scope.LOCAL)
                await conn.execute(DROP_GENERATIONS, project, Scope.LOCAL, generation)
                await conn.execute(MAKE_CURRENT, generation, project)
        except asyncpg.ForeignKeyViolationError as error:
            raise UnknownProject(project) from error
    return AttachReport(
        prepared.folder_name, generation, prepared.files, prepared.skipped, len(prepared.chunks)
    )


async def detach_local(pool: asyncpg.Pool, project: str) -> bool:
    """Take the attached folder away; whether there was one. Raises StoreUnavailable."""
    async with connection(pool) as conn, conn.transaction():
        await conn.execute(LOCK_PROJECT, project)
        return bool(await conn.fetch(DETACH, project, Scope.LOCAL))


async def local_status(pool: asyncpg.Pool, project: str) -> LocalStatus | None:
    """The attached folder file by file, sorted by path; None if there is none. Raises StoreUnavailable."""
    async with connection(pool) as conn, conn.transaction(isolation="repeatable_read", readonly=True):
        attached = await conn.fetchrow(ATTACHED, project)
        if attached is None:
            return None
        stored = await conn.fetch(ATTACHED_FILES, project, attached["id"])
    report = json.loads(attached["report"])
    counts = {row["source_path"]: (row["chunks"], row["without_vector"]) for row in stored}
    files = [
        LocalFile(
            path=file["path"],
            state="partial" if file["reason"] else "indexed",
            reason=SkipReason(file["reason"]) if file["reason"] else None,
            files=1,
            chunks=counts[file["path"]][0],
            chunks_without_vector=counts[file["path"]][1],
        )
        for file in report["files"]
    ]
    files += [
        LocalFile(skip["path"], "skipped", SkipReason(skip["reason"]), skip["files"], 0, 0)
        for skip in report["skipped"]
    ]
    files.sort(key=lambda file: file.path)
    return LocalStatus(report["folder_name"], attached["attached_at"], report["attached_by"], tuple(files))


def _rows(chunks: tuple[PreparedChunk, ...], generation: int, project: str) -> Iterator[tuple[Any, ...]]:
    for ordinal, chunk in enumerate(chunks):
        yield (
            generation, ordinal, chunk.chunk_id, project, Scope.LOCAL.value, chunk.source_path, chunk.start_line,
            chunk.end_line, chunk.title, list(chunk.heading_path), chunk.content, chunk.language, chunk.terms,
        )  # fmt: skip


def _report_json(prepared: PreparedFolder, attached_by: str) -> str:
    def file(indexed: IndexedFile) -> dict[str, object]:
        return {"path": indexed.path, "chunks": indexed.chunks, "reason": indexed.reason}

    def skip(skipped: Skipped) -> dict[str, object]:
        return {"path": skipped.path, "reason": skipped.reason, "files": skipped.files}

    return json.dumps(
        {
            "folder_name": prepared.folder_name,
            "attached_by": attached_by,
            "files": [file(indexed) for indexed in prepared.files],
            "skipped": [skip(skipped) for skipped in prepared.skipped],
        }
    )
