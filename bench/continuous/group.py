"""A group of queries from a table: what registering it costs, a query's memory, and a tick with all of them."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

import wukongs
from wukongs import WindowResult
from wukongs.bench.harness import Report, summary
from wukongs.bench.memory import resident_bytes
from wukongs.bench.store.injection import BATCH_MS

if TYPE_CHECKING:
    import pyarrow as pa

GROUP = "A query for each row of a table, one pattern over a window of 1 s, rows delivered"
STREAM = "http://e/posts"
TEXT = (
    f"REGISTER QUERY g AS SELECT ?u ?p FROM STREAM <{STREAM}> [RANGE 1s STEP {BATCH_MS}ms] "
    "WHERE { ?u <http://e/posts> ?p }"
)
WINDOW_BATCHES = 1000 // BATCH_MS


@dataclass(slots=True)
class _Read:
    """The last window that on_result was given, and when it was given each."""

    at_s: list[float] = field(default_factory=list)
    last: WindowResult | None = None

    def __call__(self, window: WindowResult) -> None:
        self.at_s.append(time.perf_counter())
        self.last = window


def bench_group(report: Report, query_count: int, batch_rows: int, window_count: int) -> None:
    """Add a row for a group of some queries. batch_rows: tuples of a stream batch, all of which some query asks for."""
    users = _users(query_count)
    read, latency_ms, tick_ms = _Read(), [], []
    random = np.random.default_rng(1)
    with wukongs.Engine() as engine:
        stream = engine.stream(STREAM, timing=True, batch_ms=BATCH_MS, history_ms=1000)
        stream.advance(0)
        engine.register(TEXT, bindings=users.slice(0, 2)).close()  # compiles the kernels
        gc.collect()
        before, began = resident_bytes(), time.perf_counter()
        group = engine.register(TEXT, read, bindings=users)
        register_s = time.perf_counter() - began
        size = (resident_bytes() - before) / query_count
        chosen = np.empty((0, batch_rows), np.int64)
        gc.disable()
        try:
            for number in range(1, WINDOW_BATCHES + window_count + 1):
                chosen = np.vstack((chosen, random.integers(0, query_count, batch_rows)))[-WINDOW_BATCHES:]
                stream.push_arrow(_batch(users, chosen[-1], number))
                began = time.perf_counter()
                stream.advance(number * BATCH_MS)
                engine.settle(60)
                if number > WINDOW_BATCHES:
                    tick_ms.append((time.perf_counter() - began) * 1e3)
                    latency_ms.append((read.at_s[-1] - began) * 1e3)
        finally:
            gc.enable()
        assert read.last is not None
        what = f"{query_count:,} queries"
        report.check(f"{what}, rows of the last window", chosen.size, len(read.last))
        found = [int(str(number)) for number, *_ in read.last]
        report.check(f"{what}, whose rows they are", True, found == sorted(chosen.ravel().tolist()))
        began = time.perf_counter()
        group.close()
        close_ms = (time.perf_counter() - began) * 1e3
    latency, tick = summary(latency_ms), summary(tick_ms)
    report.add(
        GROUP,
        {
            "queries": query_count,
            "rows of a window": chosen.size,
            "register s": register_s,
            "close ms": close_ms,
            "bytes a query": size,
            "advance to callback p50 ms": latency["median"],
            "advance to callback p99 ms": latency["p99"],
            "tick p50 ms": tick["median"],
            "tick p99 ms": tick["p99"],
        },
    )


def _users(count: int) -> pa.Table:
    import pyarrow as pa

    return pa.table({"u": [f"<http://e/user{number}>" for number in range(count)]})


def _batch(users: pa.Table, chosen: np.ndarray, number: int) -> pa.Table:
    """Return a stream batch in which the chosen users post."""
    import pyarrow as pa

    count = len(chosen)
    return pa.table(
        {
            "subject": users["u"].take(pa.array(chosen)),
            "predicate": ["<http://e/posts>"] * count,
            "object": [f"<http://e/post{number}-{at}>" for at in range(count)],
            "timestamp_ms": pa.array([number * BATCH_MS] * count, pa.int64()),
        }
    )
