"""The constants of a registered query: terms whose ids it needs, whatever the data holds."""

from __future__ import annotations

from wukongs.csparql.algebra import Query
from wukongs.csparql.terms import Term, iri
from wukongs.csparql.walk import parts_of
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI
from wukongs.store.hidden_graphs import view_of


def constants_of(query: Query) -> list[Term]:
    """Return the terms of a query's patterns, graphs and streams, and of the graphs whose views it reads."""
    clause = query.dataset
    windows = [window.name for window in clause.windows]
    graphs = *clause.default_graphs, *clause.named_graphs
    viewed = [view.graph for name in graphs if (view := view_of(name)) is not None]
    names = [DEFAULT_GRAPH_IRI, *graphs, *viewed, *windows]
    found = dict.fromkeys(iri(name) for name in names)
    found |= dict.fromkeys(part for part in parts_of((query.pattern, query.described)) if isinstance(part, Term))
    return list(found)
