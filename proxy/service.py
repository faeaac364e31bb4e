"""What the service is made of, as routes see it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from proxy.agents import Agents
from proxy.archives import ArchiveSlots
from proxy.history import History
from proxy.identity import Authenticator
from proxy.large_bodies import LargeBodies
from proxy.live import LiveTurns
from proxy.projects import Projects
from proxy.quota import Quota
from proxy.relay import Relay
from proxy.settings import Settings
from proxy.streams import StreamSlots
from proxy.uploads import Uploads
from rag.search import Searcher
from workspace.registry import Workspaces


@dataclass(slots=True, eq=False)
class Service:
    """Everything that routes use; one for the process."""

    settings: Settings
    authenticator: Authenticator
    agents: Agents
    workspaces: Workspaces
    history: History
    live: LiveTurns
    large_bodies: LargeBodies
    relay: Relay
    uploads: Uploads
    quota: Quota
    archives: ArchiveSlots
    streams: StreamSlots
    projects: Projects
    searcher: Searcher
    pool: Any

    async def store_answers(self) -> bool:
        """Whether PostgreSQL answers within a second."""
        try:
            async with asyncio.timeout(1):
                await self.pool.fetchval("SELECT 1")
        except Exception:  # whatever is wrong, the answer is no
            return False
        return True
