"""CompiledPlans: the plans of one registered query, ready to be run over the windows of a table.

The executor asks it for the plan of a pattern and has it run, in the place of PlanMemo and plan_runner. So a firing
makes no dataset, and looks at no sizes unless one of the query's own windows has changed by a factor:

* a plan, or an order of parts, is kept by its pattern, the variables bound before it, and the size of the number of
  rows that bind them (its bits);
* all are looked at again, in the memo, when a window has changed by a factor;
* each piece of a plan between two filters is compiled once. A piece that the kernel cannot run alone, or whose rows
  need more room than a workspace has, is run by plan_runner over a dataset that is made for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from wukongs.csparql.algebra import Bgp, DatasetClause, Distinct, Node, PathPattern, Project, Query, Slice, Timestamp
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import is_stored, possible_variables
from wukongs.csparql.terms import Variable
from wukongs.csparql.walk import parts_of
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.plans import plan_runner
from wukongs.query.plans.compiled import CompiledPatterns, CompiledSteps, Windows, Workspace
from wukongs.query.plans.dataset import Dataset, Resolve, reads_explicit
from wukongs.query.plans.lowered_plan import LoweredPlan
from wukongs.query.plans.plan_memo import PLANS_MAX, PlanMemo, Route
from wukongs.store.batch_set import EMPTY

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class _Kept(Generic[Made]):
    """A thing that was made for a part of the algebra, which is held so that no other object gets its identity."""

    part: object
    made: Made


def _without_modifiers(query: Query) -> tuple[tuple[Distinct | Slice, ...], Query]:
    """Return DISTINCT, LIMIT and OFFSET that are right above a projection, from the inside out, and the rest."""
    modifiers, node = list[Distinct | Slice](), query.pattern
    while isinstance(node, Distinct | Slice):
        modifiers.insert(0, node)
        node = node.pattern
    if not isinstance(node, Project) or tuple(variable.name for variable in node.variables) != query.variables:
        return (), query
    return tuple(modifiers), replace(query, pattern=node)


class CompiledPlans:
    """Used by the thread that fires, while the table of windows is unchanged."""

    def __init__(
        self,
        query: Query,
        windows: Windows,
        resolve: Resolve,
        memo: PlanMemo,
        workspace: Workspace,
        *,
        has_arguments: bool = False,
    ) -> None:
        """resolve: the ids of the query's constants, which never change; memo: plans for all sizes that come;
        has_arguments: the query is asked for rows of arguments."""
        self._clause: DatasetClause = query.dataset
        self.windows = windows
        self._resolve = resolve
        self._memo = memo
        self._workspace = workspace
        self.names = Dataset(query.dataset, EMPTY, dict.fromkeys(windows.numbers, EMPTY), resolve)
        """The graphs of the clause by name, without any triple."""
        self.modifiers, bare = _without_modifiers(query)
        self.is_distinct = bool(self.modifiers) and isinstance(self.modifiers[0], Distinct)
        """Whether the first of these is DISTINCT."""
        self.whole = None if has_arguments else CompiledPatterns.of(bare, windows, resolve, memo, workspace)
        """The query but for its modifiers, if kernels answer it alone."""
        self._version = -1
        self._changes: list[int] = []
        self._routes: dict[object, _Kept[Route]] = {}
        self._orders: dict[object, _Kept[tuple[Node, ...]]] = {}
        self._steps: dict[int, _Kept[CompiledSteps | None]] = {}

    @staticmethod
    def is_for(query: Query) -> bool:
        """Tell whether a query reads triples of windows by nothing but triple patterns, and those of graphs as they
        are. DESCRIBE, paths and TIMESTAMP read them in other ways."""
        reads_otherwise = any(
            isinstance(part, Timestamp) or (isinstance(part, PathPattern) and not is_stored(part.graph, query.dataset))
            for part in parts_of(query.pattern)
        )
        return query.form != "describe" and not reads_otherwise and not reads_explicit(query)

    @property
    def has_batches(self) -> bool:
        """Whether the windows or the stored graph have triples."""
        return any(len(self.windows.table.batches(number).batches) for number in self.windows.all_numbers)

    @property
    def sizes(self) -> list[int] | None:
        """Numbers that change when the size of a window has changed by a factor; None while plans for others do."""
        return None if self._memo.is_stale else self.windows.changes()

    def route(self, wanted: FilteredBgp, bound: tuple[Variable, ...], rows: int) -> Route:
        """Do as PlanMemo.route, over what the windows have now."""
        self._look()
        key = id(wanted.bgp), tuple(map(id, wanted.filters)), bound, rows.bit_length() if bound else 0
        kept = self._routes.get(key)
        if kept is not None:
            return kept.made
        return self._keep(self._routes, key, wanted, lambda dataset: self._memo.route(wanted, bound, rows, dataset))

    def matches_of(self, bgp: Bgp) -> CompiledPatterns:
        """Return the query for all matches of some patterns, which have a variable."""
        variables = tuple(sorted(possible_variables(bgp), key=lambda variable: variable.name))
        given = self.windows, self._resolve, self._memo, self._workspace
        return CompiledPatterns(self._clause, variables, FilteredBgp(bgp), *given)

    def order(self, operands: tuple[Node, ...], bound: frozenset[Variable], rows: int) -> tuple[Node, ...]:
        """Do as PlanMemo.order, over what the windows have now."""
        self._look()
        key = tuple(map(id, operands)), bound, rows.bit_length() if bound else 0
        kept = self._orders.get(key)
        if kept is not None:
            return kept.made
        return self._keep(self._orders, key, operands, lambda dataset: self._memo.order(operands, bound, rows, dataset))

    def _look(self) -> None:
        """Forget what was made for other sizes."""
        table = self.windows.table
        if self._version == table.version:
            return
        changes = self.windows.changes()
        if changes != self._changes:
            self._routes.clear()
            self._orders.clear()
        self._version, self._changes = table.version, changes

    def _keep(
        self, known: dict[object, _Kept[Made]], key: object, part: object, make: Callable[[Dataset], Made]
    ) -> Made:
        made = make(self.dataset())
        if not self._memo.is_stale:  # a plan for other sizes does until the memo is renewed
            if len(known) >= PLANS_MAX:
                known.clear()
            known[key] = _Kept(part, made)
        return made

    def dataset(self) -> Dataset:
        """Return what the windows and the stored graph have now."""
        return self.windows.dataset(self._clause, self._resolve)[0]

    def run(
        self, plan: LoweredPlan, seeds: BindingTable, limits: Limits, rows_wanted: int | None = None
    ) -> BindingTable:
        """Do as plan_runner.run, over what the windows have now."""
        if plan.is_void:
            return BindingTable.empty(plan.variables)
        steps = self._compiled(plan)
        if steps is not None:
            mark = limits.mark()
            # Also from one row that binds nothing: it may have started from several of these before.
            limits.hold(8 * seeds.length * steps.width)
            steps.start_from(seeds.columns, seeds.length)
            rows = steps.run(lambda: limits, rows_wanted)
            if rows is not None:
                count = rows.shape[1]
                limits.back_to(mark, 0)
                limits.hold(16 * count * steps.width)
                return BindingTable(plan.variables, tuple(rows[: len(plan.variables)]), count)
            limits.back_to(mark, 0)
        return plan_runner.run(plan, seeds, self.dataset(), limits, rows_wanted)

    def _compiled(self, plan: LoweredPlan) -> CompiledSteps | None:
        """Return the steps of a plan as the kernel runs them, None if it cannot."""
        kept = self._steps.get(id(plan))
        if kept is None:
            if len(self._steps) >= PLANS_MAX:
                self._steps.clear()
            steps = None
            if CompiledSteps.fits(plan):
                dataset, numbers = self.windows.dataset(self._clause, self._resolve)
                steps = CompiledSteps(plan, dataset, numbers, self.windows.table, self._workspace)
            kept = self._steps[id(plan)] = _Kept(plan, steps)
        return kept.made
