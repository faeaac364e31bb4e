"""`GET /v1/media/events` over real sockets, and the old directory behind the media routes."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.functional.workspace.conftest import as_agent
from tests.functional.workspace.test_watch import instances
from tests.support.demo import Demo
from tests.support.postgres import TestServer, fresh_database
from tests.support.service import OTHER_TOKEN, TOKEN, RunningService, running_service

EVENTS = "/v1/media/events"
PING = b": ping\n\n"
WAIT_SECONDS = 10


class Stream:
    """An open event stream, and everything it has said."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.told: list[str] = []

    async def record(self) -> bytes:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.response.content.readuntil(b"\n\n")

    async def event(self) -> dict[str, Any]:
        """The next record that is no comment."""
        while (record := await self.record()) == PING:
            pass
        assert record.startswith(b"data: ")
        event: dict[str, Any] = json.loads(record[6:])
        assert set(event) == {"changed", "gap"}
        self.told += event["changed"]
        return event

    async def until(self, path: str) -> None:
        while path not in self.told:
            await self.event()


@asynccontextmanager
async def stream(service: RunningService, **options: Any) -> AsyncIterator[Stream]:
    async with service.client.get(EVENTS, **options) as response:
        assert response.status == 200, await response.text()
        opened = Stream(response)
        assert await opened.record() == PING
        yield opened


async def test_an_upload_and_what_the_agent_writes_are_told(service: RunningService) -> None:
    await service.upload("first.txt", b"x")
    async with stream(service) as events:
        assert events.response.headers["Content-Type"] == "text/event-stream"
        assert events.response.headers["Cache-Control"] == "no-cache, no-transform"
        assert events.response.headers["X-Accel-Buffering"] == "no"
        await service.upload("größe.txt", b"x")
        assert await events.event() == {"changed": ["public/größe.txt"], "gap": False}
        report = service.public / "attachments" / "report.pdf"
        as_agent(lambda: report.write_text("x"))
        await events.until("public/attachments/report.pdf")


async def test_a_member_is_told_of_their_own_files_only(service: RunningService) -> None:
    await service.upload("first.txt", b"x")
    async with stream(service, headers={"Authorization": f"Bearer {OTHER_TOKEN}"}) as events:
        await service.upload("mine.txt", b"x")
        form = aiohttp.FormData()
        form.add_field("file", b"x", filename="theirs.txt")
        headers = {"Authorization": f"Bearer {OTHER_TOKEN}"}
        async with service.client.post("/v1/media", data=form, headers=headers) as response:
            assert response.status == 200
        await events.until("public/theirs.txt")
        assert "public/mine.txt" not in events.told


async def test_a_leaving_client_ends_the_watch(service: RunningService) -> None:
    await service.upload("first.txt", b"x")
    async with stream(service), stream(service):
        assert instances() == 1
    deadline = time.monotonic() + WAIT_SECONDS
    while instances() and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    assert instances() == 0


async def test_the_open_streams_of_a_member_are_bounded(
    postgres: TestServer, demo_agent: tuple[Demo, Path], open_dir: Path
) -> None:
    async with (
        fresh_database(postgres) as connect,
        running_service(
            open_dir, connect, *demo_agent, {"heartbeat": 0.05}, server={"max_streams_per_member": 2}
        ) as service,
        stream(service) as first,
        stream(service),
    ):
        async with service.client.get(EVENTS) as refused:
            assert refused.status == 429
            assert (await refused.json())["error"]["code"] == "too_many_streams"
            assert "Retry-After" in refused.headers
        async with stream(service, headers={"Authorization": f"Bearer {OTHER_TOKEN}"}):
            pass
        assert [await first.record() for _ in range(3)] == [PING] * 3


async def test_streams_end_when_the_service_stops(
    postgres: TestServer, demo_agent: tuple[Demo, Path], open_dir: Path
) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with fresh_database(postgres) as connect, aiohttp.ClientSession(headers=headers) as client:
        async with running_service(open_dir, connect, *demo_agent) as service:
            response = await client.get(service.url + EVENTS)
            assert await response.content.readuntil(b"\n\n") == PING
            began = time.monotonic()
        assert time.monotonic() - began < WAIT_SECONDS
        async with asyncio.timeout(WAIT_SECONDS):
            assert await response.content.read() == b""  # a whole answer, not a broken connection


async def test_what_a_list_refuses_is_refused_before_the_stream_begins(service: RunningService) -> None:
    for query, status, code in (
        ("?project=nope", 404, "unknown_project"),
        ("?agent=nope", 404, "unknown_agent"),
        ("?agent=demo&agent=demo", 400, "repeated_field"),
    ):
        async with service.client.get(EVENTS + query) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (status, code)
    async with service.client.get(EVENTS, headers={"Authorization": "Bearer nobody"}) as response:
        assert response.status == 401


async def test_files_of_the_old_directory_are_listed_and_downloaded(service: RunningService) -> None:
    await service.upload("new.txt", b"new")
    uploads = service.public.parent / "uploads"
    as_agent(lambda: (uploads.mkdir(), (uploads / "old.txt").write_text("old")))
    async with service.client.get("/v1/media") as response:
        paths = [file["path"] for file in (await response.json())["files"]]
    assert "public/old.txt" in paths
    assert not uploads.exists()
    async with service.client.get("/v1/media", params={"path": "uploads/old.txt"}) as response:
        assert await response.read() == b"old"
    (lock,) = os.listdir(service.settings.store.directory / "locks")
    assert lock.endswith(".lock")
