"""Casts: the constructor functions of XML Schema's types (SPARQL 1.1, 17.5; XPath functions, 17.1).

| to                                 | from                                                                            |
|------------------------------------|---------------------------------------------------------------------------------|
| string                             | simple strings, IRIs, and the value of every type below                         |
| boolean, integer, decimal          | strings, booleans, numbers; not NaN and infinities, which are false as booleans |
| float, double                      | strings, booleans, numbers                                                      |
| int, long, unsignedByte and so on  | as integer; what lies outside of the type is an error                           |
| dateTime                           | strings, dateTimes, dates (at their start)                                      |
| date, time                         | strings, dateTimes, the type itself                                             |
| duration and its two subtypes      | strings, durations (what the type has no room for is dropped)                   |

A language-tagged string, a literal of another datatype and one of ill-typed form cannot be cast. Strings lose the white
space around them, as XML Schema reads them. Results have canonical lexical forms. A double becomes the decimal of
exactly its value; as a string it has an exponent only outside of 10**-6 to 10**6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import numpy as np

from wukongs.csparql.terms import XSD
from wukongs.query.terms.temporal import (
    DURATION_TYPES,
    EXACT,
    MOMENT_LEXICALS,
    Duration,
    duration_lexical,
    moment_of,
)
from wukongs.query.terms.value_operators import effective_boolean_value, from_truth
from wukongs.query.terms.values import (
    INTEGER_BOUNDS,
    Kind,
    Number,
    Value,
    computed,
    duration_value,
    moment,
    moment_value,
    number_lexical,
    parse,
    string,
    to_float32,
    to_float64,
)

_BLANKS = " \t\n\r"
_MOMENT_SOURCES = {
    "dateTime": (Kind.DATETIME, Kind.DATE),
    "date": (Kind.DATETIME, Kind.DATE),
    "time": (Kind.DATETIME, Kind.TIME),
}


def _to_string(value: Value) -> Value | None:
    if value.kind == Kind.IRI or value.kind == Kind.STRING:
        return string(str(value.data))
    if value.kind <= Kind.BOOLEAN:
        return string(_number_text(value))
    if isinstance(value.data, tuple):
        return string(duration_lexical(value.data, value.datatype.removeprefix(XSD)))
    name = value.datatype.removeprefix(XSD)
    parts = moment(value)
    return None if parts is None else string(MOMENT_LEXICALS[name](parts))


def _number_text(value: Value) -> str:
    number = value.number
    if not isinstance(number, float):
        return number_lexical(value.kind, number)
    if number != number or number in (float("inf"), float("-inf")):
        return number_lexical(value.kind, number)
    if number == 0:
        return "-0" if np.signbit(number) else "0"
    if 1e-6 <= abs(number) < 1e6:
        precise = np.float32(number) if value.kind == Kind.FLOAT else np.float64(number)
        return np.format_float_positional(precise, trim="-")
    return number_lexical(value.kind, number)


def _to_boolean(value: Value) -> Value | None:
    if value.kind == Kind.BOOLEAN or value.is_numeric:
        return from_truth(effective_boolean_value(value))
    read = _read(value, "boolean")
    return None if read is None else from_truth(bool(read))


def _read(value: Value, name: str) -> Number | Duration | None:
    """Read a simple string as the lexical form of a type."""
    found = parse(str(value.data).strip(_BLANKS), name) if value.kind == Kind.STRING else None
    return None if found is None else found[1]


def _number(value: Value, name: str) -> Number | None:
    """Return the number that a value is, or that a string says in the lexical form of a type."""
    if value.kind == Kind.BOOLEAN or value.is_numeric:
        return value.number
    read = _read(value, name)
    return None if isinstance(read, tuple) else read


def _to_float(value: Value) -> Value | None:
    number = _number(value, "float")
    return None if number is None else computed(Kind.FLOAT, to_float32(number))


def _to_double(value: Value) -> Value | None:
    number = _number(value, "double")
    return None if number is None else computed(Kind.DOUBLE, to_float64(number))


def _to_decimal(value: Value) -> Value | None:
    number = _number(value, "decimal")
    if number is None or (isinstance(number, float) and not np.isfinite(number)):
        return None
    return computed(Kind.DECIMAL, EXACT.plus(Decimal(number)))


def _to_integer(name: str) -> Callable[[Value], Value | None]:
    lower, upper = INTEGER_BOUNDS[name]

    def apply(value: Value) -> Value | None:
        number = _number(value, name)
        if number is None or (isinstance(number, float) and not np.isfinite(number)):
            return None
        integer = int(number)
        if (lower is not None and integer < lower) or (upper is not None and integer > upper):
            return None
        return Value(Kind.INTEGER, integer, None, XSD + name)

    return apply


def _to_moment(name: str) -> Callable[[Value], Value | None]:
    def apply(value: Value) -> Value | None:
        if value.kind == Kind.STRING:
            parts = moment_of(str(value.data).strip(_BLANKS), name)
        else:
            parts = moment(value) if value.kind in _MOMENT_SOURCES[name] else None
        if parts is None:
            return None
        if name == "dateTime" and parts.second is None:
            parts = replace(parts, hour=0, minute=0, second=Decimal(0))
        return moment_value(parts, name)

    return apply


def _to_duration(name: str) -> Callable[[Value], Value | None]:
    def apply(value: Value) -> Value | None:
        data = value.data if value.kind == Kind.DURATION else _read(value, name)
        if not isinstance(data, tuple):
            return None
        return duration_value(data, name)

    return apply


_CASTS: dict[str, Callable[[Value], Value | None]] = {
    "string": _to_string,
    "boolean": _to_boolean,
    "float": _to_float,
    "double": _to_double,
    "decimal": _to_decimal,
    **{name: _to_integer(name) for name in INTEGER_BOUNDS},
    **{name: _to_moment(name) for name in MOMENT_LEXICALS},
    **{name: _to_duration(name) for name in DURATION_TYPES},
}
FUNCTIONS = {f"<{XSD}{name}>": cast for name, cast in _CASTS.items()}
