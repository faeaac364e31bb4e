"""The README's session, run as it stands against the real `./run`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.support.demo_run import ROOT, demo

README = (ROOT / "README.md").read_text(encoding="utf-8")
SESSION = README.split("<!-- session -->\n```sh\n")[1].split("```")[0]


def steps() -> list[tuple[str, list[str]]]:
    """Each command with the comment lines below it: what its output must hold, in order, `…` for anything."""
    found: list[tuple[str, list[str]]] = []
    for block in re.split(r"\n(?=[a-z])", SESSION.strip()):
        lines = block.split("\n")
        command = [line for line in lines if not line.startswith("#")]
        expected = [line[2:] for line in lines if line.startswith("# ") and not line.endswith((".", "it:"))]
        found.append(("\n".join(command), expected))
    return found


def test_the_session_of_the_readme_does_what_it_says(open_dir: Path) -> None:
    with demo(open_dir / "data") as run:
        prelude = f"URL={run.url} TOKEN={run.token}\n"
        for command, expected in steps():
            if command.startswith("auth="):
                prelude += command + "\n"
                continue
            done = subprocess.run(
                ["bash", "-c", prelude + command], cwd=open_dir, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, command
            rest = done.stdout
            for line in expected:
                parts = [part for part in line.split("…") if part]
                for part in parts:
                    assert part in rest, (command, part, done.stdout)
                    rest = rest[rest.index(part) + len(part) :]


def test_the_session_shows_an_upload_a_delivery_and_a_search() -> None:
    commands = "".join(command for command, _ in steps())
    for route in ("/v1/media", "/v1/chat/completions", "/v1/sessions/history", "/rag/local", "/rag/search"):
        assert route in commands
    assert sum(len(expected) for _, expected in steps()) >= 10
