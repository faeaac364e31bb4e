"""The files of one turn: each reference once, each announced file in exactly one visible state."""

from __future__ import annotations

from proxy.stream.events import Delivery, Fetch, MediaRef


class Deliveries:
    """At most ``most`` files; as many more are refused one by one, and a flood beyond that is dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._urls: set[str] = set()
        self._slots: list[Delivery | None] = []
        self._open: dict[int, MediaRef] = {}
        self.any_stored = False

    def __bool__(self) -> bool:
        return bool(self._slots)

    @property
    def open(self) -> bool:
        """A file is still on its way."""
        return bool(self._open)

    @property
    def outcomes(self) -> list[Delivery]:
        """What is known by now, in the order of announcement."""
        return [outcome for outcome in self._slots if outcome is not None]

    def offer(self, reference: MediaRef) -> Fetch | Delivery | None:
        """A file of the harness: to be fetched, refused at once, or (known, or past all bounds) nothing."""
        if reference.url in self._urls or self._flooded():
            return None
        self._urls.add(reference.url)
        key = len(self._slots)
        reason = reference.refused or ("too_many" if key >= self._most else None)
        if reason:
            refused = Delivery("refused", _name(reference), reason=reason)
            self._slots.append(refused)
            return refused
        self._slots.append(None)
        self._open[key] = reference
        return Fetch(key, reference)

    def announce(self, outcome: Delivery) -> Delivery | None:
        """A file that the agent wrote itself; returns what the member is told, if anything."""
        if self._flooded():
            return None
        if len(self._slots) >= self._most:
            outcome = Delivery("refused", outcome.name, reason="too_many")
        self._slots.append(outcome)
        self.any_stored |= outcome.state == "stored"
        return outcome

    def done(self, key: int, outcome: Delivery) -> bool:
        """A fetch is over; False if it had been given up, or never was."""
        if self._open.pop(key, None) is None:
            return False
        self._slots[key] = outcome
        self.any_stored |= outcome.state == "stored"
        return True

    def give_up(self, reason: str) -> list[Delivery]:
        """Fail every fetch that is still open."""
        failed = {key: Delivery("failed", _name(ref), reason=reason) for key, ref in self._open.items()}
        for key, outcome in failed.items():
            self.done(key, outcome)
        return list(failed.values())

    def _flooded(self) -> bool:
        return len(self._slots) >= 2 * self._most


def _name(reference: MediaRef) -> str:
    return (reference.filename or "attachment")[:255]
