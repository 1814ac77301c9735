"""How far the planner's estimates are from the rows that the steps made: the q-error of each step of S1-S6 and others,
and of L1-L6 and C1-C11 over one window.

The q-error of a step is max(estimated / actual, actual / estimated), both taken as at least one row: 1 is exact.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import wukongs
from wukongs.bench.citybench.data import C_QUERIES, query_texts, read_city
from wukongs.bench.citybench.observations import SERVICE
from wukongs.bench.harness import Report
from wukongs.bench.lsbench.data import DAY_MS, IRI, TIMING, LsbenchData, StreamData
from wukongs.bench.lsbench.queries import QUERIES
from wukongs.bench.oneshot.queries import OTHER_QUERIES, S_QUERIES

TITLE = "Estimated and actual rows of plan steps"
SAMPLE_DAY = 26
"""The window of L1-L6 is this day of the sample, which its README has sizes for; else the last day with data."""
CITY_END_MS = 10_000
_STEP = re.compile(r"^ +(\d+) +(\w+) .*  ~(\S+) rows +(\d+) rows$", re.MULTILINE)


def bench_estimates(report: Report, engine: wukongs.Engine, constants: dict[str, str]) -> None:
    """Run each one-shot query with analyze and add its steps; report.checks already compares the answers."""
    for query in (*S_QUERIES, *OTHER_QUERIES):
        try:
            _add_steps(report, query.name, engine.explain(query.text(constants), analyze=True))
        except wukongs.UnsupportedFeatureError:
            continue  # named in a note where the answers are compared


def bench_lsbench_windows(report: Report, data: LsbenchData) -> None:
    """Add the steps of L1-L6 over a window of a day, without its last hour."""
    hour_ms = DAY_MS // 24
    last_ms = max(int(data.streams[name].times[-1]) for name in ("PO", "PH"))
    end_ms = SAMPLE_DAY * DAY_MS if data.is_sample else max(1, last_ms // DAY_MS) * DAY_MS
    timeless = {name: stream for name, stream in data.streams.items() if name not in TIMING}
    streams = {IRI[name]: _between(stream, end_ms - 2 * DAY_MS, end_ms - hour_ms) for name, stream in timeless.items()}
    with wukongs.Engine() as engine:
        engine.load(io.BytesIO(data.stored), format="nt")
        texts = {query.name: query.register_text("1d", "1d", data.user, data.person) for query in QUERIES}
        _explain_windows(report, engine, texts, streams, False, hour_ms, end_ms)


def bench_citybench_windows(report: Report, folder: Path) -> None:
    """Add the steps of C1-C11 over a window of 3 s that has three observations of each property."""
    city, texts = read_city(folder, CITY_END_MS), {name: query_texts()[name] for name in C_QUERIES}
    # Half a second later, so that the last stream batch is before the end of the window.
    streams = {
        SERVICE + name: _between(StreamData(stream.lines, stream.times + 500), 0, CITY_END_MS)
        for name, stream in city.streams.items()
    }
    with wukongs.Engine() as engine:
        engine.load(io.BytesIO(city.sensors + city.culture), format="nt")
        _explain_windows(report, engine, texts, streams, True, 500, CITY_END_MS)


def summarize(report: Report) -> None:
    """Add a note on the errors of all steps so far."""
    errors = sorted(row["q-error"] for row in report.tables[TITLE])
    report.notes.append(
        f"q-error of {len(errors)} steps: median {errors[len(errors) // 2]:.2g}, largest {errors[-1]:.3g}, "
        f"{sum(error <= 2 for error in errors)} within a factor of 2. Estimates under LIMIT are of the whole answer."
    )


def q_error(estimated: float, actual: float) -> float:
    """Return how many times an estimate is too large or too small; fewer than one row count as one."""
    estimated, actual = max(estimated, 1.0), max(actual, 1.0)
    return max(estimated / actual, actual / estimated)


def _explain_windows(
    report: Report,
    engine: wukongs.Engine,
    texts: Mapping[str, str],
    streams: Mapping[str, StreamData],
    timing: bool,
    batch_ms: int,
    end_ms: int,
) -> None:
    """Explain queries over their windows that end at end_ms, with all but the last stream batch in them."""
    sources = {name: engine.stream(name, timing=timing, batch_ms=batch_ms) for name in streams}
    queries = {name: engine.register(text) for name, text in texts.items()}
    first_ms = min(int(stream.times[0]) for stream in streams.values() if len(stream))
    for source in sources.values():
        source.advance(max(0, first_ms - batch_ms))  # none is sealed before another has begun
    for name, source in sources.items():
        source.push_arrow(streams[name].table())
    for source in sources.values():
        source.advance(end_ms - batch_ms)
    engine.settle(120)
    for name, query in queries.items():
        _add_steps(report, name, query.explain(analyze=True))


def _add_steps(report: Report, name: str, explained: str) -> None:
    for number, kind, estimated, actual in _STEP.findall(explained):
        row = {"query": name, "step": int(number), "kind": kind, "estimated": float(estimated), "actual": int(actual)}
        report.add(TITLE, {**row, "q-error": q_error(float(estimated), int(actual))})


def _between(stream: StreamData, after_ms: int, until_ms: int) -> StreamData:
    """Return the part of a stream with times in (after_ms, until_ms]."""
    first, last = np.searchsorted(stream.times, (after_ms, until_ms), side="right").tolist()
    lines = stream.lines.split(b"\n")[first:last]
    return StreamData(b"".join(line + b"\n" for line in lines), stream.times[first:last])
