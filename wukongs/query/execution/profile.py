"""Profile: the figures of one execution, node by node and step by step: EXPLAIN's actual rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wukongs.csparql.algebra import (
    Bgp,
    Distinct,
    Extend,
    Filter,
    GraphNames,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    PathPattern,
    PerGraph,
    Project,
    Service,
    Slice,
    Timestamp,
    TripleParts,
    Union,
    Values,
)
from wukongs.csparql.explain import Explored, Measured, Moved
from wukongs.csparql.plan import Plan
from wukongs.query.binding_table import BindingTable


@dataclass(slots=True)
class StepFigures:
    """The figures of one run of a plan, by step: its rows and, over a divided graph, its traffic between nodes."""

    rows: list[int] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)


@dataclass(slots=True)
class Profile:
    """`explain.Figures` of one execution. The figures of a part that ran several times are added up. Nodes are told
    apart by identity, and have to live as long as the profile. Triple patterns are told apart by value, since joins may
    take them apart."""

    nodes: dict[int, Measured] = field(default_factory=dict)
    plans: dict[Bgp, list[Explored]] = field(default_factory=dict)

    def ran(self, node: Node, rows: int, seconds: float, rows_in: int | None = None) -> None:
        """Take down that a node, with all below it, has made so many rows. rows_in: see Measured."""
        before = self.nodes.get(id(node))
        if before is not None:
            rows, seconds = before.rows + rows, before.seconds + seconds
            rows_in = None if rows_in is None else rows_in + (before.rows_in or 0)
        self.nodes[id(node)] = Measured(rows, seconds, rows_in)

    def explored(self, bgp: Bgp, plan: Plan, seeds: BindingTable, figures: StepFigures, seconds: float) -> None:
        """Note a run of a plan: the rows of each of its steps, before the filters there."""
        known = self.plans.setdefault(bgp, [])
        for at, other in enumerate(known):
            if other.plan is plan:
                rows = tuple(a + b for a, b in zip(other.step_rows, figures.rows, strict=True))
                moved = tuple(a + b for a, b in zip(other.moved, figures.moved, strict=True))
                rows_in, seconds = other.rows_in + seeds.length, other.seconds + seconds
                known[at] = Explored(plan, other.bound, rows_in, rows, seconds, moved)
                return
        bound, moved = frozenset(seeds.variables), tuple(figures.moved)
        known.append(Explored(plan, bound, seeds.length, tuple(figures.rows), seconds, moved))

    def measured(self, node: Node) -> Measured | None:
        return self.nodes.get(id(node))

    def explorations(self, bgp: Bgp) -> Sequence[Explored]:
        return self.plans.get(bgp, ())


OPERATOR_NAMES = {
    Bgp: "a basic graph pattern",
    PathPattern: "a property path",
    TripleParts: "a triple term",
    Values: "VALUES",
    GraphNames: "GRAPH",
    Service: "SERVICE",
    Join: "a join",
    LeftJoin: "OPTIONAL",
    Minus: "MINUS",
    Union: "UNION",
    Filter: "FILTER",
    Extend: "BIND",
    Timestamp: "timestamp()",
    Group: "GROUP BY",
    Project: "SELECT",
    Distinct: "DISTINCT",
    OrderBy: "ORDER BY",
    Slice: "LIMIT",
    PerGraph: "GRAPH",
}
