"""Held rows: the solutions of triple patterns with filters, and BIND, above them, kept from firing to firing.

They are those of a Source (plans/compiled_plans.py). A filter or a BIND that looks at its own row alone is evaluated
for new matches only, and its result is held with the match: the terms of a match that goes may be gone already. A
computed term has an id that stays only if it is inlined. So with others nothing is held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from wukongs.csparql.algebra import Bgp, Expression, Extend, Filter, Node
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import exists_patterns
from wukongs.csparql.terms import Variable
from wukongs.errors import BudgetExceeded
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.expressions.expressions import evaluate
from wukongs.query.limits import Limits
from wukongs.query.operators.operators import with_column
from wukongs.query.plans.compiled_plans import CompiledPlans, Source
from wukongs.query.plans.deltas import Deltas, Moves
from wukongs.store.dtypes import UNBOUND, Int64Array
from wukongs.store.term_ids import is_inlined

Link = tuple[Variable | None, Expression]
"""A variable that is bound to an expression's value; None: a filter."""


@dataclass(frozen=True, slots=True)
class RowWise:
    """Triple patterns, and what is evaluated above them for each row, from the inside out."""

    wanted: FilteredBgp
    links: tuple[Link, ...]

    @staticmethod
    def of_filters(wanted: FilteredBgp) -> RowWise | None:
        """None if a filter looks at more than its row."""
        return _checked(wanted, tuple((None, condition) for condition in wanted.filters))

    @staticmethod
    def of(node: Node, arguments: Sequence[Link]) -> RowWise | None:
        """Return a node as such, with more links above it; None for any other node."""
        links: list[Link] = []
        while isinstance(node, Filter | Extend):
            if (filtered := FilteredBgp.of(node)) is not None:
                below = tuple((None, condition) for condition in filtered.filters)
                return _checked(filtered, (*below, *reversed(links), *arguments))
            links.append((None, node.condition) if isinstance(node, Filter) else (node.variable, node.expression))
            node = node.pattern
        return _checked(FilteredBgp(node), (*reversed(links), *arguments)) if isinstance(node, Bgp) else None

    @property
    def derived(self) -> tuple[Variable, ...]:
        """The variables that are bound above the patterns."""
        return tuple(variable for variable, _ in self.links if variable is not None)

    def move(
        self,
        part: object,
        plans: CompiledPlans,
        keep: Callable[[Expression, BindingTable], BindingTable],
        terms: TermSpace,
        limits: Limits,
    ) -> tuple[Source, Deltas, Moves] | None:
        """Have the rows of a part of the algebra held; return what came and went. None: they are to be evaluated.

        keep: returns the rows in which a condition holds."""
        source = plans.source(part, self.wanted, len(self.derived))
        if source is None or source.deltas is None:
            return None
        variables = source.deltas.variables

        def derive(rows: Int64Array) -> Int64Array | None:
            table = BindingTable(variables, tuple(np.ascontiguousarray(rows.T)), len(rows))
            for variable, expression in self.links:
                if variable is None:
                    table = keep(expression, table)
                    continue
                column = evaluate(expression, table, terms)
                if not isinstance(expression, Variable) and not (is_inlined(column) | (column == UNBOUND)).all():
                    source.refuse()
                    return None
                table = with_column(table, variable, column)
            return np.stack(table.columns, axis=1)

        mark = limits.mark()
        try:
            moves = source.deltas.move(lambda: limits, derive if self.links else None)
        except BudgetExceeded:  # evaluating it anew may need less
            source.refuse()
            limits.back_to(mark, 0)
            return None
        return None if moves is None else (source, source.deltas, moves)


def _checked(wanted: FilteredBgp, links: tuple[Link, ...]) -> RowWise | None:
    return None if any(exists_patterns(expression) for _, expression in links) else RowWise(wanted, links)
