"""What a member's files may take in one place, `media.quota_bytes`, and how much they take now.

Walking a tree costs what the tree costs, so a walk's answer counts for a minute. What is uploaded meanwhile is added
to it; before an upload is refused on such an estimate the tree is walked again. Uploads that a walk meets between
their admission and their publication are not in its answer: so much, and no more, may pass the quota.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from proxy.errors import OverQuota
from proxy.place import Place
from workspace.location import Location
from workspace.usage import Usage

FRESH_SECONDS = 60.0
MAX_PLACES = 10_000


@dataclass(slots=True)
class _Known:
    walked: Usage
    at: float
    added: int = 0


class Quota:
    """The usage of every place that asked lately. `limit` None is no quota; `clock` gives monotonic seconds."""

    def __init__(self, quota_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = quota_bytes or None
        self._clock = clock
        self._known: OrderedDict[tuple[str, Location], _Known] = OrderedDict()

    async def usage(self, place: Place) -> Usage:
        """How much lies below the place's public directory, at most a minute ago and uploads since then."""
        known = await self._look(place)
        return Usage(known.walked.bytes + known.added, known.walked.is_whole)

    async def admit(self, place: Place, size: int) -> None:
        """Count a file of `size` bytes that is about to be published. Raises OverQuota."""
        if self.limit is None:
            return
        known = await self._look(place)
        if known.added and known.walked.bytes + known.added + size > self.limit:
            known = await self._walk(place)
        usage = known.walked.bytes + known.added
        if usage + size > self.limit:
            raise OverQuota(self.limit, usage)
        known.added += size

    def forget(self, place: Place) -> None:
        """Something was deleted: the next question walks."""
        self._known.pop(_key(place), None)

    async def _look(self, place: Place) -> _Known:
        known = self._known.get(_key(place))
        if known is None or self._clock() - known.at > FRESH_SECONDS:
            return await self._walk(place)
        return known

    async def _walk(self, place: Place) -> _Known:
        at = self._clock()
        known = self._known[_key(place)] = _Known(await place.workspace.usage(), at)
        self._known.move_to_end(_key(place))
        while len(self._known) > MAX_PLACES:
            self._known.popitem(last=False)
        return known


def _key(place: Place) -> tuple[str, Location]:
    return place.agent.key, place.location
