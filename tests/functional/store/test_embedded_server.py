"""The embedded server's life, with the real programs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from rag.embedded import EmbeddedServer, launch, psql_command
from rag.embedded.binaries import find_binaries
from rag.errors import EmbeddedFailed, StoreDirectoryUnusable, StoreInUse, StoreVersionMismatch
from tests.functional.store.conftest import running
from tests.support.postgres import UID, reachable_python, start_service

ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not ROOT, reason="needs root: changes user")
ORDINARY = 42101
PSQL = find_binaries().program("psql")


def until(true: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.005)


def processes_in(directory: Path) -> set[int]:
    """The server processes that work in ``directory/pg``."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and (entry / "cwd").samefile(directory / "pg"):
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def postmaster_of(directory: Path) -> int:
    return int((directory / "pg" / "postmaster.pid").read_text().split("\n")[0])


async def test_first_start_makes_a_store_that_answers(data_dir: Path) -> None:
    async with running(data_dir) as conn:
        role = await conn.fetchrow(
            "SELECT rolname, rolsuper, rolcreaterole FROM pg_roles WHERE rolname = current_user"
        )
        assert tuple(role) == ("isthmus_app", False, False)
        assert {r["extname"] for r in await conn.fetch("SELECT extname FROM pg_extension")} >= {
            "vector", "unaccent", "pg_trgm",
        }  # fmt: skip
        settings = ("data_checksums", "fsync", "listen_addresses", "server_encoding", "TimeZone")
        assert [await conn.fetchval(f"SHOW {name}") for name in settings] == ["on", "on", "", "UTF8", "UTC"]
        assert await conn.fetchval("SELECT upper('ß→é')") == "ß→É"
    assert processes_in(data_dir) == set()


async def test_every_path_has_its_owner_and_mode_and_nothing_above_changes(data_dir: Path) -> None:
    above = [path for path in data_dir.parents if path != data_dir.parent]
    wheel = [*Path(launch.__file__).parents, Path(PSQL), *Path(PSQL).parents]
    before = [(p, p.stat().st_mode, p.stat().st_uid, p.stat().st_gid) for p in above + wheel]
    server_uid, socket_mode = (UID, 0o750) if ROOT else (os.geteuid(), 0o700)
    async with running(data_dir):
        made = {path.name: path.stat() for path in data_dir.iterdir()}
        seen = {name: (s.st_uid, s.st_gid, s.st_mode & 0o7777) for name, s in made.items()}
        assert seen == {
            "locks": (os.geteuid(), os.getegid(), 0o700),
            "pg": (server_uid, UID if ROOT else os.getegid(), 0o700),
            "socket": (server_uid, os.getegid(), socket_mode),
        }
        assert data_dir.stat().st_mode & 0o022 == 0
        inside = [path.lstat() for path in (data_dir / "pg").rglob("*")]
        assert len(inside) > 900
        assert {s.st_uid for s in inside} == {server_uid}
        assert {s.st_mode & 0o077 for s in inside} == {0}
    assert before == [(p, p.stat().st_mode, p.stat().st_uid, p.stat().st_gid) for p in above + wheel]


async def test_the_role_reaches_no_program_file_or_other_role(made_dir: Path) -> None:
    async with running(made_dir) as conn:
        for statement in (
            "COPY (SELECT 1) TO PROGRAM 'id'",
            "COPY pg_class TO '/tmp/isthmus-copied'",
            "SELECT pg_read_file('pg_hba.conf')",
            "SET ROLE isthmus_super",
            "CREATE ROLE another SUPERUSER",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await conn.execute(statement)
        for user in ("isthmus_super", "postgres", "pg_read_server_files"):
            with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
                await asyncpg.connect(
                    host=str(made_dir / "socket"), user=user, database="isthmus", password="x"
                )


@as_root
@pytest.mark.parametrize(("uid", "says"), [(42102, "Permission denied"), (UID, "Peer authentication failed")])
async def test_another_uid_cannot_sign_in(made_dir: Path, uid: int, says: str) -> None:
    async with running(made_dir):
        made_dir.parent.chmod(0o711)
        done = subprocess.run(
            [PSQL, "-h", str(made_dir / "socket"), "-U", "isthmus_app", "-c", "SELECT 1", "isthmus"],
            user=uid, group=uid, extra_groups=[], env={}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert says in done.stderr


async def test_psql_opens_the_store(made_dir: Path) -> None:
    async with running(made_dir):
        argv, env = await asyncio.to_thread(psql_command, made_dir)
        done = subprocess.run(
            [*argv, "-Atc", "SELECT session_user, current_database()"],
            env=env, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout == "isthmus_app|isthmus\n"


async def test_a_killed_server_comes_back_with_all_that_was_committed(made_dir: Path) -> None:
    lines: list[str] = []
    async with running(made_dir, lines) as conn:
        await conn.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
        again = conn
        for number in range(2):
            await again.execute("INSERT INTO kept VALUES ($1)", number)
            killed = postmaster_of(made_dir)
            os.kill(killed, signal.SIGKILL)
            deadline = time.monotonic() + 10
            while True:
                try:
                    again = await asyncpg.connect(
                        host=str(made_dir / "socket"), user="isthmus_app", database="isthmus"
                    )
                    if postmaster_of(made_dir) != killed:
                        break
                except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError):
                    assert time.monotonic() < deadline, lines
                await asyncio.sleep(0.02)
            assert await again.fetchval("SELECT count(*) FROM kept") == number + 1
        await again.close()
    restarts = [line for line in lines if line.startswith("PostgreSQL ended by itself")]
    assert restarts == [f"PostgreSQL ended by itself and is started again in {s} s" for s in ("0.2", "0.4")]


def test_a_server_that_a_killed_service_left_over_is_replaced(made_dir: Path) -> None:
    first = start_service(made_dir)
    assert first.stdout is not None
    assert first.stdout.readline() == "ready\n"
    left = postmaster_of(made_dir)
    first.kill()
    first.communicate()
    assert left in processes_in(made_dir)
    second = start_service(made_dir)
    assert second.stdout is not None
    assert second.stdout.readline() == "ready\n"
    assert left not in processes_in(made_dir)
    assert second.communicate("")[0] == ""
    assert second.returncode == 0
    assert processes_in(made_dir) == set()


@as_root
def test_it_needs_three_capabilities_and_kill(data_dir: Path) -> None:
    few = ("setpriv", "--bounding-set", "-all,+chown,+setuid,+setgid,+kill")
    for _ in range(2):
        first = start_service(data_dir, prefix=few)
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        first.kill()
        first.communicate()
    last = start_service(data_dir, prefix=few)
    assert last.communicate("") == ("ready\n", None)
    assert processes_in(data_dir) == set()


@as_root
async def test_a_stale_pid_file_that_names_a_living_stranger_is_no_obstacle(made_dir: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"], user=UID, group=UID, extra_groups=[])
    try:
        for name in ("pg/postmaster.pid", "socket/.s.PGSQL.5432.lock"):
            (made_dir / name).write_text(f"{stranger.pid}\n{made_dir}/pg\n1\n5432\n\n\n")
            os.chown(made_dir / name, UID, UID)
        async with running(made_dir) as conn:
            assert await conn.fetchval("SELECT 1") == 1
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_a_second_service_is_refused_and_the_first_goes_on(made_dir: Path) -> None:
    async with running(made_dir) as conn:
        with pytest.raises(StoreInUse):
            await EmbeddedServer(made_dir, UID, print).start()
        out, _ = start_service(made_dir).communicate()
        assert out.startswith("StoreInUse: another running service uses this store.data_dir")
        assert await conn.fetchval("SELECT 1") == 1


@pytest.mark.parametrize("moment", ["base", "PG_VERSION", "global/pg_control"])
async def test_a_killed_first_start_is_made_good_by_the_next(data_dir: Path, moment: str) -> None:
    first = start_service(data_dir)
    until(lambda: any(data_dir.glob(f"creating-*/pg/{moment}")))
    first.kill()
    first.communicate()
    assert not (data_dir / "pg").exists()
    async with running(data_dir) as conn:
        assert await conn.fetchval("SELECT '[1,2]'::vector::text") == "[1,2]"
    assert sorted(path.name for path in data_dir.iterdir()) == ["locks", "pg", "socket"]


@as_root
async def test_a_cluster_that_was_renamed_but_not_handed_over_is_handed_over(made_dir: Path) -> None:
    os.chown(made_dir / "pg", 0, 0)
    async with running(made_dir) as conn:
        assert await conn.fetchval("SELECT 1") == 1
    assert (made_dir / "pg").stat().st_uid == UID


async def test_another_major_version_is_refused_and_nothing_touched(made_dir: Path) -> None:
    version = made_dir / "pg" / "PG_VERSION"

    def state() -> list[tuple[str, int, int]]:
        return sorted(
            (str(p), p.lstat().st_mtime_ns, p.lstat().st_ctime_ns) for p in (made_dir / "pg").rglob("*")
        )

    version.write_text("17\n")
    before = state()
    try:
        with pytest.raises(StoreVersionMismatch) as refused:
            await EmbeddedServer(made_dir, UID, lambda _line: None).start()
        assert (refused.value.found, refused.value.installed) == ("17", "18")
        assert "pg_dump" in str(refused.value)
        assert state() == before
    finally:
        version.write_text("18\n")


async def test_a_long_data_dir_is_as_good_as_a_short_one(data_dir: Path) -> None:
    deep = data_dir / ("d" * 100) / ("e" * 100)
    async with EmbeddedServer(deep, UID, lambda _line: None) as connect:
        conn = await asyncpg.connect(**connect)
        assert await conn.fetchval("SELECT 1") == 1
        await conn.close()
        argv, env = await asyncio.to_thread(psql_command, deep)
        held = int(env["PGHOST"].rpartition("/")[2])
        done = subprocess.run(
            [*argv, "-Atc", "SELECT 2"], env=env, pass_fds=[held], capture_output=True, check=True
        )
        os.close(held)
        assert done.stdout == b"2\n"


@as_root
@pytest.mark.skipif(not reachable_python(), reason="no interpreter that an ordinary user can run")
async def test_an_ordinary_user_without_an_account_has_a_store_too(data_dir: Path) -> None:
    data_dir.mkdir()
    os.chown(data_dir, ORDINARY, ORDINARY)
    first = start_service(data_dir, uid=ORDINARY)
    assert first.stdout is not None
    assert first.stdout.readline() == "ready\n"
    assert {path.stat().st_uid for path in data_dir.rglob("*")} == {ORDINARY}
    done = subprocess.run(
        [PSQL, "-h", str(data_dir / "socket"), "-U", "isthmus_app", "-Atc", "SELECT 1", "isthmus"],
        user=ORDINARY, group=ORDINARY, extra_groups=[], env={}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("1\n", "")
    first.kill()
    first.communicate()
    assert processes_in(data_dir) != set()
    second = start_service(data_dir, uid=ORDINARY)
    assert second.communicate("") == ("ready\n", None)
    assert processes_in(data_dir) == set()


async def test_a_data_dir_below_a_file_is_refused_without_its_path(data_dir: Path) -> None:
    data_dir.write_text("")
    with pytest.raises(StoreDirectoryUnusable) as refused:
        await EmbeddedServer(data_dir / "below", UID, print).start()
    assert refused.value.problem == "Not a directory"


@as_root
async def test_a_directory_of_another_owner_is_refused(made_dir: Path) -> None:
    with pytest.raises(StoreDirectoryUnusable) as refused:
        await EmbeddedServer(made_dir, 42111, print).start()
    assert refused.value.problem == "it belongs to uid 42070, and the server runs as uid 42111"


@as_root
async def test_a_full_disk_is_told_and_a_later_start_succeeds(data_dir: Path) -> None:
    data_dir.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", data_dir], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(StoreDirectoryUnusable) as refused:
            await EmbeddedServer(data_dir, UID, lambda _line: None).start()
        assert refused.value.problem == "No space left on device"
        subprocess.run(["mount", "-o", "remount,size=200m", data_dir], check=True)
        async with running(data_dir) as conn:
            assert await conn.fetchval("SELECT 1") == 1
    finally:
        subprocess.run(["umount", "-l", data_dir], check=True)


async def test_a_server_that_cannot_start_is_given_up_and_its_words_are_in_the_log(made_dir: Path) -> None:
    control = made_dir / "pg" / "global" / "pg_control"
    kept = control.read_bytes()
    lines: list[str] = []
    control.write_bytes(kept[:64] + bytes(len(kept) - 64))
    try:
        with pytest.raises(EmbeddedFailed):
            await EmbeddedServer(made_dir, UID, lines.append).start()
    finally:
        control.write_bytes(kept)
    assert any("control file" in line for line in lines)


async def test_a_cancelled_start_leaves_nothing_running(made_dir: Path) -> None:
    server = EmbeddedServer(made_dir, UID, lambda _line: None)
    start = asyncio.create_task(server.start())
    await asyncio.sleep(0.05)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert processes_in(made_dir) == set()
    async with running(made_dir) as conn:
        assert await conn.fetchval("SELECT 1") == 1
