"""Answers compared: rows as sorted multisets of terms, blank nodes up to renaming, calculated numbers by value."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cmp_to_key
from itertools import permutations, product

from tests.oracles.query_ast import Aggregate, Query, Var
from tests.oracles.rdf import XSD, Term, Triple, iri, literal, to_oxigraph
from tests.oracles.sparql_oracle import Row
from tests.oracles.values import Number, Undefined, number, order_terms

Cell = tuple[str, ...]
_RENAMINGS_MAX = 1000
_SELF, _COUNT = Term("self", ""), iri("urn:x-wukongs-tests:alike")


def cell(value: object, calculated: bool, by_value_only: bool = False) -> Cell:
    """One comparable cell. Numbers of calculated columns compare by datatype and 9 significant digits."""
    if value is None:
        return ("unbound",)
    if isinstance(value, bool):
        value = literal("true" if value else "false", XSD + "boolean")
    if isinstance(value, Number) or calculated:
        assert isinstance(value, Number | Term)
        found = number(value)
        if found is not None:
            kind = "" if by_value_only else found.kind
            rounded = float(found.value)
            return (
                "number",
                kind,
                "0" if rounded == 0 else f"{rounded:.9g}" if math.isfinite(rounded) else str(rounded),
            )
    assert isinstance(value, Term)
    return tuple(value)


def cells(rows: Iterable[Row], query: Query) -> list[tuple[Cell, ...]]:
    """Rows made comparable by the columns of the query; MIN and MAX give any of several equal values."""
    modes = []
    for column in query.columns:
        extreme = isinstance(column.expression, Aggregate) and column.expression.function in ("MIN", "MAX")
        modes.append((column.expression is not None and not isinstance(column.expression, Var), extreme))
    return [tuple(cell(value, *mode) for value, mode in zip(row, modes, strict=True)) for row in rows]


def same_rows(left: Iterable[tuple[Cell, ...]], right: Iterable[tuple[Cell, ...]]) -> bool:
    """Whether two multisets of rows are equal up to a renaming of blank nodes."""
    ours, theirs = Counter(left), Counter(right)
    if ours == theirs:
        return True
    if sorted(map(_erase, ours.elements())) != sorted(map(_erase, theirs.elements())):
        return False
    return any(_renamed(ours, renaming) == theirs for renaming in _renamings(ours, theirs))


def _is_bnode(value: Cell) -> bool:
    return value[0] == "bnode"


def _erase(row: tuple[Cell, ...], mark: str = "") -> tuple[Cell, ...]:
    return tuple(("bnode", "same" if value[1] == mark else "other") if _is_bnode(value) else value for value in row)


def _signatures(rows: Counter[tuple[Cell, ...]]) -> dict[tuple[object, ...], list[str]]:
    """Blank nodes by what can be said about them without their labels."""
    labels = {value[1] for row in rows for value in row if _is_bnode(value)}
    found: dict[tuple[object, ...], list[str]] = {}
    for label in sorted(labels):
        holding = sorted((_erase(row, label), n) for row, n in rows.items() if ("bnode", label) in {c[:2] for c in row})
        found.setdefault(tuple(holding), []).append(label)
    return found


def _renamings(ours: Counter[tuple[Cell, ...]], theirs: Counter[tuple[Cell, ...]]) -> Iterator[dict[str, str]]:
    mine, other = _signatures(ours), _signatures(theirs)
    if {key: len(labels) for key, labels in mine.items()} != {key: len(labels) for key, labels in other.items()}:
        return
    if math.prod(math.factorial(len(labels)) for labels in mine.values()) > _RENAMINGS_MAX:
        raise Undefined("more blank nodes that look alike than should be tried")
    for orders in product(*(permutations(labels) for labels in mine.values())):
        renaming: dict[str, str] = {}
        for key, order in zip(mine, orders, strict=True):
            renaming.update(zip(order, other[key], strict=True))
        yield renaming


def _renamed(rows: Counter[tuple[Cell, ...]], renaming: dict[str, str]) -> Counter[tuple[Cell, ...]]:
    result: Counter[tuple[Cell, ...]] = Counter()
    for row, count in rows.items():
        result[tuple(("bnode", renaming[v[1]], *v[2:]) if _is_bnode(v) else v for v in row)] += count
    return result


def same_graph(left: Iterable[Triple], right: Iterable[Triple]) -> bool:
    """Whether two graphs are isomorphic."""
    import pyoxigraph

    graphs = []
    for triples in (left, right):
        quads = (pyoxigraph.Quad(*map(to_oxigraph, triple)) for triple in _without_twins(set(triples)))
        graph = pyoxigraph.Dataset(quads)
        graph.canonicalize(pyoxigraph.CanonicalizationAlgorithm.RDFC_1_0)
        graphs.append(graph)
    return bool(graphs[0] == graphs[1])


def _without_twins(graph: set[Triple]) -> set[Triple]:
    """One of all blank nodes with the same triples, and a triple that counts them: canonical names take a time that
    grows with the ways to exchange such nodes."""
    while True:
        own: dict[Term, set[Triple]] = {}
        for triple in graph:
            for node in triple:
                if node.kind == "bnode":
                    own.setdefault(node, set()).add(triple)
        alike: dict[frozenset[Triple], list[Term]] = {}
        for node, triples in own.items():
            itself = frozenset(tuple(_SELF if term == node else term for term in triple) for triple in triples)
            alike.setdefault(itself, []).append(node)
        if len(alike) == len(own):
            return graph
        for first, *others in alike.values():
            if others:
                graph = graph.difference(*(own[node] for node in others))
                graph = graph | {(first, _COUNT, literal(str(1 + len(others))))}


def order_fault(rows: list[Row], query: Query) -> str:
    """Where the rows break the ORDER BY of the query, for every pair whose order is defined; '' if nowhere.

    Orders by columns that are shown; an undefined key decides nothing, so the keys behind it are not looked at.
    """
    places = {column.var: place for place, column in enumerate(query.columns)}
    for j, later in enumerate(rows):
        for i in range(j):
            for var, down in query.order_by:
                sign = order_terms(rows[i][places[var]], later[places[var]])
                if sign is None or ((sign < 0) != down and sign != 0):
                    break
                if sign != 0:
                    return f"row {i} {rows[i]!r} stands before row {j} {later!r}"
    return ""


def cut_fault(rows: list[tuple[Cell, ...]], full: list[tuple[Cell, ...]], query: Query) -> str:
    """Whether rows can be what LIMIT and OFFSET leave of the full answer; '' if so. Blank nodes are all alike here."""
    rest = max(0, len(full) - query.offset)
    expected = rest if query.limit is None else min(rest, query.limit)
    if len(rows) != expected:
        return f"{len(rows)} rows, expected {expected} of {len(full)}"
    extra = Counter(map(_erase, rows)) - Counter(map(_erase, full))
    return f"rows that are not in the full answer: {extra}" if extra else ""


def exact_cut(full: list[Row], query: Query) -> list[Row] | None:
    """The rows of the full answer that ORDER BY, OFFSET and LIMIT leave; None if the order of two rows is left open."""
    places = {column.var: place for place, column in enumerate(query.columns)}

    def sign(left: Row, right: Row) -> int:
        for var, down in query.order_by:
            found = order_terms(left[places[var]], right[places[var]])
            if found is None:
                raise Undefined(f"order of {left!r} and {right!r}")
            if found:
                return -found if down else found
        if left != right:
            raise Undefined(f"tie of {left!r} and {right!r}")
        return 0

    try:
        for i, left in enumerate(full):
            for right in full[:i]:
                sign(left, right)
    except Undefined:
        return None
    ordered = sorted(full, key=cmp_to_key(sign))[query.offset :]
    return ordered if query.limit is None else ordered[: query.limit]
