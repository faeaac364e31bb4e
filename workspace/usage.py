"""How much a public directory holds. Runs on agent threads only."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass

from workspace.directory import WorkspaceDirectory
from workspace.errors import NoSuchFolder
from workspace.paths import PUBLIC, RelPath
from workspace.walk import Budget, Walk

_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Usage:
    """The sizes of all regular files that were visited, in bytes; not ``is_whole`` when some folder was not."""

    bytes: int
    is_whole: bool


def usage(directory: WorkspaceDirectory, budget: Budget) -> Usage:
    """Walk the public directory; one that is not there yet holds nothing.

    Raises PublicIsNotAFolder, NotReadable, MountInside.
    """
    try:
        top = directory.open_folder(RelPath())
    except NoSuchFolder:
        return Usage(0, is_whole=True)
    total, is_whole = 0, True
    with Walk(top, (os.fsencode(PUBLIC),), batch=_BATCH, now=time.time()) as walk:
        for found in walk:
            if not budget.spend():
                return Usage(total, is_whole=False)
            if stat.S_ISREG(found.status.st_mode):
                total += found.status.st_size
            elif found.is_folder and found.omission:
                is_whole = False
    return Usage(total, is_whole)
