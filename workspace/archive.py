"""A folder as the members of an archive, read as they are asked for. Runs on agent threads only.

What an archive is made of is decided here, how it is encoded by the caller: an ``Encoder`` turns members into bytes
and runs on an agent thread too, so that reading and packing a large folder never holds up the event loop.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass

from workspace.confine import closing
from workspace.directory import WorkspaceDirectory
from workspace.errors import ArchiveTooLarge, InvalidName, WorkspaceError
from workspace.listing import Omitted
from workspace.names import clean_name, number_name
from workspace.offload import Lane
from workspace.paths import PUBLIC, RelPath
from workspace.reading import Opened, open_regular
from workspace.walk import Budget, BytesPath, Walk

MAX_FILES = 10_000
MAX_BYTES = 2 * 1024**3
_READ_BYTES = 256 * 1024
_BATCH_BYTES = 256 * 1024
_BATCH_SECONDS = 0.05
_NAMELESS = "_"


@dataclass(frozen=True, slots=True)
class Member:
    """A file, or an empty folder (``content`` None). ``name`` is clean, with ``/`` between its segments."""

    name: str
    size: int
    content: Iterator[bytes] | None


@dataclass(frozen=True, slots=True)
class _Planned:
    path: RelPath
    name: str
    is_folder: bool


class Contents:
    """What an archive of ``folder`` has in it. ``omitted`` counts what is left out, and is final after the members."""

    def __init__(self, directory: WorkspaceDirectory, folder: RelPath, budget: Budget) -> None:
        """Raises what ``WorkspaceDirectory.open_folder`` raises, and ArchiveTooLarge, also for a spent budget."""
        self.omitted = Omitted()
        self._directory = directory
        self._budget = budget
        self._planned = self._plan(folder)

    def members(self) -> Generator[Member]:
        """Each is to be read before the next is asked for. Raises OSError when the disk fails."""
        room = MAX_BYTES
        for planned in self._planned:
            if planned.is_folder:
                yield Member(planned.name, 0, None)
                continue
            try:
                opened = open_regular(self._directory, planned.path)
            except WorkspaceError:  # gone, not for the agent, or held by a lease
                self.omitted.unreadable += 1
                continue
            with closing(opened.fd):
                if opened.size > room:  # it has grown since it was planned
                    self.omitted.too_large += 1
                    continue
                room -= opened.size
                yield Member(planned.name, opened.size, _read(opened))

    def _plan(self, folder: RelPath) -> list[_Planned]:
        base = tuple(os.fsencode(name) for name in (PUBLIC, *folder.segments))
        names = MemberNames()
        planned: dict[BytesPath, _Planned] = {}
        occupied: set[BytesPath] = set()
        size = 0
        with Walk(self._directory.open_folder(folder), base, batch=MAX_FILES, now=time.time()) as walk:
            for found in walk:
                size += 0 if found.is_folder else found.status.st_size
                if not self._budget.spend() or len(planned) >= MAX_FILES or size > MAX_BYTES:
                    raise ArchiveTooLarge(MAX_FILES, MAX_BYTES)
                if found.omission:
                    setattr(self.omitted, found.omission, getattr(self.omitted, found.omission) + 1)
                if found.is_listed:
                    occupied.add(found.path[:-1])
                    path = RelPath((*folder.segments, *(name.decode() for name in found.path)))
                    planned[found.path] = _Planned(path, names.add(found.path), found.is_folder)
        return [item for path, item in planned.items() if not (item.is_folder and path in occupied)]


Encoder = Callable[[Contents], Generator[bytes]]


class ArchiveStream:
    """The bytes of an archive, made while they are read."""

    def __init__(self, pieces: Generator[bytes], lane: Lane) -> None:
        self._pieces = pieces
        self._lane = lane
        self._ended = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Raises Busy, and OSError when the disk fails."""
        while not self._ended:
            if data := await self._lane.run(self._next_batch):
                yield data

    def _next_batch(self) -> bytes:
        """So much that the change of threads costs little, and so little that others get their turn."""
        batch = bytearray()
        until = time.monotonic() + _BATCH_SECONDS
        for piece in self._pieces:
            batch += piece
            if len(batch) >= _BATCH_BYTES or time.monotonic() > until:
                return bytes(batch)
        self._ended = True
        return bytes(batch)


class MemberNames:
    """Clean names for paths, parents first; no two are the same to a system that ignores case."""

    def __init__(self) -> None:
        self._given: dict[BytesPath, str] = {(): ""}
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}  # the last one tried for a name: thousands may clean to the same

    def add(self, path: BytesPath) -> str:
        """The name of a member; the folder that holds it was added before."""
        try:
            clean = clean_name(path[-1])
        except InvalidName:
            clean = _NAMELESS
        above = self._given[path[:-1]]
        name = wanted = above + clean
        key = wanted.casefold()
        while name.casefold() in self._taken:
            number = self._numbers[key] = self._numbers.get(key, 1) + 1
            name = above + number_name(clean, number)
        self._taken.add(name.casefold())
        self._given[path] = f"{name}/"
        return name


def _read(opened: Opened) -> Iterator[bytes]:
    """The file's bytes, as many as it had when it was opened, or fewer if it shrinks."""
    position = 0
    while position < opened.size and (
        data := os.pread(opened.fd, min(_READ_BYTES, opened.size - position), position)
    ):
        position += len(data)
        yield data
