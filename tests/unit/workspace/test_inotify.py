"""Events as inotify(7) writes them."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from workspace import inotify
from workspace.inotify import Event

names = st.binary(max_size=40).filter(lambda name: b"\0" not in name)


@given(st.lists(st.builds(Event, st.integers(-1, 2**31 - 1), st.integers(0, 2**32 - 1), names)))
def test_events_are_read_as_they_were_written(events: list[Event]) -> None:
    data = b"".join(
        struct.pack("iIII", event.watch, event.mask, 7, length := -(-len(event.name) // 16) * 16)
        + event.name.ljust(length, b"\0")
        for event in events
    )
    assert list(inotify.events(data)) == events
