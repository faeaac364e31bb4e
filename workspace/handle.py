"""The handle of one workspace: what the rest of the service may do with it, without blocking the loop."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from workspace import changes, listing, reading, removal
from workspace.archive import ArchiveStream, Contents, Encoder
from workspace.changes import Emptied, ExtensionLists
from workspace.directory import WorkspaceDirectory
from workspace.errors import Busy, NoSuchFolder, NotPermitted
from workspace.legacy import LegacyDirectory, Migrations
from workspace.listing import FileState, Listing
from workspace.location import Location, project_root
from workspace.offload import AgentThreads, Lane
from workspace.paths import RelPath
from workspace.publish import Draft, Incoming
from workspace.reading import Leased, Opened, OpenFile
from workspace.settings import AgentTree
from workspace.usage import Usage, usage
from workspace.walk import Budget
from workspace.watch import Subscription, Watches

LEASE_SECONDS = 2.0
_LEASE_RETRY_SECONDS = 0.05
_EMPTYING_SLICE_SECONDS = 2.0


class Workspace:
    """One workspace of an agent. Every operation opens it afresh, on an agent thread.

    Besides what each names, all raise Busy when too much work waits, and AgentRightsUnavailable where the service
    cannot act as the agent.
    """

    def __init__(
        self,
        tree: AgentTree,
        location: Location,
        threads: AgentThreads,
        watches: Watches,
        migrations: Migrations | None = None,
        *,
        durable: bool = True,
    ) -> None:
        root = project_root(location)
        legacy = LegacyDirectory(migrations, threads, tree.root, str(root)) if migrations else None
        self._directory = WorkspaceDirectory(tree, root, threads.rights, legacy)
        self._threads = threads
        self._watches = watches
        self._durable = durable

    async def prepare(self) -> None:
        """Make the public directory and ``attachments`` in it, where they are missing; all is the agent's.

        What else lies in the place of ``attachments`` is left to the deliveries to meet. Raises NoSuchFolder when the
        agent's tree is missing, NotPermitted, NoSpace, ReadOnly, PublicIsNotAFolder.
        """
        try:
            await self._threads.run(self._directory.make_public)
        except (NoSuchFolder, NotPermitted):
            await self._threads.run_beside(self._directory.make_workspace)
            await self._threads.run(self._directory.make_public)

    @asynccontextmanager
    async def receive(self, folder: RelPath, *, make_folder: bool = False) -> AsyncIterator[Incoming]:
        """A file that is written and published inside the block; without a publication nothing is left of it.

        ``folder`` is below the public directory. Raises NoSuchFolder unless ``make_folder``, IsAFile,
        PublicIsNotAFolder, MountInside, NotPermitted, NoSpace, ReadOnly.
        """

        def begin() -> Draft:
            return Draft(self._directory, folder, make_folder=make_folder, durable=self._durable)

        draft = await self._threads.run_opening(begin, Draft.discard)
        lane = Lane(self._threads, draft.discard)
        try:
            yield await Incoming.begin(draft, lane, folder)
        finally:
            await lane.close()

    async def list(self, folder: RelPath, *, cursor: str | None, limit: int) -> Listing:
        """A page of everything below a folder: see ``listing.list_page``. Makes nothing.

        Raises NoSuchFolder, IsAFile, PublicIsNotAFolder, MountInside, NotReadable, InvalidPath for the cursor.
        """
        return await self._threads.run(listing.list_page, self._directory, folder, cursor, limit, Budget())

    async def open(self, path: RelPath) -> OpenFile:
        """A regular file, for reading; the caller closes it.

        Raises NotFound, NotReadable, PublicIsNotAFolder, MountInside; Busy if a lease on it is not given up.
        """
        deadline = asyncio.get_running_loop().time() + LEASE_SECONDS
        while True:
            try:
                opened = await self._threads.run_opening(
                    reading.open_regular, Opened.close, self._directory, path
                )
            except Leased:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(_LEASE_RETRY_SECONDS)
            else:
                return OpenFile(opened, self._threads, path)

    async def snapshot(self) -> dict[str, FileState]:
        """What lies in ``public/attachments``: see ``listing.attachments_state``."""
        return await self._threads.run(listing.attachments_state, self._directory, Budget())

    def watch(self) -> AbstractAsyncContextManager[Subscription]:
        """What changes below the public directory while the block lasts; makes nothing.

        Raises PublicIsNotAFolder, NotReadable, MountInside, and Busy when the service ends.
        """
        key = f"{self._directory.tree.root}/{self._directory.root}"
        return self._watches.subscribe(key, self._directory, self._threads)

    async def remove(self) -> bool:
        """Take the whole workspace away: see ``removal.remove``. Raises NotPermitted."""
        return await self._threads.run_beside(removal.remove, self._directory)

    async def make_folder(self, path: RelPath) -> None:
        """Make a folder with its parents, and whatever is missing of the workspace; one that is there is left.

        Raises as ``prepare``, InvalidName for a missing segment that is not clean, IsAFile, MountInside.
        """
        await self.prepare()
        await self._threads.run(self._make_folder, path)

    async def delete_file(self, path: RelPath) -> None:
        """Delete anything but a folder: see ``changes.delete_file`` for what it raises."""
        await self._threads.run(changes.delete_file, self._directory, path)

    async def delete_folder(self, path: RelPath) -> Emptied:
        """Delete a folder with all that is in it: nobody sees it from the first moment on.

        What cannot be taken away in a moment is taken away after the answer. Raises NoSuchFolder, IsAFile,
        NotPermitted, MountInside, PublicIsNotAFolder.
        """
        return await self._threads.run(self._delete_folder, path)

    async def move(self, source: RelPath, target: RelPath, held_to: ExtensionLists | None) -> None:
        """Give an entry another name or folder; never replaces: see ``changes.move`` for what it raises."""
        await self._threads.run(changes.move, self._directory, source, target, held_to)

    async def usage(self) -> Usage:
        """How much the public directory holds, as far as a bounded walk gets: see ``usage.usage``."""
        return await self._threads.run(usage, self._directory, Budget())

    @asynccontextmanager
    async def archive(self, folder: RelPath, encode: Encoder) -> AsyncIterator[ArchiveStream]:
        """A folder's bytes as ``encode`` packs them, read inside the block; see ``archive.Contents``.

        Raises NoSuchFolder, IsAFile, PublicIsNotAFolder, MountInside, NotReadable, ArchiveTooLarge.
        """
        contents = await self._threads.run(Contents, self._directory, folder, Budget())
        pieces = encode(contents)
        lane = Lane(self._threads, pieces.close)
        try:
            yield ArchiveStream(pieces, lane)
        finally:
            await lane.close()

    def _make_folder(self, path: RelPath) -> None:
        os.close(self._directory.make_folder(path))

    def _delete_folder(self, path: RelPath) -> Emptied:
        private = changes.set_aside(self._directory, path)
        return self._empty(private, time.monotonic() + removal.EMPTYING_SECONDS)

    def _empty(self, private: str, until: float) -> Emptied:
        """One slice; the next ones wait their turn behind the member's other work. What is left is swept later."""
        emptied = changes.empty_aside(self._directory, private, _EMPTYING_SLICE_SECONDS)
        if not emptied.in_time and time.monotonic() < until:
            with suppress(Busy):
                self._threads.submit(self._empty, private, until)
        return emptied
