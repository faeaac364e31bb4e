"""Who gets in: credentials, host names, foreign pages, rates; and the one error body."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from proxy.identity import token_digest
from proxy.settings import load_settings
from tests.support.service import RunningService

MEMBER_ROUTES = [
    ("GET", "/v1/models"),
    ("POST", "/v1/chat/completions"),
    ("GET", "/v1/sessions/history"),
    ("POST", "/v1/media"),
    ("GET", "/v1/media"),
    ("POST", "/v1/sign-in"),
    ("DELETE", "/v1/sign-in"),
]


@pytest.mark.parametrize(("method", "path"), MEMBER_ROUTES)
async def test_a_members_route_is_closed_without_a_credential(
    service: RunningService, method: str, path: str
) -> None:
    async with aiohttp.request(method, service.url + path) as response:
        assert response.status == 401
        assert (await response.json())["error"]["code"] == "unauthenticated"
        assert response.headers["WWW-Authenticate"] == "Bearer"


async def test_health_ready_and_the_page_are_open(service: RunningService) -> None:
    for path in ("/health", "/ready", "/", "/page.js", "/page.css"):
        async with aiohttp.request("GET", service.url + path) as response:
            assert response.status == 200, path
    async with aiohttp.request("GET", service.url + "/") as response:
        policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'")
    assert "require-trusted-types-for 'script'" in policy


async def test_a_foreign_host_name_is_refused_on_loopback(service: RunningService) -> None:
    for host, status in (("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("evil.example", 421)):
        async with service.client.get("/v1/models", headers={"Host": host}) as response:
            assert response.status == status, host


async def test_the_cookie_signs_in_and_out_and_no_foreign_page_can_use_it(service: RunningService) -> None:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(service.url, cookie_jar=jar) as page:
        bearer = {"Authorization": f"Bearer {service.token}"}
        async with page.post("/v1/sign-in", headers=bearer) as response:
            assert await response.json() == {"member": service.member}
            cookie = response.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        for headers, status in (
            ({"Origin": service.url}, 200),
            ({"Sec-Fetch-Site": "same-origin"}, 200),
            ({"Origin": "http://127.0.0.1:1"}, 403),
            ({"Origin": "null"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
        ):
            async with page.get("/v1/models", headers=headers) as response:
                assert response.status == status, headers
        async with page.delete("/v1/sign-in", headers={"Origin": service.url}) as response:
            assert response.status == 200
        async with page.get("/v1/models") as response:
            assert response.status == 401


async def test_unknown_addresses_and_methods_have_the_one_body(service: RunningService) -> None:
    async with service.client.get("/v1/nothing") as response:
        assert (response.status, (await response.json())["error"]["code"]) == (404, "not_found")
    async with service.client.put("/v1/models") as response:
        error = (await response.json())["error"]
        assert (response.status, error["code"], error["allowed"]) == (405, "method_not_allowed", ["GET"])
        assert response.headers["Allow"] == "GET"


async def test_an_unknown_error_shows_an_id_only(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("/etc/secret SELECT 1")

    monkeypatch.setattr(type(service.inner.agents), "of", broken)
    async with service.client.get("/v1/models", headers={"X-Request-Id": "given-id-1"}) as response:
        assert response.status == 500
        error = (await response.json())["error"]
        assert response.headers["X-Request-Id"] == "given-id-1"
    assert error == {"code": "internal", "message": error["message"], "request_id": "given-id-1"}
    assert "secret" not in error["message"]


async def test_a_compressed_request_body_is_refused(service: RunningService) -> None:
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    async with service.client.post("/v1/chat/completions", data=b"\x1f\x8b", headers=headers) as response:
        assert response.status == 415


async def test_slow_headers_are_cut_and_a_body_that_stalls_is_told_so(service: RunningService) -> None:
    media = service.settings.media.model_copy(update={"idle_timeout": 0.2})
    service.inner.settings = service.settings.model_copy(update={"media": media})
    host, port = service.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {service.token}\r\nContent-Length: 100\r\n\r\n{{"
    )
    writer.write(head.encode())
    answer = await reader.read(4096)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"body_timeout"' in answer
    writer.close()


async def test_the_store_away_degrades_and_does_not_stop_a_turn(service: RunningService) -> None:
    await service.inner.pool.close()
    async with service.client.get("/ready") as response:
        assert (await response.json())["dependencies"]["store"]["status"] == "degraded"
    chunks = await service.turn("hello")
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    async with service.client.get("/v1/sessions/history", params={"session_id": "s1"}) as response:
        assert response.status == 503
        assert (await response.json())["error"]["code"] == "store_unavailable"


async def raw(service: RunningService, data: bytes) -> bytes:
    """Send these bytes, close our side, and read what comes."""
    host, port = service.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_client_that_closes_its_side_still_gets_its_answer(service: RunningService) -> None:
    head = f"Host: localhost\r\nAuthorization: Bearer {service.token}\r\n"
    assert (await raw(service, f"GET /v1/models HTTP/1.1\r\n{head}\r\n".encode())).startswith(
        b"HTTP/1.1 200 "
    )
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhello\r\n--b--\r\n'
    upload = f"POST /v1/media HTTP/1.1\r\n{head}Content-Type: multipart/form-data; boundary=b\r\n"
    whole = f"{upload}Content-Length: {len(form)}\r\n\r\n".encode() + form
    assert (await raw(service, whole)).startswith(b"HTTP/1.1 200 ")
    assert (service.public / "a.txt").read_bytes() == b"hello"
    cut = f"{upload}Content-Length: {len(form)}\r\n\r\n".encode() + form[:-10].replace(b"a.txt", b"b.txt")
    answer = await raw(service, cut)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"malformed_body"' in answer
    assert not (service.public / "b.txt").exists()


async def test_auth_and_limits_are_read_again_and_nothing_else_is(service: RunningService) -> None:
    new = load_settings(
        None,
        agents=[agent.model_dump() for agent in service.settings.agents],
        auth={"tokens": [{"member": service.member, "sha256": token_digest("n" * 40)}]},
        limits={"reads_per_minute": 2},
        server={"port": 1},
    )
    service.inner.take(new)
    assert service.inner.settings.server == service.settings.server
    async with service.client.get("/v1/models") as response:
        assert response.status == 401
    headers = {"Authorization": f"Bearer {'n' * 40}"}
    statuses = []
    for _ in range(3):
        async with service.client.get("/v1/models", headers=headers) as response:
            statuses.append(response.status)
    assert statuses == [200, 200, 429]


async def test_ready_answers_in_time_although_the_store_hangs(service: RunningService) -> None:
    async with service.inner.pool.acquire() as connection:
        held = [await service.inner.pool.acquire() for _ in range(service.inner.pool.get_max_size() - 1)]
        began = asyncio.get_running_loop().time()
        async with service.client.get("/ready") as response:
            assert (await response.json())["dependencies"]["store"]["status"] == "degraded"
        assert asyncio.get_running_loop().time() - began < 5
        for other in held:
            await service.inner.pool.release(other)
        assert await connection.fetchval("SELECT 1") == 1
