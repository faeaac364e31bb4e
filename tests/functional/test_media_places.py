"""Every file route keeps to the project and the agent that a request names, in each encoding, through the service."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.service import RunningService

FILES = ["f/x.txt", "x.txt"]


async def ask(service: RunningService, method: str, route: str, **more: Any) -> tuple[int, dict[str, Any]]:
    async with service.client.request(method, f"/v1/media{route}", **more) as response:
        return response.status, await response.json()


def files(public: Path) -> list[str]:
    return sorted(str(path.relative_to(public)) for path in public.rglob("*") if path.is_file())


@pytest.fixture
async def project(service: RunningService) -> Path:
    """Project `nest` with the same files as the main workspace; its public directory."""
    async with service.client.post("/v1/projects", json={"name": "nest"}) as response:
        assert response.status == 201
    for place in ({}, {"project": "nest"}):
        for folder in ("", "f"):
            status, _ = await service.upload("x.txt", b"in " + place.get("project", "main").encode(),
                                             folder=folder, **place)  # fmt: skip
            assert status == 200
    return service.workspaces / service.member / "workspace-nest" / "public"


def named(encoding: str, fields: dict[str, str], place: dict[str, str]) -> dict[str, Any]:
    """The fields in a query, in JSON, or in JSON beside a place in the query."""
    if encoding == "mixed":
        return {"json": fields, "params": place}
    return {encoding: {**fields, **place}}


CHANGES = [
    ("DELETE", "", {"path": "x.txt"}, "params", ["f/x.txt"]),
    ("DELETE", "/folder", {"path": "f"}, "params", ["x.txt"]),
    ("DELETE", "/folder", {"path": "f"}, "json", ["x.txt"]),
    ("DELETE", "/folder", {"path": "f"}, "mixed", ["x.txt"]),
    ("POST", "/move", {"path": "x.txt", "to": "f/y.txt"}, "json", ["f/x.txt", "f/y.txt"]),
    ("POST", "/move", {"path": "x.txt", "to": "f/y.txt"}, "mixed", ["f/x.txt", "f/y.txt"]),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[0]}{change[1]}-{change[3]}")
async def test_a_change_is_made_in_the_project_that_is_named(
    service: RunningService, project: Path, change: tuple[str, str, dict[str, str], str, list[str]]
) -> None:
    method, route, fields, encoding, left = change
    foreign = named(encoding, fields, {"project": "foreign"})
    status, refused = await ask(service, method, route, **foreign)
    assert (status, refused["error"]["code"]) == (404, "unknown_project")
    assert (files(project), files(service.public)) == (FILES, FILES)
    place = {"project": "nest", "agent": "demo"}
    assert (await ask(service, method, route, **named(encoding, fields, place)))[0] == 200
    assert (files(project), files(service.public)) == (left, FILES)
    assert (await ask(service, method, route, **named(encoding, fields, {"agent": "demo"})))[0] == 200
    assert (files(project), files(service.public)) == (left, left)


@pytest.mark.parametrize("encoding", ["json", "mixed"])
async def test_a_folder_is_made_in_the_project_that_is_named(
    service: RunningService, project: Path, encoding: str
) -> None:
    more = named(encoding, {"path": "new"}, {"project": "nest"})
    assert (await ask(service, "POST", "/folder", **more))[0] == 200
    assert (project / "new").is_dir()
    assert not (service.public / "new").exists()


async def test_a_folder_is_made_in_a_project_that_had_no_directory_yet(service: RunningService) -> None:
    async with service.client.post("/v1/projects", json={"name": "fresh"}) as response:
        assert response.status == 201
    assert (await ask(service, "POST", "/folder", json={"path": "a/b", "project": "fresh"}))[0] == 200
    assert (service.workspaces / service.member / "workspace-fresh" / "public" / "a" / "b").is_dir()
    assert not service.public.exists()


async def test_a_list_its_usage_a_download_and_an_archive_are_of_the_project(
    service: RunningService, project: Path
) -> None:
    (project / "x.txt").write_bytes(b"longer in nest")
    place = {"project": "nest"}
    _, listing = await ask(service, "GET", "", params={"usage": "1", **place})
    assert listing["usage"] == {"bytes": len(b"longer in nest") + len(b"in nest"), "quota": None}
    async with service.client.get("/v1/media", params={"path": "x.txt", **place}) as response:
        assert await response.read() == b"longer in nest"
    async with service.client.get("/v1/media/archive", params={"path": "f", **place}) as response:
        assert zipfile.ZipFile(io.BytesIO(await response.read())).read("x.txt") == b"in nest"
    for route, query in (("", {}), ("", {"path": "x.txt"}), ("/archive", {"path": "f"})):
        status, refused = await ask(service, "GET", route, params={"project": "foreign", **query})
        assert (status, refused["error"]["code"]) == (404, "unknown_project")


async def test_an_upload_goes_into_the_project_that_is_named(service: RunningService, project: Path) -> None:
    assert (await service.upload("y.txt", b"y", project="nest"))[0] == 200
    assert (await service.upload("z.txt", b"z", project="foreign"))[0] == 404
    assert (files(project), files(service.public)) == ([*FILES, "y.txt"], FILES)
