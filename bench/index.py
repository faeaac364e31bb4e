"""How good and how fast the index is, measured through the store on an embedded PostgreSQL.

    python -m bench.index DATA_DIRECTORY    quality: *.json in SQuAD 1.1 layout, nDCG@10, R@1, R@5; then speed
    python -m bench.index                   speed alone

Each distinct paragraph of a set is one file of a project; the gold hit of a question is its own paragraph.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import sys
import sysconfig
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import asyncpg

from rag.ingest import AttachedFile, FolderUpload
from rag.model import FileOrigin
from rag.pool import open_pool
from rag.search import Searcher
from rag.store import replace_local
from tests.support.folders import Limits, add_project
from tests.support.postgres import TestServer, fresh_database, session_server

LIMITS = Limits(max_files=100_000, max_bytes=1 << 30, max_chunks=1_000_000)
SMALL, LARGE = 5_000, 50_000  # chunks


async def attach(pool: asyncpg.Pool, project: str, files: Iterator[tuple[str, bytes]]) -> int:
    """Attach as a route does; the number of chunks."""
    upload = FolderUpload(LIMITS)
    for path, content in files:
        await asyncio.to_thread(upload.add, AttachedFile(path, content))
    prepared = await asyncio.to_thread(upload.prepare, project)
    return (await replace_local(pool, project, prepared, attached_by="bench")).chunks_created


async def quality(pool: asyncpg.Pool, path: Path) -> None:
    paragraphs: dict[str, int] = {}
    questions: list[tuple[str, int]] = []
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            gold = paragraphs.setdefault(paragraph["context"], len(paragraphs))
            questions += [(qa["question"], gold) for qa in paragraph["qas"]]
    project = path.stem.replace(".", "-")
    await add_project(pool, project)
    await attach(pool, project, ((f"set/{gold:04}.txt", text.encode()) for text, gold in paragraphs.items()))
    searcher = Searcher(pool)
    ranks = [await gold_rank(searcher, project, question, f"{gold:04}.txt") for question, gold in questions]
    ndcg = sum(1 / math.log2(rank + 1) for rank in ranks if rank) / len(ranks)
    recall = [sum(1 for rank in ranks if rank and rank <= cut) / len(ranks) for cut in (1, 5)]
    print(
        f"{path.stem:10}  nDCG@10 {ndcg:.4f}  R@1 {recall[0]:.3f}  R@5 {recall[1]:.3f}  ({len(ranks)} questions)"
    )


async def gold_rank(searcher: Searcher, project: str, question: str, path: str) -> int:
    """The place of the gold file among the distinct files found, from 1; 0 if it is not among the first ten."""
    result = await searcher.search(project, question[:500], limit=10)
    files = dict.fromkeys(hit.origin.source_path for hit in result.hits if isinstance(hit.origin, FileOrigin))
    return next((place for place, file in enumerate(files, start=1) if file == path), 0)


def sources(chunks: int) -> Iterator[tuple[str, bytes]]:
    """Python's own library as a folder of about so many chunks, repeated under other names as often as needed."""
    budget = chunks * 1080
    root = Path(sysconfig.get_path("stdlib"))
    files = [path for path in sorted(root.rglob("*.py")) if path.stat().st_size < 500_000]
    for copy in range(100):
        for path in files:
            if "site-packages" in path.parts:
                continue
            budget -= path.stat().st_size
            if budget < 0:
                return
            yield f"stdlib/copy{copy}/{path.relative_to(root)}", path.read_bytes()


async def speed(pool: asyncpg.Pool, chunks: int) -> None:
    project = f"speed-{chunks}"
    await add_project(pool, project)
    files = list(sources(chunks))
    searcher = Searcher(pool)
    lag = asyncio.create_task(longest_pause())
    started = time.perf_counter()
    stored = await attach(pool, project, iter(files))
    attached = time.perf_counter()
    await searcher.search(project, "how is a socket closed")
    print(
        f"{stored} chunks: attached {attached - started:.2f} s, first search {time.perf_counter() - attached:.2f} s"
    )
    rng = random.Random(7)
    words = sorted({word for _, content in files[:200] for word in content.decode("utf-8", "ignore").split()})
    queries = [" ".join(rng.choices(words, k=rng.randint(2, 8)))[:500] for _ in range(200)]
    seconds = sorted([await timed(lambda query=query: searcher.search(project, query)) for query in queries])
    lag.cancel()
    print(
        f"  search p50 {seconds[100] * 1000:.1f} ms, p95 {seconds[190] * 1000:.1f} ms, max {seconds[-1] * 1000:.1f} ms"
    )
    pauses = await asyncio.gather(lag, return_exceptions=True)
    print(f"  longest pause of the event loop {pauses[0] * 1000:.1f} ms")


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await call()
    return time.perf_counter() - started


async def longest_pause() -> float:
    """Until it is cancelled: by how much the loop was late to wake a sleeper of 5 ms, at worst; in seconds."""
    worst = 0.0
    try:
        while True:
            worst = max(worst, await timed(lambda: asyncio.sleep(0.005)) - 0.005)
    except asyncio.CancelledError:
        return worst


async def main(server: TestServer, data: Path | None) -> None:
    async with fresh_database(server) as connect:
        pool = await open_pool(connect)
        for path in sorted(data.glob("*.json")) if data else ():
            await quality(pool, path)
        await speed(pool, SMALL)
        await speed(pool, LARGE)
        await pool.close()


if __name__ == "__main__":
    with session_server() as running:
        asyncio.run(main(running, Path(sys.argv[1]) if len(sys.argv) > 1 else None))
