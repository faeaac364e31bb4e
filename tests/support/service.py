"""The whole service for a test: the real application, a database of its own, the real demo agent."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from proxy import keys
from proxy.app import build_app
from proxy.connections import ConnectionDoor
from proxy.identity import token_digest
from proxy.service import Service
from proxy.settings import Settings, load_settings
from rag.embedded import ConnectArgs
from tests.support.demo import Demo

TOKEN, OTHER_TOKEN = "t" * 40, "o" * 40
AGENT_UID = 42100 if os.geteuid() == 0 else os.geteuid()
AGENT_GID = 42100 if os.geteuid() == 0 else os.getegid()
_numbers = itertools.count(1)
FAST = {"delivery_settle": 1.0, "connect_timeout": 3.0}


@dataclass
class RunningService:
    """`client` carries the member's bearer; `public` is the member's public directory with agent demo."""

    url: str
    client: aiohttp.ClientSession
    inner: Service
    demo: Demo
    workspaces: Path
    member: str
    settings: Settings = field(repr=False)

    @property
    def token(self) -> str:
        return TOKEN

    @property
    def public(self) -> Path:
        return self.workspaces / self.member / "workspace" / "public"

    async def upload(self, name: str, content: bytes, **fields: str) -> tuple[int, dict[str, Any]]:
        form = aiohttp.FormData(fields, quote_fields=False, default_to_multipart=True)
        form.add_field("file", content, filename=name)
        async with self.client.post("/v1/media", data=form) as response:
            return response.status, await response.json()

    async def turn(self, text: str, session_id: str = "s1", **body: Any) -> list[dict[str, Any]]:
        """The chunks of one streamed turn; the stream must end with `[DONE]`."""
        chunks, done = await self.raw_turn(text, session_id, **body)
        assert done
        return chunks

    async def raw_turn(
        self, text: str, session_id: str = "s1", **body: Any
    ) -> tuple[list[dict[str, Any]], bool]:
        message = {"messages": [{"role": "user", "content": text}], "stream": True, "session_id": session_id}
        async with self.client.post("/v1/chat/completions", json={**message, **body}) as response:
            assert response.status == 200, await response.text()
            records = [
                record for record in (await response.text()).split("\n\n") if record.startswith("data: ")
            ]
        done = records[-1] == "data: [DONE]"
        return [json.loads(record[6:]) for record in (records[:-1] if done else records)], done

    async def history(self, session_id: str = "s1", **query: str) -> list[dict[str, Any]]:
        params = {"session_id": session_id, **query}
        async with self.client.get("/v1/sessions/history", params=params) as response:
            assert response.status == 200, await response.text()
            messages: list[dict[str, Any]] = (await response.json())["messages"]
            return messages

    async def play(self, *lines: dict[str, Any], session_id: str = "s1") -> list[dict[str, Any]]:
        """A turn in which the demo agent sends exactly these script lines."""
        return await self.turn(f"play-inline {json.dumps(lines)}", session_id)


def said(chunks: list[dict[str, Any]]) -> str:
    """The content of a stream, notices included."""
    return "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])


def errors(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [chunk["error"] for chunk in chunks if "error" in chunk]


def deliveries(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [chunk["x_crab_delivery"] for chunk in chunks if "x_crab_delivery" in chunk]


def dsn(connect: ConnectArgs) -> str:
    return (
        f"postgresql://{connect['user']}@/{connect['database']}?host={connect['host']}&port={connect['port']}"
    )


@asynccontextmanager
async def running_service(
    directory: Path,
    connect: ConnectArgs,
    demo: Demo,
    workspaces: Path,
    chat: dict[str, Any] | None = None,
    **overrides: Any,
) -> AsyncIterator[RunningService]:
    """Start it with its own things below `directory`, for two members that nobody was before."""
    member, other = f"ana-{next(_numbers)}", f"Bo-{next(_numbers)}@example.com"
    tables: dict[str, Any] = {
        "store": {"url": dsn(connect), "data_dir": str(directory / "data")},
        "agents": [
            {
                "key": "demo",
                "url": demo.agent_url(),
                "token": demo.token,
                "workspaces": str(workspaces),
                "uid": AGENT_UID,
                "gid": AGENT_GID,
            }
        ],
        "auth": {
            "tokens": [
                {"member": member, "sha256": token_digest(TOKEN)},
                {"member": other, "sha256": token_digest(OTHER_TOKEN)},
            ]
        },
        "chat": {**FAST, **(chat or {})},
        "limits": {"turns_per_minute": 0, "uploads_per_minute": 0},
    }
    settings = load_settings(None, **{**tables, **overrides})
    app = build_app(settings)
    runner = web.AppRunner(app, access_log=None, lingering_time=1)
    await runner.setup()
    server = await _listen(runner, settings)
    try:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with aiohttp.ClientSession(url, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            yield RunningService(url, client, app[keys.SERVICE], demo, workspaces, member, settings)
    finally:
        server.close()
        await app[keys.SERVICE].relay.drain(0)
        await runner.cleanup()


async def _listen(runner: web.AppRunner, settings: Settings) -> Any:
    return await asyncio.get_running_loop().create_server(
        lambda: ConnectionDoor(runner.server(), settings.server),
        "127.0.0.1",
        0,  # type: ignore[misc]
    )
