"""The model of a durable engine, whatever happened to its process: a list of all that was acknowledged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Triple = tuple[str, str, str]
Rows = tuple[tuple[str, ...], ...]


@dataclass
class Model:
    """Tuples per stream, and loaded triples, as they were acknowledged."""

    timing: dict[str, frozenset[str]]
    tuples: dict[str, list[tuple[Triple, int]]] = field(default_factory=dict)
    loaded: set[Triple] = field(default_factory=set)

    def push(self, stream: str, tuples: Iterable[tuple[Triple, int]]) -> None:
        self.tuples.setdefault(stream, []).extend(tuples)

    def window(self, stream: str, start_ms: int, end_ms: int) -> set[Triple]:
        return {triple for triple, t in self.tuples.get(stream, []) if start_ms < t <= end_ms}

    def last(self, stream: str, count: int, end_ms: int) -> set[Triple]:
        """The content of the last so many tuples of a stream at or before a time."""
        return {triple for triple, _ in [each for each in self.tuples.get(stream, []) if each[1] <= end_ms][-count:]}

    def stored(self, closed_ms: int) -> set[Triple]:
        """The stored graph when every stream is closed up to a time."""
        timeless = {
            triple
            for stream, tuples in self.tuples.items()
            for triple, t in tuples
            if t <= closed_ms and triple[1] not in self.timing[stream]
        }
        return timeless | self.loaded


@dataclass
class Delivered:
    """The windows of one query that were read, over all lives of the engine."""

    rows: dict[int, Any] = field(default_factory=dict)
    acknowledged_ms: int = -1
    last_ms: int = -1
    """The newest time of this life."""

    def read(self, end_ms: int, rows: Any) -> None:
        """One more window. It comes in order, never again once acknowledged, and with the rows that it had before."""
        assert end_ms > self.last_ms, f"window {end_ms} came after {self.last_ms}"
        assert end_ms > self.acknowledged_ms or self.acknowledged_ms < 0, f"window {end_ms} was acknowledged"
        assert self.rows.setdefault(end_ms, rows) == rows, f"window {end_ms} came again with other rows"
        self.last_ms = end_ms

    def restart(self) -> None:
        self.last_ms = -1
