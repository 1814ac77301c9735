"""Numbers read off columns of texts, where ids do not carry them: doubles of seventeen digits, integers of twenty."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from wukongs.csparql.terms import XSD
from wukongs.query.binding_table import TermSpace
from wukongs.query.expressions.number_columns import (
    DOUBLE,
    EXACT,
    ROUNDED,
    UNDECIDED,
    Float64Array,
    Numbers,
    numbers_of,
)
from wukongs.query.expressions.text_column import TYPED, TextColumn
from wukongs.query.terms.arrow_texts import bytes_of, to_numpy
from wukongs.query.terms.values import value_of
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.term_ids import numeric_values
from wukongs.store.value_kernels import EXACT_LIMIT, KIND_DOUBLE, KIND_NONE

PROBED = 16
"""Ids that are looked at first, since most columns are all doubles or hold none."""


def _allowed(characters: bytes) -> BoolArray:
    found = np.zeros(256, np.bool_)
    found[list(characters)] = True
    return found


_CHARACTERS = {
    "double": _allowed(b"0123456789.-+eE"),
    "decimal": _allowed(b"0123456789.-"),
    "integer": _allowed(b"0123456789-"),
}


def values_of(column: TextColumn, name: str) -> tuple[Float64Array, BoolArray]:
    """Return the nearest float64s of xsd:doubles, decimals or integers, and which terms are such. INF, NaN and forms
    that Arrow does not read are left out.

    Arrow reads no form of these characters that XML Schema does not have, and it rounds right."""
    values = np.full(len(column), np.nan)
    is_number = (column.kinds == TYPED) & np.array([tail == XSD + name for tail in column.names])[column.tails]
    rows = np.flatnonzero(is_number)
    if not len(rows):
        return values, is_number
    forms = column.lexical if len(rows) == len(column) else column.lexical.take(pa.array(rows))
    data, offsets = bytes_of(forms)
    odd = np.append(0, np.cumsum(~_CHARACTERS[name][data]))
    if odd[-1]:
        is_odd = odd[offsets[1:]] > odd[offsets[:-1]]
        is_number[rows[is_odd]] = False
        forms, rows = forms.take(pa.array(np.flatnonzero(~is_odd))), rows[~is_odd]
    try:
        values[rows] = to_numpy(forms.cast(pa.float64()))
    except pa.ArrowInvalid:  # one that is ill-typed, or out of range
        is_number[rows] = False
    return values, is_number


def doubles_of(column: TextColumn) -> tuple[Float64Array, BoolArray]:
    """Do the same as values_of, for xsd:doubles."""
    return values_of(column, "double")


def doubles_of_ids(ids: Int64Array, terms: TermSpace) -> Float64Array | None:
    """Return the values of distinct ids if all of them are xsd:doubles that doubles_of reads."""
    if not terms.inlines or not len(ids):
        return None
    kinds, values = numeric_values(ids)
    hashed = np.flatnonzero(kinds == KIND_NONE)
    if not np.isin(kinds, (KIND_DOUBLE, KIND_NONE)).all():
        return None
    for some in (hashed[:PROBED], hashed[PROBED:]):
        values[some], is_double = doubles_of(TextColumn.of_ids(ids[some], terms))
        if not is_double.all():
            return None
    return values


def numbers_of_column(column: TextColumn) -> Numbers:
    """Return terms as numbers: xsd:doubles, integers and decimals, and constants (columns of one row) of any type."""
    if len(column) == 1:
        return numbers_of([None if text is None else value_of(text) for text in column.texts()])
    values, is_double = doubles_of(column)
    kinds = np.where(is_double, DOUBLE, UNDECIDED).astype(np.uint8)
    for name in ("integer", "decimal"):
        if XSD + name in column.names:
            found, is_such = values_of(column, name)
            is_such &= np.isfinite(found)
            is_exact = (np.abs(found) < EXACT_LIMIT) & (name == "integer")
            values = np.where(is_such, found + 0.0, values)
            kinds = np.where(is_such, np.where(is_exact, EXACT, ROUNDED), kinds).astype(np.uint8)
    return Numbers(values, kinds)
