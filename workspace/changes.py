"""What a member changes below the public directory: entries deleted and moved. Runs on agent threads only.

Each call names one entry in a folder that was opened for it. Links are names like any other and never followed.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from workspace.confine import closing, facts
from workspace.directory import WorkspaceDirectory
from workspace.emptying import Emptying, OutOfTime, make_accessible
from workspace.errors import (
    CannotMoveHere,
    Exists,
    InvalidPath,
    IsAFile,
    IsAFolder,
    NoSuchFolder,
    NotFound,
    NotPermitted,
)
from workspace.names import check_extension, extension
from workspace.paths import RelPath, display
from workspace.publish import private_name
from workspace.renaming import rename_to_free_name


class ExtensionLists(NamedTuple):
    """The operator's lists: see ``names.check_extension``."""

    extensions: Collection[str]
    extensionless: Collection[str]


@dataclass(frozen=True, slots=True)
class Emptied:
    """``files`` were taken away until now (links and the like too); ``in_time`` is False if more is left to do."""

    files: int
    in_time: bool


def delete_file(directory: WorkspaceDirectory, path: RelPath) -> None:
    """Delete anything but a folder. Raises NotFound, IsAFolder, NotPermitted, MountInside."""
    shown = display(path)
    with closing(_open_parent(directory, path)) as parent, facts(shown, denied=NotPermitted):
        try:
            os.unlink(path.name, dir_fd=parent)
        except IsADirectoryError as error:
            raise IsAFolder(shown) from error


def set_aside(directory: WorkspaceDirectory, path: RelPath) -> str:
    """Give a folder a private name in the public directory, which is returned: nobody sees it from now on.

    Raises NoSuchFolder, IsAFile, NotPermitted, MountInside.
    """
    shown, private = display(path), private_name()
    with (
        closing(directory.open_public()) as public,
        closing(directory.open_folder(path.parent)) as parent,
        facts(shown, missing=NoSuchFolder, in_the_way=IsAFile, denied=NotPermitted),
    ):
        if not stat.S_ISDIR(os.stat(path.name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise IsAFile(shown)
        if path.parent.segments:
            make_accessible(parent, path.name)  # a folder that gets another parent is written to
        os.rename(path.name, private, src_dir_fd=parent, dst_dir_fd=public)
        with suppress(OSError):  # young: a listing leaves it to us
            os.utime(private, dir_fd=public, follow_symlinks=False)
    return private


def empty_aside(directory: WorkspaceDirectory, private: str, seconds: float) -> Emptied:
    """Take away what ``set_aside`` named, for at most so many seconds; what cannot be taken away stays."""
    emptying = Emptying(time.monotonic() + seconds)
    in_time = True
    with closing(directory.open_public()) as public:
        try:
            emptying.remove(public, private)
        except OutOfTime:
            in_time = False
        except OSError:
            pass  # a mount in it, or what the agent has no right to: it keeps a name that nobody is shown
    return Emptied(emptying.files, in_time)


def move(
    directory: WorkspaceDirectory, source: RelPath, target: RelPath, held_to: ExtensionLists | None
) -> None:
    """Give an entry another name, in its folder or in another one that is there; nothing is ever replaced.

    A file whose extension changes is held to the lists, if there are any. Raises NotFound, NoSuchFolder for the
    target's folder, Exists, InvalidPath for a folder moved into itself, ExtensionNotAllowed, CannotMoveHere,
    NotPermitted, IsAFile, MountInside.
    """
    if (
        len(target.segments) > len(source.segments)
        and target.segments[: len(source.segments)] == source.segments
    ):
        raise InvalidPath("a folder cannot be moved into itself")
    with closing(_open_parent(directory, source)) as old_parent:
        with facts(display(source), denied=NotPermitted):
            is_folder = stat.S_ISDIR(os.stat(source.name, dir_fd=old_parent, follow_symlinks=False).st_mode)
        if held_to and not is_folder and extension(source.name) != extension(target.name):
            check_extension(target.name, *held_to)
        with (
            closing(directory.open_folder(target.parent)) as new_parent,
            facts(display(source), denied=NotPermitted),
        ):
            try:
                rename_to_free_name(old_parent, source.name, new_parent, target.name)
            except OSError as error:
                if error.errno in {errno.EEXIST, errno.ENOTEMPTY}:
                    raise Exists(display(target)) from error
                if error.errno == errno.EXDEV:
                    raise CannotMoveHere(display(target)) from error
                if error.errno == errno.EINVAL:
                    raise InvalidPath("a folder cannot be moved into itself") from error
                raise


def _open_parent(directory: WorkspaceDirectory, path: RelPath) -> int:
    """The folder in which an entry is looked for. Raises NotFound without one."""
    try:
        return directory.open_folder(path.parent)
    except (NoSuchFolder, IsAFile) as error:
        raise NotFound(display(path)) from error
