"""L1-L3, one after the other: what a firing takes, cold after an injection and warm, and from advance to callback."""

from __future__ import annotations

import gc
import io
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

import wukongs
from wukongs import Engine, WindowResult
from wukongs.bench.continuous.probe import Probe, Times
from wukongs.bench.continuous.workload import Workload, rows_of
from wukongs.bench.harness import Report, summary
from wukongs.bench.lsbench.data import IRI, TIMING
from wukongs.bench.lsbench.queries import QUERIES, BenchQuery
from wukongs.bench.store.injection import BATCH_MS
from wukongs.live.continuous import ContinuousQuery, Firing
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
    advanced_at_s: float = 0.0
    """perf_counter just before the last advance."""
    advanced_s: dict[str, float] = field(default_factory=dict)
    """The same of each stream."""

    def step(self) -> int:
        """Push one stream batch and advance all streams; wait until it has fired. Return the time, in ms."""
        self.number += 1
        for name, table in self.workload.tables(self.number).items():
            self.streams[name].push_arrow(table)
        for name, stream in self.streams.items():
            self.advanced_at_s = self.advanced_s[name] = time.perf_counter()
            stream.advance(self.number * BATCH_MS)
        self.engine.settle(SETTLE_TIMEOUT_S)
        return self.number * BATCH_MS


@contextmanager
def replaying(workload: Workload) -> Iterator[Replay]:
    """Load the stored graph and declare the streams."""
    with wukongs.Engine() as engine:
        engine.load(io.BytesIO(workload.data.stored), format="nt")
        streams = {
            name: engine.stream(IRI[name], timing=name in TIMING, batch_ms=BATCH_MS, history_ms=1000)
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
                        own = replay.streams if query.is_stored else query.streams
                        advanced_s = max(replay.advanced_s[name] for name in own)
                        latency_us.append((windows.at_s[-1] - advanced_s) * 1e6)
        finally:
            gc.enable()
        registered.close()
        for window in windows.windows[-CHECKED_WINDOWS:]:
            expected = replay.workload.answer(query.name, user, window.end_ms // BATCH_MS)
            what = f"{query.name}, rows of the window ending at {window.end_ms} ms"
            report.check(f"{what}, as sets", True, rows_of(window.serialize("tsv")) == expected)
            report.check(what, len(expected), len(window))
        rows = [len(window) for window in windows.windows[warm_up:]]
        report.add(ONCE, _row(query.name, rows, cold, warm, latency_us))
        told = (("firing", [t.firing_us for t in cold]), ("advance to callback", latency_us))
        for what, found in told:
            shares = {f"{share} %": float(np.percentile(found, share)) for share in SHARES}
            report.add(DISTRIBUTION, {"query": query.name, "time": what, **shares})


def _again(engine: Engine, query: ContinuousQuery, at_ms: int, probe: Probe) -> Times:
    """Fire some more times on this thread, without a report; return the times of the last."""
    times = Times()
    core = engine._core
    for _ in range(WARM_RUNS):
        before, began = probe.engine_us, time.perf_counter()
        with core.lock:
            reading = query.windows.read(at_ms, is_compiled=query.compiled is not None)
            firing = Firing(query, at_ms, reading, core.registry.snapshot_reader(), query.compiled)
        query._execute(firing, began)
        times = Times(probe.engine_us - before, (time.perf_counter() - began) * 1e6)
    return times


def _row(
    name: str, rows: Sequence[int], cold: Sequence[Times], warm: Sequence[Times], latency_us: Sequence[float]
) -> dict[str, object]:
    engine, whole = summary([t.engine_us for t in cold]), summary([t.firing_us for t in cold])
    latency = summary(latency_us)
    return {
        "query": name,
        "windows": len(cold),
        "rows median": summary(rows)["median"],
        "engine part p50": engine["median"],
        "engine part p99": engine["p99"],
        "firing p50": whole["median"],
        "firing p99": whole["p99"],
        "engine part, warm": summary([t.engine_us for t in warm])["median"],
        "firing, warm": summary([t.firing_us for t in warm])["median"],
        "advance to callback p50": latency["median"],
        "advance to callback p99": latency["p99"],
    }
