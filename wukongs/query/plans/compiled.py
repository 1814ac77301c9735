"""Compiled plans: a registered query as a block of numbers that one kernel call runs over the windows of a table.

Nothing is made anew at a firing. The block names windows, and the kernel finds their batches. The plan is looked at
again when some window's size has changed by a factor (WindowTable.version), and in no other firing.

A query is compiled if it is a SELECT of variables that triple patterns bind, without filters that run in between.
Everything else is evaluated by the executor, which also takes over a firing that needs more room than a workspace has.
Both run the same plan by the same kernel, so rows and their order are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wukongs.csparql.algebra import Bgp, DatasetClause, Project, Query, StreamWindow
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import possible_variables
from wukongs.csparql.terms import Variable
from wukongs.query.limits import Limits
from wukongs.query.plans import plan_layout as layout
from wukongs.query.plans.compiled_kernels import run_call, run_calls
from wukongs.query.plans.dataset import Dataset, Resolve
from wukongs.query.plans.lowered_plan import LoweredPlan
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.store.dtypes import Int64Array
from wukongs.store.window_table import WindowTable

OUT_CELLS = 1 << 16
"""The ids that a workspace has room for in rows that come out."""
FIRING_BYTES_MAX = 16 * OUT_CELLS
"""The most that a firing holds, before a larger one goes on under its limits."""
_ADVICE = "Let its patterns share variables, or start from a constant"
Columns = tuple[Int64Array, ...]


class Workspace:
    """The memory in which a thread runs compiled plans, kept from call to call."""

    def __init__(self) -> None:
        self.space: Int64Array = np.empty(layout.SPACE_CELLS, np.int64)
        self.out: Int64Array = np.empty(OUT_CELLS, np.int64)
        self.out_of_many: Int64Array = np.empty(OUT_CELLS, np.int64)
        """The same for the rows of many queries; it grows."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The numbers of a query's windows in a table, and of the stored graph."""

    table: WindowTable
    stored: int
    numbers: Mapping[StreamWindow, int]

    def dataset(self, clause: DatasetClause, resolve: Resolve) -> tuple[Dataset, dict[int, int]]:
        """Return the batches as they are now, for the planner, and the window number of each set of batches."""
        # Two windows may hold the same batches now, and others later.
        sets = {number: replace(self.table.batches(number)) for number in (self.stored, *self.numbers.values())}
        windows = {window: sets[number] for window, number in self.numbers.items()}
        numbers = {id(batches): number for number, batches in sets.items()}
        return Dataset(clause, sets[self.stored], windows, resolve), numbers


@dataclass(slots=True, eq=False, repr=False)
class CompiledQuery:
    """A query that kernels run. seeds: variables that the rows to start from bind; resolve: the ids of its constants,
    which never change; memo: plans for other sizes.

    Its stored graph is here as a whole: a node that holds a share of it asks others, and cannot use this. It may be run
    by one thread at a time, with the table of windows unchanged meanwhile."""

    clause: DatasetClause
    variables: tuple[Variable, ...]
    wanted: FilteredBgp
    seeds: tuple[Variable, ...]
    windows: Windows
    resolve: Resolve
    memo: PlanMemo
    workspace: Workspace
    block: Int64Array = field(init=False)
    """The plan, as plan_layout says."""
    call: Int64Array = field(init=False)
    is_runnable: bool = field(init=False, default=False)
    """Whether there is a plan that the kernel can run alone."""
    is_void: bool = field(init=False, default=False)
    """Whether there is no match, whatever the data: no term of the data can be one of its constants."""
    width: int = field(init=False)
    """Columns of the rows in the kernel: those of all variables, at least 1."""
    seed_table: Int64Array = field(init=False)
    _columns: list[int] = field(init=False, default_factory=list)
    _seed_count: int = field(init=False, default=0)
    _version: int = field(init=False, default=-1)
    """That of the table for which the plan is, -1: it has to be looked at again."""
    _changes: list[int] = field(init=False, default_factory=list)
    """The changes of its own windows for which the plan is."""

    @staticmethod
    def of(
        query: Query,
        windows: Windows,
        resolve: Resolve,
        memo: PlanMemo,
        workspace: Workspace,
        seeds: tuple[Variable, ...] = (),
    ) -> CompiledQuery | None:
        """Compile a query, None if it is none for kernels alone."""
        if not CompiledQuery.is_for(query, seeds):
            return None
        variables = tuple(map(Variable, query.variables))
        wanted = FilteredBgp(_patterns(query), ())
        return CompiledQuery(query.dataset, variables, wanted, seeds, windows, resolve, memo, workspace)

    @staticmethod
    def is_for(query: Query, seeds: tuple[Variable, ...] = ()) -> bool:
        """Tell whether a query is one for kernels alone."""
        patterns, variables = _patterns(query), tuple(map(Variable, query.variables))
        if query.form != "select" or not patterns.patterns or not variables:
            return False
        return possible_variables(patterns).union(seeds).issuperset(variables)

    def __post_init__(self) -> None:
        call = self.call = np.zeros(layout.CALL_WIDTH, np.int64)
        call[layout.CALL_WINDOWS] = self.windows.table.address
        call[layout.CALL_SPACE] = self.workspace.space.ctypes.data
        call[layout.CALL_OUT] = self.workspace.out.ctypes.data
        self.width = max(1, len(possible_variables(self.wanted.bgp).union(self.seeds)))
        self.seed_table = np.zeros((0, self.width), np.int64)

    def start_from(self, columns: Sequence[Int64Array]) -> None:
        """Say which rows bind the seeds: int64[n] each, n > 0. They stay until others are given."""
        self._seed_count = len(columns[0])
        self._renew()
        self.seed_table = np.zeros((self._seed_count, self.width), np.int64)
        self.seed_table[:, : len(columns)] = np.stack(columns, axis=1)
        self.call[layout.CALL_SEEDS] = self.seed_table.ctypes.data
        self.call[layout.CALL_SEED_COUNT] = len(self.seed_table)

    def is_current(self) -> bool:
        """Look at sizes if some have changed; tell whether the plan is for those of now."""
        table = self.windows.table
        if self._version != table.version:
            changes = self._changes_now()
            if self._version < 0 or changes != self._changes:
                self._changes = changes
                self._renew()
            else:
                self._version = table.version
        return self._version >= 0

    def _changes_now(self) -> list[int]:
        return [self.windows.table.changes[number] for number in (self.windows.stored, *self.windows.numbers.values())]

    def run(self, limits: Callable[[], Limits]) -> Columns | None:
        """Return the columns of the query's variables, None if the executor has to evaluate the query.

        limits: those of this execution, asked for if it is large. Raises QueryTimeout, BudgetExceeded."""
        if self._version != self.windows.table.version:
            self.is_current()
        if not self.is_runnable:
            return self._nothing() if self.is_void else None
        rows = run_call(self.call)
        if rows > 0:
            return self.columns(self.workspace.out, rows)
        if rows == 0:
            return self._nothing()
        return None if -rows in _ELSEWHERE else self._go_on(limits())

    def columns(self, out: Int64Array, rows: int) -> Columns:
        """Return the query's columns of so many rows that lie at the beginning of some room."""
        if rows == 0:
            return self._nothing()
        width = self.width
        found = out[: rows * width].reshape(rows, width).T.copy()
        return tuple([found[at] for at in self._columns])

    def _go_on(self, limits: Limits) -> Columns | None:
        """Run a call on that has stopped, until it is done."""
        call, gathered, total, stopped = self.call, list[Columns](), 0, True
        call[layout.CALL_GOES_ON] = 1
        try:
            while True:
                rows = int(call[layout.CALL_ROWS])
                gathered.append(self.columns(self.workspace.out, rows))
                if not stopped:
                    return tuple(map(np.concatenate, zip(*gathered, strict=True)))
                limits.check()
                total += rows
                limits.check_rows(total, _ADVICE, "a basic graph pattern")
                limits.hold(16 * rows * self.width)
                status = run_call(call)
                stopped = status < 0
                if -status in _ELSEWHERE:
                    return None
        finally:
            call[layout.CALL_GOES_ON] = 0

    def _nothing(self) -> Columns:
        return (_NO_IDS,) * len(self.variables)

    def _renew(self) -> None:
        """Find the plan for the sizes of now, and write it down if the kernel can run it alone."""
        dataset, numbers = self.windows.dataset(self.clause, self.resolve)
        route = self.memo.route(self.wanted, self.seeds, max(1, self._seed_count), dataset)
        # A plan for other sizes does until the memo is renewed.
        self._version = -1 if self.memo.is_stale else self.windows.table.version
        self.is_runnable = self.is_void = False
        if len(route.segments) != 1 or route.plan.filters or route.plan.constants or route.segments[0].filters:
            return
        plan = route.segments[0].lowered
        self.is_void = plan.is_void
        if plan.is_void or len(plan.steps) > layout.COMPILED_STEPS_MAX or self.width > layout.COMPILED_COLUMNS_MAX:
            return
        assert plan.variables[: len(self.seeds)] == self.seeds, (plan.variables, self.seeds)
        assert max(1, len(plan.variables)) == self.width, (plan.variables, self.width)
        self._columns = [plan.variables.index(variable) for variable in self.variables]
        self.block = _block(plan, dataset, self.windows.table, numbers, self.width)
        self.call[layout.CALL_PLAN] = self.block.ctypes.data
        self.call[layout.CALL_ROOM] = OUT_CELLS // self.width
        self.is_runnable = True


def _patterns(query: Query) -> Bgp:
    """Return the triple patterns that are all of a query but for its projection; none if there is more in it."""
    pattern = query.pattern.pattern if isinstance(query.pattern, Project) else query.pattern
    return pattern if isinstance(pattern, Bgp) else Bgp(())


_NO_IDS = np.empty(0, np.int64)
_ELSEWHERE = (layout.NEED_SPANS, layout.NO_ROOM, layout.CANCELLED)


def _block(
    plan: LoweredPlan, dataset: Dataset, table: WindowTable, numbers: Mapping[int, int], width: int
) -> Int64Array:
    """Write a plan down for run_call, with windows in the place of their batches."""
    steps, sources = plan.steps.copy(), list[tuple[int, int, int, int]]()
    for row, graph in zip(steps, plan.graphs, strict=True):
        row[layout.PARTS_FROM] = len(sources)
        for part in dataset.source(graph).parts:
            number, access = numbers[id(part.batches)], -1
            if _goes_by_predicate(row) and part.graph >= 0:
                access = table.access(number, int(row[layout.PREDICATE]), part.graph, int(row[layout.DIRECTION]))
            sources.append((number, part.graph, part.name, access))
        row[layout.PARTS_TO] = len(sources)
    head = len(steps), len(sources), width, dataset.default_graph
    return np.concatenate([np.array(head), steps.ravel(), np.array(sources, np.int64).ravel()], dtype=np.int64)


def _goes_by_predicate(step: Int64Array) -> bool:
    """Whether a step looks bound keys up under one predicate, in one graph whose name is not asked for."""
    return bool(
        step[layout.KEY_KIND] != layout.NEW
        and step[layout.PREDICATE_KIND] == layout.CONSTANT
        and step[layout.GRAPH_KIND] == layout.ANY
    )


@dataclass(frozen=True, slots=True)
class Answers:
    """The rows of many queries in one block. counts : int64[n], of each query's rows; offsets : int64[n + 1], where
    they begin in `cells`; apart: those of queries that did not fit, None where the executor has to evaluate one."""

    queries: Sequence[CompiledQuery]
    cells: Int64Array
    offsets: Int64Array
    counts: Int64Array
    apart: Mapping[int, Columns | None]

    def columns(self, number: int) -> Columns | None:
        """Return the columns of a query's variables, None if the executor has to evaluate it."""
        if number in self.apart:
            return self.apart[number]
        return self.queries[number].columns(self.cells[self.offsets[number] :], int(self.counts[number]))


class CompiledQueries:
    """Many compiled queries, alike or not, run by one call. All have the same table of windows."""

    def __init__(self, queries: Sequence[CompiledQuery], workspace: Workspace) -> None:
        self.queries = queries
        self._workspace = workspace
        self._calls: Int64Array = np.zeros((len(queries), layout.CALL_WIDTH), np.int64)
        self._widths: Int64Array = np.ones(len(queries), np.int64)
        self._version = -1

    def run(self, limits: Callable[[], Limits]) -> Answers:
        """Do the same as CompiledQuery.run for each query."""
        if self.queries and self._version != self.queries[0].windows.table.version:
            self._renew()
        calls, apart, space = self._calls, dict[int, Columns | None](), self._workspace
        used = first = 0
        while first < len(calls):
            stopped = run_calls(calls, first, space.out_of_many.ctypes.data + 8 * used, len(space.out_of_many) - used)
            used += int(calls[first:stopped, layout.CALL_ROWS] @ self._widths[first:stopped])
            first = stopped
            if first == len(calls):
                break
            calls[first, layout.CALL_ROWS] = 0
            if used > len(space.out_of_many) // 2:
                space.out_of_many = np.concatenate([space.out_of_many, np.empty_like(space.out_of_many)])
            else:
                apart[first] = self.queries[first].run(limits)
                first += 1
        counts = calls[:, layout.CALL_ROWS].copy()
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts * self._widths)])
        return Answers(self.queries, space.out_of_many[:used].copy(), offsets, counts, apart)

    def _renew(self) -> None:
        """Take over the calls of the queries, as they are for the sizes of now."""
        are_current = [query.is_current() for query in self.queries]
        self._version = self.queries[0].windows.table.version if all(are_current) else -1
        for row, query in zip(self._calls, self.queries, strict=True):
            row[:] = query.call if query.is_runnable else 0
        self._calls[:, layout.CALL_SPACE] = self._workspace.space.ctypes.data
        self._widths[:] = [query.width for query in self.queries]
