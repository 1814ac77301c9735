"""`?x IN (constants)`: finds the rows of a column that equal one of many constants, without comparing each with each.

Two terms that are not equal compare by their kinds alone: to false or to an error. So one constant of each kind tells
this for a row, and a set tells which rows are equal to some constant:

* IRIs, blank nodes, strings with and without a language tag equal nothing but the same term: a set of ids;
* integers, decimals and doubles equal by value (`5` is `5.0`, and `5e0`): sets of float64s where these are exact
  (number_columns.py), else sets of exact numbers.

All other kinds (dates, for instance, where an error depends on the value) are left to be asked one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wukongs.csparql.algebra import Expression
from wukongs.csparql.terms import Term, Variable
from wukongs.query.expressions.frame import Frame
from wukongs.query.expressions.number_columns import DOUBLE, EXACT, ROUNDED, UNDECIDED, numbers_of
from wukongs.query.limits import current
from wukongs.query.terms.value_operators import compare
from wukongs.query.terms.values import Kind, Value, to_float64, value_of
from wukongs.store.dtypes import UNBOUND, BoolArray

CONSTANTS_MIN = 8
"""Fewer constants are compared one by one."""
_BY_ID = frozenset((Kind.IRI, Kind.BLANK, Kind.STRING, Kind.LANG_STRING))
_BY_NUMBER = frozenset((Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE))


@dataclass(frozen=True, slots=True)
class Elements:
    """The list of an IN. asked: the constants with which each row is compared, one of each kind among them; texts,
    numbers: the constants that are looked up in sets."""

    asked: tuple[Expression, ...]
    texts: tuple[str, ...]
    numbers: tuple[Value, ...]

    @staticmethod
    def of(elements: Sequence[Expression]) -> Elements:
        asked: list[Expression] = []
        texts, numbers, seen = [], [], set()
        for element in current().polled(elements):
            value = value_of(element.text) if isinstance(element, Term) else None
            if value is None or not isinstance(element, Term) or value.kind not in _BY_ID | _BY_NUMBER:
                asked.append(element)
                continue
            if value.kind not in seen:
                seen.add(value.kind)
                asked.append(element)
            if value.kind in _BY_ID:
                texts.append(element.text)
            else:
                numbers.append(value)
        return Elements(tuple(asked), tuple(texts), tuple(numbers))

    def contain(self, member: Variable, frame: Frame) -> BoolArray:
        """Tell of each row whether the variable's value equals a constant that is looked up."""
        column = frame.table.column(member)
        found: BoolArray = np.zeros(frame.table.length, np.bool_)
        if self.texts:
            found = np.isin(column, frame.terms.ids(self.texts))
        if self.numbers:
            found |= self._contain_numbers(member, frame)
        found &= column != UNBOUND
        return found

    def _contain_numbers(self, member: Variable, frame: Frame) -> BoolArray:
        constants, rows = numbers_of(self.numbers), frame.numbers(member, with_texts=True)
        constant_kinds = np.broadcast_to(np.uint8(constants.kinds), len(self.numbers))
        kinds, values = np.broadcast_to(np.uint8(rows.kinds), frame.table.length), rows.values
        among = {
            kind: np.broadcast_to(np.isin(values, constants.values[constant_kinds == kind]), kinds.shape)
            for kind in (EXACT, ROUNDED, DOUBLE)
        }
        found: BoolArray = np.array(among[DOUBLE] & (kinds != UNDECIDED))
        found |= (kinds == DOUBLE) & (among[EXACT] | among[ROUNDED]) | (kinds == EXACT) & among[EXACT]
        is_open = (kinds == EXACT) & among[ROUNDED] | (kinds == ROUNDED) & (among[EXACT] | among[ROUNDED])
        is_open = (is_open | (kinds == UNDECIDED)) & ~found
        if is_open.any():
            found |= is_open & self._exactly(member, frame, is_open)
        return found

    def _exactly(self, member: Variable, frame: Frame, is_open: BoolArray) -> BoolArray:
        """Look up the distinct values of some rows as exact numbers."""
        # Without NaN, which a set would find by identity, though it equals nothing.
        doubles = {value.number for value in self.numbers if value.kind == Kind.DOUBLE and value.number == value.number}
        exact = {value.number for value in self.numbers if value.kind != Kind.DOUBLE}
        rounded = {to_float64(number) for number in exact}

        def is_among(value: Value | None) -> bool:
            if value is None or not value.is_numeric:
                return False
            if value.kind == Kind.FLOAT:
                return any(compare("=", value, constant) for constant in self.numbers)
            if value.kind == Kind.DOUBLE:
                return value.number in doubles or value.number in rounded
            return value.number in exact or to_float64(value.number) in doubles

        places = frame.places(member)
        truths: BoolArray = np.zeros(len(frame.values), np.bool_)
        for place in current().polled(np.unique(places[is_open]).tolist()):
            truths[place] = is_among(frame.values[place])
        spread: BoolArray = truths[places]
        return spread
