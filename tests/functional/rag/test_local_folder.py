"""Attach, search, replace and detach a folder on a real store."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from rag.coverage import Coverage, coverage
from rag.errors import UnknownProject
from rag.index_cache import IndexCache
from rag.model import FileOrigin, LocalFile, Ranks, Scope, SkipReason
from rag.search import Searcher
from rag.store import detach_local, local_status, replace_local
from tests.support.folders import Limits, add_project, attach, prepare

GUIDE = "# Guide\n\n## Install\n\nRun the installer of the harbour service.\n\n## Remove\n\nDelete the directory.\n"


async def paths(searcher: Searcher, query: str, project: str = "p") -> list[str]:
    hits = (await searcher.search(project, query)).hits
    return [hit.origin.source_path for hit in hits if isinstance(hit.origin, FileOrigin)]


async def test_a_hit_says_where_it_stands(pool: asyncpg.Pool):
    report = await attach(pool, "p", {"docs2/guide.md": GUIDE, "other.txt": "nothing of interest"})
    result = await Searcher(pool).search("p", "installer harbour")
    (hit,) = result.hits
    assert hit.origin == FileOrigin("docs2/guide.md", 1, 5, ("Guide", "Install"), "Guide", "folder")
    assert (hit.scope, hit.ranks) == (Scope.LOCAL, Ranks(1, None))
    assert hit.content == "# Guide\n\n## Install\n\nRun the installer of the harbour service."
    assert hit.excerpt == hit.content
    assert result.searched[Scope.LOCAL].generation == report.generation
    assert result.searched[Scope.LOCAL].chunks == result.searched[Scope.LOCAL].without_vector == 3
    assert not result.vector.available
    assert result.vector.reason


async def test_words_are_ored_and_the_rarer_word_wins(pool: asyncpg.Pool):
    files = {f"{n}.txt": f"the local scope, part {n}" for n in range(20)} | {"x.txt": "the reindexed one"}
    await attach(pool, "p", dict(files))
    assert (await paths(Searcher(pool), "why does the local scope never get reindexed"))[0] == "x.txt"


async def test_a_path_and_a_heading_find_their_file(pool: asyncpg.Pool):
    await attach(
        pool,
        "p",
        {
            "apps/api/src/main.ts": "export {}\n",
            "apps/api/src/other.ts": "import './main'\n",
            "a.md": "# Ledger\n\nmoney\n",
            "b.md": "the ledger was mentioned among very many other things that are not of interest here\n",
        },
    )
    searcher = Searcher(pool)
    assert (await paths(searcher, "main.ts"))[0] == "apps/api/src/main.ts"
    assert (await paths(searcher, "ledger"))[0] == "a.md"


async def test_the_same_text_in_six_encodings_has_the_same_hits(pool: asyncpg.Pool):
    text = "A migração do banco começou às nove\n"
    encoded = {
        "utf8.txt": text.encode(),
        "bom.txt": b"\xef\xbb\xbf" + text.encode(),
        "le.txt": text.encode("utf-16-le"),
        "be.txt": b"\xfe\xff" + text.encode("utf-16-be"),
        "cp.txt": text.encode("cp1252"),
        "crlf.txt": text.replace("\n", "\r\n").encode(),
    }
    await attach(pool, "p", dict(encoded))
    hits = (await Searcher(pool).search("p", "migracao", per_source=None)).hits
    assert len(hits) == 6
    assert {hit.content for hit in hits} == {text.strip()}


async def test_a_second_attach_replaces_the_first_and_keeps_unchanged_ids_and_vectors(pool: asyncpg.Pool):
    await attach(pool, "p", {"same.txt": "alpha stays", "gone.txt": "beta goes"})
    await pool.execute("UPDATE chunks SET embedding = '[1,2]', embedding_model = 'm'")
    before = await pool.fetchrow("SELECT chunk_id, created_at FROM chunks WHERE source_path = 'same.txt'")
    await attach(pool, "p", {"same.txt": "alpha stays", "new.txt": "gamma comes"})
    rows = await pool.fetch(
        "SELECT source_path, chunk_id, embedding::text, created_at FROM chunks ORDER BY 1"
    )
    assert [(row["source_path"], row["embedding"]) for row in rows] == [
        ("new.txt", None),
        ("same.txt", "[1,2]"),
    ]
    assert rows[1]["chunk_id"] == before["chunk_id"]
    assert rows[1]["created_at"] > before["created_at"]
    searcher = Searcher(pool)
    assert await paths(searcher, "beta") == []
    assert await paths(searcher, "gamma alpha") == ["new.txt", "same.txt"]
    assert await pool.fetchval("SELECT count(*) FROM generations") == 1


async def test_identical_files_are_both_found_and_one_stays_when_the_other_goes(pool: asyncpg.Pool):
    await attach(pool, "p", {"a.txt": "twin text", "b.txt": "twin text"})
    assert await paths(Searcher(pool), "twin") == ["a.txt", "b.txt"]
    await attach(pool, "p", {"b.txt": "twin text"})
    assert await paths(Searcher(pool), "twin") == ["b.txt"]


async def test_searches_during_replacements_see_all_of_one_state(pool: asyncpg.Pool):
    def state(n: int) -> dict[str, str | bytes]:
        return {f"{part}.txt": f"common word in state{n} of the folder" for part in range(6)}

    await attach(pool, "p", state(0))
    searcher = Searcher(pool, IndexCache(max_bytes=1))
    replaced = asyncio.Event()

    async def replace() -> None:
        for n in range(1, 15):
            await attach(pool, "p", state(n))
        replaced.set()

    seen: set[str] = set()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(replace())
        while not replaced.is_set():
            hits = (await searcher.search("p", "common")).hits
            states = {hit.content for hit in hits}
            assert (len(hits), len(states)) == (6, 1)
            seen |= states
    assert len(seen) > 1


async def test_attaches_at_once_leave_one_whole_folder(pool: asyncpg.Pool):
    folders = [{f"{n}-{part}.txt": "text" for part in range(5)} for n in range(4)]
    await asyncio.gather(*(attach(pool, "p", dict(folder)) for folder in folders))
    stored = {row["source_path"] for row in await pool.fetch("SELECT source_path FROM chunks")}
    assert stored in [set(folder) for folder in folders]


async def test_a_failed_attach_changes_nothing(pool: asyncpg.Pool):
    await attach(pool, "p", {"a.txt": "old"})
    before = await pool.fetch("SELECT * FROM chunks")
    prepared = prepare("p", {f"{n}.txt": "new" for n in range(50)})
    backend = await pool.acquire()
    try:
        await backend.execute("BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('index of p', 0))")
        attaching = asyncio.create_task(replace_local(pool, "p", prepared, attached_by="ana"))
        while not await pool.fetchval(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        ):
            await asyncio.sleep(0.01)
        attaching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attaching
        await backend.execute("ROLLBACK")
    finally:
        await pool.release(backend)
    assert await pool.fetch("SELECT * FROM chunks") == before
    assert await pool.fetchval("SELECT count(*) FROM generations") == 1


async def test_what_an_interrupted_build_left_is_swept_and_never_found(pool: asyncpg.Pool):
    await attach(pool, "p", {"a.txt": "leftover"})
    await pool.execute("UPDATE generations SET current = false")
    assert await paths(Searcher(pool), "leftover") == []
    assert await coverage(pool, "p") == Coverage(None, 0, 0)
    await attach(pool, "p", {"b.txt": "fresh"})
    assert await pool.fetchval("SELECT count(*) FROM generations") == 1


async def test_status_and_coverage_tell_what_is_indexed_and_what_is_not(pool: asyncpg.Pool):
    token = "ghp_" + "a1B2c3D4e5" * 4
    await attach(
        pool,
        "p",
        {
            "folder/a.md": GUIDE,
            "folder/part.txt": f"{token}\n" + "prose\n" * 400,
            "folder/x.png": b"x",
            "folder/node_modules/a.js": "x",
            "folder/node_modules/b.js": "x",
        },
    )
    status = await local_status(pool, "p")
    assert status
    assert (status.folder_name, status.attached_by) == ("folder", "ana")
    assert status.files == (
        LocalFile("a.md", "indexed", None, 1, 2, 2),
        LocalFile("node_modules/", "skipped", SkipReason.IGNORED, 2, 0, 0),
        LocalFile("part.txt", "partial", SkipReason.SECRET, 1, 3, 3),
        LocalFile("x.png", "skipped", SkipReason.EXTENSION, 1, 0, 0),
    )
    told = await coverage(pool, "p")
    assert (told.chunks, told.chunks_without_vector) == (5, 5)
    assert told.local
    assert (told.local.files_indexed, told.local.partial) == (1, 1)
    assert told.local.skipped == {"ignored": 2, "extension": 1}
    assert told.local.last_attached_at == status.attached_at
    assert not await pool.fetchval("SELECT bool_or(content LIKE '%ghp_%') FROM chunks")


async def test_detach_takes_all_of_it_away(pool: asyncpg.Pool):
    await attach(pool, "p", {"a.txt": "text"})
    assert await detach_local(pool, "p") is True
    assert await detach_local(pool, "p") is False
    assert await local_status(pool, "p") is None
    assert await pool.fetchval("SELECT count(*) FROM chunks") == 0


async def test_projects_do_not_see_each_other(pool: asyncpg.Pool):
    await add_project(pool, "q")
    await attach(pool, "p", {"a.txt": "secretword of p"})
    await attach(pool, "q", {"b.txt": "something else"})
    assert await paths(Searcher(pool), "secretword", "q") == []
    assert (await coverage(pool, "q")).chunks == 1


async def test_a_project_that_is_gone(pool: asyncpg.Pool):
    with pytest.raises(UnknownProject):
        await attach(pool, "nowhere", {"a.txt": "text"})
    result = await Searcher(pool).search("nowhere", "text")
    assert (result.hits, result.searched) == ((), {})
    await attach(pool, "p", {"a.txt": "text"})
    await pool.execute("DELETE FROM projects WHERE id = 'p'")
    assert await pool.fetchval("SELECT count(*) FROM chunks") == 0


async def test_a_search_of_one_scope_leaves_the_others_out(pool: asyncpg.Pool):
    await attach(pool, "p", {"a.txt": "text"})
    result = await Searcher(pool).search("p", "text", scopes=[Scope.DOCS, Scope.SESSION])
    assert (result.hits, result.searched) == ((), {})


async def test_rows_that_contradict_their_scope_are_refused(pool: asyncpg.Pool):
    await attach(pool, "p", {"a.txt": "text"})
    for change in (
        "session_id = 's'",
        "source_path = NULL",
        "start_line = 0",
        "embedding = '[1]'",
        "scope = 'docs'",
    ):
        with pytest.raises(asyncpg.IntegrityConstraintViolationError):
            await pool.execute(f"UPDATE chunks SET {change}")


async def test_forty_thousand_distinct_words_in_one_file(pool: asyncpg.Pool):
    words = "\n".join(f"word{n}q" for n in range(40_000))
    prepared = prepare("p", {"words.txt": words}, Limits())
    await replace_local(pool, "p", prepared, attached_by="ana")
    hits = (await Searcher(pool).search("p", "word39999q")).hits
    assert "word39999q" in hits[0].excerpt
