"""Which paths and texts stay out, and why."""

from __future__ import annotations

import pytest

from rag.errors import UnsafePath
from rag.filters import GitIgnore, PathSkip, checked_path, path_skip, without_secrets
from rag.model import SkipReason

EXTENSIONS = {"md", "py", "txt", "json"}
TOKEN = "ghp_" + "a1B2c3D4e5" * 4


@pytest.mark.parametrize(
    ("path", "reason", "directory"),
    [
        ("src/app.py", None, None),
        ("README", None, None),
        ("Makefile", None, None),
        ("NOTES.MD", None, None),
        ("node_modules/a/b.py", "ignored", "node_modules/"),
        ("web/dist/a.py", "ignored", "web/dist/"),
        (".git/config", "ignored", ".git/"),
        (".github/x.md", "hidden", ".github/"),
        ("a/.hidden.md", "hidden", None),
        (".env", "secret", None),
        ("deploy/.env.production", "secret", None),
        (".env.example", "hidden", None),
        ("keys/id_rsa", "secret", None),
        ("server.pem", "secret", None),
        ("package-lock.json", "ignored", None),
        ("photo.png", "extension", None),
        ("unknown", "extension", None),
    ],
)
def test_a_path_has_one_reason(path: str, reason: str | None, directory: str | None):
    expected = PathSkip(SkipReason(reason), directory) if reason else None
    assert path_skip(path, EXTENSIONS) == expected


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", "empty"),
        ("/etc/passwd", "absolute"),
        ("C:/a.md", "drive letter"),
        ("a\\b.md", "backslash"),
        ("a/../b.md", "empty or dot segment"),
        ("./a.md", "empty or dot segment"),
        ("a//b.md", "empty or dot segment"),
        ("a\x00.md", "control character"),
        ("a\n.md", "control character"),
        ("a\ud800.md", "not valid Unicode"),
        ("a" * 5000, "too long"),
    ],
)
def test_an_unsafe_path_is_refused_with_its_problem(path: str, problem: str):
    with pytest.raises(UnsafePath) as caught:
        checked_path(path)
    assert caught.value.problem == problem
    assert caught.value.path.isprintable()
    caught.value.path.encode()


def test_dots_inside_a_name_are_no_dot_segment_and_paths_become_nfc():
    assert checked_path("a..b/cafe\u0301...md") == "a..b/café...md"


def test_gitignore_follows_git():
    ignore = GitIgnore()
    ignore.add("", "*.log\n/out/\nsecret\n!keep.log\n[\n")
    ignore.add("sub/", "!special.log\nlocal/\n")
    found = {path: ignore.skip(path) for path in (
        "a.log", "keep.log", "sub/a.log", "sub/special.log", "out/x/y.md", "sub/out/y.md", "sub/local/a.md",
        "local/a.md", "deep/secret/a.md",
    )}  # fmt: skip
    alone = PathSkip(SkipReason.IGNORED)
    assert found == {
        "a.log": alone,
        "keep.log": None,
        "sub/a.log": alone,
        "sub/special.log": None,
        "out/x/y.md": PathSkip(SkipReason.IGNORED, "out/"),
        "sub/out/y.md": None,
        "sub/local/a.md": PathSkip(SkipReason.IGNORED, "sub/local/"),
        "local/a.md": None,
        "deep/secret/a.md": PathSkip(SkipReason.IGNORED, "deep/secret/"),
    }


def test_a_closed_directory_stays_closed_whatever_lies_in_it():
    ignore = GitIgnore()
    ignore.add("", "build2/\n!build2/keep.md\n")
    ignore.add("build2/", "!*\n")
    assert ignore.skip("build2/keep.md") == PathSkip(SkipReason.IGNORED, "build2/")


def test_a_credential_in_passing_is_redacted_in_its_place():
    text = "line one\nthe token is " + TOKEN + " today\n" + "prose of some length\n" * 40
    clean = without_secrets(text)
    assert clean == (text.replace(TOKEN, "[redacted]"), True)


@pytest.mark.parametrize(
    "secret",
    [TOKEN, "AKIAABCDEFGHIJKLMNOP", "sk-proj-abcdefghijklmnop1234", 'password = "hunter2hunter2hunter2x"',
     "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghij12345"],
)  # fmt: skip
def test_a_file_that_is_mostly_a_credential_is_left_out(secret: str):
    assert without_secrets(f"x {secret}\n") is None


def test_a_private_key_is_left_out_however_much_prose_is_around_it():
    assert without_secrets("prose\n" * 5000 + "-----BEGIN OPENSSH PRIVATE KEY-----\n") is None


def test_ordinary_code_has_no_secret():
    text = "token = read_token_from_environment()\nkey = cache_key(user)\npassword: str = ''\n"
    assert without_secrets(text) == (text, False)
