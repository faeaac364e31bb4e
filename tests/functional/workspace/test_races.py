"""An agent that swaps its folders and files for links to a tree outside, while they are worked on: nothing escapes."""

from __future__ import annotations

import io
import os
import random
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from proxy.archives import zip_of
from tests.functional.workspace.conftest import AGENT_GID, AGENT_UID, Site
from workspace import landlock
from workspace.errors import WorkspaceError
from workspace.paths import RelPath
from workspace.rights import Rights

ROUNDS = 100_000 if os.environ.get("ISTHMUS_TEST_SIZE") == "full" else 1_000
SECRET = b"secret"
WHOLE_SECONDS = 0.004
FOLDER = RelPath(("attachments",))
FILE = RelPath(("attachments", "a.txt"))


@pytest.fixture(autouse=True)
def _without_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first wall must hold alone: behind the second nobody would see its holes."""
    monkeypatch.setattr(landlock, "is_available", lambda: False)


@contextmanager
def swapping(site: Site, outside: Path) -> Iterator[list[int]]:
    """An agent at work; yields the count of its swaps."""
    ended = threading.Event()
    swaps = [0]
    # The outside tree has the names of the inside, so that whoever follows a link finds what it looks for.
    victims = [
        (site.public, outside / "public"),
        (site.attachments, outside / "public" / "attachments"),
        (site.attachments / "a.txt", outside / "public" / "attachments" / "a.txt"),
    ]

    def work() -> None:
        Rights(AGENT_UID, AGENT_GID).take()
        while not ended.is_set():
            for inside, target in victims:
                away = inside.with_name(inside.name + ".away")
                with suppress(OSError):
                    os.rename(inside, away)
                with suppress(OSError):
                    os.symlink(target, inside)
                with suppress(OSError):  # the service may have moved the link away
                    if inside.is_symlink():
                        os.unlink(inside)
                with suppress(OSError):
                    os.rename(away, inside)
                swaps[0] += 1
            # Now and then the tree is whole for as long as an operation takes: both of its ends must be met.
            if swaps[0] % 4 == 0:
                ended.wait(random.random() * WHOLE_SECONDS)

    agent = threading.Thread(target=work)
    agent.start()
    try:
        yield swaps
    finally:
        ended.set()
        agent.join()


def contents(top: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(top.rglob("*"))}


@pytest.mark.stress
async def test_no_swap_of_a_name_for_a_link_leads_outside(site: Site) -> None:
    outside = site.tree.root / "outside"
    deliveries = outside / "public" / "attachments"
    deliveries.mkdir(parents=True)
    for name in ("a.txt", "secret.txt"):
        (deliveries / name).write_bytes(SECRET)
    # All of it is the agent's: only the confinement keeps the service out, not the rights.
    for path in (outside, *outside.rglob("*")):
        os.chown(path, AGENT_UID, AGENT_GID)
    before = contents(outside)
    done = refused = 0

    async def receive() -> None:
        async with site.workspace.receive(FOLDER) as incoming:
            await incoming.write(b"inside")
            await incoming.publish("a.txt")

    async def look() -> None:
        page = await site.workspace.list(RelPath(), cursor=None, limit=100)
        assert not [entry.path for entry in page.files if "secret" in entry.path]
        assert not [path for path in await site.workspace.snapshot() if "secret" in path]

    async def read() -> None:
        async with await site.workspace.open(FILE) as opened:
            assert await opened.read(0, 100) == b"inside"

    operations = (receive, look, read)
    with swapping(site, outside) as swaps:
        for number in range(ROUNDS):
            try:
                await operations[number % len(operations)]()
                done += 1
            except WorkspaceError:
                refused += 1
    assert contents(outside) == before
    assert done + refused == ROUNDS
    assert min(done, refused, swaps[0]) > 0


@pytest.mark.stress
async def test_no_change_of_a_name_that_is_swapped_reaches_outside(site: Site) -> None:
    outside = site.tree.root / "outside"
    deliveries = outside / "public" / "attachments"
    for folder in ("old", "new", "old/deep"):
        (deliveries / folder).mkdir(parents=True)
        (deliveries / folder / "secret.txt").write_bytes(SECRET)
    for name in ("a.txt", "b.txt"):
        (deliveries / name).write_bytes(SECRET)
    for path in (outside, *outside.rglob("*")):
        os.chown(path, AGENT_UID, AGENT_GID)
    before = contents(outside)
    refused = 0

    def below(*names: str) -> RelPath:
        return RelPath(("attachments", *names))

    async def receive() -> None:
        async with site.workspace.receive(FOLDER) as incoming:
            await incoming.publish("a.txt")

    async def pack() -> None:
        data = b""
        async with site.workspace.archive(RelPath(), zip_of) as stream:
            async for piece in stream:
                data += piece
        assert "secret" not in str(zipfile.ZipFile(io.BytesIO(data)).namelist())

    operations = (
        receive,
        lambda: site.workspace.make_folder(below("old", "deep")),
        lambda: site.workspace.move(FILE, below("b.txt"), None),
        lambda: site.workspace.move(below("old"), below("new"), None),
        pack,
        site.workspace.usage,
        lambda: site.workspace.delete_file(below("b.txt")),
        lambda: site.workspace.delete_folder(below("new")),
        lambda: site.workspace.delete_folder(below("old")),
    )
    done = [0] * len(operations)
    with swapping(site, outside) as swaps:
        for number in range(ROUNDS):
            try:
                await operations[number % len(operations)]()
                done[number % len(operations)] += 1
            except WorkspaceError:
                refused += 1
    assert contents(outside) == before
    assert sum(done) + refused == ROUNDS
    assert min(*done, refused, swaps[0]) > 0
