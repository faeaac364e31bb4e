"""Programs that a bench starts, and what the kernel says they use. Linux only: the figures are /proc's."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
END_SECONDS = 20
_TICK = os.sysconf("SC_CLK_TCK")


class DidNotStart(Exception):
    """A program ended, or took too long, before it said that it was ready."""


@dataclass(frozen=True)
class Program:
    """A running program; `said` is what followed its ready word (an address)."""

    pid: int
    said: str


@asynccontextmanager
async def running(
    command: Sequence[str],
    *,
    ready: str,
    log: Path,
    seconds: float,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[Program]:
    """Start it, wait for the line that begins with the word `ready`, end it by SIGTERM.

    Its standard error goes to `log`. Raises DidNotStart.
    """
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    try:
        yield Program(process.pid, await _said(process, ready, log, seconds))
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _said(process: asyncio.subprocess.Process, ready: str, log: Path, seconds: float) -> str:
    assert process.stdout is not None, "piped"
    try:
        async with asyncio.timeout(seconds):
            async for line in process.stdout:
                if line.startswith(ready.encode() + b" "):
                    return line.decode().split()[1]
    except TimeoutError:
        pass
    raise DidNotStart(log.read_text(errors="replace")[-2000:])


def family(pid: int) -> list[int]:
    """The process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:  # it ended meanwhile
                continue
            children.setdefault(_fields(stat)[1], []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of one process so far, to a hundredth of a second."""
    fields = _fields(Path(f"/proc/{pid}/stat").read_text())
    return sum(fields[11:13]) / _TICK


def _fields(stat: str) -> list[int]:
    """The fields of /proc/PID/stat from the third (the state, as 0): the name before may hold spaces."""
    return [int(word) if word.lstrip("-").isdigit() else 0 for word in stat.rpartition(")")[2].split()]


def rss_mib(pid: int, *, peak: bool = False) -> float:
    """Now, or the most since the program began (or since 5 was written to /proc/PID/clear_refs)."""
    return _kib(Path(f"/proc/{pid}/status"), "VmHWM" if peak else "VmRSS") / 1024


def pss_mib(pid: int) -> float:
    """Its own pages, and its share of those that it has in common with others."""
    return _kib(Path(f"/proc/{pid}/smaps_rollup"), "Pss") / 1024


def _kib(path: Path, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", path.read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def name(pid: int) -> str:
    """The command line, as far as it tells programs apart."""
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()[:200]
