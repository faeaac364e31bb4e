"""What can go wrong in the store and in the index, as facts with data (see ``workspace.errors``)."""

from __future__ import annotations

from dataclasses import dataclass


class RagError(Exception):
    """Base of every fact that this package raises; the dataclass fields of a subclass are its public data."""


@dataclass(eq=False)
class StoreUnavailable(RagError):
    """PostgreSQL does not answer; what needs it cannot be done now."""

    reason: str
