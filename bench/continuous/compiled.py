"""Compiled plans over the windows of the same engine: L1-L3 alone, and many in one call on one thread and on two."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from wukongs.bench.continuous.firing import SMALL, WARM_RUNS, Replay, text_of
from wukongs.bench.continuous.many import CHECKED_QUERIES, MIXED, constant_of, mixed
from wukongs.bench.continuous.probe import Probe
from wukongs.bench.continuous.workload import WINDOW_BATCHES, Rows, draw
from wukongs.bench.harness import Report, summary
from wukongs.bench.lsbench.data import IRI
from wukongs.bench.lsbench.queries import BenchQuery
from wukongs.bench.store.injection import BATCH_MS
from wukongs.csparql.algebra import Bgp, StreamWindow
from wukongs.csparql.parser import parse_query
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.rules import rewrite
from wukongs.csparql.terms import Term, Variable
from wukongs.live.core import Core
from wukongs.query.limits import Limits
from wukongs.query.plans.compiled import Columns, CompiledQueries, CompiledQuery, Windows, Workspace
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.terms.decoding import column_texts
from wukongs.query.terms.query_terms import ConstantIds
from wukongs.store.window_table import WindowTable

ALONE = "Compiled L1-L3 once per window after injection, microseconds"
ROUNDS = 50
_ROW = Variable(".row")
_CONSTANT = Variable(".constant")


@dataclass(slots=True)
class Tables:
    """A table of windows for queries of one engine: the stored graph, and the window of 1 s over each stream."""

    core: Core
    table: WindowTable = field(default_factory=WindowTable)
    stored: int = field(init=False)
    numbers: dict[StreamWindow, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.stored = self.table.add()

    def compiled(self, text: str, workspace: Workspace) -> CompiledQuery:
        """Compile the text of a registered query."""
        query = rewrite(parse_query(text))
        numbers = {window: self._number(window) for window in query.dataset.windows}
        windows = Windows(self.table, self.stored, numbers)
        found = CompiledQuery.of(query, windows, ConstantIds(self.core.registry), PlanMemo(), workspace)
        assert found is not None, text
        return found

    def group(self, query: BenchQuery, users: Sequence[str], workspace: Workspace) -> CompiledQuery:
        """Compile L1, L2 or L3 for many users at once: each row tells the number of its user, too."""
        one = self.compiled(text_of(query, users[0], query.name), workspace)
        names = [constant_of(query, user) for user in users]
        patterns = [
            replace(pattern, subject=_CONSTANT)
            if pattern.subject == Term(names[0])
            else replace(pattern, object=_CONSTANT)
            if pattern.object == Term(names[0])
            else pattern
            for pattern in one.wanted.bgp.patterns
        ]
        found = CompiledQuery(
            one.clause,
            (_ROW, *one.variables),
            FilteredBgp(Bgp(tuple(patterns))),
            (_ROW, _CONSTANT),
            one.windows,
            one.resolve,
            PlanMemo(),
            workspace,
        )
        ids = [self.core.registry.resolve(name) for name in names]
        found.start_from([np.arange(len(users)), np.array(ids)])
        return found

    def _number(self, window: StreamWindow) -> int:
        for known, number in self.numbers.items():
            if known.stream == window.stream:
                return number
        return self.numbers.setdefault(window, self.table.add())

    def tick(self, at_ms: int) -> None:
        """Write the windows that end at a time."""
        core = self.core
        self.table.set(self.stored, core.arrangement.trace.read(core.sn_at(at_ms)))
        to = at_ms // BATCH_MS
        for window, number in self.numbers.items():
            self.table.set(number, core.streams[window.stream].ring.window(to - WINDOW_BATCHES, to))


def bench_compiled(report: Report, replay: Replay, window_count: int, warm_up: int) -> None:
    """Add a row for each of L1-L3, alone."""
    core, user, workspace = replay.engine._core, replay.workload.posters[0], Workspace()
    core.streams[IRI["PO"]].ring.index_windows(WINDOW_BATCHES)
    for query in SMALL:
        tables = Tables(core)
        one = tables.compiled(text_of(query, user, query.name), workspace)
        times: dict[str, list[float]] = {name: [] for name in ("table", "engine", "all", "warm engine", "warm all")}
        rows = []
        gc.collect()
        gc.disable()
        try:
            with Probe() as probe:
                for number in range(warm_up + window_count):
                    at_ms = replay.step()
                    with core.lock:
                        took = _three_times(one, tables, at_ms, probe)
                    if number >= warm_up:
                        rows.append(took.pop("rows"))
                        for name, value in took.items():
                            times[name].append(value)
        finally:
            gc.enable()
        found = one.run(Limits)
        assert found is not None, query
        expected = replay.workload.answer(query.name, user, replay.number)
        report.check(f"compiled {query.name}, {at_ms} ms, as sets", True, _texts(found, core) == expected)
        report.add(
            ALONE,
            {
                "query": query.name,
                "windows": len(rows),
                "rows median": summary(rows)["median"],
                **{f"{name} p50": summary(samples)["median"] for name, samples in times.items()},
                "all p99": summary(times["all"])["p99"],
            },
        )


def _three_times(one: CompiledQuery, tables: Tables, at_ms: int, probe: Probe) -> dict[str, float]:
    """Write the windows and run a query; return the microseconds of its first and third run."""
    began = time.perf_counter()
    tables.tick(at_ms)
    told = {"table": (time.perf_counter() - began) * 1e6}
    for number in range(WARM_RUNS):
        before, began = probe.engine_us, time.perf_counter()
        found = one.run(Limits)
        took = (time.perf_counter() - began) * 1e6
        assert found is not None, at_ms
        told["rows"] = len(found[0])
        if number in (0, WARM_RUNS - 1):
            prefix = "warm " if number else ""
            told |= {f"{prefix}engine": probe.engine_us - before, f"{prefix}all": took}
    return told


def _texts(columns: Columns, core: Core) -> Rows:
    reader = core.registry.snapshot_reader()
    return sorted(zip(*([str(text).encode() for text in column_texts(one, reader)] for one in columns), strict=True))


def bench_compiled_mix(report: Report, replay: Replay, query_count: int, rounds: int = ROUNDS) -> None:
    """Add the executions per second of the mix of `many`: as single queries in one call, and in groups."""
    core = replay.engine._core
    users = draw(replay.workload.posters, query_count)
    asked = list(zip(mixed(query_count), users, strict=True))
    by_query = {query: Counter(user for other, user in asked if other is query) for query in SMALL}
    tables = Tables(core)
    at_ms = replay.step()
    for threads in (1, 2):
        spaces = [Workspace() for _ in range(threads)]
        many = [
            CompiledQueries([tables.compiled(text_of(query, user, "q"), space) for query, user in asked], space)
            for space in spaces
        ]
        with core.lock:
            tables.tick(at_ms)
            answers, *_ = (one.run(Limits) for one in many)
            for number, (query, user) in enumerate(asked[:CHECKED_QUERIES]):
                found = answers.columns(number)
                assert found is not None, query
                expected = replay.workload.answer(query.name, user, replay.number)
                report.check(f"compiled {query.name} for {user}, as sets", True, _texts(found, core) == expected)
            rate = query_count * rounds * threads / _seconds([partial(one.run, Limits) for one in many], rounds)
        row = {"queries": query_count, "constants": len(set(users)), "rows of a window": int(answers.counts.sum())}
        report.add(MIXED, {"way": f"compiled, one call, threads: {threads}", **row, "executions/s": rate})
        groups = [[tables.group(query, list(counts), space) for query, counts in by_query.items()] for space in spaces]
        together = [CompiledQueries(group, space) for group, space in zip(groups, spaces, strict=True)]
        with core.lock:
            found_rows = 0
            answers, *_ = (one.run(Limits) for one in together)
            for number, counts in enumerate(by_query.values()):
                found = answers.columns(number)
                assert found is not None, number
                per_row = np.array(list(counts.values()))
                found_rows += int(per_row[found[0]].sum())
            report.check(
                f"compiled groups, threads: {threads}, rows of all queries", row["rows of a window"], found_rows
            )
            calls = [partial(one.run, Limits) for one in together]
            rate = query_count * rounds * threads / _seconds(calls, rounds)
        report.add(MIXED, {"way": f"compiled, in groups, threads: {threads}", **row, "executions/s": rate})


def _seconds(calls: Sequence[Callable[[], object]], rounds: int) -> float:
    """Return how long each call takes `rounds` times, all at once on threads of their own."""
    barrier = threading.Barrier(len(calls) + 1)

    def repeat(call: Callable[[], object]) -> None:
        barrier.wait()
        for _ in range(rounds):
            call()
        barrier.wait()

    threads = [threading.Thread(target=repeat, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    barrier.wait()
    began = time.perf_counter()
    barrier.wait()
    took = time.perf_counter() - began
    for thread in threads:
        thread.join()
    return took
