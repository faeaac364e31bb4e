"""Which files of a folder are indexed: by path, by the folder's own ``.gitignore``, by content. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass

import pathspec

from rag.errors import UnsafePath
from rag.model import SkipReason

MAX_PATH_BYTES = 4096
GITIGNORE = ".gitignore"

IGNORED_DIRECTORIES = frozenset(
    ".git .hg .svn node_modules bower_components vendor dist build out target coverage __pycache__ .venv venv "
    ".tox .nox .mypy_cache .ruff_cache .pytest_cache .hypothesis .gradle .idea .vscode .next .nuxt .svelte-kit "
    ".turbo .cache .parcel-cache .terraform .eggs site-packages Pods DerivedData".split()
)
IGNORED_NAMES = frozenset(
    ".DS_Store Thumbs.db desktop.ini package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml poetry.lock "
    "uv.lock Pipfile.lock Cargo.lock composer.lock Gemfile.lock go.sum".split()
)
EXTENSIONLESS_NAMES = frozenset(
    "makefile dockerfile containerfile license licence readme notice authors changelog contributing procfile "
    "gemfile rakefile jenkinsfile vagrantfile codeowners".split()
)
_SECRET_NAME = re.compile(
    r"\.env(\..+)?|.+\.env|\.?(netrc|npmrc|pypirc|pgpass|htpasswd|git-credentials)|id_(rsa|dsa|ecdsa|ed25519)|"
    r".+\.(pem|key|p12|pfx|jks|keystore|kdbx|ppk)|(credentials|secrets)(\.(json|ya?ml|toml|ini|txt))?",
    re.IGNORECASE,
)
_PUBLIC_ENV_EXAMPLE = re.compile(r"\.env\.(example|sample|template|dist)", re.IGNORECASE)

_PRIVATE_KEY = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_TOKEN = re.compile(
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{36,255}\b|\bgithub_pat_[A-Za-z0-9_]{22,255}\b|\bglpat-[A-Za-z0-9_-]{20,255}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,255}|\bsk-[A-Za-z0-9_-]{20,255}|\b[rs]k_live_[A-Za-z0-9]{16,255}"
    r"|\bAIza[A-Za-z0-9_-]{35}|\bhf_[A-Za-z0-9]{30,255}\b|\bnpm_[A-Za-z0-9]{36}\b|\bpypi-[A-Za-z0-9_-]{50,1024}"
    r"|\beyJ[A-Za-z0-9_-]{10,2048}\.eyJ[A-Za-z0-9_-]{10,4096}\.[A-Za-z0-9_-]{10,1024}"
)
# A literal that is assigned to a telling name and looks random: a letter, a digit, 20 characters or more.
_ASSIGNED = re.compile(
    r"(?i)(?:secret|token|passwo?r?d|passwd|api_?-?key|access_?-?key)[A-Za-z0-9_-]{0,32}[\"']?[ \t]{0,8}(?::|=|=>|:=)"
    r"[ \t]{0,8}[\"']?(?P<value>(?=[^\s\"']{0,255}[0-9])(?=[^\s\"']{0,255}[A-Za-z])[A-Za-z0-9+/_=.-]{20,255})"
)
REDACTED = "[redacted]"
# A file of which this share is credentials is one; below, the credential is taken out and the rest is indexed.
SECRET_SHARE = 0.1


def checked_path(raw_path: str) -> str:
    """A path inside the folder, in NFC. Raises UnsafePath, which refuses the whole upload."""
    path = unicodedata.normalize("NFC", raw_path)
    shown = path.encode("utf-8", "backslashreplace").decode()[:200]
    segments = path.split("/")
    problem = ""
    if not path:
        problem = "empty"
    elif any(0xD800 <= ord(character) <= 0xDFFF for character in path):
        problem = "not valid Unicode"
    elif any(unicodedata.category(character) == "Cc" for character in path):
        problem = "control character"
    elif "\\" in path:
        problem = "backslash"
    elif path.startswith("/"):
        problem = "absolute"
    elif re.match(r"[A-Za-z]:", path):
        problem = "drive letter"
    elif not {"", ".", ".."}.isdisjoint(segments):
        problem = "empty or dot segment"
    elif len(path.encode()) > MAX_PATH_BYTES:
        problem = "too long"
    if problem:
        raise UnsafePath("".join(c if c.isprintable() else "?" for c in shown), problem)
    return path


@dataclass(frozen=True, slots=True)
class PathSkip:
    """Why a path is left out; ``directory`` (ending in ``/``) if the whole directory is, not the file alone."""

    reason: SkipReason
    directory: str | None = None


def path_skip(path: str, extensions: Collection[str]) -> PathSkip | None:
    """The rules that need the path alone, in the order of their strength. ``extensions`` are lower case."""
    *directories, name = path.split("/")
    for depth, directory in enumerate(directories, start=1):
        whole = "/".join(directories[:depth]) + "/"
        if directory in IGNORED_DIRECTORIES or directory.endswith(".egg-info"):
            return PathSkip(SkipReason.IGNORED, whole)
        if directory.startswith("."):
            return PathSkip(SkipReason.HIDDEN, whole)
    if name in IGNORED_NAMES:
        return PathSkip(SkipReason.IGNORED)
    if _SECRET_NAME.fullmatch(name) and not _PUBLIC_ENV_EXAMPLE.fullmatch(name):
        return PathSkip(SkipReason.SECRET)
    if name.startswith("."):
        return PathSkip(SkipReason.HIDDEN)
    stem, dot, extension = name.rpartition(".")
    known = extension.lower() in extensions if dot and stem else name.lower() in EXTENSIONLESS_NAMES
    return None if known else PathSkip(SkipReason.EXTENSION)


class GitIgnore:
    """The ``.gitignore`` files of a folder, by git's rules: deeper files win, an excluded directory is closed."""

    def __init__(self) -> None:
        self._specs: dict[str, pathspec.GitIgnoreSpec] = {}
        self._directories: dict[str, bool] = {}

    def add(self, directory: str, text: str) -> None:
        """``directory`` holds the file: ``""`` or a path ending in ``/``. A pattern git would not take is left out."""
        lines = [line for line in text.splitlines() if _is_pattern(line)]
        self._specs[directory] = pathspec.GitIgnoreSpec.from_lines(lines)
        self._directories.clear()

    def skip(self, path: str) -> PathSkip | None:
        """Whether the folder itself asks to leave this file out."""
        if not self._specs:
            return None
        parts = path.split("/")
        for depth in range(1, len(parts)):
            directory = "/".join(parts[:depth]) + "/"
            if directory not in self._directories:
                self._directories[directory] = self._excludes(directory)
            if self._directories[directory]:
                return PathSkip(SkipReason.IGNORED, directory)
        return PathSkip(SkipReason.IGNORED) if self._excludes(path) else None

    def _excludes(self, path: str) -> bool:
        parts = path.rstrip("/").split("/")
        for depth in range(len(parts) - 1, -1, -1):
            base = "/".join(parts[:depth]) + "/" if depth else ""
            if spec := self._specs.get(base):
                verdict = spec.check_file(path.removeprefix(base)).include
                if verdict is not None:
                    return bool(verdict)
        return False


def _is_pattern(line: str) -> bool:
    try:
        pathspec.GitIgnoreSpec.from_lines([line])
    except ValueError:  # pathspec's pattern errors are ValueErrors
        return False
    return True


def without_secrets(text: str) -> tuple[str, bool] | None:
    """``text`` with credentials replaced by ``[redacted]`` on their lines, and whether there were any.

    None if the text is itself a credential: a private key, or mostly tokens.
    """
    if _PRIVATE_KEY.search(text):
        return None
    spans = sorted(
        [match.span() for match in _TOKEN.finditer(text)]
        + [match.span("value") for match in _ASSIGNED.finditer(text)]
    )
    if sum(end - start for start, end in spans) > len(text.strip()) * SECRET_SHARE:
        return None
    kept, position = [], 0
    for start, end in spans:
        if start >= position:
            kept += [text[position:start], REDACTED]
        position = max(position, end)
    return "".join(kept) + text[position:], bool(spans)
