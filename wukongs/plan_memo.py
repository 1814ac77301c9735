"""PlanMemo: the plans of one query, kept from execution to execution while the sizes they rest on still hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from csparql.algebra import Expression, GraphRef, Node
from csparql.exploration_order import exploration_order, exploration_parts, graphs_of
from csparql.plan import FilteredBgp, Plan, PlanStep
from csparql.planner import plan_filtered
from csparql.terms import Term, Variable
from wukongs.dataset import Dataset, DatasetCardinalities
from wukongs.lowering import LoweredPlan, lower

SIZE_BITS_APART = 2
"""A plan is made anew when a source has become larger or smaller by this many powers of two."""
PLANS_MAX = 1000
"""More are only met where patterns are made while a query runs; then all are forgotten."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps without a filter between them, run by the kernel in one go; filters: applied to what comes out."""

    lowered: LoweredPlan
    filters: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """A plan that is ready to be run."""

    plan: Plan
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class _Remembered:
    """wanted is held so that the identities of its parts, which are the key, stay their own."""

    wanted: FilteredBgp
    constants: tuple[Term, ...]
    graphs: tuple[GraphRef, ...]
    sizes: tuple[int, ...]
    ids: tuple[int, ...]
    route: Route


@dataclass(frozen=True, slots=True)
class _Ordered:
    """The parts of some operands of joins (which are held for their identity), and the order found for them."""

    operands: tuple[Node, ...]
    parts: tuple[Node, ...]
    graphs: tuple[GraphRef, ...]
    sizes: tuple[int, ...]
    order: tuple[Node, ...]


class PlanMemo:
    """Routes by what is explored and the variables that are bound before it.

    Threads may share one: what it remembers is immutable, and at worst two of them make the same plan."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[int, ...], tuple[Variable, ...]], _Remembered] = {}
        self._orders: dict[tuple[tuple[int, ...], frozenset[Variable]], _Ordered] = {}
        self.planned_count = 0

    def route(self, wanted: FilteredBgp, bound: tuple[Variable, ...], bound_rows: int, dataset: Dataset) -> Route:
        """Return how to explore over a dataset, planned anew only when sizes have changed much, lowered anew only when
        an id has. bound: the variables of the bound_rows rows to start from, in the order of their columns."""
        key = id(wanted.bgp), tuple(map(id, wanted.filters)), bound
        known = self._known.get(key)
        if known is None:
            graphs = tuple(dict.fromkeys(pattern.graph for pattern in wanted.bgp.patterns))
        else:
            graphs = known.graphs
        sizes = tuple(_size_bits(graph, dataset) for graph in graphs)
        if known is not None and _are_close(known.sizes, sizes):
            constants, ids = known.constants, tuple(map(dataset.resolve, known.constants))
            if known.ids == ids:
                return known.route
            plan = known.route.plan
        else:
            plan = plan_filtered(wanted, frozenset(bound), DatasetCardinalities(dataset), float(max(1, bound_rows)))
            constants = tuple(_constants(plan.steps))
            ids = tuple(map(dataset.resolve, constants))
            self.planned_count += 1
        route = Route(plan, tuple(_segments(plan, bound, dataset)))
        if len(self._known) >= PLANS_MAX:
            self._known.clear()
        self._known[key] = _Remembered(wanted, constants, graphs, sizes, ids, route)
        return route

    def order(
        self, operands: tuple[Node, ...], bound: frozenset[Variable], bound_rows: int, dataset: Dataset
    ) -> tuple[Node, ...]:
        """Return what explorable operands of joins are made of, in the order in which it is to be explored."""
        key = tuple(map(id, operands)), bound
        known = self._orders.get(key)
        if known is None:
            parts = exploration_parts(operands, bound)
            graphs = tuple(frozenset[GraphRef]().union(*map(graphs_of, parts)))
        else:
            parts, graphs = known.parts, known.graphs
        sizes = tuple(_size_bits(graph, dataset) for graph in graphs)
        if known is not None and _are_close(known.sizes, sizes):
            return known.order
        order = exploration_order(parts, bound, float(max(1, bound_rows)), DatasetCardinalities(dataset))
        self._orders[key] = _Ordered(operands, parts, graphs, sizes, order)
        return order


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


def _size_bits(graph: GraphRef, dataset: Dataset) -> int:
    return sum(len(part.batches) for part in dataset.source(graph).parts).bit_length()


def _are_close(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(abs(a - b) < SIZE_BITS_APART for a, b in zip(one, other, strict=True))
