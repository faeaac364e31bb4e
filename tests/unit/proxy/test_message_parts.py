from __future__ import annotations

import base64
from typing import Any

import pytest

from proxy.errors import FileTooLarge, InvalidRequest
from proxy.message_parts import Attachment, plain_text, read_parts
from proxy.settings import MediaSettings
from workspace.errors import ExtensionNotAllowed, InvalidName

MEDIA = MediaSettings(max_bytes=100)
PIXEL = base64.b64encode(b"\x89PNG pixel").decode()


def image(url: object) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def file(data: object, filename: object = None) -> dict[str, Any]:
    return {"type": "file", "file": {"file_data": data, "filename": filename}}


def test_text_parts_are_joined_and_files_come_with_clean_names() -> None:
    text, files = read_parts(
        [
            {"type": "text", "text": "look"},
            image(f"data:image/png;base64,{PIXEL}"),
            file(f"data:application/pdf;base64,{PIXEL}", "../relatório final.pdf"),
            {"type": "text", "text": "and tell"},
        ],
        MEDIA,
    )
    assert text == "look\nand tell"
    assert files == (
        Attachment("image-70d363d9.png", b"\x89PNG pixel"),
        Attachment("relatório_final.pdf", b"\x89PNG pixel"),
    )


def test_a_url_is_only_text_and_is_never_fetched() -> None:
    assert read_parts([image("http://127.0.0.1/x.png")], MEDIA) == ("http://127.0.0.1/x.png", ())


def test_a_filename_without_a_data_url_is_plain_base64() -> None:
    (found,) = read_parts([file(PIXEL, "a.txt")], MEDIA)[1]
    assert found == Attachment("a.txt", b"\x89PNG pixel")


@pytest.mark.parametrize(
    ("part", "error"),
    [
        (image("data:image/png;base64,!!!"), InvalidRequest),
        (image("ftp://x"), InvalidRequest),
        (image(7), InvalidRequest),
        (file(None), InvalidRequest),
        (file(PIXEL, 7), InvalidRequest),
        (file(PIXEL, "virus.exe"), ExtensionNotAllowed),
        (file(PIXEL, "///"), InvalidName),
        (file(base64.b64encode(b"x" * 101).decode(), "a.txt"), FileTooLarge),
        ({"type": "input_audio", "input_audio": {}}, InvalidRequest),
        ({"type": "text"}, InvalidRequest),
        ("x", InvalidRequest),
    ],
)
def test_one_bad_part_refuses_the_message(part: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        read_parts([{"type": "text", "text": "hi"}, part], MEDIA)


def test_exactly_the_cap_passes_and_eleven_files_do_not() -> None:
    full = file(base64.b64encode(b"x" * 100).decode(), "a.txt")
    assert len(read_parts([full] * 10, MEDIA)[1]) == 10
    with pytest.raises(InvalidRequest):
        read_parts([full] * 11, MEDIA)


def test_earlier_messages_are_read_for_their_text_alone() -> None:
    assert plain_text([image("data:image/png;base64,!!!"), {"type": "text", "text": "a\x00b"}]) == "ab"
    assert plain_text(None) == ""
