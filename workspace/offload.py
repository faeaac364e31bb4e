"""Agent threads: the few threads on which all work on one workspace runs, with the agent's rights.

Blocking calls on an agent's disk may hang for good. They have threads and a bounded queue per workspace, never the
loop's default executor, so that one workspace on a hung disk stops no other; idle threads end by themselves, so
that a thousand members are not a thousand threads. A job starts no subprocess: ``execve`` gives up the rights.

A thread may be confined besides, to the one workspace, for as long as it lives. When the workspace is replaced the
present crew of threads retires, and fresh ones serve the new one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from workspace.errors import Busy, Replaced
from workspace.rights import Rights

P = ParamSpec("P")
T = TypeVar("T")

IDLE_SECONDS = 10.0
CLOSE_SECONDS = 5.0

_Job = tuple["Future[Any]", Callable[[], Any]]


class _AgentThread(threading.Thread):
    """A thread that has, or had, an agent's rights; what it starts would have them too."""


@dataclass(slots=True, eq=False)
class _Crew:
    """How many threads take jobs for now, and how many of them wait for one."""

    size: int = 0
    idle: int = 0


class AgentThreads(Executor):
    """An executor whose jobs have the agent's rights; at most ``workers`` run and ``waiting`` wait.

    ``confine`` is called before each job, with these rights, and confines the thread if it is not yet. A job fails
    with AgentRightsUnavailable, untouched, where its thread cannot take the rights or cannot be confined.
    """

    def __init__(
        self,
        rights: Rights,
        confine: Callable[[], None] = lambda: None,
        *,
        workers: int = 2,
        waiting: int = 16,
        idle: float = IDLE_SECONDS,
    ) -> None:
        self.rights = rights
        self._confine = confine
        self._workers = workers
        self._limit = workers + waiting
        self._idle_seconds = idle
        self._changed = threading.Condition()
        self._queue: deque[_Job] = deque()
        self._threads: set[threading.Thread] = set()
        self._crew = _Crew()
        self._pending = 0
        self._closing = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a job. Raises Busy when too many wait."""
        with self._changed:
            self._require_room()
            return self._put(lambda: fn(*args, **kwargs))

    def submit_always(self, fn: Callable[[], T]) -> Future[T]:
        """Queue a job that gives something back (a descriptor, a name): it is never refused."""
        with self._changed:
            return self._put(fn)

    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The job's result. Raises what the job raises, and Busy.

        A job that finds the workspace replaced runs once more, on a fresh thread: opening it comes first in a job.
        """
        try:
            return await asyncio.wrap_future(self.submit(fn, *args, **kwargs))
        except Replaced:
            self._retire_crew()
            return await asyncio.wrap_future(self.submit(fn, *args, **kwargs))

    async def run_beside(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As ``run``, on a thread of its own that is not confined: for work beside the workspace, not in it."""
        with self._changed:
            self._require_room()
            future: Future[T] = self._expect()
            self._start(self._work_beside, (future, lambda: fn(*args, **kwargs)))
        return await asyncio.wrap_future(future)

    async def run_opening(
        self, fn: Callable[P, T], close: Callable[[T], None], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As ``run``, for a job that opens something: ``close`` gets it if the caller is cancelled meanwhile."""
        try:
            return await _opened(self.submit(fn, *args, **kwargs), close)
        except Replaced:
            self._retire_crew()
            return await _opened(self.submit(fn, *args, **kwargs), close)

    async def close(self) -> None:
        """Take no more jobs, wait a while for those that run, end the threads that can be ended."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            threads = list(self._threads)
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        waiter = threading.Thread(target=_join_all, args=(threads, loop, ended), daemon=True)
        waiter.start()
        try:
            await asyncio.wait_for(ended.wait(), CLOSE_SECONDS)
        except TimeoutError:
            return  # a disk hangs; the threads are daemons and do not hold the process

    def _require_room(self) -> None:
        if self._closing or self._pending >= self._limit:
            raise Busy()

    def _expect(self) -> Future[Any]:
        """The future of one more job."""
        future: Future[Any] = Future()
        future.add_done_callback(self._done)  # the first callback: the place is free before the caller knows
        self._pending += 1
        return future

    def _done(self, _: Future[Any]) -> None:
        with self._changed:
            self._pending -= 1

    def _put(self, call: Callable[[], T]) -> Future[T]:
        future: Future[T] = self._expect()
        self._queue.append((future, call))
        self._call_a_thread()
        return future

    def _call_a_thread(self) -> None:
        crew = self._crew
        # A thread of an agent starts none, since its confinement would be theirs too: it takes the job itself, later.
        may_start = not isinstance(threading.current_thread(), _AgentThread)
        if may_start and len(self._queue) > crew.idle and crew.size < self._workers:
            crew.size += 1
            self._start(self._work, crew)
        else:
            self._changed.notify()

    def _start(self, work: Callable[..., None], argument: object) -> None:
        thread = _AgentThread(target=work, args=(argument,), name=f"agent-{self.rights.uid}", daemon=True)
        self._threads.add(thread)
        thread.start()

    def _work(self, crew: _Crew) -> None:
        while (job := self._take_job(crew)) is not None:
            _perform(*job, self.rights.take, self._confine)
            del job  # its result is the caller's, not kept alive by a thread that waits

    def _work_beside(self, job: _Job) -> None:
        _perform(*job, self.rights.take)
        with self._changed:
            self._threads.discard(threading.current_thread())

    def _take_job(self, crew: _Crew) -> _Job | None:
        """The next job; None ends the thread, decided under the lock so that no job is left behind."""
        with self._changed:
            crew.idle += 1
            self._changed.wait_for(
                lambda: self._queue or self._closing or crew is not self._crew, self._idle_seconds
            )
            crew.idle -= 1
            is_relieved = crew is not self._crew and self._crew.size > 0
            if self._queue and not is_relieved:
                return self._queue.popleft()
            crew.size -= 1
            self._threads.discard(threading.current_thread())
            return None

    def _retire_crew(self) -> None:
        """Have the present threads end after the jobs that they run: they are confined to what is gone."""
        with self._changed:
            self._crew = _Crew()
            if self._queue:
                self._call_a_thread()
            self._changed.notify_all()


class Lane(Executor):
    """The jobs about one open thing: one at a time, and none once it is closed.

    The thing's own lock, not the event loop, keeps the order: a caller that was cancelled has gone while its last
    write may still run, and a descriptor that is closed under a write may already be another file's.
    """

    def __init__(self, threads: AgentThreads, close: Callable[[], None]) -> None:
        self._threads = threads
        self._close = close
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a job about the thing. Raises Busy; the job raises ValueError once the thing is closed."""
        return self._threads.submit(self._in_turn, lambda: fn(*args, **kwargs))

    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The job's result, as ``AgentThreads.run``."""
        return await asyncio.wrap_future(self.submit(fn, *args, **kwargs))

    async def close(self) -> None:
        """Close the thing after the job that runs; also if the caller is cancelled while it waits."""
        if not self._closed:
            self._closed = True
            await asyncio.shield(asyncio.wrap_future(self._threads.submit_always(self._finish)))

    def _in_turn(self, call: Callable[[], T]) -> T:
        with self._lock:
            if self._closed:
                raise ValueError("the file is closed")
            return call()

    def _finish(self) -> None:
        with self._lock:
            self._close()


def _perform(future: Future[Any], call: Callable[[], Any], *before: Callable[[], None]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        for prepare in before:
            prepare()
        result = call()
    except BaseException as error:  # whatever it is, it is the caller's
        future.set_exception(error)
    else:
        future.set_result(result)


async def _opened(future: Future[T], close: Callable[[T], None]) -> T:
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.add_done_callback(lambda done: _close_result(done, close))
        raise


def _close_result(future: Future[T], close: Callable[[T], None]) -> None:
    if not future.cancelled() and future.exception() is None:
        close(future.result())


def _join_all(threads: list[threading.Thread], loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    for thread in threads:
        thread.join()
    try:
        loop.call_soon_threadsafe(ended.set)
    except RuntimeError:
        return  # the loop was closed while a disk hung
