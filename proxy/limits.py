"""How often a member may do a thing: one token bucket for each (member, kind), refilled over a minute."""

from __future__ import annotations

import math
from collections import OrderedDict

from proxy.errors import RateLimited

MAX_BUCKETS = 10_000


class RateLimiter:
    """Token buckets in memory; time is a parameter, in monotonic seconds.

    A bucket holds a minute's allowance, so a burst of all of it passes and then one each 60/limit
    seconds. The buckets touched longest ago are dropped beyond `MAX_BUCKETS`: by then they are full again.
    """

    def __init__(self) -> None:
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def take(self, who: str, kind: str, per_minute: int, now: float) -> None:
        """Count one. Raises RateLimited with the whole seconds until the next is free; 0 is no limit."""
        if per_minute == 0:
            return
        tokens, since = self._buckets.pop((who, kind), (float(per_minute), now))
        tokens = min(per_minute, tokens + (now - since) * per_minute / 60)
        enough = tokens >= 1
        self._buckets[(who, kind)] = (tokens - 1 if enough else tokens, now)
        while len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        if not enough:
            raise RateLimited(per_minute, math.ceil((1 - tokens) * 60 / per_minute))

    def full(self, who: str, kind: str, per_minute: int, now: float) -> int:
        """Seconds until one more would pass, 0 when one would now; counts nothing."""
        tokens, since = self._buckets.get((who, kind), (float(per_minute), now))
        tokens = min(per_minute, tokens + (now - since) * per_minute / 60)
        return 0 if tokens >= 1 else math.ceil((1 - tokens) * 60 / per_minute)
