"""Which of the rights that Isthmus needs as root it has, said once at start (capabilities(7))."""

from __future__ import annotations

import os
from pathlib import Path

NEEDED = {
    "CHOWN": (0, "workspaces cannot be given to their agent"),
    "SETUID": (7, "agents' files cannot be touched with their own rights"),
    "SETGID": (6, "agents' files cannot be touched with their own rights"),
}
EMBEDDED = {"KILL": (5, "the embedded PostgreSQL cannot be stopped or replaced")}


def effective() -> int:
    """This process's effective set as a bit mask."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("CapEff:")[1].split()[0], 16)


def missing(mask: int, *, embedded: bool) -> dict[str, str]:
    """What root lacks of what is needed, and what each switches off; nothing for a service that is not root."""
    needed = NEEDED | (EMBEDDED if embedded else {})
    return {name: effect for name, (bit, effect) in needed.items() if not mask >> bit & 1}


def report(*, embedded: bool) -> dict[str, str]:
    """As `missing`, of this very process."""
    return missing(effective(), embedded=embedded) if os.geteuid() == 0 else {}
