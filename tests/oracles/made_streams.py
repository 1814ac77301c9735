"""A chain of two registered queries by the definition: the first makes a stream, the second reads it.

Nothing of the engine is used. Tuples are (subject, object, time). The first query makes of each distinct subject and
object in its window a tuple with the time of its firing; the second reports the distinct subjects and objects in its
own window over these."""

from __future__ import annotations

from dataclasses import dataclass

Tuple = tuple[str, str, int]
Row = tuple[str, str]


@dataclass(frozen=True)
class OfTime:
    """RANGE and STEP in ms."""

    range_ms: int
    step_ms: int

    def text(self) -> str:
        return f"RANGE {self.range_ms}ms STEP {self.step_ms}ms"

    def rows(self, tuples: list[Tuple], at_ms: int) -> set[Row]:
        return {(s, o) for s, o, t in tuples if at_ms - self.range_ms < t <= at_ms}

    def firings(self, tuples: list[Tuple], from_ms: int, to_ms: int) -> list[int]:
        """The times from a time on, up to another one, at which a query with this window fires."""
        first = -(-from_ms // self.step_ms) * self.step_ms
        return list(range(first, to_ms + 1, self.step_ms))


@dataclass(frozen=True)
class OfTriples:
    """The last `count` arrivals, moved on by every `step` of them, at the ends of stream batches."""

    count: int
    step: int
    batch_ms: int

    def text(self) -> str:
        return f"RANGE TRIPLES {self.count} STEP {self.step}"

    def rows(self, tuples: list[Tuple], at_ms: int) -> set[Row]:
        come = [(s, o) for s, o, t in tuples if t <= at_ms]
        stands = len(come) // self.step * self.step
        return set(come[max(0, stands - self.count) : stands])

    def firings(self, tuples: list[Tuple], from_ms: int, to_ms: int) -> list[int]:
        found = []
        for at_ms in range(-(-from_ms // self.batch_ms) * self.batch_ms, to_ms + 1, self.batch_ms):
            before = sum(t <= at_ms - self.batch_ms for _, _, t in tuples) // self.step
            if sum(t <= at_ms for _, _, t in tuples) // self.step > before:
                found.append(at_ms)
        return found


@dataclass(frozen=True)
class Chain:
    """first: the window of the query that makes a stream; second: that of the one that reads it; paused: times after
    the first and up to the second of each pair the first query is paused."""

    first: OfTime | OfTriples
    second: OfTime
    paused: tuple[tuple[int, int], ...] = ()

    def windows(self, tuples: list[Tuple], to_ms: int) -> tuple[dict[int, set[Row]], dict[int, set[Row]]]:
        """The windows of both queries, by their ends. Both were registered before the first tuple; the stream of
        `tuples`, in order, is closed up to to_ms, which is a multiple of all steps."""
        start_ms = tuples[0][2]
        fired = {
            at_ms: self.first.rows(tuples, at_ms)
            for at_ms in self.first.firings(tuples, start_ms, to_ms)
            if not any(after < at_ms <= to for after, to in self.paused)
        }
        made = [(s, o, at_ms) for at_ms, rows in fired.items() for s, o in rows]
        begins_ms = min(fired, default=to_ms + 1)
        read = {at_ms: self.second.rows(made, at_ms) for at_ms in self.second.firings(made, begins_ms, to_ms)}
        return fired, read
