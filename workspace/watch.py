"""Watches: who wants to know is told what changes below a public directory, whoever changes it.

The subscribers of one workspace share one watch, which ends with the last of them. It has an inotify instance of its
own, so that no other agent's flood can drown its events; where it cannot have one it compares snapshots.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from workspace.directory import WorkspaceDirectory
from workspace.errors import Busy, NoSuchFolder, WorkspaceError
from workspace.offload import AgentThreads, Lane
from workspace.paths import PUBLIC
from workspace.watched import CannotWatch, Names, Snapshot, WatchedFolders, take_snapshot

MAX_INSTANCES = 64
MAX_PENDING = 1000
COALESCE_SECONDS = 0.1
POLL_SECONDS = 2.0
RETRY_SECONDS = 60.0
"""How long a directory is polled before inotify is tried again."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Paths as members see them; with ``gap`` others may have changed too."""

    paths: tuple[str, ...]
    gap: bool


class Subscription:
    """What one subscriber has not been told yet: at most MAX_PENDING paths, more are a gap."""

    def __init__(self) -> None:
        self._paths: set[str] = set()
        self._gap = False
        self._ended = False
        self._news = asyncio.Event()

    async def next(self) -> Changes | None:
        """The next changes, as soon as there are any; None when the watch has ended."""
        await self._news.wait()
        if not self._paths and not self._gap:
            return None
        changes = Changes(tuple(sorted(self._paths)), self._gap)
        self._paths, self._gap = set(), False
        if not self._ended:
            self._news.clear()
        return changes

    def put(self, paths: Iterable[str], *, gap: bool) -> None:
        self._paths.update(paths)
        self._gap |= gap
        if len(self._paths) > MAX_PENDING:
            self._paths, self._gap = set(), True
        if self._paths or self._gap:
            self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()


class Watches:
    """The watches of the process, one for each workspace that anybody watches."""

    def __init__(self, max_instances: int = MAX_INSTANCES) -> None:
        self._watches: dict[str, _Watch] = {}
        self._instances = asyncio.Semaphore(max_instances)
        self._closed = False

    @asynccontextmanager
    async def subscribe(
        self, key: str, directory: WorkspaceDirectory, threads: AgentThreads
    ) -> AsyncIterator[Subscription]:
        """Changes from now on; ``key`` names the workspace. Makes nothing.

        Raises PublicIsNotAFolder, NotReadable, MountInside, Busy, and Busy when the service ends.
        """
        if self._closed:
            raise Busy
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = _Watch(directory, threads, self._instances)
        subscription = watch.subscribe()
        try:
            await watch.begun()
            yield subscription
        finally:
            if watch.unsubscribe(subscription):
                if self._watches.get(key) is watch:
                    del self._watches[key]
                await watch.end()

    async def close(self) -> None:
        """End every watch, and so every subscription."""
        self._closed = True
        await asyncio.gather(*(watch.end() for watch in self._watches.values()))


class _Watch:
    """One workspace's watch: a task that tells its subscribers."""

    def __init__(
        self, directory: WorkspaceDirectory, threads: AgentThreads, instances: asyncio.Semaphore
    ) -> None:
        self._directory = directory
        self._threads = threads
        self._instances = instances
        self._subscriptions: set[Subscription] = set()
        self._begun = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="watch")
        self._task.add_done_callback(self._ended)

    def subscribe(self) -> Subscription:
        subscription = Subscription()
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> bool:
        """Whether nobody is left."""
        self._subscriptions.discard(subscription)
        return not self._subscriptions

    async def begun(self) -> None:
        """Return once nothing can change unseen any more. Raises what kept the watch from beginning."""
        await self._begun.wait()
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    def _ended(self, _: asyncio.Task[None]) -> None:
        self._begun.set()
        for subscription in self._subscriptions:
            subscription.end()

    async def _run(self) -> None:
        seen: Snapshot | None = None
        retry_at = 0.0
        clock = asyncio.get_running_loop().time
        while True:
            gap = False
            if clock() >= retry_at:
                try:
                    await self._by_inotify(seen)
                    seen, gap, retry_at = None, True, clock() + POLL_SECONDS
                except NoSuchFolder:
                    pass  # there may be a public directory at any moment
                except CannotWatch:
                    retry_at = clock() + RETRY_SECONDS
            seen = await self._poll(seen)
            self._tell((), gap=gap)  # whoever looks again now looks after the snapshot was taken
            self._begun.set()
            await asyncio.sleep(POLL_SECONDS)

    async def _poll(self, seen: Snapshot | None) -> Snapshot:
        """The directory as it is now; what differs from ``seen`` is told. Raises WorkspaceError before it has begun."""
        while True:
            try:
                now = await self._threads.run(take_snapshot, self._directory)
                break
            except WorkspaceError as error:
                if not self._begun.is_set():
                    raise
                if not isinstance(error, Busy):
                    now = Snapshot({})
                    break
            await asyncio.sleep(POLL_SECONDS)
        if seen is not None:
            self._tell(seen.difference(now))
        return now

    async def _by_inotify(self, seen: Snapshot | None) -> None:
        """Tell what events say until no more can be known.

        Raises CannotWatch, NoSuchFolder without a public directory, both only before anything was told.
        """
        if self._instances.locked():
            raise CannotWatch
        async with self._instances:
            folders = await self._open()
            lane = Lane(self._threads, folders.close)
            try:
                if seen is not None:
                    await self._poll(seen)
                self._begun.set()
                await self._follow(folders, lane)
            finally:
                await lane.close()

    async def _open(self) -> WatchedFolders:
        try:
            return await self._threads.run_opening(WatchedFolders, WatchedFolders.close, self._directory)
        except NoSuchFolder:
            raise
        except WorkspaceError as error:
            if not self._begun.is_set():
                raise
            raise CannotWatch from error
        except OSError as error:
            raise CannotWatch from error

    async def _follow(self, folders: WatchedFolders, lane: Lane) -> None:
        while True:
            await _readable(folders.instance)
            await asyncio.sleep(COALESCE_SECONDS)  # the kernel holds the events, and equal ones once
            batch = folders.read()
            changed, lost = batch.changed, batch.lost
            if batch.folders and not lost:
                try:
                    changed |= await lane.run(folders.add, batch.folders)
                except (CannotWatch, WorkspaceError):
                    lost = True
            self._tell(changed)
            if lost:
                return

    def _tell(self, changed: Iterable[Names], *, gap: bool = False) -> None:
        paths = ["/".join((PUBLIC, *path)) for path in changed]
        for subscription in self._subscriptions:
            subscription.put(paths, gap=gap)


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
