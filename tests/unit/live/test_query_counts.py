"""The times of a query's firings: medians and 99th percentiles, also of very many queries."""

from __future__ import annotations

import statistics
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wukongs.live import query_counts
from wukongs.live.query_counts import BUCKETS_US, QueryCounts


def counts_of(times_us: list[float]) -> QueryCounts:
    counts = QueryCounts()
    for time_us in times_us:
        counts.report(1, time_us + 1, time_us, 1)
    return counts


@given(st.lists(st.integers(0, 100_000), min_size=2, max_size=60))
def test_percentiles_stand_between_the_two_nearest_times(times_us: list[int]) -> None:
    told = counts_of(list(map(float, times_us))).stats()
    wanted = statistics.quantiles(times_us, n=100, method="inclusive")
    assert told["execution_us_p50"] == pytest.approx(statistics.median(times_us))
    assert told["execution_us_p99"] == pytest.approx(wanted[98])
    assert told["latency_us_p99"] == pytest.approx(wanted[98] + 1)


@given(st.lists(st.tuples(st.integers(0, 2_000), st.integers(1, 3), st.booleans()), max_size=60))
def test_histograms_have_all_times(reports: list[tuple[int, int, bool]]) -> None:
    """Also those that are remembered no more, and of windows alike that of each; whenever they are asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_counts, "TIMES_REMEMBERED", 5)
        counts = QueryCounts()
        for time_us, count, is_asked in reports:
            counts.report(2, time_us, 2 * time_us, 1, count)
            if is_asked:
                counts.stats()
        told = counts.stats()
    times = {
        "execution_us": [2 * time_us for time_us, _, _ in reports],
        "latency_us": [time_us for time_us, count, _ in reports for _ in range(count)],
    }
    for name, times_us in times.items():
        buckets = Counter(sum(time_us > bound for bound in BUCKETS_US) for time_us in times_us)
        assert told[f"{name}_histogram"]["counts"] == [buckets[at] for at in range(len(BUCKETS_US) + 1)]
        assert told[f"{name}_histogram"]["sum_us"] == sum(times_us)
    assert (told["windows"], told["rows"]) == (len(times["latency_us"]), 2 * len(times["latency_us"]))


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
