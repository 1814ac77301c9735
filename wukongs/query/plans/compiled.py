"""Compiled plans: a registered query as a block of numbers that one kernel call runs over the windows of a table.

Nothing is made anew at a firing. The block names windows, and the kernel finds their batches. The plan is looked at
again when some window's size has changed by a factor (WindowTable.version), and in no other firing.

A CompiledQuery is a query that kernels answer alone: a SELECT of variables that triple patterns bind, with no filters
but those that ids decide (conditions.py).
All others are evaluated by the executor, over the compiled plans of their triple patterns (compiled_plans.py). It also
takes over a firing that needs more room than a workspace has. Both run the same plan by the same kernel, so rows and
their order are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wukongs.csparql.algebra import Bgp, DatasetClause, Project, Query, StreamWindow
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import possible_variables
from wukongs.csparql.terms import Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.plans import plan_layout as layout
from wukongs.query.plans import plan_runner
from wukongs.query.plans.compiled_kernels import run_call, run_calls
from wukongs.query.plans.conditions import Condition, conditions_of, table_of
from wukongs.query.plans.dataset import Dataset, Resolve
from wukongs.query.plans.lowered_plan import LoweredPlan
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.plans.plan_runner import ADVICE
from wukongs.store.dtypes import NO_MATCH, Int64Array
from wukongs.store.window_table import WindowTable

OUT_CELLS = 1 << 16
"""The ids that a workspace has room for in rows that come out."""
FIRING_BYTES_MAX = 16 * OUT_CELLS
"""The most that a firing holds, before a larger one goes on under its limits."""
PLANS_SHARED_MAX = 10_000
"""The plans that are looked at for sharing, at most; beyond it all are forgotten."""
SHARED_BYTES_MAX = 32 << 20
"""The bytes of rows that are shared, at most; beyond it all are forgotten."""
Columns = tuple[Int64Array, ...]


@dataclass(slots=True)
class _Explored:
    """The rows of one block from one row. writes: those of its windows; rows: int64[width, n], None while one query
    alone has asked for it."""

    writes: tuple[int, ...]
    rows: Int64Array | None = None
    is_shared: bool = False


class SharedRows:
    """The rows of compiled plans that several queries have: explored once while their windows are the same.

    Equal plans are equal blocks of numbers, whatever their variables are called and whatever stands around them."""

    def __init__(self) -> None:
        self.count = 0
        """Requests that were answered without exploring."""
        self._known: dict[Hashable, _Explored] = {}
        """By block and the row to start from."""
        self._bytes = 0

    def get(self, key: Hashable, writes: tuple[int, ...]) -> Int64Array | None:
        """Return the rows of a plan over windows as they are; None: they are to be explored."""
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= PLANS_SHARED_MAX:
                self._forget()
            self._known[key] = _Explored(writes)
        elif found.writes == writes:
            found.is_shared = True
            self.count += found.rows is not None
            return found.rows
        else:
            self._drop(found)
            found.writes = writes
        return None

    def put(self, key: Hashable, rows: Int64Array) -> None:
        """Note the rows of a plan that was just asked for, if several queries have it."""
        found = self._known.get(key)
        if found is None or not found.is_shared or found.rows is not None:
            return
        if self._bytes + rows.nbytes > SHARED_BYTES_MAX:
            self._forget()
            return
        found.rows = rows
        self._bytes += rows.nbytes

    def _drop(self, explored: _Explored) -> None:
        if explored.rows is not None:
            self._bytes -= explored.rows.nbytes
            explored.rows = None

    def _forget(self) -> None:
        self._known, self._bytes = {}, 0


class Workspace:
    """The memory in which a thread runs compiled plans, kept from call to call."""

    def __init__(self) -> None:
        self.space: Int64Array = np.empty(layout.SPACE_CELLS, np.int64)
        self.out: Int64Array = np.empty(OUT_CELLS, np.int64)
        self.out_of_many: Int64Array = np.empty(OUT_CELLS, np.int64)
        """The same for the rows of many queries; it grows."""
        self.shared = SharedRows()


@dataclass(frozen=True, slots=True)
class Windows:
    """The numbers of a query's windows in a table, and of the stored graph. graphs: as that of Dataset."""

    table: WindowTable
    stored: int
    numbers: Mapping[StreamWindow, int]
    graphs: Mapping[StreamWindow, int] = field(default_factory=dict)

    @property
    def all_numbers(self) -> tuple[int, ...]:
        """The numbers of the stored graph and of all windows."""
        return self.stored, *self.numbers.values()

    def changes(self) -> list[int]:
        """Return how often the size of each has changed by a factor."""
        return [self.table.changes[number] for number in self.all_numbers]

    def dataset(self, clause: DatasetClause, resolve: Resolve) -> tuple[Dataset, dict[int, int]]:
        """Return the batches as they are now, for the planner, and the window number of each set of batches."""
        # Two windows may hold the same batches now, and others later.
        sets = {number: replace(self.table.batches(number)) for number in self.all_numbers}
        windows = {window: sets[number] for window, number in self.numbers.items()}
        numbers = {id(batches): number for number, batches in sets.items()}
        return Dataset(clause, sets[self.stored], windows, resolve, graphs=self.graphs), numbers


class CompiledSteps:
    """The steps of a plan as a block of numbers, and the call of a kernel that runs them.

    It may be run by one thread at a time, with the table of windows unchanged meanwhile. call : int64[CALL_WIDTH];
    width: columns of the rows in the kernel: those of all variables, at least 1."""

    def __init__(
        self,
        plan: LoweredPlan,
        dataset: Dataset,
        numbers: Mapping[int, int],
        table: WindowTable,
        workspace: Workspace,
        conditions: Sequence[Condition] = (),
    ) -> None:
        """dataset, numbers: as Windows.dataset returns them. plan: one for which `fits` holds. conditions: of the rows
        that come out; with some it is run in another way if there are more rows than there is room for."""
        assert CompiledSteps.fits(plan), plan
        self.plan = plan
        self.width = max(1, len(plan.variables))
        self._workspace = workspace
        self._room = OUT_CELLS // self.width
        self._block = _block(plan, dataset, table, numbers, table_of(conditions, plan.variables, dataset.resolve))
        """The plan, as plan_layout says."""
        parts = [part for graph in plan.graphs for part in dataset.source(graph).parts]
        self._table, self._windows = table, tuple(dict.fromkeys(numbers[id(part.batches)] for part in parts))
        """Those that the block reads, and no others of its query: the same ones, in the same order, as of all equal
        blocks."""
        self._key = self._block.tobytes()
        self._seeds: Int64Array = np.zeros((0, self.width), np.int64)
        call: Int64Array = np.zeros(layout.CALL_WIDTH, np.int64)
        self.call = call
        call[layout.CALL_PLAN] = self._block.ctypes.data
        call[layout.CALL_WINDOWS] = table.address
        call[layout.CALL_SPACE] = workspace.space.ctypes.data
        call[layout.CALL_OUT] = workspace.out.ctypes.data

    @staticmethod
    def fits(plan: LoweredPlan) -> bool:
        """Tell whether a workspace has room for the steps of a plan, and whether there is anything to run."""
        is_small = len(plan.steps) <= layout.COMPILED_STEPS_MAX and len(plan.variables) <= layout.COMPILED_COLUMNS_MAX
        return is_small and not plan.is_void

    def start_from(self, columns: Sequence[Int64Array], count: int) -> None:
        """Start from `count` > 0 rows that bind the plan's first variables, until other rows are given. Before the
        first call it starts from one row that binds nothing."""
        self._seeds = np.zeros((count, self.width), np.int64)
        for at, column in enumerate(columns):
            self._seeds[:, at] = column
        self.call[layout.CALL_SEEDS] = self._seeds.ctypes.data
        self.call[layout.CALL_SEED_COUNT] = count

    def run(self, limits: Callable[[], Limits], rows_wanted: int | None = None) -> Int64Array | None:
        """Return the rows, int64[width, n]; None if they have to be found in another way.

        limits: those of this execution, asked for if it is large; rows_wanted: more rows are not needed.
        Raises QueryTimeout, BudgetExceeded."""
        self.call[layout.CALL_ROOM] = self._room if rows_wanted is None else max(1, min(self._room, rows_wanted))
        count = run_call(self.call)
        if count >= 0:
            return self.rows(self._workspace.out, count)
        return None if -count in _ELSEWHERE else self._go_on(limits(), rows_wanted)

    def run_from(
        self, columns: Sequence[Int64Array], count: int, limits: Limits, rows_wanted: int | None = None
    ) -> Int64Array | None:
        """Run the plan from `count` > 0 rows; from one row, once for all equal plans over windows that stay the same.

        Parameters and errors are those of start_from and run."""
        key, shared = None, self._workspace.shared
        if count == 1 and rows_wanted is None:
            key = self._key, tuple([int(column[0]) for column in columns])
            writes = self._table.writes
            rows = shared.get(key, tuple([writes[number] for number in self._windows]))
            if rows is not None:
                limits.check_rows(rows.shape[1], ADVICE, "a basic graph pattern")
                return rows
        self.start_from(columns, count)
        found = self.run(lambda: limits, rows_wanted)
        if key is not None and found is not None:
            shared.put(key, found)
        return found

    def rows(self, out: Int64Array, count: int) -> Int64Array:
        """Return so many rows that lie at the beginning of some room: int64[width, count]."""
        return out[: count * self.width].reshape(count, self.width).T.copy()

    def _go_on(self, limits: Limits, rows_wanted: int | None) -> Int64Array | None:
        """Run a call on that has stopped, until it is done."""
        call, gathered, total, stopped = self.call, list[Int64Array](), 0, True
        call[layout.CALL_GOES_ON] = 1
        try:
            while True:
                count = int(call[layout.CALL_ROWS])
                gathered.append(self.rows(self._workspace.out, count))
                total += count
                limits.check()
                limits.check_rows(total, ADVICE, "a basic graph pattern")
                limits.hold(16 * count * self.width)
                if not stopped or (rows_wanted is not None and total >= rows_wanted):
                    return np.concatenate(gathered, axis=1)
                status = run_call(call)
                stopped = status < 0
                if -status in _ELSEWHERE:
                    return None
        finally:
            call[layout.CALL_GOES_ON] = 0


@dataclass(slots=True, eq=False, repr=False)
class CompiledQuery:
    """A query that kernels run. seeds: variables that the rows to start from bind; resolve: the ids of its constants,
    which never change; memo: plans for other sizes; filters_last: plan the patterns alone, so that no filter cuts the
    plan. The filters are conditions of the rows that come out in any case.

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
    filters_last: bool = False
    steps: CompiledSteps | None = field(init=False, default=None)
    """The plan for the sizes of now, None if the kernel cannot run it."""
    estimated_rows: float = field(init=False, default=0.0)
    """Those of all steps of its plan together."""
    is_void: bool = field(init=False, default=False)
    """Whether there is no match, whatever the data: no term of the data can be one of its constants."""
    _conditions: tuple[Condition, ...] = field(init=False)
    _planned: FilteredBgp = field(init=False)
    """The patterns as the planner is given them. The memo knows them by identity."""
    columns_of: list[int] = field(init=False, default_factory=list)
    """The columns of the plan's rows that its variables are."""
    _start: tuple[Sequence[Int64Array], int] = field(init=False, default=((), 0))
    """The columns of the rows to start from, and how many there are."""
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
        return CompiledQuery(query.dataset, variables, _patterns(query), seeds, windows, resolve, memo, workspace)

    @staticmethod
    def is_for(query: Query, seeds: tuple[Variable, ...] = ()) -> bool:
        """Tell whether a query is one for kernels alone."""
        wanted, variables = _patterns(query), tuple(map(Variable, query.variables))
        if query.form != "select" or not wanted.bgp.patterns or not variables:
            return False
        bound = possible_variables(wanted.bgp).union(seeds)
        return bound.issuperset(variables) and conditions_of(wanted.filters, bound) is not None

    def __post_init__(self) -> None:
        conditions = conditions_of(self.wanted.filters, possible_variables(self.wanted.bgp).union(self.seeds))
        assert conditions is not None, self.wanted
        self._conditions = conditions
        self._planned = FilteredBgp(self.wanted.bgp) if self.filters_last else self.wanted

    def start_from(self, columns: Sequence[Int64Array]) -> None:
        """Say which rows bind the seeds: int64[n] each, n > 0. They stay until others are given."""
        self._start = columns, len(columns[0])
        self._renew()

    def is_current(self) -> bool:
        """Look at sizes if some have changed; tell whether the plan is for those of now."""
        table = self.windows.table
        if self._version != table.version:
            changes = self.windows.changes()
            if self._version < 0 or changes != self._changes:
                self._renew()
                self._changes = changes
            else:
                self._version = table.version
        return self._version >= 0

    def run(self, limits: Callable[[], Limits]) -> Columns | None:
        """Return the columns of the query's variables, None if the executor has to evaluate the query.

        limits: those of this execution, asked for if it is large. Raises QueryTimeout, BudgetExceeded."""
        return self.bindings(self.variables, limits)

    def bindings(self, variables: Sequence[Variable], limits: Callable[[], Limits]) -> Columns | None:
        """Return the columns of some of its patterns' variables. Does as run."""
        if self._version != self.windows.table.version:
            self.is_current()
        if self.steps is None:
            return (_NO_IDS,) * len(variables) if self.is_void else None
        found = self.steps.run(limits)
        if found is None or variables is self.variables:
            return None if found is None else self._projected(found)
        return tuple([found[self.steps.plan.variables.index(variable)] for variable in variables])

    def bindings_of_many(self, variables: Sequence[Variable], limits: Callable[[], Limits]) -> Columns | None:
        """Do as bindings, also over windows in more parts than the kernel takes alone, and for more rows than it has
        room for: then plan_runner runs the plan."""
        found = self.bindings(variables, limits)
        if found is not None or self.steps is None or self._conditions:
            return found
        dataset, _ = self.windows.dataset(self.clause, self.resolve)
        columns, count = self._start
        seeds = BindingTable(self.seeds, tuple(columns), count) if count else BindingTable.unit()
        table = plan_runner.run(self.steps.plan, seeds, dataset, limits())
        return tuple([table.column(variable) for variable in variables])

    def columns(self, out: Int64Array, count: int) -> Columns:
        """Return the query's columns of so many rows that lie at the beginning of some room."""
        if self.steps is None or count == 0:
            return self._nothing()
        return self._projected(self.steps.rows(out, count))

    def _projected(self, rows: Int64Array) -> Columns:
        return tuple([rows[at] for at in self.columns_of])

    def _nothing(self) -> Columns:
        return (_NO_IDS,) * len(self.variables)

    def _renew(self) -> None:
        """Find the plan for the sizes of now, and write it down if the kernel can run it alone."""
        dataset, numbers = self.windows.dataset(self.clause, self.resolve)
        count = self._start[1]
        self._version, self.is_void, self.steps = -1, False, None  # so that an error leaves no plan
        route = self.memo.route(self._planned, self.seeds, max(1, count), dataset)
        self.estimated_rows = sum(step.estimated_rows for step in route.plan.steps)
        if len(route.segments) == 1 and not (route.plan.filters or route.plan.constants):
            self._compile(route.segments[0].lowered, dataset, numbers)
        if not self.memo.is_stale:  # a plan for other sizes does until the memo is renewed
            self._version = self.windows.table.version

    def _compile(self, plan: LoweredPlan, dataset: Dataset, numbers: Mapping[int, int]) -> None:
        """Write a plan down, if the kernel can run it alone."""
        columns, count = self._start
        self.is_void = plan.is_void
        if not CompiledSteps.fits(plan):
            return
        assert plan.variables[: len(self.seeds)] == self.seeds, (plan.variables, self.seeds)
        self.columns_of = [plan.variables.index(variable) for variable in self.variables]
        steps = CompiledSteps(plan, dataset, numbers, self.windows.table, self.workspace, self._conditions)
        if count:
            steps.start_from(columns, count)
        self.steps = steps


def _patterns(query: Query) -> FilteredBgp:
    """Return the triple patterns and filters that are all of a query but for its projection; none if there is more."""
    pattern = query.pattern.pattern if isinstance(query.pattern, Project) else query.pattern
    return FilteredBgp.of(pattern) or FilteredBgp(Bgp(()))


_NO_IDS = np.empty(0, np.int64)
_ELSEWHERE = (layout.NEED_SPANS, layout.NO_ROOM, layout.NO_VERDICT, layout.CANCELLED)


def _block(
    plan: LoweredPlan, dataset: Dataset, table: WindowTable, numbers: Mapping[int, int], conditions: Int64Array
) -> Int64Array:
    """Write a plan down for run_call, with windows in the place of their batches."""
    steps, sources = plan.steps.copy(), list[tuple[int, int, int, int]]()
    for row, graph in zip(steps, plan.graphs, strict=True):
        row[layout.PARTS_FROM] = len(sources)
        for part in dataset.source(graph).parts:
            number, access = numbers[id(part.batches)], -1
            if _goes_by_predicate(row) and part.graph not in (layout.ALL_NAMED, NO_MATCH):
                access = table.access(number, int(row[layout.PREDICATE]), part.graph, int(row[layout.DIRECTION]))
            sources.append((number, part.graph, part.name, access))
        row[layout.PARTS_TO] = len(sources)
    head = np.array([len(steps), len(sources), max(1, len(plan.variables)), dataset.default_graph, len(conditions)])
    parts = head, steps.ravel(), np.array(sources, np.int64).ravel(), conditions.ravel()
    return np.concatenate(parts, dtype=np.int64)


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
        self._version = -1
        are_current = [query.is_current() for query in self.queries]
        for row, query in zip(self._calls, self.queries, strict=True):
            row[:] = 0 if query.steps is None else query.steps.call
        self._calls[:, layout.CALL_SPACE] = self._workspace.space.ctypes.data
        self._widths[:] = [1 if query.steps is None else query.steps.width for query in self.queries]
        if all(are_current):
            self._version = self.queries[0].windows.table.version
