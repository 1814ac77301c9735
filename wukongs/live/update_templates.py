"""Templates of updates, filled with the solutions of their pattern: columns of ids to quads (Update, 4.2.2).

A quad with an unbound part, or one that is not RDF (a literal as subject or graph, a predicate that is no IRI), is left
out. Inserted terms become known for ever. Deleted terms have to be known already: an unknown term is in no triple.

Solutions may be many: columns are worked on in pieces (wukongs/query/rows.py), terms resolved some at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from wukongs.csparql.algebra import DefaultGraph, GraphRef, GraphVersion, TriplePattern
from wukongs.csparql.terms import Term, Variable
from wukongs.csparql.updates import DataColumns, DeleteData, InsertData, in_columns
from wukongs.query.limits import CHARACTER_BYTES, OBJECT_BYTES, current
from wukongs.query.rows import filled, numbered, pieces, put_together, stable_order
from wukongs.query.rows import taken as rows_taken
from wukongs.query.terms.query_terms import LOOKED_UP_MAX, QueryTerms, TermKeeper
from wukongs.store.dtypes import NO_MATCH, BoolArray, Int64Array, UInt8Array
from wukongs.store.encoded import replace_ids
from wukongs.store.quads import Quads, joined, taken
from wukongs.store.terms import blank_node

_IRI, _BLANK = ord("<"), ord("_")
_QUAD_BYTES = 4 * 8
_LABEL_BYTES = OBJECT_BYTES + CHARACTER_BYTES * 40
"""The bytes of a new blank node: two hashes of twenty letters, with their row."""
Resolve = Callable[[Sequence[str]], Int64Array]


@dataclass(frozen=True, slots=True)
class Solutions:
    """columns: those of the variables that the templates need, int64[length]; terms: what their ids mean."""

    columns: Mapping[Variable, Int64Array]
    length: int
    terms: QueryTerms


def to_insert(
    template: Sequence[TriplePattern], solutions: Solutions, registry: TermKeeper, default_graph: int, scope: str
) -> Quads:
    """Fill what comes. scope: says where its blank nodes are new: in each solution of one operation."""
    blanks = {part for quad in template for part in quad.variables() if part.is_blank}
    columns = dict(solutions.columns)
    if blanks:
        rows = _canonical_rows(solutions)
        for blank in blanks:
            columns[blank] = _new_blank_nodes(rows, blank.name[1:], scope, registry)
    return _filled(template, columns, solutions, registry.keep_all, default_graph)


def to_delete(
    template: Sequence[TriplePattern], solutions: Solutions, registry: TermKeeper, default_graph: int
) -> Quads:
    """Fill what goes."""
    return _filled(template, solutions.columns, solutions, registry.known_all, default_graph)


def _canonical_rows(solutions: Solutions) -> Int64Array:
    """Number the solutions by what they bind, whatever plan has made them. int64[length]"""
    ordered = [column for _, column in sorted(solutions.columns.items(), key=lambda item: item[0].name)]
    if not ordered:
        return np.arange(solutions.length)
    order = stable_order(ordered)
    current().hold(8 * solutions.length)
    rank = np.empty(solutions.length, np.int64)
    for start, stop in pieces(solutions.length, current()):
        rank[order[start:stop]] = np.arange(start, stop)
    return rank


def _new_blank_nodes(rows: Int64Array, name: str, scope: str, registry: TermKeeper) -> Int64Array:
    """Return the id of a new blank node for each row. rows : int64[n], which name them."""

    def keep(some: Sequence[int]) -> Int64Array:
        return registry.keep_all([blank_node(scope.encode(), f"{name}r{row}") for row in some])

    current().hold(_LABEL_BYTES * len(rows))
    return _in_parts(rows.tolist(), keep)


_Item = TypeVar("_Item")


def _in_parts(items: Sequence[_Item], resolve: Callable[[Sequence[_Item]], Int64Array]) -> Int64Array:
    """Resolve items, looking at the clock now and then."""
    found = [np.empty(0, np.int64)]
    for start in range(0, len(items), LOOKED_UP_MAX):
        current().check()
        found.append(resolve(items[start : start + LOOKED_UP_MAX]))
    return np.concatenate(found)


def _filled(
    template: Sequence[TriplePattern],
    columns: Mapping[Variable, Int64Array],
    solutions: Solutions,
    resolve: Resolve,
    default_graph: int,
) -> Quads:
    limits = current()
    mark = limits.mark()
    constants = _constants(template, resolve)
    final: dict[Variable, Int64Array] = {}
    kinds: dict[Variable, UInt8Array] = {}
    for variable in {part for quad in template for part in quad.variables()}:
        column = columns[variable]
        if variable.is_blank:
            final[variable] = column
            continue
        final[variable] = _of_data(column, solutions, resolve)

    def ids_of(part: GraphRef) -> Int64Array:
        if isinstance(part, Variable):
            return final[part]
        assert not isinstance(part, GraphVersion), part
        return filled(solutions.length, default_graph if isinstance(part, DefaultGraph) else constants[part])

    def kinds_of(part: Variable) -> UInt8Array:
        if part not in kinds:
            kinds[part] = _first_bytes(columns[part], solutions.terms)
        return kinds[part]

    def is_right(quad: TriplePattern) -> BoolArray | bool:
        """Mark the rows in which a quad is RDF, as far as its parts are bound."""
        right: BoolArray | bool = True
        for part, is_predicate in ((quad.graph, False), (quad.subject, False), (quad.predicate, True)):
            if isinstance(part, Variable) and not part.is_blank:
                kind = kinds_of(part)
                right = right & ((kind == _IRI) if is_predicate else (kind == _IRI) | (kind == _BLANK))
            elif isinstance(part, Variable):
                right = right & (not is_predicate)
            elif isinstance(part, Term):
                right = right & (part.is_iri)
        return right

    parts: list[Quads] = []
    for quad in template:
        limits.check()
        columns_of_quad = ids_of(quad.graph), ids_of(quad.subject), ids_of(quad.predicate), ids_of(quad.object)
        is_bound = np.logical_and.reduce([column >= 0 for column in columns_of_quad])
        limits.hold(_QUAD_BYTES * solutions.length)
        parts.append(taken(columns_of_quad, is_bound & is_right(quad)))
    graphs, subjects, predicates, objects = (
        put_together([part[place] for part in parts] or [np.empty(0, np.int64)]) for place in range(4)
    )
    limits.back_to(mark, _QUAD_BYTES * len(graphs))
    return graphs, subjects, predicates, objects


def _of_data(column: Int64Array, solutions: Solutions, resolve: Resolve) -> Int64Array:
    """Return a column with the ids of the data for terms that the query has computed."""
    if not solutions.terms.computes:
        return column
    _, firsts = numbered([column], len(column))
    computed = solutions.terms.computed(rows_taken(column, firsts))
    if not computed:
        return column
    limits = current()
    given, kept = np.array(list(computed), np.int64), _in_parts(list(computed.values()), resolve)
    limits.hold(8 * len(column))
    found = np.empty(len(column), np.int64)
    for start, stop in pieces(len(column), limits):
        found[start:stop] = replace_ids(column[start:stop], given, kept)
    return found


def _constants(template: Sequence[TriplePattern], resolve: Resolve) -> dict[Term, int]:
    """Return the ids of the terms of a template; NO_MATCH where `resolve` finds none."""
    terms = [
        part
        for quad in template
        for part in (quad.graph, quad.subject, quad.predicate, quad.object)
        if isinstance(part, Term)
    ]
    distinct = list(dict.fromkeys(terms))
    return dict(zip(distinct, resolve([term.text for term in distinct]).tolist(), strict=True))


def _first_bytes(column: Int64Array, terms: QueryTerms) -> UInt8Array:
    """Return the first byte of each term of a column; of nothing where it is unbound, which is left out anyway."""
    places, firsts = numbered([column], len(column))
    distinct = rows_taken(column, firsts)
    found = np.zeros(len(distinct), np.uint8)
    bound = distinct >= 0
    found[bound] = terms.first_bytes(distinct[bound])
    return found[places]


def data_quads(data: InsertData | DeleteData, registry: TermKeeper, default_graph: int, scope: str | None) -> Quads:
    """Return the quads of INSERT DATA (scope: of its blank nodes) or DELETE DATA (scope None: terms must be known)."""
    label = (scope or "").encode()
    resolve = registry.known_all if scope is None else registry.keep_all
    return joined(
        [_resolved(columns, label, resolve, default_graph) for columns in (in_columns(data.quads), *data.columns)]
    )


def _resolved(columns: DataColumns, label: bytes, resolve: Resolve, default_graph: int) -> Quads:
    texts = [term if isinstance(term, str) else blank_node(label, term.name[1:]) for term in columns.terms]
    current().hold(2 * _QUAD_BYTES * len(columns.graphs) + 2 * OBJECT_BYTES * len(texts))
    ids = np.append(_in_parts(texts, resolve), default_graph)  # which is at the place -1
    places = [
        np.array(column, np.int64) for column in (columns.graphs, columns.subjects, columns.predicates, columns.objects)
    ]
    filled = ids[places[0]], ids[places[1]], ids[places[2]], ids[places[3]]
    return taken(filled, np.logical_and.reduce([column != NO_MATCH for column in filled]))
