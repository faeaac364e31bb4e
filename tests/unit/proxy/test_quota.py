from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.errors import OverQuota
from proxy.place import Place
from proxy.quota import FRESH_SECONDS, MAX_PLACES, Quota
from workspace.location import Location
from workspace.usage import Usage


class Tree:
    """A workspace of so many bytes, which counts how often it is walked."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.walks = 0

    async def usage(self) -> Usage:
        self.walks += 1
        return Usage(self.size, is_whole=True)


def place(tree: Tree, member: str = "ana") -> Place:
    found: Any = SimpleNamespace(agent=SimpleNamespace(key="demo"), location=Location(member), workspace=tree)
    return cast(Place, found)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_without_a_quota_nothing_is_walked_for_an_upload() -> None:
    tree = Tree(10**12)
    await Quota(0).admit(place(tree), 10**12)
    assert tree.walks == 0


async def test_exactly_the_quota_is_admitted_and_a_byte_more_is_not() -> None:
    tree, quota = Tree(600), Quota(1000)
    with pytest.raises(OverQuota) as refused:
        await quota.admit(place(tree), 401)
    assert (refused.value.limit, refused.value.usage) == (1000, 600)
    await quota.admit(place(tree), 400)
    assert await quota.usage(place(tree)) == Usage(1000, is_whole=True)


async def test_a_walk_counts_for_a_minute() -> None:
    tree, clock = Tree(600), Clock()
    quota = Quota(10_000, clock)
    for clock.now in (0, 1, FRESH_SECONDS):
        await quota.admit(place(tree), 1)
    assert tree.walks == 1
    clock.now = FRESH_SECONDS + 1
    assert (await quota.usage(place(tree))).bytes == 600
    assert tree.walks == 2


async def test_uploads_since_the_walk_count_until_the_next_which_comes_before_a_refusal() -> None:
    tree, quota = Tree(0), Quota(1000, Clock())
    await quota.admit(place(tree), 900)  # it replaces a file: the tree does not grow
    tree.size = 100
    await quota.admit(place(tree), 900)
    assert tree.walks == 2
    tree.size = 1000
    for _ in range(5):
        with pytest.raises(OverQuota):
            await quota.admit(place(tree), 1)
    assert tree.walks == 3


async def test_a_deletion_makes_the_next_question_walk() -> None:
    tree, quota = Tree(1000), Quota(1000, Clock())
    with pytest.raises(OverQuota):
        await quota.admit(place(tree), 1)
    tree.size = 0
    quota.forget(place(tree))
    await quota.admit(place(tree), 1000)


async def test_places_are_kept_apart_and_their_number_is_bounded() -> None:
    quota = Quota(1000, Clock())
    first = Tree(1)
    assert (await quota.usage(place(first, "first"))).bytes == 1
    for number in range(MAX_PLACES):
        await quota.usage(place(Tree(2), f"m{number}"))
    assert (await quota.usage(place(first, "first"))).bytes == 1
    assert first.walks == 2
