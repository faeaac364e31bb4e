"""Recorded picoclaw turns, played by the demo agent's socket and media store, relayed by the whole service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.service import RunningService, deliveries, errors, said
from tests.unit.stream.driver import RECORDINGS, recording

FASTER = 20
FILES = {
    "05-send-file-only": "report.txt",
    "05b-send-file-only-swapped": "report.txt",
    "07-tool-and-send-file-then-answer": "report.txt",
    "17-empty-file": "empty.txt",
}
NAMES = sorted(path.stem for path in RECORDINGS.glob("*.jsonl") if path.stem[:2] not in {"11", "15"})


def media_body(name: str) -> bytes:
    """What the recorded media server sent behind its headers."""
    raw = Path(RECORDINGS / f"{name}.media-1.http").read_bytes()
    return raw.partition(b"\r\n\r\n")[2]


def script(name: str) -> list[dict[str, Any]]:
    """The recording as script lines, its pauses shortened, its file offered by the demo agent's media store."""
    (turn,) = recording(name)
    lines: list[dict[str, Any]] = []
    if name in FILES:
        lines.append({"media": {"content": media_body(name).decode("utf-8")}})
    before = 0.0
    for at, frame in turn.frames:
        if at > before:
            lines.append({"wait": (at - before) / FASTER})
        before = at
        payload = dict(frame.get("payload", {}))
        if "attachments" in payload:
            payload["attachments"] = [{**payload["attachments"][0], "url": "$MEDIA1"}]
        lines.append({"frame": {"type": frame["type"], "payload": payload}})
    return lines


@pytest.mark.parametrize("name", NAMES)
async def test_a_recorded_turn_comes_through_whole(service: RunningService, name: str) -> None:
    chunks = await service.play(*script(name))
    (turn,) = recording(name)
    answer = (await service.history())[1]
    assert answer["content"] == turn.last_plain_text
    assert [delivery["state"] for delivery in deliveries(chunks)] == ["stored"] * (name in FILES)
    if name in FILES:
        (delivery,) = deliveries(chunks)
        assert (service.public / "attachments" / delivery["name"]).read_bytes() == media_body(name)
    else:
        assert said(chunks) == turn.last_plain_text
    assert [error["code"] for error in errors(chunks)] == ["agent_failed"] * (name == "09-model-error")
