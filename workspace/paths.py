"""Paths below a public directory: a client's text is parsed once, and only the parsed form travels. Pure."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from workspace.errors import InvalidPath

PUBLIC = "public"
ATTACHMENTS = "attachments"
PRIVATE_PREFIX = ".isthmus-"
"""Names that begin so are the service's own, for files that are not published yet."""

MAX_SEGMENTS = 32
MAX_SEGMENT_BYTES = 255
MAX_PATH_BYTES = 1024
# ``uploads`` was the directory's name once; links in old conversations still say it.
_PREFIXES = frozenset({PUBLIC, "uploads"})


@dataclass(frozen=True, slots=True)
class RelPath:
    """Names from a folder down to an entry; no segments is the folder itself.

    Whoever holds one holds a path that the kernel reads as exactly these names: raises InvalidPath otherwise.
    """

    segments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.segments) > MAX_SEGMENTS:
            raise InvalidPath(f"a path has at most {MAX_SEGMENTS} segments")
        for segment in self.segments:
            if problem := _segment_problem(segment):
                raise InvalidPath(problem)
        if len(str(self).encode()) > MAX_PATH_BYTES:
            raise InvalidPath(f"a path has at most {MAX_PATH_BYTES} bytes")

    @classmethod
    def parse(cls, raw: str) -> RelPath:
        """A client's path; one trailing slash is dropped. Raises InvalidPath, for the service's own names too."""
        path = cls(tuple(raw.removesuffix("/").split("/")))
        if any(is_private(segment) for segment in path.segments):
            raise InvalidPath(f"names that begin with {PRIVATE_PREFIX} are the service's own")
        return path

    @property
    def name(self) -> str:
        """The last segment; empty for the folder itself."""
        return self.segments[-1] if self.segments else ""

    @property
    def parent(self) -> RelPath:
        """The folder that holds the entry; the folder itself is its own parent."""
        return RelPath(self.segments[:-1])

    def __str__(self) -> str:
        return "/".join(self.segments)


def public_path(raw: str) -> RelPath:
    """What a client means below the public directory: exactly one leading ``public/`` or ``uploads/`` is taken off.

    Empty text, ``public`` and ``uploads`` are the public directory itself. Raises InvalidPath.
    """
    path = RelPath.parse(raw) if raw else RelPath()
    return RelPath(path.segments[1:]) if path.segments[:1] and path.segments[0] in _PREFIXES else path


def is_reserved(path: RelPath) -> bool:
    """Whether the path is the deliveries' directory or lies in it."""
    return bool(path.segments) and path.segments[0].casefold() == ATTACHMENTS


def is_private(name: str) -> bool:
    """Whether the name is one of the service's own."""
    return name.startswith(PRIVATE_PREFIX)


def display(path: RelPath) -> str:
    """The path as members see it: ``public/…``."""
    return "/".join((PUBLIC, *path.segments))


def has_control_character(text: str) -> bool:
    """Whether a C0, DEL or C1 character is in the text: such a name cannot be written in a path."""
    return any(unicodedata.category(char) == "Cc" for char in text)


def _segment_problem(segment: str) -> str | None:
    if segment in {"", ".", ".."}:
        return "a segment is a name: not empty, not a dot, not two"
    if "/" in segment or has_control_character(segment):
        return "a segment has no control characters"
    try:
        size = len(segment.encode())
    except UnicodeEncodeError:
        return "a path is Unicode text"
    return f"a segment has at most {MAX_SEGMENT_BYTES} bytes" if size > MAX_SEGMENT_BYTES else None
