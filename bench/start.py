"""How long a fresh clone takes until it serves, and what it needs when nothing happens.

    python -m bench.start            pip's usual cache; installs once
    python -m bench.start --cold     an empty pip cache first, then the same one filled; installs twice

It clones the last commit into a temporary directory, with a data directory beside it, and runs `./run` there.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bench.processes import ROOT, Program, family, name, pss_mib, running

INSTALL_SECONDS = 900
IDLE_SECONDS = 5


async def start(clone: Path, env: Mapping[str, str], what: str, *, idle: bool = False) -> None:
    """Print the seconds until `ready`, and then what the programs hold in memory."""
    began = time.monotonic()
    log = clone.parent / "run.log"
    async with running(
        ["./run"], ready="ready", log=log, seconds=INSTALL_SECONDS, cwd=clone, env=env
    ) as program:
        print(f"{what:44} {time.monotonic() - began:6.1f} s until ready", flush=True)
        if idle:
            await asyncio.sleep(IDLE_SECONDS)
            memory(program)


def memory(program: Program) -> None:
    """The programs' own pages and their share of the common ones: these figures may be added up."""
    used: dict[str, list[float]] = {}
    for pid in family(program.pid):
        command = name(pid)
        kind = (
            "demo agent" if "demo_agent.py" in command else "postgres" if "postgres" in command else "service"
        )
        used.setdefault(kind, []).append(pss_mib(pid))
    for kind, sizes in used.items():
        print(f"  {kind:42} {sum(sizes):6.1f} MiB in {len(sizes)} process{'es' if len(sizes) > 1 else ''}")
    print(f"  {'together, idle':42} {sum(map(sum, used.values())):6.1f} MiB")


async def main(*, cold: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="isthmus-start-") as directory:
        Path(directory).chmod(0o755)
        clone, data, cache = (Path(directory) / part for part in ("clone", "data", "pip"))
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        env = {"ISTHMUS__STORE__DATA_DIR": str(data), **({"PIP_CACHE_DIR": str(cache)} if cold else {})}
        if cold:
            await start(clone, env, "first start, empty pip cache")
            shutil.rmtree(clone / ".venv")
            shutil.rmtree(data)
        await start(clone, env, f"first start, {'filled' if cold else 'usual'} pip cache")
        await start(clone, env, "second start", idle=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cold", action="store_true", help="begin with an empty pip cache")
    asyncio.run(main(cold=parser.parse_args().cold))
