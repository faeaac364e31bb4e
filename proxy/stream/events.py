"""What the stream cores say to each other: harness events, transport events, effects, and frames to clients.

Everything here is a plain immutable value. A harness reader makes harness events of raw frames, the relay
makes transport events of what happens to sockets and files, the turn machine answers both with effects, and
the renderer makes bytes of frames. Texts are clean already: no lone surrogates, bounded by their reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DeliveryState = Literal["stored", "refused", "failed"]
ProgressKind = Literal["thought", "tool", "placeholder", "typing", "retracted"]
FinishReason = Literal["stop", "error"]


# --- harness events: what a reader understood of one frame -----------------------------------------


@dataclass(frozen=True, slots=True)
class Typing:
    """The agent began (``on``) or ceased to show that it works."""

    on: bool


@dataclass(frozen=True, slots=True)
class Text:
    """Plain content of one message: the whole text so far, never a delta.

    ``final``: the harness marked it as the last text of the turn.
    ``is_error``: the text reports a failed turn.
    """

    message_id: str
    content: str
    final: bool = False
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Thought:
    """The agent's reasoning, whole so far; shown as progress, never part of the answer."""

    message_id: str
    content: str


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A stand-in that will be deleted, or edited into the answer under the same id."""

    message_id: str
    content: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool's name and, where the harness has one that is not the member's own message, an explanation."""

    name: str
    explanation: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCalls:
    message_id: str
    tools: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class MediaRef:
    """A file that the harness offers. ``url`` is what is fetched, and tells references of a turn apart.

    ``refused`` is the reader's reason for not fetching it (``foreign_reference``); ``url`` is then raw.
    """

    url: str
    filename: str | None = None
    content_type: str | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Media:
    """Files offered in one message; the caption is content and may be empty."""

    message_id: str
    caption: str
    references: tuple[MediaRef, ...]


@dataclass(frozen=True, slots=True)
class Deleted:
    """The agent took a message back."""

    message_id: str


@dataclass(frozen=True, slots=True)
class HarnessError:
    """The harness refused or failed something in its own protocol."""

    code: str
    message: str
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Malformed:
    """A frame that is not of the protocol or breaks a bound; the turn goes on."""

    problem: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """A well-formed frame that says nothing about the turn (a pong, an unknown type)."""


HarnessEvent = (
    Typing | Text | Thought | Placeholder | ToolCalls | Media | Deleted | HarnessError | Malformed | Ignored
)


# --- transport events: what happened to sockets, files and the service -----------------------------


@dataclass(frozen=True, slots=True)
class Delivery:
    """The one visible state of an announced file.

    ``path`` is relative to the workspace (``public/attachments/…``), ``size`` in bytes; both only when
    stored, ``reason`` only when not. ``url`` opens without further credentials, where such links are on.
    """

    state: DeliveryState
    name: str
    path: str | None = None
    size: int | None = None
    reason: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Connected:
    """The harness took the turn's socket and its message."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The socket is gone or never came; ``reason`` is for people."""

    reason: str


@dataclass(frozen=True, slots=True)
class DeliveryDone:
    """The fetch that the effect `Fetch` of this key started is over."""

    key: int
    outcome: Delivery


@dataclass(frozen=True, slots=True)
class Announced:
    """A file that the agent wrote into its attachments itself stands still and is claimed by this turn."""

    outcome: Delivery


@dataclass(frozen=True, slots=True)
class Listed:
    """The listing that `ListAttachments` asked for is complete; its files were announced before this."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed: the turn's deadline is due."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The harness confirmed that it stopped the turn."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """The service shuts down and this turn's share of the drain time is used up."""


TransportEvent = Connected | Lost | DeliveryDone | Announced | Listed | Tick | Cancelled | Stopping
Event = HarnessEvent | TransportEvent


# --- frames: what a client is told -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opening:
    pass


@dataclass(frozen=True, slots=True)
class Content:
    text: str


@dataclass(frozen=True, slots=True)
class Progress:
    kind: ProgressKind
    text: str | None = None
    tool: str | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True)
class DeliveryNotice:
    delivery: Delivery


@dataclass(frozen=True, slots=True)
class Steering:
    """Another turn of the session runs: this message was folded into it, or waits for its end."""

    folded: bool
    queued: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """First and last sequence number that can no longer be replayed."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the turn failed: a code of the error table and a message for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Usage:
    """The harness's own count of the turn's tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class Terminal:
    finish_reason: FinishReason
    usage: Usage | None = None


Frame = Opening | Content | Progress | DeliveryNotice | Steering | Gap | Failure | Terminal


# --- effects: what the turn machine asks of the relay ----------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Write this frame to the member."""

    frame: Frame


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetch and publish this file beside the frame loop; answer with one `DeliveryDone` of the same key."""

    key: int
    reference: MediaRef


@dataclass(frozen=True, slots=True)
class ListAttachments:
    """List the attachments once more; answer with an `Announced` for each new file, then one `Listed`."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The turn is over; nothing follows. Fetches still under way may be stopped."""


Effect = Send | Fetch | ListAttachments | Finish
