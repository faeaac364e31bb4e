"""The service as a process of its own, on a store that outlives it: to be killed, flooded and measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from proxy.identity import token_digest
from rag.embedded import ConnectArgs
from tests.support.service import AGENT_GID, AGENT_UID, dsn

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Member:
    """Somebody with a token."""

    name: str
    token: str


@dataclass(frozen=True)
class Served:
    """A running service; its directory may be served again when it has ended."""

    process: subprocess.Popen[str] = field(repr=False)
    port: int
    workspaces: Path

    def public(self, member: Member) -> Path:
        return self.workspaces / member.name / "workspace" / "public"


@contextmanager
def served(directory: Path, connect: ConnectArgs, members: list[Member]) -> Iterator[Served]:
    """Start it with its things below `directory`; whoever is in the block may kill it."""
    workspaces = directory / "agents"
    workspaces.mkdir(mode=0o755, exist_ok=True)
    tables = {
        "server": {"port": 0},
        "store": {"url": dsn(connect), "data_dir": str(directory / "data")},
        "agents": [
            {
                "key": "demo",
                "workspaces": str(workspaces),
                "uid": AGENT_UID,
                "gid": AGENT_GID,
                "token": "t" * 32,
            }
        ],
        "auth": {"tokens": [{"member": m.name, "sha256": token_digest(m.token)} for m in members]},
        "limits": {"uploads_per_minute": 0, "reads_per_minute": 0},
        "media": {"min_free": "0%", "extensions": ["*"]},
    }
    environment = {
        f"ISTHMUS__{table.upper()}__{key.upper()}" if key else f"ISTHMUS__{table.upper()}": value
        for table, values in tables.items()
        for key, value in _flat(values)
    }
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "proxy", "serve"],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("ready "), (directory / "log").read_text()
        yield Served(process, int(line.rpartition(":")[2]), workspaces)
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def _flat(values: object) -> Iterator[tuple[str, str]]:
    if isinstance(values, dict):
        yield from ((key, v if isinstance(v, str) else json.dumps(v)) for key, v in values.items())
    else:
        yield "", json.dumps(values)
