"""Where one agent's workspaces lie and whose they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AgentTree:
    """One agent's directory of workspaces, as the operator configured it.

    ``root`` exists and is the operator's; ``uid`` and ``gid`` are those that the harness really has; ``file_mode``
    and ``dir_mode`` are permission bits; ``min_free`` is the share (0 to 1) of bytes and of inodes that is left
    free on the disk.
    """

    root: Path
    uid: int
    gid: int
    file_mode: int
    dir_mode: int
    min_free: float
