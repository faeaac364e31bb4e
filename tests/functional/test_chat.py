"""Turns through the whole service: real HTTP, the real demo agent, PostgreSQL."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from typing import Any

import aiohttp
import openai
import pytest

from tests.support.service import OTHER_TOKEN, RunningService, deliveries, errors, said


def frame(kind: str, **payload: Any) -> dict[str, Any]:
    return {"frame": {"type": kind, "payload": payload}}


def text(content: str, message_id: str = "m1", **more: Any) -> dict[str, Any]:
    return frame("message.create", message_id=message_id, content=content, **more)


def attachment(number: int, filename: str, message_id: str) -> dict[str, Any]:
    reference = {"type": "file", "url": f"$MEDIA{number}", "filename": filename}
    return frame("message.create", message_id=message_id, content="", attachments=[reference])


FINAL = {"context_usage": {"used_tokens": 1}}


async def test_a_turn_streams_the_agents_words_and_is_in_the_history(service: RunningService) -> None:
    chunks = await service.turn("hello there")
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert said(chunks).startswith("You said: hello there")
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    user, answer = await service.history()
    assert (user["role"], user["content"]) == ("user", "hello there")
    assert (answer["role"], answer["content"]) == ("assistant", said(chunks))
    assert user["turn_id"] == answer["turn_id"] == chunks[0]["id"].removeprefix("chatcmpl-")


async def test_the_stream_has_the_headers_that_keep_it_whole_on_its_way(service: RunningService) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    headers = {"Accept-Encoding": "gzip"}
    async with service.client.post("/v1/chat/completions", json=body, headers=headers) as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-cache, no-transform"
        assert response.headers["X-Accel-Buffering"] == "no"
        assert "Content-Encoding" not in response.headers
        assert len(response.headers["X-Session-Id"]) == 32
        raw = await response.read()
    assert raw.endswith(b"data: [DONE]\n\n")
    assert raw.count(b"data: [DONE]") == 1


async def test_the_opening_is_there_before_the_agent_is_reached(service: RunningService) -> None:
    """An agent that accepts and never upgrades: the member sees the turn open, then an error and the terminal."""

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()
        writer.close()

    gone = asyncio.Event()
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    agent = next(iter(service.inner.agents))
    agent.settings = agent.settings.model_copy(
        update={"url": f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/pico/ws"}
    )
    try:
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "session_id": "s1"}
        async with service.client.post("/v1/chat/completions", json=body) as response:
            first = await response.content.readuntil(b"\n\n")
            assert json.loads(first[6:])["choices"][0]["delta"] == {"role": "assistant", "content": ""}
            rest = (await response.read()).decode()
    finally:
        gone.set()
        server.close()
    records = [record for record in rest.split("\n\n") if record]
    failure = json.loads(records[0][6:])
    assert failure["error"] == failure["x_crab_error"]
    assert failure["error"]["code"] == "agent_unreachable"
    assert json.loads(records[1][6:])["choices"][0]["finish_reason"] == "error"
    assert records[2] == "data: [DONE]"
    assert (await service.history())[1]["error"]["code"] == "agent_unreachable"


async def test_an_agent_that_is_not_there_is_an_error_and_not_an_empty_success(
    service: RunningService,
) -> None:
    agent = next(iter(service.inner.agents))
    agent.settings = agent.settings.model_copy(update={"url": "ws://127.0.0.1:9/pico/ws"})
    chunks = await service.turn("hi")
    assert [error["code"] for error in errors(chunks)] == ["agent_unreachable"]
    body = {"messages": [{"role": "user", "content": "hi"}]}
    async with service.client.post("/v1/chat/completions", json=body) as response:
        assert response.status == 502
        error = (await response.json())["error"]
    assert error["code"] == "agent_unreachable"
    assert error["partial"] == ""


async def test_silence_is_filled_with_comments_and_no_data(service: RunningService) -> None:
    chat = service.settings.chat.model_copy(update={"heartbeat": 0.2})
    service.inner.settings = service.settings.model_copy(update={"chat": chat})
    script = [frame("typing.start"), {"wait": 0.9}, text("done", **FINAL), frame("typing.stop")]
    body = {"messages": [{"role": "user", "content": f"play-inline {json.dumps(script)}"}], "stream": True}
    async with service.client.post("/v1/chat/completions", json=body) as response:
        records = (await response.text()).split("\n\n")
    pings = [record for record in records if record == ": ping"]
    assert 3 <= len(pings) <= 5
    assert records[-3].startswith("data: ")
    assert records[-2:] == ["data: [DONE]", ""]


async def test_a_pushed_file_is_published_announced_and_in_the_history(service: RunningService) -> None:
    chunks = await service.turn("please make a report")
    (delivery,) = deliveries(chunks)
    assert delivery["state"] == "stored"
    assert delivery["path"] == f"public/attachments/{delivery['name']}"
    assert f"\n\n📎 {delivery['name']} — {delivery['path']}\n" in said(chunks)
    stored = service.public / "attachments" / delivery["name"]
    assert stored.stat().st_size == delivery["size"]
    answer = (await service.history())[1]
    assert "📎" not in answer["content"]
    assert answer["deliveries"][0]["path"] == delivery["path"]
    async with service.client.get("/v1/media", params={"path": delivery["path"]}) as response:
        assert await response.read() == stored.read_bytes()


async def test_a_file_that_the_agent_writes_itself_is_announced_once(service: RunningService) -> None:
    chunks = await service.turn("please write a report")
    (delivery,) = deliveries(chunks)
    assert (delivery["name"], delivery["path"]) == ("report.md", "public/attachments/report.md")
    assert deliveries(await service.turn("hello again")) == []


async def test_six_broken_files_are_six_visible_reasons(service: RunningService) -> None:
    media = [
        {"content": "x", "status": 404},
        {"content": "x" * 100, "missing": 50},
        {"content": "x", "status": 302, "headers": {"Location": "http://127.0.0.1:1/"}},
        {"content": "x", "headers": {"Content-Encoding": "gzip"}},
        {"content": "fine"},
    ]
    script = [{"media": fields} for fields in media]
    script += [attachment(number, f"f{number}.txt", f"a{number}") for number in range(1, 6)]
    foreign = {"type": "file", "url": "http://127.0.0.1:1/pico/media/x", "filename": "evil.txt"}
    script.append(frame("message.create", message_id="a9", content="", attachments=[foreign]))
    script += [text("all sent", **FINAL), frame("typing.stop")]
    chunks = await service.play(*script)
    found = {d["name"]: (d["state"], d.get("reason")) for d in deliveries(chunks)}
    assert found == {
        "f1.txt": ("failed", "http_404"),
        "f2.txt": ("failed", "cut"),
        "f3.txt": ("refused", "redirect"),
        "f4.txt": ("failed", "cut"),
        "f5.txt": ("stored", None),
        "evil.txt": ("refused", "foreign_reference"),
    }
    assert "⚠ f1.txt could not be delivered: http_404" in said(chunks)
    assert sorted(path.name for path in (service.public / "attachments").iterdir()) == ["f5.txt"]
    assert len((await service.history())[1]["deliveries"]) == 6


async def test_two_different_files_of_one_name_in_a_turn_are_both_kept(service: RunningService) -> None:
    chunks = await service.play(
        {"media": {"content": "one"}},
        {"media": {"content": "two"}},
        attachment(1, "image_0.png", "a1"),
        attachment(2, "image_0.png", "a2"),
        attachment(1, "image_0.png", "a3"),
        text("both", **FINAL),
    )
    assert sorted(d["name"] for d in deliveries(chunks)) == ["image_0-2.png", "image_0.png"]
    assert (service.public / "attachments" / "image_0.png").read_bytes() == b"one"
    assert (service.public / "attachments" / "image_0-2.png").read_bytes() == b"two"


async def test_a_slow_fetch_does_not_hold_back_the_messages_after_it(service: RunningService) -> None:
    chunks = await service.play(
        {"media": {"content": "late", "delay": 1.0}},
        text("before"),
        attachment(1, "late.txt", "a1"),
        text("after", message_id="m2", **FINAL),
    )
    content = said(chunks)
    assert content.index("before") < content.index("after") < content.index("📎 late.txt")
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


async def test_a_file_over_the_limit_fails_and_nothing_cut_is_kept(service: RunningService) -> None:
    service.inner.relay.deliveries = service.settings.deliveries.model_copy(update={"max_bytes": 1000})
    chunks = await service.play(
        {"media": {"content": "x" * 1001}}, attachment(1, "big.bin", "a1"), text("sent", **FINAL)
    )
    assert [(d["state"], d["reason"]) for d in deliveries(chunks)] == [("failed", "too_large")]
    assert list((service.public / "attachments").iterdir()) == []


async def test_a_link_planted_in_attachments_is_replaced_and_never_written_through(
    service: RunningService,
) -> None:
    await service.turn("hello")
    outside = service.workspaces / "outside.txt"
    outside.write_text("untouched")
    (service.public / "attachments" / "f.txt").symlink_to(outside)
    chunks = await service.play(
        {"media": {"content": "new"}}, attachment(1, "f.txt", "a1"), text("sent", **FINAL)
    )
    assert [d["state"] for d in deliveries(chunks)] == ["stored"]
    assert outside.read_text() == "untouched"
    assert not (service.public / "attachments" / "f.txt").is_symlink()


async def test_a_client_that_leaves_does_not_stop_the_turn(service: RunningService) -> None:
    script = [
        text("first "),
        {"wait": 0.3},
        frame("message.update", message_id="m1", content="first last", **FINAL),
    ]
    body = {
        "messages": [{"role": "user", "content": f"play-inline {json.dumps(script)}"}],
        "stream": True,
        "session_id": "s1",
    }
    async with service.client.post("/v1/chat/completions", json=body) as response:
        await response.content.readuntil(b"first ")
        response.close()
    async with asyncio.timeout(10):
        while len(messages := await service.history()) < 2:
            await asyncio.sleep(0.05)
    assert messages[1]["content"] == "first last"


async def test_text_that_looks_like_a_notice_is_only_text(service: RunningService) -> None:
    chunks = await service.play(text("📎 passwd — /etc/passwd\nMEDIA:/etc/passwd", **FINAL))
    assert deliveries(chunks) == []
    assert (await service.history())[1]["content"] == "📎 passwd — /etc/passwd\nMEDIA:/etc/passwd"


async def test_characters_that_no_store_keeps_do_not_cost_the_turn_its_history(
    service: RunningService,
) -> None:
    chunks = await service.play(text("a\x00b \ud800 c \u2028 d", **FINAL))
    assert said(chunks) == "ab \ufffd c \u2028 d"
    assert (await service.history())[1]["content"] == said(chunks)


async def test_a_failed_turn_is_an_error_for_the_official_client(service: RunningService) -> None:
    script = json.dumps([text("half an answer. "), text("Error processing message: boom", message_id="m2")])
    async with openai.AsyncOpenAI(
        base_url=f"{service.url}/v1", api_key=service.token, max_retries=0
    ) as client:
        assert [model.id for model in (await client.models.list()).data] == ["demo"]
        heard = []

        async def listen() -> None:
            nonlocal heard
            stream = await client.chat.completions.create(
                model="demo", messages=[{"role": "user", "content": f"play-inline {script}"}], stream=True
            )
            async with stream:
                async for chunk in stream:
                    heard += [chunk.choices[0].delta.content or ""]

        with pytest.raises(openai.APIError) as raised:
            await listen()
        assert "".join(heard).startswith("half an answer.")
        assert raised.value.body["code"] == "agent_failed"  # type: ignore[index,call-overload]
        with pytest.raises(openai.APIStatusError) as whole:
            await client.chat.completions.create(
                model="demo", messages=[{"role": "user", "content": f"play-inline {script}"}]
            )
        assert whole.value.status_code == 502


async def test_the_official_client_streams_and_waits_alike(service: RunningService) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{service.url}/v1", api_key=service.token, max_retries=0
    ) as client:
        question: Any = [{"role": "user", "content": "tell me something"}]
        stream = await client.chat.completions.create(
            model="demo", messages=question, stream=True, stream_options={"include_usage": True}
        )
        heard, last = "", None
        async for chunk in stream:
            heard += "".join(choice.delta.content or "" for choice in chunk.choices)
            last = chunk
        assert last is not None
        assert last.choices == []
        whole = await client.chat.completions.create(model="demo", messages=question)
        assert whole.choices[0].message.content == heard
        assert whole.choices[0].finish_reason == "stop"


async def test_a_conversation_is_continued_by_its_first_exchange_and_two_his_are_two_sessions(
    service: RunningService,
) -> None:
    async def post(messages: list[dict[str, str]]) -> tuple[str, str]:
        async with service.client.post("/v1/chat/completions", json={"messages": messages}) as response:
            answer = (await response.json())["choices"][0]["message"]["content"]
            return response.headers["X-Session-Id"], answer

    hi = {"role": "user", "content": "Hi"}
    first, answer = await post([hi])
    second, _ = await post([hi])
    assert first != second
    follow_up = [hi, {"role": "assistant", "content": f" {answer}\n"}, {"role": "user", "content": "And?"}]
    continued, _ = await post(follow_up)
    assert continued in {first, second}
    other, _ = await post(
        [hi, {"role": "assistant", "content": "never said"}, {"role": "user", "content": "x"}]
    )
    assert other not in {first, second}


async def test_a_session_header_names_the_session(service: RunningService) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    for name in ("X-Session-Id", "X-OpenWebUI-Chat-Id", "X-Conversation-Id"):
        async with service.client.post(
            "/v1/chat/completions", json=body, headers={name: f"from-{name}"}
        ) as response:
            assert response.headers["X-Session-Id"] == f"from-{name}"


async def test_a_second_turn_of_a_session_waits_for_the_first(service: RunningService) -> None:
    script = [
        text("slow"),
        {"wait": 0.5},
        frame("message.update", message_id="m1", content="slow one", **FINAL),
    ]
    first = asyncio.create_task(service.play(*script))
    async with asyncio.timeout(5):
        while not service.inner.live:
            await asyncio.sleep(0.01)
    second = await service.turn("quick one")
    assert second[1]["x_crab_steering"] == {"folded": False, "queued": True}
    assert said(await first) == "slow one"
    contents = [message["content"] for message in await service.history() if message["role"] == "user"]
    assert contents[1] == "quick one"


async def test_a_member_has_four_turns_at_most(service: RunningService) -> None:
    script = json.dumps(
        [text("x"), {"wait": 1.0}, frame("message.update", message_id="m1", content="xy", **FINAL)]
    )
    running = [
        asyncio.create_task(service.turn(f"play-inline {script}", session_id=f"s{number}"))
        for number in range(4)
    ]
    async with asyncio.timeout(5):
        while len(service.inner.live) < 4:
            await asyncio.sleep(0.01)
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with service.client.post("/v1/chat/completions", json=body) as response:
        assert response.status == 429
        assert response.headers["Retry-After"] == "5"
        assert (await response.json())["error"]["code"] == "too_many_streams"
    await asyncio.gather(*running)


async def test_the_agent_is_told_where_deliveries_go_once_a_session(service: RunningService) -> None:
    script = json.dumps([text("$CONTENT", **FINAL)])
    first = said(await service.turn(f"play-inline {script}"))
    second = said(await service.turn(f"play-inline {script}"))
    assert first.startswith("[deliver to: public/attachments]\n\nplay-inline")
    assert second.startswith("play-inline")
    assert all("deliver to" not in m["content"] for m in await service.history() if m["role"] == "user")
    assert said(await service.turn("/help", session_id="s2")) != ""
    after_command = said(await service.turn(f"play-inline {script}", session_id="s2"))
    assert after_command.startswith("[deliver to: public/attachments]")


async def test_a_message_that_never_arrived_told_the_agent_nothing(service: RunningService) -> None:
    agent = next(iter(service.inner.agents))
    there = agent.settings
    agent.settings = there.model_copy(update={"url": "ws://127.0.0.1:9/pico/ws"})
    await service.turn("hi")
    agent.settings = there
    script = json.dumps([text("$CONTENT", **FINAL)])
    assert said(await service.turn(f"play-inline {script}")).startswith("[deliver to: public/attachments]")


async def test_the_directories_are_there_and_the_agents_before_its_first_turn(
    service: RunningService,
) -> None:
    assert not service.public.exists()
    await service.turn("what files do you see?")
    attachments = service.public / "attachments"
    assert attachments.is_dir()
    agent = next(iter(service.inner.agents)).settings
    assert (attachments.stat().st_uid, attachments.stat().st_mode & 0o777) == (agent.uid, 0o700)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "invalid_request"),
        ({"messages": []}, 400, "invalid_request"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 400, "invalid_request"),
        ({"messages": [{"role": "user", "content": " \n"}]}, 400, "invalid_request"),
        ({"messages": [{"role": "user", "content": 7}]}, 400, "invalid_request"),
        ({"messages": [{"role": "user", "content": "x"}], "stream": "yes"}, 400, "invalid_request"),
        ({"messages": [{"role": "user", "content": "x"}], "session_id": "a\x00b"}, 400, "invalid_request"),
        ({"messages": [{"role": "user", "content": "x"}], "session_id": "x" * 129}, 400, "invalid_request"),
        ({"messages": [{"role": "user", "content": "x"}], "model": "nobody"}, 404, "unknown_agent"),
        ({"messages": [{"role": "user", "content": "x"}], "project": "theirs"}, 404, "unknown_project"),
    ],
)
async def test_a_request_that_is_no_turn_is_refused_with_its_code(
    service: RunningService, body: dict[str, Any], status: int, code: str
) -> None:
    async with service.client.post("/v1/chat/completions", json=body) as response:
        assert response.status == status
        assert (await response.json())["error"]["code"] == code


async def test_a_body_that_is_not_json_is_refused(service: RunningService) -> None:
    for data, content_type, status, code in (
        ("hello", "text/plain", 415, "unsupported_media_type"),
        ("{", "application/json", 400, "malformed_body"),
        ("[" * 100_000, "application/json", 400, "malformed_body"),
        ('{"messages": NaN}', "application/json", 400, "malformed_body"),
    ):
        headers = {"Content-Type": content_type}
        async with service.client.post("/v1/chat/completions", data=data, headers=headers) as response:
            assert response.status == status
            assert (await response.json())["error"]["code"] == code


async def test_another_members_history_is_not_readable(service: RunningService) -> None:
    await service.turn("my secret")
    headers = {"Authorization": f"Bearer {OTHER_TOKEN}"}
    async with (
        aiohttp.ClientSession(service.url, headers=headers) as other,
        other.get("/v1/sessions/history", params={"session_id": "s1"}) as response,
    ):
        assert await response.json() == {"messages": []}


async def test_history_is_paged_backwards_by_turn(service: RunningService) -> None:
    for number in range(3):
        await service.turn(f"question {number}")
    last = await service.history(limit="2")
    assert last[0]["content"] == "question 2"
    earlier = await service.history(limit="2", before=last[0]["turn_id"])
    assert earlier[0]["content"] == "question 1"


async def test_files_inside_a_message_are_stored_and_named_to_the_agent(service: RunningService) -> None:
    data = base64.b64encode(b"three little words").decode()
    parts = [
        {"type": "text", "text": "what is this?"},
        {"type": "file", "file": {"file_data": f"data:text/plain;base64,{data}", "filename": "notes.txt"}},
    ]
    async with openai.AsyncOpenAI(
        base_url=f"{service.url}/v1", api_key=service.token, max_retries=0
    ) as client:
        messages: Any = [{"role": "user", "content": parts}]
        first = await client.chat.completions.create(model="demo", messages=messages)
        assert first.choices[0].message.content == "I received public/notes.txt: 18 bytes, 3 words."
        assert (service.public / "notes.txt").read_bytes() == b"three little words"
        follow_up: Any = [
            *messages,
            {"role": "assistant", "content": first.choices[0].message.content},
            {"role": "user", "content": "thanks"},
        ]
        raw = await client.chat.completions.with_raw_response.create(model="demo", messages=follow_up)
        session = raw.headers["X-Session-Id"]
    history = await service.history(session)
    assert history[0]["content"] == "what is this?\n\n[attachment: public/notes.txt]"
    assert len(history) == 4


async def test_four_large_bodies_at_once_are_held_and_a_fifth_is_busy(service: RunningService) -> None:
    held = [service.inner.large_bodies.held() for _ in range(4)]
    for context in held:
        context.__enter__()(2 * 1024 * 1024)
    message = json.dumps({"messages": [{"role": "user", "content": "x" * (2 * 1024 * 1024)}]}).encode()
    headers = {"Content-Type": "application/json"}
    async with service.client.post(
        "/v1/chat/completions", data=io.BytesIO(message), headers=headers
    ) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (503, "busy")
    held[0].__exit__(None, None, None)
    async with service.client.post(
        "/v1/chat/completions", data=io.BytesIO(message), headers=headers
    ) as response:
        assert response.status == 200


async def test_what_was_said_is_kept_while_the_turn_still_runs(service: RunningService) -> None:
    script = [
        {"media": {"content": "one"}},
        frame("typing.start"),
        text("said before"),
        attachment(1, "a.txt", "a1"),
        {"wait": 30},
    ]
    running = asyncio.create_task(service.play(*script))
    row: Any = None
    async with asyncio.timeout(10):
        while row is None or not row["answer"] or not row["files"]:
            await asyncio.sleep(0.05)
            row = await service.inner.pool.fetchrow(
                "SELECT state, answer, (SELECT count(*) FROM deliveries) AS files FROM turns"
            )
    assert (row["state"], row["answer"], row["files"]) == ("running", "said before", 1)
    async with service.client.post("/v1/chat/cancel", json={"session_id": "s1"}) as response:
        assert await response.json() == {"cancelled": True}
    await running


async def test_stop_does_not_wait_for_a_file_that_does_not_come(service: RunningService) -> None:
    script = [
        {"media": {"content": "x" * 30, "pause": 20, "piece": 3}},
        text("here it comes"),
        attachment(1, "slow.txt", "a1"),
        {"wait": 30},
    ]
    running = asyncio.create_task(service.play(*script))
    async with asyncio.timeout(10):
        while not (turns := service.inner.live.of_member(service.member)) or turns[0].end_seq < 2:
            await asyncio.sleep(0.02)
        async with service.client.post("/v1/chat/cancel", json={"session_id": "s1"}) as response:
            assert await response.json() == {"cancelled": True}
        chunks = await running
    assert [(d["state"], d["reason"]) for d in deliveries(chunks)] == [("failed", "interrupted")]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("where", ["public", "public/attachments"])
async def test_a_stray_file_in_place_of_a_directory_does_not_end_the_chat(
    service: RunningService, where: str
) -> None:
    await service.turn("hello")
    stray = service.public.parent / where
    stray.rename(stray.with_name("aside"))
    stray.write_text("x")
    assert said(await service.turn("hello again")).startswith("You said: hello again")
    chunks = await service.play(
        {"media": {"content": "x"}}, attachment(1, "f.txt", "a1"), text("sent", **FINAL)
    )
    assert [(d["state"], d["reason"]) for d in deliveries(chunks)] == [("failed", "store_failed")]
    status, answer = await service.upload("mine.txt", b"x")
    assert (status, answer.get("path")) == (
        (200, "public/mine.txt") if where == "public/attachments" else (409, None)
    )
