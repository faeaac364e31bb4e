"""Where the kernel refuses openat2 and Landlock, what confines the workspace otherwise does so as well."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent.relative_to(ROOT)
CORE = "walk and (link or folder or public or mount or agents or leaves or left or outside)"


@pytest.mark.parametrize("code", ["ENOSYS", "EPERM"])
def test_links_and_other_owners_keep_the_service_out_without_openat2(code: str) -> None:
    files = [str(HERE / name) for name in ("test_publishing.py", "test_reading.py", "test_races.py")]
    command = [
        sys.executable,
        "-m",
        "tests.support.seccomp",
        code,
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        CORE,
    ]
    done = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("confinement walk, Landlock False\n"), done.stderr
    passed = re.search(r"^(\d+) passed", done.stdout, re.MULTILINE)
    assert done.returncode == 0, done.stdout
    assert passed is not None
    assert int(passed[1]) > 20
