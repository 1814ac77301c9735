"""The times of a query's firings: medians and 99th percentiles, also of very many queries."""

from __future__ import annotations

import statistics
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wukongs.live.query_counts import QueryCounts
from wukongs.query.output.results import WindowResult


def counts_of(times_us: list[float]) -> QueryCounts:
    counts = QueryCounts()
    for time_us in times_us:
        window = WindowResult(
            "select", ("s",), (np.zeros(1, np.int64),), None, 1,  # type: ignore[arg-type]
            query="q", start_ms=0, end_ms=1, windows={}, partial=False, latency_us=time_us + 1,
        )  # fmt: skip
        counts.report(window, time_us, 1, 1)
    return counts


@given(st.lists(st.integers(0, 100_000), min_size=2, max_size=60))
def test_percentiles_stand_between_the_two_nearest_times(times_us: list[int]) -> None:
    told = counts_of(list(map(float, times_us))).stats()
    wanted = statistics.quantiles(times_us, n=100, method="inclusive")
    assert told["execution_us_p50"] == pytest.approx(statistics.median(times_us))
    assert told["execution_us_p99"] == pytest.approx(wanted[98])
    assert told["latency_us_p99"] == pytest.approx(wanted[98] + 1)


def test_of_no_time_and_of_one() -> None:
    assert QueryCounts().stats()["execution_us_p99"] == 0.0
    assert counts_of([7.0]).stats()["execution_us_p99"] == 7.0


def test_counts_of_a_thousand_queries_are_told_at_once() -> None:
    """By the processor's time; with numpy's percentiles it is 0.16 s."""
    counts = [counts_of([float(at), 2.0, 3.0]) for at in range(1000)]
    seconds = []
    for _ in range(3):
        start = time.process_time()
        for one in counts:
            one.stats()
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.1
