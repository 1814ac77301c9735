"""Reader: evaluates parts of rules over reads of the stored graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from wukongs.csparql.algebra import DatasetClause
from wukongs.csparql.terms import iri
from wukongs.incremental.versions import Evaluation
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.terms.query_terms import ConstantIds, QueryTerms, TermKeeper
from wukongs.rules.changing_graph import Read, divided_of
from wukongs.rules.followed_bodies import Part
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, Int64Array

SEEDS_MAX = 1 << 18
"""So many rows are explored together, so that the tables between stay small."""


class Reader:
    """Evaluates bodies within the limits of one propagation.

    keeper: knows the ids of terms, and makes new ones known.
    terms: makes those of one evaluation.
    is_divided: the graph is divided among nodes.
    evaluation: for bodies that compute no terms."""

    def __init__(
        self,
        keeper: TermKeeper,
        terms: Callable[[], QueryTerms],
        default_graph: int,
        limits: Limits,
        *,
        is_divided: bool,
    ) -> None:
        self._keeper = keeper
        self.terms = terms
        self.limits = limits
        self._is_divided = is_divided
        self._resolve = ConstantIds(keeper, {iri(DEFAULT_GRAPH_IRI): default_graph})
        self.evaluation = self.new_evaluation()

    def new_evaluation(self) -> Evaluation:
        """Return an evaluation with computed terms of its own."""
        graph_of = divided_of if self._is_divided else None
        return Evaluation(
            DatasetClause(), self._resolve, self.terms(), self.limits, graph_of=graph_of, keeps_groups=False
        )

    def solve(self, part: Part, over: Read, seeds: BindingTable) -> Iterator[BindingTable]:
        """Yield the solutions of a part that agree with some of the seeds, in tables. Raises QueryTimeout,
        BudgetExceeded."""
        mark = self.limits.mark()
        for start in range(0, seeds.length, SEEDS_MAX):
            some = seeds
            if seeds.length > SEEDS_MAX:
                some = seeds.take(np.arange(start, min(seeds.length, start + SEEDS_MAX)))
            evaluation = self.new_evaluation() if part.computes else self.evaluation
            yield self.known(part.solutions(evaluation, over.stored, some), evaluation.terms)
            self.limits.back_to(mark, 0)  # by then it has become triples

    def known(self, table: BindingTable, terms: QueryTerms) -> BindingTable:
        """Make the terms that expressions have computed known for ever."""
        if not terms.has_computed or not table.length:
            return table
        columns = tuple(_kept_terms(column, terms, self._keeper) for column in table.columns)
        return BindingTable(table.variables, columns, table.length)


def _kept_terms(column: Int64Array, terms: QueryTerms, keeper: TermKeeper) -> Int64Array:
    distinct, places = np.unique(column, return_inverse=True)
    computed = terms.computed(distinct)
    if not computed:
        return column
    distinct[np.searchsorted(distinct, list(computed))] = keeper.keep_all(list(computed.values()))
    kept: Int64Array = distinct[places]
    return kept
