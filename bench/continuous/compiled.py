"""Programs over the windows of the same engine: L1-L3 alone, and many in one call on one thread and on two."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import numpy as np

from wukongs.bench.continuous.firing import SMALL, WARM_RUNS, Replay, text_of
from wukongs.bench.continuous.many import CHECKED_QUERIES, MIXED, constant_of, mixed
from wukongs.bench.continuous.probe import Probe
from wukongs.bench.continuous.workload import WINDOW_BATCHES, Rows, draw
from wukongs.bench.harness import Report, summary
from wukongs.bench.lsbench.data import IRI
from wukongs.bench.lsbench.queries import BenchQuery
from wukongs.bench.store.injection import BATCH_MS
from wukongs.csparql.algebra import Bgp, Project, Query, StreamWindow
from wukongs.csparql.parser import parse_query
from wukongs.csparql.rules import rewrite
from wukongs.csparql.terms import Term, Variable
from wukongs.live.core import Core
from wukongs.query.limits import Limits
from wukongs.query.plans.compiled import Columns, Windows, Workspace
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.programs.arena import Arena
from wukongs.query.programs.program import Program, run_together
from wukongs.query.terms.decoding import column_texts
from wukongs.query.terms.query_terms import ConstantIds, QueryTerms
from wukongs.store.dtypes import Int64Array
from wukongs.store.term_registry import TermReader
from wukongs.store.window_table import WindowTable

ALONE = "Compiled L1-L3 once per window after injection, microseconds"
ROUNDS = 50
_ROW = Variable(".row")
_CONSTANT = Variable(".constant")


@dataclass(frozen=True, slots=True)
class Group:
    """A query for many users. rows : int64[n, 2]: the number of each user, and its term."""

    program: Program
    rows: Int64Array


@dataclass(slots=True)
class Tables:
    """A table of windows for queries of one engine: the stored graph, and the window of 1 s over each stream."""

    core: Core
    table: WindowTable = field(default_factory=WindowTable)
    stored: int = field(init=False)
    numbers: dict[StreamWindow, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.stored = self.table.add()

    def compiled(self, text: str, memory: tuple[Workspace, Arena]) -> Program:
        """Compile the text of a registered query."""
        return self._program(rewrite(parse_query(text)), memory)

    def _program(self, query: Query, memory: tuple[Workspace, Arena], arguments: tuple[Variable, ...] = ()) -> Program:
        numbers = {window: self._number(window) for window in query.dataset.windows}
        windows, registry = Windows(self.table, self.stored, numbers), self.core.registry
        return Program(query, windows, ConstantIds(registry), PlanMemo(), *memory, registry, arguments)

    def group(self, query: BenchQuery, users: Sequence[str], memory: tuple[Workspace, Arena]) -> Group:
        """Compile L1, L2 or L3 for many users at once: each row tells the number of its user, too."""
        one = rewrite(parse_query(text_of(query, users[0], query.name)))
        names = [constant_of(query, user) for user in users]
        assert isinstance(one.pattern, Project), query
        assert isinstance(one.pattern.pattern, Bgp), query
        patterns = [
            replace(pattern, subject=_CONSTANT)
            if pattern.subject == Term(names[0])
            else replace(pattern, object=_CONSTANT)
            if pattern.object == Term(names[0])
            else pattern
            for pattern in one.pattern.pattern.patterns
        ]
        asked = replace(one, pattern=replace(one.pattern, pattern=Bgp(tuple(patterns))))
        ids = [self.core.registry.resolve(name) for name in names]
        rows = np.stack((np.arange(len(users)), np.array(ids, np.int64)), axis=1)
        return Group(self._program(asked, memory, (_ROW, _CONSTANT)), rows)

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
    core, user, memory = replay.engine._core, replay.workload.posters[0], (Workspace(), Arena())
    core.streams[IRI["PO"]].ring.index_windows(WINDOW_BATCHES)
    for query in SMALL:
        tables = Tables(core)
        one = tables.compiled(text_of(query, user, query.name), memory)
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
        found = _run(one, core.registry.snapshot_reader())
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


def _run(one: Program, reader: TermReader, rows: Int64Array | None = None) -> Columns:
    """Return the columns of a program of triple patterns, which needs no terms."""
    found = one.run(reader, _no_terms, Limits, rows)
    assert found is not None, one.query
    return found.columns


def _no_terms() -> QueryTerms:
    raise AssertionError("triple patterns need no terms")


def _run_many(programs: Sequence[Program], reader: TermReader) -> list[Int64Array]:
    """Return the rows of programs that have run before."""
    found = [rows for rows in run_together(programs, reader) if rows is not None]
    assert len(found) == len(programs)
    return found


def _three_times(one: Program, tables: Tables, at_ms: int, probe: Probe) -> dict[str, float]:
    """Write the windows and run a query; return the microseconds of its first and third run."""
    began = time.perf_counter()
    tables.tick(at_ms)
    told, reader = {"table": (time.perf_counter() - began) * 1e6}, tables.core.registry.snapshot_reader()
    for number in range(WARM_RUNS):
        before, began = probe.engine_us, time.perf_counter()
        found = _run(one, reader)
        took = (time.perf_counter() - began) * 1e6
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
        memories = [(Workspace(), Arena()) for _ in range(threads)]
        many = [[tables.compiled(text_of(query, user, "q"), memory) for query, user in asked] for memory in memories]
        groups = [
            [tables.group(query, list(counts), memory) for query, counts in by_query.items()] for memory in memories
        ]
        with core.lock:
            tables.tick(at_ms)
            reader = core.registry.snapshot_reader()
            for one in chain(*many):
                _run(one, reader)
            answers, *_ = (_run_many(programs, reader) for programs in many)
            for rows, (query, user) in zip(answers[:CHECKED_QUERIES], asked, strict=False):
                expected = replay.workload.answer(query.name, user, replay.number)
                report.check(f"compiled {query.name} for {user}, as sets", True, _texts(tuple(rows), core) == expected)
            calls = [partial(_run_many, programs, reader) for programs in many]
            rate = query_count * rounds * threads / _seconds(calls, rounds)
            row_count = sum(rows.shape[1] for rows in answers)
            row = {"queries": query_count, "constants": len(set(users)), "rows of a window": row_count}
            report.add(MIXED, {"way": f"programs, one call, threads: {threads}", **row, "executions/s": rate})
            found_rows = 0
            for group, counts in zip(groups[0], by_query.values(), strict=True):
                numbers, *_ = _run(group.program, reader, group.rows)
                found_rows += int(np.array(list(counts.values()))[numbers].sum())
            report.check(f"programs of groups, threads: {threads}, rows of all queries", row_count, found_rows)
            rate = query_count * rounds * threads / _seconds([partial(_run_all, own, reader) for own in groups], rounds)
        report.add(MIXED, {"way": f"programs of groups, threads: {threads}", **row, "executions/s": rate})


def _run_all(groups: Sequence[Group], reader: TermReader) -> None:
    for group in groups:
        _run(group.program, reader, group.rows)


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
