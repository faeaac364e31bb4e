"""What routes read of a request besides its path: a JSON body, and query keys that come once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp import web

from proxy import keys
from proxy.errors import (
    BodyTimeout,
    BodyTooLarge,
    InvalidRequest,
    MalformedBody,
    RepeatedField,
    UnsupportedMediaType,
)

MAX_JSON_BYTES = 256 * 1024
QUICK_BYTES = 256 * 1024  # a larger body is decoded beside the event loop


async def json_body(
    request: web.Request,
    limit: int,
    idle_timeout: float,
    *,
    unique_keys: bool = False,
    grown: Callable[[int], None] | None = None,
) -> object:
    """The decoded JSON body of at most `limit` bytes, `idle_timeout` seconds at most between two reads.

    `grown` is told its size as it comes, and may raise. Raises UnsupportedMediaType, BodyTooLarge, BodyTimeout,
    MalformedBody; RepeatedField with `unique_keys`.
    """
    if request.content_type != "application/json":
        raise UnsupportedMediaType("application/json")
    if (request.content_length or 0) > limit:
        raise BodyTooLarge(limit)
    raw = bytearray()
    try:
        while not request.content.at_eof():
            async with asyncio.timeout(idle_timeout):
                raw += await request.content.readany()
            if len(raw) > limit:
                raise BodyTooLarge(limit)
            if grown is not None:
                grown(len(raw))
    except TimeoutError as error:
        raise BodyTimeout(idle_timeout) from error
    except (web.RequestPayloadError, ConnectionError) as error:
        raise MalformedBody("it was cut short") from error
    decode = partial(
        _loads,
        raw,
        parse_constant=_no_constant,
        object_pairs_hook=_each_key_once if unique_keys else None,
    )
    try:
        return decode() if len(raw) <= QUICK_BYTES else await asyncio.to_thread(decode)
    except (ValueError, RecursionError) as error:
        raise MalformedBody("it is not JSON in UTF-8") from error


async def json_object(request: web.Request) -> dict[str, Any]:
    """The small JSON object that a route without content of its own takes, each key once. Raises as `json_body`,
    InvalidRequest."""
    idle = request.app[keys.SERVICE].settings.media.idle_timeout
    body = await json_body(request, MAX_JSON_BYTES, idle, unique_keys=True)
    if not isinstance(body, dict):
        raise InvalidRequest("body", "send a JSON object")
    return body


def _loads(raw: bytearray, **hooks: Any) -> object:
    return json.loads(raw.decode("utf-8"), **hooks)


def _no_constant(name: str) -> object:
    raise ValueError(name)


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise RepeatedField(name[:100])
        found[name] = value
    return found


def single_values(request: web.Request) -> dict[str, str]:
    """The query, every key once: no second value passes a check made for the first. Raises RepeatedField."""
    for name in request.query:
        if len(request.query.getall(name)) > 1:
            raise RepeatedField(name[:100])
    return dict(request.query)


def query_value(request: web.Request, name: str) -> str | None:
    """A query key's value, None when it is absent or empty. Raises RepeatedField."""
    values = request.query.getall(name, [])
    if len(values) > 1:
        raise RepeatedField(name)
    return values[0] if values and values[0] else None


def query_number(request: web.Request, name: str, default: int, at_most: int) -> int:
    """A query key's whole number from 1 to `at_most`. Raises RepeatedField, InvalidRequest."""
    value = query_value(request, name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and 1 <= int(value[:9]) <= at_most and len(value) < 9):
        raise InvalidRequest(name, f"give a whole number from 1 to {at_most}")
    return int(value)
