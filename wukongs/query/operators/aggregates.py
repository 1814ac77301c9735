"""GROUP BY and the aggregates (SPARQL 1.1, 18.5.1).

* An unbound key is a key like any other. Without keys all rows are one group, also when there are none.
* COUNT skips rows whose expression is an error or unbound, SAMPLE looks for one that is not; for all other aggregates
  one such row makes the result of its group an error, so it is unbound.
* SUM and AVG give the type that numeric promotion gives, or that of durations (XPath's fn:sum, fn:avg). Integers and
  decimals are added exactly. Floats and doubles are added exactly too and rounded once, so the answer does not depend
  on the order of rows.
* MIN and MAX go by ORDER BY (ordering.py), and take the first by canonical text among terms that it does not tell
  apart. SAMPLE takes the first term in that order, GROUP_CONCAT joins the values of STR in it. So none of these depends
  on the order of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from wukongs.csparql.algebra import Aggregate
from wukongs.csparql.terms import Variable
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.expressions.exact_numbers import ExactNumbers
from wukongs.query.expressions.expressions import evaluate
from wukongs.query.expressions.frame import decoded
from wukongs.query.expressions.text_numbers import doubles_of_ids
from wukongs.query.limits import CHARACTER_BYTES, OBJECT_BYTES, current
from wukongs.query.operators.ordering import ranks_of_ids, sorted_places
from wukongs.query.rows import group_members, numbered, pieces, places_of, stable_order, taken
from wukongs.query.terms.decoding import CELL_BYTES, texts_of
from wukongs.query.terms.temporal import EXACT
from wukongs.query.terms.value_operators import arithmetic, duration_sum, promoted
from wukongs.query.terms.values import Kind, Value, computed, string, text_of, to_float32
from wukongs.store.dtypes import UNBOUND, Int64Array
from wukongs.store.term_ids import integer_ids

_ZERO = computed(Kind.INTEGER, 0)


def group(
    table: BindingTable,
    keys: Sequence[Variable],
    aggregates: Sequence[tuple[Variable, Aggregate]],
    terms: TermSpace,
) -> BindingTable:
    """Return one row per group: its keys, then its aggregates under their variables; groups by first occurrence."""
    groups, firsts = numbered([table.column(key) for key in keys], table.length)
    group_count = len(firsts) if keys else 1
    columns = [taken(table.column(key), firsts) for key in keys]
    columns += [_aggregate(aggregate, table, groups, group_count, terms) for _, aggregate in aggregates]
    return BindingTable((*keys, *(variable for variable, _ in aggregates)), tuple(columns), group_count)


def _aggregate(
    aggregate: Aggregate, table: BindingTable, groups: Int64Array, group_count: int, terms: TermSpace
) -> Int64Array:
    """Return the id of an aggregate's result in each group."""
    if aggregate.argument is None:
        return _integer_ids(_count_rows(aggregate, table, groups, group_count), terms)
    ids = evaluate(aggregate.argument, table, terms)
    if aggregate.distinct:
        _, firsts = numbered([groups, ids], table.length)
        groups, ids = taken(groups, firsts), taken(ids, firsts)
    if aggregate.name == "COUNT":
        known = taken(groups, places_of(ids != UNBOUND))
        return _integer_ids(np.bincount(known, minlength=group_count), terms)
    if aggregate.name in ("MIN", "MAX"):
        return extremes(aggregate.name, ids, groups, group_count, terms)
    current().hold(OBJECT_BYTES * group_count)  # the results
    offsets, members = group_members(groups, group_count)
    places, firsts = numbered([ids], len(ids))
    if aggregate.name in ("SUM", "AVG") and terms.inlines and (offsets[1:] > offsets[:-1]).all():
        totals = _totals(ids[firsts], taken(places, members), offsets, terms)
        if totals is not None:
            counts = np.diff(offsets).tolist()
            return _value_ids(totals if aggregate.name == "SUM" else list(map(mean_of, totals, counts)), terms)
    distinct = _Distinct(ids[firsts], terms, decoded(ids[firsts], terms), places)
    function = _FUNCTIONS[aggregate.name]
    results: list[Value | None] = []
    limits = current()
    limits.operator = aggregate.name
    for number in limits.polled(range(group_count)):
        before = limits.held
        places = taken(distinct.places, members[offsets[number] : offsets[number + 1]])
        results.append(function(aggregate, distinct, places))
        limits.give_back(limits.held - before)
    return _value_ids(results, terms)


def extremes(name: str, ids: Int64Array, groups: Int64Array, group_count: int, terms: TermSpace) -> Int64Array:
    """Return MIN or MAX in each group: the id of the least or greatest term; UNBOUND for a group with an error, or no
    row."""
    places, firsts = numbered([ids], len(ids))
    distinct = ids[firsts]
    ranks = _strict_ranks(distinct, terms, is_descending=name == "MAX")
    best = np.full(group_count, len(distinct), np.int64)
    np.minimum.at(best, groups, taken(ranks, places))
    by_rank = np.full(len(distinct) + 1, UNBOUND, np.int64)
    by_rank[ranks] = distinct
    found = by_rank[best]  # of a group without a row: the last, UNBOUND
    found[taken(groups, places_of(ids == UNBOUND))] = UNBOUND
    return found


def _strict_ranks(distinct: Int64Array, terms: TermSpace, *, is_descending: bool) -> Int64Array:
    """Return the place of each of some distinct ids in the order of ORDER BY, ties by canonical text."""
    by_order = ranks_of_ids(distinct, terms)
    by_order = -by_order if is_descending else by_order
    order = stable_order([by_order])
    if len(order) and (np.diff(by_order[order]) == 0).any():
        texts = texts_of(distinct, terms)
        keys = [(rank, text or "") for rank, text in zip(by_order.tolist(), texts, strict=True)]
        order = np.array(sorted_places(keys), np.int64)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _count_rows(aggregate: Aggregate, table: BindingTable, groups: Int64Array, group_count: int) -> Int64Array:
    """COUNT(*) and COUNT(DISTINCT *); blank nodes of the pattern are no part of a solution."""
    if aggregate.distinct:
        named = [variable for variable in table.variables if not variable.is_blank]
        _, firsts = numbered([groups, *(table.column(variable) for variable in named)], table.length)
        groups = taken(groups, firsts)
    return np.bincount(groups, minlength=group_count)


def _integer_ids(numbers: Int64Array, terms: TermSpace) -> Int64Array:
    if terms.inlines:
        return integer_ids(numbers)
    distinct, places = np.unique(numbers, return_inverse=True)
    return _value_ids([computed(Kind.INTEGER, number) for number in distinct.tolist()], terms)[places]


def _totals(
    distinct: Int64Array, places: Int64Array, offsets: Int64Array, terms: TermSpace
) -> list[Value | None] | None:
    """Return the sums of the numbers with these ids at places[offsets[i]:offsets[i + 1]], where all are integers and
    decimals, or all are doubles; None for other ids."""
    if (exact := ExactNumbers.of_ids(distinct, len(places), terms)) is not None:
        return [*exact.sums(places, offsets)]
    doubles = doubles_of_ids(distinct, terms)
    if doubles is None:
        return None
    limits = current()
    limits.hold(CELL_BYTES * len(places))
    rows, bounds = doubles[places], offsets.tolist()
    groups = limits.polled(range(len(bounds) - 1))
    return [computed(Kind.DOUBLE, _sum_of_floats(rows[bounds[at] : bounds[at + 1]].tolist())) for at in groups]


def mean_of(total: Value | None, count: int) -> Value | None:
    """Divide a sum, None for an error, by a count above 0."""
    if total is not None and total.kind == Kind.DOUBLE:
        return computed(Kind.DOUBLE, float(total.number) / count)  # as arithmetic does, in a tenth of the time
    return None if total is None else arithmetic("/", total, computed(Kind.INTEGER, count))


def _value_ids(values: Sequence[Value | None], terms: TermSpace) -> Int64Array:
    ids = np.full(len(values), UNBOUND, np.int64)
    current().hold(OBJECT_BYTES * len(values))
    known = [place for place, value in enumerate(values) if value is not None]
    if known:
        ids[known] = terms.ids([text_of(value) for value in values if value is not None])
    return ids


# --- the aggregates of one group --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Distinct:
    """The distinct values of an aggregate's argument, None for an error, and the place of each row's value; ids: of
    these values."""

    ids: Int64Array
    terms: TermSpace
    values: list[Value | None]
    places: Int64Array
    _ranks: Int64Array | None = None

    def known(self, places: Int64Array) -> list[Value] | None:
        """Return the values at these places; None if one of them is an error."""
        limits = current()
        limits.hold(CELL_BYTES * len(places))
        values: list[Value] = []
        for start, stop in pieces(len(places), limits):
            values += [value for place in places[start:stop].tolist() if (value := self.values[place]) is not None]
        return values if len(values) == len(places) else None

    def ranks(self) -> Int64Array:
        """Return the place of each value in the order of ORDER BY, ties by canonical text: no two are equal."""
        if self._ranks is None:
            self._ranks = _strict_ranks(self.ids, self.terms, is_descending=False)
        return self._ranks


_Function = Callable[[Aggregate, _Distinct, Int64Array], Value | None]


def _sum(_: Aggregate, distinct: _Distinct, places: Int64Array) -> Value | None:
    values = distinct.known(places)
    return None if values is None else sum_of(values)


def _avg(aggregate: Aggregate, distinct: _Distinct, places: Int64Array) -> Value | None:
    if not len(places):
        return _ZERO
    return mean_of(_sum(aggregate, distinct, places), len(places))


def sum_of(values: Sequence[Value]) -> Value | None:
    """Add numbers, or durations; None if one is neither, or both are there. No value at all is the integer 0."""
    if values and all(value.kind == Kind.DURATION for value in values):
        return duration_sum(values)
    if not all(value.is_numeric for value in values):
        return None
    kind = max((value.kind for value in values), default=Kind.INTEGER)
    if kind == Kind.INTEGER:
        return computed(kind, sum(int(value.number) for value in values))
    if kind == Kind.DECIMAL:
        total = Decimal(0)
        for value in values:
            total = EXACT.add(total, Decimal(value.number))
        return computed(kind, total)
    floats = _sum_of_floats([float(promoted(value, kind)) for value in values])
    return computed(kind, to_float32(floats) if kind == Kind.FLOAT else floats)


def _sum_of_floats(floats: list[float]) -> float:
    try:
        return math.fsum(floats)
    except (OverflowError, ValueError):
        # Beyond the range of doubles on the way, or infinities of both signs: as the operator + does it.
        return sum(sorted(floats))


def _sample(_: Aggregate, distinct: _Distinct, places: Int64Array) -> Value | None:
    known = [place for place in places.tolist() if distinct.values[place] is not None]
    return distinct.values[min(known, key=distinct.ranks().__getitem__)] if known else None


def _group_concat(aggregate: Aggregate, distinct: _Distinct, places: Int64Array) -> Value | None:
    values = distinct.known(places)
    if values is None or any(value.kind in (Kind.BLANK, Kind.TRIPLE) for value in values):
        return None
    limits = current()
    size = sum(len(value.lexical) for value in limits.polled(values)) + len(aggregate.separator) * len(values)
    limits.hold(CHARACTER_BYTES * size, "GROUP_CONCAT")
    ranks = distinct.ranks()[places]
    lexicals = [values[place].lexical for place in limits.polled(stable_order([ranks]).tolist())]
    return string(aggregate.separator.join(lexicals))


_FUNCTIONS: dict[str, _Function] = {
    "SUM": _sum,
    "AVG": _avg,
    "SAMPLE": _sample,
    "GROUP_CONCAT": _group_concat,
}
