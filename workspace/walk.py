"""A walk over a tree that may have no end: iterative, in one order, resumable, bounded. Runs on agent threads only.

The order is that of the paths as tuples of byte strings: a folder comes before what is in it, names by their
bytes. Of each folder on the way down only the next ``batch`` names are held, and one descriptor.
"""

from __future__ import annotations

import heapq
import os
import stat
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from workspace.confine import FOLDER, open_at
from workspace.emptying import Emptying, OutOfTime
from workspace.paths import MAX_PATH_BYTES, MAX_SEGMENTS, PRIVATE_PREFIX, has_control_character

MAX_NAMES = 1_000_000
"""Names in one folder; the contents of a larger one are left out, since sorting it once takes too long."""

STALE_SECONDS = 3600
"""A private name that nobody has written to for so long is what a kill left behind."""

SWEEP_SECONDS = 0.2
"""What one walk spends on taking such leftovers away; the next one goes on."""

_PRIVATE = PRIVATE_PREFIX.encode()

BytesPath = tuple[bytes, ...]
Omission = Literal["links", "special", "undecodable", "too_deep", "unreadable", "too_large"]


@dataclass(frozen=True, slots=True)
class Found:
    """An entry. ``omission`` tells why it, or (``is_listed``) only what lies in it, is left out."""

    path: BytesPath
    status: os.stat_result
    omission: Omission | None = None
    is_listed: bool = True

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


@dataclass(slots=True)
class _Level:
    """A folder that the walk is in; ``after`` is the last name that was taken."""

    fd: int
    path: BytesPath
    after: bytes = b""
    names: deque[bytes] = field(default_factory=deque)
    is_last_batch: bool = False


class _TooManyNames(Exception):
    """A folder has more than MAX_NAMES names."""


class Walk:
    """Visits everything below ``top``, an open folder that the walk closes.

    ``base`` is the path of ``top`` as members see it: with it no path gets longer than a client may send. ``after``
    is the path (below ``top``) of the entry that was visited last. ``now`` is the wall clock in seconds.
    """

    def __init__(self, top: int, base: BytesPath, *, batch: int, now: float, after: BytesPath = ()) -> None:
        self._base = base
        self._batch = batch
        self._now = now
        self._sweep_until = time.monotonic() + SWEEP_SECONDS
        self._levels = [_Level(top, ())]
        try:
            self._go_to(after)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Walk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptors of the walk."""
        while self._levels:
            os.close(self._levels.pop().fd)

    def __iter__(self) -> Iterator[Found]:
        while self._levels:
            level = self._levels[-1]
            try:
                name = self._next_name(level)
            except _TooManyNames:
                yield Found(level.path, os.fstat(level.fd), "too_large", is_listed=False)
                name = None
            if name is None:
                os.close(self._levels.pop().fd)
                continue
            if found := self._visit(level, name):
                yield found

    def _go_to(self, after: BytesPath) -> None:
        """Stand where a walk stands that has just visited ``after``; folders that are gone are passed over."""
        for name in after:
            level = self._levels[-1]
            level.after = name
            if self._problem(level, name) or self._enter(level, name):
                return

    def _visit(self, level: _Level, name: bytes) -> Found | None:
        """None: it vanished since its folder was read."""
        try:
            status = os.stat(name, dir_fd=level.fd, follow_symlinks=False)
        except OSError:
            return None
        path = (*level.path, name)
        if problem := self._problem(level, name):
            return Found(path, status, problem, is_listed=False)
        if stat.S_ISLNK(status.st_mode):
            return Found(path, status, "links", is_listed=False)
        if stat.S_ISDIR(status.st_mode):
            return Found(path, status, self._enter(level, name))
        if not stat.S_ISREG(status.st_mode):
            return Found(path, status, "special", is_listed=False)
        return Found(path, status)

    def _problem(self, level: _Level, name: bytes) -> Omission | None:
        """Why no client could name the entry."""
        try:
            if has_control_character(name.decode()):
                return "undecodable"
        except UnicodeDecodeError:
            return "undecodable"
        path = (*self._base, *level.path, name)
        return "too_deep" if len(path) > MAX_SEGMENTS or len(b"/".join(path)) > MAX_PATH_BYTES else None

    def _enter(self, level: _Level, name: bytes) -> Omission | None:
        """Go down into a folder, or tell why not."""
        if len(self._base) + len(level.path) + 1 >= MAX_SEGMENTS:
            return "too_deep"
        try:
            self._levels.append(_Level(open_at(level.fd, (name,), FOLDER), (*level.path, name)))
        except OSError:  # the agent may not read it, it is a mount, or it is no folder any more
            return "unreadable"
        return None

    def _next_name(self, level: _Level) -> bytes | None:
        if not level.names and not level.is_last_batch:
            level.names.extend(heapq.nsmallest(self._batch, self._names_after(level)))
            level.is_last_batch = len(level.names) < self._batch
        if not level.names:
            return None
        level.after = level.names.popleft()
        return level.after

    def _names_after(self, level: _Level) -> Iterator[bytes]:
        with os.scandir(level.fd) as entries:
            for count, entry in enumerate(entries):
                if count >= MAX_NAMES:
                    raise _TooManyNames
                name = os.fsencode(entry.name)
                if name.startswith(_PRIVATE):
                    self._sweep(level.fd, name)
                elif name > level.after:
                    yield name

    def _sweep(self, folder: int, name: bytes) -> None:
        if time.monotonic() > self._sweep_until:
            return
        with suppress(OSError, OutOfTime):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if self._now - status.st_mtime <= STALE_SECONDS:
                return
            if stat.S_ISDIR(status.st_mode):
                Emptying(self._sweep_until).remove(folder, os.fsdecode(name))
            else:
                os.unlink(name, dir_fd=folder)


class Budget:
    """What one request may visit: ``entries``, and ``seconds`` of time."""

    def __init__(self, entries: int = 100_000, seconds: float = 2.0) -> None:
        self.entries = entries
        self._end = time.monotonic() + seconds

    def spend(self) -> bool:
        """Take one entry's worth; False when nothing is left."""
        self.entries -= 1
        return self.entries >= 0 and time.monotonic() < self._end
