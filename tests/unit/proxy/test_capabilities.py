from __future__ import annotations

from proxy.capabilities import effective, missing

ALL_NEEDED = 1 << 0 | 1 << 5 | 1 << 6 | 1 << 7


def test_a_full_set_lacks_nothing_and_an_empty_one_everything() -> None:
    assert missing(ALL_NEEDED, embedded=True) == {}
    assert list(missing(0, embedded=True)) == ["CHOWN", "SETUID", "SETGID", "KILL"]


def test_kill_is_for_the_embedded_store_alone() -> None:
    assert missing(ALL_NEEDED & ~(1 << 5), embedded=False) == {}
    assert list(missing(ALL_NEEDED & ~(1 << 5), embedded=True)) == ["KILL"]


def test_the_kernel_tells_a_mask() -> None:
    assert effective() >= 0
