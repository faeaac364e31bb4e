"""The real `./run` as a process of its own, with a data directory of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sysconfig
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SHIPPED = ("proxy", "rag", "workspace", "web", "examples", "run", "pyproject.toml", "README.md")
READY_SECONDS = 40.0
END_SECONDS = 30.0


def wait_for(condition: Callable[[], object], seconds: float = END_SECONDS) -> bool:
    """Whether the condition became true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def processes(data_dir: Path, word: str = "") -> list[int]:
    """The processes that have to do with this data directory, by command line or where they work."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                where = os.readlink(entry / "cwd")
            except OSError:
                continue
            if word in line and (str(data_dir) in line or where.startswith(str(data_dir))):
                found.append(int(entry.name))
    return found


def log_of(data_dir: Path) -> str:
    return Path(f"{data_dir}.log").read_text()


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

    @property
    def postmaster(self) -> int:
        return int((self.data_dir / "pg" / "postmaster.pid").read_text().split()[0])

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send the signal and wait for the exit code."""
        self.process.send_signal(number)
        return self.process.wait(END_SECONDS)

    def nothing_left(self) -> bool:
        """Whether every process of this data directory is gone, once each had its time to end."""
        return wait_for(lambda: not processes(self.data_dir))

    def open(self, path: str, data: bytes | None = None, kind: str = "application/json") -> HTTPResponse:
        """The answer to a GET, or to a POST of these bytes; a stream when it is one."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        answer: HTTPResponse = urllib.request.urlopen(request, timeout=20)
        return answer

    def call(self, path: str, body: object = None) -> Any:
        """A JSON answer."""
        with self.open(path, None if body is None else json.dumps(body).encode()) as response:
            return json.load(response)

    def upload(self, name: str, content: str) -> dict[str, Any]:
        part = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n{content}\r\n--b--\r\n'
        with self.open("/v1/media", part.encode(), "multipart/form-data; boundary=b") as response:
            receipt: dict[str, Any] = json.load(response)
        return receipt

    def download(self, path: str) -> str:
        with self.open(f"/v1/media?path={path}") as response:
            return response.read().decode()

    def chat(self, text: str) -> str:
        body = {"session_id": "s", "messages": [{"role": "user", "content": text}]}
        return str(self.call("/v1/chat/completions", body)["choices"][0]["message"]["content"])

    def stream(self, text: str) -> HTTPResponse:
        """The events of a turn, from its first one on."""
        body = {"session_id": "s", "stream": True, "messages": [{"role": "user", "content": text}]}
        return self.open("/v1/chat/completions", json.dumps(body).encode())

    def history(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("/v1/sessions/history?session_id=s")["messages"]
        return found


def start(
    data_dir: Path,
    *words: str,
    prefix: tuple[str, ...] = (),
    root: Path = ROOT,
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """`./run WORDS…` with this data directory, as a job of its own; the log goes to `<data_dir>.log`."""
    with Path(f"{data_dir}.log").open("a") as log:
        return subprocess.Popen(
            [*prefix, str(root / "run"), *words],
            env={**os.environ, "ISTHMUS__STORE__DATA_DIR": str(data_dir), **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=log,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd=cwd,
            process_group=0,
        )


@contextmanager
def demo(
    data_dir: Path, prefix: tuple[str, ...] = (), root: Path = ROOT, **environment: str
) -> Iterator[Run]:
    """A demo that is ready; ended by SIGTERM unless the test has ended it."""
    process = start(
        data_dir, prefix=prefix, root=root, environment={"ISTHMUS__SERVER__PORT": "0", **environment}
    )
    assert process.stdout is not None
    try:
        deadline = time.monotonic() + READY_SECONDS
        ready = process.stdout.readline().split()
        token = process.stdout.readline().split()
        assert ready[:1] == ["ready"], log_of(data_dir)
        assert token[:1] == ["token"], log_of(data_dir)
        assert time.monotonic() < deadline
        yield Run(process, ready[1], token[1], data_dir)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(END_SECONDS)
        process.stdout.close()


def copy_checkout(place: Path) -> None:
    """What a checkout has, in a directory of its own, without an environment."""
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, place / name)


def packages() -> Path:
    """Where the packages of this environment are."""
    return Path(sysconfig.get_path("purelib"))


def give_environment(checkout: Path, python: str) -> None:
    """The `.venv` that `./run` would make with this Python, with the packages of ours instead of downloaded ones."""
    venv = checkout / ".venv"
    subprocess.run([python, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(f"{packages()}\n")
    with (checkout / "pyproject.toml").open("rb") as project:
        stamp = subprocess.run(["cksum"], stdin=project, capture_output=True, check=True).stdout
    (venv / "installed-program").write_bytes(stamp)
