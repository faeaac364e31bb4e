"""The last step before PostgreSQL: a small program that becomes the server's user, looks round, and execs.

``rag.embedded`` runs this file as a script of its own, so that everything inside the server's directories is read,
written and signalled with the server's rights and nothing with root's. It is given its two directories as open
descriptors: it needs no right to walk the paths to them, and no path can be exchanged. Standard library only, and
all imported at the top: after the change of user Python's own files may be out of reach.

What stops it is told as one JSON line on standard error that begins with ``REPORT`` (see ``Refusal``).
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

REPORT = "isthmus-launch "
REFUSED = 70  # EX_SOFTWARE of sysexits.h; told apart from PostgreSQL's own 0, 1 and 2

DATA_DIRECTORY = "/proc/self/cwd"  # a server's -D: the directory it was started in, whatever its path
SOCKET = ".s.PGSQL.5432"

PR_SET_NO_NEW_PRIVS = 38
CLONE_NEWUSER = 0x10000000


@dataclass(frozen=True)
class Order:
    """What to become and what to run; descriptors are numbers that the child inherits."""

    argv: tuple[str, ...]
    directory: int  # the child's working directory; for a server its data directory
    uid: int
    gid: int
    appear_as: int = 0  # the uid to be seen as in a user namespace of its own; 0: none is made
    serve: tuple[int, int, str] | None = None  # (socket directory, major version, account that may sign in)


class Refusal(Exception):
    """Why the program was not run: ``kind`` is ``version``, ``os`` or ``namespace``, ``detail`` its data."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail


def main(order: Order) -> None:
    """Does not return: execs ``order.argv``, or raises Refusal or OSError."""
    drop_privileges(order.uid, order.gid)
    os.fchdir(order.directory)
    os.umask(0o077)
    if order.serve is not None:
        sockets, major, account = order.serve
        check_version(major)
        end_leftovers()
        remove_stale_locks(sockets)
        write_access_rules(account)
    if order.appear_as:
        enter_namespace(order.appear_as)
    os.execve(order.argv[0], order.argv, {})  # noqa: S606  # no shell is what is wanted


def drop_privileges(uid: int, gid: int) -> None:
    """Become this bare uid for good; an ordinary user stays itself."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    if ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise Refusal("os", "no_new_privs is not to be had")


def check_version(major: int) -> None:
    found = Path("PG_VERSION").read_bytes().decode().strip()
    if found != str(major):
        raise Refusal("version", found)


def end_leftovers() -> None:
    """End every server process of this data directory that an earlier service left over.

    No pid file is trusted: a process counts if its uid, its executable and its working directory (which is its
    -D) are right, looked at while a pidfd holds it, and signals go through that pidfd. A server whose postmaster
    was killed ends by itself, which is waited for before anything stronger.
    """
    for number, patience in ((signal.SIGINT, 10.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)):
        found = leftovers()
        for handle, postmaster in found:
            if postmaster or number != signal.SIGINT:  # which means other things to the postmaster's children
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, number)
        all_gone = wait_for_ends([handle for handle, _ in found], patience)
        for handle, _ in found:
            os.close(handle)
        if all_gone:
            return
    raise Refusal("os", "a left-over server of this data directory does not end")


def leftovers() -> list[tuple[int, bool]]:
    """(pidfd, is the postmaster) of each server process that works in the current directory."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):  # it ended while we looked, or is another user's
                if works_here(Path(entry.path)):
                    found.append(hold(Path(entry.path)))
    return found


def hold(process: Path) -> tuple[int, bool]:
    """Open a pidfd, then look again: what is seen while the pidfd's process lives is that process's."""
    handle = os.pidfd_open(int(process.name))
    try:
        postmaster = b"-D" in (process / "cmdline").read_bytes().split(b"\0")
        if works_here(process) and not wait_for_ends([handle], 0):
            return handle, postmaster
        raise ProcessLookupError
    except OSError:
        os.close(handle)
        raise


def works_here(process: Path) -> bool:
    """Whether this ``/proc/<pid>`` is a postgres of our uid in our directory. Raises OSError if out of sight."""
    executable = str((process / "exe").readlink()).removesuffix(" (deleted)")
    return (
        process.stat().st_uid == os.geteuid()
        and Path(executable).name == "postgres"
        and os.path.samestat((process / "cwd").stat(), Path().stat())
    )


def wait_for_ends(handles: list[int], patience: float) -> bool:
    """Whether all these pidfds ended within so many seconds."""
    deadline = time.monotonic() + patience
    for handle in handles:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return False
    return True


def remove_stale_locks(sockets: int) -> None:
    """Lock files name pids; after ``end_leftovers`` whatever process has such a pid is not our server."""
    with suppress(FileNotFoundError):
        Path("postmaster.pid").unlink()
    for name in (SOCKET, f"{SOCKET}.lock"):
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=sockets)


def write_access_rules(account: str) -> None:
    """Who may sign in: the service's account as isthmus_app by ``peer``, and nobody else by any way.

    isthmus_super has no line: it works only in single-user mode, when the store is made.
    """
    rules = "local all isthmus_app peer map=isthmus\nlocal all all reject\nhost all all all reject\n"
    Path("pg_hba.conf").write_bytes(rules.encode())
    Path("pg_ident.conf").write_bytes(f'isthmus "{account}" isthmus_app\n'.encode())


def enter_namespace(appear_as: int) -> None:
    """Let this user be seen as ``appear_as`` by itself (user_namespaces(7)).

    initdb and ``peer`` look a uid up among the accounts; a user without an account borrows the name of one in
    this way. Its rights stay its own.
    """
    uid, gid = os.geteuid(), os.getegid()
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER) != 0:
        raise Refusal("namespace", os.strerror(ctypes.get_errno()))
    try:
        Path("/proc/self/setgroups").write_bytes(b"deny")
        Path("/proc/self/uid_map").write_bytes(f"{appear_as} {uid} 1".encode())
        Path("/proc/self/gid_map").write_bytes(f"{appear_as} {gid} 1".encode())
    except OSError as error:
        raise Refusal("namespace", os.strerror(error.errno or 0)) from error


def run(text: str) -> int:
    """``main`` with its order as JSON; the exit status if the program could not be run."""
    try:
        main(Order(**json.loads(text)))
    except Refusal as refusal:
        report = {"kind": refusal.kind, "detail": refusal.detail}
    except OSError as error:
        report = {"kind": "os", "detail": os.strerror(error.errno or 0)}
    sys.stderr.write(f"{REPORT}{json.dumps(report)}\n")
    return REFUSED


if __name__ == "__main__":
    sys.exit(run(sys.argv[1]))
