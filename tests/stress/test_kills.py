"""The service is killed at random moments while files come in: what was acknowledged is there, all is whole."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.postgres import TestServer, fresh_database
from tests.support.served import Member, Served, served

KILLS = 200 if os.environ.get("ISTHMUS_TEST_SIZE") == "full" else 20
LONGEST_LIFE = 0.25
LARGEST = 2_000_000
ANA = Member("ana", "a" * 40)
NAMES = [f"f{number}.bin" for number in range(12)]
BOUNDARY = "----------------b7f3"


def sealed(payload: bytes) -> bytes:
    """Content that tells by itself whether it is whole."""
    return hashlib.sha256(payload).digest() + payload


def is_whole(content: bytes) -> bool:
    return content[:32] == hashlib.sha256(content[32:]).digest()


def post(port: int, name: str, content: bytes) -> int:
    """The status of one upload. Raises OSError or HTTPException when the service dies meanwhile."""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {
        "Authorization": f"Bearer {ANA.token}",
        "Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
    }
    try:
        body = head.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()
        connection.request("POST", "/v1/media", body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


class Uploader(threading.Thread):
    """Uploads names of its own again and again.

    `possible` are the contents that each name may have: the one acknowledged last, and those begun since. None
    stands for no file.
    """

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names
        self.port = 0
        self.possible: dict[str, list[bytes | None]] = {name: [None] for name in names}
        self.acknowledged = 0
        self.refused: list[int] = []

    def run(self) -> None:
        with suppress(OSError, http.client.HTTPException):
            while True:
                name = random.choice(self.names)
                content = sealed(random.randbytes(random.randrange(LARGEST)))
                self.possible[name].append(content)
                status = post(self.port, name, content)
                if status != 200:
                    self.refused.append(status)
                    return
                self.possible[name] = [content]
                self.acknowledged += 1

    def again(self) -> Uploader:
        """One that goes on where this one ended."""
        following = Uploader(self.names)
        following.possible, following.acknowledged = self.possible, self.acknowledged
        return following


def listed(service: Served) -> list[str]:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
    try:
        connection.request("GET", "/v1/media", headers={"Authorization": f"Bearer {ANA.token}"})
        return [entry["name"] for entry in json.load(connection.getresponse())["files"]]
    finally:
        connection.close()


def check(public: Path, uploaders: list[Uploader]) -> None:
    for uploader in uploaders:
        assert uploader.refused == []
        for name, possible in uploader.possible.items():
            file = public / name
            assert (file.read_bytes() if file.exists() else None) in possible, f"{name} is lost"
    for file in public.glob("*.bin"):
        assert is_whole(file.read_bytes()), f"{file.name} is not whole"


@pytest.mark.stress
@pytest.mark.timeout(3600 if KILLS > 20 else 120)
async def test_no_kill_leaves_half_a_file_or_loses_an_acknowledged_one(
    postgres: TestServer, open_dir: Path
) -> None:
    uploaders = [Uploader(NAMES[part::3]) for part in range(3)]
    async with fresh_database(postgres) as connect:
        for _ in range(KILLS):
            with served(open_dir, connect, [ANA]) as service:
                assert not [name for name in listed(service) if name not in {*NAMES, "attachments"}]
                uploaders = [uploader.again() for uploader in uploaders]
                for uploader in uploaders:
                    uploader.port = service.port
                    uploader.start()
                threading.Event().wait(0.05 + random.random() * LONGEST_LIFE)
                service.process.kill()
                for uploader in uploaders:
                    uploader.join()
                check(service.public(ANA), uploaders)
    assert sum(uploader.acknowledged for uploader in uploaders) > KILLS
