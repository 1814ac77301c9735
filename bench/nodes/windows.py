"""L1-L6 on a cluster: queries registered at the client's node, streams pushed through the same client.

The last days of the streams are replayed once per query, and once with none, each time later in event time, with an
empty day between, so that windows of one replay do not reach back into the one before. Windows are taken as they come.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wukongs.bench.lsbench.data import DAY_MS, IRI, TIMING, LsbenchData
from wukongs.bench.lsbench.queries import QUERIES, BenchQuery
from wukongs.bench.lsbench.replay import REPLAY, Replay
from wukongs.bench.nodes.engines import Bench, since

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW_S = 120.0
TUPLES = "tuples"
"""The name of the replay with no query registered."""
Bag = Counter[tuple[str | None, ...]]


@dataclass(frozen=True, slots=True)
class Days:
    """parts: per step of 100 ms the tuples of each stream, their times from 0 on."""

    last_day: int
    count: int
    parts: Sequence[Mapping[str, pa.Table]]

    @property
    def tuples(self) -> int:
        return sum(len(table) for part in self.parts for table in part.values())

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
    """One replay, with a query or none. bags: the rows of each window; *_s: seconds per firing; moved: of all."""

    bags: list[Bag]
    latency_s: list[float]
    push_s: list[float]
    seen_s: list[float]
    moved: dict[str, float]


def run_windows(bench: Bench, data: LsbenchData, days: Days, queries: Sequence[BenchQuery] = QUERIES) -> dict[str, Run]:
    """Replay the days once for each query, and once with none (TUPLES); before, once for all of them, unseen."""
    streams = {
        name: bench.engine.stream(iri, timing=name in TIMING, batch_ms=REPLAY.batch_ms, history_ms=REPLAY.range_ms)
        for name, iri in IRI.items()
    }
    _replay(bench, streams, queries, data, days, 0)
    runs = {}
    for place, query in enumerate((*queries, None), 1):
        origin_ms = place * (days.length_ms + REPLAY.day_ms)
        some = () if query is None else (query,)
        runs[TUPLES if query is None else query.name] = _replay(bench, streams, some, data, days, origin_ms)
    for stream in streams.values():
        stream.close()
    return runs


def end_ms(days: Days) -> int:
    """Return the event time at which run_windows has come to its end."""
    return (len(QUERIES) + 2) * (days.length_ms + REPLAY.day_ms)


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
        if not windows:
            bench.engine.settle(WINDOW_S)
        seen_s = time.perf_counter()
        for window in windows:
            assert not window.partial, window
            assert window.end_ms == at_ms + place * REPLAY.step_ms, window
        for window in windows[:1]:
            run.bags.append(Counter(window.texts()))
            run.latency_s.append(window.latency_us / 1e6)
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
