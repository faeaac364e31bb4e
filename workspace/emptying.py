"""Empty a folder whatever is in it: iterative, two descriptors deep, bounded. Runs on agent threads only.

A folder in a folder is emptied by moving its own folders up beside it, so a tree of any depth costs neither
recursion nor descriptors. What cannot be taken away (a mount, an entry that the agent's rights do not reach) is left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice

from workspace.confine import FOLDER, NAME_ONLY, closing, descriptor_path, open_at
from workspace.publish import private_name

_SCANNED_AT_ONCE = 1000
_MAX_LEFT = 1000


class OutOfTime(Exception):
    """The deadline has passed while something was left to take away."""


class Emptying:
    """Takes entries away until ``deadline``, in the seconds of ``clock``; ``files`` counts those that are no folder."""

    def __init__(self, deadline: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.files = 0
        self._deadline = deadline
        self._clock = clock

    def empty(self, folder: int) -> None:
        """Take away what can be taken away of everything in ``folder``. Raises OutOfTime, OSError."""
        self._each(folder, self._take_away)

    def remove(self, parent: int, name: str) -> None:
        """Take away the folder of a private name, with all that is in it.

        Raises OutOfTime, after which the folder counts as left behind; OSError when something in it stays.
        """
        make_accessible(parent, name)
        try:
            with closing(open_at(parent, (name,), FOLDER)) as folder:
                self.empty(folder)
        except OutOfTime:
            with suppress(OSError):
                os.utime(name, (0, 0), dir_fd=parent, follow_symlinks=False)
            raise
        os.rmdir(name, dir_fd=parent)

    def _each(self, folder: int, act: Callable[[int, str, bool], None]) -> None:
        """``act`` on every entry; those that fail are passed over, at most so many that memory stays bounded."""
        failed: set[str] = set()
        while entries := _some_entries(folder, failed):
            for name, is_folder in entries:
                if self._clock() > self._deadline:
                    raise OutOfTime
                try:
                    act(folder, name, is_folder)
                except OSError:
                    failed.add(name)
            if len(failed) > _MAX_LEFT:
                return

    def _take_away(self, folder: int, name: str, is_folder: bool) -> None:
        if not is_folder:
            self._unlink(folder, name)
            return
        with suppress(OSError):
            os.rmdir(name, dir_fd=folder)
            return
        make_accessible(folder, name)

        def hoist(child: int, inner: str, inner_is_folder: bool) -> None:
            if inner_is_folder:
                make_accessible(child, inner)  # moving a folder also writes to it: its parent changes
                os.rename(inner, private_name(), src_dir_fd=child, dst_dir_fd=folder)
            else:
                self._unlink(child, inner)

        with closing(open_at(folder, (name,), FOLDER)) as child:
            self._each(child, hoist)
        os.rmdir(name, dir_fd=folder)

    def _unlink(self, folder: int, name: str) -> None:
        os.unlink(name, dir_fd=folder)
        self.files += 1


def make_accessible(folder: int, name: str) -> None:
    """Undo a mode that the agent gave one of its folders. Raises OSError, also at a mount."""
    with closing(open_at(folder, (name,), NAME_ONLY | os.O_DIRECTORY)) as held:
        os.chmod(descriptor_path(held), 0o700)


def _some_entries(folder: int, failed: set[str]) -> list[tuple[str, bool]]:
    with os.scandir(folder) as entries:
        others = (entry for entry in entries if entry.name not in failed)
        return [
            (entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(others, _SCANNED_AT_ONCE)
        ]
