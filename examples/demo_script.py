"""Scripts for the demo agent: exact frames, pauses, resets and media faults, for tests.

A message ``play <name>`` plays ``<scripts>/<name>.jsonl``, one step a line; ``play-inline [<step>, …]`` plays
the steps of the message. A script says every frame of its turn itself. Steps:

    {"frame": {…}}   a frame; session_id and timestamp are filled in. In its strings $MEDIA1 is the URL of
                     the first media step, $ID1 a fresh message id, $CONTENT the message as it came
    {"text": "…"}    a text that need not be JSON
    {"wait": 0.5}    seconds
    {"drop": true}   the session's sockets are reset, without a close frame
    {"media": {…}}   a file for the media store, with its faults: the fields of ``ScriptedMedia``
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from demo_answers import Mistake

LONGEST_WAIT = 600  # seconds
LARGEST = {  # of each number of a scripted media answer
    "size": 256 * 1024 * 1024,
    "status": 599,
    "missing": 2**40,
    "delay": LONGEST_WAIT,
    "pause": LONGEST_WAIT,
    "piece": 1024 * 1024,
}
PLACE = re.compile(r"\$(?:MEDIA\d+|ID\d+|CONTENT)")


@dataclass(frozen=True)
class ScriptedMedia:
    """A media answer as a script wants it."""

    content: str = ""
    size: int = 0  # so many zero bytes after the content
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    missing: int = 0  # bytes that Content-Length promises and the connection never brings
    delay: float = 0  # seconds before the status line
    pause: float = 0  # seconds before each piece of the body
    piece: int = 64 * 1024  # bytes

    def pieces(self) -> Iterator[bytes]:
        body = self.content.encode() + bytes(self.size)
        step = max(1, self.piece)
        return (body[start : start + step] for start in range(0, len(body), step))

    async def respond(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(self.delay)
        response = web.StreamResponse(status=self.status, headers=self.headers)
        response.content_length = len(self.content.encode()) + self.size + self.missing
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):  # the reader may leave a slow body
            for piece in self.pieces():
                await asyncio.sleep(self.pause)
                await response.write(piece)
        if self.missing and request.transport is not None:
            request.transport.close()
        return response


def read_script(scripts: Path | None, words: str) -> list[dict[str, Any]] | None:
    """The steps that a message asks for; None if it asks for none. Blocking. Raises Mistake."""
    inline = re.fullmatch(r"play-inline\s+(.+)", words, re.DOTALL)
    named = re.fullmatch(r"play\s+([\w-]+)", words)
    try:
        if inline:
            steps = json.loads(inline[1])
        elif named and scripts is not None:
            lines = (scripts / f"{named[1]}.jsonl").read_text(encoding="utf-8").split("\n")
            steps = [json.loads(line) for line in lines if line.strip()]
        else:
            return None
    except (ValueError, RecursionError) as error:
        raise Mistake("the script is not JSON") from error
    except OSError as error:
        raise Mistake(f"there is no script {words}") from error
    for number, step in enumerate(steps if isinstance(steps, list) else [steps], 1):
        if not is_step(step):
            raise Mistake(f"step {number} of the script is none")
    return list(steps)


def is_step(step: Any) -> bool:
    match step:
        case {"frame": {"type": str()}} | {"text": str()} | {"drop": True}:
            return len(step) == 1
        case {"wait": int() | float() as seconds}:
            return len(step) == 1 and 0 <= seconds <= LONGEST_WAIT
        case {"media": dict() as fields}:
            return len(step) == 1 and all(is_media_field(key, value) for key, value in fields.items())
    return False


def is_media_field(key: str, value: Any) -> bool:
    match key:
        case "content":
            return isinstance(value, str)
        case "headers":
            return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
        case _:
            return key in LARGEST and isinstance(value, int | float) and 0 <= value <= LARGEST[key]


def fill(text: str, values: dict[str, str]) -> str:
    """A frame's JSON with its places filled."""
    return PLACE.sub(lambda place: json.dumps(values[place[0]])[1:-1], text)
