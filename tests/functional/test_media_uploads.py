"""Uploads over a real socket into real workspaces."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator
from itertools import permutations

import pytest

from tests.functional.media_server import (
    AGENT_GID,
    AGENT_UID,
    END,
    FIELDS,
    TOKEN,
    MediaServer,
    field_part,
    file_part,
    media_server,
)

MAX_BYTES = 1024 * 1024


@pytest.fixture
async def server() -> AsyncIterator[MediaServer]:
    async with media_server(max_bytes=MAX_BYTES, idle_timeout=2.0) as running:
        yield running


def request_head(length: int | None, *more: str) -> bytes:
    lines = [
        "POST /v1/media HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {TOKEN}",
        "Content-Type: multipart/form-data; boundary=b",
        *([] if length is None else [f"Content-Length: {length}"]),
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


async def until(condition: object, seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # type: ignore[operator]  # any callable without arguments
            await asyncio.sleep(0.01)


async def test_a_file_arrives_as_the_agents_own(server: MediaServer) -> None:
    status, receipt = await server.send(FIELDS + file_part(b"hello", "relatório final.pdf".encode()) + END)
    assert (status, receipt) == (
        200,
        {
            "path": "public/relatório_final.pdf",
            "name": "relatório_final.pdf",
            "size": 5,
            "replaced": False,
            "told_path": "public/relatório_final.pdf",
        },
    )
    found = os.stat(server.public / "relatório_final.pdf")
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (AGENT_UID, AGENT_GID, 0o600)


@pytest.mark.parametrize("order", list(permutations(range(3))))
async def test_fields_and_file_come_in_any_order(server: MediaServer, order: tuple[int, ...]) -> None:
    content = os.urandom(600_000)
    parts = [field_part(b"agent", b"demo"), field_part(b"folder", b"reports/new"), file_part(content)]
    status, receipt = await server.send(b"".join(parts[i] for i in order) + END)
    assert (status, receipt["path"]) == (200, "public/reports/new/a.txt")
    assert server.stored() == {"reports/new/a.txt": content}


@pytest.mark.parametrize("fields", [FIELDS, b""])
@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, MAX_BYTES])
async def test_up_to_the_limit_a_file_is_stored_whole(server: MediaServer, fields: bytes, size: int) -> None:
    content = os.urandom(size)
    status, receipt = await server.send(fields + file_part(content) + END)
    assert (status, receipt["size"]) == (200, size)
    assert server.stored() == {"a.txt": content}


@pytest.mark.parametrize("fields", [FIELDS, b""])
async def test_one_byte_over_the_limit_is_refused_whole(server: MediaServer, fields: bytes) -> None:
    status, answer = await server.send(fields + file_part(b"a" * (MAX_BYTES + 1)) + END)
    assert (status, answer["error"]["code"], answer["error"]["limit"]) == (413, "file_too_large", MAX_BYTES)
    assert server.stored() == {}


async def test_a_chunked_body_meets_the_same_limit(server: MediaServer) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield FIELDS + file_part(b"")[:-2]
        for _ in range(MAX_BYTES // 65536):
            yield b"a" * 65536
        yield b"a\r\n" + END

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    async with server.session.post(server.url, data=pieces(), headers=headers) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (413, "file_too_large")
    assert server.stored() == {}


async def test_a_preamble_counts(server: MediaServer) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"a" * MAX_BYTES

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    async with server.session.post(server.url, data=pieces(), headers=headers) as response:
        answer = await response.json()
        assert (response.status, answer["error"]["code"]) == (413, "body_too_large")


async def test_a_second_upload_replaces_the_first(server: MediaServer) -> None:
    assert (await server.send(FIELDS + file_part(b"old") + END))[1]["replaced"] is False
    assert (await server.send(FIELDS + file_part(b"new") + END))[1]["replaced"] is True
    assert server.stored() == {"a.txt": b"new"}


async def test_two_uploads_of_one_name_leave_one_of_them_whole(server: MediaServer) -> None:
    contents = [bytes([number]) * 500_000 for number in (1, 2)]
    for _ in range(5):
        answers = await asyncio.gather(*(server.send(FIELDS + file_part(data) + END) for data in contents))
        assert [status for status, _ in answers] == [200, 200]
        assert server.stored()["a.txt"] in contents
        assert len(server.stored()) == 1


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "malformed_body"),
        (b'{"a": 1}', 400, "malformed_body"),
        (END, 400, "invalid_request"),
        (FIELDS + END, 400, "invalid_request"),
        (FIELDS + file_part(b"x" * 1000)[:600], 400, "malformed_body"),
        (FIELDS + file_part(b"x"), 400, "malformed_body"),
        (field_part(b"") + file_part(b"x") + END, 400, "malformed_body"),
        (field_part(b"file", b"text") + END, 400, "invalid_request"),
        (file_part(b"x", name=b"folder") + END, 400, "invalid_request"),
        (field_part(b"folder", b"f" * 8193) + file_part(b"x") + END, 400, "invalid_request"),
        (field_part(b"folder", b"\xff") + file_part(b"x") + END, 400, "invalid_request"),
        (field_part(b"other", b"o" * 8193) + file_part(b"x") + END, 400, "invalid_request"),
        (file_part(b"x") + file_part(b"y") + END, 400, "repeated_field"),
        (FIELDS + file_part(b"x") + field_part(b"project") + END, 400, "repeated_field"),
        (b"".join(field_part(b"f%d" % n) for n in range(17)) + END, 400, "malformed_body"),
        (file_part(b"x", b"..") + END, 400, "invalid_name"),
        (file_part(b"x", b"") + END, 400, "invalid_name"),
        (file_part(b"x", b"a.exe") + END, 400, "extension_not_allowed"),
        (file_part(b"x", b"noextension") + END, 400, "extension_not_allowed"),
        (field_part(b"folder", b"../up") + file_part(b"x") + END, 400, "invalid_path"),
        (field_part(b"folder", b"my reports") + file_part(b"x") + END, 400, "invalid_name"),
        (file_part(b"x") + field_part(b"folder", b"Attachments") + END, 403, "managed_by_system"),
        (field_part(b"agent", b"nobody") + file_part(b"x") + END, 404, "unknown_agent"),
        (field_part(b"project", b"nest") + file_part(b"x") + END, 404, "unknown_project"),
        (file_part(b"x") + field_part(b"project", b"nest") + END, 404, "unknown_project"),
    ],
)
async def test_what_is_wrong_is_said_and_nothing_is_stored(
    server: MediaServer, body: bytes, status: int, code: str
) -> None:
    answered, answer = await server.send(body)
    assert (answered, answer["error"]["code"]) == (status, code)
    assert server.stored() == {}


async def test_a_refused_upload_makes_no_folder(server: MediaServer) -> None:
    fields = field_part(b"agent") + field_part(b"project") + field_part(b"folder", b"new")
    assert (await server.send(fields + file_part(b"x")))[0] == 400
    assert not (server.public / "new").exists()
    assert (await server.send(fields + file_part(b"x") + END))[1]["path"] == "public/new/a.txt"


async def test_an_unknown_project_makes_nothing_anywhere(server: MediaServer) -> None:
    await server.send(field_part(b"project", b"nest") + file_part(b"x") + END)
    assert list((server.directory / "demo").iterdir()) == []


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Content-Type": "application/json"}, 415, "unsupported_media_type"),
        ({"Content-Type": "multipart/form-data"}, 400, "malformed_body"),
        ({"Content-Encoding": "gzip"}, 415, "unsupported_media_type"),
        ({"Authorization": "Bearer wrong"}, 401, "unauthenticated"),
    ],
)
async def test_headers_are_judged_before_the_body(
    server: MediaServer, headers: dict[str, str], status: int, code: str
) -> None:
    answered, answer = await server.send(FIELDS + file_part(b"x") + END, **headers)
    assert (answered, answer["error"]["code"]) == (status, code)


async def test_a_member_with_several_agents_names_one() -> None:
    async with media_server(agents=("demo", "other")) as server:
        status, answer = await server.send(FIELDS + file_part(b"x") + END)
        assert (status, answer["error"]["code"]) == (400, "agent_required")
        assert answer["error"]["agents"] == ["demo", "other"]
        status, _ = await server.send(file_part(b"x") + field_part(b"agent", b"demo") + END)
        assert (status, server.stored()) == (200, {"a.txt": b"x"})


async def test_a_declared_length_over_the_limit_is_refused_without_a_continue(server: MediaServer) -> None:
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(request_head(MAX_BYTES * 2, "Expect: 100-continue"))
    answer = await asyncio.wait_for(reader.read(), 5)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"file_too_large"' in answer
    writer.close()
    await writer.wait_closed()


async def test_a_client_that_waits_for_a_continue_gets_one_after_the_checks(server: MediaServer) -> None:
    body = FIELDS + file_part(b"x") + END
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(request_head(len(body), "Expect: 100-continue", "Connection: close"))
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    answer = await asyncio.wait_for(reader.read(), 5)
    assert answer.startswith(b"HTTP/1.1 200 ")
    writer.close()
    await writer.wait_closed()


async def test_a_length_shorter_than_the_form_is_malformed(server: MediaServer) -> None:
    body = FIELDS + file_part(b"x" * 100) + END
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(request_head(len(body) - 50) + body[:-50])
    answer = await asyncio.wait_for(reader.readuntil(b"}}"), 5)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"malformed_body"' in answer
    writer.close()
    await writer.wait_closed()
    assert server.stored() == {}


async def test_a_stalled_body_is_timed_out() -> None:
    async with media_server(idle_timeout=0.2) as server:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(request_head(1000) + FIELDS + file_part(b"x"))
        answer = await asyncio.wait_for(reader.read(), 5)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"body_timeout"' in answer
        writer.close()
        await writer.wait_closed()
        assert server.stored() == {}


@pytest.mark.parametrize("fields", [FIELDS, b""])
async def test_a_client_that_leaves_leaves_nothing(server: MediaServer, fields: bytes) -> None:
    _, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(request_head(MAX_BYTES) + fields + file_part(b"x" * 600_000)[:-2])
    await writer.drain()
    if fields:
        await until(server.public.exists)
    writer.close()
    await writer.wait_closed()
    status, _ = await server.send(FIELDS + file_part(b"y", b"later.txt") + END)
    assert (status, server.stored()) == (200, {"later.txt": b"y"})


async def test_a_member_has_so_many_uploads_at_once() -> None:
    async with media_server(per_member=1) as server:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        body = FIELDS + file_part(b"x") + END
        writer.write(request_head(len(body), "Connection: close") + body[:-1])
        await until(server.public.exists)
        async with server.session.post(
            server.url, data=body, headers={"Content-Type": "multipart/form-data; boundary=b"}
        ) as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "2")
            assert (await response.json())["error"]["code"] == "too_many_uploads"
        writer.write(body[-1:])
        assert (await asyncio.wait_for(reader.read(), 5)).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await writer.wait_closed()
        assert (await server.send(body))[0] == 200


async def test_a_link_a_fifo_and_a_socket_are_replaced_and_never_opened(server: MediaServer) -> None:
    await server.send(FIELDS + file_part(b"x", b"first.txt") + END)
    outside = server.directory / "outside.txt"
    outside.write_bytes(b"untouched")
    os.symlink(outside, server.public / "link.txt")
    os.mkfifo(server.public / "fifo.txt")
    with socket.socket(socket.AF_UNIX) as planted:
        planted.bind(str(server.public / "socket.txt"))
    for name in (b"link.txt", b"fifo.txt", b"socket.txt"):
        status, receipt = await server.send(FIELDS + file_part(b"new", name) + END)
        assert (status, receipt["replaced"]) == (200, True)
    assert outside.read_bytes() == b"untouched"
    assert set(server.stored().values()) == {b"x", b"new"}


async def test_a_folder_of_the_name_is_a_conflict(server: MediaServer) -> None:
    await server.send(FIELDS + file_part(b"x", b"first.txt") + END)
    (server.public / "a.txt").mkdir()
    status, answer = await server.send(FIELDS + file_part(b"x") + END)
    assert (status, answer["error"]["code"]) == (409, "is_a_folder")


async def test_public_being_a_link_is_a_conflict_and_no_way_out(server: MediaServer) -> None:
    await server.send(FIELDS + file_part(b"x") + END)
    outside = server.directory / "outside"
    outside.mkdir(mode=0o777)
    os.rename(server.public, server.public.with_name("was"))
    os.symlink(outside, server.public)
    status, answer = await server.send(FIELDS + file_part(b"x") + END)
    assert (status, answer["error"]["code"]) == (409, "public_is_not_a_folder")
    assert list(outside.iterdir()) == []


async def test_a_file_before_its_fields_goes_where_they_say_and_only_there() -> None:
    async with media_server(agents=("demo", "other")) as server:
        content = os.urandom(600_000)
        await server.send(field_part(b"agent", b"demo") + file_part(b"x", b"first.txt") + END)
        body = field_part(b"agent", b"demo") + file_part(content) + field_part(b"folder", b"box") + END
        assert (await server.send(body))[1]["path"] == "public/box/a.txt"
        assert server.stored() == {"first.txt": b"x", "box/a.txt": content}


async def test_a_file_alone_waits_in_its_own_folder_and_is_not_copied(server: MediaServer) -> None:
    await server.send(file_part(b"x", b"first.txt") + END)
    spool = server.directory / "data" / "spool"
    shutil.rmtree(spool, ignore_errors=True)
    content = os.urandom(600_000)
    assert (await server.send(file_part(content) + END))[0] == 200
    assert server.stored() == {"first.txt": b"x", "a.txt": content}
    assert not spool.exists()


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [(b"project", b"nest", "unknown_project"), (b"folder", b"attachments", "managed_by_system")],
)
async def test_a_field_before_the_file_is_judged_before_the_file_comes(
    server: MediaServer, field: bytes, value: bytes, code: str
) -> None:
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(request_head(MAX_BYTES) + field_part(field, value) + file_part(b"x")[:-2])
    answer = await asyncio.wait_for(reader.readuntil(b"}}"), 5)
    assert code.encode() in answer
    writer.close()
    await writer.wait_closed()
    assert server.stored() == {}
