"""Numbers read off columns of texts, where ids do not carry them: for instance doubles of seventeen digits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from wukongs.csparql.terms import XSD
from wukongs.query.binding_table import TermSpace
from wukongs.query.expressions.number_columns import DOUBLE, UNDECIDED, Float64Array, Numbers, numbers_of
from wukongs.query.expressions.text_column import TYPED, TextColumn
from wukongs.query.terms.arrow_texts import bytes_of, to_numpy
from wukongs.query.terms.values import value_of
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.term_ids import numeric_values
from wukongs.store.value_kernels import KIND_DOUBLE, KIND_NONE

PROBED = 16
"""Ids that are looked at first, since most columns are all doubles or hold none."""
_IN_NUMBERS = np.zeros(256, np.bool_)
_IN_NUMBERS[list(b"0123456789.-+eE")] = True


def doubles_of(column: TextColumn) -> tuple[Float64Array, BoolArray]:
    """Return the values of xsd:doubles, and which terms are such. INF, NaN and forms that Arrow does not read are left
    out.

    Arrow reads no form of digits, points, signs and exponents that XML Schema does not have, and it rounds right."""
    values = np.full(len(column), np.nan)
    is_double = (column.kinds == TYPED) & np.array([name == XSD + "double" for name in column.names])[column.tails]
    rows = np.flatnonzero(is_double)
    if not len(rows):
        return values, is_double
    forms = column.lexical if len(rows) == len(column) else column.lexical.take(pa.array(rows))
    data, offsets = bytes_of(forms)
    odd = np.append(0, np.cumsum(~_IN_NUMBERS[data]))
    if odd[-1]:
        is_odd = odd[offsets[1:]] > odd[offsets[:-1]]
        is_double[rows[is_odd]] = False
        forms, rows = forms.take(pa.array(np.flatnonzero(~is_odd))), rows[~is_odd]
    try:
        values[rows] = to_numpy(forms.cast(pa.float64()))
    except pa.ArrowInvalid:  # one that is ill-typed, or out of range
        is_double[rows] = False
    return values, is_double


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
    """Return terms as numbers for comparisons: xsd:doubles, and constants (columns of one row) of any type."""
    if len(column) == 1:
        return numbers_of([None if text is None else value_of(text) for text in column.texts()])
    values, is_double = doubles_of(column)
    return Numbers(values, np.where(is_double, DOUBLE, UNDECIDED).astype(np.uint8))
