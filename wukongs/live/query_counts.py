"""QueryCounts: what a registered query has reported, and how long it took."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np

from wukongs.query.output.results import WindowResult

TIMES_REMEMBERED = 1000
"""Percentiles are over so many times, or up to twice as many."""


def _times() -> array[float]:
    return array("f")


@dataclass(slots=True)
class QueryCounts:
    """windows, rows: reported; not_reported: firings that REPORT has left out; errors: firings that failed, and calls
    of on_result that did; over_budget: firings left out because their slices were gone; explored_together: firings that
    were explored with those of other queries of the template; last_ms: the end of the last window reported; partial:
    windows that were, the last of which ended at partial_ms. Times in microseconds, of the last firings."""

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
    execution_us: array[float] = field(default_factory=_times)
    latency_us: array[float] = field(default_factory=_times)

    def report(self, window: WindowResult, execution_us: float, last_ms: int, count: int) -> None:
        """Count windows alike that are reported: how many, and the end of the last."""
        self.execution_us.append(execution_us)
        self.latency_us.append(window.latency_us)
        if len(self.latency_us) > 2 * TIMES_REMEMBERED:
            del self.execution_us[:TIMES_REMEMBERED], self.latency_us[:TIMES_REMEMBERED]
        self.windows += count
        self.last_rows = rows = len(window)
        self.last_ms = last_ms
        self.rows += rows * count
        if window.partial:
            self.partial += count
            self.partial_ms = last_ms

    def take_over(self, windows: int, rows: int, errors: int, not_reported: int, last_rows: int) -> None:
        """Go on from what was counted elsewhere, but for errors that were counted here."""
        self.windows, self.rows, self.not_reported, self.last_rows = windows, rows, not_reported, last_rows
        self.errors += errors
        self.explored_together = windows

    def stats(self) -> dict[str, int | float]:
        """Return the counts, and medians and 99th percentiles of the times."""
        return {
            "windows": self.windows,
            "rows": self.rows,
            "last_rows": self.last_rows,
            "not_reported": self.not_reported,
            "errors": self.errors,
            "over_budget": self.over_budget,
            "explored_together": self.explored_together,
            "execution_us_p50": _percentile(self.execution_us, 50),
            "execution_us_p99": _percentile(self.execution_us, 99),
            "latency_us_p50": _percentile(self.latency_us, 50),
            "latency_us_p99": _percentile(self.latency_us, 99),
        }


def _percentile(times_us: array[float], percent: float) -> float:
    return float(np.percentile(times_us.tolist(), percent)) if times_us else 0.0
