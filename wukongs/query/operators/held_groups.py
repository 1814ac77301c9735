"""Groups that are kept from firing to firing: only the rows that came and went are looked at.

* A group has a slot in arrays, as long as it has a row. Only groups that rows came to or went from are computed again.
* Sums are exact integers. A term that is no number makes the sum of its group an error, as in `aggregates.group`; it is
  counted, so that the sum is right again when it has gone. Sums of floats, doubles and numbers that ids do not carry
  are not kept: `move` then tells so.
* MIN, MAX, SAMPLE and COUNT(DISTINCT) know how often each group has each term. The best of a group is looked for among
  what came and the best before; among all of its terms only when that one has gone.
* Nothing is read of rows that went but their ids: their terms may be gone.

Answers are those of `aggregates.group`, in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np

from wukongs.csparql.algebra import Aggregate
from wukongs.query.binding_table import TermSpace
from wukongs.query.expressions.exact_numbers import ExactNumbers
from wukongs.query.expressions.frame import decoded
from wukongs.query.limits import OBJECT_BYTES, current
from wukongs.query.operators.aggregates import extremes, mean_of
from wukongs.query.plans.deltas import Moves
from wukongs.query.rows import numbered
from wukongs.query.terms.temporal import EXACT
from wukongs.query.terms.values import Kind, Value, computed, text_of
from wukongs.store.dtypes import UNBOUND, Int64Array
from wukongs.store.term_ids import integer_ids, is_inlined, numeric_values
from wukongs.store.value_kernels import KIND_DECIMAL, KIND_DOUBLE, KIND_FLOAT, KIND_INTEGER, KIND_NONE

SLOTS_MIN = 16
_EXACT_KINDS = (KIND_INTEGER, KIND_DECIMAL)
_BEST = ("MIN", "MAX", "SAMPLE")


@dataclass(slots=True)
class _Sums:
    """The sums of a column, by slots: totals[i] / 10 ** scale; decimals: how many of the numbers are decimals; errors:
    how many terms are no numbers."""

    totals: list[int] = field(default_factory=list)
    scale: int = 0
    decimals: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    errors: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def value(self, slot: int) -> Value | None:
        if self.errors[slot]:
            return None
        if self.decimals[slot]:
            return computed(Kind.DECIMAL, EXACT.scaleb(Decimal(self.totals[slot]), -self.scale))
        return computed(Kind.INTEGER, self.totals[slot] // 10**self.scale)

    def move(self, ids: Int64Array, signs: Int64Array, slots: Int64Array, terms: TermSpace) -> bool:
        """Add (1) and take away (-1) terms; return whether that can be done exactly."""
        is_exact = np.isin(numeric_values(ids)[0], _EXACT_KINDS)
        others = np.unique(ids[~is_exact & (signs > 0)])
        if any(value is not None and value.is_numeric for value in decoded(others, terms)):
            return False
        np.add.at(self.errors, slots[~is_exact], signs[~is_exact])
        if not is_exact.any():
            return True
        ids, signs, slots = ids[is_exact], signs[is_exact], slots[is_exact]
        places, firsts = numbered([ids], len(ids))
        exact = ExactNumbers.of_ids(ids[firsts], len(ids))
        if exact is None:
            return False
        np.add.at(self.decimals, slots, signs * exact.is_decimal[places])
        touched, numbers = np.unique(slots, return_inverse=True)
        changes = np.zeros(len(touched), np.int64)
        np.add.at(changes, numbers, signs * exact.scaled[places])
        if exact.scale > self.scale:
            longer = 10 ** (exact.scale - self.scale)
            self.totals, self.scale = [total * longer for total in self.totals], exact.scale
        factor = 10 ** (self.scale - exact.scale)
        for slot, change in zip(touched.tolist(), changes.tolist(), strict=True):
            self.totals[slot] += change * factor
        return True


@dataclass(slots=True)
class _Terms:
    """How often each slot has each term of a column. kinds: of the numbers that have come, of one kind at most, since
    the order among several may hang on what else is there; size: terms of all slots."""

    counts: list[dict[int, int]] = field(default_factory=list)
    kinds: set[int] = field(default_factory=set)
    size: int = 0
    came: dict[int, list[int]] = field(default_factory=dict)
    """The terms that slots have since the last move."""
    changed: set[int] = field(default_factory=set)
    """The slots that have other terms since then."""

    def move(self, ids: Int64Array, signs: Int64Array, slots: Int64Array, terms: TermSpace) -> bool:
        """Do as _Sums.move; return whether the order of the terms hangs on nothing else."""
        distinct = np.unique(ids[signs > 0])
        kinds, _ = numeric_values(distinct)
        self.kinds.update({KIND_INTEGER} if np.isin(kinds, _EXACT_KINDS).any() else ())
        self.kinds.update({KIND_DOUBLE} if (kinds == KIND_DOUBLE).any() else ())
        unknown = distinct[np.isin(kinds, (KIND_NONE, KIND_FLOAT))]
        if any(value is not None and value.is_numeric for value in decoded(unknown, terms)) or len(self.kinds) > 1:
            return False
        numbers, firsts = numbered([slots, ids], len(ids))
        changes = np.bincount(numbers, weights=signs, minlength=len(firsts)).astype(np.int64)
        self.came, self.changed = {}, set()
        for slot, term, change in zip(slots[firsts].tolist(), ids[firsts].tolist(), changes.tolist(), strict=True):
            counts = self.counts[slot]
            before = counts.get(term, 0)
            if before + change:
                counts[term] = before + change
                if not before:
                    self.came.setdefault(slot, []).append(term)
                    self.changed.add(slot)
            elif before:
                del counts[term]
                self.changed.add(slot)
            self.size += bool(before + change) - bool(before)
        return True


class HeldGroups:
    """The groups of one query. keys, columns: of the rows, those of the keys, and of the argument of each aggregate."""

    def __init__(self, keys: Sequence[int], aggregates: Sequence[Aggregate], columns: Sequence[int | None]) -> None:
        self._keys, self._aggregates, self._columns = list(keys), aggregates, columns
        self.is_whole = False
        """Whether the last move came to its end: if not, the next one has to bring all rows."""
        self._clear()

    @staticmethod
    def is_for(aggregates: Sequence[Aggregate]) -> bool:
        """Tell whether these aggregates can be kept."""
        return all(map(_is_kept, aggregates))

    def _clear(self) -> None:
        pairs = zip(self._columns, self._aggregates, strict=True)
        names = [(column, one) for column, one in pairs if column is not None]
        self._slots: dict[tuple[int, ...], int] = {}
        self._free: list[int] = []
        self._rows: Int64Array = np.zeros(0, np.int64)
        self._key_rows: Int64Array = np.zeros((0, len(self._keys)), np.int64)
        self._results: Int64Array = np.zeros((0, len(self._aggregates)), np.int64)
        self._texts: list[dict[int, str]] = [{} for _ in self._aggregates]
        """The results of each aggregate that ids do not carry, by slots."""
        self._sums = {column: _Sums() for column, one in names if one.name in ("SUM", "AVG")}
        self._terms = {
            column: _Terms() for column, one in names if one.name in _BEST or (one.name == "COUNT" and one.distinct)
        }
        self._bound = {column: np.zeros(0, np.int64) for column, one in names if one.name == "COUNT"}

    @property
    def count(self) -> int:
        """Groups that have a row."""
        return len(self._slots)

    @property
    def size_bytes(self) -> int:
        """About what it holds."""
        per_slot = 8 * (1 + len(self._keys) + len(self._aggregates) + 3 * len(self._sums) + len(self._bound))
        held = sum(map(len, self._texts)) + sum(terms.size for terms in self._terms.values()) + self.count
        return per_slot * len(self._rows) + OBJECT_BYTES * held

    def move(self, moves: Moves, terms: TermSpace) -> bool:
        """Take over the rows that came and went; return whether that can be done exactly, else it is of no use any
        more. Raises QueryTimeout, BudgetExceeded."""
        self.is_whole = False
        if moves.is_anew:
            self._clear()
        rows = np.concatenate((moves.came, moves.went))
        if len(rows):
            signs = np.ones(len(rows), np.int64)
            signs[len(moves.came) :] = -1
            slots = self._slots_of(rows)
            if not self._take(rows, signs, slots, terms):
                return False
            current().hold(self.size_bytes)
        self.is_whole = True
        return True

    def _slots_of(self, rows: Int64Array) -> Int64Array:
        """Return the slot of each row; those of new groups are made."""
        numbers, firsts = numbered([rows[:, key] for key in self._keys], len(rows))
        keys = rows[firsts][:, self._keys]
        self._make_room(len(firsts))
        found = np.empty(len(firsts), np.int64)
        for at, key in enumerate(map(tuple, keys.tolist())):
            slot = self._slots.get(key)
            if slot is None:
                slot = self._slots[key] = self._free.pop()
                self._key_rows[slot] = keys[at]
            found[at] = slot
        return found[numbers]

    def _make_room(self, count: int) -> None:
        """Have slots for so many new groups."""
        if len(self._free) >= count:
            return
        had = len(self._rows)
        more = max(SLOTS_MIN, had, count)
        self._free += range(had + more - 1, had - 1, -1)
        self._rows = _longer(self._rows, more)
        self._key_rows, self._results = _longer(self._key_rows, more), _longer(self._results, more)
        self._bound = {column: _longer(counts, more) for column, counts in self._bound.items()}
        for sums in self._sums.values():
            sums.totals += [0] * more
            sums.decimals, sums.errors = _longer(sums.decimals, more), _longer(sums.errors, more)
        for one in self._terms.values():
            one.counts += [{} for _ in range(more)]

    def _take(self, rows: Int64Array, signs: Int64Array, slots: Int64Array, terms: TermSpace) -> bool:
        touched = np.unique(slots)
        is_old = self._rows[touched] > 0
        np.add.at(self._rows, slots, signs)
        columns = {column: np.ascontiguousarray(rows[:, column]) for column in self._columns if column is not None}
        for place, counts in self._bound.items():
            np.add.at(counts, slots, signs * (columns[place] != UNBOUND))
        held: list[tuple[int, _Sums | _Terms]] = [*self._sums.items(), *self._terms.items()]
        if not all(one.move(columns[place], signs, slots, terms) for place, one in held):
            return False
        old, new = set(touched[is_old].tolist()), touched[self._rows[touched] > 0]
        for number, (aggregate, column) in enumerate(zip(self._aggregates, self._columns, strict=True)):
            self._renew(number, aggregate, column, new, old, terms)
        for slot in touched[self._rows[touched] == 0].tolist():
            del self._slots[tuple(self._key_rows[slot].tolist())]
            self._free.append(slot)
            for texts in self._texts:
                texts.pop(slot, None)
        return True

    def _renew(
        self,
        number: int,
        aggregate: Aggregate,
        column: int | None,
        slots: Int64Array,
        old: set[int],
        terms: TermSpace,
    ) -> None:
        """Compute an aggregate again in some slots, which have rows. old: those which had rows before."""
        results = self._results[:, number]
        if column is None:
            results[slots] = integer_ids(self._rows[slots])
        elif aggregate.name == "COUNT" and not aggregate.distinct:
            results[slots] = integer_ids(self._bound[column][slots])
        elif aggregate.name == "COUNT":
            counts = self._terms[column].counts
            results[slots] = integer_ids(
                np.array([len(counts[slot]) - (UNBOUND in counts[slot]) for slot in slots.tolist()], np.int64)
            )
        elif aggregate.name in _BEST:
            changed = self._terms[column].changed
            self._renew_best(aggregate.name, results, column, [s for s in slots.tolist() if s in changed], old, terms)
        else:
            sums, rows = self._sums[column], self._rows
            values = [sums.value(slot) for slot in slots.tolist()]
            if aggregate.name == "AVG":
                values = [mean_of(one, int(rows[slot])) for one, slot in zip(values, slots.tolist(), strict=True)]
            self._put(number, slots, values, terms)

    def _put(self, number: int, slots: Int64Array, values: Sequence[Value | None], terms: TermSpace) -> None:
        """Note computed results; ids that are no inlined ones are of this execution only."""
        held, results = self._texts[number], self._results[:, number]
        texts = [None if value is None else text_of(value) for value in values]
        ids = np.full(len(texts), UNBOUND, np.int64)
        known = [at for at, text in enumerate(texts) if text is not None]
        ids[known] = terms.ids([text for text in texts if text is not None])
        results[slots] = ids
        stays = is_inlined(ids)
        for at, slot in enumerate(slots.tolist()):
            text = texts[at]
            if text is None or stays[at]:
                held.pop(slot, None)
            else:
                held[slot] = text

    def _renew_best(
        self, name: str, results: Int64Array, column: int, slots: Sequence[int], old: set[int], terms: TermSpace
    ) -> None:
        """Find the best terms of some slots, which have other terms than before."""
        held = self._terms[column]
        of_slots, candidates = list[int](), list[int]()
        for slot in slots:
            counts = held.counts[slot]
            if name != "SAMPLE" and UNBOUND in counts:
                results[slot] = UNBOUND
                continue
            before = int(results[slot])
            if slot in old and before != UNBOUND and before in counts:
                found = [before, *held.came.get(slot, ())]
            else:
                found = list(counts)
            of_slots += [slot] * len(found)
            candidates += found
            results[slot] = UNBOUND
        ids, groups = np.array(candidates, np.int64), np.array(of_slots, np.int64)
        ids, groups = ids[ids != UNBOUND], groups[ids != UNBOUND]
        if not len(ids):
            return
        of_slot, numbers = np.unique(groups, return_inverse=True)
        results[of_slot] = extremes("MAX" if name == "MAX" else "MIN", ids, numbers, len(of_slot), terms)

    def columns(self, terms: TermSpace) -> tuple[Int64Array, ...]:
        """Return the keys and the results of all groups."""
        slots = np.array(list(self._slots.values()), np.int64)
        current().hold(16 * len(slots) * (len(self._keys) + len(self._aggregates)))
        for number, texts in enumerate(self._texts):
            if texts:
                self._results[list(texts), number] = terms.ids(list(texts.values()))
        keys, results = self._key_rows[slots], self._results[slots]
        return tuple(np.ascontiguousarray(np.concatenate((keys, results), axis=1).T))


def _is_kept(aggregate: Aggregate) -> bool:
    name, distinct = aggregate.name, aggregate.distinct
    if aggregate.argument is None:
        return not distinct
    return name in ("COUNT", *_BEST) or (name in ("SUM", "AVG") and not distinct)


def _longer(array: Int64Array, more: int) -> Int64Array:
    return np.concatenate((array, np.zeros((more, *array.shape[1:]), np.int64)))
