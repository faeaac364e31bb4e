"""What two snapshots tell about what changed between them."""

from __future__ import annotations

from workspace.watched import Snapshot

A, B, C = (b"a",), (b"a", b"b"), (b"c",)


def test_what_came_went_or_changed_differs() -> None:
    before, after = Snapshot({A: (1,), B: (2, 5, 9)}), Snapshot({B: (2, 6, 9), C: (3, 0, 0)})
    assert before.difference(after) == {("a",), ("a", "b"), ("c",)}
    assert before.difference(before) == set()


def test_nothing_is_told_of_what_a_snapshot_did_not_get_to() -> None:
    whole, cut = Snapshot({A: (1,), B: (2,), C: (3,)}), Snapshot({A: (4,), B: (2,)}, end=B)
    assert whole.difference(cut) == {("a",)}
    assert cut.difference(whole) == {("a",)}
