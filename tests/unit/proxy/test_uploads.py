"""The limits on a body and on a member, each at its border."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import StreamReader, web
from aiohttp.base_protocol import BaseProtocol

from proxy import uploads
from proxy.errors import BodyTimeout, BodyTooLarge, FileTooLarge, MalformedBody, TooManyUploads
from proxy.settings import MediaSettings
from proxy.uploads import (
    FRAMING_BYTES,
    READ_BYTES,
    Body,
    Uploads,
    check_declared_length,
    parse_folder,
    too_slow,
)
from workspace.errors import InvalidName, InvalidPath, ManagedBySystem

MEDIA = MediaSettings(max_bytes=1000, idle_timeout=0.05)
LIMIT = 1000 + FRAMING_BYTES


async def stream(*pieces: bytes, end: bool = True) -> StreamReader:
    protocol = BaseProtocol(asyncio.get_running_loop())
    protocol.transport = asyncio.Transport()  # a reader asks only whether there is one
    reader = StreamReader(protocol, READ_BYTES)
    for piece in pieces:
        reader.feed_data(piece)
    if end:
        reader.feed_eof()
    return reader


async def test_a_body_is_read_in_bounded_pieces_to_its_end() -> None:
    body = Body(await stream(b"a" * READ_BYTES + b"b"), MEDIA, 2 * READ_BYTES)
    assert [len(await body.read()) for _ in range(3)] == [READ_BYTES, 1, 0]


async def test_exactly_the_limit_passes_and_one_byte_more_is_refused() -> None:
    body = Body(await stream(b"a" * LIMIT), MEDIA, LIMIT)
    assert len(await body.read()) == LIMIT
    body = Body(await stream(b"a" * LIMIT, b"b"), MEDIA, LIMIT)
    with pytest.raises(BodyTooLarge) as caught:
        await body.read()
    assert caught.value.limit == LIMIT


async def test_a_body_that_stalls_is_timed_out() -> None:
    body = Body(await stream(b"a", end=False), MEDIA, LIMIT)
    assert await body.read() == b"a"
    with pytest.raises(BodyTimeout) as caught:
        await body.read()
    assert caught.value.seconds == 0.05


@pytest.mark.parametrize("problem", [ConnectionResetError(), web.RequestPayloadError()])
async def test_a_body_that_is_cut_is_malformed(problem: Exception) -> None:
    reader = await stream(b"a", end=False)
    body = Body(reader, MEDIA, LIMIT)
    reader.set_exception(problem)
    with pytest.raises(MalformedBody):
        await body.read()


@pytest.mark.parametrize(
    ("received", "waited", "slow"),
    [
        (0, 30.0, False),
        (30_719, 30.01, True),
        (31_000, 30.01, False),
        (1024 * 100, 100, False),
        (0, 31, True),
    ],
)
def test_the_average_rate_counts_after_a_grace(received: int, waited: float, slow: bool) -> None:
    assert too_slow(received, waited, 1024) is slow


async def test_a_body_that_creeps_is_timed_out_once_the_grace_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    creeping = MediaSettings(min_rate=10**15)
    assert await Body(await stream(b"a"), creeping, LIMIT).read() == b"a"
    monkeypatch.setattr(uploads, "RATE_GRACE", 0.0)
    with pytest.raises(BodyTimeout):
        await Body(await stream(b"a"), creeping, LIMIT).read()


def test_no_rate_is_asked_for_when_it_is_zero() -> None:
    assert not too_slow(0, 1e6, 0)


@pytest.mark.parametrize("length", [None, 0, LIMIT])
def test_a_length_that_may_fit_passes(length: int | None) -> None:
    check_declared_length(length, MEDIA)


def test_a_length_that_cannot_fit_is_refused() -> None:
    with pytest.raises(FileTooLarge) as caught:
        check_declared_length(LIMIT + 1, MEDIA)
    assert caught.value.limit == 1000


def test_a_member_has_so_many_slots_and_gets_them_back(tmp_path: Path) -> None:
    shared = Uploads(MEDIA, 2, tmp_path, lambda place: place.workspace.prepare())
    with shared.slot("ana"), shared.slot("ana"):
        with shared.slot("bo"), pytest.raises(TooManyUploads) as caught, shared.slot("ana"):
            pass
        assert caught.value.limit == 2
    with pytest.raises(ZeroDivisionError), shared.slot("ana"), shared.slot("ana"):
        raise ZeroDivisionError
    with shared.slot("ana"), shared.slot("ana"):
        pass
    shared.close()


@pytest.mark.parametrize(
    ("raw", "segments"),
    [
        ("", ()),
        ("public", ()),
        ("public/reports/2026/", ("reports", "2026")),
        ("uploads/reports", ("reports",)),
        ("public/uploads", ("uploads",)),
        ("reports/attachments", ("reports", "attachments")),
        ("public/uploads/attachments", ("uploads", "attachments")),
    ],
)
def test_a_folder_is_clean_segments_below_public(raw: str, segments: tuple[str, ...]) -> None:
    assert parse_folder(raw).segments == segments


@pytest.mark.parametrize("raw", ["attachments", "public/Attachments/x", "uploads/attachments"])
def test_the_deliveries_folder_takes_no_uploads(raw: str) -> None:
    with pytest.raises(ManagedBySystem):
        parse_folder(raw)


def test_an_unclean_folder_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InvalidName) as caught:
        parse_folder("ok/my reports")
    assert (caught.value.name, caught.value.suggestion) == ("my reports", "my_reports")


@pytest.mark.parametrize("raw", ["..", "a/../b", "/etc", "a//b", "a\0b"])
def test_a_folder_outside_is_no_path(raw: str) -> None:
    with pytest.raises(InvalidPath):
        parse_folder(raw)
