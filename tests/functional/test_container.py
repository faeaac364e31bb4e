"""The container image and compose.yaml, rehearsed without Docker: the same capabilities, mounts and command."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from packaging.requirements import Requirement

from proxy.identity import token_digest
from proxy.settings import load_settings
from rag.embedded.client import DATABASE, PORT, ROLE, socket_directory
from tests.support.demo import Demo, running_demo
from tests.support.postgres import reachable_python, start_service
from tests.support.service import AGENT_UID, TOKEN, deliveries, dsn

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
FINAL_STAGE = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
COMPOSE = (ROOT / "compose.yaml").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONFIG = ROOT / "deploy" / "config.toml"

READY_SECONDS = 40.0
STOP_SECONDS = 20.0
CAPABILITY_BITS = {"CHOWN": 0, "KILL": 5, "SETGID": 6, "SETUID": 7}  # linux/capability.h

# What the container's mounts are to the service: everything read-only but its volumes and a fresh /tmp.
MOUNTS = """\
set -eu
top=$1
shift
mount --make-rprivate /
mount --bind "$top" "$top"
for volume in data workspaces; do mount --bind "$top/$volume" "$top/$volume"; done
mount -t tmpfs -o mode=1777 tmpfs "$top/tmp"
mount -o remount,bind,ro "$top"
mount -o remount,bind,ro /
exec "$@"
"""

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="a container's root, and its agents' uids, need root"
)


def shipped_capabilities() -> list[str]:
    """Those that compose.yaml adds to none."""
    found = re.search(r"cap_drop: \[ALL\]\n +cap_add: \[([A-Z_, ]+)\]", COMPOSE)
    assert found is not None
    return found[1].split(", ")


def instruction(name: str) -> list[str]:
    """The words of an instruction of the final stage, in its JSON form."""
    found = re.search(rf"^{name}.*?(\[.*\])$", FINAL_STAGE, re.MULTILINE)
    assert found is not None
    words: list[str] = json.loads(found[1])
    return words


# ---- the files


def test_dockerfile_passes_hadolint() -> None:
    linter = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if linter is None:
        pytest.skip("hadolint is not installed")
    found = subprocess.run([linter, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_service_image_is_its_base_and_the_venv() -> None:
    stages = dict(re.findall(r"^FROM \S+ AS (\S+)\n((?:(?!FROM ).*\n)*)", DOCKERFILE, re.MULTILINE))
    assert list(stages)[-1] == "isthmus"
    steps = re.findall(r"^(?:COPY|ADD|RUN) .*$", stages["base"] + stages["isthmus"], re.MULTILINE)
    assert steps == ["COPY --from=builder /opt/isthmus /opt/isthmus"]


def test_lock_has_every_dependency_within_its_bounds() -> None:
    lock = (ROOT / "deploy" / "service.lock").read_text()
    pinned = dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", lock, re.MULTILINE))
    for wanted in map(Requirement, PYPROJECT["project"]["dependencies"]):
        assert pinned.get(wanted.name, "") in wanted.specifier, f"{wanted}: docs/docker.md says how to lock"


def test_wheel_holds_every_file_that_is_not_code() -> None:
    for package, globs in PYPROJECT["tool"]["setuptools"]["package-data"].items():
        held = {path for pattern in globs for path in (ROOT / package).glob(pattern)}
        files = {path for path in (ROOT / package).rglob("*") if path.is_file()}
        assert {path for path in files - held if path.suffix not in {".py", ".pyc"}} == set()


def test_shipped_configuration_is_valid_and_lets_nobody_in() -> None:
    settings = load_settings(CONFIG)
    assert settings.auth.tokens == ()
    assert [agent.uid for agent in settings.agents] == [1000]
    assert "USER 1000:1000" in DOCKERFILE


def test_compose_gives_the_four_capabilities_and_publishes_on_loopback_only() -> None:
    assert sorted(shipped_capabilities()) == sorted(CAPABILITY_BITS)
    assert re.findall(r"ports: \[(.*)\]", COMPOSE) == ['"127.0.0.1:8080:8080"']
    assert COMPOSE.count("no-new-privileges:true") == COMPOSE.count("read_only: true") == 2


# ---- the rehearsal


@dataclass
class Contained:
    """A running service: its process, and a client with a member's token."""

    process: subprocess.Popen[str]
    client: aiohttp.ClientSession
    url: str

    def status(self) -> dict[str, str]:
        """/proc/<pid>/status."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def mounts(self) -> dict[str, str]:
        """ "ro" or "rw" of each mount point as the service sees it; the last mount on a point counts."""
        lines = Path(f"/proc/{self.process.pid}/mountinfo").read_text().splitlines()
        return {words[4]: words[5].split(",")[0] for words in map(str.split, lines)}

    async def upload(self, name: str, content: bytes) -> None:
        form = aiohttp.FormData(default_to_multipart=True)
        form.add_field("file", content, filename=name)
        async with self.client.post("/v1/media", data=form) as response:
            assert response.status == 200, await response.text()

    async def turn(self, text: str) -> list[dict[str, Any]]:
        body = {"messages": [{"role": "user", "content": text}], "stream": True, "session_id": "s1"}
        async with self.client.post("/v1/chat/completions", json=body) as response:
            assert response.status == 200, await response.text()
            records = re.findall(r"^data: (\{.*)$", await response.text(), re.MULTILINE)
        return [json.loads(record) for record in records]

    async def get(self, path: str) -> Any:
        async with self.client.get(path) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def files(self) -> dict[str, int]:
        """Path and size of everything that the member sees, folders left out."""
        entries = (await self.get("/v1/media"))["files"]
        return {entry["path"]: entry["size"] for entry in entries if not entry["isDir"]}


def environment(top: Path, demo: Demo, store_url: str = "") -> dict[str, str]:
    """What the shipped configuration is told of this place; nothing of the test's own environment is passed on."""
    agent = {
        "key": "demo",
        "url": demo.agent_url(),
        "token_env": "DEMO_AGENT_TOKEN",
        "uid": AGENT_UID,
        "gid": AGENT_UID,
    }
    return {
        "PATH": os.environ["PATH"],
        "TMPDIR": str(top / "tmp"),
        "DEMO_AGENT_TOKEN": demo.token,
        "ISTHMUS__SERVER__HOST": "127.0.0.1",
        "ISTHMUS__SERVER__PORT": "0",
        "ISTHMUS__STORE__DATA_DIR": str(top / "data"),
        "ISTHMUS__STORE__URL": store_url,
        "ISTHMUS__AGENTS": json.dumps([{**agent, "workspaces": str(top / "workspaces")}]),
        "ISTHMUS__AUTH__TOKENS": json.dumps([{"member": "ana", "sha256": token_digest(TOKEN)}]),
        "ISTHMUS__CHAT__DELIVERY_SETTLE": "1",
    }  # fmt: skip


@asynccontextmanager
async def contained(command: list[str], env: dict[str, str], log: Path) -> AsyncIterator[Contained]:
    """Run it until it has said that it is ready; killed at the end if it still runs."""
    with log.open("a") as errors:
        process = subprocess.Popen(
            command, env=env, cwd="/", stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), READY_SECONDS)
        assert line.startswith("ready http://127.0.0.1:"), log.read_text()
        url = line.split()[1]
        async with aiohttp.ClientSession(url, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            yield Contained(process, client, url)
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
        process.stdout.close()


async def stopped(service: Contained) -> int:
    """The exit status after SIGTERM."""
    service.process.send_signal(signal.SIGTERM)
    return await asyncio.to_thread(service.process.wait, STOP_SECONDS)


def mount_namespace(process: str) -> str:
    return os.readlink(f"/proc/{process}/ns/mnt")


def processes_in(namespace: str) -> set[str]:
    """The pids of a mount namespace: the service's, and every process that it ever started."""
    found = set()
    for entry in os.scandir("/proc"):
        try:
            if entry.name.isdecimal() and mount_namespace(entry.name) == namespace:
                found.add(entry.name)
        except OSError:  # it ended while we looked
            continue
    return found


@pytest.fixture
def top(open_dir: Path) -> Path:
    """The container's places: two volumes and a temporary directory."""
    for name in ("data", "workspaces", "tmp"):
        (open_dir / name).mkdir(mode=0o755)
    return open_dir


@needs_root
async def test_service_works_as_a_container_with_four_capabilities_and_leaves_nothing_running(
    top: Path,
) -> None:
    capabilities = shipped_capabilities()
    setpriv = ["setpriv", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs"]
    bounding = f"--bounding-set=-all,{','.join(f'+{name.lower()}' for name in capabilities)}"
    program = [
        str(Path(sys.executable).parent / instruction("ENTRYPOINT")[0]),
        *instruction("CMD")[:-1],
        str(CONFIG),
    ]
    command = ["unshare", "--mount", "sh", "-c", MOUNTS, "sh", str(top), *setpriv, bounding, *program]
    log = top / "log"

    async with running_demo(top / "workspaces", AGENT_UID, AGENT_UID, word_delay=0.002) as demo:
        async with contained(command, environment(top, demo), log) as service:
            status = service.status()
            mask = sum(1 << CAPABILITY_BITS[name] for name in capabilities)
            assert [int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")] == [mask] * 3
            assert (int(status["CapInh"], 16), status["NoNewPrivs"]) == (0, "1")
            namespace = mount_namespace(str(service.process.pid))
            assert namespace != mount_namespace("self")
            mounts = service.mounts()
            assert [mounts[path] for path in ("/", str(top), str(top / "data"))] == ["ro", "ro", "rw"]
            assert len(processes_in(namespace)) > 1, "the service, and its PostgreSQL"

            await service.upload("notes.txt", b"one two three")
            sent = deliveries(await service.turn("make a report"))
            assert (sent[-1]["state"], sent[-1]["path"]) == ("stored", "public/attachments/report-1.md")
            files = await service.files()
            assert files["public/notes.txt"] == len(b"one two three")
            history = await service.get("/v1/sessions/history?session_id=s1")
            assert await stopped(service) == 0, log.read_text()
            assert processes_in(namespace) == set()

        for path in (top / "workspaces" / "ana" / "workspace").rglob("*"):
            assert path.stat().st_uid == AGENT_UID, path
        async with contained(command, environment(top, demo), log) as service:
            assert await service.files() == files
            assert await service.get("/v1/sessions/history?session_id=s1") == history
            assert healthy(service.url)
            assert await stopped(service) == 0, log.read_text()
            assert not healthy(service.url)


def healthy(url: str) -> bool:
    """What the image's HEALTHCHECK says of a service at this address."""
    _, option, code = instruction("HEALTHCHECK")
    code = code.replace("http://127.0.0.1:8080", url)
    return subprocess.run([sys.executable, option, code], capture_output=True, check=False).returncode == 0


@contextmanager
def own_postgres(directory: Path) -> Iterator[str]:
    """The DSN of a PostgreSQL that is not the service's, run by the agent's uid."""
    directory.mkdir()
    os.chown(directory, AGENT_UID, AGENT_UID)
    server = start_service(directory, AGENT_UID)
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == "ready\n"
        yield dsn(
            {"host": str(socket_directory(directory)), "port": PORT, "user": ROLE, "database": DATABASE}
        )
    finally:
        server.communicate("", timeout=STOP_SECONDS)


@needs_root
async def test_service_needs_no_privilege_with_an_own_postgres_and_one_agent_uid(top: Path) -> None:
    if not reachable_python():
        pytest.skip("no interpreter that another uid can run")
    ids = [f"--reuid={AGENT_UID}", f"--regid={AGENT_UID}", "--clear-groups"]
    setpriv = ["setpriv", *ids, "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
    command = [*setpriv, reachable_python(), "-m", "proxy", "serve", "-c", str(CONFIG)]
    for name in ("data", "workspaces"):
        os.chown(top / name, AGENT_UID, AGENT_UID)

    with own_postgres(top / "postgres") as store_url:
        async with running_demo(top / "workspaces", AGENT_UID, AGENT_UID, word_delay=0.002) as demo:
            env = {**environment(top, demo, store_url), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
            async with contained(command, env, top / "log") as service:
                status = service.status()
                assert status["Uid"].split() == [str(AGENT_UID)] * 4
                assert [int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")] == [0] * 3
                await service.upload("notes.txt", b"one two three")
                sent = deliveries(await service.turn("make a report"))
                assert sent[-1]["state"] == "stored"
                assert (await service.files())["public/notes.txt"] == len(b"one two three")
                assert await stopped(service) == 0, (top / "log").read_text()
    assert not (top / "data" / "pg").exists()
