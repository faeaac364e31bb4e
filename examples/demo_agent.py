"""A demo agent: speaks the pico protocol on loopback, has no model, answers from the files of its workspace.

    python examples/demo_agent.py --port 0 --workspaces DIR --token T [--uid N --gid N] [--scripts DIR]

It prints ``listening http://127.0.0.1:PORT`` when it is ready; SIGTERM ends it. It is as strict as the real
gateway (picoclaw): frames go only to the sockets open under exactly their session id, nothing is replayed, a
turn has no end frame, and a socket lost while an answer streams turns the turn into an error text.

One process serves every member: the socket ``/{member}/pico/ws?session_id=…`` works in the folder
``<workspaces>/<member>/workspace``, or in ``workspace-<project>`` beside it if its session id begins
``p.<project>.``. ``demo_answers`` is what it says; ``demo_script`` makes it send exactly what a test wants.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures.thread  # noqa: F401  # else imported at first use, when the rights are already dropped
import contextlib
import hmac
import json
import mimetypes
import os
import re
import signal
import socket
import struct
import time
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web
from demo_answers import HELP, Answer, Mistake, read_message, think, workspace_of
from demo_script import ScriptedMedia, fill, read_script

MAX_SOCKETS = 100
MAX_FRAME = 32 * 1024 * 1024  # bytes
PING_INTERVAL = 30.0  # seconds
MEDIA_LIFE = 30 * 60.0  # seconds until a media URL is forgotten
MODEL = "demo"
FAILURE = "Error processing message: "


@dataclass(frozen=True)
class MediaEntry:
    member: str
    source: Path | ScriptedMedia
    expires: float  # loop time


class MediaStore:
    """Files under unguessable ids, served live: as they are when fetched, not as they were when sent."""

    def __init__(self) -> None:
        self._entries: dict[str, MediaEntry] = {}

    def add(self, member: str, source: Path | ScriptedMedia) -> str:
        """Returns the URL path that a frame names."""
        now = asyncio.get_running_loop().time()
        self._entries = {key: entry for key, entry in self._entries.items() if entry.expires > now}
        media_id = str(uuid.uuid4())
        self._entries[media_id] = MediaEntry(member, source, now + MEDIA_LIFE)
        return f"/pico/media/{media_id}"

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """GET and HEAD. 404 unknown, expired or another member's; 500 when the agent has deleted the file."""
        entry = self._entries.get(request.match_info["id"])
        if entry is None or entry.expires <= asyncio.get_running_loop().time():
            raise web.HTTPNotFound
        if request.match_info.get("member", entry.member) != entry.member:
            raise web.HTTPNotFound
        if isinstance(entry.source, ScriptedMedia):
            return await entry.source.respond(request)
        if not await asyncio.to_thread(entry.source.is_file):
            raise web.HTTPInternalServerError
        name = entry.source.name
        return web.FileResponse(
            entry.source,
            headers={"Content-Type": content_type(name), "Content-Disposition": disposition(name)},
        )


def content_type(name: str) -> str:
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


def disposition(name: str) -> str:
    """In the three forms that Go's ``mime.FormatMediaType`` takes: bare token, quoted, ``filename*``."""
    if not name.isascii() or not name.isprintable():
        raw = os.fsencode(name)
        return "attachment; filename*=utf-8''" + "".join(
            chr(byte) if chr(byte).isascii() and chr(byte).isalnum() else f"%{byte:02X}" for byte in raw
        )
    if re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", name):
        return f"attachment; filename={name}"
    return 'attachment; filename="' + re.sub(r'(["\\])', r"\\\1", name) + '"'


@dataclass(eq=False)
class Session:
    """One conversation: its sockets, the turn that runs, and the messages that came meanwhile."""

    member: str
    session_id: str
    workspace: Path
    sockets: dict[web.WebSocketResponse, asyncio.Transport] = field(default_factory=dict)
    inbox: list[str] = field(default_factory=list)
    turn: asyncio.Task[None] | None = None
    tokens: int = 0
    lost: bool = False  # a frame of the running answer reached nobody

    @property
    def running(self) -> bool:
        return self.turn is not None and not self.turn.done()

    async def send(self, kind: str, payload: dict[str, Any] | None = None) -> None:
        await self.send_text(
            frame_text({"type": kind} | ({"payload": payload} if payload else {}), self.session_id)
        )

    async def send_text(self, text: str) -> None:
        """To every socket of the session that is open at this moment; nothing is kept for later ones."""
        reached = False
        for each in tuple(self.sockets):
            try:
                await each.send_str(text)
                reached = True
            except ConnectionError:
                self.sockets.pop(each, None)
        self.lost = self.lost or not reached

    async def say(self, text: str, *, usage: bool) -> None:
        """A whole message in one frame."""
        payload: dict[str, Any] = {"content": text, "message_id": str(uuid.uuid4())}
        await self.send("message.create", payload | ({"context_usage": self.usage(text)} if usage else {}))

    def usage(self, text: str) -> dict[str, int]:
        self.tokens += len(text) // 4 + 1
        total = 32000
        return {
            "compress_at_tokens": 29952,
            "history_tokens": self.tokens,
            "summarize_at_tokens": 24000,
            "total_tokens": total,
            "used_percent": 100 * self.tokens // total,
            "used_tokens": self.tokens,
        }

    async def stop(self) -> bool:
        """End the running turn, half said as it is. False: there was none."""
        self.inbox.clear()
        if self.turn is None or self.turn.done():
            return False
        self.turn.cancel()
        await asyncio.wait([self.turn])
        return True

    def reset_sockets(self) -> None:
        """A TCP reset for each socket, as when a network fails."""
        for transport in self.sockets.values():
            with contextlib.suppress(OSError):
                raw = transport.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        self.sockets.clear()


def frame_text(frame: dict[str, Any], session_id: str) -> str:
    known = {"type": None, "session_id": session_id, "timestamp": int(time.time() * 1000)}
    return json.dumps(known | frame)


class Gateway:
    """The pico endpoints, and the turns behind them."""

    def __init__(self, workspaces: Path, token: str, scripts: Path | None, word_delay: float) -> None:
        self._workspaces, self._token, self._scripts, self._word_delay = (
            workspaces,
            token,
            scripts,
            word_delay,
        )
        self._media = MediaStore()
        self._sessions: dict[tuple[str, str], Session] = {}
        self._open = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/{member}/pico/ws", self._socket, allow_head=False)
        app.router.add_get("/pico/media/{id}", self._file)
        app.router.add_get("/{member}/pico/media/{id}", self._file)
        app.on_shutdown.append(self._close)
        return app

    async def _close(self, _: web.Application) -> None:
        for session in tuple(self._sessions.values()):
            await session.stop()
            for each in tuple(session.sockets):
                await each.close(code=1001)

    def _require_token(self, request: web.Request) -> str | None:
        """The subprotocol to answer with, if it was that which carried the token. Raises 401."""
        if same(request.headers.get("Authorization", ""), f"Bearer {self._token}"):
            return None
        for offered in request.headers.get("Sec-WebSocket-Protocol", "").split(","):
            if same(offered.strip(), f"token.{self._token}"):
                return offered.strip()
        raise web.HTTPUnauthorized

    async def _file(self, request: web.Request) -> web.StreamResponse:
        self._require_token(request)
        return await self._media.respond(request)

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        protocol = self._require_token(request)
        member = request.match_info["member"]
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,62}", member):
            raise web.HTTPNotFound
        if self._open >= MAX_SOCKETS:
            raise web.HTTPServiceUnavailable
        self._open += 1
        try:
            session = await self._session(member, request.query.get("session_id") or str(uuid.uuid4()))
            each = web.WebSocketResponse(
                protocols=[protocol] if protocol else [], heartbeat=PING_INTERVAL, max_msg_size=MAX_FRAME
            )
            await each.prepare(request)
            await self._converse(session, each, request)
        finally:
            self._open -= 1
        return each

    async def _session(self, member: str, session_id: str) -> Session:
        workspace = await asyncio.to_thread(workspace_of, self._workspaces, member, session_id)
        return self._sessions.setdefault((member, session_id), Session(member, session_id, workspace))

    async def _converse(self, session: Session, each: web.WebSocketResponse, request: web.Request) -> None:
        if request.transport is None:
            return
        session.sockets[each] = request.transport
        try:
            async for message in each:
                if message.type in {WSMsgType.TEXT, WSMsgType.BINARY}:
                    await self._receive(session, each, message.data)
        finally:
            session.sockets.pop(each, None)
            self._forget_if_idle(session)

    def _forget_if_idle(self, session: Session) -> None:
        if not session.sockets and not session.running:
            self._sessions.pop((session.member, session.session_id), None)

    async def _receive(self, session: Session, each: web.WebSocketResponse, data: str | bytes) -> None:
        async def refuse(code: str, message: str) -> None:
            error = {"type": "error", "payload": {"code": code, "message": message}}
            await each.send_str(frame_text(error, session.session_id))

        try:
            frame = json.loads(data)
            kind, content = frame["type"], (frame.get("payload") or {}).get("content")
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return await refuse("invalid_message", "failed to parse message")
        if kind == "ping":
            return await each.send_str(
                frame_text({"type": "pong", "id": frame.get("id")}, session.session_id)
            )
        if kind != "message.send":
            return await refuse("unknown_type", f"unknown message type: {kind}")
        if not isinstance(content, str) or not content.strip():
            return await refuse("empty_content", "message content is empty")
        return await self._take(session, content)

    async def _take(self, session: Session, content: str) -> None:
        if content.startswith("/"):
            await session.send("typing.start")
            if content.split(maxsplit=1)[0] == "/stop":
                text = "Task stopped." if await session.stop() else "No active task to stop."
            else:
                text = HELP
            await session.say(text, usage=True)
            await session.send("typing.stop")
        elif session.running:
            session.inbox.append(content)
            await session.send("typing.start")
            await session.send("typing.stop")
        else:
            session.inbox.append(content)
            session.turn = asyncio.create_task(self._run(session))
            session.turn.add_done_callback(lambda _: self._forget_if_idle(session))

    async def _run(self, session: Session) -> None:
        """The turn of the first message, and of those that came while it ran."""
        steered = False
        while session.inbox:
            content = session.inbox.pop(0)
            session.lost = False
            try:
                steps = await asyncio.to_thread(read_script, self._scripts, read_message(content)[0])
                if steps is not None:
                    await self._play(session, steps, content)
                else:
                    steered = await self._answer(session, content, steered=steered)
            except (Mistake, OSError) as error:
                steered = False
                reason = str(error) if isinstance(error, Mistake) else error.strerror
                await session.send("typing.stop")
                await session.say(f"{FAILURE}{reason}", usage=False)

    async def _answer(self, session: Session, content: str, *, steered: bool) -> bool:
        """Answer one message. True: another came before the end, this answer is taken back."""
        if not steered:
            await session.send("typing.start")
        answer = await asyncio.to_thread(think, session.workspace, content)
        if answer.tool:
            await session.send("typing.stop")
            await self._use_tool(session, answer, content)
        said = {"content": "", "message_id": str(uuid.uuid4()), "model_name": MODEL}
        for word in re.findall(r"\S+\s*", answer.text):
            kind = "message.update" if said["content"] else "message.create"
            said["content"] += word
            await session.send(kind, said)
            await asyncio.sleep(self._word_delay)
        if session.lost:
            raise Mistake(f"no active connections for session {session.session_id}: send failed")
        if session.inbox:
            await session.send("message.delete", {"message_id": said["message_id"]})
            return True
        await session.send("message.update", said | {"context_usage": session.usage(answer.text)})
        if not answer.tool:
            await session.send("typing.stop")
        return False

    async def _use_tool(self, session: Session, answer: Answer, content: str) -> None:
        call = {
            "id": "call_1",
            "type": "function",
            "function": {"name": answer.tool, "arguments": json.dumps(answer.arguments, indent=2)},
            "extra_content": {"tool_feedback_explanation": f"Continuing the current task.: {content}"},
        }
        shown = {"content": "", "message_id": str(uuid.uuid4()), "model_name": MODEL}
        await session.send("message.create", shown | {"kind": "tool_calls", "tool_calls": [call]})
        if answer.attachment is not None:
            name = answer.attachment.name
            url = self._media.add(session.member, answer.attachment)
            sent = {"content_type": content_type(name), "filename": name, "type": "file", "url": url}
            await session.send(
                "message.create", {"attachments": [sent], "content": "", "message_id": str(uuid.uuid4())}
            )

    async def _play(self, session: Session, steps: list[dict[str, Any]], content: str) -> None:
        values: defaultdict[str, str] = defaultdict(lambda: str(uuid.uuid4()), {"$CONTENT": content})
        media = 0
        for step in steps:
            match step:
                case {"wait": seconds}:
                    await asyncio.sleep(seconds)
                case {"drop": _}:
                    session.reset_sockets()
                case {"text": text}:
                    await session.send_text(text)
                case {"media": fields}:
                    media += 1
                    values[f"$MEDIA{media}"] = self._media.add(session.member, ScriptedMedia(**fields))
                case {"frame": frame}:
                    await session.send_text(fill(frame_text(frame, session.session_id), values))


def same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(errors="surrogateescape"), secret.encode())


def drop_rights(uid: int, gid: int) -> None:
    """For good, and in this order: the first two need the rights that the last gives up."""
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


async def serve(gateway: Gateway, listener: socket.socket, with_parent: bool) -> None:
    """Until SIGTERM or SIGINT, or until standard input ends: a parent that is killed closes its pipe."""
    stopping = asyncio.Event()
    if with_parent:
        asyncio.get_running_loop().add_reader(0, stopping.set)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    runner = web.AppRunner(gateway.app(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        print(f"listening http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        await stopping.wait()
    finally:
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description="A demo agent that speaks pico on loopback.")
    parser.add_argument("--port", type=int, default=18790, help="0: a free one")
    parser.add_argument("--workspaces", type=Path, required=True, help="holds one folder for each member")
    parser.add_argument(
        "--token", default=os.environ.get("DEMO_AGENT_TOKEN"), help="the bearer that clients must show"
    )
    parser.add_argument("--uid", type=int, help="as root: the user to become")
    parser.add_argument("--gid", type=int, help="as root: the group to become (the uid's number)")
    parser.add_argument("--scripts", type=Path, help="where `play <name>` finds <name>.jsonl")
    parser.add_argument("--word-delay", type=float, default=0.02, help="seconds between words")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input does")
    given = parser.parse_args()
    if not given.token:
        parser.error("--token or DEMO_AGENT_TOKEN is needed")
    scripts = given.scripts and given.scripts.absolute()
    gateway = Gateway(given.workspaces.absolute(), given.token, scripts, given.word_delay)
    listener = socket.create_server(("127.0.0.1", given.port))
    mimetypes.init()
    if given.uid is not None:
        # Only now: the interpreter and its modules may lie where that user cannot read them.
        drop_rights(given.uid, given.uid if given.gid is None else given.gid)
    asyncio.run(serve(gateway, listener, given.with_parent))


if __name__ == "__main__":
    main()
