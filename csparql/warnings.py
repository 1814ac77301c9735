"""Warnings of likely mistakes in a continuous query that can be run: windows that no pattern reads, graphs that are
empty because nothing declares them, conditions on variables that are not bound yet. Each is a sentence with the place
and the way out; none is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from wukongs.csparql.algebra import (
    DefaultGraph,
    GraphNames,
    GraphRef,
    PathPattern,
    Query,
    StreamWindow,
    Timestamp,
    TriplePattern,
)
from wukongs.csparql.terms import Term, Variable, iri

STORED = "<urn:x-wukongs:default>"


def query_warnings(query: Query) -> tuple[str, ...]:
    """Return the warnings that the text of a query with windows gives by itself; none for a query without windows."""
    if not query.dataset.windows:
        return ()
    read = set(graphs_read(query))
    return (
        *_unread_windows(query, read),
        *_undeclared(query, read),
        *_empty_default(query, read),
        *_unbound_aliases(query),
    )


def graphs_read(query: Query) -> Iterator[GraphRef]:
    """Yield where the patterns of a query are matched."""
    for part in _patterns(query.pattern):
        yield part.graph


def reads_default_graph(query: Query) -> bool:
    """Tell whether the default graph may give an answer, or a part of one."""
    return query.form == "describe" or any(isinstance(graph, DefaultGraph) for graph in graphs_read(query))


def default_predicates(query: Query) -> tuple[Term, ...]:
    """Return the predicates, each once, of the triple patterns outside of GRAPH."""
    found = (
        part.predicate
        for part in triple_patterns(query)
        if isinstance(part.graph, DefaultGraph) and isinstance(part.predicate, Term)
    )
    return tuple(dict.fromkeys(found))


def triple_patterns(query: Query) -> Iterator[TriplePattern]:
    """Yield the triple patterns of a query, those of EXISTS too."""
    return (part for part in _patterns(query.pattern) if isinstance(part, TriplePattern))


def _patterns(part: Any) -> Iterator[TriplePattern | PathPattern | GraphNames]:
    if isinstance(part, TriplePattern | PathPattern | GraphNames):
        yield part
    elif isinstance(part, Timestamp):
        yield from _patterns(part.pattern)  # its look-ups are none of the query's own patterns
    elif isinstance(part, tuple):
        for item in part:
            yield from _patterns(item)
    elif is_dataclass(part) and not isinstance(part, Term | Variable):
        for each in fields(part):
            yield from _patterns(getattr(part, each.name))


def _place(window: StreamWindow) -> str:
    return f"line {window.line}, column {window.column}"


def _unread_windows(query: Query, read: set[GraphRef]) -> Iterator[str]:
    is_any_graph = any(isinstance(graph, Variable) for graph in read) or query.form == "describe"
    is_default = reads_default_graph(query)
    for window in query.dataset.windows:
        if iri(window.name) in read or (is_any_graph if window.named else is_default):
            continue
        own = f"GRAPH <{window.name}> {{ ... }}"
        if window.named:
            way = f"only {own} reads a window declared by NAMED; put a pattern in one, or declare it without NAMED"
        else:
            way = f"there is no pattern outside of GRAPH, nor in {own}; write one, or take the window out"
        yield f"{_place(window)}: no pattern reads the window over <{window.stream}>: {way}"


def _undeclared(query: Query, read: set[GraphRef]) -> Iterator[str]:
    clause = query.dataset
    declared = {*clause.default_graphs, *clause.named_graphs, *(window.name for window in clause.windows)}
    places = {name: (line, column) for name, line, column in query.graph_places}
    for graph in sorted((graph for graph in read if isinstance(graph, Term)), key=str):
        name = graph.text[1:-1]
        if name not in declared:
            line, column = places.get(name, (1, 1))
            yield (
                f"line {line}, column {column}: GRAPH <{name}> matches nothing, since the query declares no graph and "
                f"no window of that name: add FROM NAMED <{name}> for a stored graph, FROM NAMED STREAM for a window"
            )


def _empty_default(query: Query, read: set[GraphRef]) -> Iterator[str]:
    clause = query.dataset
    is_empty = not clause.default_graphs and all(window.named for window in clause.windows)
    if is_empty and any(isinstance(graph, DefaultGraph) for graph in read):
        yield (
            f"{_place(clause.windows[0])}: the patterns outside of GRAPH match nothing, since all that the query "
            f"declares is NAMED: put them in a GRAPH block, add FROM {STORED} for stored data, or declare the window "
            "without NAMED"
        )


def _unbound_aliases(query: Query) -> Iterator[str]:
    for name, expression, line, column in query.having_aliases:
        yield (
            f"line {line}, column {column}: {name} is unbound in HAVING, since SELECT binds it only after the groups "
            f"are chosen, and a condition that fails drops the group: write {expression} in its place"
        )
