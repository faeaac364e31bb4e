from __future__ import annotations

import pytest

from proxy.errors import RateLimited
from proxy.limits import MAX_BUCKETS, RateLimiter


def test_a_minutes_allowance_passes_at_once_and_then_one_each_share() -> None:
    limiter = RateLimiter()
    for _ in range(60):
        limiter.take("ana", "turns", 60, now=100.0)
    with pytest.raises(RateLimited) as refused:
        limiter.take("ana", "turns", 60, now=100.0)
    assert (refused.value.limit, refused.value.retry_after) == (60, 1)
    limiter.take("ana", "turns", 60, now=101.0)
    with pytest.raises(RateLimited):
        limiter.take("ana", "turns", 60, now=101.0)


def test_members_and_kinds_do_not_share_a_bucket_and_zero_is_no_limit() -> None:
    limiter = RateLimiter()
    limiter.take("ana", "uploads", 1, now=0.0)
    limiter.take("bo", "uploads", 1, now=0.0)
    limiter.take("ana", "reads", 1, now=0.0)
    for _ in range(1000):
        limiter.take("ana", "turns", 0, now=0.0)
    with pytest.raises(RateLimited):
        limiter.take("ana", "uploads", 1, now=0.0)


def test_memory_is_bounded_however_many_members_come() -> None:
    limiter = RateLimiter()
    for number in range(MAX_BUCKETS + 500):
        limiter.take(f"m{number}", "reads", 10, now=float(number))
    assert len(limiter._buckets) == MAX_BUCKETS
