"""Executor: runs the algebra of one query over one dataset; basic graph patterns in the kernel, the rest by columns.

Bottom-up evaluation as the SPARQL specification has it (section 18), with one short cut that keeps the answer: a basic
graph pattern or path that is joined, or optional, is explored from the rows of what it is joined to, so that its cost
follows those rows and not the size of the graph (exploration.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from csparql.algebra import (
    Bgp,
    Distinct,
    Expression,
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
    Slice,
    TermOrVariable,
    Union,
    Values,
)
from csparql.exploration_order import is_explorable
from csparql.functions import PER_ROW, calls_any
from csparql.rules.walk import join_operands
from csparql.terms import Variable
from wukongs import operators
from wukongs.aggregates import group
from wukongs.binding_table import BindingTable, TermSpace
from wukongs.dataset import Dataset
from wukongs.exploration import Exploration
from wukongs.expressions import holds
from wukongs.ordering import canonical, canonical_order, order_by
from wukongs.plan_memo import PlanMemo
from wukongs.plan_runner import Limits

_ROW = Variable(".row")


class Executor:
    """One execution. in_order: wherever the order of rows shows in the answer (what LIMIT cuts without ORDER BY, ties,
    aggregates), rows are taken in canonical order, as firings need."""

    def __init__(
        self, dataset: Dataset, terms: TermSpace, limits: Limits, memo: PlanMemo, in_order: bool = False
    ) -> None:
        self._dataset = dataset
        self._terms = terms
        self._limits = limits
        self._exploration = Exploration(dataset, terms, limits, memo)
        self._in_order = in_order

    def run(self, node: Node, rows_wanted: int | None = None) -> BindingTable:
        """Return the solutions of a node. rows_wanted: more than these many are not needed.

        Raises QueryTimeout, BudgetExceeded.
        """
        self._limits.check()
        rows_max = self._limits.rows_max
        match node:
            case Bgp() | PathPattern():
                return self._exploration.explore(node, BindingTable.unit(), rows_wanted)
            case GraphNames(graph=graph):
                return self._graph_names(graph)
            case Join():
                return self._join(node)
            case LeftJoin(left=left, right=right) if is_explorable(right):
                return self._optional(self.run(left), node)
            case LeftJoin(left=left, right=right, condition=condition):
                return operators.left_join(self.run(left), self.run(right), condition, self._terms, rows_max)
            case Union(left=left, right=right):
                return operators.union(self.run(left), self.run(right), rows_max)
            case Filter(condition=condition, pattern=pattern):
                return operators.filter_rows(condition, self._settled(self.run(pattern), [condition]), self._terms)
            case Extend():
                return self._extend(node, rows_wanted)
            case Group(pattern=pattern, keys=keys, aggregates=aggregates):
                table = self.run(pattern)
                if self._in_order and any(aggregate.name != "COUNT" for _, aggregate in aggregates):
                    table = canonical(table)  # SAMPLE, GROUP_CONCAT, sums of doubles, MAX of 1 and 1.0
                return group(table, keys, aggregates, self._terms)
            case Project(pattern=pattern, variables=variables):
                return operators.project(self.run(pattern, rows_wanted), variables)
            case Distinct(pattern=pattern):
                return operators.distinct(self.run(pattern))
            case OrderBy(pattern=pattern, conditions=conditions):
                table = self.run(pattern)
                return order_by(canonical(table) if self._in_order else table, conditions, self._terms)
            case Slice():
                return self._slice(node)
            case Minus() | Values() | PerGraph():
                raise AssertionError(f"the parser makes no {type(node).__name__} yet")

    def _extend(self, node: Extend, rows_wanted: int | None) -> BindingTable:
        """Bind one variable after the other: to BNODE(string) the rows of the whole chain are the same solutions."""
        chain = [node]
        while isinstance(chain[-1].pattern, Extend):
            chain.append(chain[-1].pattern)
        table = self._settled(self.run(chain[-1].pattern, rows_wanted), [link.expression for link in chain])
        self._terms.moment.next_solutions()
        for link in reversed(chain):
            table = operators.extend(table, link.variable, link.expression, self._terms)
        return table

    def _settled(self, table: BindingTable, expressions: Sequence[Expression]) -> BindingTable:
        """Put rows in canonical order, if the order shows, for expressions that draw a random value for each."""
        draws = self._in_order and any(calls_any(expression, PER_ROW) for expression in expressions)
        return canonical(table) if draws else table

    def _graph_names(self, graph: TermOrVariable) -> BindingTable:
        if isinstance(graph, Variable):
            # A graph that the clause names need not be in the data: the terms of the query know it all the same.
            declared = [f"<{name}>" for name in self._dataset.declared_names()]
            names = self._terms.ids(declared) if declared else self._dataset.named_graphs()
            return BindingTable((graph,), (names,), len(names))
        return BindingTable.unit() if self._dataset.is_named(graph) else BindingTable.empty()

    def _join(self, node: Join) -> BindingTable:
        """Join what cannot be explored, and explore the rest from its rows."""
        operands = join_operands(node)
        table = BindingTable.unit()
        for number, operand in enumerate(operand for operand in operands if not is_explorable(operand)):
            found = self.run(operand)
            table = found if number == 0 else operators.join(table, found, self._limits.rows_max)
        return self._exploration.explore_all(tuple(filter(is_explorable, operands)), table)

    def _optional(self, left: BindingTable, node: LeftJoin) -> BindingTable:
        """OPTIONAL { explorable pattern }: explore from the left rows, numbered, and keep those that find nothing."""
        numbered = BindingTable(
            (*left.variables, _ROW), (*left.columns, np.arange(left.length, dtype=np.int64)), left.length
        )
        found = self._exploration.explore_all((node.right,), numbered)
        if node.condition is not None:
            found = found.take(np.flatnonzero(holds(node.condition, found, self._terms)))
        alone = np.ones(left.length, np.bool_)
        alone[found.column(_ROW)] = False
        rows = operators.union(found, numbered.take(np.flatnonzero(alone)), self._limits.rows_max)
        rows = rows.take(np.argsort(rows.column(_ROW), kind="stable"))
        return operators.project(rows, [variable for variable in rows.variables if variable != _ROW])

    def _slice(self, node: Slice) -> BindingTable:
        is_ordered = _is_ordered(node.pattern)
        if node.limit is None or is_ordered or self._in_order:
            table = self.run(node.pattern)
        else:
            table = self.run(node.pattern, node.offset + node.limit)
        if self._in_order and not is_ordered:
            table = table.take(canonical_order(table))
        return operators.slice_rows(table, node.offset, node.limit)


def _is_ordered(node: Node) -> bool:
    while isinstance(node, Project | Distinct | Extend):
        node = node.pattern
    return isinstance(node, OrderBy)
