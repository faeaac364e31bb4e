"""Remove a whole workspace: its name at once, then what was in it. Runs on agent threads only."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice

from workspace.confine import FOLDER, NAME_ONLY, closing, descriptor_path, open_at
from workspace.directory import WorkspaceDirectory
from workspace.errors import NoSuchFolder, NotPermitted
from workspace.paths import PRIVATE_PREFIX
from workspace.publish import private_name

EMPTYING_SECONDS = 60.0
_SCANNED_AT_ONCE = 1000


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
            while entries := _some_entries(folder):
                for entry, is_folder in entries:
                    if clock() > deadline:
                        return False
                    _take_away(folder, entry, is_folder)
        with directory.rights.service():
            os.rmdir(name, dir_fd=member)
    except OSError:
        return False  # a mount, or rights that the agent took from itself: left, under a name nobody is shown
    return True


def _some_entries(folder: int) -> list[tuple[str, bool]]:
    with os.scandir(folder) as entries:
        some = islice(entries, _SCANNED_AT_ONCE)
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in some]


def _take_away(folder: int, name: str, is_folder: bool) -> None:
    """One entry: links and files by their name; a folder after its own folders were moved up beside it.

    So depth costs neither recursion nor descriptors. Raises OSError.
    """
    if not is_folder:
        os.unlink(name, dir_fd=folder)
        return
    with suppress(OSError):
        os.rmdir(name, dir_fd=folder)
        return
    _make_accessible(folder, name)
    with closing(open_at(folder, (name,), FOLDER)) as child:
        while entries := _some_entries(child):
            for inner, inner_is_folder in entries:
                if inner_is_folder:
                    _make_accessible(child, inner)  # moving a folder also writes to it: its parent changes
                    os.rename(inner, private_name(), src_dir_fd=child, dst_dir_fd=folder)
                else:
                    os.unlink(inner, dir_fd=child)
    os.rmdir(name, dir_fd=folder)


def _make_accessible(folder: int, name: str) -> None:
    """Undo a mode that the agent gave one of its folders. Raises OSError, also at a mount."""
    with closing(open_at(folder, (name,), NAME_ONLY | os.O_DIRECTORY)) as held:
        os.chmod(descriptor_path(held), 0o700)
