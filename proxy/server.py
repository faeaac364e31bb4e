"""The listening side: a door for connections, the one ready line, and a clean end on SIGTERM, Ctrl-C or hang-up."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import cast

import structlog
from aiohttp import http_parser, web

from proxy import keys
from proxy.app import build_app
from proxy.connections import ConnectionDoor
from proxy.settings import ServerSettings, Settings, SettingsError

log = structlog.get_logger()

LINGER_SECONDS = 10


class CannotServe(Exception):
    """The service cannot start as configured; the text says what to change."""


async def serve(settings: Settings, announce: str = "", reload: Callable[[], Settings] | None = None) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP.

    Prints `ready http://HOST:PORT` once requests are answered, then `announce`.
    Raises CannotServe, and what starting the store or reading secrets raises.
    """
    check_servable(settings)
    app = build_app(settings)
    stop = _asked_to_stop(None if reload is None else partial(_read_again, app, reload))
    # Our own middleware logs requests; aiohttp's signal handlers would end without draining.
    runner = web.AppRunner(app, access_log=None, handle_signals=False, lingering_time=LINGER_SECONDS)
    await runner.setup()
    try:
        inner = cast(web.Server, runner.server)
        listener = await _listen(lambda: ConnectionDoor(inner(), settings.server), settings.server)
        print(f"ready http://{_shown(listener.sockets[0].getsockname())}", flush=True)
        if announce:
            print(announce, flush=True)
        await stop.wait()
        log.info("stopping")
        # The door stays open meanwhile, so that new turns are told why they are not taken.
        await app[keys.SERVICE].relay.drain(settings.server.drain_timeout)
        listener.close()
    finally:
        await runner.cleanup()


def _asked_to_stop(read_again: Callable[[], None] | None) -> asyncio.Event:
    """An event that the signals set. A hang-up reads the settings again where there is a file to read; else it
    ends the service, but is not taken from whoever ignores it for us (nohup)."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if read_again is not None:
        loop.add_signal_handler(signal.SIGHUP, read_again)
    elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, stop.set)
    return stop


def _read_again(app: web.Application, reload: Callable[[], Settings]) -> None:
    """Take `[auth]` and `[limits]` as they are in the file now; settings that cannot be used change nothing."""
    try:
        app[keys.SERVICE].take(reload())
    except (SettingsError, ValueError, KeyError) as error:
        log.error("settings_not_read_again", problem=str(error))
    else:
        log.info("settings_read_again", sections=["auth", "limits"])


async def _listen(factory: Callable[[], asyncio.BaseProtocol], settings: ServerSettings) -> asyncio.Server:
    try:
        return await asyncio.get_running_loop().create_server(
            factory, settings.host, settings.port, reuse_address=True, backlog=1024
        )
    except OSError as error:
        # asyncio puts the address into strerror; a name that is not found has a negative number.
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else error.strerror
        raise CannotServe(
            f"cannot listen on {settings.host}:{settings.port}: {reason}; change server.host or server.port"
        ) from error


def _shown(address: tuple[str, int]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_servable(settings: Settings) -> None:
    """Refuse what this version cannot do, instead of ignoring it. Raises CannotServe."""
    if http_parser.HttpRequestParser is http_parser.HttpRequestParserPy:
        raise CannotServe("aiohttp's C parser is missing; the pure-Python one is not safe at the edge")
    absent = {
        "server.workers above 1": settings.server.workers != 1,
        "server.cors_origins": bool(settings.server.cors_origins),
        "agents[].hook": any(agent.hook for agent in settings.agents),
        "auth.oidc": bool(settings.auth.oidc.issuer),
        "auth.mycelium": bool(settings.auth.mycelium.sources),
        "metrics.port": settings.metrics.port != 0,
    }
    for name, asked in absent.items():
        if asked:
            raise CannotServe(f"{name} is not in this version; leave it at its default")
