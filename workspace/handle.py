"""The handle of one workspace: what the rest of the service may do with it, without blocking the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from workspace import listing, reading, removal
from workspace.directory import WorkspaceDirectory
from workspace.listing import FileState, Listing
from workspace.location import Location, project_root
from workspace.offload import AgentThreads, Lane
from workspace.paths import RelPath
from workspace.publish import Draft, Incoming
from workspace.reading import Leased, Opened, OpenFile
from workspace.settings import AgentTree
from workspace.walk import Budget

LEASE_SECONDS = 2.0
_LEASE_RETRY_SECONDS = 0.05


class Workspace:
    """One workspace of an agent. Every operation opens it afresh, on an agent thread.

    Besides what each names, all raise Busy when too much work waits, and AgentRightsUnavailable where the service
    cannot act as the agent.
    """

    def __init__(
        self, tree: AgentTree, location: Location, threads: AgentThreads, *, durable: bool = True
    ) -> None:
        self._directory = WorkspaceDirectory(tree, project_root(location), threads.rights)
        self._threads = threads
        self._durable = durable

    async def prepare(self) -> None:
        """Make the public directory and ``attachments`` in it, where they are missing; all is the agent's.

        Raises NoSuchFolder when the agent's tree is missing, NotPermitted, NoSpace, ReadOnly, PublicIsNotAFolder,
        IsAFile when ``attachments`` is a file or a link.
        """
        await self._threads.run(self._directory.make)

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

    async def remove(self) -> bool:
        """Take the whole workspace away: see ``removal.remove``. Raises NotPermitted."""
        return await self._threads.run(removal.remove, self._directory)
