"""ORDER BY (SPARQL 1.1, 15.1), and the canonical order in which LIMIT cuts if a query has no ORDER BY.

Terms are ordered unbound < blank nodes < IRIs < literals < triple terms (these by their parts). Literals are ordered as
`<` orders them. Where `<` says nothing, they are ordered:

* by kind: numbers, date-times, dates, times, gYears and the like, durations, booleans, strings, then all others;
* NaN before all other numbers;
* a string before the language-tagged strings of the same lexical form, these by language: `"a" "a"@de "a"@en "b"`;
* gYears and the like by datatype, then by where they start; durations by length, a month taken as 30.436875 days;
* all others by datatype, then by lexical form; blank nodes by label.

Numbers are ordered by their exact values, the float64 first since it nearly always decides. `=` promotes, so a decimal
and a double (0.1 and 1.0E-1) may be equal though their exact values differ by a rounding. Such terms follow each other;
a run of them is ranked equal if each of them equals both ends of the run. Promotion makes `=` intransitive, and an
order is transitive, so `=` cannot be kept everywhere.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from wukongs.csparql.algebra import Expression
from wukongs.csparql.terms import Variable
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.expressions.exact_numbers import exact_ranks
from wukongs.query.expressions.expressions import evaluate
from wukongs.query.expressions.text_column import IRI, STRING, TextColumn
from wukongs.query.expressions.text_numbers import doubles_of_ids
from wukongs.query.limits import ITEMS_PER_CHECK, OBJECT_BYTES, current
from wukongs.query.operators.operators import project
from wukongs.query.operators.text_order import ranks_of_texts
from wukongs.query.rows import numbered, places_of, stable_order, taken
from wukongs.query.terms.temporal import EXACT
from wukongs.query.terms.value_operators import compare
from wukongs.query.terms.values import Kind, Value, to_float64, value_of
from wukongs.store.canonical import triple_parts
from wukongs.store.dtypes import Int64Array
from wukongs.store.term_ids import numeric_values
from wukongs.store.value_kernels import (
    KIND_DATE,
    KIND_DATE_LOCAL,
    KIND_DATE_TIME,
    KIND_DATE_TIME_LOCAL,
    KIND_DOUBLE,
    KIND_INTEGER,
)

Condition = tuple[Expression, bool]
"""An expression, and whether its order is descending."""

_CLASSES = {
    Kind.BLANK: 1,
    Kind.IRI: 2,
    Kind.INTEGER: 3,
    Kind.DECIMAL: 3,
    Kind.FLOAT: 3,
    Kind.DOUBLE: 3,
    Kind.DATETIME: 4,
    Kind.DATE: 5,
    Kind.TIME: 6,
    Kind.GREGORIAN: 7,
    Kind.DURATION: 8,
    Kind.BOOLEAN: 9,
    Kind.STRING: 10,
    Kind.LANG_STRING: 10,
    Kind.OPAQUE: 11,
    Kind.TRIPLE: 12,
}

ALL_ROWS = 1 << 62
"""So many rows are wanted if all are, and their order decides what is left of them."""
SORTED_AT_ONCE = 1 << 15
"""Keys; to sort so many takes some tens of milliseconds."""
_MONTH_S = 2629746
"""A twelfth of the mean Gregorian year."""


def order_by(
    table: BindingTable,
    conditions: Sequence[Condition],
    terms: TermSpace,
    rows_wanted: int | None = None,
    ties: Sequence[Int64Array] = (),
) -> BindingTable:
    """Sort rows by the conditions, the first one first. Stable: rows that are equal in all of them keep their order.

    rows_wanted: the rows after these many may be left out, so that later conditions are looked at in fewer rows.
    ties: columns by which rows are sorted that are equal in all conditions."""
    if not conditions:
        return table
    keys, left = list[Int64Array](), list(ties)
    is_cut = rows_wanted is not None and 0 < rows_wanted < table.length
    for condition in conditions:
        keys.append(_condition_ranks(condition, table, terms))
        if len(keys) == 1 and is_cut and rows_wanted is not None:
            current().hold(8 * table.length)
            kept = places_of(keys[0] <= np.partition(keys[0], rows_wanted - 1)[rows_wanted - 1])
            table, keys, left = table.take(kept), [taken(keys[0], kept)], [taken(column, kept) for column in left]
    if ties and _has_equal(keys):
        return table.take(_first_places([*keys, *left], rows_wanted))
    return table.take(stable_order(keys))


def first_distinct(
    table: BindingTable,
    variables: Sequence[Variable],
    conditions: Sequence[Condition],
    terms: TermSpace,
    rows_wanted: int,
    ties: Sequence[Int64Array],
) -> BindingTable:
    """Return the first distinct rows of some variables in the order of order_by. Others may be left out.

    Cost: a look at all rows for each condition; by ties at those that are first in their distinct row."""
    shown = project(table, variables)
    groups, firsts = numbered(shown.columns, shown.length)
    keys = [*(_condition_ranks(condition, table, terms) for condition in conditions), *ties]
    rows = np.arange(table.length, dtype=np.int64)
    for key in keys:
        current().hold(24 * len(rows))
        least, own, of = np.full(len(firsts), np.iinfo(np.int64).max), taken(key, rows), taken(groups, rows)
        np.minimum.at(least, of, own)
        rows = taken(rows, places_of(own == least[of]))
        if len(rows) == len(firsts):
            break
    firsts[groups[rows]] = rows
    return shown.take(taken(firsts, _first_places([taken(key, firsts) for key in keys], rows_wanted)))


def _has_equal(keys: Sequence[Int64Array]) -> bool:
    """Return whether two rows are equal in all keys."""
    return len(numbered(keys, len(keys[0]))[1]) < len(keys[0])


def _first_places(keys: Sequence[Int64Array], count: int | None) -> Int64Array:
    """Return the places of the first rows (count None: all) in the order of keys, the first one first.

    Cost: a look at all rows by the first key, and at those that are equal to the last one wanted by each further
    key."""
    length = len(keys[0])
    if count is None or not 0 < count < length:
        return stable_order(keys)
    sure, equal, left = list[Int64Array](), None, count
    for key in keys:
        values = key if equal is None else taken(key, equal)
        current().hold(8 * len(values))
        last = np.partition(values, left - 1)[left - 1]
        for places in (places_of(values < last), places_of(values == last)):
            sure.append(places if equal is None else taken(equal, places))
        equal = sure.pop()
        left = count - sum(map(len, sure))
        if len(equal) == left:
            break
    assert equal is not None, keys
    places = np.sort(np.concatenate([*sure, equal[:left]]))
    return taken(places, stable_order([taken(key, places) for key in keys]))


def canonical_order(table: BindingTable, rows_wanted: int | None = None) -> Int64Array:
    """Return the numbers of the rows in canonical order: by ids, the first column first. rows_wanted: those after these
    many are left out."""
    if not table.columns:
        return np.arange(table.length if rows_wanted is None else min(table.length, rows_wanted), dtype=np.int64)
    return _first_places(table.columns, rows_wanted)


def columns_by_name(table: BindingTable) -> list[Int64Array]:
    """Return the columns in the order in which they decide the canonical order of rows, whatever the plan was."""
    return [
        column for _, column in sorted(zip(table.variables, table.columns, strict=True), key=lambda pair: pair[0].name)
    ]


def canonical(table: BindingTable) -> BindingTable:
    """Return the table in an order that depends on its rows alone, not on the plan: by ids, columns by name."""
    return table.take(stable_order(columns_by_name(table))) if table.columns else table


def _condition_ranks(condition: Condition, table: BindingTable, terms: TermSpace) -> Int64Array:
    expression, is_descending = condition
    column = evaluate(expression, table, terms)
    places, firsts = numbered([column], table.length)
    distinct_ranks = ranks_of_ids(column[firsts], terms)
    return taken(-distinct_ranks if is_descending else distinct_ranks, places)


def ranks_of_ids(ids: Int64Array, terms: TermSpace) -> Int64Array:
    """Return the rank of each of some distinct ids, perhaps UNBOUND: the rank that ranks_of gives to their values.

    Where all are literals of one kind that float64 orders exactly, nothing is decoded; where all are IRIs, or all are
    strings, their bytes are compared as they are."""
    if terms.inlines and len(ids):
        kinds, values = numeric_values(ids)
        is_alike = any(np.isin(kinds, alike).all() for alike in _ORDERED_AS_FLOATS)
        if is_alike and np.abs(values).max() < _EXACT_LIMIT:
            return np.unique(values, return_inverse=True)[1]
        if (exact := exact_ranks(ids, terms)) is not None:
            return exact
    doubles = doubles_of_ids(ids, terms)
    if doubles is not None:
        return np.unique(doubles, return_inverse=True)[1]
    column = TextColumn.of_ids(ids, terms)
    if any((column.kinds == kind).all() for kind in (IRI, STRING)):
        ranks = ranks_of_texts(column.lexical)
        if ranks is None:
            ranks = np.empty(len(ids), np.int64)
            ranks[sorted_places(column.lexical.to_pylist())] = np.arange(len(ids))
        return ranks
    return np.array(ranks_of([None if text is None else value_of(text) for text in column.texts()]), np.int64)


_ORDERED_AS_FLOATS = (
    (KIND_INTEGER,),
    (KIND_DOUBLE,),
    (KIND_DATE_TIME, KIND_DATE_TIME_LOCAL),
    (KIND_DATE, KIND_DATE_LOCAL),
)
"""Kinds whose values are in order, and equal, as their float64s are: integers below _EXACT_LIMIT, doubles, and times
(microseconds are inlined for years in which float64 tells them apart)."""
_EXACT_LIMIT = 2.0**53


def sort_key(value: Value | None) -> tuple[Any, ...]:
    """Return a key under which Python's sort puts values in the order of ORDER BY ASC."""
    if value is None:
        return (0,)
    rank = _CLASSES[value.kind]
    if value.is_numeric:
        nearest = to_float64(value.number)
        # NaN compares with nothing, so it must not meet another key: (3, 0) is before every (3, 1, ...).
        return (rank, 0) if nearest != nearest else (rank, 1, nearest, value.number)
    if isinstance(value.data, tuple):
        months, seconds = value.data
        return (rank, EXACT.add(seconds, Decimal(months * _MONTH_S)), months)
    if value.kind == Kind.TRIPLE:
        return (rank, *(sort_key(value_of(part)) for part in triple_parts(str(value.data))))
    if value.kind in (Kind.OPAQUE, Kind.GREGORIAN):
        return (rank, value.datatype, value.data)
    return (rank, value.data, value.language)


def ranks_of(values: Sequence[Value | None]) -> list[int]:
    """Return the rank of each value: equal for values that ORDER BY does not tell apart."""
    limits = current()
    limits.hold(OBJECT_BYTES * len(values))
    keys = [sort_key(value) for value in limits.polled(values)]
    order = sorted_places(keys)
    ranks = [0] * len(values)
    rank, run_start = 0, -1
    for previous, place in zip([-1, *order], limits.polled(order), strict=False):
        if previous < 0 or not (_ties(keys, values, previous, place) and _ties(keys, values, run_start, place)):
            rank, run_start = rank + 1, place
        ranks[place] = rank
    return ranks


def sorted_places(keys: Sequence[Any]) -> list[int]:
    """Return the places of keys in their order, equal ones as they come. Many are sorted in pieces that are merged, so
    that the clock is looked at on the way."""
    starts = range(0, len(keys), SORTED_AT_ONCE)
    runs = [
        sorted(range(at, min(at + SORTED_AT_ONCE, len(keys))), key=keys.__getitem__) for at in current().polled(starts)
    ]
    if len(runs) <= 1:
        return runs[0] if runs else []
    merged: list[int] = []
    rest = heapq.merge(*runs, key=keys.__getitem__)
    while part := list(itertools.islice(rest, ITEMS_PER_CHECK)):
        current().check()
        merged += part
    return merged


def _ties(keys: Sequence[tuple[Any, ...]], values: Sequence[Value | None], one: int, other: int) -> bool:
    if keys[one] == keys[other]:
        return True
    first, second = values[one], values[other]
    if first is None or second is None or not (first.is_numeric and second.is_numeric):
        return False
    return compare("=", first, second) is True
