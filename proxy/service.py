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
    _question: asyncio.Task[bool] | None = None

    def take(self, settings: Settings) -> None:
        """Let `[auth]` and `[limits]` of these settings count from now on. Raises ValueError, KeyError."""
        merged = self.settings.model_copy(update={"auth": settings.auth, "limits": settings.limits})
        self.authenticator = self.authenticator.renewed(merged)
        self.settings = merged

    async def store_answers(self) -> bool:
        """Whether PostgreSQL answers within a second.

        A question that hangs is left to itself and not asked twice: cancelling it would wait for the very server
        that does not answer.
        """
        if self._question is None or self._question.done():
            self._question = asyncio.create_task(self._ask_store())
        await asyncio.wait({self._question}, timeout=1)
        return self._question.done() and self._question.result()

    async def _ask_store(self) -> bool:
        try:
            await self.pool.fetchval("SELECT 1", timeout=30)
        except Exception:  # whatever is wrong, the answer is no
            return False
        return True

    async def end_questions(self) -> None:
        """Let go of a question to a store that does not answer."""
        if self._question is not None:
            self._question.cancel()
            await asyncio.gather(self._question, return_exceptions=True)
