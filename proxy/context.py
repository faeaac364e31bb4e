"""What a turn tells the harness besides the member's words: where it works and where deliveries go (pure)."""

from __future__ import annotations

from dataclasses import dataclass

DELIVERY_DIRECTORY = "public/attachments"


@dataclass(frozen=True, slots=True)
class Context:
    """`files` and `deliver_to` are directories as the agent sees them; `project` None is the main workspace."""

    project: str | None
    files: str
    deliver_to: str
    instructions: str = ""

    def block(self) -> str:
        """The lines put before a session's first message, and again when they changed; never in the history."""
        if self.project is None:
            return f"[deliver to: {self.deliver_to}]"
        head = f"[project: {self.project} · files: {self.files} · deliver to: {self.deliver_to}]"
        return "\n".join(line for line in (head, self.instructions, "[/project]") if line)


def with_context(text: str, block: str) -> str:
    """The message as the harness gets it. A command (`/…`) goes bare: the harness knows it by its first character."""
    return text if text.startswith("/") else f"{block}\n\n{text}"
