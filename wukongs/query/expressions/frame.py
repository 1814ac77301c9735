"""Frame: a binding table during the evaluation of one expression, with the values of the ids that it needs.

Texts are the costly part. Functions of strings get a variable's distinct terms as bytes (`texts`). For functions of
single values, the distinct ids of all variables are decoded in one call (`values`). A value's number and identity are
derived once per distinct id and spread over the rows by place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from wukongs.csparql.terms import Variable
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.expressions.number_columns import UNDECIDED, Numbers, numbers_of, numbers_of_ids
from wukongs.query.expressions.text_column import Spread, TextColumn
from wukongs.query.expressions.text_numbers import numbers_of_column
from wukongs.query.limits import OBJECT_BYTES, current
from wukongs.query.rows import numbered, put_together, taken
from wukongs.query.terms.decoding import texts_of
from wukongs.query.terms.values import Kind, Value, value_of
from wukongs.store.dtypes import UNBOUND, Int64Array, UInt8Array

BY_VALUE, STRING_ID, ANY_ID = 0, 1, 2
"""Values that tell how far an id decides equality: not at all; against STRING_ID and ANY_ID; against every term."""

ROWS_MIN = 64
"""The numbers of fewer rows are sooner read one by one than by columns."""

READ_BYTES = 32
"""The bytes that a row takes while its number is read: values and kinds, those of texts beside those of ids."""

_IDENTITY = {Kind.IRI: ANY_ID, Kind.BLANK: ANY_ID, Kind.LANG_STRING: ANY_ID, Kind.STRING: STRING_ID}


def decoded(ids: Int64Array, terms: TermSpace) -> list[Value | None]:
    """Return the values of distinct ids, None for UNBOUND."""
    current().hold(OBJECT_BYTES * len(ids))  # beside their texts
    return [None if text is None else value_of(text) for text in texts_of(ids, terms)]


def identity_of(value: Value | None) -> int:
    """Return how far a term's id decides equality. UNBOUND decides it: the comparison is an error."""
    return ANY_ID if value is None else _IDENTITY.get(value.kind, BY_VALUE)


@dataclass(slots=True)
class _Pool:
    """The distinct ids of some columns, their known properties, and the place of the id of each row of each column."""

    ids: Int64Array
    places: dict[Variable, Int64Array]
    values: list[Value | None] | None = None
    numbers: Numbers | None = None
    identity: UInt8Array | None = None


@dataclass(slots=True)
class Frame:
    """variables : those whose values may be asked for. Nothing is decoded before that."""

    table: BindingTable
    terms: TermSpace
    variables: Sequence[Variable]
    _known: _Pool | None = field(default=None, init=False)
    _texts: dict[Variable, Spread] = field(default_factory=dict, init=False)
    _numbers: dict[tuple[Variable, bool], Numbers] = field(default_factory=dict, init=False)

    @property
    def _pool(self) -> _Pool:
        if self._known is None:
            columns = [self.table.column(variable) for variable in self.variables]
            joined = put_together([np.empty(0, np.int64), *columns])
            places, firsts = numbered([joined], len(joined))
            by_column = places.reshape(len(columns), self.table.length)
            self._known = _Pool(joined[firsts], dict(zip(self.variables, by_column, strict=True)))
        return self._known

    @property
    def values(self) -> list[Value | None]:
        """The values of all distinct ids of the variables; `places` tells which one a row has."""
        pool = self._pool
        if pool.values is None:
            pool.values = decoded(pool.ids, self.terms)
        return pool.values

    @property
    def is_decoded(self) -> bool:
        """Whether `values` are at hand."""
        return self._known is not None and self._known.values is not None

    def places(self, variable: Variable) -> Int64Array:
        """Return, for each row, the place in `values` of a variable's value."""
        return self._pool.places[variable]

    def numbers(self, variable: Variable, with_texts: bool = False) -> Numbers:
        """Return a variable's column for arithmetic. with_texts: also numbers that ids do not carry are read."""
        found = self._numbers.get((variable, with_texts))
        if found is None:
            found = self._numbers[variable, with_texts] = self._read(variable, with_texts)
        return found

    def _read(self, variable: Variable, with_texts: bool) -> Numbers:
        current().hold(READ_BYTES * self.table.length)
        if self.terms.inlines:
            column = self.table.column(variable)
            numbers = numbers_of_ids(column)
            is_open = np.equal(numbers.kinds, UNDECIDED) & (column != UNBOUND)
            if not with_texts or not is_open.any():
                return numbers
            if self.table.length >= ROWS_MIN:
                spread = self.texts(variable)
                assert spread.places is not None
                read = numbers_of_column(spread.column).take(spread.places)
                kinds = np.where(is_open, read.kinds, numbers.kinds).astype(np.uint8)
                return Numbers(np.where(is_open, read.values, numbers.values), kinds)
        pool = self._pool
        if pool.numbers is None:
            pool.numbers = numbers_of(self.values)
        return pool.numbers.take(pool.places[variable])

    def texts(self, variable: Variable) -> Spread:
        """Return a variable's distinct terms taken apart, and which one each row has."""
        found = self._texts.get(variable)
        if found is None:
            if self._known is not None and len(self.variables) == 1:
                ids, places = self._known.ids, self._known.places[variable]
            else:
                column = self.table.column(variable)
                places, firsts = numbered([column], len(column))
                ids = taken(column, firsts)
            found = self._texts[variable] = Spread(TextColumn.of_ids(ids, self.terms), places)
        return found

    def identity(self, variable: Variable) -> UInt8Array:
        """Return for each row how far the variable's id decides equality."""
        pool = self._pool
        if pool.identity is None:
            pool.identity = _identities(pool.ids, self.terms)
        return pool.identity[pool.places[variable]]


def _identities(ids: Int64Array, terms: TermSpace) -> UInt8Array:
    """Return how far each of some distinct ids decides equality, which the ends of its canonical form tell."""
    found = np.full(len(ids), ANY_ID, np.uint8)
    bound = np.flatnonzero(ids != UNBOUND)
    if len(bound):
        text, offsets = terms.gather(ids[bound])
        first, last = text[offsets[:-1]], text[offsets[1:] - 1]
        found[bound[(first == ord("(")) | ((first == ord('"')) & (last == ord(">")))]] = BY_VALUE
        found[bound[(first == ord('"')) & (last == ord('"'))]] = STRING_ID
    return found
