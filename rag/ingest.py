"""An attached folder, file by file: filtered, cut into chunks, analysed. No I/O; nothing is stored here.

The browser sends files, the server never has a path to them: what is attached can be replaced only by another
attach, and a reindex never touches it.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID, uuid5

from rag.analysis import Analyser
from rag.chunking import Chunk, ChunkedText, chunk_text
from rag.errors import DuplicatePath, NothingIndexable, TooManyBytes, TooManyChunks, TooManyFiles
from rag.extract.text import MAX_ENCODING_FACTOR, decode_text
from rag.filters import GITIGNORE, GitIgnore, PathSkip, checked_path, path_skip, without_secrets
from rag.languages import guess_language
from rag.lexical import encode_terms
from rag.model import IndexedFile, PreparedChunk, PreparedFolder, Scope, Skipped, SkipReason
from rag.settings import FolderLimits

MAX_GITIGNORE_BYTES = 64 * 1024
MAX_FOLDER_NAME = 255
# While files arrive, so many times max_bytes of text are held: a .gitignore that comes late may drop some of it.
HELD_FACTOR = 4
# How often a heading or a path counts, against once for each occurrence in the text.
HEADING_WEIGHT = 2
PATH_WEIGHT = 2
_CHUNK_IDS = UUID("6f1a3b52-7c0e-5d0b-9a55-9d0c1f6f2d11")


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """One file of an upload: its path as the browser tells it, and its raw bytes.

    ``content`` may end after ``FolderUpload.useful_bytes(path)`` bytes; the rest would not be looked at.
    """

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class _Candidate:
    text: str
    size: int  # bytes in UTF-8
    damaged: bool  # characters that cannot be stored were dropped


class FolderUpload:
    """Takes the files of one folder in any order, then prepares them. Blocking work: run it in a thread.

    Holds the text of what may be indexed and nothing of what is skipped. An instance serves one upload.
    """

    def __init__(self, limits: FolderLimits) -> None:
        self._limits = limits
        self._extensions = frozenset(limits.extensions)
        self._paths: dict[str, SkipReason | None] = {}
        self._candidates: dict[str, _Candidate] = {}
        self._gitignores: dict[str, str] = {}
        self._held = 0

    def useful_bytes(self, path: str) -> int:
        """How much of the file's content ``add`` would look at; 0: its path is enough. Raises UnsafePath."""
        path = checked_path(path)
        if path.rpartition("/")[2] == GITIGNORE:
            return MAX_GITIGNORE_BYTES
        # One more than is allowed, so that a file that was cut off is still seen to be too large.
        return 0 if self._rules(_inner(path)) else self._limits.max_file_bytes * MAX_ENCODING_FACTOR + 1

    def add(self, file: AttachedFile) -> None:
        """Take one file. Raises UnsafePath, DuplicatePath, TooManyBytes: each refuses the whole upload."""
        path = checked_path(file.path)
        if path in self._paths:
            raise DuplicatePath(path)
        self._paths[path] = None
        if path.rpartition("/")[2] == GITIGNORE:
            self._gitignores[path] = file.content[:MAX_GITIGNORE_BYTES].decode("utf-8", "replace")
        elif not self._rules(_inner(path)):
            read = self._read(file.content)
            if isinstance(read, SkipReason):
                self._paths[path] = read
            else:
                self._hold(path, read)

    def prepare(self, project: str, folder_name: str | None = None) -> PreparedFolder:
        """Filter, cut and analyse all that was added.

        ``folder_name`` is taken off in front when every path begins with it; None: whatever folder all paths
        share. Raises NothingIndexable, TooManyFiles, TooManyBytes, TooManyChunks.
        """
        name, prefix = self._folder(folder_name)
        chosen, skipped = self._sort_out(prefix)
        self._check_caps(chosen)
        files, texts = [], {}
        for path, candidate in chosen.items():
            clean = without_secrets(candidate.text)
            if clean is None:
                skipped.append(Skipped(path, SkipReason.SECRET))
                continue
            text, redacted = clean
            texts[path] = text
            reason = SkipReason.SECRET if redacted else SkipReason.ENCODING if candidate.damaged else None
            files.append((path, reason))
        if not files:
            raise NothingIndexable(len(self._paths))
        cut = {path: chunk_text(text, path) for path, text in texts.items()}
        count = sum(len(document.chunks) for document in cut.values())
        if count > self._limits.max_chunks:
            raise TooManyChunks(count, self._limits.max_chunks)
        analyser = Analyser()
        return PreparedFolder(
            name,
            tuple(IndexedFile(path, len(cut[path].chunks), reason) for path, reason in files),
            tuple(sorted(skipped, key=lambda skip: skip.path)),
            tuple(
                chunk
                for path, _ in files
                for chunk in prepare_chunks(analyser, project, Scope.LOCAL, path, cut[path])
            ),
        )

    def _rules(self, path: str) -> PathSkip | None:
        return path_skip(path, self._extensions)

    def _read(self, content: bytes) -> _Candidate | SkipReason:
        limit = self._limits.max_file_bytes
        if len(content) > limit * MAX_ENCODING_FACTOR:
            return SkipReason.TOO_LARGE
        decoded = decode_text(content)
        if isinstance(decoded, str):
            return SkipReason(decoded)
        size = len(decoded.text.encode())
        return _Candidate(decoded.text, size, decoded.dropped > 0) if size <= limit else SkipReason.TOO_LARGE

    def _hold(self, path: str, candidate: _Candidate) -> None:
        self._candidates[path] = candidate
        self._held += candidate.size
        if self._held <= self._limits.max_bytes * HELD_FACTOR:
            return
        # Too much to keep: drop what the .gitignore files seen so far, and the paths now known, rule out.
        prefix = self._folder(None)[1]
        ignore = self._gitignore(prefix)
        for held in list(self._candidates):
            path = held.removeprefix(prefix)
            if self._rules(path) or ignore.skip(path):
                self._held -= self._candidates.pop(held).size
        if self._held > self._limits.max_bytes * HELD_FACTOR:
            raise TooManyBytes(self._held, self._limits.max_bytes)

    def _folder(self, folder_name: str | None) -> tuple[str, str]:
        """The folder's name and the prefix that comes off every path."""
        name = unicodedata.normalize("NFC", folder_name or "").strip("/")
        shared = {path.partition("/")[0] if "/" in path else "" for path in self._paths}
        common = shared.pop() if len(shared) == 1 else ""
        prefix = f"{common}/" if common and name in ("", common) else ""
        label = "".join(character for character in name or common if character.isprintable())
        return label[:MAX_FOLDER_NAME] or "folder", prefix

    def _gitignore(self, prefix: str) -> GitIgnore:
        ignore = GitIgnore()
        for path, text in self._gitignores.items():
            ignore.add(path.removeprefix(prefix).removesuffix(GITIGNORE), text)
        return ignore

    def _sort_out(self, prefix: str) -> tuple[dict[str, _Candidate], list[Skipped]]:
        """What stays, and what is left out: each ignored or hidden directory once."""
        ignore = self._gitignore(prefix)
        chosen: dict[str, _Candidate] = {}
        skipped: list[Skipped] = []
        directories: Counter[tuple[str, SkipReason]] = Counter()
        for added, content_reason in self._paths.items():
            path = added.removeprefix(prefix)
            skip = self._skip(path, ignore)
            if skip and skip.directory:
                directories[skip.directory, skip.reason] += 1
            elif skip:
                skipped.append(Skipped(path, skip.reason))
            elif added in self._candidates:
                chosen[path] = self._candidates[added]
            else:
                skipped.append(Skipped(path, content_reason or SkipReason.IGNORED))
        skipped += [Skipped(path, reason, files) for (path, reason), files in directories.items()]
        return dict(sorted(chosen.items())), skipped

    def _skip(self, path: str, ignore: GitIgnore) -> PathSkip | None:
        """The path's own rules, unless the folder's ``.gitignore`` already closes a directory further out."""
        own, asked = self._rules(path), ignore.skip(path)
        if own and asked and own.directory and asked.directory:
            return min(own, asked, key=lambda skip: len(skip.directory or ""))
        return own if own and own.directory else asked or own

    def _check_caps(self, chosen: dict[str, _Candidate]) -> None:
        if not chosen:
            raise NothingIndexable(len(self._paths))
        if len(chosen) > self._limits.max_files:
            raise TooManyFiles(len(chosen), self._limits.max_files)
        size = sum(candidate.size for candidate in chosen.values())
        if size > self._limits.max_bytes:
            raise TooManyBytes(size, self._limits.max_bytes)


def _inner(path: str) -> str:
    """The path without its first folder, which may be the attached folder's own name and is judged at the end."""
    return path.partition("/")[2] or path


def prepare_chunks(
    analyser: Analyser, project: str, scope: Scope, path: str, document: ChunkedText
) -> Iterator[PreparedChunk]:
    """Analyse the chunks of one file. Their ids follow from what they say and where, so unchanged ones keep them."""
    file_language = guess_language("\n".join(chunk.content for chunk in document.chunks[:4]))
    seen: Counter[tuple[tuple[str, ...], str]] = Counter()
    for chunk in document.chunks:
        language = guess_language(chunk.content, file_language)
        twin = seen[chunk.heading_path, chunk.content]
        seen[chunk.heading_path, chunk.content] += 1
        identity = "\0".join((project, scope, path, *chunk.heading_path, chunk.content, str(twin)))
        yield PreparedChunk(
            uuid5(_CHUNK_IDS, identity), path, chunk.start_line, chunk.end_line, chunk.heading_path, document.title,
            chunk.content, language, encode_terms(_weighted_terms(analyser, chunk, document.title, path, language)),
        )  # fmt: skip


def _weighted_terms(
    analyser: Analyser, chunk: Chunk, title: str | None, path: str, language: str
) -> Counter[int]:
    counts = analyser.count_terms(chunk.content, (language,))
    headings = " \n".join(dict.fromkeys([*([title] if title else []), *chunk.heading_path]))
    for text, weight in ((headings, HEADING_WEIGHT), (path, PATH_WEIGHT)):
        for term, repeated in analyser.count_terms(text, (language,)).items():
            counts[term] += repeated * weight
    return counts
