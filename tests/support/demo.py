"""The demo agent as a real process, for functional tests."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "examples" / "demo_agent.py"
START_TIMEOUT = 30.0  # seconds
END_TIMEOUT = 10.0  # seconds


@dataclass(frozen=True)
class Demo:
    """A running demo agent. ``url`` is its base (``http://127.0.0.1:<port>``), without a member."""

    url: str
    token: str
    pid: int

    def agent_url(self) -> str:
        """What ``agents[].url`` is for it."""
        return f"ws{self.url.removeprefix('http')}/{{member}}/pico/ws"


@asynccontextmanager
async def running_demo(
    workspaces: Path,
    uid: int | None = None,
    gid: int | None = None,
    scripts: Path | None = None,
    word_delay: float = 0.02,
) -> AsyncIterator[Demo]:
    """Start it, wait until it listens, and end it by SIGTERM; the test fails if it does not end cleanly."""
    token = secrets.token_hex(16)
    command = [sys.executable, str(PROGRAM), "--port", "0", "--workspaces", str(workspaces), "--token", token]
    for option, value in (
        ("--uid", uid),
        ("--gid", gid),
        ("--scripts", scripts),
        ("--word-delay", word_delay),
    ):
        command += [option, str(value)] if value is not None else []
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START_TIMEOUT)
        if not line.startswith(b"listening "):
            raise RuntimeError(f"the demo agent did not start: {line!r} {(await process.communicate())[1]!r}")
        yield Demo(url=line.decode().split()[1], token=token, pid=process.pid)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            _, errors = await asyncio.wait_for(process.communicate(), END_TIMEOUT)
        except TimeoutError:
            process.kill()
            _, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
