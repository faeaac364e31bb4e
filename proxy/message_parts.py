"""The parts of one OpenAI message: its text, and the files that stand in it (pure).

Source of the shapes: OpenAI's chat completions API (`text`, `image_url` with a data URL, `file` with `file_data`).
An `http(s)` URL is never fetched: it stands in the text.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Any

from proxy.errors import FileTooLarge, InvalidRequest
from proxy.settings import MediaSettings
from workspace.names import check_extension, clean_name

MAX_ATTACHMENTS = 10
FIELD = "messages"
ATTACHMENT_LINE = re.compile(r"^\[attachment: [^\n]*\]$", re.MULTILINE)
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[\w.+-]+=[^;,]*)*);base64,")
_EXTENSIONS = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/bmp": "bmp",
    "image/avif": "avif",
    "application/pdf": "pdf",
    "text/plain": "txt",
    "text/markdown": "md",
    "text/csv": "csv",
    "application/json": "json",
}


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file inside a message, with a clean name that may be stored."""

    name: str
    content: bytes


def plain_text(content: object) -> str:
    """Only the text of a message: what it says in a conversation that is repeated. Raises InvalidRequest."""
    if content is None:
        return ""
    if isinstance(content, str):
        return clean_text(content)
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise InvalidRequest(FIELD, "content is a string or a list of parts")
    texts = [part.get("text") for part in content if part.get("type") == "text"]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidRequest(FIELD, "a text part has a string `text`")
    return "\n".join(clean_text(str(text)) for text in texts)


def read_parts(content: object, media: MediaSettings) -> tuple[str, tuple[Attachment, ...]]:
    """The text of the message that goes to the agent, and its files. One bad part refuses the whole request.

    Raises InvalidRequest, FileTooLarge, InvalidName, ExtensionNotAllowed.
    """
    if not isinstance(content, list):
        return plain_text(content), ()
    texts, attachments = [plain_text(content)], []
    for part in content:
        found = _read_part(part, media)
        if isinstance(found, Attachment):
            attachments.append(found)
        elif found is not None:
            texts.append(found)
    if len(attachments) > MAX_ATTACHMENTS:
        raise InvalidRequest(FIELD, f"a message takes at most {MAX_ATTACHMENTS} files")
    return "\n".join(text for text in texts if text), tuple(attachments)


def _read_part(part: dict[str, Any], media: MediaSettings) -> Attachment | str | None:
    kind = part.get("type")
    if kind == "text":
        return None
    if kind == "image_url":
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        if isinstance(url, str) and url.startswith(("http://", "https://")):
            return clean_text(url)
        return _attachment(url, None, "image", media)
    if kind == "file" and isinstance(part.get("file"), dict):
        return _attachment(part["file"].get("file_data"), part["file"].get("filename"), "file", media)
    raise InvalidRequest(FIELD, "parts are text, image_url and file with file_data")


def _attachment(data: object, filename: object, stem: str, media: MediaSettings) -> Attachment:
    if not isinstance(data, str) or not isinstance(filename, str | None):
        raise InvalidRequest(FIELD, "a file is a data URL or base64, its filename a string")
    match = _DATA_URL.match(data)
    encoded = data[match.end() :] if match else data
    if len(encoded) > (media.max_bytes + 2) // 3 * 4 + 4:
        raise FileTooLarge(media.max_bytes)
    try:
        content = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise InvalidRequest(FIELD, "a file's data is not base64") from error
    if len(content) > media.max_bytes:
        raise FileTooLarge(media.max_bytes)
    name = clean_name(filename) if filename else _unnamed(content, match[1] if match else None, stem)
    check_extension(name, media.extensions, media.extensionless)
    return Attachment(name, content)


def _unnamed(content: bytes, media_type: str | None, stem: str) -> str:
    """The same content has the same name: sent again with each message, it is stored once."""
    extension = _EXTENSIONS.get((media_type or "").lower(), "png" if stem == "image" else "bin")
    return f"{stem}-{hashlib.sha256(content).hexdigest()[:8]}.{extension}"


def attachment_line(told_path: str) -> str:
    """How the agent is told where a file of the message lies."""
    return f"[attachment: {told_path}]"


def clean_text(text: str) -> str:
    """Text that PostgreSQL and a JSON frame can carry: no NUL, no lone surrogate."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")
