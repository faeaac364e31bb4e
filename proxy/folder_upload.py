"""A folder from the browser, as a form or as JSON, handed file by file to the index.

Form: one part named `file` for each file, its relative path as the part's filename, and `folder_name`. Of a file
that is not indexed no byte is kept, however large it is; the whole body is bounded besides.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from aiohttp import StreamReader

from proxy.errors import InvalidRequest
from proxy.lines import is_one_line
from proxy.multipart_form import FormParser, PartBegan, PartData
from proxy.settings import LocalFolderSettings, MediaSettings
from proxy.uploads import Body
from rag.ingest import AttachedFile, FolderUpload

MAX_PARTS = 20_000
MAX_JSON_BYTES = 32 * 1024 * 1024
MAX_FOLDER_NAME = 255


@dataclass(slots=True)
class ReceivedFolder:
    """The files, already filtered by path and decoded, and the name that the client gave the folder."""

    upload: FolderUpload
    folder_name: str | None = None


@dataclass(slots=True)
class _Part:
    path: str | None
    useful: int
    content: bytearray = field(default_factory=bytearray)


async def receive_form(
    content: StreamReader, boundary: bytes, limits: LocalFolderSettings, media: MediaSettings
) -> ReceivedFolder:
    """Read the whole form. Raises BodyTooLarge, BodyTimeout, MalformedBody, InvalidRequest, and what refuses the
    whole upload: UnsafePath, DuplicatePath, TooManyBytes."""
    body, parser = Body(content, media, limits.max_body_bytes), FormParser(boundary, MAX_PARTS)
    received, part = ReceivedFolder(FolderUpload(limits)), _Part(None, 0)
    while data := await body.read():
        whole: list[AttachedFile] = []
        for event in parser.feed(data):
            if isinstance(event, PartBegan):
                part = _begun(event, received)
            elif isinstance(event, PartData):
                part.content += event.data[: max(0, part.useful - len(part.content))]
            elif part.path is None:
                received.folder_name = _folder_name(bytes(part.content).decode("utf-8", "replace"))
            else:
                whole.append(AttachedFile(part.path, bytes(part.content)))
        if whole:
            await asyncio.to_thread(_add_all, received.upload, whole)
    parser.finish()
    return received


def _begun(event: PartBegan, received: ReceivedFolder) -> _Part:
    if event.name == "file" and event.raw_filename is not None:
        path = event.raw_filename.decode("utf-8", "surrogateescape")
        return _Part(path, received.upload.useful_bytes(path))
    if event.name == "folder_name" and event.raw_filename is None:
        return _Part(None, MAX_FOLDER_NAME * 4)
    raise InvalidRequest(event.name[:100], "send parts `file` with a filename, and `folder_name`")


async def receive_json(body: object, limits: LocalFolderSettings) -> ReceivedFolder:
    """The same of `{folder_name, files: [{path, content}]}`."""
    if not isinstance(body, dict) or not isinstance(body.get("files"), list):
        raise InvalidRequest("files", "send a list of {path, content}")
    files = []
    for entry in body["files"]:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(k), str) for k in ("path", "content")):
            raise InvalidRequest("files", "each is {path, content}, both strings")
        files.append(AttachedFile(entry["path"], entry["content"].encode("utf-8", "surrogatepass")))
    name = body.get("folder_name")
    if name is not None and not isinstance(name, str):
        raise InvalidRequest("folder_name", "send a string")
    received = ReceivedFolder(FolderUpload(limits), _folder_name(name or ""))
    await asyncio.to_thread(_add_all, received.upload, files)
    return received


def _add_all(upload: FolderUpload, files: list[AttachedFile]) -> None:
    for file in files:
        upload.add(file)


def _folder_name(raw_name: str) -> str | None:
    name = raw_name.strip().strip("/")
    if not name:
        return None
    if len(name) > MAX_FOLDER_NAME or not is_one_line(name) or "/" in name:
        raise InvalidRequest(
            "folder_name", f"use one line of at most {MAX_FOLDER_NAME} characters, without /"
        )
    return name
