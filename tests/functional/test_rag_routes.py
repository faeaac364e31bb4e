"""Attach a folder to a project and search it, through the routes."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from tests.support.service import RunningService

FILES = {
    "handbook/README.md": "# Handbook\n\n## Holidays\n\nEvery member of staff has thirty days of holiday.\n",
    "handbook/src/billing.py": "def computeInvoiceTotal(items):\n    return sum(items)\n",
    "handbook/docs/migração.md": "# Migração\n\nA migração dos dados acontece em março.\n",
    "handbook/node_modules/x/index.js": "module.exports = 1\n",
    "handbook/.env": "SECRET=1\n",
    "handbook/logo.png": "\x89PNG",
}


@pytest.fixture
async def project(service: RunningService) -> str:
    async with service.client.post("/v1/projects", json={"name": "Handbook"}) as response:
        return str((await response.json())["project"]["id"])


async def attach(service: RunningService, project: str, files: dict[str, str]) -> tuple[int, dict[str, Any]]:
    form = aiohttp.FormData(quote_fields=False, default_to_multipart=True)
    form.add_field("folder_name", "handbook")
    for path, content in files.items():
        form.add_field("file", content.encode("utf-8", "surrogatepass"), filename=path)
    async with service.client.post(f"/v1/projects/{project}/rag/local", data=form) as response:
        return response.status, await response.json()


async def search(service: RunningService, project: str, query: str, **more: Any) -> dict[str, Any]:
    body = {"query": query, **more}
    async with service.client.post(f"/v1/projects/{project}/rag/search", json=body) as response:
        assert response.status == 200, await response.text()
        found: dict[str, Any] = await response.json()
        return found


async def get(service: RunningService, project: str, path: str) -> dict[str, Any]:
    async with service.client.get(f"/v1/projects/{project}/rag/{path}") as response:
        assert response.status == 200, await response.text()
        answer: dict[str, Any] = await response.json()
        return answer


async def test_an_attached_folder_is_searched_with_citations(service: RunningService, project: str) -> None:
    status, report = await attach(service, project, FILES)
    assert status == 200
    assert (report["folder_name"], report["files_indexed"], report["files_skipped"]) == ("handbook", 3, 3)
    assert {(s["path"], s["reason"]) for s in report["skipped"]} == {
        ("node_modules/", "ignored"),
        (".env", "secret"),
        ("logo.png", "extension"),
    }
    assert report["embedding"] == {
        "available": False,
        "pending": report["chunks_created"],
        "reason": report["embedding"]["reason"],
    }
    found = await search(service, project, "how many holidays do I have?")
    hit = found["hits"][0]
    assert hit["origin"] == {
        "kind": "file",
        "source_path": "README.md",
        "start_line": hit["origin"]["start_line"],
        "end_line": 5,
        "heading_path": ["Handbook", "Holidays"],
        "title": "Handbook",
        "folder_name": "handbook",
    }
    assert "thirty days" in hit["content"]
    assert hit["ranks"] == {"lexical": 1, "vector": None}
    assert found["vector"]["available"] is False
    assert found["searched"]["local"]["generation"] == report["generation"]
    for question, path in (
        ("migracao", "docs/migração.md"),
        ("invoice total", "src/billing.py"),
        ("billing.py", "src/billing.py"),
    ):
        assert (await search(service, project, question))["hits"][0]["origin"]["source_path"] == path, (
            question
        )


async def test_the_state_of_an_attached_folder_is_told_file_by_file(
    service: RunningService, project: str
) -> None:
    empty = await get(service, project, "local")
    assert empty == {"folder_name": None, "attached_at": None, "attached_by": None, "files": []}
    await attach(service, project, FILES)
    status = await get(service, project, "local")
    states = {file["path"]: file["state"] for file in status["files"]}
    assert states["README.md"] == "indexed"
    assert states["logo.png"] == "skipped"
    assert status["attached_by"] == service.member
    coverage = await get(service, project, "coverage")
    assert coverage["local"]["files_indexed"] == 3
    assert coverage["local"]["skipped"] == {"ignored": 1, "secret": 1, "extension": 1}
    assert coverage["chunks"] == coverage["chunks_without_vector"] > 0
    limits = await get(service, project, "limits")
    assert limits["max_files"] == 500
    assert "node_modules" in limits["ignored_directories"]


async def test_a_second_attach_replaces_the_first_and_a_failed_one_changes_nothing(
    service: RunningService, project: str
) -> None:
    await attach(service, project, {"handbook/a.md": "The old platypus.\n"})
    status, error = await attach(service, project, {"handbook/../evil.md": "x"})
    assert (status, error["error"]["code"]) == (400, "invalid_path")
    status, error = await attach(service, project, {"handbook/.env": "x"})
    assert (status, error["error"]["code"]) == (400, "nothing_indexable")
    assert len((await search(service, project, "platypus"))["hits"]) == 1
    await attach(service, project, {"handbook/b.md": "The new wombat.\n"})
    assert (await search(service, project, "platypus"))["hits"] == []
    assert len((await search(service, project, "wombat"))["hits"]) == 1
    async with service.client.delete(f"/v1/projects/{project}/rag/local") as response:
        assert response.status == 200
    assert (await search(service, project, "wombat"))["hits"] == []
    async with service.client.delete(f"/v1/projects/{project}/rag/local") as response:
        assert response.status == 404


async def test_searches_during_a_replace_see_all_the_old_or_all_the_new(
    service: RunningService, project: str
) -> None:
    def folder(word: str) -> dict[str, str]:
        return {f"handbook/{n}.md": f"# {word} {n}\n\nshared {word} text number {n}.\n" for n in range(40)}

    await attach(service, project, folder("oldest"))
    replacing = asyncio.create_task(attach(service, project, folder("newest")))
    seen = set()
    while not replacing.done():
        hits = (await search(service, project, "shared text", limit=50))["hits"]
        words = {"oldest" if "oldest" in hit["content"] else "newest" for hit in hits}
        assert len(words) == 1
        assert len(hits) == 40
        seen |= words
    assert (await replacing)[0] == 200
    assert (await search(service, project, "shared text"))["hits"][0]["content"].count("newest") > 0
    assert "oldest" in seen


async def test_a_folder_comes_as_json_too(service: RunningService, project: str) -> None:
    body = {"folder_name": "notes", "files": [{"path": "notes/a.md", "content": "A quiet axolotl.\n"}]}
    async with service.client.post(f"/v1/projects/{project}/rag/local", json=body) as response:
        assert response.status == 200
        assert (await response.json())["folder_name"] == "notes"
    assert (await search(service, project, "axolotl"))["hits"][0]["origin"]["source_path"] == "a.md"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"query": "x"},
        {"query": "x" * 501},
        {"query": 7},
        {"query": "xx", "limit": 0},
        {"query": "xx", "limit": 51},
        {"query": "xx", "limit": True},
        {"query": "xx", "scopes": ["everything"]},
        {"query": "xx", "scopes": []},
    ],
)
async def test_a_question_that_is_none_is_refused(
    service: RunningService, project: str, body: dict[str, Any]
) -> None:
    async with service.client.post(f"/v1/projects/{project}/rag/search", json=body) as response:
        assert response.status == 400
        assert (await response.json())["error"]["code"] == "invalid_request"


async def test_a_body_over_the_limit_is_refused_and_a_broken_one_changes_nothing(
    service: RunningService, project: str
) -> None:
    local = service.settings.rag.local.model_copy(update={"max_body_bytes": 5000})
    rag = service.settings.rag.model_copy(update={"local": local})
    service.inner.settings = service.settings.model_copy(update={"rag": rag})
    await attach(service, project, {"handbook/a.md": "platypus\n"})
    status, error = await attach(service, project, {"handbook/b.md": "x " * 3000})
    assert (status, error["error"]["code"]) == (413, "body_too_large")
    cut = b'--b\r\nContent-Disposition: form-data; name="file"; filename="handbook/c.md"\r\n\r\nwombat'
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    async with service.client.post(
        f"/v1/projects/{project}/rag/local", data=cut, headers=headers
    ) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (400, "malformed_body")
    assert len((await search(service, project, "platypus"))["hits"]) == 1
