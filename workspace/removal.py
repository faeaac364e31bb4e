"""Remove a whole workspace: its name at once, then what was in it. Runs on agent threads only."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

from workspace.confine import FOLDER, closing, open_at
from workspace.directory import WorkspaceDirectory
from workspace.emptying import Emptying, OutOfTime
from workspace.errors import NoSuchFolder, NotPermitted
from workspace.paths import PRIVATE_PREFIX
from workspace.publish import private_name

EMPTYING_SECONDS = 60.0


def remove(directory: WorkspaceDirectory, clock: Callable[[], float] = time.monotonic) -> bool:
    """Take the workspace away; whether nothing of it is left on the disk.

    Its name is free as soon as this begins. What a killed process or the time bound left of this member's removed
    workspaces is taken up again by the next removal. Raises NotPermitted.
    """
    deadline = clock() + EMPTYING_SECONDS
    try:
        member = directory.open_member()
    except NoSuchFolder:
        return True
    with closing(member):
        with directory.rights.service():
            _set_aside(member, directory.root.name)
        emptied = [
            _remove_private(directory, member, name, deadline, clock) for name in _private_names(member)
        ]
    return all(emptied)


def _set_aside(member: int, name: str) -> None:
    """Rename to a private name. A workspace that was never made is gone already."""
    try:
        with suppress(FileNotFoundError):
            os.rename(name, private_name(), src_dir_fd=member, dst_dir_fd=member)
    except OSError as error:
        raise NotPermitted("public") from error


def _private_names(member: int) -> list[str]:
    with closing(open_at(member, (), FOLDER, one_mount=False)) as folder:
        return [name for name in os.listdir(folder) if name.startswith(PRIVATE_PREFIX)]


def _remove_private(
    directory: WorkspaceDirectory, member: int, name: str, deadline: float, clock: Callable[[], float]
) -> bool:
    try:
        with closing(open_at(member, (name,), FOLDER, one_mount=False)) as folder:
            Emptying(deadline, clock).empty(folder)
        with directory.rights.service():
            os.rmdir(name, dir_fd=member)
    except (OSError, OutOfTime):
        return False  # a mount, or rights that the agent took from itself: left, under a name nobody is shown
    return True
