"""Template: the common part of registered queries that differ in constants alone. One exploration serves all of them.

Such queries read the same data: they have one dataset clause, so at one time the same windows and the same snapshot.
Their triple patterns are the same but for subjects and objects that are constants. The operators over the patterns may
differ: each query evaluates its own. Predicates, graphs and the values in filters belong to the common part.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from wukongs.csparql.algebra import (
    Bgp,
    Distinct,
    Extend,
    Filter,
    Group,
    Node,
    OrderBy,
    Project,
    Query,
    Slice,
    TermOrVariable,
    TriplePattern,
)
from wukongs.csparql.functions import depends_on_moment
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import exists_patterns
from wukongs.csparql.terms import Term, iri
from wukongs.csparql.walk import parts_of
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI
from wukongs.store.hidden_graphs import view_of

_OVER_ROWS = (Project, Distinct, OrderBy, Slice, Group, Extend, Filter)
"""Operators that look only at the rows below them."""


@dataclass(frozen=True, slots=True)
class Template:
    """The template of one query. shape: equal for all queries of a group; core: its triple patterns with the filters
    right above; constants: the subjects and objects of the patterns that are terms, in order."""

    shape: Hashable
    core: Node
    constants: tuple[Term, ...]


def template_of(query: Query) -> Template | None:
    """Return the template of a registered query, None if it is explored alone.

    ASK is, because one solution is enough for it. So are queries with functions that draw values, because these belong
    to one query, and patterns with OPTIONAL, UNION, MINUS, paths or EXISTS."""
    node = query.pattern
    while isinstance(node, _OVER_ROWS) and FilteredBgp.of(node) is None:
        node = node.pattern
    filtered = FilteredBgp.of(node)
    if query.form == "ask" or filtered is None or not filtered.bgp.patterns:
        return None
    if any(exists_patterns(condition) or depends_on_moment(condition) for condition in filtered.filters):
        return None
    clause = query.dataset
    reads = clause.default_graphs, clause.named_graphs, tuple(replace(w, line=0, column=0) for w in clause.windows)
    patterns = tuple((_hole(p.subject), p.predicate, _hole(p.object), p.graph) for p in filtered.bgp.patterns)
    constants = tuple(end for p in filtered.bgp.patterns for end in (p.subject, p.object) if isinstance(end, Term))
    return Template((reads, patterns, filtered.filters), node, constants)


def _hole(end: TermOrVariable) -> TermOrVariable | None:
    return None if isinstance(end, Term) else end


def with_constants(core: Node, constants: tuple[TermOrVariable, ...]) -> Node:
    """Return the core of a template with other subjects and objects in the place of its constants."""
    if isinstance(core, Filter):
        return Filter(core.condition, with_constants(core.pattern, constants))
    assert isinstance(core, Bgp), core
    given = iter(constants)
    patterns = []
    for pattern in core.patterns:
        subject = next(given) if isinstance(pattern.subject, Term) else pattern.subject
        object_ = next(given) if isinstance(pattern.object, Term) else pattern.object
        patterns.append(TriplePattern(subject, pattern.predicate, object_, pattern.graph))
    return Bgp(tuple(patterns))


def constants_of(query: Query) -> list[Term]:
    """Return the terms whose ids a query needs, whatever the data holds: of its patterns, graphs and streams, and of
    the graphs whose views it reads."""
    clause = query.dataset
    windows = [window.name for window in clause.windows]
    graphs = *clause.default_graphs, *clause.named_graphs
    viewed = [view.graph for name in graphs if (view := view_of(name)) is not None]
    names = [DEFAULT_GRAPH_IRI, *graphs, *viewed, *windows]
    found = dict.fromkeys(iri(name) for name in names)
    found |= dict.fromkeys(part for part in parts_of((query.pattern, query.described)) if isinstance(part, Term))
    return list(found)
