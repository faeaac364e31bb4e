"""What an upload costs: 10 MiB into a workspace, against a bare handler that reads the same bytes and drops them.

Run it on an idle machine: ``python bench/upload.py``. Both handlers serve on loopback in this process and
take turns, so that both meet the same machine; each figure is the median of the rounds.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
from aiohttp import web

from proxy.agents import Agents
from proxy.identity import Member
from proxy.multipart_form import boundary_of
from proxy.quota import Quota
from proxy.rights import Role
from proxy.scope import Place
from proxy.settings import AgentSettings, Settings, StoreSettings
from proxy.uploads import Uploads
from workspace.location import Location
from workspace.registry import Workspaces

SIZE = 10 * 1024 * 1024
ROUNDS = 25
AGENT_UID = 42_100 if os.geteuid() == 0 else os.geteuid()


def settings_below(directory: Path) -> Settings:
    agent = AgentSettings(
        key="bench", workspaces=str(directory / "agents"), uid=AGENT_UID, gid=AGENT_UID, allow_root_agent=True
    )
    return Settings(agents=(agent,), store=StoreSettings(data_dir=str(directory)))


def bare_app() -> web.Application:
    async def drop(request: web.Request) -> web.Response:
        while await request.content.read(256 * 1024):
            pass
        return web.Response()

    app = web.Application()
    app.router.add_post("/", drop)
    return app


def upload_app(settings: Settings, workspaces: Workspaces) -> web.Application:
    agent = next(iter(Agents(settings)))
    member = Member("ana")
    location = Location("ana", None)
    uploads = Uploads(settings.media, 4, settings.store.directory / "spool")

    async def find_place(_agent: str | None, _project: str | None) -> Place:
        workspace = workspaces.open(agent.key, agent.tree, location)
        return Place(agent, member, location, workspace, Role.OWNER)

    async def take(request: web.Request) -> web.Response:
        boundary = boundary_of(request.headers["Content-Type"])
        await uploads.receive(request.content, boundary, find_place, Quota(0).admit)
        return web.Response()

    async def close(_app: web.Application) -> None:
        uploads.close()

    app = web.Application()
    app.router.add_post("/", take)
    app.on_cleanup.append(close)
    return app


async def serve(app: web.Application) -> tuple[web.AppRunner, str]:
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    return runner, f"http://{host}:{port}/"


def body(*, fields_first: bool) -> bytes:
    field = b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n\r\n'
    file = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.bin.txt"\r\n\r\n'
        + bytes(SIZE)
        + b"\r\n"
    )
    fields = b"".join(field % name for name in (b"agent", b"project", b"folder"))
    return (fields + file if fields_first else file + fields) + b"--b--\r\n"


async def seconds(work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def main() -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as name:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "agents").mkdir(mode=0o755)
        settings, workspaces, hasty = settings_below(directory), Workspaces(), Workspaces(durable=False)
        bare, bare_url = await serve(bare_app())
        ours, our_url = await serve(upload_app(settings, workspaces))
        unsynced, unsynced_url = await serve(upload_app(settings, hasty))
        first, last = body(fields_first=True), body(fields_first=False)
        cases = {
            "bare handler, read and dropped": (bare_url, first),
            "upload, fields before the file": (our_url, first),
            "upload, file before the fields": (our_url, last),
            "upload, fields first, no fsync": (unsynced_url, first),
        }
        taken: dict[str, list[float]] = {case: [] for case in cases}
        async with aiohttp.ClientSession() as session:

            async def post(url: str, data: bytes) -> None:
                headers = {"Content-Type": "multipart/form-data; boundary=b"}
                async with session.post(url, data=data, headers=headers) as response:
                    assert response.status == 200, await response.text()

            for _ in range(ROUNDS):
                for case, (url, data) in cases.items():
                    taken[case].append(await seconds(lambda url=url, data=data: post(url, data)))
        for runner in (bare, ours, unsynced):
            await runner.cleanup()
        await workspaces.close()
        await hasty.close()
    base = statistics.median(next(iter(taken.values())))
    for case, figures in taken.items():
        median = statistics.median(figures)
        print(f"{case:32} {median * 1000:7.1f} ms  {median / base:5.2f} x")


if __name__ == "__main__":
    asyncio.run(main())
