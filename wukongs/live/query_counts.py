"""QueryCounts: what a registered query has reported, and how long it took."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from wukongs.query.mechanisms import Mechanism

TIMES_REMEMBERED = 1000
"""Percentiles are over so many times, or up to twice as many."""

BUCKETS_US = (50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7)
"""The upper bounds of the buckets of a histogram; there is one more, without a bound."""


class Times:
    """Times of one kind, in microseconds: the last ones, and a histogram of all. Added by one thread, read by any."""

    __slots__ = ("_binned", "_counts", "_last", "_lock", "_sum_us")

    def __init__(self) -> None:
        self._last: array[float] = array("f")
        self._counts = [0] * (len(BUCKETS_US) + 1)
        self._sum_us = 0.0
        self._binned = 0
        """The number of the last times that are in the histogram."""
        self._lock = threading.Lock()
        """Held while the histogram changes, and while times are dropped."""

    def add(self, time_us: float, count: int = 1) -> None:
        """Add the time of a firing. count: the number of windows that have it."""
        self._last.append(time_us)
        if count > 1:
            with self._lock:
                self._counts[bisect_left(BUCKETS_US, time_us)] += count - 1
                self._sum_us += time_us * (count - 1)
        if len(self._last) > 2 * TIMES_REMEMBERED:
            with self._lock:
                self._bin()
                del self._last[:TIMES_REMEMBERED]
                self._binned -= TIMES_REMEMBERED

    def _bin(self) -> None:
        """Bring all times into the histogram. Called with the lock held."""
        for time_us in self._last[self._binned :]:
            self._counts[bisect_left(BUCKETS_US, time_us)] += 1
            self._sum_us += time_us
            self._binned += 1

    def stats(self, name: str) -> dict[str, Any]:
        """Return the median, the 99th percentile and the histogram, named after the times."""
        with self._lock:
            self._bin()
            # A copy is sorted: an array whose memory is lent cannot grow.
            ordered: npt.NDArray[np.float32] = np.sort(np.frombuffer(self._last.tobytes(), np.float32))
            histogram = {"counts": list(self._counts), "sum_us": self._sum_us}
        return {
            f"{name}_p50": _percentile(ordered, 50),
            f"{name}_p99": _percentile(ordered, 99),
            f"{name}_histogram": histogram,
        }


Way: TypeAlias = Literal[0, 1, 2]
ALONE: Way = 0
TOGETHER: Way = 1
REPEATED: Way = 2
"""How the answer of a direct firing (joint_firings.py) was found: by a program alone, or in one call with others; or it
was that of another firing."""


@dataclass(slots=True)
class QueryCounts:
    """windows, rows: reported; not_reported: firings that REPORT has left out; errors: firings that failed, and calls
    of on_result that did; over_budget: firings left out because their slices were gone; explored_together: firings
    whose answer was found together with those of other queries, or by another one, but for direct ones; direct: direct
    firings, by the way in which their answers were found; found_by: other windows, reported or not, by the mechanisms
    that have found them; last_ms: the end of the last window reported; partial: windows that were, the last
    of which ended at partial_ms; executions: times of firings; latencies: those of windows."""

    windows: int = 0
    rows: int = 0
    last_rows: int = 0
    last_ms: int | None = None
    partial: int = 0
    partial_ms: int | None = None
    not_reported: int = 0
    errors: int = 0
    over_budget: int = 0
    explored_together: int = 0
    direct: list[int] = field(default_factory=lambda: [0, 0, 0])
    found_by: Counter[Mechanism] = field(default_factory=Counter)
    executions: Times = field(default_factory=Times)
    latencies: Times = field(default_factory=Times)

    def report(
        self,
        rows: int,
        latency_us: float,
        execution_us: float,
        last_ms: int,
        count: int = 1,
        *,
        is_partial: bool = False,
    ) -> None:
        """Count windows alike that are reported: how many, the rows of each, and the end of the last."""
        self.executions.add(execution_us)
        self.latencies.add(latency_us, count)
        self.windows += count
        self.last_rows = rows
        self.last_ms = last_ms
        self.rows += rows * count
        if is_partial:
            self.partial += count
            self.partial_ms = last_ms

    def count_found(self, used: Iterable[Mechanism], count: int) -> None:
        """Count windows with one answer, and the mechanisms that have found it."""
        for mechanism in used:
            self.found_by[mechanism] += count
        if count > 1:
            self.found_by[Mechanism.CACHED] += count - 1

    def take_over(self, windows: int, rows: int, errors: int, not_reported: int, last_rows: int) -> None:
        """Go on from what was counted elsewhere, but for errors that were counted here."""
        self.windows, self.rows, self.not_reported, self.last_rows = windows, rows, not_reported, last_rows
        self.errors += errors
        self.explored_together = windows

    def stats(self) -> dict[str, Any]:
        """Return the counts, and medians, 99th percentiles and histograms of the times."""
        found_by, (alone, together, repeated) = Counter(self.found_by), self.direct
        direct = {
            Mechanism.PROGRAM: alone + together,
            Mechanism.TOGETHER: together,
            Mechanism.CACHED: repeated,
            Mechanism.DIRECT: sum(self.direct),
        }
        found_by.update({mechanism: count for mechanism, count in direct.items() if count})
        return {
            "windows": self.windows,
            "rows": self.rows,
            "last_rows": self.last_rows,
            "not_reported": self.not_reported,
            "errors": self.errors,
            "over_budget": self.over_budget,
            "explored_together": self.explored_together + together,
            "found_by": {mechanism.value: count for mechanism, count in found_by.items()},
            **self.executions.stats("execution_us"),
            **self.latencies.stats("latency_us"),
        }


def _percentile(ordered: npt.NDArray[np.float32], percent: float) -> float:
    """Return a percentile of sorted times, between the two nearest. numpy's own takes 50 us for each of some times: of
    a thousand queries that is a fifth of a second."""
    if not len(ordered):
        return 0.0
    place, part = divmod((len(ordered) - 1) * percent / 100, 1.0)
    low, high = (float(ordered[min(int(place) + step, len(ordered) - 1)]) for step in (0, 1))
    return low + part * (high - low)
