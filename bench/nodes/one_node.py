"""A cluster of one node beside the embedded engine, in one process and in turns: the price of the cluster's way.

Both are asked the same in the same order; every window is compared. A tick is one step of 100 ms: all streams are
pushed and advanced, with one query that nothing matches, so that the way of the tuples is left.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import wukongs
from wukongs.adapters.lsbench_people import NetworkSettings
from wukongs.bench.harness import Report, WrongAnswer
from wukongs.bench.lsbench.data import IRI, QUICK_DATA, TIMING, LsbenchData, find_folder, generate_lsbench, read_lsbench
from wukongs.bench.lsbench.queries import QUERIES
from wukongs.bench.lsbench.replay import REPLAY
from wukongs.bench.nodes.engines import EMBEDDED, Bench
from wukongs.bench.nodes.windows import Days, last_day_of, last_days, moved, run_windows
from wukongs.cluster.cluster_node import ClusterNode, ClusterShape
from wukongs.errors import WukongsError
from wukongs.protocol.messages import Incarnation
from wukongs.settings import Settings

GENERATED = NetworkSettings(users=1000, duration_ms=20_000, positions_per_s=400)
ONE_NODE = "cluster of one"
START_S = 60.0
NOTHING = (
    "REGISTER QUERY nothing AS SELECT * FROM STREAM <{iri}> [RANGE 100ms STEP 100ms] "
    "WHERE {{ ?s <http://example.org/no-such-predicate> ?o }}"
)


def main(report: Path | None = None, data: Path | None = None, quick: bool = False) -> int:
    """Run the benchmark; return the exit status: 1 for a wrong answer or data that cannot be read."""
    try:
        folder = None if quick and data is None else find_folder(data)
        if folder is None:
            read = generate_lsbench(QUICK_DATA if quick else GENERATED)
        else:
            read = read_lsbench(folder)
        results = _run(read, rounds=1 if quick else 5)
    except (WrongAnswer, OSError, ValueError, WukongsError) as error:
        print(f"wukongs: bench one-node: {error}", file=sys.stderr)
        return 1
    results.publish(report)
    return 0


def _run(data: LsbenchData, rounds: int) -> Report:
    results = Report("one-node", {**data.describe(), "transport": "none: one process"})
    days = last_days(data, last_day_of(data), 1)
    found: dict[str, dict[str, list[float]]] = {EMBEDDED: {}, ONE_NODE: {}}
    for number in range(rounds):
        print(f"bench one-node: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        bags = {}
        for name, made in ((EMBEDDED, _embedded), (ONE_NODE, _one_node)):
            with made() as engine:
                bags[name] = _measure(Bench(name, engine), data, days, found[name])
        same = sum(one == other for one, other in zip(bags[EMBEDDED], bags[ONE_NODE], strict=True))
        results.check(f"windows of round {number + 1} as the embedded engine has them", len(bags[EMBEDDED]), same)
    for what, alone in found[EMBEDDED].items():
        ours = found[ONE_NODE][what]
        results.add(
            "Medians; ratio and difference by rounds",
            {
                "what": what,
                EMBEDDED: median(alone),
                ONE_NODE: median(ours),
                "ratio": median(one / other for one, other in zip(ours, alone, strict=True)),
                "difference": median(one - other for one, other in zip(ours, alone, strict=True)),
            },
        )
    return results


@contextmanager
def _embedded() -> Iterator[Any]:
    with wukongs.Engine() as engine:
        yield engine


@contextmanager
def _one_node() -> Iterator[Any]:
    """Give the engine of a node that is a cluster by itself."""
    me = Incarnation(0, 0, time.time_ns() // 1_000_000)
    node = ClusterNode(me, ClusterShape(1, 1), "tcp://127.0.0.1:0", Settings())
    try:
        node.start({0: node.address})
        node.wait_until_ready(START_S)
        yield node.engine
    finally:
        node.close()


def _measure(bench: Bench, data: LsbenchData, days: Days, found: dict[str, list[float]]) -> list[Any]:
    def note(what: str, value: float) -> None:
        found.setdefault(what, []).append(value)

    note("load, s", _seconds(lambda: bench.engine.load(io.BytesIO(data.stored), format="nt")))
    runs = run_windows(bench, data, days)
    for query in QUERIES:
        run = runs[query.name]
        note(f"{query.name}: last push to the window, us", median(run.latency_s) * 1e6)
        note(f"{query.name}: advance to its rows, us", median(run.seen_s) * 1e6)
    push_us, tick_us = _ticks(bench, days)
    note("push of one step's tuples, us", push_us)
    note("tick: advance to settled, us", tick_us)
    return [bag for query in QUERIES for bag in runs[query.name].bags]


def _ticks(bench: Bench, days: Days) -> tuple[float, float]:
    """Return medians in microseconds: of pushing the tuples of a step, and of what follows until all is settled."""
    streams = {
        name: bench.engine.stream(f"{iri}/ticks", timing=name in TIMING, batch_ms=REPLAY.batch_ms, history_ms=0)
        for name, iri in IRI.items()
    }
    query = bench.engine.register(NOTHING.format(iri=next(iter(IRI.values())) + "/ticks"))
    pushes, ticks = [], []
    for place, part in enumerate(days.parts, 1):
        tables = {streams[name].iri: moved(table, 0) for name, table in part.items()}
        pushes.append(_seconds(lambda: bench.engine.push_many(tables)))  # noqa: B023
        ticks.append(_seconds(lambda: _advance(bench, streams, place * REPLAY.step_ms)))  # noqa: B023
    query.close()
    return median(pushes) * 1e6, median(ticks) * 1e6


def _advance(bench: Bench, streams: dict[str, Any], time_ms: int) -> None:
    bench.engine.push_many(dict.fromkeys(stream.iri for stream in streams.values()), time_ms)
    bench.engine.settle()


def _seconds(do: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    do()
    return time.perf_counter() - began_s
