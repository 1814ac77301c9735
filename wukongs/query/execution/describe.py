"""DESCRIBE: the concise bounded description of resources.

SPARQL (16.4) leaves the content of the answer to us. We give all statements of the query's dataset, in its default
graph and in its named graphs, whose subject is the resource; and, for each blank node among their objects, the same
again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wukongs.csparql.algebra import Bgp, TriplePattern
from wukongs.csparql.terms import Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.executor import Executor
from wukongs.query.plans.dataset import Dataset
from wukongs.query.rows import numbered, put_together, taken
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.dtypes import UNBOUND, Int64Array

_SUBJECT, _PREDICATE, _OBJECT = _STATEMENT = Variable("s"), Variable("p"), Variable("o")
_DEFAULT = Bgp((TriplePattern(*_STATEMENT),))
_NAMED = Bgp((TriplePattern(*_STATEMENT, Variable("g")),))


def describe(resources: Int64Array, dataset: Dataset, executor: Executor, terms: QueryTerms) -> tuple[Int64Array, ...]:
    """Return the statements that describe some resources, each once: (subjects, predicates, objects).

    resources : int64[n]        Ids, in any order, repeated or UNBOUND ones too; a literal has no description.
    Raises QueryTimeout, BudgetExceeded.
    """
    wanted = resources[resources != UNBOUND]
    if len(wanted) > 1:
        wanted = np.unique(wanted)
    places = (_DEFAULT, _NAMED) if len(dataset.named_graphs()) else (_DEFAULT,)
    asked = wanted
    found = [(wanted[:0],) * len(_STATEMENT)]
    while len(wanted):
        table = BindingTable((_SUBJECT,), (wanted,), len(wanted))
        new = [executor.explore(bgp, table).columns_of(_STATEMENT) for bgp in places]
        found += new
        objects = put_together([column for _, _, column in new])
        blank = objects[terms.first_bytes(objects) == ord("_")]
        wanted = np.setdiff1d(blank, asked) if len(blank) else blank
        asked = np.union1d(asked, wanted) if len(wanted) else asked
    columns = tuple(map(put_together, zip(*found, strict=True)))
    return columns if places == (_DEFAULT,) else distinct(columns)


def distinct(columns: Sequence[Int64Array]) -> tuple[Int64Array, ...]:
    """Keep each triple once, in the order in which they come."""
    _, firsts = numbered(columns, len(columns[0]))
    return tuple(taken(column, firsts) for column in columns)
