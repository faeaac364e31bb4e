"""Whoever watches a workspace is told what changes in its public directory, by inotify or by looking again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.functional.workspace.conftest import Site, as_agent
from workspace import inotify, watch, watched
from workspace.errors import Busy, PublicIsNotAFolder
from workspace.location import Location
from workspace.paths import RelPath
from workspace.registry import Workspaces
from workspace.watch import MAX_PENDING, Subscription

WAIT_SECONDS = 10


class Told:
    """Everything that a subscriber was told until now."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self.paths: list[str] = []
        self.gaps = 0

    async def until(self, *paths: str) -> None:
        """Wait until each of these was told."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not set(paths) <= set(self.paths):
                await self._more()

    async def until_gap(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not self.gaps:
                await self._more()

    async def _more(self) -> None:
        changes = await self._subscription.next()
        assert changes is not None
        self.paths += changes.paths
        self.gaps += changes.gap


def polled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "MAX_FOLDERS", 0)


@pytest.fixture(params=["inotify", "polled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of knowing, the second one looking often."""
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.05)
    if request.param == "polled":
        polled(monkeypatch)
    return str(request.param)


@pytest.fixture
async def told(site: Site, way: str) -> AsyncIterator[Told]:
    async with site.workspace.watch() as subscription:
        yield Told(subscription)


def write(path: Path, text: str = "x") -> None:
    as_agent(lambda: path.write_text(text))


def do(work: Callable[[], object]) -> None:
    as_agent(lambda: work() or True)


async def test_what_the_agent_does_is_told(site: Site, told: Told) -> None:
    write(site.attachments / "report.pdf")
    await told.until("public/attachments/report.pdf")
    write(site.attachments / "report.pdf", "longer")
    told.paths.clear()
    await told.until("public/attachments/report.pdf")
    do(lambda: os.rename(site.attachments / "report.pdf", site.public / "moved.pdf"))
    await told.until("public/attachments/report.pdf", "public/moved.pdf")
    told.paths.clear()
    do((site.public / "moved.pdf").unlink)
    await told.until("public/moved.pdf")
    assert told.gaps == 0


async def test_an_upload_is_told_by_its_own_name_only(site: Site, told: Told) -> None:
    for content in (b"first", b"second"):
        async with site.workspace.receive(RelPath()) as incoming:
            await incoming.write(content)
            await incoming.publish("a.txt")
    write(site.public / ".isthmus-0123456789abcdef")
    write(site.public / os.fsdecode(b"\xff.txt"))
    write(site.public / "last.txt")
    await told.until("public/a.txt", "public/last.txt")
    assert set(told.paths) == {"public/a.txt", "public/last.txt"}


async def test_a_file_that_is_called_like_one_without_a_name_is_told(site: Site, told: Told) -> None:
    write(site.public / "#12")
    await told.until("public/#12")


async def test_what_happens_in_new_folders_is_told(site: Site, told: Told) -> None:
    deep = site.public / "a" / "b" / "c"
    do(lambda: (deep.mkdir(parents=True), (deep / "first").touch()))
    await told.until("public/a", "public/a/b", "public/a/b/c", "public/a/b/c/first")
    write(deep / "second")
    await told.until("public/a/b/c/second")


async def test_a_moved_folder_is_told_under_its_new_name(site: Site, told: Told) -> None:
    do(lambda: (site.public / "old" / "in").mkdir(parents=True))
    await told.until("public/old/in")
    do(lambda: os.rename(site.public / "old", site.public / "new"))
    await told.until("public/old", "public/new")
    told.paths.clear()
    write(site.public / "new" / "in" / "f")
    await told.until("public/new/in/f")
    assert not [path for path in told.paths if path.startswith("public/old")]


async def test_a_folder_that_was_moved_out_is_told_no_more(site: Site, told: Told) -> None:
    do(lambda: (site.public / "sub").mkdir())
    await told.until("public/sub")
    do(lambda: os.rename(site.public / "sub", site.directory / "sub"))
    told.paths.clear()
    await told.until("public/sub")
    told.paths.clear()
    write(site.directory / "sub" / "secret")
    write(site.public / "last")
    await told.until("public/last")
    assert set(told.paths) == {"public/last"}


async def test_a_link_to_a_folder_outside_is_not_watched(site: Site, told: Told) -> None:
    outside = site.directory / "outside"
    do(outside.mkdir)
    do(lambda: (site.public / "link").symlink_to(outside))
    write(outside / "secret")
    write(site.public / "last")
    await told.until("public/last")
    write(outside / "more")
    write(site.public / "very_last")
    await told.until("public/very_last")
    assert not [path for path in told.paths if "secret" in path or "more" in path]


async def test_a_watch_makes_nothing_and_sees_the_first_upload(site: Site, way: str) -> None:
    do(site.attachments.rmdir)
    do(site.public.rmdir)
    async with site.workspace.watch() as subscription:
        assert os.listdir(site.directory) == []
        await site.workspace.prepare()
        async with site.workspace.receive(RelPath()) as incoming:
            await incoming.publish("a.txt")
        told = Told(subscription)
        await told.until("public/attachments", "public/a.txt")
        write(site.public / "b.txt")
        await told.until("public/b.txt")


async def test_a_replaced_public_directory_is_a_gap_and_then_watched(site: Site, way: str) -> None:
    async with site.workspace.watch() as subscription:
        told = Told(subscription)
        do(lambda: (os.rename(site.public, site.directory / "away"), site.public.mkdir()))
        if way == "inotify":
            await told.until_gap()
        write(site.public / "new.txt")
        await told.until("public/new.txt")


async def test_a_public_that_is_a_link_is_refused(site: Site, way: str) -> None:
    do(
        lambda: (
            os.rename(site.public, site.directory / "away"),
            site.public.symlink_to(site.directory / "away"),
        )
    )
    with pytest.raises(PublicIsNotAFolder):
        async with site.workspace.watch():
            pass


async def test_subscribers_share_one_watch_that_ends_with_the_last(site: Site) -> None:
    async with site.workspace.watch() as first:
        async with site.workspace.watch() as second:
            assert instances() == 1
            write(site.public / "a")
            for subscription in (first, second):
                await Told(subscription).until("public/a")
        assert instances() == 1
        write(site.public / "b")
        await Told(first).until("public/b")
    assert instances() == 0


def instances() -> int:
    """How many inotify instances this process has."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}") == "anon_inode:inotify"
        except FileNotFoundError:
            continue
    return found


async def test_each_workspace_has_an_instance_until_the_bound_then_it_is_polled(
    site: Site, workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.05)
    workspaces._watches = watch.Watches(max_instances=1)
    first, second = (workspaces.open("demo", site.tree, Location(member)) for member in ("ana", "bo"))
    await second.prepare()
    async with first.watch() as one, second.watch() as other:
        assert instances() == 1
        for member, subscription in (("ana", one), ("bo", other)):
            write(site.tree.root / member / "workspace" / "public" / "a")
            await Told(subscription).until("public/a")


@pytest.mark.parametrize("excess", ["folders", "levels", "remote"])
async def test_a_tree_that_cannot_be_watched_is_polled(
    site: Site, excess: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.05)
    if excess == "folders":
        do(lambda: [(site.public / f"d{number}").mkdir() for number in range(watched.MAX_FOLDERS)])
    elif excess == "levels":
        do(lambda: site.public.joinpath(*"d" * (watched.MAX_LEVELS + 1)).mkdir(parents=True))
    else:
        monkeypatch.setattr(inotify, "is_remote", lambda _: True)
    async with site.workspace.watch() as subscription:
        assert instances() == 0
        write(site.public / "a")
        await Told(subscription).until("public/a")


async def test_a_tree_that_grows_too_large_is_a_gap_and_then_polled(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.05)
    async with site.workspace.watch() as subscription:
        told = Told(subscription)
        do(lambda: [(site.public / f"d{number}").mkdir() for number in range(watched.MAX_FOLDERS)])
        await told.until_gap()
        write(site.public / "d7" / "a")
        await told.until("public/d7/a")
        assert instances() == 0


async def test_an_overflow_is_a_gap_for_this_workspace_only(site: Site, workspaces: Workspaces) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    other = workspaces.open("demo", site.tree, Location("bo"))
    await other.prepare()
    async with site.workspace.watch() as subscription, other.watch() as quiet:

        def flood() -> None:
            for number in range(limit // 2 + 1):  # two events each
                os.rename(site.public / f"f{number % 2}", site.public / f"f{(number + 1) % 2}")

        write(site.public / "f0")
        # In one go, so that the loop reads nothing meanwhile.
        do(flood)
        write(site.tree.root / "bo" / "workspace" / "public" / "delivery")
        await Told(subscription).until_gap()
        told = Told(quiet)
        await told.until("public/delivery")
        assert told.gaps == 0


async def test_a_subscriber_that_does_not_read_is_owed_a_gap_not_everything(site: Site, told: Told) -> None:
    do(lambda: [(site.public / f"f{number}").touch() for number in range(MAX_PENDING + 1)])
    await told.until_gap()
    assert len(told.paths) <= MAX_PENDING


async def test_subscriptions_end_with_the_service_and_no_new_ones_begin(
    site: Site, workspaces: Workspaces, way: str
) -> None:
    async with site.workspace.watch() as subscription:
        await workspaces.end_watches()
        assert await subscription.next() is None
    with pytest.raises(Busy):
        async with site.workspace.watch():
            pass
    assert instances() == 0
