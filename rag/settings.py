"""What the index needs to be told, as the shapes it asks for; the caller's own settings fit them."""

from __future__ import annotations

from typing import Protocol


class FolderLimits(Protocol):
    """The caps of one attached folder (``[rag.local]``). Bytes are of decoded text in UTF-8."""

    @property
    def max_files(self) -> int: ...

    @property
    def max_bytes(self) -> int: ...

    @property
    def max_file_bytes(self) -> int: ...

    @property
    def max_chunks(self) -> int: ...

    @property
    def extensions(self) -> tuple[str, ...]:
        """Lower case, without the dot."""
        ...
