"""The small decisions of the embedded server that need no server."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rag.embedded import launch
from rag.embedded.client import fits
from rag.embedded.directory import ServerUser, give_contents, refusal_error
from rag.embedded.server import LINE_LIMIT, LogPipe
from rag.errors import EmbeddedFailed, EmbeddedUnavailable, StoreDirectoryUnusable


async def test_the_log_is_cut_into_lines_wherever_the_reads_fall() -> None:
    text = "one\nzwei ü\n\nlast".encode()
    for cut in range(len(text) + 1):
        lines: list[str] = []
        pipe = LogPipe(lines.append)
        pipe.data_received(text[:cut])
        pipe.data_received(text[cut:])
        pipe.connection_lost(None)
        assert lines == ["one", "zwei ü", "", "last"]
        assert pipe.closed.done()


async def test_a_line_without_end_is_kept_to_its_limit() -> None:
    lines: list[str] = []
    pipe = LogPipe(lines.append)
    for _ in range(100):
        pipe.data_received(b"x" * LINE_LIMIT)
    pipe.data_received(b"\nnext\n")
    assert lines == ["x" * LINE_LIMIT, "next"]


def test_a_socket_path_of_107_bytes_fits_and_108_does_not() -> None:
    name = len(launch.SOCKET) + 2  # the two slashes
    assert fits(Path("/" + "d" * (107 - name)))
    assert not fits(Path("/" + "d" * (108 - name)))
    assert not fits(Path("/" + "ü" * 54))


def test_a_refused_namespace_says_what_would_help() -> None:
    report = launch.REPORT + json.dumps({"kind": "namespace", "detail": "Operation not permitted"})
    error = refusal_error("start", ["before", report])
    assert isinstance(error, EmbeddedUnavailable)
    assert "Operation not permitted" in error.reason
    assert "/etc/passwd" in error.reason


def test_a_full_disk_is_told_without_the_path() -> None:
    error = refusal_error("initdb", ['could not write to file "/srv/x/pg/base/1": No space left on device'])
    assert isinstance(error, StoreDirectoryUnusable)
    assert (error.part, error.problem) == ("pg", "No space left on device")


def test_what_is_not_known_points_at_the_log() -> None:
    error = refusal_error("roles", ["FATAL:  something in /srv/x"])
    assert isinstance(error, EmbeddedFailed)
    assert (error.step, error.reason) == ("roles", "the log says why")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: changes owners")
def test_a_file_with_a_second_name_or_another_owner_is_not_given_to_the_server(tmp_path: Path) -> None:
    foreign, tree = tmp_path / "foreign", tmp_path / "tree"
    (tree / "base").mkdir(parents=True)
    for name in (foreign, tree / "base" / "1"):
        name.write_text("")
        os.chown(name, 42101, 42101)
    user = ServerUser(42102, 42102, 0, "")
    give_contents(tree, 42101, user)
    assert ((tree / "base" / "1").stat().st_uid, (tree / "base").stat().st_uid, tree.stat().st_uid) == (
        42102,
        42102,
        0,
    )
    (tree / "base" / "1").unlink()
    (tree / "base" / "2").hardlink_to(foreign)
    with pytest.raises(EmbeddedFailed):
        give_contents(tree, 42101, user)
    assert foreign.stat().st_uid == 42101
    (tree / "base" / "2").unlink()
    (tree / "base" / "3").write_text("root's")
    with pytest.raises(EmbeddedFailed):
        give_contents(tree, 42101, user)
    assert (tree / "base" / "3").stat().st_uid == 0
