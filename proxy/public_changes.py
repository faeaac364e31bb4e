"""Which entries of a public directory a member may change, decided on the parsed path (pure).

`attachments/` is for deliveries: nothing is made there or moved there, and the directory itself stays. What lies
in it may be deleted and moved out.
"""

from __future__ import annotations

from workspace.errors import InvalidPath, ManagedBySystem
from workspace.names import require_clean
from workspace.paths import RelPath, display, is_reserved, public_path


def entry_to_change(raw_path: str) -> RelPath:
    """What a member deletes or moves. Raises InvalidPath, ManagedBySystem for `attachments` itself."""
    path = _below_public(raw_path)
    if is_reserved(path) and len(path.segments) == 1:
        raise ManagedBySystem(display(path))
    return path


def new_entry(raw_path: str) -> RelPath:
    """A name that a move gives. Raises InvalidPath, InvalidName unless it is clean, ManagedBySystem."""
    path = _below_public(raw_path)
    if is_reserved(path):
        raise ManagedBySystem(display(path))
    require_clean(path.name)
    return path


def new_folder(raw_path: str) -> RelPath:
    """A folder that is made; those of its segments that are there may have any name. Raises as `new_entry`."""
    path = _below_public(raw_path)
    if is_reserved(path):
        raise ManagedBySystem(display(path))
    return path


def _below_public(raw_path: str) -> RelPath:
    path = public_path(raw_path)
    if not path.segments:
        raise InvalidPath("this is the public directory itself")
    return path
