"""Agent threads: whose rights they have, how much may wait, and when they end."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.functional.workspace.conftest import AGENT_GID, AGENT_UID, needs_root
from workspace import landlock
from workspace.errors import AgentRightsUnavailable, Busy, Replaced
from workspace.handle import Workspace
from workspace.location import Location
from workspace.offload import AgentThreads, Lane
from workspace.paths import RelPath
from workspace.registry import Workspaces
from workspace.rights import Rights
from workspace.settings import AgentTree

AGENT = Rights(AGENT_UID, AGENT_GID)


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def status_lines() -> dict[str, str]:
    text = Path("/proc/thread-self/status").read_text(encoding="utf-8")
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


@needs_root
async def test_a_job_has_the_agents_ids_no_group_and_no_right_over_files() -> None:
    threads = AgentThreads(AGENT)
    status = await threads.run(status_lines)
    assert status["Uid"].split()[3] == str(AGENT_UID)
    assert status["Gid"].split()[3] == str(AGENT_GID)
    assert status["Groups"].strip() == ""
    assert int(status["CapEff"], 16) & 0b11111 == 0
    assert status_lines()["Uid"].split()[3] == "0"
    await threads.close()


@needs_root
async def test_the_services_rights_are_lent_for_a_moment_only() -> None:
    threads = AgentThreads(AGENT)

    def ids() -> tuple[str, ...]:
        found = [status_lines()["Uid"].split()[3]]
        try:
            with threads.rights.service():
                found.append(status_lines()["Uid"].split()[3])
                raise KeyError
        except KeyError:
            found.append(status_lines()["Uid"].split()[3])
        return tuple(found)

    assert await threads.run(ids) == (str(AGENT_UID), "0", str(AGENT_UID))
    await threads.close()


GROUPS = """
import asyncio, os
from workspace.offload import AgentThreads
from workspace.rights import Rights

os.setgroups([42105])
print(asyncio.run(AgentThreads(Rights(42100, 42100)).run(os.getgroups)), os.getgroups())
"""


@needs_root
def test_a_job_leaves_the_groups_of_the_service_and_the_service_keeps_them() -> None:
    """In a child: the groups are those of the whole process."""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", GROUPS], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[] [42105]\n", done.stderr


UNAVAILABLE = """
import asyncio, os, sys
os.setgid(42101); os.setuid(42101)
from workspace.errors import AgentRightsUnavailable
from workspace.offload import AgentThreads
from workspace.rights import Rights

async def main():
    own = AgentThreads(Rights(42101, 42101))
    assert await own.run(os.getuid) == 42101
    touched = []
    other = AgentThreads(Rights(42100, 42100))
    try:
        await other.run(touched.append, 1)
    except AgentRightsUnavailable as error:
        print(touched, error.reason)

asyncio.run(main())
"""


@needs_root
def test_without_the_right_to_change_ids_only_its_own_uid_is_served(tmp_path: Path) -> None:
    """In a child: uids cannot be got back. The package is imported from a copy of the path that the child may read."""
    root = Path(__file__).parents[3]
    code = (
        f"import sys; sys.path.insert(0, {str(root)!r})\nimport aiofiles, workspace.registry\n" + UNAVAILABLE
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[] uid 42100 and gid 42100 cannot be taken on\n", done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root can take any agent's rights")
async def test_another_uid_is_refused_to_an_ordinary_user() -> None:
    threads = AgentThreads(Rights(os.getuid() + 1, os.getgid()))
    with pytest.raises(AgentRightsUnavailable):
        await threads.run(os.getpid)
    await threads.close()


async def test_two_jobs_run_sixteen_wait_and_one_more_is_refused() -> None:
    threads = AgentThreads(AGENT)
    gate = threading.Event()
    jobs = [threads.submit(gate.wait, 10) for _ in range(18)]
    await until(lambda: sum(job.running() for job in jobs) == 2)
    with pytest.raises(Busy):
        threads.submit(gate.wait, 10)
    last = threads.submit_always(lambda: "done")
    gate.set()
    assert await asyncio.wrap_future(last) == "done"
    assert all([await asyncio.wrap_future(job) for job in jobs])
    assert await threads.run(lambda: 1) == 1
    await threads.close()


async def test_a_hung_workspace_stops_no_other() -> None:
    hung, other = AgentThreads(AGENT), AgentThreads(AGENT)
    gate = threading.Event()
    jobs = [hung.submit(gate.wait, 10) for _ in range(18)]
    assert await asyncio.wait_for(other.run(lambda: 1), 2) == 1
    gate.set()
    await asyncio.gather(*map(asyncio.wrap_future, jobs))
    await hung.close()
    await other.close()


async def test_idle_threads_end_and_come_back() -> None:
    threads = AgentThreads(AGENT, idle=0.01)
    first = await threads.run(threading.current_thread)
    await until(lambda: not first.is_alive())
    second = await threads.run(threading.current_thread)
    assert second is not first
    await threads.close()


async def test_closed_threads_take_no_job_but_give_back_what_is_open() -> None:
    threads = AgentThreads(AGENT)
    worker = await threads.run(threading.current_thread)
    await threads.close()
    assert not worker.is_alive()
    with pytest.raises(Busy):
        await threads.run(lambda: 1)
    assert await asyncio.wrap_future(threads.submit_always(lambda: "given back")) == "given back"


async def test_what_was_opened_for_a_caller_who_left_is_closed() -> None:
    threads = AgentThreads(AGENT)
    began, gate = threading.Event(), threading.Event()
    closed: list[str] = []

    def work() -> str:
        began.set()
        gate.wait(10)
        return "descriptor"

    task = asyncio.create_task(threads.run_opening(work, closed.append))
    await until(began.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed == []
    gate.set()
    await until(lambda: closed == ["descriptor"])
    await threads.close()


async def test_a_thing_is_closed_after_the_job_that_runs_on_it_and_no_job_follows() -> None:
    threads = AgentThreads(AGENT)
    order: list[str] = []
    began, gate = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        gate.wait(10)
        order.append("job")

    lane = Lane(threads, lambda: order.append("close"))
    job = lane.submit(work)
    await until(began.is_set)
    closing = asyncio.create_task(lane.close())
    await asyncio.sleep(0)
    late = lane.submit(order.append, "late")
    gate.set()
    await closing
    with pytest.raises(ValueError, match="closed"):
        await asyncio.wrap_future(late)
    assert job.done()
    assert order == ["job", "close"]
    await threads.close()


async def test_handles_of_one_workspace_share_its_threads_until_the_last_is_gone(tree: AgentTree) -> None:
    workspaces = Workspaces()
    one, other = (workspaces.open("demo", tree, Location("ana")) for _ in range(2))
    assert one._threads is other._threads
    assert workspaces.open("demo", tree, Location("ana", "site"))._threads is not one._threads
    del one, other
    gc.collect()
    assert len(workspaces._threads) == 0
    await workspaces.close()


needs_landlock = pytest.mark.skipif(
    not landlock.is_available(), reason="this kernel or sandbox has no Landlock"
)


@pytest.fixture
async def homes(tree: AgentTree) -> AsyncIterator[tuple[Workspaces, Workspace, Path, Path]]:
    """Two workspaces of one member, so that only Landlock keeps one from the other, each with a file."""
    registry = Workspaces(durable=False)
    own, other = (registry.open("demo", tree, Location("ana", project)) for project in (None, "site"))
    for workspace in (own, other):
        await workspace.prepare()
        async with workspace.receive(RelPath()) as incoming:
            await incoming.publish("a.txt")
    member = tree.root / "ana"
    yield registry, own, member / "workspace" / "public", member / "workspace-site" / "public"
    await registry.close()


def refused(work: Callable[[], object]) -> bool:
    try:
        work()
    except PermissionError:
        return True
    return False


@needs_landlock
async def test_a_thread_reaches_its_own_workspace_and_not_its_neighbour(
    homes: tuple[Workspaces, Workspace, Path, Path],
) -> None:
    _, own, here, there = homes

    def attempts() -> list[bool]:
        held = os.open(there, os.O_PATH)
        try:
            return [
                refused(lambda: os.listdir(here)),
                refused(lambda: (here / "a.txt").read_bytes()),
                refused(lambda: os.listdir(there)),
                refused(lambda: (there / "a.txt").read_bytes()),
                refused(lambda: (there / "a.txt").write_bytes(b"x")),
                refused(lambda: (there / "b.txt").touch()),
                refused(lambda: os.mkdir("b", dir_fd=held)),
                refused(lambda: os.unlink(there / "a.txt")),
                refused(lambda: os.link(here / "a.txt", there / "c.txt")),
                refused(lambda: os.rename(there / "a.txt", here / "c.txt")),
                refused(lambda: open(f"/proc/self/fd/{held}/a.txt", "rb")),
            ]
        finally:
            os.close(held)

    assert await own._threads.run(attempts) == [False] * 2 + [True] * 9
    assert sorted(os.listdir(there)) == ["a.txt", "attachments"]
    # The service itself, and what it starts, are confined by nothing.
    assert not refused(lambda: os.listdir(there))
    assert status_lines()["NoNewPrivs"].strip() == "0"


@needs_landlock
async def test_a_folder_that_left_the_workspace_is_out_of_reach_though_it_is_open(
    homes: tuple[Workspaces, Workspace, Path, Path],
) -> None:
    _, own, here, there = homes
    (here / "box").mkdir(mode=0o777)
    (here / "box").chmod(0o777)
    fd = os.open(here / "box", os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert not await own._threads.run(refused, lambda: os.mkdir("before", dir_fd=fd))
        os.rename(here / "box", there / "box")
        assert await own._threads.run(refused, lambda: os.mkdir("after", dir_fd=fd))
    finally:
        os.close(fd)
    assert os.listdir(there / "box") == ["before"]


@needs_landlock
async def test_a_replaced_workspace_is_served_by_fresh_threads(
    homes: tuple[Workspaces, Workspace, Path, Path],
) -> None:
    _, own, here, _ = homes
    first = await own._threads.run(threading.current_thread)
    assert await own.remove()
    assert (await own.list(RelPath(), cursor=None, limit=9)).files == []
    await own.prepare()
    async with own.receive(RelPath()) as incoming:
        await incoming.publish("new.txt")
    assert sorted(os.listdir(here)) == ["attachments", "new.txt"]
    assert await own._threads.run(threading.current_thread) is not first
    await until(lambda: not first.is_alive())


async def test_without_landlock_the_same_operations_work(
    tree: AgentTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlock, "is_available", lambda: False)
    registry = Workspaces(durable=False)
    workspace = registry.open("demo", tree, Location("ana"))
    await workspace.prepare()
    async with workspace.receive(RelPath(("box",)), make_folder=True) as incoming:
        await incoming.publish("a.txt")
    assert [file.path for file in (await workspace.list(RelPath(), cursor=None, limit=9)).files] == [
        "public/attachments",
        "public/box",
        "public/box/a.txt",
    ]
    assert await workspace._threads.run(landlock.is_confined) is False
    assert await workspace.remove()
    await registry.close()


async def test_a_job_that_a_job_queues_runs_although_no_thread_of_the_agent_starts_another() -> None:
    threads = AgentThreads(AGENT)

    def first() -> tuple[Future[threading.Thread], threading.Thread]:
        return threads.submit(threading.current_thread), threading.current_thread()

    second, thread = await threads.run(first)
    assert await asyncio.wrap_future(second) is thread
    await threads.close()


async def test_jobs_that_wait_for_a_crew_that_retires_are_done_by_the_next() -> None:
    threads = AgentThreads(AGENT, workers=1)
    began, gate = threading.Event(), threading.Event()
    seen: list[str] = []

    def strayed() -> None:
        if not seen:
            seen.append("strayed")
            raise Replaced

    def hold() -> None:
        began.set()
        gate.wait(10)

    held = threads.submit(hold)
    await until(began.is_set)
    waiting = [threads.submit(seen.append, name) for name in "ab"]
    threads._retire_crew()
    await asyncio.gather(*map(asyncio.wrap_future, waiting))
    assert seen == ["a", "b"]
    gate.set()
    await asyncio.wrap_future(held)
    seen.clear()
    await threads.run(strayed)
    assert seen == ["strayed"]
    await threads.close()
