"""Lateness, tuple by tuple: a plain list of arrivals, judged one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Arrivals:
    """The tuples of a stream, the time of each its last part, in the order of arrival."""

    lateness_ms: int
    newest_ms: int | None = None
    closed_ms: int | None = None
    on_time: list[tuple[object, ...]] = field(default_factory=list)
    late: list[tuple[object, ...]] = field(default_factory=list)

    def push(self, tuples: Iterable[tuple[object, ...]]) -> None:
        for one in tuples:
            t = one[-1]
            assert isinstance(t, int)
            is_closed = self.closed_ms is not None and t <= self.closed_ms
            is_far_behind = self.newest_ms is not None and t < self.newest_ms - self.lateness_ms
            (self.late if is_closed or is_far_behind else self.on_time).append(one)
            self.newest_ms = t if self.newest_ms is None else max(self.newest_ms, t)

    def advance(self, time_ms: int) -> None:
        self.closed_ms = time_ms if self.closed_ms is None else max(self.closed_ms, time_ms)

    def window(self, start_ms: int, end_ms: int) -> list[tuple[object, ...]]:
        return [one for one in self.on_time if start_ms < one[-1] <= end_ms]  # type: ignore[operator]
