"""A folder as a zip file: what packs it, and one at a time for each member."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from zipfile import ZIP_DEFLATED

from zipstream import ZipStream

from proxy.errors import TooManyArchives
from workspace.archive import Contents

# The first level already takes what text has to give, at several times the speed of the usual one.
COMPRESSION_LEVEL = 1


class ArchiveSlots:
    """Who has an archive under way."""

    def __init__(self) -> None:
        self._members: set[str] = set()

    @contextmanager
    def slot(self, member_id: str) -> Iterator[None]:
        """The member's one slot, held for the length of an archive. Raises TooManyArchives."""
        if member_id in self._members:
            raise TooManyArchives(1)
        self._members.add(member_id)
        try:
            yield
        finally:
            self._members.discard(member_id)


def zip_of(contents: Contents) -> Generator[bytes]:
    """The bytes of a zip file; its comment says what was left out. Raises OSError when the disk fails."""
    packed = ZipStream(compress_type=ZIP_DEFLATED, compress_level=COMPRESSION_LEVEL)
    with closing(contents.members()) as members:
        for member in members:
            if member.content is None:
                packed.mkdir(member.name)
            else:
                packed.add(member.content, member.name, size=member.size)
            yield from packed.all_files()
    left_out = [f"{count} {kind}" for kind, count in asdict(contents.omitted).items() if count]
    if left_out:
        packed.comment = "left out: " + ", ".join(left_out)
    yield from packed.footer()
