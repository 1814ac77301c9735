"""The stored graph under tuples with signs: a list of what has come, replayed in order by plain sets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

Triple = tuple[str, str, str]
Quad = tuple[str, str, str, str]
"""The last one is its graph, "" for the default graph."""


class Signed(NamedTuple):
    """sign: + or -."""

    sign: str
    quad: Quad
    time_ms: int


@dataclass
class SignedStreams:
    """Streams whose batches are all of one length; timing: the predicate that is in windows only."""

    batch_ms: int
    timing: str
    stored: set[Quad] = field(default_factory=set)
    clock_ms: int | None = None
    at: dict[int, frozenset[Quad]] = field(default_factory=dict)
    """The stored graph as of each multiple of batch_ms that the clock has passed."""
    _complete_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    _come: dict[str, list[tuple[int, Triple]]] = field(default_factory=dict)
    _waiting: list[tuple[int, int, str, str, int, Signed]] = field(default_factory=list)
    _count: int = 0

    def push(self, stream: str, partition: str, tuples: Iterable[Signed]) -> None:
        """Take tuples that are on time."""
        for one in tuples:
            self._count += 1
            if one.sign == "+":
                self._come.setdefault(stream, []).append((one.time_ms, one.quad[:3]))
            if one.quad[1] != self.timing:
                end_ms = -(-one.time_ms // self.batch_ms) * self.batch_ms
                self._waiting.append((end_ms, one.time_ms, stream, partition, self._count, one))

    def push_late(self, tuples: Iterable[Signed]) -> None:
        """Take tuples of one call that are in no window."""
        for one in sorted(tuples, key=lambda one: one.time_ms):  # stable: equal times as they came
            if one.quad[1] != self.timing:
                self._apply(one)

    def complete(self, stream: str, partition: str, time_ms: int) -> None:
        """Nothing at or before a time comes any more from a partition."""
        key = stream, partition
        self._complete_ms[key] = max(time_ms, self._complete_ms.get(key, time_ms))

    def complete_ms(self, stream: str, partition: str) -> int:
        """Up to where nothing more comes from a partition."""
        return self._complete_ms[stream, partition]

    def move_on(self) -> None:
        """Let join what is closed in all streams."""
        closed_ms = min(self._complete_ms.values()) // self.batch_ms * self.batch_ms
        if self.clock_ms is None:
            self.clock_ms = closed_ms
        while self.clock_ms < closed_ms:
            self.clock_ms += self.batch_ms
            due = [one for one in self._waiting if one[0] <= self.clock_ms]
            self._waiting = [one for one in self._waiting if one[0] > self.clock_ms]
            for *_, one in sorted(due):
                self._apply(one)
            self.at[self.clock_ms] = frozenset(self.stored)

    def window(self, stream: str, start_ms: int, end_ms: int) -> set[Triple]:
        return {triple for time_ms, triple in self._come.get(stream, []) if start_ms < time_ms <= end_ms}

    def _apply(self, one: Signed) -> None:
        (self.stored.add if one.sign == "+" else self.stored.discard)(one.quad)
