"""L1-L6, each alone in an engine of its own, over all five streams aligned by event time.

Two forms of the same windows: a simulated day as a window of one day (`wide`), and the replay of the data's README, one
day as one second, with the paper's windows of 1 s every 100 ms (`replay`). Windows that end with the same day hold the
same tuples in both, so their row counts are checked in both.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import wukongs
from wukongs.bench.harness import Report, summary
from wukongs.bench.lsbench.data import DAY_MS, IRI, TIMING, LsbenchData
from wukongs.bench.lsbench.queries import QUERIES, BenchQuery

if TYPE_CHECKING:
    import pyarrow as pa

SETTLE_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Form:
    """How event time is replayed: divided by `divisor`; a day then lasts day_ms. range and step in ms."""

    name: str
    divisor: int
    batch_ms: int
    range_ms: int
    step_ms: int

    @property
    def day_ms(self) -> int:
        return DAY_MS // self.divisor


WIDE = Form("1-day windows, step 1 day", 1, 3_600_000, DAY_MS, DAY_MS)
REPLAY = Form("1 day = 1 s, windows 1 s / 100 ms", 86_400, 100, 1000, 100)

EXPECTED = {
    11: {"L1": 0, "L2": 0, "L3": 18, "L4": 568, "L5": 1673, "L6": 1033},
    26: {"L1": 2, "L2": 2, "L3": 87, "L4": 1500, "L5": 7115, "L6": 2500},
}
"""Rows of the windows that end with a day, from the README of the 1,000-user sample (user u864, person p864)."""

ORIGINAL_US = {
    "L1": (35, 46),
    "L2": (2.5, 4.3),
    "L3": (75, 234),
    "L4": (1800, 3688),
    "L5": (78838, 173378),
    "L6": (6560, 12336),
}
"""p50 and p99 of the engine part of the authors' own code on the same sample in the same replay, in microseconds."""


@dataclass(frozen=True, slots=True)
class QueryRun:
    """rows: window end in ms -> rows; execution and latency in microseconds."""

    rows: dict[int, int]
    execution_p50_us: float
    execution_p99_us: float
    latency_us: list[float]


@dataclass(slots=True)
class Replay:
    """The streams of the data, ready to push: tables by stream, and the bounds of their parts by push."""

    form: Form
    tables: dict[str, pa.Table]
    times: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]

    @staticmethod
    def of(data: LsbenchData, form: Form) -> Replay:
        import pyarrow as pa

        tables, times = {}, {}
        for name, stream in data.streams.items():
            # The window (t - r, t] that ends with a day has to hold the whole day, its first millisecond included.
            times[name] = stream.times // form.divisor + 1
            table = stream.table()
            at = table.column_names.index("timestamp_ms")
            tables[name] = table.set_column(at, "timestamp_ms", pa.array(times[name]))
        return Replay(form, tables, times)

    def pushes(self, last_day: int) -> Iterator[tuple[int, dict[str, pa.Table]]]:
        """Yield (time in ms, the tuples of each stream up to it that were not pushed yet), one firing apart."""
        done = dict.fromkeys(self.tables, 0)
        for end_ms in range(self.form.step_ms, last_day * self.form.day_ms + 1, self.form.step_ms):
            parts = {}
            for name, table in self.tables.items():
                stop = int(np.searchsorted(self.times[name], end_ms, side="right"))
                if stop > done[name]:
                    parts[name] = table.slice(done[name], stop - done[name])
                    done[name] = stop
            yield end_ms, parts


def run_query(query: BenchQuery, data: LsbenchData, replay: Replay, last_day: int) -> QueryRun:
    """Load the stored triples, register one query, push all streams up to the end of a day, and collect its windows."""
    form = replay.form
    with wukongs.Engine() as engine:
        engine.load(io.BytesIO(data.stored), format="nt")
        streams = {
            name: engine.stream(IRI[name], timing=name in TIMING, batch_ms=form.batch_ms, history_ms=form.range_ms)
            for name in replay.tables
        }
        for stream in streams.values():
            stream.advance(0)
        text = query.register_text(f"{form.range_ms}ms", f"{form.step_ms}ms", data.user, data.person)
        registered = engine.register(text)
        for end_ms, parts in replay.pushes(last_day):
            engine.push_many({IRI[name]: parts.get(name) for name in streams}, end_ms)
            engine.settle(SETTLE_TIMEOUT_S)
        rows, latency_us = {}, []
        for window in registered.results(timeout_s=0):
            assert not window.partial, window
            rows[window.end_ms] = len(window)
            latency_us.append(window.latency_us)
        stats = registered.stats()
    return QueryRun(rows, stats["execution_us_p50"], stats["execution_us_p99"], latency_us)


def oracle_rows(query: BenchQuery, data: LsbenchData, day: int) -> int:
    """Count with pyoxigraph the rows of the window of one day that ends with day number `day`."""
    import pyoxigraph as ox

    store = ox.Store()
    if query.is_stored:
        store.bulk_load(data.stored, format=ox.RdfFormat.N_TRIPLES)
    for name in query.streams:
        stream = data.streams[name]
        start, stop = np.searchsorted(stream.times, ((day - 1) * DAY_MS, day * DAY_MS)).tolist()
        lines = stream.lines.split(b"\n", stop)[start:stop]
        graph = ox.NamedNode(IRI[name])
        store.bulk_load(b"".join(line + b"\n" for line in lines), format=ox.RdfFormat.N_TRIPLES, to_graph=graph)
    solutions = store.query(query.select_text(data.user, data.person))
    assert isinstance(solutions, ox.QuerySolutions)
    return sum(1 for _ in solutions)


def bench_latency(report: Report, data: LsbenchData, last_day: int, oracle_days: Sequence[int]) -> None:
    """Add the tables of L1-L6 in both forms. oracle_days: those whose windows pyoxigraph evaluates as well."""
    for form in (WIDE, REPLAY):
        replay = Replay.of(data, form)
        for query in QUERIES:
            run_query(query, data, replay, 1)  # compiles the kernels
            run = run_query(query, data, replay, last_day)
            _check(report, query, data, run, form, oracle_days)
            report.add(f"L1-L6: {form.name}, microseconds", _row(query.name, run, data.is_sample and form is REPLAY))


def _check(
    report: Report, query: BenchQuery, data: LsbenchData, run: QueryRun, form: Form, oracle_days: Sequence[int]
) -> None:
    for day, counts in EXPECTED.items():
        if data.is_sample and day * form.day_ms in run.rows:
            what = f"{query.name}, {form.name}, rows of day {day - 1}-{day} (README of the data)"
            report.check(what, counts[query.name], run.rows[day * form.day_ms])
    for day in oracle_days:
        what = f"{query.name}, {form.name}, rows of day {day - 1}-{day} (pyoxigraph)"
        report.check(what, oracle_rows(query, data, day), run.rows[day * form.day_ms])


def _row(name: str, run: QueryRun, with_original: bool) -> dict[str, object]:
    latency = summary(run.latency_us)
    rows = summary(list(run.rows.values()))
    row: dict[str, object] = {
        "query": name,
        "latency p50": latency["median"],
        "latency p99": latency["p99"],
        "windows": len(run.rows),
        "rows median": rows["median"],
        "rows max": int(rows["max"]),
        "execution p50": run.execution_p50_us,
        "execution p99": run.execution_p99_us,
    }
    if with_original:
        p50, p99 = ORIGINAL_US[name]
        row |= {"original p50": p50, "original p99": p99, "original / ours": p50 / run.execution_p50_us}
    return row
