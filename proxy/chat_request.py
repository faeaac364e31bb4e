"""A chat request's body, parsed into types: what is said, to whom, in which conversation (pure).

Source of the shape: OpenAI's chat completions API, with `session_id` and `project` beside it.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.errors import InvalidRequest
from proxy.message_parts import ATTACHMENT_LINE, Attachment, plain_text, read_parts
from proxy.settings import MediaSettings

NOTICE_LINES = re.compile(r"^(📎 .+ — public/attachments/.+|⚠ .+ could not be delivered: .+)$", re.MULTILINE)
SESSION_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
MAX_MESSAGES = 10_000


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request for a turn.

    `session_id` is None when the client names none; `first_exchange` is then the digest of the
    conversation that the list repeats, or None when the list begins a new one.
    """

    agent: str | None
    project: str | None
    text: str
    attachments: tuple[Attachment, ...]
    stream: bool
    session_id: str | None
    first_exchange: str | None
    on_leave: str | None
    include_usage: bool
    event_ids: bool


def parse_chat(body: object, session_headers: Sequence[str | None], media: MediaSettings) -> ChatRequest:
    """Parse a decoded JSON body. Raises InvalidRequest with the field and what is wrong with it, and for a file
    inside the message FileTooLarge, InvalidName, ExtensionNotAllowed."""
    if not isinstance(body, dict):
        raise InvalidRequest("body", "send a JSON object")
    messages = _messages(body.get("messages"))
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise InvalidRequest("stream_options", "send an object")
    text, attachments = _last_user_message(messages, media)
    session_id = _text(body, "session_id") or next((value for value in session_headers if value), None)
    return ChatRequest(
        agent=_text(body, "model"),
        project=_text(body, "project"),
        text=text,
        attachments=attachments,
        stream=_flag(body, "stream"),
        session_id=None if session_id is None else check_session_id(session_id),
        first_exchange=None if session_id is not None else _first_exchange(messages),
        on_leave=_on_leave(body),
        include_usage=_flag(options, "include_usage"),
        event_ids=_flag(options, "x_event_ids"),
    )


def check_session_id(raw_session_id: str) -> str:
    """A session id that is safe to store and to compare. Raises InvalidRequest."""
    if not SESSION_ID.fullmatch(raw_session_id):
        raise InvalidRequest("session_id", "use 1 to 128 of A-Z a-z 0-9 . _ : -")
    return raw_session_id


def exchange_digest(user_text: str, answer: str) -> str:
    """Which conversation a first exchange belongs to: notices, attachment lines and white space do not."""
    parts = [_squeezed(ATTACHMENT_LINE.sub("", user_text)), _squeezed(NOTICE_LINES.sub("", answer))]
    return hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()


def _on_leave(body: Mapping[str, Any]) -> str | None:
    value = _text(body, "on_leave")
    if value not in {None, "continue", "stop"}:
        raise InvalidRequest("on_leave", "send continue or stop")
    return value


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", unicodedata.normalize("NFC", text))


def _messages(value: object) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not value or len(value) > MAX_MESSAGES:
        raise InvalidRequest("messages", "send a list with at least one message")
    if not all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in value):
        raise InvalidRequest("messages", "each message is an object with a role")
    return value


def _last_user_message(
    messages: list[Mapping[str, Any]], media: MediaSettings
) -> tuple[str, tuple[Attachment, ...]]:
    for message in reversed(messages):
        if message["role"] == "user":
            text, attachments = read_parts(message.get("content"), media)
            if not text.strip() and not attachments:
                raise InvalidRequest("messages", "the last user message is empty")
            return text, attachments
    raise InvalidRequest("messages", "there is no user message")


def _first_exchange(messages: list[Mapping[str, Any]]) -> str | None:
    """The digest of the first user message and the first answer; None without an answer."""
    user = answer = None
    for message in messages:
        if message["role"] == "user" and user is None:
            user = plain_text(message.get("content"))
        elif message["role"] == "assistant" and answer is None:
            answer = plain_text(message.get("content"))
    return None if user is None or answer is None else exchange_digest(user, answer)


def _text(body: Mapping[str, Any], field: str) -> str | None:
    value = body.get(field)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(field, "send a string")
    return value or None


def _flag(body: Mapping[str, Any], field: str) -> bool:
    value = body.get(field)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequest(field, "send true or false")
    return bool(value)
