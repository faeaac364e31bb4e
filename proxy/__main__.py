"""The command line: `isthmus serve|demo|check|token|psql` (also `python -m proxy …`)."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from functools import partial
from pathlib import Path

from proxy.capabilities import report
from proxy.demo import demo
from proxy.identity import new_token, token_digest
from proxy.logs import configure_logging
from proxy.server import CannotServe, check_servable, serve
from proxy.settings import Settings, SettingsError, load_settings
from rag.embedded import psql_command
from rag.errors import RagError, StoreUnavailable
from workspace import landlock
from workspace.confine import confinement
from workspace.errors import WorkspaceError


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 when it did what was asked, 2 when the configuration or the machine is in the way.

    A Ctrl-C before the service could take it is 130, as of a shell.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options) or 0)
    except (SettingsError, CannotServe, ValueError, RagError, WorkspaceError, OSError) as error:
        print(f"isthmus: {_told(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _told(error: Exception) -> str:
    """What the operator reads of an error that stops a command."""
    match error:
        case StoreUnavailable():
            return f"{error.reason}; look at store.url"
        case OSError(filename=str() as path, strerror=str() as reason):
            return f"{path}: {reason}"
    return str(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="isthmus", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, run, help_text in (
        ("serve", _serve, "serve until SIGTERM"),
        ("demo", _demo, "serve with a demo agent, everything below the data directory, and print a token"),
        ("check", _check, "read the configuration and say what this machine allows; change nothing"),
        ("psql", _psql, "open the store with psql; what follows -- goes to psql"),
    ):
        command = commands.add_parser(name, help=help_text)
        if name != "demo":
            command.add_argument("-c", "--config", type=Path, help="config.toml")
        command.set_defaults(run=run)
        if name == "psql":
            command.add_argument("rest", nargs=argparse.REMAINDER)
    token = commands.add_parser("token", help="make a token for a member and print the line for config.toml")
    token.add_argument("member", nargs="?", default="you", help="the member's id (default: you)")
    token.set_defaults(run=_token)
    return parser


def _serve(options: argparse.Namespace) -> None:
    settings = load_settings(options.config)
    configure_logging(settings.log)
    asyncio.run(serve(settings, reload=partial(load_settings, options.config)))


def _demo(_options: argparse.Namespace) -> None:
    asyncio.run(demo())


def _check(options: argparse.Namespace) -> None:
    settings = load_settings(options.config)
    check_servable(settings)
    for line in _report(settings):
        print(line)


def _report(settings: Settings) -> list[str]:
    store = "own server (store.url)" if settings.store.url else "embedded PostgreSQL"
    lines = [
        f"data directory  {settings.store.directory}",
        f"store           {store}",
        f"confinement     {confinement()}, {'with' if landlock.is_available() else 'without'} Landlock",
        f"members         {len({token.member for token in settings.auth.tokens})} by token"
        + (", trusted header" if settings.auth.trusted_header.header else ""),
    ]
    for name, effect in report(embedded=not settings.store.url).items():
        lines.append(f"  problem       root lacks CAP_{name}: {effect}")
    for agent in settings.agents:
        agent.secret()
        lines.append(f"agent           {agent.key}: {agent.harness} at {agent.url}, files as uid {agent.uid}")
        if os.geteuid() not in {0, agent.uid}:
            lines.append(
                f"  problem       not root: files of uid {agent.uid} cannot be touched; set uid={os.geteuid()}"
            )
    if not settings.agents:
        lines.append("agents          none: add [[agents]]")
    return lines


def _token(options: argparse.Namespace) -> None:
    token = new_token()
    print(f"token {token}")
    # A JSON string is a TOML basic string.
    print("put into config.toml, below [auth]:")
    member = json.dumps(options.member, ensure_ascii=False)
    print(f'tokens = [{{ member = {member}, sha256 = "{token_digest(token)}" }}]')


def _psql(options: argparse.Namespace) -> None:
    settings = load_settings(options.config)
    rest = [word for word in options.rest if word != "--"]
    if settings.store.url:
        argv, environment = ["psql", settings.store.url], dict[str, str]()
    else:
        argv, environment = psql_command(settings.store.directory)
    try:
        os.execvpe(argv[0], [*argv, *rest], {**os.environ, **environment})  # noqa: S606  # psql takes our place
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, "is not on PATH", argv[0]) from error


if __name__ == "__main__":
    sys.exit(main())
