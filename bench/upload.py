"""What an upload costs, against a bare handler that reads the same bytes and drops them, and nginx that stores them.

    python -m bench.upload [--quick]

Servers, senders and this program are processes of their own; all servers take turns in one run, and each figure is
the median of the rounds. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.processes import Program, cpu_seconds, rss_mib, running

NGINX = Path("/usr/sbin/nginx")
BOUNDARY = b"------------------------d74496d66958873e"  # as long as curl's
SIZES = {"10 MiB": 10 * 1024 * 1024, "64 KiB": 64 * 1024}
AT_ONCE = (1, 20)
MEMBERS = 5  # each has so many uploads at once that the service would allow them
PARTS = 20_000
PROBE_SECONDS = 0.005
START_SECONDS = 20

CONFIG = """
daemon off; master_process off; worker_processes 1; error_log stderr; pid {directory}/pid;
events {{}}
http {{
  access_log off; client_max_body_size 20m; client_body_temp_path {directory}/bodies;
  client_body_in_file_only clean; client_body_buffer_size 256k;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://unix:{directory}/inner;
      proxy_pass_request_body off; proxy_set_header Content-Length "";
    }}
  }}
  server {{ listen unix:{directory}/inner; location / {{ return 200; }} }}
}}
"""


@dataclass(frozen=True)
class Server:
    """`order` is the form's: the file behind all fields, or alone, as `curl -F file=@x` sends it."""

    name: str
    port: int
    pid: int
    order: str = "fields first"


def form(name: str, content: bytes, order: str) -> list[bytes]:
    """The body, in pieces."""
    head = b"--" + BOUNDARY + b'\r\nContent-Disposition: form-data; name="'
    fields = b"".join(head + field + b'"\r\n\r\n\r\n' for field in (b"agent", b"project", b"folder"))
    file = head + b'file"; filename="' + name.encode() + b'"\r\n\r\n'
    begin = fields + file if order == "fields first" else file
    return [begin, content, b"\r\n--" + BOUNDARY + b"--\r\n"]


async def post(port: int, member: str, pieces: list[bytes]) -> tuple[float, bytes]:
    """Seconds from the first byte sent to the answer's headers, and its status line."""
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, ("127.0.0.1", port))
        lines = (
            f"POST /{member} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n"
            f"Content-Type: multipart/form-data; boundary={BOUNDARY.decode()}\r\n"
            f"Content-Length: {sum(map(len, pieces))}\r\n\r\n"
        )
        began = time.perf_counter()
        answer = b""
        try:
            for piece in (lines.encode(), *pieces):
                await loop.sock_sendall(connection, piece)
        except ConnectionError:
            pass  # it was refused before its end: the answer says so
        while b"\r\n\r\n" not in answer and (data := await loop.sock_recv(connection, 65536)):
            answer += data
        return time.perf_counter() - began, answer.partition(b"\r\n")[0]


def send(server: Server, size: int, at_once: int, first_name: int) -> float:
    """Seconds in which so many uploads at once are done. Runs in a process of its own."""
    content = os.urandom(size)

    async def all_of_them() -> float:
        began = time.perf_counter()
        answers = await asyncio.gather(
            *(
                post(server.port, f"m{n % MEMBERS}", form(f"{first_name + n}.txt", content, server.order))
                for n in range(at_once)
            )
        )
        assert all(b" 200 " in status for _, status in answers), answers
        return time.perf_counter() - began

    return asyncio.run(all_of_them())


def send_parts(server: Server) -> float:
    """Seconds until a form of 20 000 empty parts is refused."""
    part = b"--" + BOUNDARY + b'\r\nContent-Disposition: form-data; name="x"\r\n\r\n\r\n'
    return asyncio.run(post(server.port, "m0", [part * PARTS]))[0]


async def probe(server: Server, ended: asyncio.Event) -> list[float]:
    """Seconds that /health took, again and again on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    taken = []
    while not ended.is_set():
        began = time.perf_counter()
        writer.write(b"GET /health HTTP/1.1\r\nHost: bench\r\n\r\n")
        await reader.readuntil(b"\r\n\r\nok")
        taken.append(time.perf_counter() - began)
        await asyncio.sleep(PROBE_SECONDS)
    writer.close()
    return taken


@asynccontextmanager
async def servers(directory: Path) -> AsyncIterator[list[Server]]:
    """All of them, the bare one first."""
    async with AsyncExitStack() as stack:

        async def start(kind: str) -> Program:
            place = directory / kind
            place.mkdir(mode=0o755)
            command = [sys.executable, "-m", "bench.upload_server", kind, str(place)]
            program = running(command, ready="ready", log=directory / f"{kind}.log", seconds=START_SECONDS)
            return await stack.enter_async_context(program)

        found = []
        for kind, name in (("bare", "bare handler"), ("hasty", "isthmus, no fsync"), ("isthmus", "isthmus")):
            program = await start(kind)
            orders = ("fields first",) if kind == "bare" else ("fields first", "file alone")
            found += [Server(name, int(program.said), program.pid, order) for order in orders]
        if NGINX.exists():
            found.append(await stack.enter_async_context(_nginx(directory / "nginx")))
        else:
            print("no nginx on this machine: its lines are left out")
        yield found


@asynccontextmanager
async def _nginx(directory: Path) -> AsyncIterator[Server]:
    directory.mkdir(mode=0o755)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (directory / "conf").write_text(CONFIG.format(directory=directory, port=port))
    process = await asyncio.create_subprocess_exec(
        NGINX, "-p", directory, "-c", directory / "conf", stderr=asyncio.subprocess.DEVNULL
    )
    try:
        for _ in range(100):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                break
        yield Server("nginx, stored", port, process.pid)
    finally:
        process.terminate()
        await process.wait()


def clear(directory: Path) -> None:
    """Remove what was uploaded: the disk is not what is measured."""
    for file in directory.glob("*/m*/workspace/public/*.txt"):
        file.unlink()


async def throughput(directory: Path, found: list[Server], loads: Executor, rounds: int) -> None:
    loop = asyncio.get_running_loop()
    for title, size in SIZES.items():
        for at_once in AT_ONCE:
            taken: dict[Server, list[float]] = {server: [] for server in found}
            for number in range(rounds + 1):  # the first makes the workspaces, and is not counted
                for server in found:
                    seconds = await loop.run_in_executor(loads, send, server, size, at_once, number * 100)
                    taken[server] += [seconds] if number else []
                    clear(directory)
            base = statistics.median(taken[found[0]])
            print(f"\n{at_once} x {title}")
            for server, figures in taken.items():
                median = statistics.median(figures)
                rate = size * at_once / median / 2**20
                print(
                    f"  {server.name:20}{server.order:14}{median * 1000:8.1f} ms "
                    f"{rate:7.0f} MiB/s {base / median:6.0%} of bare"
                )


async def under_load(server: Server, directory: Path, loads: Executor, rounds: int) -> None:
    """Memory, the processor and /health while 20 uploads of 10 MiB run, again and again."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    await loop.run_in_executor(loads, send, server, SIZES["10 MiB"], 1, 0)
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # the peak is counted from now on
    before, spent = rss_mib(server.pid), cpu_seconds(server.pid)
    prober = asyncio.create_task(probe(server, ended))
    for number in range(rounds):
        await loop.run_in_executor(loads, send, server, SIZES["10 MiB"], 20, number * 100)
        clear(directory)
    ended.set()
    taken = sorted(await prober)
    peak = rss_mib(server.pid, peak=True)
    print(
        f"  {server.name:20}{server.order:14}memory {before:.1f} -> {peak:.1f} MiB at most; "
        f"/health p50 {taken[len(taken) // 2] * 1000:.1f} p99 {taken[len(taken) * 99 // 100] * 1000:.1f} ms; "
        f"{(cpu_seconds(server.pid) - spent) / rounds / 20 * 1000:.1f} ms of CPU an upload"
    )


async def main(rounds: int) -> None:
    print(f"load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-", dir=os.environ.get("BENCH_DIR")) as name:
        directory = Path(name)
        directory.chmod(0o755)
        with ProcessPoolExecutor(1) as loads:
            async with servers(directory) as found:
                await throughput(directory, found, loads, rounds)
                print("\nwhile 20 x 10 MiB are uploaded at once")
                for server in found:
                    if server.name != "nginx, stored":
                        await under_load(server, directory, loads, max(rounds // 2, 2))
                refused = [
                    await asyncio.get_running_loop().run_in_executor(loads, send_parts, found[-2])
                    for _ in range(rounds)
                ]
                print(f"\na body of {PARTS} parts is refused in {statistics.median(refused) * 1000:.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rounds")
    asyncio.run(main(5 if parser.parse_args().quick else 25))
