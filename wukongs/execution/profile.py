"""Profile: what one execution did, node by node and step by step: EXPLAIN's actual rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from csparql.algebra import Bgp, Node
from csparql.explain import Explored, Measured
from csparql.plan import Plan
from wukongs.binding_table import BindingTable


@dataclass(slots=True)
class Profile:
    """csparql.explain.Figures of one execution. What ran several times is added up. Nodes are told apart by identity,
    and have to live as long as the profile; triple patterns by what they are, since joins may take them apart."""

    nodes: dict[int, Measured] = field(default_factory=dict)
    plans: dict[Bgp, list[Explored]] = field(default_factory=dict)

    def ran(self, node: Node, rows: int, seconds: float, rows_in: int | None = None) -> None:
        """Take down that a node, with all below it, has made so many rows. rows_in: see Measured."""
        before = self.nodes.get(id(node))
        if before is not None:
            rows, seconds = before.rows + rows, before.seconds + seconds
            rows_in = None if rows_in is None else rows_in + (before.rows_in or 0)
        self.nodes[id(node)] = Measured(rows, seconds, rows_in)

    def explored(self, bgp: Bgp, plan: Plan, seeds: BindingTable, step_rows: Sequence[int], seconds: float) -> None:
        """Take down a run of a plan: the rows after each of its steps, before the filters there."""
        known = self.plans.setdefault(bgp, [])
        for at, other in enumerate(known):
            if other.plan is plan:
                summed = tuple(a + b for a, b in zip(other.step_rows, step_rows, strict=True))
                known[at] = Explored(plan, other.bound, other.rows_in + seeds.length, summed, other.seconds + seconds)
                return
        known.append(Explored(plan, frozenset(seeds.variables), seeds.length, tuple(step_rows), seconds))

    def measured(self, node: Node) -> Measured | None:
        return self.nodes.get(id(node))

    def explorations(self, bgp: Bgp) -> Sequence[Explored]:
        return self.plans.get(bgp, ())
