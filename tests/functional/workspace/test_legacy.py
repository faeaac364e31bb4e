"""Directories of the old name, `uploads`, become part of `public` at the first access, whatever is in them."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import random
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.functional.workspace.conftest import (
    AGENT_GID,
    AGENT_UID,
    Site,
    as_agent,
    names_in,
    needs_root,
)
from workspace import confine, merging
from workspace.confine import closing
from workspace.errors import WorkspaceError
from workspace.handle import Workspace
from workspace.legacy import ATTEMPT_SECONDS, PIECE_ENTRIES, PIECE_SECONDS, Migrated, Migrations
from workspace.location import Location
from workspace.paths import MAX_SEGMENTS, RelPath
from workspace.registry import Workspaces
from workspace.renaming import keep_newer
from workspace.rights import Rights
from workspace.settings import AgentTree

KILLS = 200 if os.environ.get("ISTHMUS_TEST_SIZE") == "full" else 20
RACES = 20_000 if os.environ.get("ISTHMUS_TEST_SIZE") == "full" else 300
DAY = 86_400
WAIT_SECONDS = 20

Files = dict[str, tuple[str, int]]


class Clock:
    """The time of the migrations, which a test may move on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def told() -> list[Migrated]:
    return []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def locks(tree: AgentTree) -> Path:
    return tree.root / "locks"


@pytest.fixture
async def workspaces(locks: Path, told: list[Migrated], clock: Clock) -> AsyncIterator[Workspaces]:
    everything = Workspaces(Migrations(locks, told.append, clock=clock), durable=False)
    yield everything
    await everything.close()


@pytest.fixture
async def bare(site: Site) -> Site:
    """A workspace that was prepared and has neither `public` nor `uploads`."""
    os.rmdir(site.attachments)
    os.rmdir(site.public)
    return site


def put(top: Path, **entries: Any) -> None:
    """Make entries as the agent: text is a file, a pair is text and mtime in days, None a folder, a path a link to it.

    `__` in a name is `/`, `_dot_` a dot.
    """

    def make() -> bool:
        top.mkdir(exist_ok=True)
        for name, content in entries.items():
            put_one(top / name.replace("__", "/").replace("_dot_", "."), content)
        return True

    as_agent(make)


def put_one(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        path.mkdir()
    elif isinstance(content, Path):
        path.symlink_to(content)
    else:
        text, days = content if isinstance(content, tuple) else (content, 1)
        path.write_text(text)
        os.utime(path, (days * DAY, days * DAY))


def tree_of(top: Path) -> dict[str, str | None]:
    """Every entry below, files with their text."""
    return {
        str(path.relative_to(top)): path.read_text() if path.is_file() else None
        for path in sorted(top.rglob("*"))
    }


async def look(site: Site) -> list[str]:
    page = await site.workspace.list(RelPath(), cursor=None, limit=1000)
    return [entry.path for entry in page.files]


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it does not come to hold"
        await asyncio.sleep(0.01)


async def test_uploads_alone_is_renamed(bare: Site, told: list[Migrated]) -> None:
    uploads = bare.directory / "uploads"
    put(uploads, a_dot_txt="A", sub__b_dot_txt="B", empty=None, link=Path("/etc/passwd"))
    inode = uploads.stat().st_ino
    assert await look(bare) == ["public/a.txt", "public/empty", "public/sub", "public/sub/b.txt"]
    assert names_in(bare.directory) == ["public"]
    assert bare.public.stat().st_ino == inode
    assert told == [Migrated("ana/workspace", 1)]


async def receive(workspace: Workspace) -> None:
    async with workspace.receive(RelPath()) as incoming:
        await incoming.publish("new.txt")


async def download(workspace: Workspace) -> None:
    await (await workspace.open(RelPath(("a.txt",)))).close()


async def watch(workspace: Workspace) -> None:
    async with workspace.watch():
        pass


ACCESSES: dict[str, Callable[[Workspace], Awaitable[object]]] = {
    "list": lambda workspace: workspace.list(RelPath(), cursor=None, limit=1),
    "download": download,
    "upload": receive,
    "prepare": Workspace.prepare,
    "snapshot": Workspace.snapshot,
    "make_folder": lambda workspace: workspace.make_folder(RelPath(("sub",))),
    "delete_file": lambda workspace: workspace.delete_file(RelPath(("b.txt",))),
    "move": lambda workspace: workspace.move(RelPath(("b.txt",)), RelPath(("c.txt",)), None),
    "usage": Workspace.usage,
    "watch": watch,
}


@pytest.mark.parametrize("access", ACCESSES)
async def test_every_access_migrates_first(bare: Site, access: str) -> None:
    put(bare.directory / "uploads", a_dot_txt="A", b_dot_txt="B")
    await ACCESSES[access](bare.workspace)
    assert not (bare.directory / "uploads").exists()
    assert (bare.public / "a.txt").read_text() == "A"


@pytest.mark.parametrize("access", ["list", "snapshot", "watch"])
async def test_a_look_makes_nothing(bare: Site, access: str, locks: Path) -> None:
    await ACCESSES[access](bare.workspace)
    assert names_in(bare.directory) == []
    assert not list(locks.glob("*"))


async def test_both_are_merged_and_uploads_is_gone(site: Site, told: list[Migrated]) -> None:
    put(site.public, a_dot_txt="public", sub__deep__x="public", kept=None)
    put(
        site.directory / "uploads",
        b_dot_txt="uploads", sub__deep__y="uploads", sub__z="uploads", empty__in=None, attachments__r="report",
    )  # fmt: skip
    await look(site)
    assert not (site.directory / "uploads").exists()
    assert tree_of(site.public) == {
        "a.txt": "public", "attachments": None, "attachments/r": "report", "b.txt": "uploads", "empty": None,
        "empty/in": None, "kept": None, "sub": None, "sub/deep": None, "sub/deep/x": "public",
        "sub/deep/y": "uploads", "sub/z": "uploads",
    }  # fmt: skip
    assert told == [Migrated("ana/workspace", 5)]


async def test_of_two_files_the_newer_is_kept_and_publics_if_they_are_equal(site: Site) -> None:
    put(site.public, newer=("public", 2), older=("public", 1), equal=("public", 1), in__deep=("public", 1))
    put(
        site.directory / "uploads",
        newer="uploads",
        older=("uploads", 2),
        equal="uploads",
        in__deep=("uploads", 2),
    )
    await look(site)
    assert {name: text for name, text in tree_of(site.public).items() if text} == {
        "newer": "public", "older": "uploads", "equal": "public", "in/deep": "uploads",
    }  # fmt: skip
    assert names_in(site.directory) == ["public"]


async def test_a_merge_changes_no_owner_mode_or_time(site: Site) -> None:
    put(site.directory / "uploads", a=("uploads", 3))
    as_agent(lambda: os.chmod(site.directory / "uploads" / "a", 0o604) or True)
    before = (site.directory / "uploads" / "a").stat()
    await look(site)
    after = (site.public / "a").stat()
    assert (after.st_ino, after.st_uid, after.st_mode, after.st_mtime) == (
        before.st_ino, AGENT_UID, before.st_mode, 3 * DAY,
    )  # fmt: skip


async def test_a_file_and_a_folder_of_one_name_are_both_kept(site: Site) -> None:
    put(site.public, a_dot_pdf__in="public", b="public", **{"a-uploads_dot_pdf": "taken"})
    put(site.directory / "uploads", a_dot_pdf="uploads", b__in="uploads")
    assert "public/a-uploads-2.pdf" in await look(site)
    assert {name: text for name, text in tree_of(site.public).items() if text} == {
        "a.pdf/in": "public", "a-uploads.pdf": "taken", "a-uploads-2.pdf": "uploads",
        "b": "public", "b-uploads/in": "uploads",
    }  # fmt: skip
    assert names_in(site.directory) == ["public"]


async def test_a_name_of_full_length_is_cut_to_take_the_label(site: Site) -> None:
    name = "ä" * 125 + ".pdf"
    put(site.public, **{f"{name}__in": "public"})
    put(site.directory / "uploads", **{name: "uploads"})
    await look(site)
    assert (site.public / ("ä" * 121 + "-uploads.pdf")).read_text() == "uploads"


async def test_names_that_are_not_unicode_are_moved_as_they_are(site: Site) -> None:
    (name,) = {os.fsdecode(b"\xff\xfe.bin")}
    put(site.public, **{f"{name}__in": "public"})
    put(site.directory / "uploads", **{name: "uploads", os.fsdecode(b"\xfd"): "alone"})
    await look(site)
    assert names_in(site.public) == sorted(
        ["attachments", name, os.fsdecode(b"\xff\xfe-uploads.bin"), os.fsdecode(b"\xfd")]
    )


async def test_a_link_in_public_is_neither_followed_nor_replaced(site: Site) -> None:
    outside = site.tree.root / "outside"
    outside.mkdir()
    put(site.public, a=outside, b=outside)
    put(site.directory / "uploads", a__in="uploads", b="uploads")
    await look(site)
    assert names_in(outside) == []
    assert (site.public / "a-uploads" / "in").read_text() == "uploads"
    assert (site.public / "b-uploads").read_text() == "uploads"


@pytest.mark.parametrize("kind", ["link", "file"])
async def test_an_uploads_that_is_no_folder_is_left_and_told_once(
    bare: Site, told: list[Migrated], kind: str, clock: Clock
) -> None:
    outside = bare.tree.root / "outside"
    put_one(outside / "secret.txt", "secret")
    put(bare.directory, uploads=outside if kind == "link" else "a file")
    assert await look(bare) == []
    assert names_in(bare.directory) == ["uploads"]
    clock.ahead += ATTEMPT_SECONDS + 1
    await bare.workspace.prepare()
    assert names_in(bare.directory) == ["public", "uploads"]
    assert await look(bare) == ["public/attachments"]
    assert names_in(outside) == ["secret.txt"]
    assert told == [Migrated("ana/workspace", 0, (("", "not_a_folder"),), 1)]


async def test_links_in_uploads_are_left_and_told(site: Site, told: list[Migrated], clock: Clock) -> None:
    uploads = site.directory / "uploads"
    put(site.public, sub__x="public")
    put(uploads, link=Path("/etc/passwd"), sub__link=Path("x"), sub__y="uploads")
    await look(site)
    assert names_in(site.public) == ["attachments", "sub"]
    assert names_in(site.public / "sub") == ["x", "y"]
    assert names_in(uploads) == ["link", "sub"]
    assert names_in(uploads / "sub") == ["link"]
    clock.ahead += ATTEMPT_SECONDS + 1
    await look(site)
    assert [(one.moved, sorted(one.left)) for one in told] == [(1, [("link", "link"), ("sub/link", "link")])]


async def test_a_public_that_is_a_link_is_no_place_to_merge_into(bare: Site) -> None:
    outside = bare.tree.root / "outside"
    outside.mkdir()
    put(bare.directory, public=outside, uploads__a="A")
    with pytest.raises(WorkspaceError):
        await look(bare)
    assert names_in(outside) == []
    assert names_in(bare.directory / "uploads") == ["a"]


async def test_a_file_called_attachments_does_not_take_the_deliveries_place(bare: Site) -> None:
    put(bare.directory / "uploads", attachments="a file")
    await bare.workspace.prepare()
    assert bare.attachments.is_dir()
    assert (bare.public / "attachments-uploads").read_text() == "a file"


@needs_root
async def test_what_the_agents_rights_do_not_reach_is_left_and_told(site: Site, told: list[Migrated]) -> None:
    uploads = site.directory / "uploads"
    put(site.public, closed=None)
    put(uploads, closed__x="uploads", open="uploads")
    (uploads / "closed").chmod(0o000)
    await look(site)
    assert (site.public / "open").read_text() == "uploads"
    assert tree_of(uploads) == {"closed": None, "closed/x": "uploads"}
    assert told == [Migrated("ana/workspace", 1, (("closed", "EACCES"),), 1)]


def unsupported(*_: object) -> NoReturn:
    raise OSError(errno.EINVAL, "the file system does not know the flag")


async def test_without_renameat2_the_same_is_merged(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confine, "rename_noreplace", unsupported)
    monkeypatch.setattr(confine, "rename_exchange", unsupported)
    put(site.public, a="public", b=("public", 2), sub__x="public", c__in="public")
    put(
        site.directory / "uploads",
        a=("uploads", 2),
        b="uploads",
        sub__y="uploads",
        new__z="uploads",
        c="uploads",
    )
    await look(site)
    assert {name: text for name, text in tree_of(site.public).items() if text} == {
        "a": "uploads", "b": "public", "c/in": "public", "c-uploads": "uploads", "new/z": "uploads",
        "sub/x": "public", "sub/y": "uploads",
    }  # fmt: skip
    assert names_in(site.directory) == ["public"]


async def test_deep_folders_are_merged_with_few_descriptors(site: Site) -> None:
    deep = "/".join("d" * 40)
    for top in (site.public, site.directory / "uploads"):
        put(top, **{f"{deep.replace('/', '__')}__{top.name}": top.name})
    await look(site)
    assert not (site.directory / "uploads").exists()
    # Beyond the depth that a member's path can have nothing is merged any more, and nothing is lost.
    merged = "/".join("d" * (MAX_SEGMENTS - 1))
    found = {path: text for path, text in tree_of(site.public).items() if text}
    assert sorted(found.values()) == ["public", "uploads"]
    assert [path.startswith(f"{merged}/d-uploads/") for path, text in found.items() if text == "uploads"] == [
        True
    ]


async def test_one_access_moves_a_bounded_number_and_the_rest_follows_by_itself(
    site: Site, told: list[Migrated]
) -> None:
    uploads = site.directory / "uploads"
    count = 3 * PIECE_ENTRIES + 7
    put(uploads, **{f"f{number}": "x" for number in range(count)})
    await site.workspace.snapshot()
    assert uploads.exists()
    await until(lambda: not uploads.exists() and bool(told))
    assert len(names_in(site.public)) == count + 1
    assert told == [Migrated("ana/workspace", count)]


async def test_the_next_attempt_at_a_workspace_waits_for_a_minute(site: Site, clock: Clock) -> None:
    uploads = site.directory / "uploads"
    put(uploads, a="first")
    await look(site)
    assert not uploads.exists()
    put(uploads, b="second")
    await look(site)
    assert names_in(uploads) == ["b"]
    clock.ahead += ATTEMPT_SECONDS + 1
    await look(site)
    assert not uploads.exists()
    assert (site.public / "b").read_text() == "second"


async def test_a_lock_that_another_process_holds_is_waited_for_a_moment_only(
    site: Site, locks: Path, clock: Clock
) -> None:
    uploads = site.directory / "uploads"
    put(uploads, a="A", link=Path("x"))
    await look(site)
    put(uploads, b="B")
    clock.ahead += ATTEMPT_SECONDS + 1
    (lock,) = locks.iterdir()
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        began = time.monotonic()
        await look(site)
        assert PIECE_SECONDS <= time.monotonic() - began < PIECE_SECONDS + 2
        assert names_in(uploads) == ["b", "link"]
    clock.ahead += ATTEMPT_SECONDS + 1
    await look(site)
    assert names_in(uploads) == ["link"]


async def test_two_accesses_at_once_both_see_everything(bare: Site) -> None:
    put(bare.directory / "uploads", **{f"f{number}": "x" for number in range(300)})
    put(bare.public, **{f"f{number}": "x" for number in range(0, 300, 2)})
    pages = await asyncio.gather(look(bare), look(bare))
    assert [len(page) for page in pages] == [300, 300]


def test_a_file_that_is_published_in_the_moment_of_the_exchange_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_one(tmp_path / "uploads" / "a", ("uploads", 2))
    put_one(tmp_path / "public" / "a", ("public", 1))
    put_one(tmp_path / "draft", ("published", 3))
    exchange = confine.rename_exchange

    def publish_first(*arguments: Any) -> None:
        if (tmp_path / "draft").exists():
            os.rename(tmp_path / "draft", tmp_path / "public" / "a")
        exchange(*arguments)

    monkeypatch.setattr(confine, "rename_exchange", publish_first)
    with (
        closing(os.open(tmp_path / "uploads", os.O_RDONLY)) as source,
        closing(os.open(tmp_path / "public", os.O_RDONLY)) as target,
    ):
        keep_newer(source, target, "a")
    assert tree_of(tmp_path) == {"public": None, "public/a": "published", "uploads": None}


@pytest.mark.parametrize("swapped", ["public", "uploads"])
async def test_a_folder_that_is_a_link_when_its_turn_comes_is_left(
    site: Site, swapped: str, told: list[Migrated], monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = site.tree.root / "outside"
    for top in (outside, site.public, site.directory / "uploads"):
        put_one(top / "sub" / top.name, top.name)
        for folder in (top, top / "sub"):
            os.chown(folder, AGENT_UID, AGENT_GID)
    before = tree_of(outside)
    folder = site.directory / swapped / "sub"

    def swap_and_open(parent: int, names: tuple[str, ...], flags: int) -> int:
        if names and not folder.is_symlink():
            os.rename(folder, site.directory / "away")
            folder.symlink_to(outside / "sub")
        return confine.open_at(parent, names, flags)

    monkeypatch.setattr(merging, "open_at", swap_and_open)
    await site.workspace.snapshot()
    assert tree_of(outside) == before
    ((path, why),) = told[0].left
    assert (path, why in {"ELOOP", "ENOTDIR"}) == ("sub", True)


@contextmanager
def rebuilding(site: Site, outside: Path) -> Iterator[None]:
    """An agent that makes `uploads` again and again and swaps folders in it, and it, for links to its twin outside."""
    ended = threading.Event()
    uploads = site.directory / "uploads"
    victims = [(uploads, outside), (uploads / "sub", outside / "sub"), (site.public / "sub", outside / "sub")]

    def work() -> None:
        Rights(AGENT_UID, AGENT_GID).take()
        while not ended.is_set():
            for name in ("sub/a", "sub/b", "b"):
                with suppress(OSError):
                    (uploads / name).parent.mkdir(parents=True, exist_ok=True)
                    (uploads / name).write_text("inside")
            for inside, target in victims:
                away = inside.with_name(inside.name + ".away")
                for step in (
                    partial(os.rename, inside, away),
                    partial(os.symlink, target, inside),
                    inside.unlink,
                    partial(os.rename, away, inside),
                ):
                    with suppress(OSError):
                        step()

    agent = threading.Thread(target=work)
    agent.start()
    try:
        yield
    finally:
        ended.set()
        agent.join()


@pytest.mark.stress
async def test_no_swap_of_a_folder_for_a_link_leads_a_migration_outside(
    site: Site, clock: Clock, told: list[Migrated]
) -> None:
    outside = site.tree.root / "outside"
    put_one(outside / "sub" / "a", "outside")
    put_one(outside / "a", "outside")
    for path in (outside, *outside.rglob("*")):
        os.chown(path, AGENT_UID, AGENT_GID)  # only the confinement keeps the service out, not the rights
    before = tree_of(outside)
    with rebuilding(site, outside):
        for _ in range(RACES):
            clock.ahead += ATTEMPT_SECONDS + 1
            with suppress(WorkspaceError):
                await site.workspace.snapshot()
    inside = {path: text for path, text in tree_of(outside).items() if text != "inside"}
    assert inside == before
    assert "outside" not in tree_of(site.directory).values()
    assert sum(one.moved for one in told) > RACES / 10


def legacy_files(site: Site) -> Files:
    """Both directories with what they have in common, and what must be there in the end."""
    public = {f"d{n % 7}__f{n}": (f"public {n}", n % 3) for n in range(0, 240, 2)}
    uploads = {f"d{n % 7}__f{n}": (f"uploads {n}", (n + 1) % 3) for n in range(0, 240, 3)}
    clashes = {f"clash{n}": (f"uploads clash {n}", 1) for n in range(5)}
    put(site.public, **public, **{f"clash{n}__in": (f"public clash {n}", 1) for n in range(5)})
    put(site.directory / "uploads", **uploads, **clashes)
    merged = dict(public)
    for name, file in uploads.items():
        if name not in merged or file[1] > merged[name][1]:
            merged[name] = file
    expected = {name.replace("__", "/"): file for name, file in merged.items()}
    expected |= {f"clash{n}/in": (f"public clash {n}", 1) for n in range(5)}
    return expected | {f"clash{n}-uploads": (f"uploads clash {n}", 1) for n in range(5)}


def assert_merged(site: Site, expected: Files) -> None:
    assert names_in(site.directory) == ["public"]
    found = {name: text for name, text in tree_of(site.public).items() if text is not None}
    assert found == {name: text for name, (text, _) in expected.items()}


SERVICE = """
import asyncio, os, sys
from pathlib import Path
from workspace.legacy import Migrations
from workspace.location import Location
from workspace.registry import Workspaces
from workspace.settings import AgentTree

root, locks, uid, gid = sys.argv[1:]
tree = AgentTree(Path(root), int(uid), int(gid), file_mode=0o640, dir_mode=0o750, min_free=0.0)

async def access(member):
    workspaces = Workspaces(Migrations(Path(locks), lambda _: None), durable=False)
    await workspaces.open("demo", tree, Location(member)).snapshot()
    await workspaces.close()

children = []
for line in sys.stdin:
    if member := line.strip():
        children.append(os.fork())
        if not children[-1]:
            asyncio.run(access(member))
            os._exit(0)
        print(children[-1], flush=True)
    else:
        print(*(os.waitpid(child, 0)[1] for child in children), flush=True)
        children.clear()
"""


class Services:
    """Makes processes of the service that get one access each; they stay to be waited for until `ends`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def access(self, member: str) -> int:
        """The id of a process in which an access to this member's workspace has begun."""
        return int(await self._ask(member))

    async def ends(self) -> list[int]:
        """How each process ended, once all have."""
        return [int(status) for status in (await self._ask("")).split()]

    async def _ask(self, line: str) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n".encode())
        return await self._process.stdout.readline()


@pytest.fixture
async def services(tree: AgentTree, locks: Path) -> AsyncIterator[Services]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVICE, str(tree.root), str(locks), str(AGENT_UID), str(AGENT_GID),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    yield Services(process)
    assert process.stdin is not None
    process.stdin.close()
    await process.wait()


async def prepared(tree: AgentTree, workspaces: Workspaces, member: str) -> Site:
    site = Site(workspaces.open("demo", tree, Location(member)), tree, tree.root / member / "workspace")
    await site.workspace.prepare()
    site.attachments.rmdir()
    return site


async def test_two_processes_at_once_merge_as_one_does(
    tree: AgentTree, workspaces: Workspaces, services: Services
) -> None:
    site = await prepared(tree, workspaces, "ana")
    expected = legacy_files(site)
    for _ in range(2):
        await services.access("ana")
    assert await services.ends() == [0, 0]
    assert_merged(site, expected)


@pytest.mark.stress
async def test_a_kill_at_any_moment_loses_and_doubles_nothing(
    tree: AgentTree, workspaces: Workspaces, services: Services
) -> None:
    site = await prepared(tree, workspaces, "bo")
    legacy_files(site)
    await services.access("bo")
    began = time.monotonic()
    await services.ends()
    whole = time.monotonic() - began
    killed_under_way = 0
    for number in range(KILLS):
        site = await prepared(tree, workspaces, f"ana-{number}")
        expected = legacy_files(site)
        untouched = tree_of(site.directory / "uploads")
        process = await services.access(f"ana-{number}")
        await asyncio.sleep(whole * random.uniform(0.3, 1))  # its first part is the start of the loop
        os.kill(process, signal.SIGKILL)
        await services.ends()
        if (site.directory / "uploads").exists():
            killed_under_way += tree_of(site.directory / "uploads") != untouched
        await site.workspace.snapshot()
        assert_merged(site, expected)
    assert killed_under_way, "no kill came in time"
