"""Functions of dates and times on whole columns of ids, and the time between two of them.

Kernels read inlined dateTimes and dates off their ids (store/time_part_kernels.py). Numbers and dates come back as ids;
zones, times of day and durations are no inlined literals, so each distinct one is written once. All other rows are
left to the scalar evaluator.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from itertools import pairwise

import numpy as np

from wukongs.csparql.algebra import Call, Expression
from wukongs.csparql.terms import XSD, Term, Variable
from wukongs.query.binding_table import TermSpace
from wukongs.query.limits import CHARACTER_BYTES, OBJECT_BYTES, current
from wukongs.query.rows import numbered
from wukongs.query.terms.temporal import EXACT, zone_lexical
from wukongs.query.terms.values import value_of
from wukongs.store import time_part_kernels as kernels
from wukongs.store.dtypes import UNBOUND, BoolArray, Int64Array, UInt8Array
from wukongs.store.payload_kernels import ZONE_NONE, ZONE_QUARTERS, ZONE_UTC
from wukongs.store.term_ids import inlined_id, numeric_values, time_differences, time_parts
from wukongs.store.value_kernels import KIND_DATE_TIME, KIND_DATE_TIME_LOCAL

_PARTS = {
    "YEAR": kernels.PART_YEAR,
    "MONTH": kernels.PART_MONTH,
    "DAY": kernels.PART_DAY,
    "HOURS": kernels.PART_HOURS,
    "MINUTES": kernels.PART_MINUTES,
    "SECONDS": kernels.PART_SECONDS,
    "TZ": kernels.PART_ZONE,
    "TIMEZONE": kernels.PART_ZONE,
    f"<{XSD}date>": kernels.PART_DATE,
    f"<{XSD}dateTime>": kernels.PART_DATE_TIME,
    f"<{XSD}time>": kernels.PART_TIME,
}
CALLS = _PARTS.keys()
"""Functions of one date or time."""
_DURATION = XSD + "dayTimeDuration"
_MICROS_MAX = 2**62
_SHIFT_MAX = 2**60
_YEAR_1 = f'"0001-01-01T00:00:00Z"^^<{XSD}dateTime>'
_YEAR_10000_MICROS = 3_652_059 * 86_400 * kernels.MICROS
_Writer = Callable[[Int64Array], list[str | None]]
"""Numbers of distinct values -> their canonical forms, None for an error"""


def applied(op: str, ids: Int64Array, terms: TermSpace) -> tuple[Int64Array, BoolArray]:
    """Apply one of CALLS: (id of the value in each row, where it is left open)."""
    found = time_parts(ids, _PARTS[op])
    is_open: BoolArray = found < 0
    write = _WRITERS.get(op)
    return (found if write is None else _written(found, ~is_open, write, terms)), is_open


def difference(left: Int64Array, right: Int64Array, terms: TermSpace) -> tuple[Int64Array, BoolArray]:
    """Subtract dateTimes from dateTimes, and dates from dates: (id of the duration in each row, where it is left
    open)."""
    micros, is_known = time_differences(left, right)
    return _written(micros, is_known, _durations, terms), ~is_known


def date_time_differences(left: Int64Array, right: Int64Array) -> tuple[Int64Array, BoolArray]:
    """Return the microseconds from right to left in each row, and whether both ids are dateTimes. Both are as long."""
    micros, are_known = time_differences(left, right)
    return micros, are_known & np.isin(numeric_values(left)[0], (KIND_DATE_TIME, KIND_DATE_TIME_LOCAL))


def shifted_date_times(ids: Int64Array, micros: int, terms: TermSpace) -> tuple[Int64Array, BoolArray]:
    """Add microseconds to dateTimes, which keep their zones: (id of the sum in each row, where it is left open)."""
    year_1 = inlined_id(_YEAR_1)
    assert year_1 is not None
    since_year_1, are_known = date_time_differences(ids, np.full(len(ids), year_1[0], np.int64))
    zones = time_parts(ids, kernels.PART_ZONE)
    found = np.full(len(ids), UNBOUND, np.int64)
    is_open: BoolArray = np.ones(len(ids), np.bool_)
    for zone in np.unique(zones[are_known]).tolist():
        quarters = 0 if zone <= ZONE_UTC else zone - ZONE_QUARTERS
        local = since_year_1 + (micros + quarters * 900 * kernels.MICROS)
        rows = np.flatnonzero(are_known & (zones == zone) & (local >= 0) & (local < _YEAR_10000_MICROS))
        tail = f'{zone_lexical(None if zone == ZONE_NONE else quarters * 900)}"^^<{XSD}dateTime>'
        found[rows] = _written(local[rows], np.ones(len(rows), np.bool_), partial(_date_times, tail), terms)
        is_open[rows] = False
    return found, is_open


def _date_times(tail: str, micros: Int64Array) -> list[str | None]:
    """Write dateTimes of the years 1 to 9999, given as microseconds since the year 1."""
    shown = np.datetime_as_string(np.datetime64("0001-01-01", "us") + micros.astype("timedelta64[us]"), unit="us")
    return [f'"{text.rstrip("0").rstrip(".") if text[-1] == "0" else text}{tail}' for text in shown.tolist()]


def _written(numbers: Int64Array, is_known: BoolArray, write: _Writer, terms: TermSpace) -> Int64Array:
    """Return the ids of the terms that stand for numbers, each distinct one written once; UNBOUND for None, and where
    nothing is known."""
    rows = np.flatnonzero(is_known)
    places, firsts = numbered([numbers[rows]], len(rows))
    texts = write(numbers[rows[firsts]])
    known = [item for item in texts if item is not None]
    current().hold(OBJECT_BYTES * len(texts) + CHARACTER_BYTES * sum(map(len, known)))
    of_texts = np.full(len(texts), UNBOUND, np.int64)
    of_texts[[item is not None for item in texts]] = terms.ids(known)
    ids = np.full(len(numbers), UNBOUND, np.int64)
    ids[rows] = of_texts[places]
    return ids


def _tz(codes: Int64Array) -> list[str | None]:
    """Write zones as the lexical form has them."""
    return [f'"{_zone(code)}"' for code in codes.tolist()]


def _zone(code: int) -> str:
    if code <= ZONE_UTC:
        return "" if code == ZONE_NONE else "Z"
    minutes = abs(code - ZONE_QUARTERS) * 15
    return f"{'-' if code < ZONE_QUARTERS else '+'}{minutes // 60:02}:{minutes % 60:02}"


def _timezones(codes: Int64Array) -> list[str | None]:
    micros = [0 if code == ZONE_UTC else (code - ZONE_QUARTERS) * 900 * kernels.MICROS for code in codes.tolist()]
    shown = _durations(np.array(micros, np.int64))
    return [None if code == ZONE_NONE else text for code, text in zip(codes.tolist(), shown, strict=True)]


def _times(numbers: Int64Array) -> list[str | None]:
    return _literals(kernels.write_times(numbers), XSD + "time")


def _durations(micros: Int64Array) -> list[str | None]:
    return _literals(kernels.write_durations(micros), _DURATION)


def _literals(written: tuple[UInt8Array, Int64Array], datatype: str) -> list[str | None]:
    text, tail = written[0].tobytes().decode(), f'"^^<{datatype}>'
    return [f'"{text[start:stop]}{tail}' for start, stop in pairwise(written[1].tolist())]


_WRITERS: dict[str, _Writer] = {"TZ": _tz, "TIMEZONE": _timezones, f"<{XSD}time>": _times}


def constant_micros(expression: Expression) -> tuple[Int64Array, BoolArray] | None:
    """Return a constant xsd:dayTimeDuration in microseconds, and True; None if it is something else, or not a whole
    number."""
    value = value_of(expression.text) if isinstance(expression, Term) else None
    if value is None or value.datatype != _DURATION or not isinstance(value.data, tuple):
        return None
    micros = EXACT.multiply(value.data[1], Decimal(kernels.MICROS))
    is_whole = abs(micros) < _MICROS_MAX and micros == int(micros)
    return (np.array([int(micros)]), np.ones(1, np.bool_)) if is_whole else None


def shifted_leaf(expression: Expression) -> tuple[Variable | Term, int] | None:
    """Return a variable or constant, and the microseconds that a constant xsd:dayTimeDuration adds to it or takes from
    it (none: 0); None for other expressions, and for more than 30,000 years."""
    if isinstance(expression, Variable | Term):
        return expression, 0
    if not isinstance(expression, Call) or expression.op not in ("+", "-"):
        return None
    leaf, duration = expression.arguments
    if expression.op == "+" and not isinstance(duration, Term):
        leaf, duration = duration, leaf
    found = constant_micros(duration)
    if found is None or not isinstance(leaf, Variable | Term) or abs(micros := int(found[0][0])) > _SHIFT_MAX:
        return None
    return leaf, micros if expression.op == "+" else -micros
