"""What the agent said in one turn: as it goes into the stream, and as it stands in history."""

from __future__ import annotations

from dataclasses import dataclass

MAX_MESSAGES = 10_000

_BLANK_LINE = "\n\n"


@dataclass(slots=True)
class _Message:
    text: str
    streamed: str


class Transcript:
    """Messages by id, each given whole every time it grows.

    At most ``max_bytes`` of UTF-8 go out, in at most `MAX_MESSAGES` messages.

    A text that extends what was streamed of its message goes out as the difference. One that does not is
    never spliced: it goes out whole, as a new paragraph, and replaces its message in `text`.
    """

    def __init__(self, max_bytes: int) -> None:
        self._messages: dict[str, _Message] = {}
        self._speaking: str | None = None
        self._room = max_bytes
        self._full = False

    @property
    def full(self) -> bool:
        """Something did not fit, and was left out."""
        return self._full

    @property
    def text(self) -> str:
        """The answer as history has it."""
        return _BLANK_LINE.join(message.text for message in self._messages.values())

    def __bool__(self) -> bool:
        return bool(self._messages)

    def say(self, message_id: str, text: str) -> str:
        """Take a message's whole text (not empty); returns what the stream has to add, perhaps nothing."""
        known = self._messages.get(message_id)
        apart = self._speaking != message_id
        if known is None:
            addition = text
        elif text.startswith(known.streamed):
            addition = text[len(known.streamed) :]
        elif known.streamed.startswith(text) and known.streamed[len(text) :].isspace():
            # White space at the end was trimmed; saying it all again would help nobody.
            known.text = text
            return ""
        else:
            addition, apart = text, True
        if addition and apart and self._speaking is not None:
            addition = _BLANK_LINE + addition
        self._room -= len(addition.encode("utf-8", "replace"))
        self._full |= self._room < 0 or (known is None and len(self._messages) >= MAX_MESSAGES)
        if self._full:
            return ""
        if addition:
            self._speaking = message_id
        self._messages[message_id] = _Message(text, text)
        return addition

    def retract(self, message_id: str) -> bool:
        """Take a message out of the answer; tells whether it had been said."""
        return self._messages.pop(message_id, None) is not None
