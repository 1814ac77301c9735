"""Warnings of likely mistakes in a query that can be run: variables that nothing binds, and in a continuous query
windows that no pattern reads, graphs that are empty because nothing declares them, conditions on variables that are not
bound yet, aggregates that count equal readings once. Each is a sentence with the way out; none is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from wukongs.csparql.algebra import (
    Aggregate,
    Bgp,
    DefaultGraph,
    Exists,
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
from wukongs.csparql.walk import field_names, parts_of

STORED = "<urn:x-wukongs:default>"
ADDS_UP = frozenset({"AVG", "SUM", "COUNT", "GROUP_CONCAT"})
"""The aggregates whose value changes when a row is repeated."""


def is_never_stored(predicate: Term) -> bool:
    """Return False: without data no predicate has come in a stored graph."""
    return False


def query_warnings(query: Query, is_stored: Callable[[Term], bool] = is_never_stored) -> tuple[str, ...]:
    """Return the warnings of the text of a query with windows; none for a query without windows.

    is_stored : whether a predicate has come in the stored graphs of the query's default graph.
    """
    if not query.dataset.windows:
        return ()
    read = set(graphs_read(query))
    return (
        *_unread_windows(query, read),
        *_undeclared(query, read),
        *_empty_default(query, read),
        *_unbound_aliases(query),
        *unbound(query),
        *_equal_readings(query, is_stored),
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
    for inner in _parts_of(part):
        yield from _terms_in(inner)


def triple_patterns(query: Query) -> Iterator[TriplePattern]:
    """Yield the triple patterns of a query, those of EXISTS too."""
    return (part for part in _patterns(query.pattern) if isinstance(part, TriplePattern))


def _patterns(part: Any) -> Iterator[TriplePattern | PathPattern | GraphNames]:
    if isinstance(part, TriplePattern | PathPattern | GraphNames):
        yield part
    elif isinstance(part, Timestamp):
        yield from _patterns(part.pattern)  # its look-ups are none of the query's own patterns
    else:
        for inner in _parts_of(part):
            yield from _patterns(inner)


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
        name = graph.name
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


def _equal_readings(query: Query, is_stored: Callable[[Term], bool]) -> Iterator[str]:
    """Find aggregates that count equal readings of one subject once, since a window is a set of triples.

    The aggregated variable is then the object of a pattern `subject <predicate> ?value` of a window, and nothing
    distinguishes two readings of that subject: it is a constant, or a key of the group, or no other pattern of the
    window has it. A subject with a second pattern in the window, such as `?reading :sensor ?s ; :value ?value`, is a
    node for each reading. A pattern of the merged default graph does not count as one of the window if its predicate
    is stored: it describes something that lasts.
    """
    for group in (part for part in parts_of(query.pattern) if isinstance(part, Group)):
        patterns = [part for part in _patterns_of_rows(group.pattern) if _is_in_window(query, part)]
        subjects = {part.subject for part in patterns}
        readings = [part for part in patterns if _is_reading(part, subjects | set(group.keys))]
        for _, aggregate in group.aggregates:
            for part in readings:
                if _adds_up(aggregate, part.object) and _lasts(query, part, group, patterns, is_stored):
                    yield _told_of_readings(query, aggregate, part)
                    break


def _is_reading(part: TriplePattern, others: set[Term | Variable]) -> bool:
    """Return whether a pattern may give a value: its object is a variable that is neither a subject nor a key."""
    return isinstance(part.predicate, Term) and isinstance(part.object, Variable) and part.object not in others


def _lasts(
    query: Query, part: TriplePattern, group: Group, patterns: list[TriplePattern], is_stored: Callable[[Term], bool]
) -> bool:
    """Return whether the subject of a pattern has several readings, and is no node of one of them."""
    if isinstance(part.subject, Term) or part.subject in group.keys:
        return True
    with_it = (one for one in patterns if one != part and part.subject in (one.subject, one.object))
    return all(_is_described(query, one, is_stored) for one in with_it)


def _told_of_readings(query: Query, aggregate: Aggregate, part: TriplePattern) -> str:
    subject, value = _text_of(part.subject), _text_of(part.object)
    argument = "*" if aggregate.argument is None else value
    place = next((_place(one) for one in query.dataset.windows if _reads(one, part)), "line 1, column 1")
    return (
        f"{place}: {aggregate.name}({argument}) counts equal readings once: a window is a set of triples, so two "
        f"readings with the same {subject} and the same {value} are one triple. Give each reading a node of its own, "
        f"such as {{ ?reading <sensor> {subject} ; {_text_of(part.predicate)} {value} }}"
    )


def _text_of(part: Term | Variable) -> str:
    return part.text if isinstance(part, Term) else f"?{part.name}"


def _adds_up(aggregate: Aggregate, value: Term | Variable) -> bool:
    """Return whether repeated values of a variable change an aggregate."""
    if aggregate.distinct or aggregate.name not in ADDS_UP:
        return False
    return aggregate.argument is None or value in expression_variables(aggregate.argument, within_exists=False)


def _patterns_of_rows(part: Any) -> Iterator[TriplePattern]:
    """Yield the triple patterns whose matches are rows of a group: none of EXISTS, of MINUS, or of another group."""
    if isinstance(part, TriplePattern):
        yield part
    elif isinstance(part, Minus):
        yield from _patterns_of_rows(part.left)
    elif isinstance(part, Timestamp):
        yield from _patterns_of_rows(part.pattern)
    elif not isinstance(part, Group | Exists):
        for inner in _parts_of(part):
            yield from _patterns_of_rows(inner)


def _parts_of(part: Any) -> Iterator[Any]:
    """Yield what a part of the algebra is made of."""
    if isinstance(part, tuple):
        yield from part
    elif not isinstance(part, Variable):
        yield from (getattr(part, name) for name in field_names(type(part)) or ())


def _reads(window: StreamWindow, part: TriplePattern) -> bool:
    """Return whether a pattern is matched in a window."""
    return iri(window.name) == part.graph or (isinstance(part.graph, DefaultGraph) and not window.named)


def _is_in_window(query: Query, part: TriplePattern) -> bool:
    return any(_reads(window, part) for window in query.dataset.windows)


def _is_described(query: Query, part: TriplePattern, is_stored: Callable[[Term], bool]) -> bool:
    """Return whether the matches of a pattern of the merged default graph are stored, as far as the data have come."""
    is_merged = isinstance(part.graph, DefaultGraph) and bool(query.dataset.default_graphs)
    return is_merged and isinstance(part.predicate, Term) and is_stored(part.predicate)
