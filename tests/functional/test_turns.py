"""Leaving, coming back, stopping; and the list of conversations."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from typing import Any

import aiohttp
import pytest

from tests.support.service import OTHER_TOKEN, RunningService, said

SLOW = [
    {"frame": {"type": "typing.start"}},
    {"frame": {"type": "message.create", "payload": {"message_id": "m", "content": "one"}}},
    {"wait": 3.0},
    {
        "frame": {
            "type": "message.update",
            "payload": {"message_id": "m", "content": "one two", "context_usage": {}},
        }
    },
]


def words(count: int) -> list[dict[str, Any]]:
    """A script whose answer grows by one word every few milliseconds."""
    lines: list[dict[str, Any]] = []
    for number in range(1, count + 1):
        content = " ".join(f"wörd{n}" for n in range(number))
        lines += [{"frame": {"type": "message.update", "payload": {"message_id": "m", "content": content}}}]
        lines += [{"wait": 0.005}]
    content = " ".join(f"wörd{n}" for n in range(count))
    final = {"message_id": "m", "content": content, "context_usage": {}}
    return [*lines, {"frame": {"type": "message.update", "payload": final}}]


def body(script: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    text = f"play-inline {json.dumps(script)}"
    return {"messages": [{"role": "user", "content": text}], "stream": True, "session_id": "s1", **more}


async def running(service: RunningService) -> list[dict[str, Any]]:
    async with service.client.get("/v1/turns/running") as response:
        turns: list[dict[str, Any]] = (await response.json())["turns"]
        return turns


async def wait_until_idle(service: RunningService) -> None:
    async with asyncio.timeout(10):
        while await running(service):
            await asyncio.sleep(0.02)


async def replay(service: RunningService, turn_id: str, after: int | None = None) -> bytes:
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    async with service.client.get(f"/v1/turns/{turn_id}/stream", headers=headers) as response:
        assert response.status == 200, await response.text()
        return await response.read()


async def test_rejoining_at_every_point_gives_byte_for_byte_what_was_missed(service: RunningService) -> None:
    options = {"stream_options": {"x_event_ids": True}}
    async with service.client.post("/v1/chat/completions", json=body(words(50), **options)) as response:
        whole = await response.read()
    turn_id = json.loads(whole.split(b"\n\n")[0].split(b"data: ")[1])["id"].removeprefix("chatcmpl-")
    records = [record + b"\n\n" for record in whole.split(b"\n\n") if record.startswith(b"id: ")]
    assert len(records) >= 50
    for position, record in enumerate(records[:-1]):
        seq = int(record.split(b"\n")[0][4:])
        seen = b"".join(records[: position + 1])
        assert seen + await replay(service, turn_id, seq) == whole
    assert await replay(service, turn_id) == whole


async def test_a_client_that_left_reads_on_while_the_turn_runs(service: RunningService) -> None:
    options = {"stream_options": {"x_event_ids": True}}
    async with service.client.post("/v1/chat/completions", json=body(SLOW, **options)) as response:
        first = await response.content.readuntil(b"one")
        response.close()
    seq = int(first.rsplit(b"id: ")[-1].split(b"\n")[0])
    (turn,) = await running(service)
    assert (turn["session_id"], turn["project"], turn["origin"]) == ("s1", None, "member")
    rest = (await replay(service, turn["turn_id"], seq)).decode()
    assert '"content":" two"' in rest
    assert rest.endswith("data: [DONE]\n\n")


async def test_frames_that_are_gone_are_an_explicit_gap(service: RunningService) -> None:
    chat = service.settings.chat.model_copy(update={"replay_bytes": 2000})
    service.inner.settings = service.settings.model_copy(update={"chat": chat})
    async with service.client.post("/v1/chat/completions", json=body(words(50))) as response:
        whole = (await response.read()).decode()
    turn_id = json.loads(whole.split("\n\n")[0][6:])["id"].removeprefix("chatcmpl-")
    records = (await replay(service, turn_id)).decode().split("\n\n")
    gap = json.loads(records[0].split("data: ")[1])["x_crab_gap"]
    assert gap["from"] == 0
    assert records[1].startswith(f"id: {gap['to'] + 1}\n")
    assert records[-2] == "data: [DONE]"


async def test_a_foreign_turn_is_404_and_a_forgotten_one_is_gone(service: RunningService) -> None:
    chunks = await service.turn("hello")
    turn_id = chunks[0]["id"].removeprefix("chatcmpl-")
    headers = {"Authorization": f"Bearer {OTHER_TOKEN}"}
    async with aiohttp.ClientSession(service.url, headers=headers) as other:
        for path in (turn_id, "f" * 32, "x'"):
            async with other.get(f"/v1/turns/{path}/stream") as response:
                assert (response.status, (await response.json())["error"]["code"]) == (404, "not_found")
    service.inner.live._ended.clear()
    async with service.client.get(f"/v1/turns/{turn_id}/stream") as response:
        assert (response.status, (await response.json())["error"]["code"]) == (410, "turn_gone")
    async with service.client.get(f"/v1/turns/{turn_id}/stream", headers={"Last-Event-ID": "x"}) as response:
        assert response.status == 400


async def test_cancel_reaches_the_agent_and_keeps_what_was_said(service: RunningService) -> None:
    async def cancel(session_id: str) -> bool:
        async with service.client.post("/v1/chat/cancel", json={"session_id": session_id}) as response:
            assert response.status == 200, await response.text()
            return bool((await response.json())["cancelled"])

    assert await cancel("s1") is False
    long = [*SLOW[:2], {"wait": 30}]
    async with service.client.post("/v1/chat/completions", json=body(long)) as response:
        await response.content.readuntil(b"one")
        assert await cancel("s2") is False
        assert await cancel("s1") is True
        rest = (await response.read()).decode()
    assert '"finish_reason":"stop"' in rest
    assert "Task stopped" not in rest
    answer = (await service.history())[1]
    assert answer["content"] == "one"
    assert "error" not in answer


@pytest.mark.parametrize(
    ("more", "headers", "goes_on"),
    [
        ({}, {}, True),
        ({"on_leave": "stop"}, {}, False),
        ({"session_id": None}, {}, False),
        ({"session_id": None}, {"X-Isthmus-Client": "page"}, True),
        ({"session_id": None, "on_leave": "continue"}, {}, True),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_leaving_stops_only_for_clients_that_have_no_other_way(
    service: RunningService, more: dict[str, Any], headers: dict[str, str], goes_on: bool, stream: bool
) -> None:
    request = {key: value for key, value in body(SLOW, stream=stream, **more).items() if value is not None}
    post = asyncio.create_task(
        service.client.post("/v1/chat/completions", json=request, headers=headers).__aenter__()
    )
    async with asyncio.timeout(10):
        while not (turns := await running(service)):
            await asyncio.sleep(0.01)
        turn = service.inner.live.find(turns[0]["turn_id"])
        assert turn is not None
        while turn.end_seq < 3:
            await asyncio.sleep(0.01)
    if stream:
        (await post).close()
    else:
        post.cancel()
        await asyncio.gather(post, return_exceptions=True)
    await wait_until_idle(service)
    assert turn.answer == ("one two" if goes_on else "one")
    assert turn.stopped == (not goes_on)


async def test_a_waiting_turn_whose_client_leaves_never_reaches_the_agent(service: RunningService) -> None:
    first = asyncio.create_task(service.turn(f"play-inline {json.dumps(SLOW)}"))
    async with asyncio.timeout(5):
        while not await running(service):
            await asyncio.sleep(0.01)
    waiting = body([{"frame": {"type": "typing.start"}}], on_leave="stop")
    async with service.client.post("/v1/chat/completions", json=waiting) as response:
        await response.content.readuntil(b"x_crab_steering")
        response.close()
    assert said(await first) == "one two"
    await wait_until_idle(service)
    assert [
        message["content"] for message in (await service.history())[1:] if message["role"] == "assistant"
    ] == [
        "one two",
        "",
    ]


async def test_conversations_are_listed_renamed_and_deleted(service: RunningService) -> None:
    for number in range(3):
        await service.turn(f"question {number}", session_id=f"s{number}")
    async with service.client.get("/v1/sessions", params={"limit": "2"}) as response:
        page = await response.json()
    assert [session["session_id"] for session in page["sessions"]] == ["s2", "s1"]
    assert page["sessions"][0]["title"] == "question 2"
    assert (page["sessions"][0]["turns"], page["sessions"][0]["running"]) == (1, False)
    async with service.client.get("/v1/sessions", params={"cursor": page["next_cursor"]}) as response:
        rest = await response.json()
    assert [session["session_id"] for session in rest["sessions"]] == ["s0"]
    assert rest["next_cursor"] is None
    one = {"session_id": "s1"}
    async with service.client.patch("/v1/sessions", params=one, json={"title": "Mine"}) as response:
        assert response.status == 200
    async with service.client.delete("/v1/sessions", params={"session_id": "s0"}) as response:
        assert response.status == 200
    async with service.client.get("/v1/sessions") as response:
        found = (await response.json())["sessions"]
    assert {session["session_id"]: session["title"] for session in found} == {
        "s2": "question 2",
        "s1": "Mine",
    }
    for method, more in (("PATCH", {"json": {"title": "x"}}), ("DELETE", {})):
        async with service.client.request(
            method, "/v1/sessions", params={"session_id": "s0"}, **more
        ) as response:
            assert response.status == 404
    async with service.client.get("/v1/sessions", params={"cursor": "x"}) as response:
        assert response.status == 400


async def test_a_conversation_with_a_running_turn_is_not_deleted(service: RunningService) -> None:
    async with service.client.post("/v1/chat/completions", json=body(SLOW)) as response:
        await response.content.readuntil(b"one")
        async with service.client.delete("/v1/sessions", params={"session_id": "s1"}) as refused:
            assert (refused.status, (await refused.json())["error"]["code"]) == (409, "turn_running")
        await response.read()


async def test_a_member_has_so_many_streams_and_no_more(service: RunningService) -> None:
    chunks = await service.turn("hello")
    path = f"/v1/turns/{chunks[0]['id'].removeprefix('chatcmpl-')}/stream"
    with ExitStack() as stack:
        for _ in range(service.settings.server.max_streams_per_member):
            stack.enter_context(service.inner.streams.slot(service.member))
        for method, where, more in (
            ("GET", path, {}),
            ("POST", "/v1/chat/completions", {"json": body(SLOW)}),
        ):
            async with service.client.request(method, where, **more) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (
                    429,
                    "too_many_streams",
                )
    async with service.client.get(path) as response:
        assert response.status == 200
