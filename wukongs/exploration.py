"""Exploration: the solutions of a pattern that join with given rows, found from these rows.

Join(T, P) is the same as P explored from each row of T, and costs what the rows lead to and not what the graph holds.
Triple patterns run in the kernel, paths are searched; filters and unions come after what they stand over:
Join(T, Union(A, B)) = Union(Join(T, A), Join(T, B)), and Join(T, Filter(c, A)) = Filter(c, Join(T, A)) where A binds
all that c mentions (csparql.exploration_order.is_explorable).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from csparql.algebra import Bgp, Filter, Join, Node, PathPattern, Union
from csparql.rules.walk import join_operands
from csparql.scope import possible_variables
from wukongs import operators
from wukongs.binding_table import BindingTable, TermSpace
from wukongs.dataset import Dataset
from wukongs.paths import PathExplorer
from wukongs.plan_memo import PlanMemo
from wukongs.plan_runner import Limits, run


@dataclass(frozen=True, slots=True)
class Exploration:
    """Of one execution."""

    dataset: Dataset
    terms: TermSpace
    limits: Limits
    memo: PlanMemo

    def explore(self, node: Node, table: BindingTable, rows_wanted: int | None = None) -> BindingTable:
        """Join a table with an explorable node. rows_wanted: more rows than these are not needed.

        Raises QueryTimeout, BudgetExceeded."""
        self.limits.check()
        match node:
            case Bgp():
                return self._from_classes(node, table, lambda seeds: self._match(node, seeds, rows_wanted))
            case PathPattern():
                path = PathExplorer(node, self.dataset, self.terms, self.limits)
                return self._from_classes(node, table, lambda seeds: path.explore(seeds, rows_wanted))
            case Filter(condition=condition, pattern=pattern):
                return operators.filter_rows(condition, self.explore(pattern, table), self.terms)
            case Union(left=left, right=right):
                found = self.explore(left, table, rows_wanted), self.explore(right, table, rows_wanted)
                return operators.union(*found, self.limits.rows_max)
            case Join():
                return self.explore_all(tuple(join_operands(node)), table)
        raise AssertionError(f"{type(node).__name__} cannot be explored")

    def explore_all(self, operands: tuple[Node, ...], table: BindingTable) -> BindingTable:
        """Join a table with explorable nodes, in the order that is cheapest."""
        for part in self.memo.order(operands, frozenset(table.variables), table.length, self.dataset):
            table = self.explore(part, table)
        return table

    def _match(self, bgp: Bgp, seeds: BindingTable, rows_wanted: int | None) -> BindingTable:
        if not bgp.patterns or seeds.length == 0:
            missing = possible_variables(bgp) - set(seeds.variables)
            return BindingTable.empty((*seeds.variables, *missing)) if missing else seeds
        plan = self.memo.plan(bgp, seeds.variables, seeds.length, self.dataset)
        return run(plan, seeds, self.dataset, self.limits, rows_wanted)

    def _from_classes(
        self, node: Node, table: BindingTable, explore: Callable[[BindingTable], BindingTable]
    ) -> BindingTable:
        """Explore from the rows of each class apart: those that leave the same of the node's variables unbound."""
        gathered: BindingTable | None = None
        variables = possible_variables(node)
        # What a row leaves unbound the pattern is to bind.
        for seeds in operators.by_bound(table, [variable for variable in table.variables if variable in variables]):
            found = explore(seeds)
            gathered = found if gathered is None else operators.union(gathered, found, self.limits.rows_max)
        assert gathered is not None
        return gathered
