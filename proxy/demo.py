"""The demo: the whole service with an agent that needs no model, below the data directory, on free ports."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from proxy.identity import new_token, token_digest
from proxy.lifecycle import prepare_directories, secret_key
from proxy.logs import configure_logging
from proxy.server import CannotServe, serve
from proxy.settings import load_settings

PROGRAM = Path(__file__).resolve().parent.parent / "examples" / "demo_agent.py"
MEMBER = "you"
PREFERRED_PORT = 8080
AGENT_UID = 42110
START_SECONDS = 20


async def demo() -> None:
    """Serve with the demo agent until the service is asked to stop; prints `token <value>` beside the ready line."""
    base = load_settings(None)
    # What a newcomer is to see are the two lines with the address and the token.
    quiet = "level" not in base.log.model_fields_set
    configure_logging(base.log.model_copy(update={"level": "warning"}) if quiet else base.log)
    directory = prepare_directories(base)
    token = _kept_token(directory)
    workspaces = directory / "agents" / "demo"
    workspaces.mkdir(mode=0o755, parents=True, exist_ok=True)
    secret = new_token()
    async with _demo_agent(workspaces, secret) as url:
        settings = load_settings(
            None,
            server={"port": _free_port(PREFERRED_PORT)},
            agents=[
                {
                    "key": "demo",
                    "url": f"{url.replace('http', 'ws', 1)}/{{member}}/pico/ws",
                    "token": secret,
                    "workspaces": str(workspaces),
                    "uid": _agent_id(os.geteuid()),
                    "gid": _agent_id(os.getegid()),
                }
            ],
            auth={
                "tokens": [{"member": MEMBER, "sha256": token_digest(token), "local": True, "operator": True}]
            },
        )
        await serve(settings, announce=f"token {token}")


def _agent_id(own: int) -> int:
    """The demo agent's uid or gid: its own when we are root, else ours."""
    return AGENT_UID if os.geteuid() == 0 else own


def _free_port(preferred: int) -> int:
    """The preferred port, so that the page keeps its address, or 0 (any) if it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", preferred))
        except OSError:
            return 0
    return preferred


def _kept_token(directory: Path) -> str:
    """The demo's token: the same at every start, readable by us only."""
    return base64.urlsafe_b64encode(secret_key(directory, "demo-token")).decode().rstrip("=")


@asynccontextmanager
async def _demo_agent(workspaces: Path, secret: str) -> AsyncIterator[str]:
    """The demo agent as a child process; gives its address. It dies with us, however we end.

    Its process group is its own: a Ctrl-C in the terminal is for the service, whose running turns still need it.
    """
    if not PROGRAM.exists():
        raise CannotServe("the demo agent comes with the source tree; run the demo from a checkout")
    rights = ["--uid", str(AGENT_UID), "--gid", str(AGENT_UID)] if os.geteuid() == 0 else []
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), "--port", "0", "--workspaces", str(workspaces), "--with-parent", *rights,
        env={**os.environ, "DEMO_AGENT_TOKEN": secret}, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        process_group=0,
    )  # fmt: skip
    try:
        assert process.stdout is not None, "piped"  # noqa: S101
        try:
            async with asyncio.timeout(START_SECONDS):
                line = (await process.stdout.readline()).decode().strip()
        except TimeoutError as error:
            raise CannotServe("the demo agent did not start") from error
        if not line.startswith("listening "):
            raise CannotServe("the demo agent did not start")
        yield line.removeprefix("listening ")
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
