"""What the way through Isthmus costs a stream, against the same agent reached straight by its WebSocket.

    python -m bench.relay [--quick]

The service, the agent and the load are processes of their own; the agent stamps every frame with the time at
which it is sent. Both ways take turns in one run. Run it on an idle machine: the figures are about latency.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.pico_agent import Order
from bench.processes import Program, cpu_seconds, family, pss_mib, rss_mib, running
from bench.streams import STAMP, TURNS_PER_MEMBER, WAYS, Paths, Reader, Reading, Way, in_turn, load, together
from proxy.identity import token_digest

AGENT_UID = 42_100 if os.geteuid() == 0 else os.geteuid()
AGENT_GID = 42_100 if os.geteuid() == 0 else os.getegid()
START_SECONDS = 60
IDLE_STREAMS = 1000
PROBE = IDLE_STREAMS  # the number of the stream that probes beside others
MEMBERS = IDLE_STREAMS // TURNS_PER_MEMBER + 1
PACE = 0.2  # seconds between the frames of a stream that is read at leisure
RAMP = 2.0  # seconds over which a load begins
PROBE_SECONDS = 0.1  # at most, for a probe of each way
IDLE_SECONDS = 5
FAST_ROUNDS = 5


@dataclass(frozen=True)
class Size:
    """How often each thing is done."""

    probes: int
    rounds: int
    paced_frames: int
    fast_frames: int


FULL = Size(probes=300, rounds=20, paced_frames=100, fast_frames=20_000)
QUICK = Size(probes=60, rounds=4, paced_frames=30, fast_frames=4_000)


@dataclass(frozen=True)
class Bench:
    """The running programs and a client of theirs."""

    service: Program
    paths: Paths
    reader: Reader
    loads: Executor
    size: Size

    async def load(self, way: Way, streams: int, order: Order, spread: float = 0.0) -> list[Reading]:
        return await asyncio.get_running_loop().run_in_executor(
            self.loads, load, self.paths, way, range(streams), order, spread
        )

    async def first(self, way: Way, number: int) -> float:
        return (await self.reader.read(way, number, Order())).first


@asynccontextmanager
async def bench(size: Size) -> AsyncIterator[Bench]:
    """Service and agent, started afresh, with a store of their own."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="isthmus-bench-")))
        directory.chmod(0o755)
        agent = await stack.enter_async_context(
            running(
                [sys.executable, "-m", "bench.pico_agent"],
                ready="listening",
                log=directory / "agent.log",
                seconds=START_SECONDS,
            )
        )
        tokens = tuple(f"{number:040}" for number in range(MEMBERS))
        config = directory / "config.toml"
        config.write_text(configuration(directory / "data", agent.said, tokens), encoding="utf-8")
        service = await stack.enter_async_context(
            running(
                [sys.executable, "-m", "proxy", "serve", "-c", str(config)],
                ready="ready",
                log=directory / "service.log",
                seconds=START_SECONDS,
            )
        )
        spawn = multiprocessing.get_context("spawn")
        loads = stack.enter_context(ProcessPoolExecutor(1, mp_context=spawn))
        paths = Paths(service.said, agent.said, tokens)
        yield Bench(service, paths, await stack.enter_async_context(Reader(paths)), loads, size)


def configuration(data: Path, agent_url: str, tokens: tuple[str, ...]) -> str:
    """Everything as it is by default but for the bounds on how many turns there may be."""
    members = ", ".join(
        f'{{member = "member-{number}", sha256 = "{token_digest(token)}"}}'
        for number, token in enumerate(tokens)
    )
    return f"""
server = {{port = 0, drain_timeout = 0}}
store = {{data_dir = {json.dumps(str(data))}}}
chat = {{max_turns = {MEMBERS * TURNS_PER_MEMBER}}}
limits = {{turns_per_minute = 0}}
auth = {{tokens = [{members}]}}
[[agents]]
key = "bench"
url = "{agent_url.replace("http", "ws", 1)}/{{member}}/pico/ws"
uid = {AGENT_UID}
gid = {AGENT_GID}
"""


def milliseconds(figures: list[float]) -> str:
    ordered = sorted(figures)
    p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return f"p50 {p50 * 1000:7.2f}  p99 {p99 * 1000:7.2f}"


def median(figures: list[float]) -> float:
    return sorted(figures)[len(figures) // 2]


def row(what: str, straight: list[float], through: list[float]) -> None:
    """One line of the table. What is added is the difference of the medians, and of the 99th percentiles."""
    added = [
        sorted(through)[len(through) * part // 100] - sorted(straight)[len(straight) * part // 100]
        for part in (50, 99)
    ]
    print(
        f"{what:46} {milliseconds(straight)}   {milliseconds(through)}   "
        f"{added[0] * 1000:+7.2f} {added[1] * 1000:+8.2f}   {median(through) / median(straight):5.1f} x",
        flush=True,
    )


def note(what: str, figure: str) -> None:
    """A line that belongs to the one above."""
    print(f"  {what:44} {figure}", flush=True)


async def first_frames(bench: Bench) -> None:
    """From the request to the harness's first content frame: alone, and with others that begin with it."""
    async with bench.reader.open_socket() as socket:

        async def on_open_socket() -> float:
            reading = Reading()
            await bench.reader.converse(socket, Order(hold=True), reading)
            return reading.first

        straight, kept, through = await in_turn(
            bench.size.probes,
            lambda: bench.first("straight", PROBE),
            on_open_socket,
            lambda: bench.first("through", PROBE),
        )
    row("first frame, one stream", straight, through)
    row("  against a socket that is already open", kept, through)
    for streams in (20, 100):
        taken: dict[Way, list[float]] = {"straight": [], "through": []}
        before = cpu_seconds(bench.service.pid)
        for _ in range(bench.size.rounds):
            for way, figures in taken.items():
                readings = await together(bench.reader, way, range(streams), Order())
                figures += [reading.first for reading in readings]
        row(f"first frame, {streams} streams that begin at once", taken["straight"], taken["through"])
        cpu = cpu_seconds(bench.service.pid) - before
        note("CPU of the service", f"{cpu / len(taken['through']) * 1000:.1f} ms for a turn of one frame")


async def beside(bench: Bench, streams: int) -> None:
    """How old frames are that arrive at leisure, what they cost, and a new stream beside them."""
    order = Order(frames=bench.size.paced_frames, interval=PACE)
    window = order.frames * PACE / 2
    ages: dict[Way, list[float]] = {}
    for way in WAYS:
        under_load = asyncio.ensure_future(bench.load(way, streams, order, RAMP))
        await asyncio.sleep(RAMP + 1)
        before = cpu_seconds(bench.service.pid)
        await asyncio.sleep(window)
        cpu = cpu_seconds(bench.service.pid) - before
        ages[way] = [age for reading in await under_load for age in reading.ages]
    under_load = asyncio.ensure_future(bench.load("through", streams, order, RAMP))
    await asyncio.sleep(RAMP + 1)
    straight, through = await in_turn(
        int(window / PROBE_SECONDS),
        lambda: bench.first("straight", PROBE),
        lambda: bench.first("through", PROBE),
    )
    if under_load.done():
        raise RuntimeError("the load ended before the probes did")
    await under_load
    row(f"first frame, beside {streams} at 5 frames/s each", straight, through)
    row(f"age of a frame, {streams} at 5 frames/s each", ages["straight"], ages["through"])
    note("CPU of the service", f"{cpu / (streams * window / PACE) * 10_000:.2f} s for 10 000 frames")


async def fastest(bench: Bench, streams: int) -> None:
    """Frames a second when the agent sends as fast as it can: the median of some rounds."""
    order = Order(frames=bench.size.fast_frames // streams)
    frames = order.frames * streams
    speeds: dict[Way, list[float]] = {"straight": [], "through": []}
    before = cpu_seconds(bench.service.pid)
    for _ in range(FAST_ROUNDS):
        for way, figures in speeds.items():
            readings = await bench.load(way, streams, order)
            began = min(reading.began + reading.first for reading in readings)
            figures.append(frames / (max(reading.ended for reading in readings) - began))
    cpu = cpu_seconds(bench.service.pid) - before
    straight, through = median(speeds["straight"]), median(speeds["through"])
    what = f"frames a second, {streams} stream{'s' if streams > 1 else ''}"
    print(f"{what:46} straight {straight:8.0f}   through {through:8.0f}   {through / straight:5.2f} x")
    note("CPU of the service", f"{cpu / FAST_ROUNDS / frames * 10_000:.2f} s for 10 000 frames")


async def idle(bench: Bench) -> None:
    """Memory of streams that are open and silent: those of the service and of the store beside it."""
    service = bench.service.pid
    await together(bench.reader, "through", range(TURNS_PER_MEMBER), Order())
    others = [pid for pid in family(service) if pid != service]
    before, store = rss_mib(service), sum(pss_mib(pid) for pid in others)
    async with AsyncExitStack() as stack:
        for number in range(IDLE_STREAMS):
            response = await stack.enter_async_context(bench.reader.post(number, Order(hold=True)))
            while not STAMP.search(await response.content.readany()):
                pass
        after = rss_mib(service)
        others = [pid for pid in family(service) if pid != service]
        grown = sum(pss_mib(pid) for pid in others) - store
        cpu = cpu_seconds(service)
        await asyncio.sleep(IDLE_SECONDS)
        cpu = cpu_seconds(service) - cpu
    print(
        f"memory of the service: {before:.0f} MiB; with {IDLE_STREAMS} idle streams {after:.0f} MiB",
        flush=True,
    )
    note(
        "for each", f"{(after - before) / IDLE_STREAMS * 1024:.0f} KiB, and the store grew by {grown:.1f} MiB"
    )
    note("CPU of the service meanwhile", f"{cpu / IDLE_SECONDS * 100:.1f} % of one core")


async def main(size: Size) -> None:
    # Whatever else runs on the machine shows in every figure below.
    print(f"load average at the start {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores")
    print(f"{'milliseconds':46} {'straight':29} {'through Isthmus':29} {'added p50, p99':19} ratio")
    async with bench(size) as running_bench:
        # Folders are made, connections opened and code paths warm before anything is measured.
        await together(running_bench.reader, "through", range(100), Order(), spread=RAMP)
        await first_frames(running_bench)
        for streams in (20, 100):
            await beside(running_bench, streams)
        for streams in (1, 20):
            await fastest(running_bench, streams)
    async with bench(size) as fresh_bench:
        await idle(fresh_bench)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few samples, to see that it works")
    asyncio.run(main(QUICK if parser.parse_args().quick else FULL))
