"""Renames between two open folders, even where there is no renameat2(2). Runs on agent threads only."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from workspace import confine

# What a file system (NFS, some FUSE) or a kernel says that does not know the flag.
_NO_SUCH_FLAG = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


def rename_to_free_name(old_parent: int, name: str, new_parent: int, new_name: str) -> None:
    """Rename and replace nothing. Raises OSError, EEXIST or ENOTEMPTY when the name is taken.

    In two steps where it cannot be one: a kill between them leaves the file under both names, or an empty folder of
    the new one.
    """
    try:
        confine.rename_noreplace(old_parent, name, new_parent, new_name)
    except OSError as error:
        if error.errno not in _NO_SUCH_FLAG:
            raise
        is_folder = stat.S_ISDIR(os.stat(name, dir_fd=old_parent, follow_symlinks=False).st_mode)
        steps = _rename_folder_in_steps if is_folder else _rename_file_in_steps
        steps(old_parent, name, new_parent, new_name)


def keep_newer(source: int, target: int, name: str) -> None:
    """Of two files of one name keep that with the newer mtime in ``target`` (its own if equal). Raises OSError.

    They change places, none is overwritten: a file that is published in this moment comes out in ``source``, is seen
    to be newer, and goes back.
    """
    while _mtime(source, name) > _mtime(target, name):
        try:
            confine.rename_exchange(source, name, target, name)
        except OSError as error:
            if error.errno not in _NO_SUCH_FLAG:
                raise
            os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
            return
    os.unlink(name, dir_fd=source)


def _rename_file_in_steps(old_parent: int, name: str, new_parent: int, new_name: str) -> None:
    """A second name, which cannot replace, and then the first one away."""
    os.link(name, new_name, src_dir_fd=old_parent, dst_dir_fd=new_parent, follow_symlinks=False)
    try:
        os.unlink(name, dir_fd=old_parent)
    except OSError:
        with suppress(OSError):
            os.unlink(new_name, dir_fd=new_parent)
        raise


def _rename_folder_in_steps(old_parent: int, name: str, new_parent: int, new_name: str) -> None:
    """A folder of the new name, which cannot replace, and then the other one over it while it is empty."""
    os.mkdir(new_name, 0o700, dir_fd=new_parent)
    try:
        os.rename(name, new_name, src_dir_fd=old_parent, dst_dir_fd=new_parent)
    except OSError:
        with suppress(OSError):
            os.rmdir(new_name, dir_fd=new_parent)
        raise


def _mtime(folder: int, name: str) -> int:
    return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns
