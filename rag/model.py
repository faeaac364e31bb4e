"""The values of the index. Frozen; what a client sees of them is decided by the routes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID


class Scope(StrEnum):
    """Where a chunk comes from, and with that what replaces it."""

    DOCS = "docs"
    ADR = "adr"
    SESSION = "session"
    LOCAL = "local"


class SkipReason(StrEnum):
    """Why a file is not indexed, or (``encoding``, ``secret``) why only a part of it is."""

    IGNORED = "ignored"
    HIDDEN = "hidden"
    EXTENSION = "extension"
    TOO_LARGE = "too_large"
    BINARY = "binary"
    ENCODING = "encoding"
    EMPTY = "empty"
    MINIFIED = "minified"
    SECRET = "secret"  # noqa: S105  # the name of a reason
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that is left out, or a directory (its path ends in ``/``) with so many ``files``."""

    path: str
    reason: SkipReason
    files: int = 1


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file that is found by search; with a ``reason`` some of its text was left out."""

    path: str
    chunks: int
    reason: SkipReason | None = None


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """A chunk ready to be stored. ``terms`` is ``rag.lexical.encode_terms`` of its analysis."""

    chunk_id: UUID
    source_path: str
    start_line: int
    end_line: int
    heading_path: tuple[str, ...]
    title: str | None
    content: str
    language: str
    terms: bytes


@dataclass(frozen=True, slots=True)
class PreparedFolder:
    """An attached folder, filtered, cut and analysed; nothing of it is stored yet."""

    folder_name: str
    files: tuple[IndexedFile, ...]
    skipped: tuple[Skipped, ...]
    chunks: tuple[PreparedChunk, ...]


@dataclass(frozen=True, slots=True)
class AttachReport:
    """What an attach did. ``generation`` identifies the new state of the scope."""

    folder_name: str
    generation: int
    files: tuple[IndexedFile, ...]
    skipped: tuple[Skipped, ...]
    chunks_created: int

    @property
    def partial(self) -> tuple[IndexedFile, ...]:
        """The indexed files of which some text was left out."""
        return tuple(file for file in self.files if file.reason)

    @property
    def files_skipped(self) -> int:
        """Files, not entries: an ignored directory counts as many as it holds."""
        return sum(skip.files for skip in self.skipped)


@dataclass(frozen=True, slots=True)
class LocalFile:
    """One line of what is attached: an indexed file, or a skipped file or directory."""

    path: str
    state: str  # indexed, partial, skipped
    reason: SkipReason | None
    files: int
    chunks: int
    chunks_without_vector: int


@dataclass(frozen=True, slots=True)
class LocalStatus:
    """The folder that is attached now."""

    folder_name: str
    attached_at: datetime
    attached_by: str
    files: tuple[LocalFile, ...]


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """Where a hit stands in a file; lines are inclusive and count from 1."""

    source_path: str
    start_line: int
    end_line: int
    heading_path: tuple[str, ...]
    title: str | None
    folder_name: str | None


@dataclass(frozen=True, slots=True)
class SessionOrigin:
    """Which event of which conversation a hit is."""

    session_id: str
    event_id: str
    title: str | None


@dataclass(frozen=True, slots=True)
class Ranks:
    """The place of a hit in each leg, from 1; None where that leg did not find it."""

    lexical: int | None
    vector: int | None


@dataclass(frozen=True, slots=True)
class Hit:
    """One citation. ``content`` is the whole chunk (or merged neighbours), ``excerpt`` the part that matched."""

    chunk_id: UUID
    scope: Scope
    content: str
    excerpt: str
    score: float
    ranks: Ranks
    origin: FileOrigin | SessionOrigin


@dataclass(frozen=True, slots=True)
class Searched:
    """The state of a scope that a search saw."""

    generation: int
    chunks: int
    without_vector: int


@dataclass(frozen=True, slots=True)
class VectorLeg:
    """Whether vectors took part in a search, and if not, why."""

    available: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits, best first. ``searched`` names the scopes that have anything to search."""

    search_id: UUID
    query: str
    hits: tuple[Hit, ...]
    vector: VectorLeg
    searched: dict[Scope, Searched]
