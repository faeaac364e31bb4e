"""`./run` and its words: what only tells changes nothing, and whatever is in the way is said in one line."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.demo_run import END_SECONDS, ROOT, copy_checkout, demo, log_of, start

TOOLS = ("sh", "dirname", "cksum", "cat")  # what `run` calls besides Python


@pytest.fixture
def data_dir(open_dir: Path) -> Path:
    return open_dir / "data"


def refusal(data_dir: Path, *words: str, cwd: Path = ROOT, **environment: str) -> str:
    """The one line, besides the log's, of a start that is refused with exit code 2."""
    Path(f"{data_dir}.log").unlink(missing_ok=True)
    process = start(data_dir, *words, cwd=cwd, environment=environment)
    output, _ = process.communicate(timeout=END_SECONDS)
    log = log_of(data_dir)
    assert process.returncode == 2, log
    assert output == ""
    (line,) = [line for line in log.splitlines() if not line.startswith("{")]
    return line


def told(data_dir: Path, *words: str) -> str:
    """What a command that succeeds prints."""
    process = start(data_dir, *words)
    output, _ = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 0, log_of(data_dir)
    return output


def test_a_token_comes_with_the_line_for_the_configuration(data_dir: Path) -> None:
    token, _, line = told(data_dir, "token", 'ana "the boss"').splitlines()
    value = token.removeprefix("token ")
    assert len(value) == 43
    (entry,) = tomllib.loads(line)["tokens"]
    assert entry == {"member": 'ana "the boss"', "sha256": hashlib.sha256(value.encode()).hexdigest()}


def test_a_check_tells_the_store_and_makes_no_data_directory(data_dir: Path) -> None:
    assert "store           embedded PostgreSQL\n" in told(data_dir, "check")
    assert not data_dir.exists()


def test_psql_opens_the_store_and_a_second_service_is_refused_it(data_dir: Path) -> None:
    with demo(data_dir) as run:
        assert told(data_dir, "psql", "--", "-At", "-c", "SELECT count(*) FROM turns") == "0\n"
        assert "another running service uses this store.data_dir" in refusal(data_dir)
        assert run.call("/v1/models")["data"][0]["id"] == "demo"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[server]\nprot = 1\n", "isthmus: server.prot: there is no such key"),
        ("[server]\nworkers = 4\n", "server.workers above 1 is not in this version"),
        ("[server\n", "config.toml: Expected ']'"),
        (
            '[store]\nurl = "postgresql://x@127.0.0.1:1/x"\n',
            "PostgreSQL cannot be reached; look at store.url",
        ),
    ],
    ids=["key", "absent", "syntax", "store"],
)
def test_a_configuration_that_cannot_be_used_is_told(
    open_dir: Path, data_dir: Path, text: str, line: str
) -> None:
    (open_dir / "config.toml").write_text(text)
    # A relative path is the user's: it begins where they are.
    assert line in refusal(data_dir, "serve", "-c", "config.toml", cwd=open_dir)


def test_a_missing_configuration_and_an_unknown_variable_are_told(data_dir: Path) -> None:
    assert refusal(data_dir, "serve", "-c", "/none.toml") == "isthmus: /none.toml: No such file or directory"
    unknown = refusal(data_dir, ISTHMUS__SERVER__PROT="1")
    assert unknown == "isthmus: ISTHMUS__SERVER__PROT: there is no such key"


def test_a_port_that_is_taken_is_told(data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal(data_dir, ISTHMUS__SERVER__PORT=str(port))
    assert line.startswith(f"isthmus: cannot listen on 127.0.0.1:{port}: Address already in use; ")


def test_a_data_directory_that_is_a_file_is_told(data_dir: Path) -> None:
    data_dir.write_text("")
    assert refusal(data_dir) == f"isthmus: {data_dir}: File exists"


def test_a_psql_that_is_not_there_is_told(open_dir: Path, data_dir: Path) -> None:
    line = refusal(
        data_dir, "psql", PATH=only_tools(open_dir), ISTHMUS__STORE__URL="postgresql://x@127.0.0.1/x"
    )
    assert line == "isthmus: psql: is not on PATH"


def only_tools(directory: Path) -> str:
    """A PATH of a machine that has a shell and no Python."""
    tools = directory / "bin"
    tools.mkdir()
    for name in TOOLS:
        (tools / name).symlink_to(shutil.which(name) or "")
    return str(tools)


def bare_run(checkout: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(checkout / "run"), "check"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=END_SECONDS,
        check=False,
    )


def test_a_machine_without_python_is_told_what_to_install(tmp_path: Path) -> None:
    copy_checkout(tmp_path)
    done = bare_run(tmp_path, PATH=only_tools(tmp_path))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("run: Python 3.11 or newer with venv is missing")
    assert not (tmp_path / ".venv").exists()


def test_an_installation_that_fails_is_told_and_tried_again_and_half_an_environment_is_made_anew(
    tmp_path: Path,
) -> None:
    copy_checkout(tmp_path)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / ".venv")], check=True)
    for _ in range(2):
        done = bare_run(tmp_path, PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull)
        assert done.returncode == 2
        assert done.stderr.startswith("run: installing into ")
        assert done.stderr.splitlines()[-1].startswith("run: the packages cannot be installed")
        assert (tmp_path / ".venv" / "bin" / "pip").exists()
