"""L1-L3, one after the other: what a firing takes, cold after an injection and warm, and from advance to callback."""

from __future__ import annotations

import gc
import io
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

import wukongs
from wukongs import Engine, WindowResult
from wukongs.bench.continuous.probe import Probe, Times
from wukongs.bench.continuous.workload import Workload, rows_of
from wukongs.bench.harness import Report, summary
from wukongs.bench.lsbench.data import IRI, TIMING
from wukongs.bench.lsbench.queries import QUERIES, BenchQuery
from wukongs.bench.store.injection import BATCH_MS
from wukongs.live.continuous import ContinuousQuery
from wukongs.live.firing import Firing
from wukongs.live.stream import Stream

SMALL = tuple(query for query in QUERIES if query.name in ("L1", "L2", "L3"))
ONCE = "L1-L3 once per window after injection, microseconds"
DISTRIBUTION = "L1-L3 once per window after injection, the distribution, microseconds"
SHARES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 100)
"""Percent of the windows."""
SETTLE_TIMEOUT_S = 120.0
WARM_RUNS = 3
CHECKED_WINDOWS = 5


@dataclass(slots=True)
class Replay:
    """The streams of an engine, and the number of the stream batch that was pushed last."""

    engine: Engine
    streams: dict[str, Stream]
    workload: Workload
    number: int = 0
    advanced_s: dict[str, float] = field(default_factory=dict)
    """perf_counter just before the last advance of each stream."""

    def step(self) -> int:
        """Push one stream batch and advance all streams; wait until it has fired. Return the time, in ms."""
        self.number += 1
        for name, table in self.workload.tables(self.number).items():
            self.streams[name].push_arrow(table)
        for name, stream in self.streams.items():
            self.advanced_s[name] = time.perf_counter()
            stream.advance(self.number * BATCH_MS)
        self.engine.settle(SETTLE_TIMEOUT_S)
        return self.number * BATCH_MS

    def next_tables(self) -> tuple[int, dict[str, pa.Table]]:
        """Return the end of the next stream batch, in ms, and its tuples as push_many takes them."""
        self.number += 1
        tables = self.workload.tables(self.number)
        return self.number * BATCH_MS, {IRI[name]: table for name, table in tables.items()}

    def since_advance_us(self, at_s: float, query: BenchQuery | None = None) -> float:
        """Return the microseconds from the last advance that a query waits for (None: of all streams) to a time."""
        own = self.streams if query is None or query.is_stored else query.streams
        return (at_s - max(self.advanced_s[name] for name in own)) * 1e6


@contextmanager
def replaying(workload: Workload, folder: Path | None = None, history_ms: int = 1000) -> Iterator[Replay]:
    """Load the stored graph and declare the streams. folder: of the data, None: in memory."""
    with wukongs.Engine(folder) as engine:
        engine.load(io.BytesIO(workload.data.stored), format="nt")
        streams = {
            name: engine.stream(IRI[name], timing=name in TIMING, batch_ms=BATCH_MS, history_ms=history_ms)
            for name in workload.batches[0]
        }
        for stream in streams.values():
            stream.advance(0)
        yield Replay(engine, streams, workload)


def text_of(query: BenchQuery, user: str, name: str) -> str:
    """Return the text that registers a query for a user, under a name."""
    text = query.register_text("1s", "100ms", user, f"p{user[1:]}")
    return text.replace(f"REGISTER QUERY {query.name} ", f"REGISTER QUERY {name} ", 1)


@dataclass(slots=True)
class Windows:
    """The windows that on_result was given, and when."""

    windows: list[WindowResult] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)

    def __call__(self, window: WindowResult) -> None:
        self.at_s.append(time.perf_counter())
        self.windows.append(window)


def check_windows(report: Report, workload: Workload, query: str, user: str, windows: Windows, count: int) -> None:
    """Compare the newest windows of a query with the answers of the workload."""
    for window in windows.windows[-count:]:
        expected = workload.answer(query, user, window.end_ms // BATCH_MS)
        what = f"{query}, rows of the window ending at {window.end_ms} ms"
        report.check(f"{what}, as sets", True, rows_of(window.serialize("tsv")) == expected)
        report.check(what, len(expected), len(window))


def bench_firings(report: Report, replay: Replay, window_count: int, warm_up: int) -> None:
    """Add a row for each of L1-L3, each registered alone."""
    user = replay.workload.posters[0]
    for query in SMALL:
        windows = Windows()
        registered = replay.engine.register(text_of(query, user, query.name), windows)
        assert isinstance(registered, ContinuousQuery)
        cold: list[Times] = []
        warm: list[Times] = []
        latency_us: list[float] = []
        gc.collect()
        gc.disable()  # as harness.repeat
        try:
            with Probe() as probe:
                for number in range(warm_up + window_count):
                    probe.clear()
                    at_ms = replay.step()
                    (times,) = probe.firings[query.name]
                    third = _again(replay.engine, registered, at_ms, probe)
                    if number >= warm_up:
                        cold.append(times)
                        warm.append(third)
                        latency_us.append(replay.since_advance_us(windows.at_s[-1], query))
        finally:
            gc.enable()
        registered.close()
        check_windows(report, replay.workload, query.name, user, windows, CHECKED_WINDOWS)
        rows = [len(window) for window in windows.windows[warm_up:]]
        report.add(ONCE, _row(query.name, rows, cold, warm, latency_us))
        told = (("firing", [t.firing_us for t in cold]), ("advance to callback", latency_us))
        for what, found in told:
            shares = {f"{share} %": float(np.percentile(found, share)) for share in SHARES}
            report.add(DISTRIBUTION, {"query": query.name, "time": what, **shares})


def _again(engine: Engine, query: ContinuousQuery, at_ms: int, probe: Probe) -> Times:
    """Fire some more times on this thread, without a report; return the times of the last. The thread that fires must
    not write windows down meanwhile: it takes the lock for that."""
    times = Times()
    core = engine._core
    with core.lock:
        for _ in range(WARM_RUNS):
            before, began = probe.engine_us, time.perf_counter()
            compiled = query.text.answering.compiled
            reading = query.windows.read(at_ms, is_compiled=compiled is not None)
            firing = Firing(query.firings, at_ms, reading, core.registry.snapshot_reader(), compiled)
            query.firings._execute(firing, began)
            times = Times(probe.engine_us - before, (time.perf_counter() - began) * 1e6)
    return times


def _row(
    name: str, rows: Sequence[int], cold: Sequence[Times], warm: Sequence[Times], latency_us: Sequence[float]
) -> dict[str, object]:
    engine, whole = summary([t.engine_us for t in cold]), summary([t.firing_us for t in cold])
    latency = summary(latency_us)
    return {
        "query": name,
        "advance to callback p50": latency["median"],
        "advance to callback p99": latency["p99"],
        "windows": len(cold),
        "rows median": summary(rows)["median"],
        "engine part p50": engine["median"],
        "engine part p99": engine["p99"],
        "firing p50": whole["median"],
        "firing p99": whole["p99"],
        "engine part, warm": summary([t.engine_us for t in warm])["median"],
        "firing, warm": summary([t.firing_us for t in warm])["median"],
    }
