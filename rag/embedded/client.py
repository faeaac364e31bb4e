"""How a client reaches the embedded server's socket."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, TypedDict

from rag.embedded.binaries import find_binaries
from rag.embedded.launch import SOCKET

PORT = 5432  # a part of the socket's name; nothing listens on TCP
DATABASE = "isthmus"
ROLE = "isthmus_app"
LONGEST_SOCKET_PATH = 107  # bytes in sockaddr_un.sun_path without its NUL: unix(7)


class ConnectArgs(TypedDict):
    """Keyword arguments of ``asyncpg.connect`` and ``create_pool``. ``host`` is the socket's directory."""

    host: str
    port: int
    user: str
    database: str


class PsqlCommand(NamedTuple):
    """What to exec; ``env`` is to be laid over the environment."""

    argv: list[str]
    env: dict[str, str]


def socket_directory(directory: Path) -> Path:
    return directory.absolute() / "socket"


def fits(sockets: Path) -> bool:
    """Whether a Unix socket in this directory can be named by its path."""
    return len(os.fsencode(sockets / SOCKET)) <= LONGEST_SOCKET_PATH


def open_short_path(sockets: Path) -> tuple[str, int]:
    """Another name of a directory whose path is too long, and the descriptor that the name lives by."""
    descriptor = os.open(sockets, os.O_PATH | os.O_DIRECTORY)
    return f"/proc/self/fd/{descriptor}", descriptor


def psql_command(directory: Path) -> PsqlCommand:
    """The command that opens the store of a running service as isthmus_app.

    For a caller that execs it at once: where the socket's path is too long, a descriptor stays open for it.
    Raises EmbeddedUnavailable, FileNotFoundError (no store was made there).
    """
    sockets = socket_directory(directory)
    host = str(sockets)
    if not fits(sockets):
        host, descriptor = open_short_path(sockets)
        os.set_inheritable(descriptor, True)
    argv = [find_binaries().program("psql"), "--username", ROLE, "--dbname", DATABASE]
    return PsqlCommand(argv, {"PGHOST": host, "PGPORT": str(PORT)})
