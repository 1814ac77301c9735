"""A stored graph under streams, loads and updates, with windows over it: sets, told one thing after the other.

Nothing is versioned: when the stable time moves on, each end of a stream batch is gone through in order, its timeless
tuples are put in, and whatever fires there is answered at once. So what a firing sees of updates and loads is what had
been told by then. A query over its window alone does not wait for the stable time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.oracles.rdf import Term, Triple
from tests.oracles.stream_oracle import NOWHERE, OracleStream
from tests.oracles.update_ast import Quads

BATCH_MS = 100
Rows = Counter[tuple[Term, ...]]
Answer = Callable[[set[Triple], "Evolving"], Rows]
"""The rows of a query over the triples of its window."""


@dataclass
class Watched:
    """A registered query of one window. answer: None, the window's triples, whatever is stored: it is held back by its
    own stream only. may: the firings later than this can come; must: those that do come; seen: those up to this were
    looked at."""

    stream: str
    range_ms: int
    step_ms: int
    answer: Answer | None
    may_ms: int
    must_ms: int
    seen_ms: int
    expected: dict[int, Rows] = field(default_factory=dict)


@dataclass
class Evolving:
    """All streams have begun, at time 0; they have batch_ms = BATCH_MS or a multiple of it. tick_ms: a multiple of it,
    at whose multiples alone stream batches join the stored graph."""

    streams: dict[str, OracleStream]
    quads: Quads = field(default_factory=set)
    queries: dict[str, Watched] = field(default_factory=dict)
    stable_ms: int = 0
    tick_ms: int = BATCH_MS

    def __post_init__(self) -> None:
        for stream in self.streams.values():
            stream.advance(0)

    def graph(self, name: Term | None) -> set[Triple]:
        return {triple for graph, triple in self.quads if graph == name}

    def push(self, stream: str, tuples: list[tuple[Triple, int]]) -> None:
        self.streams[stream].accept(tuples)
        self._seal()

    def advance(self, stream: str, t: int) -> None:
        self.streams[stream].advance(t)
        self._seal()

    def watch(self, name: str, stream: str, range_ms: int, step_ms: int, answer: Answer | None) -> None:
        closed_ms = self.streams[stream].closed_ms
        may_ms, must_ms = min(self.stable_ms, closed_ms), max(self.stable_ms, closed_ms)
        self.queries[name] = Watched(stream, range_ms, step_ms, answer, may_ms, must_ms, may_ms)
        self._seal()

    def must_come(self, name: str) -> set[int]:
        watched = self.queries[name]
        return {t for t in watched.expected if t > watched.must_ms}

    def _seal(self) -> None:
        stable_ms = min(stream.cover_ms for stream in self.streams.values()) // BATCH_MS * BATCH_MS
        assert stable_ms > NOWHERE
        for t in range(self.stable_ms + BATCH_MS, stable_ms + 1, BATCH_MS):
            for end_ms in range(t - self.tick_ms + BATCH_MS, t + 1, BATCH_MS) if t % self.tick_ms == 0 else ():
                for stream in self.streams.values():
                    self.quads = self.quads | {(stream.into, triple) for triple in stream.sealed_at(end_ms)}
            for watched in self.queries.values():
                if watched.answer is not None and t % watched.step_ms == 0 and t > watched.may_ms:
                    window = self.streams[watched.stream].window(t, watched.range_ms)
                    watched.expected[t] = watched.answer(window, self)
        self.stable_ms = max(self.stable_ms, stable_ms)
        for watched in self.queries.values():
            if watched.answer is None:
                stream, step_ms = self.streams[watched.stream], watched.step_ms
                for t in range((watched.seen_ms // step_ms + 1) * step_ms, stream.cover_ms + 1, step_ms):
                    watched.expected[t] = Counter(stream.window(t, watched.range_ms))
                watched.seen_ms = max(watched.seen_ms, stream.cover_ms)
