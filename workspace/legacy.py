"""The old name of the public directory: ``uploads``, renamed or merged into ``public`` before anything else is done.

Part of every access to a public directory, so the usual case, that there is no ``uploads``, costs one call. Else a
lock of the kernel keeps other processes out and dies with this one; an access does a bounded piece of the work, the
rest is done piece by piece behind the workspace's other jobs. Runs on agent threads only.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from workspace import merging
from workspace.confine import FOLDER, closing, open_at
from workspace.errors import Busy
from workspace.merging import Merge
from workspace.offload import AgentThreads
from workspace.paths import ATTACHMENTS, PUBLIC

LEGACY = "uploads"

PIECE_ENTRIES = 1000
PIECE_SECONDS = 0.2
ATTEMPT_SECONDS = 60.0
"""How long one attempt goes on in the background, and how long after its beginning the next one may begin."""

# A link or a file where a folder was meant.
_NO_FOLDER = frozenset({errno.ELOOP, errno.ENOTDIR})
_LOCK_RETRY_SECONDS = 0.005
_MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Migrated:
    """What an attempt came to. ``left`` are the first entries that stayed in ``uploads``, each with why.

    ``workspace`` is the path below the agent's tree. An empty path among ``left`` is ``uploads`` itself.
    """

    workspace: str
    moved: int
    left: tuple[tuple[str, str], ...] = ()
    left_count: int = 0


@dataclass(slots=True, eq=False)
class _Memory:
    """What this process remembers of one workspace that had an ``uploads``; ``due`` in monotonic seconds."""

    piece: threading.Lock = field(default_factory=threading.Lock)
    due: float = 0.0
    told: tuple[tuple[str, str], ...] | None = None


class Migrations:
    """All migrations of the process.

    ``locks`` is a directory of the service's own, made when it is first needed; ``tell`` is called on an agent
    thread, with the service's rights, once for each attempt that moved something or left something else than before.
    """

    def __init__(
        self, locks: Path, tell: Callable[[Migrated], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.locks = locks
        self.tell = tell
        self.clock = clock
        self._memories: OrderedDict[str, _Memory] = OrderedDict()
        self._lock = threading.Lock()

    def open_locks(self) -> int:
        """The directory of the lock files, as a name only; needs the service's rights. Raises OSError."""
        with suppress(FileExistsError):
            os.mkdir(self.locks, 0o700)
        return os.open(self.locks, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def memory(self, key: str) -> _Memory:
        """That of a workspace; those asked for longest ago are forgotten."""
        with self._lock:
            memory = self._memories.pop(key, None) or _Memory()
            self._memories[key] = memory
            while len(self._memories) > _MAX_REMEMBERED:
                self._memories.popitem(last=False)
        return memory


@dataclass(frozen=True, slots=True)
class LegacyDirectory:
    """The ``uploads`` of one workspace; ``name`` is the workspace's path below the agent's ``tree``."""

    migrations: Migrations
    threads: AgentThreads
    tree: Path
    name: str

    @property
    def _key(self) -> str:
        return f"{self.tree}/{self.name}"

    def migrate(self, workspace: int) -> None:
        """Do an access's share of the migration; ``workspace`` is open. What cannot be done is told, never raised."""
        if not _is_there(workspace):
            return
        clock = self.migrations.clock
        memory = self.migrations.memory(self._key)
        with memory.piece:  # a second access waits for the first one's piece, then finds it done
            if clock() < memory.due or not _is_there(workspace):
                return
            memory.due = end = clock() + ATTEMPT_SECONDS
            self._go_on(self._attempt(os.dup(workspace), memory), end)

    def _go_on(self, steps: Generator[None], end: float) -> None:
        """A piece of the work; what is left then is for the workspace's threads, unless they have too much to do."""
        try:
            if self._piece(steps):
                return
            if self.migrations.clock() < end:
                self.threads.submit(self._go_on, steps, end)
                return
        except Busy:
            pass  # the service stops, or others wait: the next attempt goes on from here
        steps.close()

    def _piece(self, steps: Iterator[None]) -> bool:
        """Whether the attempt is over."""
        end = self.migrations.clock() + PIECE_SECONDS
        for done, _ in enumerate(steps, start=1):
            if done >= PIECE_ENTRIES or self.migrations.clock() > end:
                return False
        return True

    def _attempt(self, workspace: int, memory: _Memory) -> Generator[None]:
        """All of the work, a step an entry; owns ``workspace``, and the lock while it is not over or closed."""
        with closing(workspace), ExitStack() as stack:
            try:
                if not stack.enter_context(self._locked()):
                    return
                source = stack.enter_context(closing(open_at(workspace, (LEGACY,), FOLDER)))
                _spare_attachments(source)
                if merging.move_to_free_name(workspace, LEGACY, workspace, PUBLIC):
                    memory.due = 0.0  # nothing was left to wait for
                    self._tell(memory, Migrated(self.name, 1))
                    return
                target = stack.enter_context(closing(open_at(workspace, (PUBLIC,), FOLDER)))
            except OSError as error:
                why = "not_a_folder" if error.errno in _NO_FOLDER else merging.reason(error)
                self._tell(memory, Migrated(self.name, 0, (("", why),), 1))
                return
            merge = Merge(source, target, LEGACY)
            try:
                yield from merge.steps()
                with suppress(OSError):  # it is not empty: of what was left, or of what came meanwhile
                    os.rmdir(LEGACY, dir_fd=workspace)
            finally:
                self._tell(memory, Migrated(self.name, merge.moved, tuple(merge.left), merge.left_count))

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Whether the lock of this workspace was got, for which an access waits as long as its piece may take.

        The lock files lie in a directory of the service's own and are never removed: a removed one would lock nobody
        out. Raises OSError.
        """
        with self.threads.rights.service(), closing(self.migrations.open_locks()) as locks:
            name = hashlib.sha256(self._key.encode(errors="surrogateescape")).hexdigest()[:32]
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(f"{name}.lock", flags, 0o600, dir_fd=locks)
        with closing(lock):
            yield _flock(lock, self.migrations.clock)

    def _tell(self, memory: _Memory, migrated: Migrated) -> None:
        if migrated.moved or migrated.left != memory.told:
            memory.told = migrated.left
            with self.threads.rights.service():
                self.migrations.tell(migrated)


def _is_there(workspace: int) -> bool:
    try:
        os.stat(LEGACY, dir_fd=workspace, follow_symlinks=False)
    except OSError:
        return False
    return True


def _flock(lock: int, clock: Callable[[], float]) -> bool:
    end = clock() + PIECE_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if clock() > end:
                return False
            time.sleep(_LOCK_RETRY_SECONDS)
        else:
            return True


def _spare_attachments(source: int) -> None:
    """What is called like the deliveries' directory and is none would stand in the way of every later delivery."""
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.stat(ATTACHMENTS, dir_fd=source, follow_symlinks=False).st_mode):
            merging.keep_both(source, ATTACHMENTS, source, LEGACY)
