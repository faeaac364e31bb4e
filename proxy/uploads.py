"""An upload from first byte to receipt: the body under its limits, the form's parts, the file's place.

The file never waits in memory: its bytes go straight into an unnamed file in its folder, to be linked at the end.
Where they go is settled when `agent`, `project` and `folder` have all come before the file (empty counts). Otherwise
a later field may still change it, which is rare: the place is then guessed from what has come, and the bytes are
copied in the end if the guess was wrong. Nothing is made for a guess; where it leads nowhere the bytes wait in a
spool of our own.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from aiohttp import StreamReader, web

from proxy.errors import (
    AgentRequired,
    BodyTimeout,
    BodyTooLarge,
    FileTooLarge,
    InvalidRequest,
    MalformedBody,
    RepeatedField,
    TooManyUploads,
)
from proxy.multipart_form import FormParser, PartBegan, PartData
from proxy.place import Place
from proxy.settings import MediaSettings
from proxy.spool import Spools
from workspace.errors import ManagedBySystem, NoSuchFolder, WorkspaceError
from workspace.names import check_extension, clean_name, require_clean
from workspace.paths import RelPath, display, is_reserved, public_path
from workspace.publish import Incoming, Published

READ_BYTES = 128 * 1024
FRAMING_BYTES = 64 * 1024
MAX_TEXT_BYTES = 8 * 1024
RATE_GRACE = 30.0
PLACE_FIELDS = ("agent", "project", "folder")
FILE_FIELD = "file"


def check_declared_length(length: int | None, media: MediaSettings) -> None:
    """Refuse before any byte is read what cannot fit. Raises FileTooLarge."""
    if length is not None and length > media.max_bytes + FRAMING_BYTES:
        raise FileTooLarge(media.max_bytes)


def too_slow(received: int, waited: float, min_rate: int) -> bool:
    """Whether `received` bytes in `waited` seconds are below the average that is asked for after a grace."""
    return waited > RATE_GRACE and received < min_rate * waited


class Body:
    """A request's body in reads of at most `READ_BYTES`, every byte counted, be it framing or content.

    Only the time spent waiting for the client counts against it, never our own writing.
    """

    def __init__(self, content: StreamReader, media: MediaSettings, limit: int) -> None:
        self._content = content
        self._media = media
        self._limit = limit
        self._received = 0
        self._waited = 0.0

    async def read(self) -> bytes:
        """The next bytes, empty at the end. Raises BodyTimeout, BodyTooLarge, and MalformedBody when cut."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._media.idle_timeout):
                data = await self._content.read(READ_BYTES)
        except TimeoutError:
            raise BodyTimeout(self._media.idle_timeout) from None
        except (web.RequestPayloadError, ConnectionError) as error:
            raise MalformedBody("it was cut short") from error
        self._received += len(data)
        self._waited += time.monotonic() - began
        if self._received > self._limit:
            raise BodyTooLarge(self._limit)
        if data and too_slow(self._received, self._waited, self._media.min_rate):
            raise BodyTimeout(self._waited)
        return data


class Target(NamedTuple):
    """Where an upload goes: a folder below `public/` of one place."""

    place: Place
    folder: RelPath

    def is_same(self, other: Target) -> bool:
        """Whether both lead to the same folder of the same workspace."""
        mine, others = self.place, other.place
        return (mine.agent.key, mine.location, self.folder) == (
            others.agent.key,
            others.location,
            other.folder,
        )


class Receipt(NamedTuple):
    """What was published, and where."""

    place: Place
    published: Published


PreparePlace = Callable[[Place], Awaitable[None]]
FindPlace = Callable[[str | None, str | None], Awaitable[Place]]
Admit = Callable[[Place, int], Awaitable[None]]


def parse_folder(raw: str) -> RelPath:
    """The folder that a member names for an upload. Raises InvalidPath, InvalidName with what would be
    clean, and ManagedBySystem for `attachments/`."""
    folder = public_path(raw)
    if is_reserved(folder):
        raise ManagedBySystem(display(folder))
    for segment in folder.segments:
        require_clean(segment)
    return folder


class Uploads:
    """What all uploads share: each member's slots, and the spools. One for the process."""

    def __init__(
        self, media: MediaSettings, per_member: int, spool_directory: Path, prepare: PreparePlace
    ) -> None:
        self._prepare = prepare
        self._media = media
        self._per_member = per_member
        self._under_way: Counter[str] = Counter()
        self._spools = Spools(spool_directory)

    @contextmanager
    def slot(self, member_id: str) -> Iterator[None]:
        """One of the member's slots, held for the length of an upload. Raises TooManyUploads."""
        if self._under_way[member_id] >= self._per_member:
            raise TooManyUploads(self._per_member)
        self._under_way[member_id] += 1
        try:
            yield
        finally:
            self._under_way[member_id] -= 1
            if not self._under_way[member_id]:
                del self._under_way[member_id]

    async def receive(
        self, content: StreamReader, boundary: bytes, find_place: FindPlace, admit: Admit
    ) -> Receipt:
        """Read the form to its end, and only then publish its file.

        `find_place` gives the place of an agent and a project and raises what the member may not have;
        `admit` raises when a file of so many bytes has no room in the place.
        Whatever is raised, here or there, no name has changed.
        """
        body = Body(content, self._media, self._media.max_bytes + FRAMING_BYTES)
        parser = FormParser(boundary)
        async with AsyncExitStack() as stack:
            form = _UploadForm(
                self._media, self._spools, stack, find_place=find_place, prepare=self._prepare, admit=admit
            )
            while data := await body.read():
                for event in parser.feed(data):
                    if isinstance(event, PartBegan):
                        await form.begin(event)
                    elif isinstance(event, PartData):
                        await form.add(event.data)
            parser.finish()
            return await form.publish()

    def close(self) -> None:
        """End the spools' threads; no upload may be under way any more."""
        self._spools.close()


class _Held(Protocol):
    """The file's bytes while they have no name: in an unnamed file in a folder, or in a spool."""

    async def write(self, data: memoryview) -> None: ...

    def pieces(self) -> AsyncIterator[bytes]: ...


class _UploadForm:
    """The parts of one form as they come. What the stack holds is given back when the upload is over."""

    def __init__(
        self,
        media: MediaSettings,
        spools: Spools,
        stack: AsyncExitStack,
        *,
        find_place: FindPlace,
        prepare: PreparePlace,
        admit: Admit,
    ) -> None:
        self._media = media
        self._spools = spools
        self._find_place = find_place
        self._prepare = prepare
        self._admit = admit
        self._stack = stack
        self._fields: dict[str, bytearray] = {}
        self._part = ""
        self._size = 0
        self._name = ""
        self._is_settled = False
        self._guess: tuple[Target, Incoming] | None = None
        self._held: _Held | None = None
        self._buffer = memoryview(b"")
        self._filled = 0

    async def begin(self, part: PartBegan) -> None:
        if part.name in self._fields:
            raise RepeatedField(part.name[:100])
        if part.name != FILE_FIELD and part.raw_filename is not None:
            raise InvalidRequest(part.name[:100], f"only `{FILE_FIELD}` is a file")
        if part.name == FILE_FIELD:
            if part.raw_filename is None:
                raise InvalidRequest(FILE_FIELD, "it needs a file name")
            self._name = clean_name(part.raw_filename)
            check_extension(self._name, self._media.extensions, self._media.extensionless)
            self._held = await self._choose_where()
            self._buffer = memoryview(bytearray(READ_BYTES))
        self._part = part.name
        self._fields[part.name] = bytearray()

    async def add(self, data: memoryview) -> None:
        if self._part == FILE_FIELD:
            await self._add_to_file(data)
            return
        text = self._fields[self._part]
        text += data
        if len(text) > MAX_TEXT_BYTES:
            raise InvalidRequest(self._part[:100], f"it has more than {MAX_TEXT_BYTES} bytes")

    async def publish(self) -> Receipt:
        """The form is whole. Raises InvalidRequest when it had no file."""
        if self._held is None:
            raise InvalidRequest(FILE_FIELD, "it is missing")
        await self._flush(self._held)
        if self._guess and self._is_settled:
            target, incoming = self._guess
            return await self._publish(target, incoming)
        target = await self._settle()
        if self._guess and self._guess[0].is_same(target):
            return await self._publish(target, self._guess[1])
        async with target.place.workspace.receive(target.folder, make_folder=True) as incoming:
            async for piece in self._held.pieces():
                await incoming.write(piece)
            return await self._publish(target, incoming)

    async def _publish(self, target: Target, incoming: Incoming) -> Receipt:
        await self._admit(target.place, self._size)
        return Receipt(target.place, await incoming.publish(self._name))

    async def _add_to_file(self, data: memoryview) -> None:
        self._size += len(data)
        if self._size > self._media.max_bytes:
            raise FileTooLarge(self._media.max_bytes)
        while self._held and data:
            count = min(len(data), READ_BYTES - self._filled)
            self._buffer[self._filled : self._filled + count] = data[:count]
            self._filled += count
            data = data[count:]
            if self._filled == READ_BYTES:
                await self._flush(self._held)

    async def _flush(self, held: _Held) -> None:
        """Hand over what was gathered: each hand-over costs a change of threads, dearer than this copy."""
        if self._filled:
            await held.write(self._buffer[: self._filled])
            self._filled = 0

    async def _choose_where(self) -> _Held:
        self._is_settled = all(name in self._fields for name in PLACE_FIELDS)
        if self._is_settled:
            target: Target | None = await self._settle()
        else:
            target = await self._guess_target()
        if target:
            # A missing folder is made once the whole form is good, not for one that fails.
            skipped = (NoSuchFolder,) if self._is_settled else (WorkspaceError,)
            with suppress(*skipped):
                receiving = target.place.workspace.receive(target.folder)
                incoming = await self._stack.enter_async_context(receiving)
                self._guess = (target, incoming)
                return incoming
        return await self._stack.enter_async_context(self._spools.open())

    async def _guess_target(self) -> Target | None:
        """Where the file goes if no other field follows; None if one must. A field that has come stays as it is."""
        try:
            return await self._find_target()
        except AgentRequired:
            return None

    async def _settle(self) -> Target:
        """The target that the fields name. Makes the workspace's own folders, and nothing else."""
        target = await self._find_target()
        await self._prepare(target.place)
        return target

    async def _find_target(self) -> Target:
        folder = parse_folder(self._text("folder"))
        place = await self._find_place(self._text("agent") or None, self._text("project") or None)
        return Target(place, folder)

    def _text(self, name: str) -> str:
        try:
            return self._fields.get(name, b"").decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidRequest(name, "it is not UTF-8") from None
