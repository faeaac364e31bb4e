"""A real tree on a real disk. As root the agent has a uid of its own; as anybody else it is the one who runs this."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from workspace import confine
from workspace.handle import Workspace
from workspace.location import Location
from workspace.registry import Workspaces
from workspace.rights import Rights
from workspace.settings import AgentTree

IS_ROOT = os.geteuid() == 0
AGENT_UID = 42100 if IS_ROOT else os.getuid()
AGENT_GID = 42100 if IS_ROOT else os.getgid()

needs_root = pytest.mark.skipif(
    not IS_ROOT, reason="only root has another's rights to take, or mounts to make"
)


@dataclass(frozen=True)
class Site:
    """One workspace, and where the test finds it on the disk."""

    workspace: Workspace
    tree: AgentTree
    directory: Path

    @property
    def public(self) -> Path:
        return self.directory / "public"

    @property
    def attachments(self) -> Path:
        return self.public / "attachments"


def as_agent(work: Callable[[], Any]) -> Any:
    """Do something on the disk that the agent could do, with its rights."""
    result: list[Any] = []

    def run() -> None:
        Rights(AGENT_UID, AGENT_GID).take()
        result.append(work())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert result, "the agent could not do it"
    return result[0]


def names_in(folder: Path) -> list[str]:
    """All names, the service's own too."""
    return sorted(os.listdir(folder))


@pytest.fixture
def tree() -> Iterator[AgentTree]:
    # Below the temporary directory itself: pytest's own is closed to other users.
    root = Path(tempfile.mkdtemp(prefix="isthmus-test-"))
    root.chmod(0o755)
    yield AgentTree(root, AGENT_UID, AGENT_GID, file_mode=0o640, dir_mode=0o750, min_free=0.0)
    shutil.rmtree(root)


@pytest.fixture(params=["openat2", "walk"])
def confined_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to confine; the first only where the kernel has it."""
    if request.param == "openat2" and confine.confinement() != "openat2":
        pytest.skip("this kernel or sandbox has no openat2")
    monkeypatch.setattr(confine, "confinement", lambda: request.param)
    return str(request.param)


@pytest.fixture
async def workspaces() -> AsyncIterator[Workspaces]:
    everything = Workspaces(durable=False)
    yield everything
    await everything.close()


@pytest.fixture
async def site(tree: AgentTree, confined_by: str, workspaces: Workspaces) -> Site:
    workspace = workspaces.open("demo", tree, Location("ana"))
    await workspace.prepare()
    return Site(workspace, tree, tree.root / "ana" / "workspace")
