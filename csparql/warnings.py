"""Warnings of likely mistakes in a query that can be run: variables that nothing binds, and in a continuous query
windows that no pattern reads, graphs that are empty because nothing declares them, conditions on variables that are not
bound yet. Each is a sentence with the way out; none is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from typing import Any

from wukongs.csparql.algebra import (
    Bgp,
    DefaultGraph,
    Expression,
    Extend,
    Filter,
    GraphNames,
    GraphRef,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    PathPattern,
    PerGraph,
    Project,
    Query,
    Service,
    StreamWindow,
    Timestamp,
    TripleParts,
    TriplePattern,
    Union,
    Values,
)
from wukongs.csparql.scope import exists_patterns, expression_variables, mentioned_variables, possible_variables
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
        *unbound(query),
    )


def unbound(query: Query) -> tuple[str, ...]:
    """Return warnings of the variables that are asked for and that nothing binds, each once."""
    aliases = {name for name, *_ in query.having_aliases}
    bound = {one.name for one in mentioned_variables(query.pattern) if one in _bound_anywhere(query.pattern)}
    found = dict.fromkeys(_asked_for(query))
    told = []
    for variable, what in found:
        name = variable.name.partition(".")[0]  # those of a subquery have a number behind theirs
        if name and f"?{name}" not in aliases:
            near = get_close_matches(name, [other for other in bound if other and "." not in other], 1)
            hint = " there" if name in bound else f": did you mean ?{near[0]}?" if near else ""
            told.append(f"?{name} is {what}, but nothing binds it{hint}")
    return tuple(dict.fromkeys(told))


def _bound_anywhere(node: Node) -> frozenset[Variable]:
    """Return the variables that some pattern of a query binds, wherever that is seen."""
    match node:
        case Join() | LeftJoin() | Minus() | Union():
            return _bound_anywhere(node.left) | _bound_anywhere(node.right)
        case Project():
            return _bound_anywhere(node.pattern)
        case Bgp() | PathPattern() | TripleParts() | Values() | GraphNames() | Service():
            return possible_variables(node)
        case Extend() | Timestamp():
            return _bound_anywhere(node.pattern) | {node.variable}
        case PerGraph():
            return _bound_anywhere(node.pattern) | {node.graph}
        case _:
            return _bound_anywhere(node.pattern)


def _asked_for(query: Query) -> Iterator[tuple[Variable, str]]:
    """Yield the variables that a query asks for where nothing binds them, and how."""
    yield from _asked_in(query.pattern, frozenset())
    bound = possible_variables(query.pattern)
    for pattern in query.template:
        for variable in pattern.variables():
            if variable not in bound and not variable.is_blank:
                yield variable, "in the template of CONSTRUCT"
    for part in query.described:
        if isinstance(part, Variable) and part not in bound:
            yield part, "described"


def _asked_in(node: Node, outer: frozenset[Variable]) -> Iterator[tuple[Variable, str]]:
    """outer: bound around it, as in an EXISTS."""
    match node:
        case Join() | Minus() | Union() | LeftJoin():
            yield from _asked_in(node.left, outer)
            yield from _asked_in(node.right, outer)
            if isinstance(node, LeftJoin) and node.condition is not None:
                both = possible_variables(node.left) | possible_variables(node.right) | outer
                yield from _asked_by(node.condition, both, "in a condition")
            return
        case Bgp() | PathPattern() | TripleParts() | Values() | GraphNames() | Service():
            return
    inside = outer | {node.graph} if isinstance(node, PerGraph) else outer
    yield from _asked_in(node.pattern, inside)
    bound = possible_variables(node.pattern) | inside
    match node:
        case Filter():
            yield from _asked_by(node.condition, bound, "in a condition")
        case Extend():
            yield from _asked_by(node.expression, bound, "in an expression")
        case OrderBy():
            for expression, _ in node.conditions:
                yield from _asked_by(expression, bound, "in ORDER BY")
        case Group():
            yield from ((key, "in GROUP BY") for key in node.keys if key not in bound)
            for _, aggregate in node.aggregates:
                yield from _asked_by(aggregate, bound, "in an aggregate")
        case Project():
            yield from ((variable, "selected") for variable in node.variables if variable not in bound)


def _asked_by(expression: Expression, bound: frozenset[Variable], what: str) -> Iterator[tuple[Variable, str]]:
    for variable in sorted(expression_variables(expression, within_exists=False) - bound, key=lambda one: one.name):
        yield variable, what
    for exists in exists_patterns(expression):
        yield from _asked_in(exists.pattern, bound)


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


@dataclass(slots=True)
class UnseenNames:
    """The predicates and graphs that a query names, as long as no data had them: whoever looks takes out what is there.
    near: the names that were perhaps meant, by the name and how many there were to choose from."""

    predicates: dict[Term, None]
    graphs: dict[Term, None]
    near: dict[tuple[str, int], str] = field(default_factory=dict)

    @staticmethod
    def of(query: Query) -> UnseenNames:
        """Return those of the triple patterns, of the paths, and of FROM, FROM NAMED and GRAPH; windows and the default
        graph are no such graphs. Of a query with windows, GRAPH names what it declares, or gets a warning for that."""
        clause, predicates = query.dataset, list[Term]()
        for part in _patterns(query.pattern):
            if isinstance(part, TriplePattern | PathPattern):
                predicates += _terms_in(part.predicate if isinstance(part, TriplePattern) else part.path)
        windows = {iri(window.name) for window in clause.windows}
        graphs = [iri(name) for name in (*clause.default_graphs, *clause.named_graphs)]
        if not windows:
            graphs += [graph for graph in graphs_read(query) if isinstance(graph, Term)]
        are_stored = (name for name in graphs if name not in windows and name.text != STORED)
        return UnseenNames(dict.fromkeys(predicates), dict.fromkeys(are_stored))


def _terms_in(part: Any) -> Iterator[Term]:
    """Yield the terms of a path."""
    if isinstance(part, Term):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from _terms_in(item)
    elif is_dataclass(part) and not isinstance(part, Variable):
        for each in fields(part):
            yield from _terms_in(getattr(part, each.name))


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
            f"line {line}, column {column}: {name} is unbound in HAVING, since SELECT binds it only after HAVING has "
            f"chosen, and a condition that fails drops the row: write {expression} in its place"
        )
