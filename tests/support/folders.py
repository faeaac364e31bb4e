"""Attached folders for tests: the limits, and a project to attach them to."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg

from rag.ingest import AttachedFile, FolderUpload
from rag.model import AttachReport, PreparedFolder
from rag.store import replace_local


@dataclass(frozen=True)
class Limits:
    """``[rag.local]`` with its defaults, and fewer extensions."""

    max_files: int = 500
    max_bytes: int = 8 * 1024 * 1024
    max_file_bytes: int = 512 * 1024
    max_chunks: int = 20_000
    extensions: tuple[str, ...] = ("txt", "md", "py", "ts", "js", "json", "csv")


async def add_project(pool: asyncpg.Pool, project: str) -> None:
    await pool.execute(
        "INSERT INTO projects (id, agent, owner, name, name_key) VALUES ($1, 'demo', 'ana', $1, $1)", project
    )


def prepare(project: str, files: dict[str, str | bytes], limits: Limits | None = None) -> PreparedFolder:
    upload = FolderUpload(limits or Limits())
    for path, content in files.items():
        upload.add(AttachedFile(path, content.encode() if isinstance(content, str) else content))
    return upload.prepare(project, "folder")


async def attach(pool: asyncpg.Pool, project: str, files: dict[str, str | bytes]) -> AttachReport:
    """Attach these texts to a project that exists."""
    return await replace_local(pool, project, prepare(project, files), attached_by="ana")
