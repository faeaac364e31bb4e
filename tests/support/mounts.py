"""File systems of a test's own: mounted at a directory, taken away at the end. For root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def mounted(where: Path, *arguments: str | Path) -> Iterator[Path]:
    """`mount ARGUMENTS where`."""
    where.mkdir(exist_ok=True)
    _run("mount", *arguments, where)
    try:
        where.chmod(0o755)
        yield where
    finally:
        _run("umount", where)


@contextmanager
def tmpfs(where: Path, size: str = "64m") -> Iterator[Path]:
    with mounted(where, "-t", "tmpfs", "-o", f"size={size}", "tmpfs"):
        yield where


@contextmanager
def overlay(where: Path, layers: Path) -> Iterator[Path]:
    """A union of two fresh directories, on a disk of its own: an upper layer may not be an overlayfs itself."""
    with tmpfs(layers):
        lower, upper, work = (layers / name for name in ("lower", "upper", "work"))
        for folder in (lower, upper, work):
            folder.mkdir()
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        with mounted(where, "-t", "overlay", "-o", options, "overlay"):
            yield where


@contextmanager
def ext4(where: Path, image: Path, *, mebibytes: int = 32) -> Iterator[Path]:
    """A fresh one in a sparse file."""
    with image.open("wb") as file:
        file.truncate(mebibytes * 2**20)
    _run("mkfs.ext4", "-q", "-m", "0", image)
    with mounted(where, "-o", "loop", image):
        yield where


def shorten(where: Path, image: Path, mebibytes: int) -> None:
    """Cut the disk below a mounted file system: what is written behind its new end is an I/O error."""
    os.truncate(image, mebibytes * 2**20)
    _run("losetup", "-c", _device(where))


def _device(where: Path) -> str:
    """The device that is mounted there."""
    lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return next(device for device, place, *_ in lines if place == str(where))
