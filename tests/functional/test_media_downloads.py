"""Lists and downloads over a real socket from real workspaces."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.functional.media_server import END, FIELDS, MediaServer, file_part, media_server

CONTENT = os.urandom(700_000)


@pytest.fixture
async def server() -> AsyncIterator[MediaServer]:
    async with media_server() as running:
        yield running


@pytest.fixture
async def stocked(server: MediaServer) -> MediaServer:
    """A server whose `public` holds data.bin.gz and page.html."""
    for name, content in ((b"data.gz", CONTENT), (b"page.html", b"<script>alert(1)</script>")):
        assert (await server.send(FIELDS + file_part(content, name) + END))[0] == 200
    return server


async def test_a_list_of_nothing_is_empty_and_makes_nothing(server: MediaServer) -> None:
    status, listing = await server.get()
    assert (status, listing["files"], listing["next_cursor"]) == (200, [], None)
    assert list((server.directory / "demo").iterdir()) == []


async def test_a_list_names_files_and_folders_of_all_depths(stocked: MediaServer) -> None:
    status, listing = await stocked.get()
    entries = {entry["path"]: (entry["name"], entry["size"], entry["isDir"]) for entry in listing["files"]}
    assert (status, entries["public/data.gz"]) == (200, ("data.gz", len(CONTENT), False))
    assert entries["public/attachments"][2] is True
    assert [entry["path"] for entry in listing["files"]] == sorted(entries)
    assert all(entry["modified"].endswith("Z") or "+00:00" in entry["modified"] for entry in listing["files"])


async def test_pages_follow_each_other_to_the_end(stocked: MediaServer) -> None:
    whole = (await stocked.get())[1]["files"]
    seen, cursor = [], ""
    for _ in whole:
        _, page = await stocked.get(limit="1", cursor=cursor)
        seen += page["files"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == whole
    assert cursor is None


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("limit=0", 400, "invalid_request"),
        ("limit=1001", 400, "invalid_request"),
        ("limit=%D9%A1", 400, "invalid_request"),
        ("limit=-1", 400, "invalid_request"),
        ("limit=1&limit=2", 400, "repeated_field"),
        ("path=a.txt&path=..", 400, "repeated_field"),
        ("other=1&other=2", 400, "repeated_field"),
        ("folder=..", 400, "invalid_path"),
        ("folder=gone", 404, "no_such_folder"),
        ("path=..%2Fworkspace", 400, "invalid_path"),
        ("path=gone.txt", 404, "not_found"),
        ("path=.isthmus-0123456789abcdef", 400, "invalid_path"),
        ("path=attachments", 404, "not_found"),
        ("path=", 404, "not_found"),
        ("path=page.html&disposition=x", 400, "invalid_request"),
        ("agent=nobody", 404, "unknown_agent"),
        ("project=nest", 404, "unknown_project"),
        ("path=page.html&project=nest", 404, "unknown_project"),
    ],
)
async def test_a_wrong_question_is_answered_with_its_code(
    stocked: MediaServer, query: str, status: int, code: str
) -> None:
    async with stocked.session.get(f"{stocked.url}?{query}") as response:
        answer = await response.json()
    assert (response.status, answer["error"]["code"]) == (status, code)


async def test_unknown_query_keys_are_ignored(stocked: MediaServer) -> None:
    assert (await stocked.get(whatever="1"))[0] == 200


@pytest.mark.parametrize("path", ["data.gz", "public/data.gz", "uploads/data.gz"])
async def test_a_file_comes_back_whole_to_be_saved(stocked: MediaServer, path: str) -> None:
    async with stocked.session.get(stocked.url, params={"path": path}) as response:
        assert response.status == 200
        assert await response.read() == CONTENT
    assert response.headers["Content-Type"] == "application/octet-stream"
    assert response.headers["Content-Disposition"].startswith("attachment; ")
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
    assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert response.headers["Cache-Control"] == "private, no-cache"


async def test_head_has_the_headers_of_get_and_no_bytes(stocked: MediaServer) -> None:
    async with stocked.session.head(stocked.url, params={"path": "data.gz"}) as response:
        assert (response.status, await response.read()) == (200, b"")
    assert response.headers["Content-Length"] == str(len(CONTENT))


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [("bytes=0-0", 0, 1), ("bytes=300000-", 300_000, 700_000), ("bytes=-5", 699_995, 700_000)],
)
async def test_a_range_is_sent_alone(stocked: MediaServer, asked: str, start: int, stop: int) -> None:
    headers = {"Range": asked}
    async with stocked.session.get(stocked.url, params={"path": "data.gz"}, headers=headers) as response:
        assert (response.status, await response.read()) == (206, CONTENT[start:stop])
    assert response.headers["Content-Range"] == f"bytes {start}-{stop - 1}/700000"


async def test_a_range_beyond_the_end_says_the_size(stocked: MediaServer) -> None:
    headers = {"Range": "bytes=700000-"}
    async with stocked.session.get(stocked.url, params={"path": "data.gz"}, headers=headers) as response:
        assert (response.status, response.headers["Content-Range"]) == (416, "bytes */700000")
        assert (await response.json())["error"]["code"] == "range_not_satisfiable"


async def test_an_unchanged_file_is_not_sent_again_and_a_changed_one_is(stocked: MediaServer) -> None:
    query = {"path": "data.gz"}
    async with stocked.session.get(stocked.url, params=query) as response:
        etag = response.headers["ETag"]
    async with stocked.session.get(stocked.url, params=query, headers={"If-None-Match": etag}) as response:
        assert (response.status, await response.read()) == (304, b"")
    found = os.stat(stocked.public / "data.gz")
    os.utime(stocked.public / "data.gz", ns=(found.st_atime_ns, found.st_mtime_ns))
    async with stocked.session.get(stocked.url, params=query, headers={"If-None-Match": etag}) as response:
        assert response.status == 200
    async with stocked.session.get(
        stocked.url, params=query, headers={"If-Range": etag, "Range": "bytes=0-0"}
    ) as response:
        assert response.status == 200


async def test_inline_shows_text_as_text_and_nothing_as_its_own_script(stocked: MediaServer) -> None:
    query = {"path": "page.html", "disposition": "inline"}
    async with stocked.session.get(stocked.url, params=query) as response:
        assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert response.headers["Content-Disposition"].startswith("inline; ")
    async with stocked.session.get(stocked.url, params={**query, "path": "data.gz"}) as response:
        assert response.headers["Content-Type"] == "application/octet-stream"
        assert response.headers["Content-Disposition"].startswith("attachment; ")


async def test_a_link_and_a_fifo_are_no_files(stocked: MediaServer) -> None:
    os.symlink("/etc/passwd", stocked.public / "link.txt")
    os.mkfifo(stocked.public / "fifo.txt")
    for name in ("link.txt", "fifo.txt"):
        assert (await stocked.get(path=name))[0] == 404
    listing = (await stocked.get())[1]
    assert (listing["omitted"]["links"], listing["omitted"]["special"]) == (1, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can put another owner's file there")
async def test_a_file_that_the_agent_may_not_read_is_not_served(stocked: MediaServer) -> None:
    planted = stocked.public / "shadow.txt"
    planted.write_bytes(b"secret")
    planted.chmod(0o600)
    status, answer = await stocked.get(path="shadow.txt")
    assert (status, answer["error"]["code"]) == (403, "not_readable")


async def test_a_download_of_a_missing_file_makes_nothing(server: MediaServer) -> None:
    assert (await server.get(path="gone.txt"))[0] == 404
    assert list((server.directory / "demo").iterdir()) == []


async def test_a_file_that_shrinks_while_it_is_sent_ends_with_a_closed_connection(
    stocked: MediaServer,
) -> None:
    big = stocked.public / "big.bin"
    with open(big, "wb") as file:
        file.truncate(64 * 1024 * 1024)
    os.chmod(big, 0o644)
    async with stocked.session.get(stocked.url, params={"path": "big.bin"}) as response:
        assert response.status == 200
        await response.content.readexactly(1024)
        os.truncate(big, 1024 * 1024)
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
