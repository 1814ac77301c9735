"""Plans: patterns that are explored together, the steps that do it, and the filters between them."""

from __future__ import annotations

from dataclasses import dataclass

from wukongs.csparql.algebra import Bgp, Expression, Filter, Node, TriplePattern
from wukongs.csparql.cardinality import Direction
from wukongs.csparql.terms import Term, Variable


@dataclass(frozen=True, slots=True)
class PlanStep:
    """Match one pattern, exploring from its subject (out) or its object (in).

    Whether the step scans an index (neither end bound yet), expands (the end it starts from is bound) or checks (both
    are) follows from the constants and from the variables that earlier steps have bound.
    estimated_rows: rows of the binding table after this step; filters: applied to these rows before the next step.
    """

    pattern: TriplePattern
    direction: Direction
    estimated_rows: float
    filters: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """steps, in order; filters: applied to the rows to start from; constants: variables that every row binds to the
    same term, which stands in their place in the patterns of the steps."""

    steps: tuple[PlanStep, ...]
    filters: tuple[Expression, ...] = ()
    constants: tuple[tuple[Variable, Term], ...] = ()


@dataclass(frozen=True, slots=True)
class FilteredBgp:
    """A basic graph pattern and the filters that stand right above it, from the inside out."""

    bgp: Bgp
    filters: tuple[Expression, ...] = ()

    @staticmethod
    def of(node: Node) -> FilteredBgp | None:
        """Return triple patterns with the filters above them, None for any other node."""
        filters = []
        while isinstance(node, Filter):
            filters.append(node.condition)
            node = node.pattern
        return FilteredBgp(node, tuple(reversed(filters))) if isinstance(node, Bgp) else None
