"""Triple terms and their parts (SPARQL 1.2): a term is pulled apart where rows bind it, else put together of its parts.

Each distinct term is read or made once. Parts that make no triple of RDF (a literal as its subject, a predicate that is
no IRI) make no triple term, so such rows have no solution.
"""

from __future__ import annotations

import numpy as np

from wukongs.csparql.algebra import TermOrVariable, TripleParts
from wukongs.csparql.terms import Term, Variable
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.limits import CHARACTER_BYTES, OBJECT_BYTES, Limits
from wukongs.query.operators import operators
from wukongs.query.rows import numbered
from wukongs.store.canonical import triple_parts
from wukongs.store.dtypes import UNBOUND, Int64Array

_FIRST = (frozenset("<_"), frozenset("<"), frozenset('<_"('))
"""How the canonical forms of a subject, a predicate and an object begin."""


def tied(node: TripleParts, table: BindingTable, terms: TermSpace, limits: Limits) -> BindingTable:
    """Join a triple term and its parts to rows that bind, each of them, the term or all of the parts.

    Raises QueryTimeout, BudgetExceeded."""
    if node.variable in table.variables:
        return _pulled_apart(node, table, terms, limits)
    return _put_together(node, table, terms, limits)


def _pulled_apart(node: TripleParts, table: BindingTable, terms: TermSpace, limits: Limits) -> BindingTable:
    whole, places = np.unique(table.column(node.variable), return_inverse=True)
    given = [(at, part.text) for at, part in enumerate(node.parts()) if isinstance(part, Term)]
    texts = _texts(whole, terms, limits)
    limits.hold(3 * OBJECT_BYTES * len(texts) + CHARACTER_BYTES * sum(map(len, texts)))
    split: list[tuple[str, str, str]] = []
    kept = np.full(len(whole), -1, np.int64)
    for number, text in enumerate(limits.polled(texts)):
        if not text.startswith("("):
            continue
        parts = triple_parts(text)
        if all(parts[at] == wanted for at, wanted in given):
            kept[number] = len(split)
            split.append(parts)
    rows = np.flatnonzero(kept[places] >= 0)
    table, places = table.take(rows), kept[places[rows]]
    for at, part in enumerate(node.parts()):
        if isinstance(part, Variable):
            table, places = _agreeing(part, terms.ids([parts[at] for parts in split])[places], table, places)
    return table


def _agreeing(
    part: Variable, column: Int64Array, table: BindingTable, places: Int64Array
) -> tuple[BindingTable, Int64Array]:
    """Bind a part to a column; where it is bound already, keep the rows that agree. places: taken along."""
    if part not in table.variables:
        return operators.with_column(table, part, column), places
    rows = np.flatnonzero(table.column(part) == column)
    return table.take(rows), places[rows]


def _put_together(node: TripleParts, table: BindingTable, terms: TermSpace, limits: Limits) -> BindingTable:
    variables = [part for part in node.parts() if isinstance(part, Variable)]
    assert set(variables) <= set(table.variables), f"neither {node.variable} nor all its parts in {table.variables}"
    places, firsts = numbered([table.column(variable) for variable in variables], table.length)
    columns = (
        _part_texts(part, first, table, firsts, terms, limits) for part, first in zip(node.parts(), _FIRST, strict=True)
    )
    limits.hold(OBJECT_BYTES * len(firsts))
    numbers, texts = [], []
    for number, parts in enumerate(limits.polled(list(zip(*columns, strict=True)))):
        if None not in parts:
            numbers.append(number)
            texts.append("({} {} {})".format(*parts))
    made = np.full(len(firsts), UNBOUND, np.int64)
    made[np.array(numbers, np.int64)] = terms.ids(texts)
    column = made[places]
    rows = np.flatnonzero(column != UNBOUND)
    return operators.with_column(table.take(rows), node.variable, column[rows])


def _part_texts(
    part: TermOrVariable, first: frozenset[str], table: BindingTable, rows: Int64Array, terms: TermSpace, limits: Limits
) -> list[str | None]:
    """Return the canonical form of a part in some rows, None where it cannot be that part."""
    if isinstance(part, Term):
        return [part.text if part.text[0] in first else None] * len(rows)
    distinct, places = np.unique(table.column(part)[rows], return_inverse=True)
    texts = [text if text[0] in first else None for text in _texts(distinct, terms, limits)]
    return [texts[place] for place in places.tolist()]


def _texts(ids: Int64Array, terms: TermSpace, limits: Limits) -> list[str]:
    """Return canonical forms, counted as held by the query."""
    limits.check()
    texts = terms.texts(ids)
    limits.hold(OBJECT_BYTES * len(texts) + CHARACTER_BYTES * sum(map(len, texts)))
    return texts
