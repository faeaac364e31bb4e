"""Projects through the whole service: their rows, their own workspaces, their turns, their end."""

from __future__ import annotations

import json
import os
from typing import Any

import aiohttp
import pytest

from tests.support.service import AGENT_GID, AGENT_UID, OTHER_TOKEN, RunningService, deliveries, said


async def create(service: RunningService, name: str = "Relatório Anual", **more: Any) -> dict[str, Any]:
    async with service.client.post("/v1/projects", json={"name": name, **more}) as response:
        assert response.status == 201, await response.text()
        project: dict[str, Any] = (await response.json())["project"]
        return project


async def refused(service: RunningService, method: str, path: str, **more: Any) -> tuple[int, str]:
    async with service.client.request(method, path, **more) as response:
        return response.status, (await response.json())["error"]["code"]


async def test_a_project_is_made_listed_shown_renamed_and_instructed(service: RunningService) -> None:
    made = await create(service)
    assert made == {
        "id": "relatorio-anual",
        "name": "Relatório Anual",
        "agent": "demo",
        "owner": service.member,
        "instructions": "",
        "mode": "container",
        "path": None,
        "role": "owner",
        "created_at": made["created_at"],
    }
    async with service.client.get("/v1/projects") as response:
        assert await response.json() == {"projects": [made]}
    change = {"name": "Report", "instructions": "Answer in Portuguese."}
    async with service.client.patch("/v1/projects/relatorio-anual", json=change) as response:
        assert (await response.json())["project"] == {**made, **change}
    async with service.client.get("/v1/projects/relatorio-anual") as response:
        assert (await response.json())["project"]["name"] == "Report"


async def test_names_are_taken_without_regard_to_case_and_ids_are_numbered(service: RunningService) -> None:
    assert (await create(service, "main"))["id"] == "main-2"
    assert (await create(service, "Plan B"))["id"] == "plan-b"
    assert (await create(service, "plan_b!"))["id"] == "plan_b"
    assert (await create(service, "plan: b"))["id"] == "plan-b-2"
    assert (await create(service, "計画"))["id"] == "project"
    assert await refused(service, "POST", "/v1/projects", json={"name": "PLAN B"}) == (409, "name_taken")
    assert await refused(service, "PATCH", "/v1/projects/plan_b", json={"name": "plan b"}) == (
        409,
        "name_taken",
    )


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": ""},
        {"name": "a\nb"},
        {"name": "x" * 101},
        {"name": 7},
        {"name": "p", "instructions": "x" * 32769},
        {"name": "p", "mode": "local", "path": "/home/ana"},
        {"name": "p", "path": "/etc"},
    ],
)
async def test_a_project_that_cannot_be_is_refused(service: RunningService, body: dict[str, Any]) -> None:
    assert await refused(service, "POST", "/v1/projects", json=body) == (400, "invalid_request")


@pytest.mark.parametrize("field", ["id", "mode", "path", "owner", "agent"])
async def test_where_a_project_lives_cannot_be_changed(service: RunningService, field: str) -> None:
    await create(service, "p")
    assert await refused(service, "PATCH", "/v1/projects/p", json={field: "x"}) == (400, "invalid_request")


async def test_files_turns_and_deliveries_of_a_project_are_its_own(service: RunningService) -> None:
    await create(service, "Apollo", instructions="Be brief.")
    status, receipt = await service.upload("notes.txt", b"one two three", project="apollo")
    assert status == 200
    assert receipt["told_path"] == "/workspace/workspace-apollo/public/notes.txt"
    own = service.workspaces / service.member / "workspace-apollo" / "public"
    assert (own / "notes.txt").read_bytes() == b"one two three"
    assert not service.public.exists()
    async with service.client.get("/v1/media", params={"project": "apollo"}) as response:
        assert [file["path"] for file in (await response.json())["files"]] == [
            "public/attachments",
            "public/notes.txt",
        ]
    async with service.client.get("/v1/media") as response:
        assert (await response.json())["files"] == []
    chunks = await service.turn("count words in notes.txt", project="apollo")
    assert said(chunks) == "notes.txt has 3 words."
    (delivery,) = deliveries(await service.turn("make a report", project="apollo"))
    assert (own / "attachments" / delivery["name"]).exists()
    params = {"path": delivery["path"], "project": "apollo"}
    async with service.client.get("/v1/media", params=params) as response:
        assert response.status == 200
    async with service.client.get("/v1/media", params={"path": delivery["path"]}) as response:
        assert response.status == 404
    assert len(await service.history(project="apollo")) == 4
    assert await service.history() == []


async def test_the_agent_is_told_the_project_its_directory_and_its_instructions(
    service: RunningService,
) -> None:
    await create(service, "Apollo", instructions="Be brief.")
    script = json.dumps(
        [
            {
                "frame": {
                    "type": "message.create",
                    "payload": {"message_id": "m", "content": "$CONTENT", "context_usage": {}},
                }
            }
        ]
    )
    told = said(await service.turn(f"play-inline {script}", project="apollo"))
    directory = "/workspace/workspace-apollo"
    assert told.startswith(
        f"[project: Apollo · files: {directory} · deliver to: {directory}/public/attachments]\n"
        "Be brief.\n[/project]\n\n"
    )
    again = said(await service.turn(f"play-inline {script}", project="apollo"))
    assert again.startswith("play-inline")
    async with service.client.patch("/v1/projects/apollo", json={"instructions": "Be long."}):
        pass
    changed = said(await service.turn(f"play-inline {script}", project="apollo"))
    assert "Be long." in changed.split("[/project]")[0]


async def test_an_unknown_or_foreign_project_is_404_on_every_route_and_nothing_is_written(
    service: RunningService,
) -> None:
    await create(service, "Mine")
    chat = {"messages": [{"role": "user", "content": "x"}]}
    headers = {"Authorization": f"Bearer {OTHER_TOKEN}"}
    async with aiohttp.ClientSession(service.url, headers=headers) as other:
        for project in ("mine", "nobodys", "..", "a/b", "x" * 300, "MINE"):
            form = aiohttp.FormData({"project": project}, quote_fields=False)
            form.add_field("file", b"x", filename="x.txt")
            query = {"project": project}
            for method, path, more in (
                ("POST", "/v1/media", {"data": form}),
                ("GET", "/v1/media", {"params": query}),
                ("GET", "/v1/media", {"params": {**query, "path": "public/x.txt"}}),
                ("POST", "/v1/chat/completions", {"json": {**chat, **query}}),
                ("GET", "/v1/sessions/history", {"params": {**query, "session_id": "s1"}}),
            ):
                async with other.request(method, path, **more) as response:
                    assert (response.status, project, path) == (404, project, path)
                    assert (await response.json())["error"]["code"] == "unknown_project"
        for method, path, more in (
            ("GET", "", {}),
            ("PATCH", "", {"json": {"name": "x"}}),
            ("DELETE", "", {}),
            ("POST", "/rag/search", {"json": {"query": "xx"}}),
            ("POST", "/rag/local", {"json": {"files": []}}),
            ("GET", "/rag/local", {}),
            ("DELETE", "/rag/local", {}),
            ("GET", "/rag/limits", {}),
            ("GET", "/rag/coverage", {}),
        ):
            async with other.request(method, f"/v1/projects/mine{path}", **more) as response:
                assert (response.status, path) == (404, path)
    assert not any(
        folder.name.startswith("workspace")
        for folder in service.workspaces.rglob("workspace*")
        if service.member in str(folder)
    )


async def test_a_deleted_project_takes_its_files_and_conversations_along(service: RunningService) -> None:
    await create(service, "Apollo")
    await service.upload("notes.txt", b"x", project="apollo")
    await service.turn("hello", project="apollo")
    deep = service.workspaces / service.member / "workspace-apollo"
    outside = service.workspaces / f"outside-{service.member}"
    outside.mkdir()
    (outside / "kept.txt").write_text("kept")
    (deep / "link").symlink_to(outside)
    folder = deep
    for number in range(50):
        folder = folder / f"d{number}"
        folder.mkdir()
        (folder / "f").write_text("x")
        os.chown(folder, AGENT_UID, AGENT_GID)
    folder.chmod(0)
    async with service.client.delete("/v1/projects/apollo") as response:
        assert await response.json() == {"status": "deleted", "id": "apollo"}
    assert list((service.workspaces / service.member).iterdir()) == []
    assert (outside / "kept.txt").read_text() == "kept"
    await create(service, "Apollo")
    assert await service.history(project="apollo") == []
    async with service.client.get("/v1/media", params={"project": "apollo"}) as response:
        assert (await response.json())["files"] == []


async def test_a_project_with_a_running_turn_is_not_deleted(service: RunningService) -> None:
    await create(service, "Apollo")
    script = json.dumps([{"frame": {"type": "typing.start"}}, {"wait": 1}])
    body = {
        "messages": [{"role": "user", "content": f"play-inline {script}"}],
        "stream": True,
        "project": "apollo",
    }
    async with service.client.post("/v1/chat/completions", json=body) as response:
        await response.content.readuntil(b"\n\n")
        assert await refused(service, "DELETE", "/v1/projects/apollo") == (409, "turn_running")
        response.close()


async def test_a_member_has_a_hundred_projects_at_most(service: RunningService) -> None:
    async with service.inner.pool.acquire() as connection:
        await connection.executemany(
            "INSERT INTO projects (id, agent, owner, name, name_key) VALUES ($1, 'demo', $2, $1, $1)",
            [(f"p{number}", service.member) for number in range(100)],
        )
    async with service.client.post("/v1/projects", json={"name": "one more"}) as response:
        error = (await response.json())["error"]
        assert (response.status, error["code"], error["limit"], error["usage"]) == (
            413,
            "quota_exceeded",
            100,
            100,
        )
