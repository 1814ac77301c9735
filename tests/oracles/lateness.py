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


@dataclass
class WallArrivals:
    """The arrivals of a stream that follows the wall clock while it is silent: it is looked at whenever time passes.

    batch_ms, idle_timeout_ms: of the stream; wall_ms: what the clock shows; silent_ms: since the stream was opened,
    pushed to or advanced; promised_ms: the newest advance, as long as silence has not closed more than that."""

    arrivals: Arrivals
    batch_ms: int
    idle_timeout_ms: int
    wall_ms: int
    silent_ms: int = 0
    promised_ms: int | None = None

    def push(self, tuples: Iterable[tuple[object, ...]]) -> None:
        self.silent_ms = 0
        self.arrivals.push(tuples)

    def advance(self, time_ms: int) -> None:
        self.silent_ms = 0
        if self.arrivals.closed_ms is None or time_ms // self.batch_ms > self.arrivals.closed_ms // self.batch_ms:
            self.promised_ms = time_ms // self.batch_ms * self.batch_ms
        self.arrivals.advance(time_ms)

    def open(self) -> None:
        self.silent_ms = 0

    def pass_ms(self, ms: int) -> None:
        self.silent_ms += ms
        self.wall_ms += ms
        if self.silent_ms < self.idle_timeout_ms or self.is_of_another_day:
            return
        end_ms = (self.wall_ms - self.arrivals.lateness_ms) // self.batch_ms * self.batch_ms
        if self.arrivals.closed_ms is None or end_ms > self.arrivals.closed_ms:
            self.arrivals.advance(end_ms)
            self.promised_ms = None

    @property
    def is_of_another_day(self) -> bool:
        times = [one[-1] for one in self.arrivals.on_time] or [self.promised_ms]
        newest_ms = max(times)  # type: ignore[type-var]
        return newest_ms is not None and abs(newest_ms - self.wall_ms) > 24 * 3_600_000  # type: ignore[operator]


@dataclass
class OpenArrivals(Arrivals):
    """The same for a stream with late="open": a late tuple is in the windows that end after the last closed stream
    batch. It is counted as late if its own stream batch is closed.

    Source: DESIGN.md, section 6, first bullet. carried: late tuples, each with the end of the last stream batch that
    was closed when it arrived."""

    batch_ms: int = 100
    history_ms: int = 60_000
    carried: list[tuple[tuple[object, ...], int]] = field(default_factory=list)

    def push(self, tuples: Iterable[tuple[object, ...]]) -> None:
        for one in tuples:
            known = len(self.late)
            before = self.newest_ms
            super().push([one])
            if len(self.late) == known:
                continue
            stands = [] if before is None else [before - self.lateness_ms - 1]
            stands += [] if self.closed_ms is None else [self.closed_ms]
            closed_ms = max(stands) // self.batch_ms * self.batch_ms
            t = one[-1]
            assert isinstance(t, int)
            if t > closed_ms:  # its own stream batch is open
                self.on_time.append(self.late.pop())
            elif t >= closed_ms - self.history_ms:
                self.carried.append((self.late.pop(), closed_ms))

    def window(self, start_ms: int, end_ms: int) -> list[tuple[object, ...]]:
        carried = [one for one, closed_ms in self.carried if closed_ms < end_ms]
        return [*super().window(start_ms, end_ms), *(one for one in carried if start_ms < one[-1] <= end_ms)]  # type: ignore[operator]

    def stream_batch_end(self, one: tuple[object, ...], closed_ms: int | None) -> int:
        """The end of the stream batch that holds a tuple. closed_ms: of a carried one, None: it is on time."""
        t = one[-1]
        assert isinstance(t, int)
        return -(-t // self.batch_ms) * self.batch_ms if closed_ms is None else closed_ms + self.batch_ms

    def newest_end_ms(self) -> int | None:
        """The end of the last stream batch that holds a tuple."""
        held = [(one, None) for one in self.on_time] + list(self.carried)
        return max((self.stream_batch_end(*each) for each in held), default=None)

    def in_order(self) -> list[tuple[object, ...]]:
        """The tuples as [TRIPLES n] counts them: by stream batch, and in each by time, the carried ones at its end."""
        held = [(one, None) for one in self.on_time] + list(self.carried)
        ordered = sorted(held, key=lambda each: (self.stream_batch_end(*each), each[1] is not None, each[0][-1]))
        return [one for one, _ in ordered]
