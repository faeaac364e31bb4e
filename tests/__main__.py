"""Everything that holds the project to its word: `./run test`, and `./run test --full` for the long sizes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

STATIC = [
    ("ruff", [str(BIN / "ruff"), "check", "."]),
    ("format", [str(BIN / "ruff"), "format", "--check", "--quiet", "."]),
    ("mypy", [str(BIN / "mypy")]),
    ("imports", [str(BIN / "lint-imports"), "--no-cache"]),
]


def main(arguments: list[str]) -> int:
    """Run every step, all of them even after a failure; 0 when all passed."""
    full = "--full" in arguments
    rest = [argument for argument in arguments if argument != "--full"]
    environment = {**os.environ, "ISTHMUS_TEST_SIZE": "full" if full else "ci"}
    limit = ["--timeout=3600"] if full else []
    steps = [*STATIC, ("tests", [sys.executable, "-m", "pytest", "-q", "-n", "2", *limit, *rest])]
    failed = []
    for name, command in steps:
        began = time.monotonic()
        print(f"== {name}", flush=True)
        code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        print(
            f"== {name}: {'ok' if code == 0 else f'failed ({code})'} in {time.monotonic() - began:.1f} s",
            flush=True,
        )
        if code != 0:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
