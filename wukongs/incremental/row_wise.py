"""RowWise: triple patterns, and the filters and BINDs right above them that look at their own row alone.

These are evaluated once for each match, when it is found, and what they compute is kept with the match: the terms of a
match that has ended may not be readable any more. A computed term keeps its id only if the id carries its value, so no
match is kept with others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wukongs.csparql.algebra import Expression, Extend, Filter, Node
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import exists_patterns, possible_variables
from wukongs.csparql.terms import Variable
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.expressions.expressions import evaluate, holds
from wukongs.query.operators.operators import with_column
from wukongs.query.rows import places_of
from wukongs.store.dtypes import UNBOUND, Int64Array
from wukongs.store.term_ids import is_inlined

Link = tuple[Variable | None, Expression]
"""A variable that is bound to an expression's value; None: a filter."""


class TermsNotKept(Exception):
    """An expression has computed terms whose ids are of one execution. Only this package sees this error."""


@dataclass(frozen=True, slots=True)
class RowWise:
    """wanted: the patterns, with filters for the estimate of their plan; links: what is evaluated for each row, from
    the inside out."""

    wanted: FilteredBgp
    links: tuple[Link, ...] = ()

    @staticmethod
    def of(node: Node, arguments: Sequence[Link] = ()) -> RowWise | None:
        """Return a node as such, with more links above it; None for any other node."""
        links, above, wanted = list[Link](), node, FilteredBgp.of(node)
        while isinstance(above, Filter | Extend):
            links.append((None, above.condition) if isinstance(above, Filter) else (above.variable, above.expression))
            above = above.pattern
            wanted = wanted or FilteredBgp.of(above)
        found = (*reversed(links), *arguments)
        if (
            wanted is None
            or not possible_variables(wanted.bgp)
            or any(exists_patterns(expression) for _, expression in found)
        ):
            return None
        return RowWise(wanted, found)

    @property
    def derived(self) -> tuple[Variable, ...]:
        """The variables that are bound above the patterns."""
        return tuple(variable for variable, _ in self.links if variable is not None)

    def applied(self, variables: tuple[Variable, ...], matches: Int64Array, terms: TermSpace) -> Int64Array:
        """Return the rows of matches, int64[n, len(variables)], with a column for each derived variable.

        Raises TermsNotKept."""
        table = BindingTable(variables, tuple(np.ascontiguousarray(matches.T)), len(matches))
        for variable, expression in self.links:
            if variable is None:
                table = table.take(places_of(holds(expression, table, terms)))
                continue
            column = evaluate(expression, table, terms)
            if not isinstance(expression, Variable) and not (is_inlined(column) | (column == UNBOUND)).all():
                raise TermsNotKept
            table = with_column(table, variable, column)
        return np.stack(table.columns, axis=1)
