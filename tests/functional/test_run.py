"""`./run` on this machine: starts, ends, is killed and comes back, for root and for an ordinary user."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
from pathlib import Path

import pytest

from tests.support.demo_run import (
    END_SECONDS,
    Run,
    copy_checkout,
    demo,
    give_environment,
    log_of,
    packages,
    processes,
    start,
    wait_for,
)
from tests.support.postgres import reachable_python

ORDINARY_UID = 42105
HANG_UP_TAKEN = ("env", "--default-signal=HUP")  # whatever started the tests may ignore it
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def test_it_starts_twice_keeps_its_token_and_ends_with_nothing_left(open_dir: Path) -> None:
    tokens = []
    for number in (signal.SIGTERM, signal.SIGHUP):
        with demo(open_dir / "data", prefix=HANG_UP_TAKEN) as run:
            tokens.append(run.token)
            assert run.call("/v1/models")["data"][0]["id"] == "demo"
            parts = {run.pid, agent_of(run), run.postmaster}
            assert len({owner_of(pid) for pid in parts}) == (3 if os.geteuid() == 0 else 1)
            assert run.end(number) == 0
            assert run.nothing_left()
    assert tokens[0] == tokens[1]
    assert "Traceback" not in log_of(open_dir / "data")


def agent_of(run: Run) -> int:
    (pid,) = processes(run.data_dir, "demo_agent.py")
    return pid


def owner_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def test_a_hang_up_that_is_ignored_ends_nothing(open_dir: Path) -> None:
    with demo(open_dir / "data", prefix=("env", "--ignore-signal=HUP")) as run:
        run.process.send_signal(signal.SIGHUP)
        assert run.chat("hello").startswith("You said: hello")
        assert run.end() == 0


def test_a_start_that_is_ended_leaves_nothing_and_the_next_one_succeeds(open_dir: Path) -> None:
    data_dir = open_dir / "data"
    process = start(data_dir, environment={"ISTHMUS__SERVER__PORT": "0"})
    assert wait_for(lambda: list(data_dir.glob("creating-*")))
    process.terminate()
    process.communicate(timeout=END_SECONDS)
    assert process.returncode == 0
    assert wait_for(lambda: not processes(data_dir))
    with demo(data_dir) as run:
        assert run.chat("hello").startswith("You said: hello")


def test_a_turn_that_runs_at_ctrl_c_is_finished_with_its_agent(open_dir: Path) -> None:
    with demo(open_dir / "data") as run:
        with run.stream("word " * 60) as stream:
            assert wait_for(lambda: b"You" in stream.readline())
            os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to everything in the foreground
            rest = stream.read().decode()
        assert "/help" in rest
        assert '"finish_reason":"stop"' in rest
        assert rest.endswith("data: [DONE]\n\n")
        assert run.process.wait(END_SECONDS) == 0
        assert run.nothing_left()


def kill_in_mid_turn(run: Run) -> None:
    """Kill the service while the agent lets a turn wait."""
    before = len(run.history())
    script = json.dumps([{"frame": {"type": "typing.start"}}, {"wait": 60}])
    with run.stream(f"play-inline {script}"):
        assert wait_for(lambda: len(run.history()) > before)
        run.end(signal.SIGKILL)


def test_a_killed_service_comes_back_with_its_files_and_conversations_and_the_cut_turn_interrupted(
    open_dir: Path,
) -> None:
    data_dir = open_dir / "data"
    with demo(data_dir) as run:
        assert run.upload("notes.txt", "three little words")["path"] == "public/notes.txt"
        assert run.chat("count words in notes.txt") == "notes.txt has 3 words."
        kill_in_mid_turn(run)
        assert wait_for(lambda: not processes(data_dir, "demo_agent.py"))
        left_over = run.postmaster
    with demo(data_dir) as run:
        assert left_over not in processes(data_dir)
        assert run.postmaster in processes(data_dir)
        assert run.download("public/notes.txt") == "three little words"
        messages = run.history()
        assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
        assert messages[1]["content"] == "notes.txt has 3 words."
        assert messages[3]["error"]["code"] == "interrupted"
        assert run.chat("count words in notes.txt") == "notes.txt has 3 words."
        assert run.end() == 0
        assert run.nothing_left()


def test_a_killed_postgresql_comes_back_while_the_service_runs(open_dir: Path) -> None:
    with demo(open_dir / "data") as run:
        run.chat("before")
        killed = run.postmaster
        os.kill(killed, signal.SIGKILL)
        assert run.chat("meanwhile").startswith("You said: meanwhile")

        def said() -> list[str]:
            try:
                return [message["content"] for message in run.history() if message["role"] == "user"]
            except urllib.error.HTTPError as error:
                with error:
                    return [json.load(error)["error"]["code"]]

        assert wait_for(lambda: said() == ["before", "meanwhile"])
        assert run.postmaster != killed


@as_root
def test_an_ordinary_user_has_a_demo_of_their_own(open_dir: Path) -> None:
    python = reachable_python()
    if not python or not all(parent.stat().st_mode & 0o001 for parent in (packages(), *packages().parents)):
        pytest.skip("no Python, or no packages, that another user can reach")
    checkout, home = open_dir / "checkout", open_dir / "home"
    checkout.mkdir()
    copy_checkout(checkout)
    give_environment(checkout, python)
    home.mkdir()
    os.chown(home, ORDINARY_UID, ORDINARY_UID)
    state = home / "state" / "isthmus"
    user = ("setpriv", f"--reuid={ORDINARY_UID}", f"--regid={ORDINARY_UID}", "--clear-groups")
    environment = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "ISTHMUS__STORE__DATA_DIR": ""}
    with demo(open_dir / "unused", prefix=user, root=checkout, **environment) as run:
        run.data_dir = state
        assert run.upload("notes.txt", "three little words")["size"] == 18
        assert run.chat("count words in notes.txt") == "notes.txt has 3 words."
        assert run.chat("please make a report").count("📎 report-1.md") == 1
        assert {owner_of(pid) for pid in (run.pid, *processes(state))} == {ORDINARY_UID}
        assert {path.stat().st_uid for path in home.rglob("*")} == {ORDINARY_UID}
        assert run.end() == 0
        assert run.nothing_left()
    assert not (open_dir / "unused").exists()


@as_root
def test_it_runs_from_a_checkout_that_only_root_can_enter(tmp_path: Path, open_dir: Path) -> None:
    checkout = tmp_path / "private"
    checkout.mkdir(mode=0o700)
    copy_checkout(checkout)
    give_environment(checkout, sys.executable)
    with demo(open_dir / "data", root=checkout) as run:
        assert f"{checkout}/examples" in Path(f"/proc/{agent_of(run)}/cmdline").read_text()
        assert run.chat("please make a report").count("📎 report-1.md") == 1
        assert run.end() == 0
    assert checkout.stat().st_mode & 0o777 == 0o700
    assert tmp_path.stat().st_mode & 0o077 == 0
