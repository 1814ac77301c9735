"""The terms whose ids a registered query needs, and keeps as its own."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from wukongs.csparql.algebra import Query
from wukongs.csparql.terms import Term, iri
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI


def constants_of(query: Query) -> list[Term]:
    """Return the terms whose ids a query needs, whatever the data holds: of its patterns, graphs and streams."""
    clause = query.dataset
    windows = [window.name for window in clause.windows]
    names = [DEFAULT_GRAPH_IRI, *clause.default_graphs, *clause.named_graphs, *windows]
    found = dict.fromkeys(iri(name) for name in names)

    def visit(part: Any) -> None:
        if isinstance(part, Term):
            found[part] = None
        elif isinstance(part, tuple):
            for item in part:
                visit(item)
        elif is_dataclass(part):
            for field in fields(part):
                visit(getattr(part, field.name))

    visit(query.pattern)
    visit(query.described)
    return list(found)
