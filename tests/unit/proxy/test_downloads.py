"""Validators, ranges, types and headers of a file that is sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.downloads import (
    OPAQUE,
    SNIFFED_BYTES,
    TEXT,
    Conditions,
    Plan,
    Span,
    Stamp,
    disposition,
    disposition_filename,
    headers,
    inline_type,
    parse_range,
    plan,
)
from proxy.errors import RangeNotSatisfiable

STAMP = Stamp(ino=7, size=1000, mtime_ns=1_700_000_000_900_000_000, ctime_ns=1_700_000_001_000_000_000)
MODIFIED = "Tue, 14 Nov 2023 22:13:20 GMT"
WHOLE = Plan(200, Span(0, 1000))


def test_the_etag_is_strong_and_moves_with_every_part_of_the_stamp() -> None:
    others = [STAMP._replace(**{name: getattr(STAMP, name) + 1}) for name in STAMP._fields]
    assert len({STAMP.etag, *(other.etag for other in others)}) == 5
    assert STAMP.etag.startswith('"')
    assert STAMP.etag.endswith('"')


def test_last_modified_is_an_http_date_of_whole_seconds() -> None:
    assert STAMP.last_modified == MODIFIED


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (Conditions(), 200),
        (Conditions(if_none_match=STAMP.etag), 304),
        (Conditions(if_none_match=f'"x", W/{STAMP.etag}'), 304),
        (Conditions(if_none_match="*"), 304),
        (Conditions(if_none_match='"x"'), 200),
        (Conditions(if_none_match='"x"', if_modified_since=MODIFIED), 200),
        (Conditions(if_modified_since=MODIFIED), 304),
        (Conditions(if_modified_since="Tue, 14 Nov 2023 22:13:19 GMT"), 200),
        (Conditions(if_modified_since="yesterday"), 200),
        (Conditions(if_none_match=STAMP.etag, range="bytes=0-1"), 304),
        (Conditions(range="bytes=0-1"), 206),
        (Conditions(range="bytes=0-1", if_range=STAMP.etag), 206),
        (Conditions(range="bytes=0-1", if_range=f"W/{STAMP.etag}"), 200),
        (Conditions(range="bytes=0-1", if_range='"x"'), 200),
        (Conditions(range="bytes=0-1", if_range=MODIFIED), 200),
        (Conditions(range="bytes=5000-", if_range='"x"'), 200),
    ],
)
def test_conditions_decide_the_status(asked: Conditions, status: int) -> None:
    assert plan(STAMP, asked).status == status


def test_a_plan_names_the_bytes_to_send() -> None:
    assert plan(STAMP, Conditions()) == WHOLE
    assert plan(STAMP, Conditions(range="bytes=10-19")) == Plan(206, Span(10, 20))
    assert plan(STAMP, Conditions(if_none_match="*")) == Plan(304, Span(0, 0))


@pytest.mark.parametrize(
    ("header", "span"),
    [
        ("bytes=0-0", Span(0, 1)),
        ("bytes=0-", Span(0, 1000)),
        ("Bytes=990-5000", Span(990, 1000)),
        ("bytes=-10", Span(990, 1000)),
        ("bytes=-5000", Span(0, 1000)),
        ("bytes=999-999999999999999999", Span(999, 1000)),
        ("bytes=0-1,5-6", None),
        ("bytes=5-4", None),
        ("bytes=-", None),
        ("bytes=", None),
        ("bytes=a-b", None),
        ("bytes=٣-", None),
        ("lines=0-1", None),
        ("bytes=0-" + "9" * 5000, None),
    ],
)
def test_a_range_is_one_span_or_void(header: str, span: Span | None) -> None:
    assert parse_range(header, 1000) == span


@pytest.mark.parametrize(("header", "size"), [("bytes=1000-", 1000), ("bytes=-0", 1000), ("bytes=0-", 0)])
def test_a_range_beyond_the_end_is_not_satisfiable(header: str, size: int) -> None:
    with pytest.raises(RangeNotSatisfiable) as caught:
        parse_range(header, size)
    assert caught.value.size == size


@given(st.text(max_size=30), st.integers(0, 100))
def test_any_range_header_gives_bytes_within_the_file_or_none(raw: str, size: int) -> None:
    for header in (raw, "bytes=" + raw):
        try:
            span = parse_range(header, size)
        except RangeNotSatisfiable:
            continue
        assert span is None or 0 <= span.start < span.stop <= size


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("a b.pdf", "attachment; filename=\"a b.pdf\"; filename*=UTF-8''a%20b.pdf"),
        ('we"ird;name.txt', "attachment; filename=\"we_ird_name.txt\"; filename*=UTF-8''we%22ird%3Bname.txt"),
        ("é\\.pdf", "attachment; filename=\"__.pdf\"; filename*=UTF-8''%C3%A9%5C.pdf"),
        ("a\r\nX: y", "attachment; filename=\"a__X_ y\"; filename*=UTF-8''a%0D%0AX%3A%20y"),
        ("\udcff.pdf", "attachment; filename=\"_.pdf\"; filename*=UTF-8''%EF%BF%BD.pdf"),
        ("50%20.txt", "attachment; filename=\"50_20.txt\"; filename*=UTF-8''50%2520.txt"),
    ],
)
def test_a_disposition_carries_any_name_safely(name: str, header: str) -> None:
    assert disposition("attachment", name) == header


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50))
def test_a_disposition_is_ascii_and_gives_its_name_back(name: str) -> None:
    header = disposition("attachment", name)
    assert header.isascii()
    assert header.isprintable()
    assert disposition_filename(header) == name


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("attachment; filename=a.pdf", "a.pdf"),
        ('attachment; FILENAME="a\\"b.pdf"', 'a"b.pdf'),
        ("attachment; filename=a.pdf; filename*=UTF-8'en'%e2%82%ac.pdf", "€.pdf"),
        ("attachment; filename*=iso-8859-1''%e9.pdf", "é.pdf"),
        ("attachment; filename=a.pdf; filename*=koi8-r''%e9.pdf", "a.pdf"),
        ("attachment; filename*=UTF-8''%ff", "\ufffd"),
        ('attachment; filename=""', None),
        ("attachment", None),
        ("", None),
        ('attachment; filename="a', None),
    ],
)
def test_a_senders_disposition_gives_its_name(header: str, name: str | None) -> None:
    assert disposition_filename(header) == name


@pytest.mark.parametrize(
    ("name", "first_bytes", "shown_as"),
    [
        ("a.png", b"\x89PNG\r\n\x1a\n....", "image/png"),
        ("a.JPEG", b"\xff\xd8\xff\xe0", "image/jpeg"),
        ("a.gif", b"GIF89a", "image/gif"),
        ("a.webp", b"RIFF\n\0\0\0WEBPVP8 ", "image/webp"),
        ("a.bmp", b"BM\x0a\0\0\0\0\0\0\0", "image/bmp"),
        ("a.avif", b"\0\0\0\x20ftypavif", "image/avif"),
        ("a.pdf", b"%PDF-1.7", "application/pdf"),
        ("a.png", b"GIF89a", None),
        ("a.png", b"<script>", None),
        ("a.pdf", b"<html>", None),
        ("a.txt", b"\x89PNG\r\n\x1a\n", None),
        ("a.txt", b"plain\r\n\ttext \x1b[1m", TEXT),
        ("a.html", b"<script>alert(1)</script>", TEXT),
        ("a.svg", b"<svg onload='x'/>", TEXT),
        ("Makefile", b"all:\n", TEXT),
        ("a.txt", "relatório".encode(), TEXT),
        ("a.txt", b"", TEXT),
        ("a.txt", b"a\0b", None),
        ("a.txt", "relatório".encode("cp1252"), None),
        ("a.txt", b"a" * (SNIFFED_BYTES - 1) + "é".encode()[:1], TEXT),
        ("a.txt", b"a\xc3", None),
    ],
)
def test_only_images_pdf_and_text_are_shown(name: str, first_bytes: bytes, shown_as: str | None) -> None:
    assert inline_type(name, first_bytes) == shown_as


def test_a_saved_file_has_no_type_of_its_own() -> None:
    sent = headers("a.js", STAMP, WHOLE, None)
    assert sent == {
        "Content-Type": OPAQUE,
        "Content-Disposition": "attachment; filename=\"a.js\"; filename*=UTF-8''a.js",
        "Content-Length": "1000",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "private, no-cache",
        "Accept-Ranges": "bytes",
        "ETag": STAMP.etag,
        "Last-Modified": MODIFIED,
    }


def test_a_shown_part_says_its_type_and_place() -> None:
    sent = headers("a.png", STAMP, Plan(206, Span(10, 20)), "image/png")
    assert sent["Content-Type"] == "image/png"
    assert sent["Content-Disposition"].startswith("inline; ")
    assert sent["Content-Range"] == "bytes 10-19/1000"
    assert sent["Content-Length"] == "10"
    assert sent["Content-Security-Policy"] == "sandbox; default-src 'none'"


def test_not_modified_carries_validators_and_protection_but_no_content_headers() -> None:
    sent = headers("a.png", STAMP, Plan(304, Span(0, 0)), None)
    assert sent["ETag"] == STAMP.etag
    assert "X-Content-Type-Options" in sent
    assert not {"Content-Type", "Content-Length", "Content-Disposition"} & set(sent)
