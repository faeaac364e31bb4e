"""Who may do what: one table, and the one function that every route asks."""

from __future__ import annotations

from enum import Enum, IntEnum


class Role(IntEnum):
    """A member's standing in a project, weakest first; in the main workspace a member is its owner."""

    VIEWER = 1
    MEMBER = 2
    MAINTAINER = 3
    OWNER = 4


class Action(Enum):
    LIST = "list"
    DOWNLOAD = "download"
    SEARCH = "search"
    CHAT = "chat"
    UPLOAD = "upload"
    CHANGE_FILES = "change_files"
    ATTACH_FOLDER = "attach_folder"
    MANAGE = "manage"


NEEDED = {
    Action.LIST: Role.VIEWER,
    Action.DOWNLOAD: Role.VIEWER,
    Action.SEARCH: Role.VIEWER,
    Action.CHAT: Role.MEMBER,
    Action.UPLOAD: Role.MEMBER,
    Action.CHANGE_FILES: Role.MEMBER,
    Action.ATTACH_FOLDER: Role.MAINTAINER,
    Action.MANAGE: Role.OWNER,
}


def allowed(role: Role, action: Action) -> bool:
    """Whether a role is enough for an action."""
    return role >= NEEDED[action]
