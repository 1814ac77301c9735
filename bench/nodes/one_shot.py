"""S1-S6 on a cluster, from the text of the query to its rows at the client."""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from wukongs.bench.harness import Report, repeat, summary
from wukongs.bench.lsbench.data import LsbenchData
from wukongs.bench.lsbench.queries import S_CONSTANTS
from wukongs.bench.nodes.engines import EMBEDDED, Bench, since
from wukongs.bench.oneshot.queries import S_QUERIES

ABSORBED = ("PO", "PO-L", "PH", "PH-L")
ANSWERED = "S1-S6: one-shot, ms at the client"
LOADED = "Load through one client"
Bag = Counter[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Run:
    """bag: the rows; seconds: per query; moved: per query."""

    bag: Bag
    seconds: list[float]
    moved: dict[str, float]


@dataclass(frozen=True, slots=True)
class Runs:
    """load_s: of `lines` triples; idle_s: calls that do nothing in the node; queries: by name."""

    lines: int
    load_s: float
    idle_s: list[float]
    queries: dict[str, Run]


def run_one_shot(bench: Bench, data: LsbenchData, repeats: int) -> Runs:
    """Load the stored triples and those that streams add, and ask each query `repeats` times, after one unseen."""
    lines = b"".join([data.stored, *(data.streams[name].lines for name in ABSORBED)])
    began_s = time.perf_counter()
    bench.engine.load(io.BytesIO(lines), format="nt")
    load_s = time.perf_counter() - began_s
    constants = dict(S_CONSTANTS) if data.is_sample else {"user": data.user, "person": data.person, "group": "g0"}
    constants = {"other": constants["person"], **constants}
    runs = {}
    for query in S_QUERIES:
        text = query.text(constants)
        bag = Counter(tuple(map(str, row)) for row in bench.engine.query(text))
        before = bench.counters()
        seconds = repeat(partial(bench.engine.query, text), repeats, 0)
        moved = since(before, bench.counters())
        runs[query.name] = Run(bag, seconds, {name: count / repeats for name, count in moved.items()})
    return Runs(lines.count(b"\n"), load_s, repeat(bench.engine.streams, repeats), runs)


def report_one_shot(report: Report, bench: Bench, runs: Runs, wanted: Mapping[str, Run]) -> None:
    """Compare the answers with those of the embedded engine, and add what they took."""
    for name, run in runs.queries.items():
        report.check(f"{name}, {bench.name}: rows", wanted[name].bag.total(), run.bag.total())
        report.check(f"{name}, {bench.name}: rows as the embedded engine has them", True, run.bag == wanted[name].bag)
        report.add(ANSWERED, {"query": name, "nodes": bench.name, "rows": run.bag.total(), **_times(run.seconds)})
        if bench.name != EMBEDDED:
            moved = {"requests": run.moved["requests"], "rows moved": run.moved["rows"]}
            cpu = {"CPU of all nodes": run.moved["cpu_s"] * 1e3}
            report.tables[ANSWERED][-1] |= {**cpu, **moved, "KB moved": run.moved["bytes"] / 1e3}
    if bench.name != EMBEDDED:
        report.add(ANSWERED, {"query": "a call that asks nothing", "nodes": bench.name, **_times(runs.idle_s)})
    rate = runs.lines / runs.load_s / 1e3
    report.add(LOADED, {"nodes": bench.name, "triples": runs.lines, "seconds": runs.load_s, "K triples/s": rate})


def _times(seconds: list[float]) -> dict[str, float]:
    found = summary([one * 1e3 for one in seconds])
    return {"least": found["min"], "median": found["median"], "p99": found["p99"]}
