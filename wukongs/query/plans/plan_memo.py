"""PlanMemo: the plans of one query, kept from execution to execution while the sizes that they rest on still hold.

The check at an execution reads counters alone. A registered query still runs a plan whose sizes no longer hold, and
makes a new one when the firings of the moment have been reported (`renew`). The exception is a size that has grown so
much (FAR_FACTOR) that running the old plan may cost more than making a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from wukongs.csparql.algebra import Expression, GraphRef, Node
from wukongs.csparql.exploration_order import exploration_order, exploration_parts, graphs_of
from wukongs.csparql.plan import FilteredBgp, Plan, PlanStep
from wukongs.csparql.planner import plan_filtered
from wukongs.csparql.terms import Term, Variable
from wukongs.query.plans.cardinalities import DatasetCardinalities
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.lowered_plan import LoweredPlan
from wukongs.query.plans.lowering import lower
from wukongs.query.plans.plan_versions import Made, Sizes, Versions

log = logging.getLogger("wukongs")
FAR_FACTOR = 8
"""A pattern whose sizes have grown by this factor is planned anew at once."""
PLANS_MAX = 1000
"""More are only met where patterns are made while a query runs; then all are forgotten."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps without a filter between them, run by the kernel in one go; filters: applied to the rows that come out."""

    lowered: LoweredPlan
    filters: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """A plan that is ready to be run."""

    plan: Plan
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class _Planned:
    """A route, and the ids that its plan's constants had."""

    constants: tuple[Term, ...]
    ids: tuple[int, ...]
    route: Route


@dataclass(frozen=True, slots=True)
class _Known:
    """An explored pattern. It is held so that no other object gets the identities of its parts, which are the key."""

    wanted: FilteredBgp
    graphs: tuple[GraphRef, ...]
    versions: Versions[_Planned]


@dataclass(frozen=True, slots=True)
class _Operands:
    """The parts of some operands of joins (which are held for their identity), and the orders found for them."""

    operands: tuple[Node, ...]
    parts: tuple[Node, ...]
    graphs: tuple[GraphRef, ...]
    versions: Versions[tuple[Node, ...]]


class PlanMemo:
    """Routes, by the pattern to explore and the variables that are bound before it.

    is_patient: `renew` will be called after an execution, and until then a plan for other sizes will do.
    Threads may share one: at worst two of them make the same plan."""

    def __init__(self, is_patient: bool = False) -> None:
        self._known: dict[tuple[int, tuple[int, ...], tuple[Variable, ...]], _Known] = {}
        self._orders: dict[tuple[tuple[int, ...], frozenset[Variable]], _Operands] = {}
        self._kept: dict[int, tuple[Node, Any]] = {}
        self._is_patient = is_patient
        self._renewals: dict[int, Callable[[], object]] = {}
        self.planned_count = 0

    @property
    def is_stale(self) -> bool:
        """Whether an execution since `renew` has run a plan for other sizes."""
        return bool(self._renewals)

    def renew(self) -> None:
        """Make the plans anew that executions have found to be for other sizes."""
        while self._renewals:
            try:
                _, make = self._renewals.popitem()
            except KeyError:  # another thread has taken it
                return
            try:
                make()
            except Exception:  # a mistake of ours: the plan that there is gives the same answers
                log.exception("a plan could not be made anew")

    def route(self, wanted: FilteredBgp, bound: tuple[Variable, ...], bound_rows: int, dataset: Dataset) -> Route:
        """Return how to explore over a dataset, planned anew only when sizes have changed much, lowered anew only when
        an id has. bound: the variables of the bound_rows rows to start from, in the order of their columns."""
        key = id(wanted.bgp), tuple(map(id, wanted.filters)), bound
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= PLANS_MAX:
                self._known.clear()
            graphs = tuple(dict.fromkeys(pattern.graph for pattern in wanted.bgp.patterns))
            known = self._known[key] = _Known(wanted, graphs, Versions())

        sizes = _sizes(known.graphs, bound_rows if bound else 1, dataset)
        planned = known.versions.fitting(sizes)
        if planned is None:

            def make() -> _Planned:
                plan = plan_filtered(wanted, frozenset(bound), DatasetCardinalities(dataset), float(max(1, bound_rows)))
                self.planned_count += 1
                return _lowered(plan, bound, dataset)

            planned = self._other(known.versions, sizes, make)
        if planned.ids != tuple(map(dataset.resolve, planned.constants)):
            changed = _lowered(planned.route.plan, bound, dataset)
            known.versions.replace(planned, changed)
            planned = changed
        return planned.route

    def kept(self, node: Node, make: Callable[[], Made]) -> Made:
        """Return what was made for a node in an execution before; make it if there is nothing."""
        known = self._kept.get(id(node))
        if known is None:
            if len(self._kept) >= PLANS_MAX:
                self._kept.clear()
            known = self._kept[id(node)] = node, make()
        return known[1]

    def order(
        self, operands: tuple[Node, ...], bound: frozenset[Variable], bound_rows: int, dataset: Dataset
    ) -> tuple[Node, ...]:
        """Return the parts of explorable operands of joins, in the order in which they are to be explored."""
        key = tuple(map(id, operands)), bound
        known = self._orders.get(key)
        if known is None:
            parts = exploration_parts(operands, bound)
            graphs = tuple(frozenset[GraphRef]().union(*map(graphs_of, parts)))
            known = self._orders[key] = _Operands(operands, parts, graphs, Versions())
        if len(known.parts) < 2:
            return known.parts

        sizes = _sizes(known.graphs, bound_rows if bound else 1, dataset)
        found = known.versions.fitting(sizes)
        if found is not None:
            return found

        def make() -> tuple[Node, ...]:
            return exploration_order(known.parts, bound, float(max(1, bound_rows)), DatasetCardinalities(dataset))

        return self._other(known.versions, sizes, make)

    def _other(self, versions: Versions[Made], sizes: Sizes, make: Callable[[], Made]) -> Made:
        """Return the thing to use for sizes that no version fits: a new one, or the nearest version if a new one is to
        wait."""
        nearest = versions.nearest(sizes)
        if nearest is not None:
            if not versions.is_more_worth:
                return nearest.made
            if self._is_patient and nearest.growth(sizes) < FAR_FACTOR:
                self._renewals[id(versions)] = lambda: versions.add(sizes, make())
                return nearest.made
        made = make()
        versions.add(sizes, made)
        return made


def _lowered(plan: Plan, bound: tuple[Variable, ...], dataset: Dataset) -> _Planned:
    constants = tuple(_constants(plan.steps))
    return _Planned(
        constants, tuple(map(dataset.resolve, constants)), Route(plan, tuple(_segments(plan, bound, dataset)))
    )


def _segments(plan: Plan, bound: tuple[Variable, ...], dataset: Dataset) -> Iterable[Segment]:
    """Cut a plan at its filters, and lower each piece from the columns of the one before."""
    columns = (*bound, *(variable for variable, _ in plan.constants))
    piece: list[PlanStep] = []
    for at, step in enumerate(plan.steps, 1):
        piece.append(step)
        if step.filters or at == len(plan.steps):
            lowered = lower(piece, columns, dataset)
            yield Segment(lowered, step.filters)
            columns = lowered.variables
            piece = []


def _constants(steps: Iterable[PlanStep]) -> Iterable[Term]:
    for step in steps:
        pattern = step.pattern
        for part in (pattern.subject, pattern.predicate, pattern.object):
            if isinstance(part, Term):
                yield part


def _sizes(graphs: Iterable[GraphRef], rows: int, dataset: Dataset) -> Sizes:
    """Return the rows to start from, and the triples of each graph; at least 1 each."""
    return max(1, rows), *[max(1, dataset.source(graph).size) for graph in graphs]
