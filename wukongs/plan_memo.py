"""PlanMemo: the plans of one query, kept from execution to execution while the sizes they rest on still hold."""

from __future__ import annotations

from dataclasses import dataclass

from csparql.algebra import Bgp, GraphRef, Node
from csparql.exploration_order import exploration_order, exploration_parts, graphs_of
from csparql.plan import PlanStep
from csparql.planner import plan_bgp
from csparql.terms import Term, Variable
from wukongs.dataset import Dataset, DatasetCardinalities
from wukongs.lowering import LoweredPlan, lower

SIZE_BITS_APART = 2
"""A plan is made anew when a source has become larger or smaller by this many powers of two."""


@dataclass(frozen=True, slots=True)
class _Remembered:
    """bgp is held so that its identity, the key, stays its own."""

    bgp: Bgp
    constants: tuple[Term, ...]
    graphs: tuple[GraphRef, ...]
    sizes: tuple[int, ...]
    ids: tuple[int, ...]
    steps: tuple[PlanStep, ...]
    lowered: LoweredPlan


@dataclass(frozen=True, slots=True)
class _Ordered:
    """The parts of some operands of joins (which are held for their identity), and the order found for them."""

    operands: tuple[Node, ...]
    parts: tuple[Node, ...]
    graphs: tuple[GraphRef, ...]
    sizes: tuple[int, ...]
    order: tuple[Node, ...]


class PlanMemo:
    """Plans by basic graph pattern and the variables that are bound before it.

    Threads may share one: what it remembers is immutable, and at worst two of them make the same plan."""

    def __init__(self) -> None:
        self._plans: dict[tuple[int, tuple[Variable, ...]], _Remembered] = {}
        self._orders: dict[tuple[tuple[int, ...], frozenset[Variable]], _Ordered] = {}
        self.planned_count = 0

    def plan(self, bgp: Bgp, bound: tuple[Variable, ...], bound_rows: int, dataset: Dataset) -> LoweredPlan:
        """Return the plan of a Bgp over a dataset, made anew only when sizes have changed much or an id has."""
        known = self._plans.get((id(bgp), bound))
        if known is None:
            constants = tuple(_constants(bgp))
            graphs = tuple(dict.fromkeys(pattern.graph for pattern in bgp.patterns))
        else:
            constants, graphs = known.constants, known.graphs
        sizes = tuple(_size_bits(graph, dataset) for graph in graphs)
        ids = tuple(dataset.resolve(term) for term in constants)
        if known is not None and _are_close(known.sizes, sizes):
            if known.ids == ids:
                return known.lowered
            steps = known.steps
        else:
            steps = plan_bgp(bgp, frozenset(bound), DatasetCardinalities(dataset), float(max(1, bound_rows)))
            self.planned_count += 1
        lowered = lower(steps, bound, dataset)
        self._plans[id(bgp), bound] = _Remembered(bgp, constants, graphs, sizes, ids, steps, lowered)
        return lowered

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


def _constants(bgp: Bgp) -> list[Term]:
    return [
        part
        for pattern in bgp.patterns
        for part in (pattern.subject, pattern.predicate, pattern.object)
        if isinstance(part, Term)
    ]


def _size_bits(graph: GraphRef, dataset: Dataset) -> int:
    return sum(len(part.batches) for part in dataset.source(graph).parts).bit_length()


def _are_close(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(abs(a - b) < SIZE_BITS_APART for a, b in zip(one, other, strict=True))
