"""The servers of the upload bench: ``python -m bench.upload_server bare|isthmus|hasty DIRECTORY``.

``bare`` reads a body and drops it. ``isthmus`` is the service's own upload path without identity and store, ``hasty``
the same without fsync. ``POST /<member>`` uploads, ``GET /health`` answers at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import cast

from aiohttp import web

from proxy.agents import Agents
from proxy.connections import ConnectionDoor
from proxy.identity import Member
from proxy.multipart_form import boundary_of
from proxy.place import Place
from proxy.quota import Quota
from proxy.settings import AgentSettings, ServerSettings, Settings, StoreSettings
from proxy.uploads import READ_BYTES, Uploads
from workspace.location import Location
from workspace.registry import Workspaces

AGENT_UID = 42_100 if os.geteuid() == 0 else os.geteuid()


def app_of(kind: str, directory: Path) -> web.Application:
    app = web.Application()
    app.router.add_get("/health", _health)
    if kind == "bare":
        app.router.add_post("/{member}", _drop)
    else:
        _add_uploads(app, directory, durable=kind == "isthmus")
    return app


async def _health(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _drop(request: web.Request) -> web.Response:
    while await request.content.read(READ_BYTES):
        pass
    return web.Response()


def _add_uploads(app: web.Application, directory: Path, *, durable: bool) -> None:
    agent = AgentSettings(
        key="bench", workspaces=str(directory), uid=AGENT_UID, gid=AGENT_UID, allow_root_agent=True
    )
    settings = Settings(agents=(agent,), store=StoreSettings(data_dir=str(directory)))
    chosen = next(iter(Agents(settings)))
    workspaces = Workspaces(durable=durable)
    uploads, quota = Uploads(settings.media, 4, directory / "spool"), Quota(0)

    async def take(request: web.Request) -> web.Response:
        member, location = Member(request.match_info["member"]), Location(request.match_info["member"])

        async def find_place(_agent: str | None, _project: str | None) -> Place:
            workspace = workspaces.open(chosen.key, chosen.tree, location)
            return Place(chosen, member, location, workspace, None)

        boundary = boundary_of(request.headers["Content-Type"])
        await uploads.receive(request.content, boundary, find_place, quota.admit)
        return web.Response()

    async def close(_app: web.Application) -> None:
        await workspaces.close()
        uploads.close()

    app.router.add_post("/{member}", take)
    app.on_cleanup.append(close)


async def main(kind: str, directory: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    runner = web.AppRunner(app_of(kind, Path(directory)), access_log=None)
    await runner.setup()
    make = cast(web.Server, runner.server)
    server = await asyncio.get_running_loop().create_server(
        make if kind == "bare" else lambda: ConnectionDoor(make(), ServerSettings()), "127.0.0.1", 0
    )
    print(f"ready {server.sockets[0].getsockname()[1]}", flush=True)
    await stop.wait()
    server.close()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
