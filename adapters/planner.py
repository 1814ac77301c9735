"""Plans a replay: which rows of which source partition go in which epoch.

Sources are kept together by event time: an epoch ends at a horizon, every partition sends its rows up to there and then
says so, and the next epoch begins. A horizon is a multiple of all streams' batch_ms, so an epoch closes whole stream
batches. It is as late as these bounds let it be, unless one step alone has more:

* at most rows_per_epoch rows are taken, of at most BATCHES_PER_EPOCH stream batches: so much may wait in the engine
  until the streams are aligned. Event time without rows costs nothing, so gaps are jumped over;
* with align_ms and several partitions, it lies at most align_ms after the one before it (or after the next row, where
  there is a gap), so no stream runs further ahead of the others;
* with a speed, the clock; with a rate, the rows that are due by then.

A ReplayPosition is a pure function of the one before it (and of the clock, with a speed), so a repeated epoch is the
same.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from wukongs.adapters.epochs import balanced, cuts_of
from wukongs.adapters.push import PartitionSetup, PushStats, WorkItem
from wukongs.adapters.run_config import PipelineConfig
from wukongs.adapters.source import PreparedSource, RowRange
from wukongs.errors import StreamError
from wukongs.store.dtypes import Int64Array
from wukongs.wire.messages import Opened

CHUNK_ROWS = 1 << 16
BATCHES_PER_EPOCH = 1000
"""Stream batches with rows in one epoch, of all partitions: the engine keeps some KiB for each, with one row, too."""
APART_S = 0.02
"""Tasks wait for the clock about so often, at most."""
RATE_EPOCH_S = 0.25
"""With a rate, an epoch has about the rows of so long, and begins when all rows before it are due."""
_HORIZON_MAX = 1 << 62


@dataclass(frozen=True, slots=True)
class ReplayPosition:
    """All rows before rows[i] of partition i are sent, and everything up to horizon_ms; finished: nothing is left."""

    horizon_ms: int
    rows: tuple[int, ...]
    finished: bool

    def to_json(self) -> dict[str, Any]:
        return {"horizon_ms": self.horizon_ms, "rows": list(self.rows), "finished": self.finished}

    @staticmethod
    def from_json(value: dict[str, Any]) -> ReplayPosition:
        return ReplayPosition(
            int(value["horizon_ms"]), tuple(int(row) for row in value["rows"]), bool(value["finished"])
        )


class EpochPlanner:
    """Plans the epochs of a replay of prepared sources, which the nodes have answered with opened. ahead_s: how far
    beyond the clock epochs reach, whose tasks wait for it then.

    Raises: StreamError (a node that is further than the source: another file under the same name)."""

    def __init__(
        self,
        prepared: Sequence[PreparedSource],
        opened: Sequence[Opened],
        epoch: int,
        config: PipelineConfig,
        ahead_s: float = 0.0,
    ) -> None:
        self._ahead_s = ahead_s
        self._indexes = [one.index for one in prepared]
        self.opened = tuple(opened)
        self.epoch = epoch
        self.setups = tuple(
            PartitionSetup(
                one.stream, one.source, epoch, node.batch_ms, node.timing, node.hash_bits, cuts=cuts_of(node)
            )
            for one, node in zip(prepared, opened, strict=True)
        )
        self._config = config
        self._clock: ReplayClock | None = None
        self._began_s, self._began_rows, self._has_sent = 0.0, 0, False
        of_rate = max(1, round(config.rate * RATE_EPOCH_S)) if config.rate else config.rows_per_epoch
        self._rows_per_epoch = min(config.rows_per_epoch, of_rate)
        self._step_ms = math.lcm(*(setup.batch_ms for setup in self.setups)) if self.setups else 1
        is_bounded = config.align_ms > 0 and len(self.setups) > 1
        self._span_steps = max(1, config.align_ms // self._step_ms) if is_bounded else None
        stop = _HORIZON_MAX if config.stop_ms is None else config.stop_ms
        self._ends = tuple(index.rows_until(stop) for index in self._indexes)
        self._batches = tuple(
            _batches_before(index.times[:end], setup.batch_ms)
            for index, end, setup in zip(self._indexes, self._ends, self.setups, strict=True)
        )
        for one, node, index in zip(prepared, opened, self._indexes, strict=True):
            if node.resume_offset > len(index):
                raise StreamError(
                    f"stream {one.stream}, partition {one.source.partition!r}: the node has {node.resume_offset} rows "
                    f"of it, the source only {len(index)}. Replay the file that was replayed before"
                )
        rows = tuple(
            max(node.resume_offset, 0 if config.start_ms is None else min(index.rows_until(config.start_ms), end))
            for node, index, end in zip(opened, self._indexes, self._ends, strict=True)
        )
        for one, node, index, row, end in zip(prepared, opened, self._indexes, rows, self._ends, strict=True):
            if node.closed_ms is not None and row < end and int(index.times[row]) <= node.closed_ms:
                raise StreamError(
                    f"stream {one.stream}, partition {one.source.partition!r}: row {row} is of {index.times[row]} ms, "
                    f"and the stream is closed up to {node.closed_ms} ms. Begin with start_ms = {node.closed_ms}"
                )
        self.skipped = tuple(row > node.resume_offset for row, node in zip(rows, opened, strict=True))
        first = self._next_time(rows)
        start = self._floor(first - 1) if first is not None else 0
        self.start = ReplayPosition(start, rows, False)

    def next(self, position: ReplayPosition, event_limit_ms: int | None = None) -> ReplayPosition:
        """Return where the next epoch ends; the same position when nothing is to be done (yet).

        event_limit_ms: the replay's clock, in event time (None: as fast as possible)."""
        if position.finished:
            return position
        limit = _HORIZON_MAX if event_limit_ms is None else self._floor(event_limit_ms)
        first = self._next_time(position.rows)
        if first is None:
            return ReplayPosition(position.horizon_ms, position.rows, True)
        base = max(position.horizon_ms, self._floor(first - 1))
        horizon = min(limit, self._latest(base, position.rows))
        if horizon <= position.horizon_ms:
            return position
        rows = self._rows_until(horizon, position.rows)
        if self._next_time(rows) is None:  # no more than the last stream batch with data is declared complete
            return ReplayPosition(max(position.horizon_ms, min(horizon, self._last_step())), rows, True)
        return ReplayPosition(horizon, rows, False)

    def position(self, value: dict[str, Any]) -> ReplayPosition:
        """Return a position as Spark has kept it."""
        return ReplayPosition.from_json(value)

    def follow(self, position: ReplayPosition, released: threading.Event, wait_s: float) -> ReplayPosition:
        """Return where the next epoch ends, by the clock, which begins with the first call. If it lets none begin for
        wait_s, that is the same position."""
        if self._clock is None:
            self._clock = ReplayClock(position.horizon_ms, self._config.speed)
            self._began_s, self._began_rows = time.monotonic(), sum(position.rows)
        if self._config.rate and not position.finished:
            due_s = self._began_s + (sum(position.rows) - self._began_rows) / self._config.rate
            if due_s > time.monotonic() and not released.wait(min(due_s - time.monotonic(), wait_s)):
                return position if due_s > time.monotonic() else self.next(position)
        ahead_ms = self._event_ms(self._ahead_s)
        if not position.finished:
            left_s = self._clock.seconds_until(self.due_ms(position) - ahead_ms, time.monotonic())
            released.wait(min(left_s, wait_s))
        limit_ms = self._clock.event_limit_ms(time.monotonic())
        return self.next(position, None if limit_ms is None else limit_ms + ahead_ms)

    def taken(self, stats: PushStats) -> None:
        """Note that rows are sent: a rate counts from the first ones, since Spark takes seconds from its first plan to
        its first task. All else was planned from what the files hold."""
        if not self._has_sent:
            self._has_sent, self._began_s = True, time.monotonic() - stats.seconds

    def close(self) -> None:
        """Let go of the sources."""

    def due_ms(self, position: ReplayPosition) -> int:
        """Return the event time from which on `next` gives another position than this one."""
        return position.horizon_ms + (0 if self._next_time(position.rows) is None else self._step_ms)

    def items(self, start: ReplayPosition, end: ReplayPosition) -> list[WorkItem]:
        """Return the work items of all partitions between two positions."""
        if start == end:
            return []
        return [
            WorkItem(setup, first, last, tuple(self._chunks(i, first, last)), end.horizon_ms, end.finished)
            for i, (setup, first, last) in enumerate(zip(self.setups, start.rows, end.rows, strict=True))
        ]

    def tasks(self, start: ReplayPosition, end: ReplayPosition, task_count: int) -> list[list[WorkItem]]:
        """Divide the work between two positions among tasks. An epoch that is ahead of the clock is divided by event
        time, too."""
        now_ms = self.reached_ms()
        stops = [start, end] if now_ms is None else self.stops(start, end, now_ms, self._event_ms(APART_S))
        whole = balanced(self.items(start, end), task_count)
        place = {id(item.setup): number for number, items in enumerate(whole) for item in items}
        tasks: list[list[WorkItem]] = [[] for _ in whole]
        for before, after in pairwise(stops):
            for item in self.items(before, after):
                tasks[place[id(item.setup)]].append(item)
        return tasks

    def stops(self, start: ReplayPosition, end: ReplayPosition, now_ms: int, apart_ms: int) -> list[ReplayPosition]:
        """Return start, the positions on the way at which tasks wait for the clock, and end.

        now_ms: event time that the clock has reached, so that nothing waits before it; apart_ms: about how far apart
        in event time the positions are."""
        apart_ms = max(1, apart_ms // self._step_ms) * self._step_ms
        first = max(start.horizon_ms + self._step_ms, self._floor(now_ms))
        found = [start]
        for horizon in range(first, end.horizon_ms, apart_ms):
            rows = tuple(map(min, self._rows_until(horizon, start.rows), end.rows))
            found.append(ReplayPosition(horizon, rows, False))
        return [*found, end]

    def reached_ms(self) -> int | None:
        """Return the event time that the clock has reached; None if there is none, or it has not begun."""
        return None if self._clock is None else self._clock.event_limit_ms(time.monotonic())

    def resumed(self, start: ReplayPosition, end: ReplayPosition) -> tuple[ReplayPosition, ReplayPosition]:
        """Return an epoch that an earlier run has planned moved to where the nodes are."""
        rows = tuple(min(known, last) for known, last in zip(self.start.rows, end.rows, strict=True))
        return ReplayPosition(start.horizon_ms, rows, start.finished), end

    def continued(self, position: ReplayPosition, repeated: ReplayPosition | None) -> ReplayPosition:
        """Return the position of an earlier run's checkpoint moved to where the nodes are, which alone count.

        repeated: the end of the epoch that this run has repeated from the checkpoint, if it has one."""
        if repeated != position:
            return self.start
        rows = tuple(max(known, sent) for known, sent in zip(self.start.rows, position.rows, strict=True))
        return ReplayPosition(position.horizon_ms, rows, self._next_time(rows) is None)

    def _event_ms(self, seconds: float) -> int:
        """Return how much event time goes by in some seconds."""
        return round(1000 * seconds * self._config.speed)

    def _chunks(self, partition: int, first: int, end: int) -> list[RowRange]:
        index = self._indexes[partition]
        return [index.range(row, min(row + CHUNK_ROWS, end)) for row in range(first, end, CHUNK_ROWS)]

    def _floor(self, time_ms: int) -> int:
        return time_ms // self._step_ms * self._step_ms

    def _last_step(self) -> int:
        last = max(int(index.times[end - 1]) for index, end in zip(self._indexes, self._ends, strict=True) if end)
        return -(-last // self._step_ms) * self._step_ms

    def _next_time(self, rows: Sequence[int]) -> int | None:
        """Return the time of the next row of all partitions, None at the end."""
        waiting = [
            int(index.times[row]) for index, row, end in zip(self._indexes, rows, self._ends, strict=True) if row < end
        ]
        return min(waiting, default=None)

    def _rows_until(self, horizon_ms: int, rows: Sequence[int]) -> tuple[int, ...]:
        return tuple(
            max(row, min(index.rows_until(horizon_ms), end))
            for index, row, end in zip(self._indexes, rows, self._ends, strict=True)
        )

    def _latest(self, base: int, rows: Sequence[int]) -> int:
        """Return the latest horizon after base, within the span, up to which an epoch is in bounds."""
        low, high = 1, max(1, (self._last_step() - base) // self._step_ms)
        if self._span_steps is not None:
            high = min(high, self._span_steps)
        while low < high:
            middle = (low + high + 1) // 2
            if self._is_in_bounds(rows, self._rows_until(base + middle * self._step_ms, rows)):
                low = middle
            else:
                high = middle - 1
        return base + low * self._step_ms

    def _is_in_bounds(self, first: Sequence[int], end: Sequence[int]) -> bool:
        batch_count = sum(
            int(before[stop] - before[start]) for before, start, stop in zip(self._batches, first, end, strict=True)
        )
        return sum(end) - sum(first) <= self._rows_per_epoch and batch_count <= BATCHES_PER_EPOCH


def _batches_before(times: Int64Array, batch_ms: int) -> Int64Array:
    """Return, per row and for the end, how many stream batches the rows before it lie in: int64[n_rows + 1]."""
    found = np.zeros(len(times) + 1, np.int64)
    if len(times):
        numbers = -(-times // batch_ms)
        found[1] = 1
        np.cumsum(numbers[1:] != numbers[:-1], out=found[2:])
        found[2:] += 1
    return found


class ReplayClock:
    """Event time against the wall clock: `speed` milliseconds a millisecond from the first call on."""

    def __init__(self, start_ms: int, speed: float) -> None:
        self._start_ms, self._speed = start_ms, speed
        self._began_s: float | None = None

    def event_limit_ms(self, now_s: float) -> int | None:
        """Return the event time that the replay may have reached; None without a speed."""
        if self._speed == 0:
            return None
        if self._began_s is None:
            self._began_s = now_s
        return self._start_ms + round((now_s - self._began_s) * 1000 * self._speed)

    def seconds_until(self, event_ms: int, now_s: float) -> float:
        """Return how long it takes until the replay may have reached an event time; 0 without a speed."""
        limit = self.event_limit_ms(now_s)
        return 0.0 if limit is None else max(0.0, (event_ms - limit) / (1000 * self._speed))
