"""The form parser: every cut gives the same parts, and every broken form is MalformedBody."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import MalformedBody, UnsupportedMediaType
from proxy.multipart_form import (
    MAX_HEADER_BYTES,
    MAX_PARTS,
    FormParser,
    PartBegan,
    PartData,
    PartEnded,
    boundary_of,
)

BOUNDARY = b"xYz"


def part(disposition: bytes, content: bytes, *more: bytes) -> bytes:
    headers = b"\r\n".join([b"Content-Disposition: " + disposition, *more])
    return b"--xYz\r\n" + headers + b"\r\n\r\n" + content + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--xYz--\r\n"


def read(*pieces: bytes) -> list[tuple[str, bytes | None, bytes]]:
    """The parts as (name, file name, content), from a body that came in these pieces."""
    parser = FormParser(BOUNDARY)
    parts: list[tuple[str, bytes | None, bytes]] = []
    content = b""
    for piece in pieces:
        for event in parser.feed(piece):
            if isinstance(event, PartBegan):
                began, content = event, b""
            elif isinstance(event, PartData):
                assert event.data
                content += event.data
            elif isinstance(event, PartEnded):
                parts.append((began.name, began.raw_filename, content))
    parser.finish()
    return parts


def filename_of(disposition: bytes) -> bytes | None:
    return read(form(part(b'form-data; name="file"; ' + disposition, b"")))[0][1]


WHOLE = b"preamble\r\n" + form(
    part(b'form-data; name="project"', b"nest"),
    part(b'form-data; name="file"; filename="a.bin"', b"\r\n--xYy\r\n--xYzz\r\n\r\n--xY", b"X: y"),
    part(b'form-data; name="empty"; filename="e"', b""),
) + b"epilogue\r\n--xYz\r\n"  # fmt: skip
PARTS = [
    ("project", None, b"nest"),
    ("file", b"a.bin", b"\r\n--xYy\r\n--xYzz\r\n\r\n--xY"),
    ("empty", b"e", b""),
]


def test_every_two_way_cut_gives_the_same_parts() -> None:
    for cut in range(len(WHOLE) + 1):
        assert read(WHOLE[:cut], WHOLE[cut:]) == PARTS


def test_byte_by_byte_gives_the_same_parts() -> None:
    assert read(*(WHOLE[i : i + 1] for i in range(len(WHOLE)))) == PARTS


@given(
    st.lists(st.sampled_from([b"\r", b"\n", b"-", b"xYz", b"--xYz", b"\r\n--xYz", b"a", b"\0"])), st.data()
)
def test_content_of_delimiter_pieces_survives_any_cuts(pieces: list[bytes], data: st.DataObject) -> None:
    content = b"".join(pieces)
    if b"\r\n--xYz\r\n" in b"\r\n" + content + b"\r\n" or b"\r\n--xYz--" in b"\r\n" + content:
        return
    body = form(part(b'form-data; name="f"; filename="f"', content))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    edges = [0, *cuts, len(body)]
    assert read(*(body[a:b] for a, b in pairwise(edges))) == [("f", b"f", content)]


@given(st.binary(max_size=400), st.integers(0, 400))
def test_any_bytes_give_parts_or_malformed_body(noise: bytes, cut: int) -> None:
    with suppress(MalformedBody):
        read(b"--xYz\r\n" + noise[:cut], noise[cut:])


def test_content_is_passed_on_at_once() -> None:
    parser = FormParser(BOUNDARY)
    parser.feed(part(b'form-data; name="f"; filename="f"', b"")[:-2])
    for _ in range(100):
        passed = sum(len(event.data) for event in parser.feed(b"z" * 4096) if isinstance(event, PartData))
        assert 4096 - 20 <= passed <= 4096


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (b'filename="a.pdf"', b"a.pdf"),
        (b"filename=a.pdf", b"a.pdf"),
        (b'FileName = "a.pdf"'.replace(b" ", b""), b"a.pdf"),
        ('filename="日本語.pdf"'.encode(), "日本語.pdf".encode()),
        (b'filename="\xff\xe9.pdf"', b"\xff\xe9.pdf"),
        (b'filename="we%22ird;name.txt"', b'we"ird;name.txt'),
        (b'filename="we\\"ird;name.txt"', b'we"ird;name.txt'),
        (b'filename="C:\\dir\\y.pdf"', b"C:\\dir\\y.pdf"),
        (b'filename="dir\\"', b"dir\\"),
        (b'filename="dir\\"; x=y', b"dir\\"),
        (b'filename="50% off.txt"', b"50% off.txt"),
        (b'filename="a%2Fb.txt"', b"a%2Fb.txt"),
        (b'filename="a%0D%0Ab%0a.txt"', b"a\r\nb%0a.txt"),
        (b"filename=\"a.txt\"; filename*=UTF-8''..%2F..%2Fb.txt", b"a.txt"),
        (b"filename*=UTF-8''..%2F..%2Fb.txt", None),
        (b'filename=""', b""),
        (b"x=y", None),
    ],
)
def test_a_file_name_is_the_bytes_that_were_meant(sent: bytes, kept: bytes | None) -> None:
    assert filename_of(sent) == kept


@pytest.mark.parametrize(
    "disposition",
    [
        b"",
        b"attachment; name=file",
        b"form-data",
        b"form-data; filename=a",
        b'form-data; name=""',
        b"form-data; name=\xff",
        b"form-data; name=a; name=b",
        b"form-data; name=a; filename=",
        b"form-data; name=a; filename=a; filename=b",
        b'form-data; name=a; filename="a',
        b'form-data; name=a; filename="a"b"',
        b"form-data; name=a junk",
        b"form-data; name=a;",
    ],
)
def test_a_disposition_with_two_readings_is_malformed(disposition: bytes) -> None:
    with pytest.raises(MalformedBody):
        read(form(part(disposition, b"x")))


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Type: multipart/mixed; boundary=q",
        b"Content-Transfer-Encoding: base64",
        b"no colon",
        b"bad name: x",
        b" folded: x",
        b"X: a\nY: b",
        b"X: \0",
        b"Content-Disposition: form-data; name=b",
        b"X: " + b"a" * MAX_HEADER_BYTES,
    ],
)
def test_a_broken_or_nested_part_is_malformed(header: bytes) -> None:
    with pytest.raises(MalformedBody):
        read(form(part(b"form-data; name=a", b"x", header)))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no form at all",
        b"--xYz",
        b"--xYz\r\n",
        b"--xYz\r\n\r\ncontent\r\n--xYz--\r\n",
        b"--xYzz--\r\n",
        form(part(b"form-data; name=a", b"x"))[:-5],
    ],
)
def test_a_body_without_its_boundaries_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        read(body)


def test_a_form_of_nothing_but_its_closing_boundary_has_no_parts() -> None:
    assert read(b"--xYz--") == []


def test_headers_that_never_end_are_refused_at_the_limit() -> None:
    parser = FormParser(BOUNDARY)
    parser.feed(b"--xYz\r\n" + b"a" * MAX_HEADER_BYTES)
    with pytest.raises(MalformedBody):
        parser.feed(b"aaaa")


def test_the_limit_of_parts_passes_and_one_more_is_refused() -> None:
    parts = [part(b"form-data; name=a", b"")] * MAX_PARTS
    assert len(read(form(*parts))) == MAX_PARTS
    with pytest.raises(MalformedBody):
        read(form(*parts, parts[0]))


def test_twenty_thousand_empty_parts_are_refused_in_no_time() -> None:
    body = form(*[part(b"form-data; name=a", b"")] * 20_000)
    began = time.process_time()
    with pytest.raises(MalformedBody, match="16 parts"):
        read(body)
    assert time.process_time() - began < 0.05


@pytest.mark.parametrize(
    ("header", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ("Multipart/Form-Data;charset=utf-8; BOUNDARY=abc", b"abc"),
        ('multipart/form-data; boundary="a b:c"; x=y', b"a b:c"),
        ("multipart/form-data; boundary=" + "a" * 70, b"a" * 70),
    ],
)
def test_the_boundary_is_read(header: str, boundary: bytes) -> None:
    assert boundary_of(header) == boundary


@pytest.mark.parametrize(
    "rest",
    [
        "",
        ";",
        "; boundary=",
        '; boundary=""',
        "; boundary=a; boundary=b",
        "; boundary=" + "a" * 71,
        "; boundary=é",
        '; boundary="a "',
        "; boundary=a b",
    ],
)
def test_a_missing_or_unusable_boundary_is_malformed(rest: str) -> None:
    with pytest.raises(MalformedBody):
        boundary_of("multipart/form-data" + rest)


@pytest.mark.parametrize(
    "header", ["", "application/json", "multipart/mixed; boundary=a", "multipart/form-datax"]
)
def test_another_media_type_is_unsupported(header: str) -> None:
    with pytest.raises(UnsupportedMediaType) as caught:
        boundary_of(header)
    assert caught.value.expected == "multipart/form-data"
