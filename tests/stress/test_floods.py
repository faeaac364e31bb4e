"""Many large uploads at once: the service stays small and answers others meanwhile. The bounds leave room for a
busy machine; ``python -m bench.upload`` measures."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from tests.support.flood import AT_ONCE, SIZE, form, send
from tests.support.postgres import TestServer, fresh_database
from tests.support.served import ROOT, Member, Served, served

MEMBERS = [Member(name, name * 40) for name in "abcde"]
GROWTH_MIB = 12
HEALTH_SECONDS = 0.25
REFUSAL_SECONDS = 0.5


def memory_mib(service: Served, name: str) -> float:
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) / 1024


async def flooded(service: Served) -> list[str]:
    """Twenty uploads at once, from a process of their own; the status lines."""
    command = [sys.executable, "-m", "tests.support.flood", str(service.port), *(m.token for m in MEMBERS)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return output.decode().splitlines()


async def health_seconds(url: str, ended: asyncio.Event) -> list[float]:
    taken = []
    async with aiohttp.ClientSession() as client:
        while not ended.is_set():
            began = time.monotonic()
            async with client.get(url + "/health") as response:
                assert response.status == 200
            taken.append(time.monotonic() - began)
            await asyncio.sleep(0.005)
    return sorted(taken)


@pytest.mark.stress
async def test_twenty_large_uploads_at_once_leave_memory_flat_and_health_quick(
    postgres: TestServer, open_dir: Path
) -> None:
    async with fresh_database(postgres) as connect:
        with served(open_dir, connect, MEMBERS) as service:
            for member in MEMBERS:  # what is made once, is made
                assert send(service.port, member.token, form("first.bin", b"x")) == b"HTTP/1.1 200 OK\r\n"
            Path(f"/proc/{service.process.pid}/clear_refs").write_text("5")  # the peak counts from now on
            before = memory_mib(service, "VmRSS")
            ended = asyncio.Event()
            health = asyncio.create_task(health_seconds(f"http://127.0.0.1:{service.port}", ended))
            answers = await flooded(service)
            ended.set()
            taken = await health
            assert answers == ["HTTP/1.1 200 OK"] * len(MEMBERS) * AT_ONCE
            assert memory_mib(service, "VmHWM") - before < GROWTH_MIB
            assert taken[len(taken) * 99 // 100] < HEALTH_SECONDS
            for member in MEMBERS:
                assert [(service.public(member) / f"{n}.bin").stat().st_size for n in range(AT_ONCE)] == [
                    SIZE
                ] * AT_ONCE


@pytest.mark.stress
async def test_a_form_of_twenty_thousand_parts_is_refused_at_once(
    postgres: TestServer, open_dir: Path
) -> None:
    body = b'--bbbb\r\nContent-Disposition: form-data; name="x"\r\n\r\n\r\n' * 20_000
    async with fresh_database(postgres) as connect:
        with served(open_dir, connect, MEMBERS) as service:
            began = time.monotonic()
            assert send(service.port, MEMBERS[0].token, body) == b"HTTP/1.1 400 Bad Request\r\n"
            assert time.monotonic() - began < REFUSAL_SECONDS
