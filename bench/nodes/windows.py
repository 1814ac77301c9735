"""L1-L6 on a cluster: queries registered at the client's node, streams pushed through the same client.

The last days of the streams are replayed once per query, each time later in event time, with an empty day between, so
that windows of one replay do not reach back into the one before. Windows are taken as they come.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wukongs.bench.harness import Report, summary
from wukongs.bench.lsbench.data import DAY_MS, IRI, TIMING, LsbenchData
from wukongs.bench.lsbench.queries import QUERIES, BenchQuery
from wukongs.bench.lsbench.replay import EXPECTED, REPLAY, Replay
from wukongs.bench.nodes.engines import EMBEDDED, Bench, since

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW_S = 120.0
LATENCY = "L1-L6: windows 1 s / 100 ms, ms"
MOVED = "L1-L6: moved between nodes per firing"
Bag = Counter[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Days:
    """parts: per step of 100 ms the tuples of each stream, their times from 0 on."""

    last_day: int
    count: int
    parts: Sequence[Mapping[str, pa.Table]]

    @property
    def length_ms(self) -> int:
        return self.count * REPLAY.day_ms


def last_days(data: LsbenchData, last_day: int, count: int) -> Days:
    """Cut the last `count` days up to and including last_day into steps."""
    replay, first_ms, parts = Replay.of(data, REPLAY), (last_day - count) * REPLAY.day_ms, []
    for end_ms in range(first_ms + REPLAY.step_ms, last_day * REPLAY.day_ms + 1, REPLAY.step_ms):
        part = {}
        for name, table in replay.tables.items():
            ends = (end_ms - REPLAY.step_ms, end_ms)
            start, stop = np.searchsorted(replay.times[name], ends, side="right").tolist()
            if stop > start:
                part[name] = moved(table.slice(start, stop - start), -first_ms)
        parts.append(part)
    return Days(last_day, count, parts)


def last_day_of(data: LsbenchData) -> int:
    """Return the number of the last day that all streams have whole; GPS is much shorter than the others."""
    return int(min(stream.times[-1] for name, stream in data.streams.items() if name != "GPS") // DAY_MS)


@dataclass(slots=True)
class Run:
    """One query over one replay. bags: the rows of each window; *_s: seconds per firing; moved: of all firings."""

    bags: list[Bag]
    latency_s: list[float]
    push_s: list[float]
    seen_s: list[float]
    moved: dict[str, float]


def run_windows(bench: Bench, data: LsbenchData, days: Days) -> dict[str, Run]:
    """Replay the days once for each query; before, once for all of them, unseen."""
    streams = {
        name: bench.engine.stream(iri, timing=name in TIMING, batch_ms=REPLAY.batch_ms, history_ms=REPLAY.range_ms)
        for name, iri in IRI.items()
    }
    _replay(bench, streams, QUERIES, data, days, 0)
    runs = {}
    for place, query in enumerate(QUERIES, 1):
        origin_ms = place * (days.length_ms + REPLAY.day_ms)
        runs[query.name] = _replay(bench, streams, (query,), data, days, origin_ms)
    for stream in streams.values():
        stream.close()
    return runs


def end_ms(days: Days) -> int:
    """Return the event time at which run_windows has come to its end."""
    return (len(QUERIES) + 1) * (days.length_ms + REPLAY.day_ms)


def _replay(
    bench: Bench, streams: Mapping[str, Any], queries: Sequence[BenchQuery], data: LsbenchData, days: Days, at_ms: int
) -> Run:
    for stream in streams.values():
        stream.advance(at_ms)
    texts = [_text(query, data, at_ms) for query in queries]
    registered = [bench.engine.register(text) for text in texts]
    run, before = Run([], [], [], [], {}), bench.counters()
    for place, part in enumerate(days.parts, 1):
        began_s = time.perf_counter()
        bench.engine.push_many({streams[name].iri: moved(table, at_ms) for name, table in part.items()})
        pushed_s = time.perf_counter()
        bench.engine.push_many(dict.fromkeys(stream.iri for stream in streams.values()), at_ms + place * REPLAY.step_ms)
        windows = [next(query.results(timeout_s=WINDOW_S)) for query in registered]
        seen_s = time.perf_counter()
        for window in windows:
            assert not window.partial, window
            assert window.end_ms == at_ms + place * REPLAY.step_ms, window
        run.bags.append(Counter(tuple(map(str, row)) for row in windows[0]))
        run.latency_s.append(windows[0].latency_us / 1e6)
        run.push_s.append(pushed_s - began_s)
        run.seen_s.append(seen_s - pushed_s)
    run.moved = since(before, bench.counters())
    for query in registered:
        query.close()
    return run


def _text(query: BenchQuery, data: LsbenchData, at_ms: int) -> str:
    """Return what is registered: a name of its own in each replay."""
    text = query.register_text(f"{REPLAY.range_ms}ms", f"{REPLAY.step_ms}ms", data.user, data.person)
    return text.replace(f"REGISTER QUERY {query.name} ", f"REGISTER QUERY {query.name}_at_{at_ms} ", 1)


def moved(table: pa.Table, by_ms: int) -> pa.Table:
    """Return tuples with other times."""
    import pyarrow.compute as pc

    at = table.column_names.index("timestamp_ms")
    return table.set_column(at, "timestamp_ms", pc.add(table.column(at), by_ms))


def report_windows(
    report: Report, bench: Bench, runs: Mapping[str, Run], wanted: Mapping[str, Run], data: LsbenchData, days: Days
) -> None:
    """Compare the windows with those of the embedded engine, and add what they took."""
    tuples = sum(len(table) for part in days.parts for table in part.values()) / len(days.parts)
    for name, run in runs.items():
        if data.is_sample and days.last_day in EXPECTED:
            what = f"{name}, {bench.name}: rows of day {days.last_day} (README of the data)"
            report.check(what, EXPECTED[days.last_day][name], run.bags[-1].total())
        same = sum(one == other for one, other in zip(run.bags, wanted[name].bags, strict=True))
        report.check(f"{name}, {bench.name}: windows as the embedded engine has them", len(wanted[name].bags), same)
        latency, push, seen = (summary([s * 1e3 for s in times]) for times in (run.latency_s, run.push_s, run.seen_s))
        rows = summary([bag.total() for bag in run.bags])
        report.add(
            LATENCY,
            {
                "query": name,
                "nodes": bench.name,
                "windows": len(run.bags),
                "rows median": rows["median"],
                "latency least": latency["min"],
                "median": latency["median"],
                "p99": latency["p99"],
                "advance to rows at the client: least": seen["min"],
                "median of it": seen["median"],
                "push least": push["min"],
                "K tuples/s": tuples / push["min"],
                "CPU of all, per firing": run.moved["cpu_s"] / len(run.bags) * 1e3,
            },
        )
        if bench.name != EMBEDDED:
            firings, moved = len(run.bags), run.moved
            report.add(
                MOVED,
                {
                    "query": name,
                    "nodes": bench.name,
                    "requests of the query": moved["requests"] / firings,
                    "rows": moved["rows"] / firings,
                    "KB": moved["bytes"] / firings / 1e3,
                    "all messages": moved["messages_out"] / firings,
                    "all KB": moved["bytes_out"] / firings / 1e3,
                    "of them protocol": moved["told_out"] / firings,
                    "protocol KB": moved["told_bytes_out"] / firings / 1e3,
                },
            )
