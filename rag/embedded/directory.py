"""The store's part of the data directory: who owns which piece, one lock, and the making of a new cluster.

::

    data_dir/            the service's
      locks/store        held by flock as long as the service lives
      pg/                the server's alone, 0700: the cluster
      socket/            the server's and root's, 0750: the Unix socket
      postgres-<v>/      a copy of the binaries, only where the server's uid cannot reach the installed ones
      creating-<x>/      a cluster in the making; renamed to pg/ when it is complete

As root the server has a bare uid of its own and root writes nothing inside ``pg`` and ``socket``. None of this
needs more than ``CAP_CHOWN``, ``CAP_SETUID`` and ``CAP_SETGID``: root takes ownership where it has to look.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rag.embedded import launch
from rag.embedded.binaries import Binaries
from rag.errors import EmbeddedFailed, EmbeddedUnavailable, RagError, StoreDirectoryUnusable, StoreInUse

Log = Callable[[str], None]

CREATION_TIMEOUT = 300.0  # seconds for each program that makes a cluster
CREATING = "creating-"
OVERFLOW_UID = 65534  # as which every unmapped uid is seen in a user namespace

ROLE_SQL = """\
CREATE ROLE isthmus_app LOGIN NOSUPERUSER NOCREATEROLE CREATEDB;

CREATE DATABASE isthmus OWNER isthmus_app;

"""
EXTENSION_SQL = """\
CREATE EXTENSION vector;

CREATE EXTENSION unaccent;

CREATE EXTENSION pg_trgm;

"""


@dataclass(frozen=True)
class ServerUser:
    """As whom the server runs: a bare uid when the service is root, else the service's own user."""

    uid: int
    gid: int
    appear_as: int  # see launch.Order
    account: str  # the name by which the server knows the service, for ``peer``

    @property
    def separate(self) -> bool:
        return self.uid != os.geteuid()


def server_user(uid: int) -> ServerUser:
    """Raises EmbeddedUnavailable when there is no account whose name could be used."""
    own = os.geteuid()
    if own == 0:
        return ServerUser(uid, uid, 0, pwd.getpwuid(0).pw_name)
    try:
        return ServerUser(own, os.getegid(), 0, pwd.getpwuid(own).pw_name)
    except KeyError:
        pass
    for account in pwd.getpwall():
        if account.pw_uid not in (0, OVERFLOW_UID):
            return ServerUser(own, os.getegid(), account.pw_uid, account.pw_name)
    raise EmbeddedUnavailable(f"uid {own} has no account, and there is none whose name it could use")


@contextmanager
def reported(part: str) -> Iterator[None]:
    """Turn an OSError into StoreDirectoryUnusable, without its path."""
    try:
        yield
    except OSError as error:
        raise StoreDirectoryUnusable(part, os.strerror(error.errno) if error.errno else str(error)) from error


def lock(directory: Path) -> int:
    """The descriptor that holds the directory for this service. Raises StoreInUse, StoreDirectoryUnusable."""
    with reported("locks"):
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        locks = directory / "locks"
        locks.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(locks / "store", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise StoreInUse from None
            raise
    return descriptor


def prepare(directory: Path, user: ServerUser, binaries: Binaries, log: Log) -> None:
    """Make what is missing of the socket directory and the cluster; the lock is held.

    Raises StoreDirectoryUnusable, EmbeddedFailed, EmbeddedUnavailable.
    """
    with reported("socket"):
        sockets = directory / "socket"
        sockets.mkdir(mode=0o700, exist_ok=True)
        _hand_over(sockets, 0o750 if user.separate else 0o700, user.uid, os.getegid())
    with reported("pg"):
        for leftover in directory.glob(f"{CREATING}*"):
            _remove(leftover)
        if not (directory / "pg").exists():
            _create(directory, user, binaries, log)
        # A new cluster is renamed as root's and given away here, also after a kill between the two.
        _hand_over(directory / "pg", 0o700, user.uid, user.gid)


def _hand_over(path: Path, mode: int, uid: int, gid: int) -> None:
    """Give a directory of the service to the server. Raises StoreDirectoryUnusable if it is somebody else's."""
    status = path.stat(follow_symlinks=False)
    if status.st_uid == os.geteuid():
        path.chmod(mode)
        os.chown(path, uid, gid)
    elif status.st_uid != uid:
        problem = f"it belongs to uid {status.st_uid}, and the server runs as uid {uid}"
        raise StoreDirectoryUnusable(path.name, problem)


def _create(directory: Path, user: ServerUser, binaries: Binaries, log: Log) -> None:
    """A complete cluster at ``directory/pg``, its top still the service's own.

    initdb wants an account, which a bare uid has not: it runs as ``nobody`` inside a directory whose parent
    only root may enter, with a group that no other process of nobody has.
    """
    builder = ServerUser(_nobody(), user.gid, 0, "") if user.separate else user
    place = Path(tempfile.mkdtemp(prefix=CREATING, dir=directory))
    tree = place / "pg"
    tree.mkdir(mode=0o700)
    os.chown(tree, builder.uid, builder.gid)
    initdb = [
        binaries.program("initdb"), "-D", launch.DATA_DIRECTORY, "--username=isthmus_super", "--auth=reject",
        "--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C",
        "--data-checksums", "--no-instructions",
    ]  # fmt: skip
    single = [binaries.program("postgres"), "--single", "-D", launch.DATA_DIRECTORY, "-j"]
    for step, argv, sql in (
        ("initdb", initdb, ""),
        ("roles", [*single, "postgres"], ROLE_SQL),
        ("extensions", [*single, "isthmus"], EXTENSION_SQL),
    ):
        done, lines = _run_builder(builder, tree, argv=argv, sql=sql)
        for line in lines:
            log(f"{step}: {line}")
        if not done:
            raise refusal_error(step, lines)
    if user.separate:
        give_contents(tree, builder.uid, user)
    tree.rename(directory / "pg")
    place.rmdir()
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)


def _nobody() -> int:
    try:
        return pwd.getpwnam("nobody").pw_uid
    except KeyError as error:
        raise EmbeddedUnavailable("there is no account 'nobody', as which initdb would run") from error


def _run_builder(user: ServerUser, tree: Path, *, argv: list[str], sql: str) -> tuple[bool, list[str]]:
    """Run a program inside ``tree`` as this user: whether it did its work, and the lines it wrote."""
    descriptor = os.open(tree, os.O_PATH | os.O_DIRECTORY)
    try:
        order = launch.Order(tuple(argv), descriptor, user.uid, user.gid, user.appear_as)
        result = subprocess.run(  # noqa: S603  # our own program and the wheel's
            launch_argv(order), input=sql, env={}, pass_fds=[descriptor], process_group=0, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=CREATION_TIMEOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False, [f"no end after {CREATION_TIMEOUT:.0f} s"]
    finally:
        os.close(descriptor)
    # In single-user mode a failed statement does not change the exit status.
    failed = result.returncode != 0 or re.search(r"\b(ERROR|FATAL|PANIC):", result.stdout)
    return not failed, result.stdout.splitlines()


def launch_argv(order: launch.Order) -> list[str]:
    """The command that carries an order out; -I -S keep the environment and site-packages out of it."""
    return [sys.executable, "-I", "-S", launch.__file__, json.dumps(asdict(order))]


def refusal_error(step: str, lines: list[str]) -> RagError:
    """What the output of a failed program means. The lines themselves are for the log: they may hold paths."""
    for line in lines:
        if line.startswith(launch.REPORT):
            report = json.loads(line.removeprefix(launch.REPORT))
            if report["kind"] == "namespace":
                return EmbeddedUnavailable(
                    f"uid {os.geteuid()} has no account, and user namespaces, the other way, are refused "
                    f"({report['detail']}); give it a line in /etc/passwd"
                )
            return EmbeddedFailed(step, report["detail"])
    text = "\n".join(lines)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
        if os.strerror(number) in text:
            return StoreDirectoryUnusable("pg", os.strerror(number))
    return EmbeddedFailed(step, "the log says why")


def give_contents(tree: Path, builder: int, user: ServerUser) -> None:
    """Make everything inside ``tree`` the server's, and ``tree`` itself root's.

    Directories are taken first, from the top: from then on the builder's uid can change no name in them. A file
    that is not the builder's, or has a second name, is not given away.
    """
    _take(tree)
    for _, directories, files, descriptor in os.fwalk(tree, topdown=False):
        for name in files:
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if status.st_uid != builder or status.st_nlink != 1:
                raise EmbeddedFailed("initdb", "a file in the new cluster is not initdb's")
            os.chown(name, user.uid, user.gid, dir_fd=descriptor, follow_symlinks=False)
        for name in directories:
            os.chown(name, user.uid, user.gid, dir_fd=descriptor, follow_symlinks=False)


def _take(tree: Path) -> None:
    """Make every directory of a tree the service's own (as an ordinary user they are)."""
    own, group = os.geteuid(), os.getegid()
    os.chown(tree, own, group, follow_symlinks=False)
    for _, directories, _, descriptor in os.fwalk(tree):
        for name in directories:  # before the walk opens them
            os.chown(name, own, group, dir_fd=descriptor, follow_symlinks=False)


def _remove(tree: Path) -> None:
    _take(tree)
    shutil.rmtree(tree)
