"""What the demo agent says: it has no model, it looks into its workspace. Everything here blocks."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

LISTED_FILES = 1000
ECHOED_CHARACTERS = 2000
HELP = (
    'Ask "what files do you see?", "count words in notes.txt", "make a report" (I send it) or '
    '"write a report" (I put it into public/attachments myself). /stop ends a running turn, /help says this.'
)


class Mistake(Exception):
    """What was asked cannot be done; the text is for the member, so it holds no host path."""


@dataclass(frozen=True)
class Answer:
    """What a message leads to: a text, and perhaps one tool call before it, whose file is sent."""

    text: str
    tool: str = ""
    arguments: dict[str, str] = field(default_factory=dict)
    attachment: Path | None = None


# What Isthmus puts before the first message of a session: in a project a block, else one line.
CONTEXT = re.compile(r"\A(?:\[project: .*?\n\[/project\]|\[deliver to: [^\n]*\])\s*", re.DOTALL)
ATTACHMENT = re.compile(r"^\[attachment: (.+)\][ \t]*\n?", re.MULTILINE)


def read_message(content: str) -> tuple[str, list[str]]:
    """The member's own words, and the paths of the attachments that the message names."""
    words = CONTEXT.sub("", content, count=1)
    return ATTACHMENT.sub("", words).strip(), ATTACHMENT.findall(words)


def workspace_of(workspaces: Path, member: str, session_id: str) -> Path:
    """The folder that a session works in; it need not exist. ``member`` is the segment of the URL.

    URLs allow fewer ids than folders do: ``ana.b`` comes as ``m-`` and its digest, but its folder is plain.
    """
    folder = workspaces / member
    if member.startswith("m-") and not folder.is_dir():
        with contextlib.suppress(OSError):
            for entry in workspaces.iterdir():
                if f"m-{hashlib.sha256(os.fsencode(entry.name)).hexdigest()[:32]}" == member:
                    folder = entry
    project = re.match(r"p\.([a-z0-9][a-z0-9_-]{0,63})\.", session_id)
    return folder / (f"workspace-{project[1]}" if project else "workspace")


def public_files(workspace: Path) -> dict[str, Path]:
    """Name below ``public/`` → file, sorted; hidden ones, links and what is no regular file are left out."""
    public, found = workspace / "public", dict[str, Path]()
    for folder, folders, names in os.walk(public):
        folders.sort()
        for path in (Path(folder) / name for name in sorted(names) if not name.startswith(".")):
            if path.is_file() and not path.is_symlink():
                found[str(path.relative_to(public))] = path
        if len(found) >= LISTED_FILES:
            break
    return found


def count_words(path: Path) -> int:
    return len(path.read_bytes().split())


def think(workspace: Path, content: str) -> Answer:
    """Do what the message asks and say so. Raises Mistake, OSError."""
    asked, attachments = read_message(content)
    files = public_files(workspace)
    named = [name for name in files if re.search(rf"(?<![\w.-]){re.escape(Path(name).name)}(?![\w-])", asked)]
    for name in named:
        asked = asked.replace(Path(name).name, "")
    wish = asked.casefold()
    if re.search(r"\bwrite\b.*\breport\b", wish):
        return write_report(workspace, files)
    if re.search(r"\breport\b", wish):
        return make_report(workspace, files)
    if named:
        return Answer("\n".join(f"{name} has {count_words(files[name])} words." for name in named))
    if re.search(r"\bcount\b.*\bwords\b", wish):
        return Answer("I see no file of that name in my workspace.")
    if re.search(r"\b(list|files?)\b", wish):
        return Answer(list_files(files))
    if attachments:
        return Answer("\n".join(open_attachment(workspace, told) for told in attachments))
    return Answer(f"You said: {asked[:ECHOED_CHARACTERS]}\n\n{HELP}")


def list_files(files: dict[str, Path]) -> str:
    if not files:
        return "There are no files in my workspace."
    return "I see these files:\n" + "\n".join(f"- {n} ({p.stat().st_size} bytes)" for n, p in files.items())


def open_attachment(workspace: Path, told: str) -> str:
    """Open a file by exactly the path that the message told, as a model's tools would."""
    path = (workspace / told).resolve()
    if not path.is_relative_to(workspace.resolve()) or not path.is_file():
        return f"I cannot open {told}."
    return f"I received {told}: {path.stat().st_size} bytes, {count_words(path)} words."


def report_text(files: dict[str, Path]) -> str:
    lines = [
        f"- {name}: {path.stat().st_size} bytes, {count_words(path)} words" for name, path in files.items()
    ]
    return "# Report\n\n" + "\n".join(lines or ["There are no files."]) + "\n"


def existing(workspace: Path) -> Path:
    """The workspace, which is not this agent's to make."""
    if not workspace.is_dir():
        raise Mistake("my workspace does not exist yet")
    return workspace


def make_report(workspace: Path, files: dict[str, Path]) -> Answer:
    """A report outside ``public/``, to be sent as an attachment."""
    out = existing(workspace) / "out"
    out.mkdir(exist_ok=True)
    number = 1
    while (path := out / f"report-{number}.md").exists():
        number += 1
    path.write_text(report_text(files), encoding="utf-8")
    told = str(path.relative_to(workspace))
    return Answer(
        f"I have sent you {path.name}.", tool="send_file", arguments={"path": told}, attachment=path
    )


def write_report(workspace: Path, files: dict[str, Path]) -> Answer:
    """A report written into the delivery directory by the agent itself."""
    path = existing(workspace) / "public" / "attachments" / "report.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report_text(files), encoding="utf-8")
    told = str(path.relative_to(workspace))
    return Answer(f"I have written the report to {told}.", tool="write_file", arguments={"path": told})
