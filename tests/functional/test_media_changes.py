"""Deleting, moving, folders, archives, limits and usage over a real socket, in the member's main workspace."""

from __future__ import annotations

import asyncio
import io
import os
import zipfile
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.functional.media_server import END, FIELDS, MediaServer, field_part, file_part, media_server

FILES = {
    "a.txt": b"a",
    "r/b.txt": b"bb",
    "r/s/c.txt": b"ccc",
    "attachments/d.bin": b"d",
    "attachments/x/e": b"e",
}


@pytest.fixture
async def server() -> AsyncIterator[MediaServer]:
    async with media_server(extensions=("txt", "pdf")) as running:
        await stock(running)
        yield running


async def stock(server: MediaServer) -> None:
    """Upload what a member may, and deliver the rest as an agent does."""
    for path, content in FILES.items():
        folder, _, name = path.rpartition("/")
        if folder.startswith("attachments"):
            target = server.public / folder
            target.mkdir(exist_ok=True)
            (target / name).write_bytes(content)
            for made in (target, target / name):
                os.chown(made, *server_owner(server))
            continue
        fields = field_part(b"agent") + field_part(b"project") + field_part(b"folder", folder.encode())
        status, _ = await server.send(fields + file_part(content, name.encode()) + END)
        assert status == 200


def server_owner(server: MediaServer) -> tuple[int, int]:
    status = server.public.stat()
    return status.st_uid, status.st_gid


async def ask(server: MediaServer, method: str, route: str = "", **more: Any) -> tuple[int, dict[str, Any]]:
    async with server.session.request(method, server.url + route, **more) as response:
        return response.status, await response.json()


def refusal(answer: tuple[int, dict[str, Any]]) -> tuple[int, str]:
    return answer[0], answer[1]["error"]["code"]


async def test_a_file_is_deleted(server: MediaServer) -> None:
    for path, shown in (("a.txt", "public/a.txt"), ("uploads/attachments/d.bin", "public/attachments/d.bin")):
        assert await ask(server, "DELETE", params={"path": path}) == (
            200,
            {"status": "deleted", "path": shown},
        )
        assert refusal(await ask(server, "DELETE", params={"path": path})) == (404, "not_found")
    assert sorted(server.stored()) == ["attachments/x/e", "r/b.txt", "r/s/c.txt"]


async def test_a_folder_is_made_with_its_parents_once_or_twice(server: MediaServer) -> None:
    for _ in range(2):
        made = await ask(server, "POST", "/folder", json={"path": "public/n/m"})
        assert made == (200, {"status": "created", "path": "public/n/m"})
    assert (server.public / "n" / "m").is_dir()


async def test_a_folder_is_made_where_nothing_was_before() -> None:
    async with media_server() as empty:
        assert (await ask(empty, "POST", "/folder", json={"path": "n"}))[0] == 200
        assert (empty.public / "n").is_dir()


@pytest.mark.parametrize("encoding", ["json", "params"])
async def test_a_folder_is_deleted_with_its_files(server: MediaServer, encoding: str) -> None:
    gone = await ask(server, "DELETE", "/folder", **{encoding: {"path": "r"}})
    assert gone == (200, {"status": "deleted", "path": "public/r", "removedFiles": 2})
    inside = await ask(server, "DELETE", "/folder", **{encoding: {"path": "attachments/x/"}})
    assert inside == (200, {"status": "deleted", "path": "public/attachments/x", "removedFiles": 1})
    assert sorted(server.stored()) == ["a.txt", "attachments/d.bin"]


async def test_a_file_and_a_folder_are_moved(server: MediaServer) -> None:
    moves = [("a.txt", "r/new.txt"), ("r/s", "t"), ("attachments/d.bin", "d.exe"), ("attachments/x", "x")]
    for path, to in moves:
        moved = await ask(server, "POST", "/move", json={"path": path, "to": f"public/{to}"})
        assert moved == (200, {"status": "moved", "path": f"public/{path}", "to": f"public/{to}"})
    assert sorted(server.stored()) == ["d.exe", "r/b.txt", "r/new.txt", "t/c.txt", "x/e"]


RESERVED = ["attachments", "public/attachments", "uploads/attachments/", "ATTACHMENTS", "public/Attachments"]


@pytest.mark.parametrize("path", RESERVED)
@pytest.mark.parametrize(
    ("method", "route", "make"),
    [
        ("DELETE", "", lambda path: {"params": {"path": path}}),
        ("DELETE", "/folder", lambda path: {"params": {"path": path}}),
        ("DELETE", "/folder", lambda path: {"json": {"path": path}}),
        ("POST", "/folder", lambda path: {"json": {"path": path}}),
        ("POST", "/folder", lambda path: {"json": {"path": f"{path.rstrip('/')}/new"}}),
        ("POST", "/move", lambda path: {"json": {"path": path, "to": "other"}}),
        ("POST", "/move", lambda path: {"json": {"path": "r", "to": path}}),
        ("POST", "/move", lambda path: {"json": {"path": "a.txt", "to": f"{path.rstrip('/')}/a.txt"}}),
        (
            "POST",
            "/move",
            lambda path: {"json": {"path": "attachments/d.bin", "to": f"{path.rstrip('/')}/f"}},
        ),
    ],
)
async def test_attachments_is_managed_by_the_system_in_any_spelling_by_any_route(
    server: MediaServer, path: str, method: str, route: str, make: Any
) -> None:
    before = server.stored()
    assert refusal(await ask(server, method, route, **make(path))) == (403, "managed_by_system")
    assert server.stored() == before


async def test_attachments_deeper_down_is_an_ordinary_folder(server: MediaServer) -> None:
    for path in ("reports/attachments", "public/uploads/attachments"):
        assert (await ask(server, "POST", "/folder", json={"path": path}))[0] == 200
        assert (await ask(server, "DELETE", "/folder", json={"path": path}))[0] == 200


ROOTS = ["public", "public/", "uploads", "uploads/"]


@pytest.mark.parametrize(
    ("method", "route", "more", "refused"),
    [
        ("DELETE", "", {"params": {"path": "gone.txt"}}, (404, "not_found")),
        ("DELETE", "", {"params": {"path": "gone/a.txt"}}, (404, "not_found")),
        ("DELETE", "", {"params": {"path": "r"}}, (409, "is_a_folder")),
        ("DELETE", "", {}, (400, "invalid_request")),
        ("DELETE", "", {"params": {"path": ""}}, (400, "invalid_request")),
        ("DELETE", "", {"params": {"path": "../a.txt"}}, (400, "invalid_path")),
        ("DELETE", "", {"params": {"path": ".isthmus-0000000000000000"}}, (400, "invalid_path")),
        ("DELETE", "", {"params": [("path", "a.txt"), ("path", "r/b.txt")]}, (400, "repeated_field")),
        ("DELETE", "", {"params": {"path": "a.txt", "agent": "nobody"}}, (404, "unknown_agent")),
        ("POST", "/folder", {"json": {"path": "a.txt"}}, (409, "is_a_file")),
        ("POST", "/folder", {"json": {"path": "a.txt/b"}}, (409, "is_a_file")),
        ("POST", "/folder", {"json": {"path": "my reports"}}, (400, "invalid_name")),
        ("POST", "/folder", {"json": {}}, (400, "invalid_request")),
        ("POST", "/folder", {"json": {"path": 7}}, (400, "invalid_request")),
        ("POST", "/folder", {"json": ["path"]}, (400, "invalid_request")),
        ("POST", "/folder", {"json": {"path": "/abs"}}, (400, "invalid_path")),
        ("POST", "/folder", {"json": {"path": "n"}, "params": {"path": "m"}}, (400, "repeated_field")),
        ("DELETE", "/folder", {"params": {"path": "gone"}}, (404, "no_such_folder")),
        ("DELETE", "/folder", {"params": {"path": "a.txt"}}, (409, "is_a_file")),
        ("DELETE", "/folder", {}, (400, "invalid_request")),
        ("DELETE", "/folder", {"json": {"path": "r"}, "params": {"path": "a"}}, (400, "repeated_field")),
        ("DELETE", "/folder", {"params": [("path", "r"), ("path", "r/s")]}, (400, "repeated_field")),
        ("POST", "/move", {"json": {"path": "gone", "to": "x"}}, (404, "not_found")),
        ("POST", "/move", {"json": {"path": "a.txt", "to": "n/a.txt"}}, (404, "no_such_folder")),
        ("POST", "/move", {"json": {"path": "a.txt", "to": "r/b.txt"}}, (409, "exists")),
        ("POST", "/move", {"json": {"path": "a.txt", "to": "a.txt"}}, (409, "exists")),
        ("POST", "/move", {"json": {"path": "r", "to": "r/s/r"}}, (400, "invalid_path")),
        ("POST", "/move", {"json": {"path": "a.txt", "to": "a.exe"}}, (400, "extension_not_allowed")),
        ("POST", "/move", {"json": {"path": "a.txt", "to": "a b.txt"}}, (400, "invalid_name")),
        ("POST", "/move", {"json": {"path": "a.txt", "to": "public"}}, (400, "invalid_path")),
        ("POST", "/move", {"json": {"path": "a.txt"}}, (400, "invalid_request")),
        ("GET", "/archive", {"params": {"path": "gone"}}, (404, "no_such_folder")),
        ("GET", "/archive", {"params": {"path": "a.txt"}}, (409, "is_a_file")),
        ("GET", "/archive", {"params": {"path": ".."}}, (400, "invalid_path")),
        ("GET", "/archive", {"params": [("path", "r"), ("path", "..")]}, (400, "repeated_field")),
        *[("DELETE", "", {"params": {"path": root}}, (409, "is_a_folder")) for root in ROOTS],
        *[("DELETE", "/folder", {"params": {"path": root}}, (400, "invalid_path")) for root in ROOTS],
        *[("DELETE", "/folder", {"json": {"path": root}}, (400, "invalid_path")) for root in ROOTS],
        *[("POST", "/move", {"json": {"path": root, "to": "x"}}, (400, "invalid_path")) for root in ROOTS],
    ],
)
async def test_what_is_wrong_is_said_and_nothing_is_changed(
    server: MediaServer, method: str, route: str, more: dict[str, Any], refused: tuple[int, str]
) -> None:
    before = sorted(server.public.rglob("*"))
    assert refusal(await ask(server, method, route, **more)) == refused
    assert sorted(server.public.rglob("*")) == before


async def test_an_unclean_name_comes_back_with_a_suggestion(server: MediaServer) -> None:
    for route, body in (("/folder", {"path": "x/my new"}), ("/move", {"path": "a.txt", "to": "r/my new"})):
        _, answer = await ask(server, "POST", route, json=body)
        assert (answer["error"]["name"], answer["error"]["suggestion"]) == ("my new", "my_new")


JSON_ROUTES = [("POST", "/folder"), ("DELETE", "/folder"), ("POST", "/move")]


@pytest.mark.parametrize(("method", "route"), JSON_ROUTES)
@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
async def test_only_json_is_taken_as_json(
    server: MediaServer, method: str, route: str, content_type: str
) -> None:
    body, headers = b'{"path": "r", "to": "q"}', {"Content-Type": content_type}
    answer = await ask(server, method, route, data=body, headers=headers)
    assert refusal(answer) == (415, "unsupported_media_type")
    assert (server.public / "r").is_dir()


@pytest.mark.parametrize(("method", "route"), JSON_ROUTES)
async def test_a_key_given_twice_is_refused(server: MediaServer, method: str, route: str) -> None:
    body, headers = b'{"path": "r", "to": "q", "path": "r/s"}', {"Content-Type": "application/json"}
    answer = await ask(server, method, route, data=body, headers=headers)
    assert refusal(answer) == (400, "repeated_field")
    assert answer[1]["error"]["field"] == "path"
    assert (server.public / "r" / "s").is_dir()


@pytest.mark.parametrize(
    ("query", "name"), [({"path": "r"}, "r"), ({"path": "public/r/s/"}, "s"), ({}, "public")]
)
async def test_a_folder_comes_as_a_zip_to_be_saved(
    server: MediaServer, query: dict[str, str], name: str
) -> None:
    async with server.session.get(server.url + "/archive", params=query) as response:
        found = zipfile.ZipFile(io.BytesIO(await response.read()))
    assert response.headers["Content-Type"] == "application/zip"
    assert response.headers["Content-Disposition"].startswith(f'attachment; filename="{name}.zip"')
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    inside = {"r": {"b.txt": b"bb", "s/c.txt": b"ccc"}, "s": {"c.txt": b"ccc"}, "public": FILES}[name]
    assert {item: found.read(item) for item in found.namelist()} == inside


async def test_a_member_takes_one_archive_at_a_time(server: MediaServer) -> None:
    big = server.public / "r" / "big.bin"
    with open(big, "wb") as file, open("/dev/urandom", "rb") as noise:
        file.write(noise.read(32 * 1024 * 1024))
    os.chown(big, *server_owner(server))
    url = server.url + "/archive"
    async with server.session.get(url) as first:
        assert first.status == 200
        async with server.session.get(url) as second:
            assert (second.status, second.headers["Retry-After"]) == (429, "5")
            assert (await second.json())["error"]["code"] == "too_many_archives"
        first.close()
    status = 429
    async with asyncio.timeout(10):
        while status == 429:  # until the service has seen that the client is gone
            async with server.session.get(url, params={"path": "r/s"}) as again:
                status = again.status
            await asyncio.sleep(0.01)
    assert status == 200


async def test_the_limits_are_told(server: MediaServer) -> None:
    status, told = await ask(server, "GET", "/limits")
    assert status == 200
    assert (told["max_bytes"], told["extensions"], told["quota_bytes"]) == (
        10 * 1024 * 1024,
        ["txt", "pdf"],
        None,
    )
    assert told["at_once"] == {"uploads": 4, "archives": 1}
    assert told["path"] == {"segments": 32, "segment_bytes": 255, "bytes": 1024}
    assert told["archive"] == {"entries": 10_000, "bytes": 2 * 1024**3}


async def test_usage_is_told_when_it_is_asked_for(server: MediaServer) -> None:
    assert "usage" not in (await server.get())[1]
    assert (await server.get(usage="1"))[1]["usage"] == {"bytes": 8, "quota": None}


@pytest.mark.parametrize("fields", [FIELDS, b""])
async def test_a_file_over_the_quota_is_refused_with_the_usage(fields: bytes) -> None:
    async with media_server(quota_bytes=1000) as server:
        assert (await server.send(fields + file_part(bytes(600)) + END))[0] == 200
        status, answer = await server.send(fields + file_part(bytes(401), b"b.txt") + END)
        assert (status, answer["error"]["code"]) == (413, "quota_exceeded")
        assert (answer["error"]["limit"], answer["error"]["usage"]) == (1000, 600)
        assert list(server.stored()) == ["a.txt"]
        assert (await server.send(fields + file_part(bytes(400), b"b.txt") + END))[0] == 200
        assert (await server.get(usage="1"))[1]["usage"] == {"bytes": 1000, "quota": 1000}


async def test_what_is_deleted_gives_its_room_back_at_once() -> None:
    async with media_server(quota_bytes=1000) as server:
        for route in ("", "/folder"):
            folder = b"r" if route else b""
            fields = field_part(b"agent") + field_part(b"project") + field_part(b"folder", folder)
            assert (await server.send(fields + file_part(bytes(900)) + END))[0] == 200
            assert (await server.send(fields + file_part(bytes(900), b"b.txt") + END))[0] == 413
            path = "r" if route else "a.txt"
            assert (await ask(server, "DELETE", route, params={"path": path}))[0] == 200


async def test_replacing_a_file_within_the_quota_is_no_excess() -> None:
    async with media_server(quota_bytes=1000) as server:
        for _ in range(3):
            assert (await server.send(FIELDS + file_part(bytes(450)) + END))[0] == 200
        assert (await server.get(usage="1"))[1]["usage"]["bytes"] <= 1000
