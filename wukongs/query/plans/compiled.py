"""Compiled plans: a registered query as a block of numbers that one kernel call runs over the windows of a table.

Nothing is made anew at a firing. The block names windows, and the kernel finds their batches. The plan is looked at
again when some window's size has changed by a factor (WindowTable.version), and in no other firing.

CompiledSteps are explored by programs (query/programs). CompiledPatterns find all matches of patterns whose rows are
maintained, anew or of what has changed. All run the same plan by one kernel, so rows and their order are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wukongs.csparql.algebra import DatasetClause, Project, Query, StreamWindow
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import possible_variables
from wukongs.csparql.terms import Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.plans import plan_layout as layout
from wukongs.query.plans import plan_runner
from wukongs.query.plans.compiled_kernels import run_call
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
Columns = tuple[Int64Array, ...]


class Workspace:
    """The memory in which a thread runs compiled plans, kept from call to call."""

    def __init__(self) -> None:
        self.space: Int64Array = np.empty(layout.SPACE_CELLS, np.int64)
        self.out: Int64Array = np.empty(OUT_CELLS, np.int64)


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

    def run(self, limits: Callable[[], Limits]) -> Int64Array | None:
        """Return the rows, int64[width, n]; None if they have to be found in another way.

        limits: those of this execution, asked for if it is large. Raises QueryTimeout, BudgetExceeded."""
        self.call[layout.CALL_ROOM] = self._room
        count = run_call(self.call)
        if count >= 0:
            return self._rows_out(count)
        return None if -count in _ELSEWHERE else self._go_on(limits())

    def _rows_out(self, count: int) -> Int64Array:
        """Return so many rows that have come out: int64[width, count]."""
        return self._workspace.out[: count * self.width].reshape(count, self.width).T.copy()

    def _go_on(self, limits: Limits) -> Int64Array | None:
        """Run a call on that has stopped, until it is done."""
        call, gathered, total, stopped = self.call, list[Int64Array](), 0, True
        call[layout.CALL_GOES_ON] = 1
        try:
            while True:
                count = int(call[layout.CALL_ROWS])
                gathered.append(self._rows_out(count))
                total += count
                limits.check()
                limits.check_rows(total, ADVICE, "a basic graph pattern")
                limits.hold(16 * count * self.width)
                if not stopped:
                    return np.concatenate(gathered, axis=1)
                status = run_call(call)
                stopped = status < 0
                if -status in _ELSEWHERE:
                    return None
        finally:
            call[layout.CALL_GOES_ON] = 0


@dataclass(slots=True, eq=False, repr=False)
class CompiledPatterns:
    """Triple patterns with filters that ids decide. resolve: the ids of constants, which never change; memo: plans for
    other sizes; filters_last: plan the patterns alone, so that no filter cuts the plan. The filters are conditions of
    the rows that come out in any case.

    Its stored graph is here as a whole: a node that holds a share of it asks others, and cannot use this. It may be run
    by one thread at a time, with the table of windows unchanged meanwhile."""

    clause: DatasetClause
    variables: tuple[Variable, ...]
    wanted: FilteredBgp
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
    _version: int = field(init=False, default=-1)
    """That of the table for which the plan is, -1: it has to be looked at again."""
    _changes: list[int] = field(init=False, default_factory=list)
    """The changes of its own windows for which the plan is."""

    @staticmethod
    def of(
        query: Query, windows: Windows, resolve: Resolve, memo: PlanMemo, workspace: Workspace
    ) -> CompiledPatterns | None:
        """Compile a query that is triple patterns and such filters alone; None if it is more."""
        pattern = query.pattern.pattern if isinstance(query.pattern, Project) else query.pattern
        wanted, variables = FilteredBgp.of(pattern), tuple(map(Variable, query.variables))
        if query.form != "select" or wanted is None or not wanted.bgp.patterns or not variables:
            return None
        bound = possible_variables(wanted.bgp)
        if not bound.issuperset(variables) or conditions_of(wanted.filters, bound) is None:
            return None
        return CompiledPatterns(query.dataset, variables, wanted, windows, resolve, memo, workspace)

    def __post_init__(self) -> None:
        conditions = conditions_of(self.wanted.filters, possible_variables(self.wanted.bgp))
        assert conditions is not None, self.wanted
        self._conditions = conditions
        self._planned = FilteredBgp(self.wanted.bgp) if self.filters_last else self.wanted

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

    def bindings(self, variables: Sequence[Variable], limits: Callable[[], Limits]) -> Columns | None:
        """Return columns of all matches; None if they have to be found in another way.

        variables: some of those that the patterns bind; limits: those of this execution, asked for if it is large.
        Raises QueryTimeout, BudgetExceeded."""
        if self._version != self.windows.table.version:
            self.is_current()
        if self.steps is None:
            return (_NO_IDS,) * len(variables) if self.is_void else None
        plan, found = self.steps.plan, self.steps.run(limits)
        if found is not None:
            return tuple([found[plan.variables.index(variable)] for variable in variables])
        if self._conditions:
            return None
        # Windows in more parts than the kernel takes alone, or more rows than there is room for.
        dataset, _ = self.windows.dataset(self.clause, self.resolve)
        return plan_runner.run(plan, BindingTable.unit(), dataset, limits()).columns_of(variables)

    def _renew(self) -> None:
        """Find the plan for the sizes of now, and write it down if the kernel can run it alone."""
        dataset, numbers = self.windows.dataset(self.clause, self.resolve)
        self._version, self.is_void, self.steps = -1, False, None  # so that an error leaves no plan
        route = self.memo.route(self._planned, (), 1, dataset)
        self.estimated_rows = sum(step.estimated_rows for step in route.plan.steps)
        if len(route.segments) == 1 and not (route.plan.filters or route.plan.constants):
            plan = route.segments[0].lowered
            self.is_void = plan.is_void
            if CompiledSteps.fits(plan):
                table = self.windows.table
                self.steps = CompiledSteps(plan, dataset, numbers, table, self.workspace, self._conditions)
        if not self.memo.is_stale:  # a plan for other sizes does until the memo is renewed
            self._version = self.windows.table.version


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
