"""QueryCounts: what a registered query has reported, and how long it took."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from wukongs.query.mechanisms import Mechanism
from wukongs.query.output.results import WindowResult

TIMES_REMEMBERED = 1000
"""Percentiles are over so many times, or up to twice as many."""

BUCKETS_US = (50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7)
"""The upper bounds of the buckets of a histogram; there is one more, without a bound."""


def _times() -> array[float]:
    return array("f")


class Histogram:
    """How many times fell into each bucket, and their sum, in microseconds."""

    __slots__ = ("counts", "sum_us")

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (len(BUCKETS_US) + 1)
        self.sum_us = 0.0

    def add(self, time_us: float, count: int) -> None:
        self.counts[bisect_left(BUCKETS_US, time_us)] += count
        self.sum_us += time_us * count

    def stats(self) -> dict[str, Sequence[int] | float]:
        return {"counts": list(self.counts), "sum_us": self.sum_us}


@dataclass(slots=True)
class QueryCounts:
    """windows, rows: reported; not_reported: firings that REPORT has left out; errors: firings that failed, and calls
    of on_result that did; over_budget: firings left out because their slices were gone; explored_together: firings
    whose answer was found together with those of other queries, or by another one; found_by: windows, reported or not,
    by the mechanisms that have found them; last_ms: the end of the last window reported; partial:
    windows that were, the last of which ended at partial_ms. Times in microseconds, of the last firings; executions,
    latencies: of all of them, the latencies of windows alike each."""

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
    found_by: Counter[Mechanism] = field(default_factory=Counter)
    execution_us: array[float] = field(default_factory=_times)
    latency_us: array[float] = field(default_factory=_times)
    executions: Histogram = field(default_factory=Histogram)
    latencies: Histogram = field(default_factory=Histogram)

    def report(self, window: WindowResult, execution_us: float, last_ms: int, count: int) -> None:
        """Count windows alike that are reported: how many, and the end of the last."""
        self.execution_us.append(execution_us)
        self.latency_us.append(window.latency_us)
        self.executions.add(execution_us, 1)
        self.latencies.add(window.latency_us, count)
        if len(self.latency_us) > 2 * TIMES_REMEMBERED:
            del self.execution_us[:TIMES_REMEMBERED], self.latency_us[:TIMES_REMEMBERED]
        self.windows += count
        self.last_rows = rows = len(window)
        self.last_ms = last_ms
        self.rows += rows * count
        if window.partial:
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
        execution_us, latency_us = _ordered(self.execution_us), _ordered(self.latency_us)
        return {
            "windows": self.windows,
            "rows": self.rows,
            "last_rows": self.last_rows,
            "not_reported": self.not_reported,
            "errors": self.errors,
            "over_budget": self.over_budget,
            "explored_together": self.explored_together,
            "found_by": {mechanism.value: count for mechanism, count in list(self.found_by.items())},
            "execution_us_p50": _percentile(execution_us, 50),
            "execution_us_p99": _percentile(execution_us, 99),
            "latency_us_p50": _percentile(latency_us, 50),
            "latency_us_p99": _percentile(latency_us, 99),
            "execution_us_histogram": self.executions.stats(),
            "latency_us_histogram": self.latencies.stats(),
        }


def _ordered(times_us: array[float]) -> npt.NDArray[np.float32]:
    """Return a sorted copy: an array whose memory is lent cannot grow."""
    return np.sort(np.frombuffer(times_us.tobytes(), np.float32))


def _percentile(ordered: npt.NDArray[np.float32], percent: float) -> float:
    """Return a percentile of sorted times, between the two nearest. numpy's own takes 50 us for each of some times: of
    a thousand queries that is a fifth of a second."""
    if not len(ordered):
        return 0.0
    place, part = divmod((len(ordered) - 1) * percent / 100, 1.0)
    low, high = (float(ordered[min(int(place) + step, len(ordered) - 1)]) for step in (0, 1))
    return low + part * (high - low)
