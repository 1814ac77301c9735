"""Groups that are kept from firing to firing: only the rows that came and went are looked at.

* Groups are CountedRows of their keys: each has a slot in arrays as long as it has a row. Only groups that rows came
  to or went from are computed again, by kernels over ids.
* Sums are exact: int64s times a power of ten, and Python's integers once these are too small. A term that is no number
  makes the sum of its group an error, as in `aggregates.group`; it is counted, so that the sum is right again when it
  has gone. Sums of floats, doubles, durations and numbers that ids do not carry are not kept: `move` then tells so.
* The terms of groups are CountedRows, too, so that it is known which of them a group has more, or has no more. Only
  these change sums of DISTINCT. MIN, MAX and SAMPLE look for the best of a group among what came and the best before;
  among all of its terms only when that one has gone.
* Nothing is read of rows that went but their ids: their terms may be gone.

Answers are those of `aggregates.group`, in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from wukongs.csparql.algebra import Aggregate
from wukongs.query.binding_table import TermSpace
from wukongs.query.counted_rows import CountedRows, Touched, longer
from wukongs.query.expressions.frame import decoded
from wukongs.query.limits import OBJECT_BYTES, current
from wukongs.query.operators import held_groups_kernels as kernels
from wukongs.query.operators.aggregates import extremes, mean_of
from wukongs.query.plans.window_changes import Moves
from wukongs.query.terms.temporal import EXACT
from wukongs.query.terms.values import Kind, Value, computed, text_of
from wukongs.store.dtypes import UNBOUND, Int64Array
from wukongs.store.term_ids import integer_ids, is_inlined, numeric_values
from wukongs.store.value_kernels import KIND_DECIMAL, KIND_DOUBLE, KIND_FLOAT, KIND_INTEGER, KIND_NONE

Columns = tuple[int, ...]
_SUM_MAX = 2.0**62
_SCALES_MAX = 18
"""A greater power of ten is no int64."""
_DECIMAL = computed(Kind.DECIMAL, 0).datatype
_BEST = ("MIN", "MAX", "SAMPLE")
_NUMBER_KINDS = frozenset((Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE))
_ADDED_KINDS = _NUMBER_KINDS | {Kind.DURATION}
_QUOTE, _BRACKET = ord('"'), ord(">")


class _Sums:
    """The sums of a column, by slots: totals[i] / 10 ** scale; decimals: how many of the numbers are decimals; errors:
    how many terms are no numbers."""

    def __init__(self) -> None:
        self.totals: npt.NDArray[Any] = np.zeros(0, np.int64)
        self.scale = 0
        self.decimals: Int64Array = np.zeros(0, np.int64)
        self.errors: Int64Array = np.zeros(0, np.int64)
        self._size = 0.0
        """No total is greater than about that."""

    @property
    def is_short(self) -> bool:
        """Whether totals are int64s, else Python's integers."""
        return self.totals.dtype == np.int64

    @property
    def size_bytes(self) -> int:
        return (24 if self.is_short else 16 + OBJECT_BYTES) * len(self.totals)

    def take(self, slots: Int64Array) -> None:
        """Have the sums of these slots only, in their order."""
        self.totals, self.decimals, self.errors = self.totals[slots], self.decimals[slots], self.errors[slots]

    def make_room(self, room: int) -> None:
        self.decimals, self.errors = longer(self.decimals, room), longer(self.errors, room)
        self.totals = longer(self.totals, room)

    def move(self, ids: Int64Array, weights: Int64Array, slots: Int64Array, terms: TermSpace) -> bool:
        """Add (1) and take away (-1) terms; return whether that can be done exactly."""
        kinds, numerators, scales = (np.empty(len(ids), np.int64) for _ in range(3))
        with np.errstate(over="ignore"):
            scale, others = kernels.read_exact(ids, kinds, numerators, scales)
        if others and _has(_ADDED_KINDS, np.unique(ids[(kinds == KIND_NONE) & (weights > 0)]), terms):
            return False
        kernels.count_kinds(kinds, weights, slots, self.decimals, self.errors)
        scale = max(self.scale, int(scale))
        size = self._size * 10.0 ** (scale - self.scale) + kernels.sum_size(numerators, scales, scale)
        if self.is_short and (size > _SUM_MAX or scale - self.scale > _SCALES_MAX):
            self.totals = self.totals.astype(object)
        if scale > self.scale:
            self.totals *= 10 ** (scale - self.scale)
            self._size, self.scale = self._size * 10.0 ** (scale - self.scale), scale
        if self.is_short:
            greatest = kernels.add_exact(numerators, scales, weights, slots, scale, self.totals)
            self._size = max(self._size, float(greatest))
        else:
            numbers = zip(numerators.tolist(), scales.tolist(), weights.tolist(), slots.tolist(), strict=True)
            for number, digits, weight, slot in numbers:
                self.totals[slot] += weight * number * 10 ** (scale - digits)
        return True

    def values(self, slots: Int64Array) -> list[Value | None]:
        return [self._value(slot) for slot in slots.tolist()]

    def _value(self, slot: int) -> Value | None:
        if self.errors[slot]:
            return None
        total = int(self.totals[slot])
        if self.decimals[slot]:
            return computed(Kind.DECIMAL, EXACT.scaleb(Decimal(total), -self.scale))
        return computed(Kind.INTEGER, total // 10**self.scale)


class _Terms:
    """The distinct terms that each slot has in a column, or its distinct rows of columns. is_ordered: whether the best
    of them is asked for."""

    def __init__(self, column_count: int) -> None:
        self.is_ordered = False
        self._entries = CountedRows(1 + column_count)
        self._kinds: set[int] = set()
        """The kinds of the numbers that have come: one at most, since the order among several may hang on what else is
        there."""
        self.distinct: Int64Array = np.zeros(0, np.int64)
        """How many terms each slot has, UNBOUND among them."""
        self.unbound: Int64Array = np.zeros(0, np.int64)
        """1 for a slot that has UNBOUND."""
        self._heads: Int64Array = np.zeros(0, np.int64)
        self._nexts: Int64Array = np.zeros(0, np.int64)
        self._lasts: Int64Array = np.zeros(0, np.int64)
        self._changed: Int64Array = np.empty((2, 0), np.int64)
        """Entries that the last move has brought (1) and taken (-1)."""

    @property
    def size_bytes(self) -> int:
        return self._entries.size_bytes + 24 * len(self.distinct) + 16 * len(self._nexts)

    def take(self, slots: Int64Array) -> None:
        """Do as _Sums.take."""
        numbers = np.full(len(self.distinct), -1, np.int64)
        numbers[slots] = np.arange(len(slots))
        held, entries = self._entries, self._entries.slots()
        rows = held.keys[entries]
        rows[:, 0] = numbers[rows[:, 0]]
        self._entries = CountedRows(rows.shape[1])
        self._entries.move(rows, held.counts[entries])
        self.distinct, self.unbound = self.distinct[slots], self.unbound[slots]
        self._link_all()

    def make_room(self, room: int) -> None:
        had = len(self.distinct)
        self.distinct, self.unbound = longer(self.distinct, room), longer(self.unbound, room)
        self._heads = longer(self._heads, room)
        self._heads[had:] = -1

    def move(
        self, rows: Int64Array, columns: Columns, weights: Int64Array, slots: Int64Array, terms: TermSpace
    ) -> bool:
        """Take over the rows that came (1) and went (-1); return whether the order of the terms hangs on nothing
        else."""
        if self._entries.is_roomy(int(np.count_nonzero(weights > 0))):
            self._entries.compact()
            self._link_all()
        pairs = np.empty((len(rows), 1 + len(columns)), np.int64)
        pairs[:, 0] = slots
        for place, column in enumerate(columns, 1):
            pairs[:, place] = rows[:, column]
        found, keys = self._entries.move(pairs, weights), self._entries.keys
        changed = np.empty((2, len(found.slots)), np.int64)
        moved = found.slots, found.before, found.after
        count = kernels.count_terms(keys, *moved, self.distinct, self.unbound, changed)
        self._changed = changed[:, :count]
        if not self.is_ordered:
            return True
        self._fit_links()
        entries, signs = self._changed
        kernels.link(keys, entries, signs, self._heads, self._nexts, self._lasts)
        return self._is_of_one_kind(np.unique(keys[entries[signs > 0], 1]), terms)

    def changes(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return the terms that slots have more (1) and less (-1) since the last move: (terms, these, slots)."""
        keys = self._entries.keys[self._changed[0]]
        return np.ascontiguousarray(keys[:, 1]), self._changed[1], np.ascontiguousarray(keys[:, 0])

    def renew_best(self, name: str, results: Int64Array, terms: TermSpace) -> None:
        """Find the best terms of the slots that have other terms than before."""
        skips = np.zeros_like(self.unbound) if name == "SAMPLE" else self.unbound
        entries, signs = self._changed
        groups, ids, numbers = kernels.candidates(
            self._entries.keys, entries, signs, self._heads, self._nexts, self.distinct, results, skips
        )
        if len(ids):
            results[groups] = extremes("MAX" if name == "MAX" else "MIN", ids, numbers, len(groups), terms)
        else:
            results[groups] = UNBOUND

    def _is_of_one_kind(self, ids: Int64Array, terms: TermSpace) -> bool:
        kinds, _ = numeric_values(ids)
        self._kinds.update({KIND_INTEGER} if np.isin(kinds, (KIND_INTEGER, KIND_DECIMAL)).any() else ())
        self._kinds.update({KIND_DOUBLE} if (kinds == KIND_DOUBLE).any() else ())
        return len(self._kinds) <= 1 and not _has(_NUMBER_KINDS, ids[np.isin(kinds, (KIND_NONE, KIND_FLOAT))], terms)

    def _fit_links(self) -> None:
        if len(self._nexts) != self._entries.room:
            room = self._entries.room
            self._nexts, self._lasts = longer(self._nexts, room), longer(self._lasts, room)

    def _link_all(self) -> None:
        self._heads = np.full(len(self.distinct), -1, np.int64)
        self._nexts = self._lasts = np.zeros(0, np.int64)
        if self.is_ordered:
            self._fit_links()
            entries = self._entries.slots()
            signs = np.ones(len(entries), np.int64)
            kernels.link(self._entries.keys, entries, signs, self._heads, self._nexts, self._lasts)


class HeldGroups:
    """The groups of one query. keys, columns: of the rows, those of the keys, and of the argument of each aggregate:
    none for COUNT(*), all that are told apart for COUNT(DISTINCT *)."""

    def __init__(self, keys: Sequence[int], aggregates: Sequence[Aggregate], columns: Sequence[Columns]) -> None:
        self._keys, self._aggregates, self._columns = list(keys), aggregates, columns
        self._taken: int | None = None
        """The number of the last move, None if it has not come to its end."""
        self.rows_before: tuple[Int64Array, ...] | None = None
        """The rows that the groups of the last move had before, if they are noted."""
        self._slots_after: Int64Array = np.empty(0, np.int64)
        self.clear()

    @staticmethod
    def is_for(aggregates: Sequence[Aggregate]) -> bool:
        """Tell whether these aggregates can be kept."""
        return all(map(_is_kept, aggregates))

    def clear(self) -> None:
        """Have no row."""
        self._taken, self.rows_before = None, None
        self._groups = CountedRows(len(self._keys))
        self._room = 0
        """Slots that the arrays have."""
        self._results: Int64Array = np.zeros((len(self._aggregates), 0), np.int64)
        self._texts: list[dict[int, str]] = [{} for _ in self._aggregates]
        """The results of each aggregate that ids do not carry, by slots."""
        self._sums: dict[tuple[Columns, bool], _Sums] = {}
        self._terms: dict[Columns, _Terms] = {}
        self._bound: dict[Columns, Int64Array] = {}
        for one, columns in zip(self._aggregates, self._columns, strict=True):
            if one.distinct or one.name in _BEST:
                terms = self._terms.setdefault(columns, _Terms(len(columns)))
                terms.is_ordered |= one.name in _BEST
            elif one.name == "COUNT" and columns:
                self._bound[columns] = np.zeros(0, np.int64)
            if one.name in ("SUM", "AVG"):
                self._sums[columns, one.distinct] = _Sums()

    @property
    def _parts(self) -> list[_Sums | _Terms]:
        return [*self._sums.values(), *self._terms.values()]

    @property
    def count(self) -> int:
        """Groups that have a row."""
        return self._groups.count

    @property
    def touched(self) -> int:
        """Groups that the last move has touched, and that have a row."""
        return len(self._slots_after)

    @property
    def size_bytes(self) -> int:
        """About what it holds."""
        arrays = 8 * self._room * (len(self._aggregates) + len(self._bound))
        texts = OBJECT_BYTES * sum(map(len, self._texts))
        return self._groups.size_bytes + arrays + texts + sum(part.size_bytes for part in self._parts)

    def follows(self, moves: Moves) -> bool:
        """Return whether moves can be taken over: they bring all rows, or the move before was taken over as a whole."""
        return moves.is_anew or self._taken == moves.number - 1

    def move(self, moves: Moves, terms: TermSpace, notes_before: bool = False) -> bool:
        """Take over the rows that came and went; return whether that can be done exactly, else it is of no use any
        more. Raises QueryTimeout, BudgetExceeded.

        moves: for which `follows` holds; notes_before: note the rows that groups have had, unless all come anew."""
        assert self.follows(moves), (self._taken, moves.number)
        self._taken, self.rows_before = None, None
        if moves.is_anew:
            self.clear()
        if self._keys or any(self._columns):
            rows = np.concatenate((moves.inserted, moves.deleted))
        else:
            rows = np.empty((len(moves), 0), np.int64)
        if len(rows):
            weights = moves.weights
            if self._groups.is_roomy(len(moves.inserted)):
                self._compact()
            touched = self._groups.move(rows[:, self._keys], weights)
            self._make_room()
            self._slots_after = touched.slots[touched.after > 0]
            if notes_before and not moves.is_anew:
                self.rows_before = self._rows_of(touched.slots[touched.before > 0], terms)
            if not self._take(rows, weights, touched, terms):
                return False
            current().hold(self.size_bytes)
        elif notes_before and not moves.is_anew:
            self._slots_after = np.empty(0, np.int64)
            self.rows_before = self._rows_of(self._slots_after, terms)
        self._taken = moves.number
        return True

    def _compact(self) -> None:
        """Give back the room of groups that have gone."""
        slots = self._groups.compact()
        for part in self._parts:
            part.take(slots)
        self._results, self._room = np.ascontiguousarray(self._results[:, slots]), len(slots)
        self._bound = {columns: counts[slots] for columns, counts in self._bound.items()}
        places = {slot: place for place, slot in enumerate(slots.tolist())}
        self._texts = [{places[slot]: text for slot, text in texts.items()} for texts in self._texts]

    def _make_room(self) -> None:
        """Have all arrays as long as those of the groups."""
        room = self._groups.room
        if room > self._room:
            self._room = room
            self._results = np.ascontiguousarray(longer(self._results.T, room).T)
            self._bound = {columns: longer(counts, room) for columns, counts in self._bound.items()}
            for part in self._parts:
                part.make_room(room)

    def _take(self, rows: Int64Array, weights: Int64Array, touched: Touched, terms: TermSpace) -> bool:
        slots = touched.of_rows
        self._results[:, touched.slots[touched.before == 0]] = UNBOUND
        for columns, counts in self._bound.items():
            kernels.count_bound(np.ascontiguousarray(rows[:, columns[0]]), weights, slots, counts)
        if not all(one.move(rows, columns, weights, slots, terms) for columns, one in self._terms.items()):
            return False
        for (columns, is_distinct), sums in self._sums.items():
            changes = np.ascontiguousarray(rows[:, columns[0]]), weights, slots
            if not sums.move(*(self._terms[columns].changes() if is_distinct else changes), terms):
                return False
        here = touched.slots[touched.after > 0]
        for number, (aggregate, columns) in enumerate(zip(self._aggregates, self._columns, strict=True)):
            self._renew(number, aggregate, columns, here, terms)
        gone = touched.slots[touched.after == 0].tolist()
        for texts in self._texts:
            for slot in gone if texts else ():
                texts.pop(slot, None)
        return True

    def _renew(self, number: int, aggregate: Aggregate, columns: Columns, slots: Int64Array, terms: TermSpace) -> None:
        """Compute an aggregate again in some slots, which have rows."""
        results = self._results[number]
        if aggregate.name in _BEST:
            self._terms[columns].renew_best(aggregate.name, results, terms)
        elif aggregate.name != "COUNT":
            self._renew_sums(number, aggregate, columns, slots)
        elif not aggregate.distinct:
            results[slots] = integer_ids((self._bound[columns] if columns else self._groups.counts)[slots])
        else:
            held = self._terms[columns]
            has_rows = aggregate.argument is None
            results[slots] = integer_ids(held.distinct[slots] - (0 if has_rows else held.unbound[slots]))

    def _renew_sums(self, number: int, aggregate: Aggregate, columns: Columns, slots: Int64Array) -> None:
        sums, is_mean = self._sums[columns, aggregate.distinct], aggregate.name == "AVG"
        counts = self._terms[columns].distinct if aggregate.distinct else self._groups.counts
        if not sums.is_short:
            ids = np.full(len(slots), kernels.NOT_INLINED, np.int64)
        else:
            with np.errstate(over="ignore"):
                if is_mean:
                    ids = kernels.mean_ids(sums.totals, sums.scale, counts, sums.errors, slots)
                else:
                    ids = kernels.sum_ids(sums.totals, sums.scale, sums.decimals, sums.errors, slots)
        self._results[number][slots] = ids
        held, rest = self._texts[number], slots[ids == kernels.NOT_INLINED]
        for slot in slots.tolist() if held else ():
            held.pop(slot, None)
        if is_mean and sums.is_short and len(rest):
            text = kernels.write_means(sums.totals, sums.scale, counts, rest).tobytes().decode()
            held.update(zip(rest.tolist(), [f'"{one}"^^<{_DECIMAL}>' for one in text.split()], strict=True))
        elif len(rest):
            values = sums.values(rest)
            if is_mean:
                values = [mean_of(one, count) for one, count in zip(values, counts[rest].tolist(), strict=True)]
            known = zip(rest.tolist(), values, strict=True)
            self._results[number][rest] = UNBOUND
            held.update((slot, text_of(value)) for slot, value in known if value is not None)

    def columns(self, terms: TermSpace) -> tuple[Int64Array, ...]:
        """Return the keys and the results of all groups."""
        return self._rows_of(self._groups.slots(), terms)

    def rows_after(self, terms: TermSpace) -> tuple[Int64Array, ...]:
        """Return the rows that the groups of the last move have, as `columns` does."""
        return self._rows_of(self._slots_after, terms)

    def _rows_of(self, slots: Int64Array, terms: TermSpace) -> tuple[Int64Array, ...]:
        current().hold(16 * len(slots) * (len(self._keys) + len(self._aggregates)))
        for number, texts in enumerate(self._texts):
            wanted = texts
            if len(slots) < len(texts):  # few groups have changed, and many have results without ids of their own
                wanted = {slot: texts[slot] for slot in slots.tolist() if slot in texts}
            if wanted:
                places, ids = np.array(list(wanted), np.int64), terms.ids(list(wanted.values()))
                self._results[number, places] = ids
                for slot in places[is_inlined(ids)].tolist():
                    del texts[slot]
        return (*np.ascontiguousarray(self._groups.keys[slots].T), *self._results[:, slots])


def _has(wanted: frozenset[Kind], ids: Int64Array, terms: TermSpace) -> bool:
    """Tell whether one of some distinct ids, none of them an inlined integer or decimal, has a value of some kinds,
    numbers among them."""
    is_held = is_inlined(ids)
    if np.isin(numeric_values(ids[is_held])[0], (KIND_FLOAT, KIND_DOUBLE)).any():
        return True
    others = ids[~is_held & (ids != UNBOUND)]
    if not len(others):
        return False
    text, offsets = terms.gather(others)
    is_typed = (text[offsets[:-1]] == _QUOTE) & (text[offsets[1:] - 1] == _BRACKET)
    return any(value is not None and value.kind in wanted for value in decoded(others[is_typed], terms))


def _is_kept(aggregate: Aggregate) -> bool:
    return aggregate.argument is None or aggregate.name in ("COUNT", "SUM", "AVG", *_BEST)
