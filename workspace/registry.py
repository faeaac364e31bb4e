"""All workspaces of the service, and the threads that they share."""

from __future__ import annotations

import asyncio
from functools import partial
from weakref import WeakValueDictionary

from workspace.directory import WorkspaceDirectory
from workspace.handle import Workspace
from workspace.legacy import Migrations
from workspace.location import Location, project_root
from workspace.offload import AgentThreads
from workspace.rights import Rights
from workspace.settings import AgentTree
from workspace.watch import Watches


class Workspaces:
    """Gives handles. Those of one workspace share its threads, which live as long as a handle or a job does.

    Without ``migrations`` a directory of the old name is left as it is.
    ``durable=False`` leaves out the fsync of what is published: for measurements only.
    """

    def __init__(self, migrations: Migrations | None = None, *, durable: bool = True) -> None:
        self._migrations = migrations
        self._durable = durable
        self._watches = Watches()
        self._threads: WeakValueDictionary[tuple[str, Location], AgentThreads] = WeakValueDictionary()

    def open(self, tree_key: str, tree: AgentTree, location: Location) -> Workspace:
        """The handle of a workspace that may not exist yet; does no I/O. ``tree_key`` is the agent's key."""
        threads = self._threads.get((tree_key, location))
        if threads is None:
            threads = self._threads[(tree_key, location)] = self._new_threads(tree, location)
        return Workspace(tree, location, threads, self._watches, self._migrations, durable=self._durable)

    def _new_threads(self, tree: AgentTree, location: Location) -> AgentThreads:
        rights = Rights(tree.uid, tree.gid)
        directory = WorkspaceDirectory(tree, project_root(location), rights)
        open_locks = self._migrations.open_locks if self._migrations else None
        return AgentThreads(rights, partial(directory.confine_thread, open_locks))

    async def end_watches(self) -> None:
        """End every subscription, and take no new ones."""
        await self._watches.close()

    async def close(self) -> None:
        """Refuse further work, wait a while for what runs, end the threads."""
        await self.end_watches()
        await asyncio.gather(*(threads.close() for threads in list(self._threads.values())))
