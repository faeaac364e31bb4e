"""The real `./run` as a process of its own, with a data directory of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
READY_SECONDS = 40.0
END_SECONDS = 30.0


@dataclass
class Run:
    """A running demo. `pid` is the service's own: `run` gives its process over to it."""

    process: subprocess.Popen[str]
    url: str
    token: str
    data_dir: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send the signal and wait for the exit code."""
        self.process.send_signal(number)
        return self.process.wait(END_SECONDS)

    def left_over(self) -> list[str]:
        """Command lines of processes that still have to do with this data directory."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    where = os.readlink(entry / "cwd")
                except OSError:
                    continue
                if str(self.data_dir) in line or where.startswith(str(self.data_dir)):
                    found.append(line.strip())
        return found

    def nothing_left(self) -> list[str]:
        """What is left once everything had its time to end."""
        deadline = time.monotonic() + END_SECONDS
        while (left := self.left_over()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left


def start(
    data_dir: Path, *words: str, prefix: tuple[str, ...] = (), root: Path = ROOT, **environment: str
) -> subprocess.Popen[str]:
    """`./run WORDS…` with this data directory; the log goes to `<data_dir>.log`."""
    with Path(f"{data_dir}.log").open("a") as log:
        return subprocess.Popen(
            [*prefix, str(root / "run"), *words],
            env={**os.environ, "ISTHMUS__STORE__DATA_DIR": str(data_dir), **environment},
            stdout=subprocess.PIPE,
            stderr=log,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd=root,
        )


@contextmanager
def demo(
    data_dir: Path, prefix: tuple[str, ...] = (), root: Path = ROOT, **environment: str
) -> Iterator[Run]:
    """A demo that is ready; ended by SIGTERM unless the test has ended it."""
    process = start(data_dir, prefix=prefix, root=root, **{"ISTHMUS__SERVER__PORT": "0", **environment})
    assert process.stdout is not None
    try:
        deadline = time.monotonic() + READY_SECONDS
        ready = process.stdout.readline().split()
        token = process.stdout.readline().split()
        assert ready[:1] == ["ready"], Path(f"{data_dir}.log").read_text()
        assert token[:1] == ["token"], Path(f"{data_dir}.log").read_text()
        assert time.monotonic() < deadline
        yield Run(process, ready[1], token[1], data_dir)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(END_SECONDS)
        process.stdout.close()
