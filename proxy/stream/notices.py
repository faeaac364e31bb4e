"""The text in which a member reads of a file: the same line in the stream and in a sync answer."""

from __future__ import annotations

import re

from proxy.stream.events import Delivery

# A name must not end its line, nor turn the reading direction of what follows it.
UNSHOWABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def notice(delivery: Delivery, *, show_link: bool) -> str:
    """One paragraph for one file, whatever became of it.

    ``show_link`` adds the file's open link, if it has one, as a line of its own.
    """
    name = UNSHOWABLE.sub("_", delivery.name)
    if delivery.state != "stored":
        return f"\n\n⚠ {name} could not be delivered: {delivery.reason}\n"
    line = f"\n\n📎 {name} — {delivery.path}\n"
    if show_link and delivery.url:
        line += f"{delivery.url}\n"
    return line
