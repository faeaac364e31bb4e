"""The same text in every encoding is the same text; what is not text is told apart."""

from __future__ import annotations

import pytest

from rag.extract.text import DecodedText, decode_text

TEXT = "Olá, ação!\nПривет, мир 123\n"


@pytest.mark.parametrize(
    "content",
    [
        TEXT.encode(),
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.encode("utf-16"),
        b"\xfe\xff" + TEXT.encode("utf-16-be"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        TEXT.encode("utf-32"),
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace("\n", "\r").encode(),
    ],
)
def test_every_encoding_gives_the_same_text(content: bytes):
    assert decode_text(content) == DecodedText(TEXT, 0)


def test_cp1252_is_read_when_nothing_else_fits():
    assert decode_text("ação – “x”\n".encode("cp1252")) == DecodedText("ação – “x”\n", 0)


def test_a_few_nuls_and_lone_surrogates_are_dropped_and_counted():
    content = ("line\n" * 1000).encode() + b"a\x00b\xed\xa0\x80c\x00"
    assert decode_text(content) == DecodedText("line\n" * 1000 + "abc", 3)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"abc\x00def", "binary"),
        (bytes(range(1, 32)) * 4, "binary"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "binary"),
        (b"\x00AB\x00" * 50, "binary"),
        (b"\x81\x8d\x8f\x90\x9d", "encoding"),
        (b"\xff\xfeabc", "encoding"),
        (b"", "empty"),
        (b"\xef\xbb\xbf \n\t", "empty"),
        (b"var a=1;" * 400_000, "minified"),
        (b"short\n" + b"x" * 50_001, "minified"),
    ],
)
def test_what_is_no_text_has_a_reason(content: bytes, reason: str):
    assert decode_text(content) == reason
