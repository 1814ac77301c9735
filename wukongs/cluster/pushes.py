"""Pushes: what each node remembers of the pushes to a stream, so that the stream's next writer knows what counts.

A writer finishes a push, on all nodes, before it says the next one. So the push before is whole, unless the message
says that it is torn. When a writer goes in the middle of a push, some nodes may have its rows and others not. Its
client then says it again: the next writer gives it the same rows, and judges it by the same times, so each node has it
once. For so long the writer lets others wait. A push that is not said again is torn: what has come of it is never
known.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wukongs.errors import DataError
from wukongs.outcomes import Asked, Found, Outcomes

TORN = "torn"
"""In an outcome: some nodes have the push, and others do not, for ever."""
BOUND = "bound"


class Push(NamedTuple):
    """One push of a client to a stream: its rows, and what it was judged by. bound_ms: tuples at or before it are late;
    promised_ms: up to where the stream was closed before."""

    by: Asked
    first_offset: int
    end_offset: int
    bound_ms: int | None
    promised_ms: int | None

    @property
    def outcome(self) -> Found:
        return {"": 1} if self.bound_ms is None else {"": 1, BOUND: self.bound_ms}

    def is_by(self, by: Asked | None) -> bool:
        return by is not None and self.by[:2] == by[:2]

    @staticmethod
    def of_json(found: Any) -> Push | None:
        """Raises DataError."""
        if found is None:
            return None
        try:
            by, first, end, bound, promised = found
            return Push(asked_in(by), int(first), int(end), _time(bound), _time(promised))
        except (TypeError, ValueError) as error:
            raise DataError(f"expected a push, found {found!r:.200}: {error}") from None


def asked_in(found: Any) -> Asked:
    """Return which change of a client a message names. Raises DataError."""
    try:
        client, number, needed = found
        return Asked(str(client), int(number), tuple(int(one) for one in needed))
    except (TypeError, ValueError) as error:
        raise DataError(f"expected client, number and needed numbers, found {found!r:.200}: {error}") from None


def _time(found: Any) -> int | None:
    return None if found is None else int(found)


@dataclass(frozen=True, slots=True)
class Pushes:
    """The knowledge of one node of the pushes to a stream. last: the push that was told last, which others perhaps do
    not have."""

    outcomes: Outcomes = field(default_factory=Outcomes)
    last: Push | None = None

    def begun(self, first_offset: int, push: Push | None, torn: Asked | None) -> Pushes:
        """Note that rows from here on are told. So the push before is everywhere, unless it is torn, or these are its
        rows. push: None for rows that no client has numbered."""
        if self.last is None or (push is not None and self.last.is_by(push.by)):
            return Pushes(self.outcomes, push)
        return Pushes(self.settled(first_offset, torn).outcomes, push)

    def settled(self, offset: int, torn: Asked | None = None) -> Pushes:
        """Return what is known when all nodes have the rows up to here, but for those of a push that is torn."""
        last = self.last
        if last is None:
            return self
        if last.is_by(torn):
            return Pushes(self.outcomes.noted(last.by, {TORN: 1}, last.end_offset))
        return self if last.end_offset > offset else Pushes(self.outcomes.noted(last.by, last.outcome, last.end_offset))

    def as_json(self) -> list[Any]:
        return [self.outcomes.as_json(), self.last]

    @staticmethod
    def of_json(found: Any) -> Pushes:
        """Raises DataError."""
        try:
            outcomes, last = found
            return Pushes(Outcomes.of_json(outcomes), Push.of_json(last))
        except (TypeError, ValueError, AttributeError) as error:
            raise DataError(f"expected the pushes to a stream, found {found!r:.200}: {error}") from None


class PushesHere:
    """The pushes to all streams, by their keys, as one node knows them. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, Pushes] = {}

    def of(self, stream: str) -> Pushes:
        with self._lock:
            return self._of.get(stream, Pushes())

    def begin(self, stream: str, first_offset: int, push: Push | None, torn: Asked | None) -> bool:
        """Do as Pushes.begun; return whether that says anything new."""
        with self._lock:
            before = self._of.get(stream, Pushes())
            self._of[stream] = before.begun(first_offset, push, torn)
            return self._of[stream] != before

    def forget(self, streams: Iterable[str]) -> None:
        """Forget all streams but these."""
        with self._lock:
            kept = set(streams)
            self._of = {stream: one for stream, one in self._of.items() if stream in kept}

    def as_json(self) -> dict[str, Any]:
        with self._lock:
            return {stream: one.as_json() for stream, one in self._of.items()}

    def restore(self, found: Mapping[str, Any]) -> None:
        """Know also what another node knows."""
        for stream, told in found.items():
            other = Pushes.of_json(told)
            with self._lock:
                known = self._of.get(stream, Pushes())
                self._of[stream] = Pushes(known.outcomes.joined(other.outcomes), known.last or other.last)
