"""DESCRIBE: the concise bounded description of resources.

What SPARQL leaves to us (16.4) is this: all statements of the query's dataset, in its default graph and in its named
graphs, whose subject is the resource; and, for each blank node among their objects, the same again.
"""

from __future__ import annotations

import numpy as np

from csparql.algebra import Bgp, TriplePattern
from csparql.terms import Variable
from store.dtypes import UNBOUND, Int64Array
from wukongs.binding_table import BindingTable
from wukongs.executor import Executor
from wukongs.query_terms import QueryTerms

_SUBJECT, _PREDICATE, _OBJECT = Variable("s"), Variable("p"), Variable("o")
_PLACES = (
    Bgp((TriplePattern(_SUBJECT, _PREDICATE, _OBJECT),)),
    Bgp((TriplePattern(_SUBJECT, _PREDICATE, _OBJECT, Variable("g")),)),
)


def describe(resources: Int64Array, executor: Executor, terms: QueryTerms) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return the statements that describe some resources, some repeatedly: (subjects, predicates, objects).

    resources : int64[n]        Ids, in any order, repeated or UNBOUND ones too; a literal has no description.

    Raises QueryTimeout, BudgetExceeded.
    """
    asked = resources[:0]
    found: list[tuple[Int64Array, ...]] = [(asked, asked, asked)]
    wanted = np.unique(resources[resources != UNBOUND])
    while len(wanted):
        asked = np.union1d(asked, wanted)
        table = BindingTable((_SUBJECT,), (wanted,), len(wanted))
        tables = [executor.explore(bgp, table) for bgp in _PLACES]
        found += [tuple(table.column(variable) for variable in (_SUBJECT, _PREDICATE, _OBJECT)) for table in tables]
        objects = np.setdiff1d(np.concatenate([table.column(_OBJECT) for table in tables]), asked)
        wanted = objects[terms.first_bytes(objects) == ord("_")]
    subjects, predicates, objects = (np.concatenate(column) for column in zip(*found, strict=True))
    return subjects, predicates, objects
