"""Queries that differ in a constant, from a table and one by one: what registering them costs, a query's memory, and a
tick with all of them."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

import wukongs
from wukongs import WindowResult
from wukongs.bench.harness import Report, summary
from wukongs.bench.memory import resident_bytes
from wukongs.bench.store.injection import BATCH_MS
from wukongs.live.stream import Stream

if TYPE_CHECKING:
    import pyarrow as pa

GROUP = "A query for each row of a table, one pattern over a window of 1 s, rows delivered"
ONE_BY_ONE = "The same queries registered one by one, windows without rows left out"
STREAM = "http://e/posts"
TEXT = (
    f"REGISTER QUERY g AS SELECT ?u ?p FROM STREAM <{STREAM}> [RANGE 1s STEP {BATCH_MS}ms] "
    "WHERE { ?u <http://e/posts> ?p }"
)
READ = 1000
"""One of so many queries that were registered one by one has an on_result."""
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
    with wukongs.Engine() as engine:
        stream = _begin(engine)
        engine.register(TEXT, bindings=users.slice(0, 2)).close()  # compiles the kernels
        gc.collect()
        before, began = resident_bytes(), time.perf_counter()
        group = engine.register(TEXT, read, bindings=users)
        register_s = time.perf_counter() - began
        size = (resident_bytes() - before) / query_count
        for took_ms, began, posted in _ticks(engine, stream, users, batch_rows, window_count):
            chosen = posted
            tick_ms.append(took_ms)
            latency_ms.append((read.at_s[-1] - began) * 1e3)
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


def bench_one_by_one(report: Report, query_count: int, batch_rows: int, window_count: int) -> None:
    """Add a row for the same queries, each registered alone. One of READ has an on_result; the windows of all others
    wait, and are read at the end."""
    users = _users(query_count)
    random = np.random.default_rng(2)
    with wukongs.Engine() as engine:
        stream = _begin(engine)
        for user in range(20):
            engine.register(_text(f"first{user}", user)).close()
        gc.collect()
        reads: dict[int, _Read] = {}
        before, queries, register_us = resident_bytes(), [], []
        for user in range(query_count):
            reader = reads.setdefault(user, _Read()) if user % READ == 0 else None
            began = time.perf_counter()
            queries.append(engine.register(_text(f"q{user}", user), reader))
            register_us.append((time.perf_counter() - began) * 1e6)
        size = (resident_bytes() - before) / query_count
        tick_ms = []
        for took_ms, _, posted in _ticks(engine, stream, users, batch_rows, window_count):
            chosen = posted
            tick_ms.append(took_ms)
        counts = np.bincount(chosen.ravel(), minlength=query_count)
        what = f"{query_count:,} queries one by one"
        looked_at = random.choice(query_count, min(query_count, 200), replace=False).tolist()
        end_ms = (WINDOW_BATCHES + window_count) * BATCH_MS
        looked_at = [user for user in looked_at if user % READ]
        found = [sum(len(one) for one in queries[user].results(0) if one.end_ms == end_ms) for user in looked_at]
        report.check(f"{what}, rows of some last windows", counts[looked_at].tolist(), found)
        called = [len(read.last) for read in reads.values() if read.last is not None and read.last.end_ms == end_ms]
        report.check(f"{what}, rows that on_result was given", int(counts[::READ].sum()), sum(called))
        began = time.perf_counter()
        for query in queries:
            query.close()
        close_us = (time.perf_counter() - began) / query_count * 1e6
    tick = summary(tick_ms)
    report.add(
        ONE_BY_ONE,
        {
            "queries": query_count,
            "rows of a window": chosen.size,
            "register us": summary(register_us)["median"],
            "the last ones, us": summary(register_us[-READ:])["median"],
            "close us": close_us,
            "bytes a query": size,
            "tick p50 ms": tick["median"],
            "tick p99 ms": tick["p99"],
        },
    )


def _text(name: str, user: int) -> str:
    """Return TEXT for one user."""
    text = TEXT.replace("QUERY g", f"QUERY {name} REPORT NON EMPTY RESULT").replace("SELECT ?u ", "SELECT ")
    return text.replace("?u ", f"<http://e/user{user}> ")


def _begin(engine: wukongs.Engine) -> Stream:
    stream = engine.stream(STREAM, timing=True, batch_ms=BATCH_MS, history_ms=1000)
    stream.advance(0)
    return stream


def _ticks(
    engine: wukongs.Engine, stream: Stream, users: pa.Table, batch_rows: int, window_count: int
) -> Iterator[tuple[float, float, np.ndarray]]:
    """Push stream batches of users that are drawn; yield, once windows are full, what a tick took in ms, when it began
    (perf_counter), and who is in the window : int64[WINDOW_BATCHES, batch_rows]."""
    random = np.random.default_rng(1)
    chosen = np.empty((0, batch_rows), np.int64)
    gc.disable()
    try:
        for number in range(1, WINDOW_BATCHES + window_count + 1):
            chosen = np.vstack((chosen, random.integers(0, users.num_rows, batch_rows)))[-WINDOW_BATCHES:]
            stream.push_arrow(_batch(users, chosen[-1], number))
            began = time.perf_counter()
            stream.advance(number * BATCH_MS)
            engine.settle(60)
            if number > WINDOW_BATCHES:
                yield (time.perf_counter() - began) * 1e3, began, chosen
    finally:
        gc.enable()


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
