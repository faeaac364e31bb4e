"""A spool gives back what was written, keeps no name on the disk, and frees its bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.spool import PIECE, Spools


@pytest.fixture
def spools(tmp_path: Path) -> Iterator[Spools]:
    opened = Spools(tmp_path / "spool")
    yield opened
    opened.close()


def open_files_below(directory: Path) -> int:
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _exists(fd)]
    return sum(link.startswith(str(directory)) for link in links)


def _exists(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7])
async def test_what_was_written_is_read_back(spools: Spools, size: int) -> None:
    data = os.urandom(size)
    async with spools.open() as spool:
        for start in range(0, size, 100_000):
            await spool.write(data[start : start + 100_000])
        pieces = [piece async for piece in spool.pieces()]
    assert b"".join(pieces) == data
    assert all(0 < len(piece) <= PIECE for piece in pieces)


async def test_many_bytes_lie_in_a_file_without_a_name_until_the_spool_is_left(
    spools: Spools, tmp_path: Path
) -> None:
    async with spools.open() as spool:
        await spool.write(b"x" * 2 * PIECE)
        assert open_files_below(tmp_path) == 1
        assert list((tmp_path / "spool").iterdir()) == []
    assert open_files_below(tmp_path) == 0


async def test_few_bytes_touch_no_disk(spools: Spools, tmp_path: Path) -> None:
    async with spools.open() as spool:
        await spool.write(b"x" * PIECE)
        assert open_files_below(tmp_path) == 0
