"""`./run` on this machine: starts, ends, is killed and comes back; says in one line what is in the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.demo_run import END_SECONDS, ROOT, Run, demo, start
from tests.support.postgres import reachable_python

ORDINARY_UID = 42105
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def call(run: Run, path: str, body: object = None) -> Any:
    """A JSON answer of the running service."""
    request = urllib.request.Request(
        run.url + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {run.token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.load(response)


def chat(run: Run, text: str) -> str:
    body = {"session_id": "s", "messages": [{"role": "user", "content": text}]}
    return str(call(run, "/v1/chat/completions", body)["choices"][0]["message"]["content"])


def history(run: Run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = call(run, "/v1/sessions/history?session_id=s")["messages"]
    return found


def one_line_refusal(*words: str, data_dir: Path, **environment: str) -> str:
    """A start that is refused: exit code 2 and what the last line of the log says, without a traceback."""
    process = start(data_dir, *words, **environment)
    output, _ = process.communicate(timeout=END_SECONDS)
    log = Path(f"{data_dir}.log").read_text()
    assert process.returncode == 2, log
    assert "Traceback" not in log
    return (output + log).strip().splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_starts_twice_keeps_its_token_and_ends_with_nothing_left(open_dir: Path, number: int) -> None:
    tokens = []
    for _ in range(2):
        with demo(open_dir / "data") as run:
            tokens.append(run.token)
            assert call(run, "/v1/models")["data"][0]["id"] == "demo"
            assert run.end(number) == 0
            assert run.nothing_left() == []
    assert tokens[0] == tokens[1]


def test_a_killed_service_comes_back_with_its_conversations_and_calls_the_cut_turn_interrupted(
    open_dir: Path,
) -> None:
    data_dir = open_dir / "data"
    with demo(data_dir) as run:
        assert chat(run, "hello").startswith("You said: hello")
        script = json.dumps([{"frame": {"type": "typing.start"}}, {"wait": 60}])
        body = {"session_id": "s", "messages": [{"role": "user", "content": f"play-inline {script}"}]}
        request = urllib.request.Request(
            f"{run.url}/v1/chat/completions",
            data=json.dumps({**body, "stream": True}).encode(),
            headers={"Authorization": f"Bearer {run.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=20) as stream:
            stream.readline()
            deadline = time.monotonic() + 10
            while len(history(run)) < 3 and time.monotonic() < deadline:
                time.sleep(0.05)
            run.end(signal.SIGKILL)
    with demo(data_dir) as run:
        messages = history(run)
        assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
        assert messages[3]["error"]["code"] == "interrupted"
        assert chat(run, "hello again").startswith("You said: hello again")
        assert run.end() == 0
        assert run.nothing_left() == []


def test_a_killed_postgresql_comes_back_while_the_service_runs(open_dir: Path) -> None:
    with demo(open_dir / "data") as run:
        chat(run, "before")
        postmaster = int((run.data_dir / "pg" / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGKILL)
        assert chat(run, "meanwhile").startswith("You said: meanwhile")
        deadline = time.monotonic() + 20
        contents: list[str] = []
        while "meanwhile" not in contents and time.monotonic() < deadline:
            time.sleep(0.1)
            try:
                contents = [message["content"] for message in history(run)]
            except urllib.error.HTTPError:
                continue  # 503 while the store is away
        assert contents[0] == "before"
        assert "meanwhile" in contents


@as_root
def test_an_ordinary_user_has_a_demo_of_their_own(open_dir: Path) -> None:
    python = reachable_python()
    if not python:
        pytest.skip("no Python that another user can run")
    home = open_dir / "home"
    home.mkdir()
    os.chown(home, ORDINARY_UID, ORDINARY_UID)
    log = (open_dir / "log").open("w")
    process = subprocess.Popen(
        [
            "setpriv",
            f"--reuid={ORDINARY_UID}",
            f"--regid={ORDINARY_UID}",
            "--clear-groups",
            python,
            "-m",
            "proxy",
            "demo",
        ],
        env={
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
            "ISTHMUS__SERVER__PORT": "0",
        },
        stdout=subprocess.PIPE,
        stderr=log,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=open_dir,
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().removeprefix("ready ").strip()
        token = process.stdout.readline().removeprefix("token ").strip()
        assert url.startswith("http://"), (open_dir / "log").read_text()
        run = Run(process, url, token, home / "state" / "isthmus")
        assert chat(run, "please write a report").startswith("I have written the report")
        assert {path.stat().st_uid for path in home.rglob("*")} == {ORDINARY_UID}
        assert run.end() == 0
        assert run.nothing_left() == []
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
        log.close()


@as_root
def test_it_runs_from_a_checkout_that_only_root_can_enter(tmp_path: Path, open_dir: Path) -> None:
    checkout = tmp_path / "private"
    checkout.mkdir(mode=0o700)
    for name in ("proxy", "rag", "workspace", "web", "examples"):
        shutil.copytree(ROOT / name, checkout / name)
    for name in ("run", "pyproject.toml", "README.md"):
        shutil.copy2(ROOT / name, checkout / name)
    environment = {"PYTHONPATH": str(checkout)}
    (checkout / ".venv").symlink_to(Path(sys.prefix))
    with demo(open_dir / "data", root=checkout, **environment) as run:
        assert chat(run, "please make a report").count("📎 report-1.md") == 1
    assert checkout.stat().st_mode & 0o777 == 0o700
    assert tmp_path.stat().st_mode & 0o077 == 0


def test_commands_that_only_tell_do_what_they_say(open_dir: Path) -> None:
    data_dir = open_dir / "data"
    output, _ = start(data_dir, "token", "ana").communicate(timeout=END_SECONDS)
    assert output.startswith("token ")
    assert 'member="ana", sha256="' in output
    output, _ = start(data_dir, "check").communicate(timeout=END_SECONDS)
    assert "embedded PostgreSQL" in output
    assert not data_dir.exists()
    with demo(data_dir) as run:
        psql = start(data_dir, "psql", "--", "-At", "-c", "SELECT count(*) FROM turns")
        output, _ = psql.communicate(timeout=END_SECONDS)
        assert output == "0\n"
        assert run.end() == 0


def test_what_is_in_the_way_is_said_in_one_line(open_dir: Path) -> None:
    data_dir = open_dir / "data"
    assert "ISTHMUS__SERVER__PROT: there is no such key" in one_line_refusal(
        data_dir=data_dir, ISTHMUS__SERVER__PROT="1"
    )
    config = open_dir / "config.toml"
    config.write_text("[server]\nprot = 1\n")
    assert "server.prot: there is no such key" in one_line_refusal(
        "serve", "-c", str(config), data_dir=data_dir
    )
    assert "No such file" in one_line_refusal("serve", "-c", str(open_dir / "none.toml"), data_dir=data_dir)
    config.write_text("[server]\nworkers = 4\n")
    assert "server.workers" in one_line_refusal("serve", "-c", str(config), data_dir=data_dir)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config.write_text(f"[server]\nport = {taken.getsockname()[1]}\n")
        assert "cannot listen on 127.0.0.1" in one_line_refusal("serve", "-c", str(config), data_dir=data_dir)
    with demo(data_dir) as run:
        assert "another running service" in one_line_refusal(data_dir=data_dir)
        assert run.end() == 0
