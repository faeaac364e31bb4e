"""The media routes behind the real middlewares and on real workspaces, without the store, which they do not use."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import aiohttp
from aiohttp import web

from proxy import keys
from proxy.agents import Agents
from proxy.archives import ArchiveSlots
from proxy.errors import UnknownProject
from proxy.identity import Authenticator, token_digest
from proxy.limits import RateLimiter
from proxy.middleware import door, with_error_body, with_request_id
from proxy.quota import Quota
from proxy.routes import archive, changes, media
from proxy.routing import register
from proxy.settings import AgentSettings, AuthSettings, MediaSettings, Settings, StoreSettings, TokenSettings
from proxy.uploads import Uploads
from workspace.registry import Workspaces

TOKEN = "t" * 32
AGENT_UID = 42_100 if os.geteuid() == 0 else os.geteuid()
AGENT_GID = 42_100 if os.geteuid() == 0 else os.getegid()


@dataclass(frozen=True)
class MediaServer:
    """`public` is the directory that member `ana` sees of agent `demo`; it is not there before the first upload."""

    host: str
    port: int
    session: aiohttp.ClientSession
    directory: Path
    public: Path

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/v1/media"

    async def send(self, body: bytes, *, boundary: str = "b", **headers: str) -> tuple[int, dict[str, Any]]:
        """Post these very bytes; the status and the JSON of the answer."""
        sent = {"Content-Type": f"multipart/form-data; boundary={boundary}", **headers}
        async with self.session.post(self.url, data=BytesIO(body), headers=sent) as response:
            return response.status, await response.json()

    async def get(self, **query: str) -> tuple[int, dict[str, Any]]:
        async with self.session.get(self.url, params=query) as response:
            return response.status, await response.json()

    def stored(self) -> dict[str, bytes]:
        """Every file below `public`, by its path in there, whatever its name."""
        found = {}
        for folder, _, names in os.walk(self.public):
            for name in names:
                path = Path(folder, name)
                found[str(path.relative_to(self.public))] = path.read_bytes()
        return found


def file_part(content: bytes, filename: bytes = b"a.txt", name: bytes = b"file") -> bytes:
    disposition = b'Content-Disposition: form-data; name="%s"; filename="%s"' % (name, filename)
    return b"--b\r\n" + disposition + b"\r\n\r\n" + content + b"\r\n"


def field_part(name: bytes, value: bytes = b"") -> bytes:
    return b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name, value)


END = b"--b--\r\n"
FIELDS = field_part(b"agent") + field_part(b"project") + field_part(b"folder")


@asynccontextmanager
async def media_server(
    *, agents: tuple[str, ...] = ("demo",), per_member: int = 4, **limits: Any
) -> AsyncIterator[MediaServer]:
    """Serve on loopback from a directory that the agent's uid can reach."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        settings = Settings(
            agents=tuple(_agent(directory, key) for key in agents),
            media=MediaSettings(**{"min_free": "0%", "linger": 0.2, **limits}),
            store=StoreSettings(data_dir=str(directory / "data")),
            auth=AuthSettings(tokens=(TokenSettings(member="ana", sha256=token_digest(TOKEN)),)),
        )
        workspaces = Workspaces()
        spool = directory / "data" / "spool"
        uploads = Uploads(settings.media, per_member, spool, lambda place: place.workspace.prepare())
        runner = web.AppRunner(_app(settings, workspaces, uploads), lingering_time=settings.media.linger)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        public = directory / agents[0] / "ana" / "workspace" / "public"
        try:
            async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
                yield MediaServer(host, port, session, directory, public)
        finally:
            await runner.cleanup()
            await workspaces.close()
            uploads.close()


def _agent(directory: Path, key: str) -> AgentSettings:
    root = directory / key
    root.mkdir(mode=0o755)
    return AgentSettings(
        key=key, workspaces=str(root), uid=AGENT_UID, gid=AGENT_GID, allow_root_agent=True,
        url="ws://127.0.0.1:1/{member}/pico/ws",
    )  # fmt: skip


class _NoProjects:
    """Projects need the store; here nobody has one."""

    async def get(self, _member: object, raw_id: str) -> NoReturn:
        raise UnknownProject(raw_id)


def _app(settings: Settings, workspaces: Workspaces, uploads: Uploads) -> web.Application:
    app = web.Application(middlewares=[with_request_id, with_error_body, door(settings, RateLimiter())])
    app[keys.ROUTES] = register(app, [*media.ROUTES, *changes.ROUTES, *archive.ROUTES])
    app[keys.SERVICE] = SimpleNamespace(
        settings=settings,
        authenticator=Authenticator(settings, b"k" * 32),
        agents=Agents(settings),
        workspaces=workspaces,
        uploads=uploads,
        quota=Quota(settings.media.quota_bytes),
        archives=ArchiveSlots(),
        projects=_NoProjects(),
    )

    async def mark_started(request: web.Request, _response: web.StreamResponse) -> None:
        request[keys.STARTED] = True

    app.on_response_prepare.append(mark_started)
    return app
