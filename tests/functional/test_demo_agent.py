"""The demo agent as strict as the real gateway: one fact a test, on the real program."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.support.demo import Demo, running_demo

AGENT_UID = 42101
QUIET = 0.3  # seconds without a frame after which nothing more is expected
WAIT = 10.0  # seconds for a frame that must come

Frame = dict[str, Any]
Socket = aiohttp.ClientWebSocketResponse


def read_frame(text: str) -> Frame:
    frame: Frame = json.loads(text)
    return frame


class Client:
    """One socket of a session."""

    def __init__(self, ws: Socket) -> None:
        self.ws = ws

    async def send(self, content: str) -> None:
        await self.ws.send_json({"type": "message.send", "id": "m", "payload": {"content": content}})

    async def next(self) -> Frame:
        return read_frame(await self.ws.receive_str(timeout=WAIT))

    async def until(self, matches: Callable[[Frame], bool]) -> list[Frame]:
        frames = [await self.next()]
        while not matches(frames[-1]):
            frames.append(await self.next())
        return frames

    async def rest(self) -> list[Frame]:
        """What still comes, until it is quiet."""
        frames = []
        with contextlib.suppress(TimeoutError):
            while True:
                frames.append(read_frame(await self.ws.receive_str(timeout=QUIET)))
        return frames

    async def turn(self, content: str) -> list[Frame]:
        """All frames of a turn, and whatever follows its end."""
        await self.send(content)
        return [*await self.until(ends_turn), *await self.rest()]

    async def answer(self, content: str) -> str:
        """The final text of a turn."""
        await self.send(content)
        return str((await self.until(is_final))[-1]["payload"]["content"])


def is_final(frame: Frame) -> bool:
    return "context_usage" in frame.get("payload", {})


def ends_turn(frame: Frame) -> bool:
    text = frame.get("payload", {}).get("content", "")
    return is_final(frame) or frame["type"] == "end" or text.startswith("Error processing message: ")


def text_frames(frames: list[Frame]) -> list[Frame]:
    return [f for f in frames if f.get("payload", {}).get("content")]


def types(frames: list[Frame]) -> list[str]:
    return [frame["type"] for frame in frames]


def first_attachment(frames: list[Frame]) -> dict[str, str]:
    return next(f["payload"]["attachments"][0] for f in frames if "attachments" in f.get("payload", {}))


@pytest.fixture(scope="module")
def workspaces() -> Iterator[Path]:
    """A folder that any uid can pass through. Not pytest's: its root is for its own user, each run sees to that."""
    with tempfile.TemporaryDirectory(prefix="isthmus-agents-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scripts")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(workspaces: Path, scripts: Path) -> AsyncIterator[Demo]:
    async with running_demo(workspaces, scripts=scripts, word_delay=0.005) as running:
        yield running


@pytest.fixture
def member(workspaces: Path) -> str:
    """A member of this test's own, who has two files."""
    member = f"ana{len(list(workspaces.iterdir()))}"
    public = workspaces / member / "workspace" / "public"
    (public / "attachments").mkdir(parents=True)
    (public / "notes.txt").write_text("one two three\nfour")
    (public / "attachments" / "old.md").write_text("# Old")
    return member


@pytest.fixture
def workspace(workspaces: Path, member: str) -> Path:
    return workspaces / member / "workspace"


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield session


def bearer(demo: Demo) -> dict[str, str]:
    return {"Authorization": f"Bearer {demo.token}"}


Connect = Callable[..., Any]


@pytest.fixture
async def connect(demo: Demo, http: aiohttp.ClientSession, member: str) -> AsyncIterator[Connect]:
    async with contextlib.AsyncExitStack() as sockets:

        async def connect(session_id: str = "s1", member: str = member, base: Demo = demo) -> Client:
            url, query = f"{base.url}/{member}/pico/ws", {"session_id": session_id}
            return Client(
                await sockets.enter_async_context(http.ws_connect(url, params=query, headers=bearer(base)))
            )

        yield connect


async def media(http: aiohttp.ClientSession, demo: Demo, path: str, **more: Any) -> tuple[int, bytes]:
    headers = bearer(demo) | more.pop("headers", {})
    async with http.get(demo.url + path, headers=headers, allow_redirects=False, **more) as response:
        return response.status, await response.read()


async def play(client: Client, *steps: dict[str, Any]) -> list[Frame]:
    return await client.turn(f"play-inline {json.dumps([*steps, {'frame': {'type': 'end'}}])}")


async def scripted(client: Client, **fields: Any) -> str:
    """The URL path of one scripted media answer."""
    frames = await play(
        client, {"media": fields}, {"frame": {"type": "x", "payload": {"content": "$MEDIA1"}}}
    )
    return str(frames[0]["payload"]["content"])


# ---- the socket


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer wrong"}, {"Sec-WebSocket-Protocol": "token.wrong"}]
)
async def test_wrong_token_is_401_before_the_upgrade(
    demo: Demo, http: aiohttp.ClientSession, headers: dict[str, str]
) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await http.ws_connect(f"{demo.url}/ana/pico/ws?session_id=s", headers=headers)
    assert refused.value.status == 401


async def test_token_as_subprotocol_is_answered_with_it(demo: Demo, http: aiohttp.ClientSession) -> None:
    protocol = f"token.{demo.token}"
    async with http.ws_connect(f"{demo.url}/ana/pico/ws?session_id=s", protocols=[protocol]) as ws:
        assert ws.protocol == protocol


async def test_hundred_and_first_socket_is_503(workspaces: Path, connect: Connect) -> None:
    async with running_demo(workspaces, word_delay=0) as demo:
        clients = [await connect(f"s{number}", base=demo) for number in range(100)]
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await connect(base=demo)
        assert refused.value.status == 503
        await clients[0].ws.close()
        for _ in range(100):  # its place is free a moment after its close is acknowledged
            with contextlib.suppress(aiohttp.WSServerHandshakeError):
                assert "notes.txt" in await (await connect(base=demo)).answer("list")
                return
            await asyncio.sleep(0.02)
        pytest.fail("the place of a closed socket stays taken")


async def test_member_segment_cannot_leave_the_folder(demo: Demo, http: aiohttp.ClientSession) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await http.ws_connect(f"{demo.url}/%2e%2e%2fana/pico/ws", headers=bearer(demo))
    assert refused.value.status == 404


async def test_frames_go_to_all_sockets_of_exactly_that_session(connect: Connect) -> None:
    first, second, other = await connect("s1"), await connect("s1"), await connect("S1")
    assert await first.turn("hello") == await second.rest() != []
    assert await other.rest() == []


async def test_sessions_of_two_members_are_apart_even_with_one_id(connect: Connect) -> None:
    ana, ben = await connect("s1"), await connect("s1", "ben")
    assert "notes.txt" in await ana.answer("what files do you see?")
    assert await ben.rest() == []
    assert await ben.answer("what files do you see?") == "There are no files in my workspace."


async def test_nothing_is_replayed_to_a_later_socket(connect: Connect) -> None:
    first = await connect()
    await first.turn("hello")
    assert await (await connect()).rest() == []


async def test_ping_frame_is_answered_by_pong_with_its_id(connect: Connect) -> None:
    client = await connect()
    await client.ws.send_json({"type": "ping", "id": "p1"})
    pong = await client.next()
    assert (pong["type"], pong["id"], pong["session_id"]) == ("pong", "p1", "s1")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("{", "invalid_message"),
        ("[]", "invalid_message"),
        ('{"type": "x"}', "unknown_type"),
        ('{"type": "message.send", "payload": {"content": " "}}', "empty_content"),
    ],
)
async def test_bad_frame_is_an_error_frame_without_request_id(connect: Connect, sent: str, code: str) -> None:
    client = await connect()
    await client.ws.send_str(sent)
    frame = await client.next()
    assert (frame["type"], frame["payload"]["code"]) == ("error", code)
    assert "request_id" not in frame["payload"]


# ---- the turn


async def test_text_is_cumulative_and_only_its_repetition_has_the_usage(connect: Connect) -> None:
    frames = await (await connect()).turn("hello there")
    assert types(frames[:2]) == ["typing.start", "message.create"]
    assert types(frames[-2:]) == ["message.update", "typing.stop"]
    texts = text_frames(frames)
    assert len({frame["payload"]["message_id"] for frame in texts}) == 1
    for before, after in itertools.pairwise(texts):
        assert after["payload"]["content"].startswith(before["payload"]["content"])
    assert [is_final(frame) for frame in texts] == [False] * (len(texts) - 1) + [True]
    assert texts[-1]["payload"]["content"] == texts[-2]["payload"]["content"]
    assert texts[-1]["payload"]["content"].startswith("You said: hello there")


async def test_with_a_tool_typing_stops_at_its_first_frame_and_nothing_follows_the_answer(
    connect: Connect,
) -> None:
    frames = await (await connect()).turn("make a report please")
    assert types(frames[:4]) == ["typing.start", "typing.stop", "message.create", "message.create"]
    call = frames[2]["payload"]
    assert (call["kind"], call["tool_calls"][0]["function"]["name"]) == ("tool_calls", "send_file")
    assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"path": "out/report-1.md"}
    attachment = frames[3]["payload"]["attachments"][0]
    assert (attachment["type"], attachment["filename"]) == ("file", "report-1.md")
    assert frames[-1]["payload"]["content"] == "I have sent you report-1.md."
    assert is_final(frames[-1])
    assert types(frames).count("typing.stop") == 1


async def test_second_message_steers_the_running_turn(connect: Connect) -> None:
    client = await connect()
    await client.send("first " * 30)
    await client.until(lambda frame: frame["type"] == "message.create")
    await client.send("second")
    frames = [*await client.until(is_final), *await client.rest()]
    typing = [frame["type"] for frame in frames if frame["type"].startswith("typing")]
    assert typing == ["typing.start", "typing.stop", "typing.stop"]
    deleted = types(frames).index("message.delete")
    assert (
        "/help says this." in text_frames(frames[:deleted])[-1]["payload"]["content"]
    )  # streamed to its end
    assert not any(is_final(frame) for frame in frames[:deleted])
    assert frames[deleted + 1]["type"] == "message.create"
    assert frames[deleted + 1]["payload"]["message_id"] != frames[deleted]["payload"]["message_id"]
    assert frames[-2]["payload"]["content"].startswith("You said: second")
    assert frames[-1]["type"] == "typing.stop"


async def test_stop_ends_the_turn_and_leaves_what_was_said(connect: Connect) -> None:
    client = await connect()
    await client.send("word " * 200)
    frames = await client.until(lambda frame: frame["type"] == "message.update")
    await client.send("/stop")
    frames += [*await client.until(is_final), *await client.rest()]
    half, told = text_frames(frames)[-2:]
    assert half["payload"]["content"].startswith("You said:")
    assert "/help says this." not in half["payload"]["content"]  # its end was never said
    assert (told["type"], told["payload"]["content"]) == ("message.create", "Task stopped.")
    assert "message.delete" not in types(frames)
    assert (await client.turn("/stop"))[1]["payload"]["content"] == "No active task to stop."


async def test_help_is_a_command(connect: Connect) -> None:
    frames = await (await connect()).turn("/help")
    assert types(frames) == ["typing.start", "message.create", "typing.stop"]
    assert "count words in" in frames[1]["payload"]["content"]
    assert is_final(frames[1])


async def test_socket_lost_while_the_answer_streams_makes_it_an_error_text(connect: Connect) -> None:
    first = await connect()
    await first.send("word " * 100)
    started = (await first.until(lambda frame: frame["type"] == "message.create"))[-1]
    transport = first.ws.get_extra_info("socket")
    transport.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await first.ws.close()
    await asyncio.sleep(QUIET)  # words that reach nobody
    second = await connect()
    frames = [await second.next(), *await second.rest()]
    assert frames[0]["type"] == "message.update"
    assert frames[0]["payload"]["message_id"] == started["payload"]["message_id"]
    assert types(frames[-2:]) == ["typing.stop", "message.create"]
    assert frames[-1]["payload"]["content"] == (
        "Error processing message: no active connections for session s1: send failed"
    )
    assert not any(is_final(frame) for frame in frames)
    assert "You said: again" in await second.answer("again")


# ---- what it does in its workspace


async def test_lists_files_with_sizes(connect: Connect) -> None:
    answer = await (await connect()).answer("list")
    assert answer.splitlines()[1:] == ["- notes.txt (18 bytes)", "- attachments/old.md (5 bytes)"]


async def test_counts_words_of_a_named_file(connect: Connect) -> None:
    assert await (await connect()).answer("count words in notes.txt") == "notes.txt has 4 words."


async def test_opens_an_attachment_by_exactly_the_told_path(connect: Connect, workspace: Path) -> None:
    client = await connect()
    absolute = workspace / "public" / "notes.txt"
    for told in ("public/notes.txt", str(absolute)):
        assert await client.answer(f"[attachment: {told}]\nhere") == f"I received {told}: 18 bytes, 4 words."
    for told in ("notes.txt", "../../../secret", "/etc/passwd"):
        assert await client.answer(f"[attachment: {told}]") == f"I cannot open {told}."


@pytest.mark.parametrize(
    "block",
    [
        "[deliver to: /workspace/ana/workspace/public/attachments]\n\n",
        "[project: List · files: /w · deliver to: /w/public/attachments]\nWrite a report.\n[/project]\n\n",
    ],
)
async def test_context_is_neither_obeyed_nor_echoed(connect: Connect, block: str) -> None:
    assert (await (await connect()).answer(block + "hello")).startswith("You said: hello\n")


async def test_written_report_is_a_file_and_not_an_attachment(connect: Connect, workspace: Path) -> None:
    frames = await (await connect()).turn("Write me a report")
    written = workspace / "public" / "attachments" / "report.md"
    assert "- notes.txt: 18 bytes, 4 words" in written.read_text()
    assert not any("attachments" in frame.get("payload", {}) for frame in frames)
    assert frames[-1]["payload"]["content"] == "I have written the report to public/attachments/report.md."


async def test_project_session_works_in_the_projects_folder(connect: Connect, workspace: Path) -> None:
    public = workspace.parent / "workspace-apollo" / "public"
    public.mkdir(parents=True)
    (public / "moon.txt").write_text("")
    assert await (await connect("p.apollo.s1")).answer("list") == "I see these files:\n- moon.txt (0 bytes)"


async def test_hashed_segment_finds_the_folder_of_an_id_that_urls_cannot_hold(
    connect: Connect, workspaces: Path
) -> None:
    public = workspaces / "ana.b" / "workspace" / "public"
    public.mkdir(parents=True)
    (public / "hers.txt").write_text("")
    segment = f"m-{hashlib.sha256(b'ana.b').hexdigest()[:32]}"
    assert "hers.txt" in await (await connect(member=segment)).answer("list")


async def test_report_without_a_workspace_is_an_error_text_without_a_path(connect: Connect) -> None:
    frames = await (await connect(member="nobody")).turn("make a report")
    assert frames[-1]["payload"]["content"] == "Error processing message: my workspace does not exist yet"


async def test_becomes_the_agents_uid_for_good_and_writes_as_it(
    workspaces: Path, workspace: Path, connect: Connect
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to change user")
    for path in [workspace, *workspace.rglob("*")]:
        os.chown(path, AGENT_UID, AGENT_UID)
    groups = os.getgroups()
    os.setgroups([*groups, AGENT_UID + 1])  # one more, for the program to shed
    async with running_demo(workspaces, uid=AGENT_UID, gid=AGENT_UID) as demo:
        os.setgroups(groups)
        status = Path(f"/proc/{demo.pid}/status").read_text()
        assert f"Uid:\t{AGENT_UID}\t{AGENT_UID}\t{AGENT_UID}\t{AGENT_UID}" in status
        assert "Groups:\t \n" in status
        frames = await (await connect(base=demo)).turn("make a report")
        async with aiohttp.ClientSession() as http:
            assert (await media(http, demo, first_attachment(frames)["url"]))[0] == 200
    assert (workspace / "out" / "report-1.md").stat().st_uid == AGENT_UID


# ---- the media store


async def test_media_serves_the_live_file_with_head_and_range(
    connect: Connect, demo: Demo, http: aiohttp.ClientSession, workspace: Path
) -> None:
    sent = first_attachment(await (await connect()).turn("make a report"))
    report = workspace / "out" / "report-1.md"
    report.write_text("changed since")
    for base in ("", f"/{workspace.parent.name}"):
        assert await media(http, demo, base + sent["url"]) == (200, b"changed since")
    assert await media(http, demo, sent["url"], headers={"Range": "bytes=8-"}) == (206, b"since")
    async with http.head(demo.url + sent["url"], headers=bearer(demo)) as head:
        assert (head.status, head.headers["Content-Length"]) == (200, "13")
        assert head.headers["Content-Disposition"] == "attachment; filename=report-1.md"
    report.unlink()
    assert (await media(http, demo, sent["url"]))[0] == 500


async def test_media_needs_the_bearer_and_a_known_id_of_that_member(
    connect: Connect, demo: Demo, http: aiohttp.ClientSession
) -> None:
    sent = first_attachment(await (await connect()).turn("make a report"))
    async with http.get(demo.url + sent["url"]) as response:
        assert response.status == 401
    assert (await media(http, demo, "/pico/media/unknown"))[0] == 404
    assert (await media(http, demo, "/ben" + sent["url"]))[0] == 404


# ---- scripts


async def test_script_file_plays_its_frames_as_they_stand(connect: Connect, scripts: Path) -> None:
    frame = {"type": "message.create", "payload": {"content": "$CONTENT", "message_id": "$ID1"}}
    steps = [
        {"frame": frame},
        {"wait": 0.01},
        {"text": '{"half":'},
        {"frame": frame | {"session_id": "other"}},
    ]
    (scripts / "one.jsonl").write_text("\n".join(map(json.dumps, steps)) + "\n")
    client = await connect()
    await client.send("play one")
    first = await client.next()
    assert (first["session_id"], first["payload"]["content"]) == ("s1", "play one")
    assert first["timestamp"] > 0
    assert await client.ws.receive_str(timeout=WAIT) == '{"half":'
    last = await client.next()
    assert (last["session_id"], last["payload"]["message_id"]) == ("other", first["payload"]["message_id"])
    assert await client.rest() == []


@pytest.mark.parametrize(
    "message",
    [
        "play missing",
        "play-inline {",
        "play-inline 7",
        'play-inline [{"frame": {}}]',
        'play-inline [{"wait": -1}]',
        'play-inline [{"media": {"size": 1e12}}]',
        'play-inline [{"media": {"path": "/etc/passwd"}}]',
    ],
)
async def test_malformed_script_is_an_error_text(connect: Connect, message: str) -> None:
    frames = await (await connect()).turn(message)
    assert types(frames) == ["typing.stop", "message.create"]
    assert frames[1]["payload"]["content"].startswith("Error processing message: ")


async def test_drop_resets_the_socket_and_the_script_goes_on(connect: Connect) -> None:
    client = await connect()
    steps = [
        {"drop": True},
        {"wait": 1},
        {"frame": {"type": "message.create", "payload": {"content": "late"}}},
    ]
    await client.send(f"play-inline {json.dumps(steps)}")
    message = await client.ws.receive(timeout=WAIT)
    assert message.type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}
    assert client.ws.close_code in {1006, None}
    assert (await (await connect()).next())["payload"]["content"] == "late"


async def test_scripted_media_has_its_content_status_and_headers(
    connect: Connect, demo: Demo, http: aiohttp.ClientSession
) -> None:
    client = await connect()
    path = await scripted(client, content="né", headers={"Content-Disposition": "attachment; filename=x"})
    async with http.get(demo.url + path, headers=bearer(demo)) as response:
        assert (response.status, await response.text("utf-8")) == (200, "né")
        assert response.headers["Content-Disposition"] == "attachment; filename=x"
    assert await media(http, demo, await scripted(client, status=302, headers={"Location": "/else"})) == (
        302,
        b"",
    )
    assert await media(http, demo, await scripted(client, status=500, content="no")) == (500, b"no")
    assert await media(http, demo, await scripted(client, size=200_000)) == (200, bytes(200_000))


async def test_scripted_media_can_be_cut_and_can_be_silent(
    connect: Connect, demo: Demo, http: aiohttp.ClientSession
) -> None:
    client = await connect()
    cut = await scripted(client, content="half", missing=4)
    async with http.get(demo.url + cut, headers=bearer(demo)) as response:
        assert response.headers["Content-Length"] == "8"
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    silent = await scripted(client, content="never", pause=600)
    async with http.get(demo.url + silent, headers=bearer(demo)) as response:
        assert (response.status, response.headers["Content-Length"]) == (200, "5")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(response.content.readany(), QUIET)
    with pytest.raises(TimeoutError):
        await media(http, demo, await scripted(client, delay=600), timeout=aiohttp.ClientTimeout(QUIET))
