"""The value space: canonical text -> Value and back. Exact where XML Schema is exact.

| datatype                          | Kind                   | Value.data                                            |
|-----------------------------------|------------------------|-------------------------------------------------------|
| xsd:integer and all derived types | INTEGER                | int, of any size                                      |
| xsd:decimal                       | DECIMAL                | Decimal with every digit, no -0                       |
| xsd:float                         | FLOAT                  | float that a 32-bit float can hold                    |
| xsd:double                        | DOUBLE                 | float                                                 |
| xsd:boolean                       | BOOLEAN                | bool                                                  |
| xsd:dateTime, xsd:date, xsd:time  | DATETIME, DATE, TIME   | Decimal or int: seconds from 0001-01-01T00:00:00Z     |
| xsd:gYear, gMonth, gDay and so on | GREGORIAN              | int: the same                                         |
| xsd:duration and its two subtypes | DURATION               | (months, seconds)                                     |
| xsd:string; language-tagged       | STRING, LANG_STRING    | the lexical form                                      |
| any other, or an ill-typed form   | OPAQUE                 | the lexical form                                      |
| -                                 | IRI, BLANK             | the IRI without brackets; the label with its `_:`     |
| -                                 | TRIPLE                 | the canonical form of the triple term                 |

A dateTime without a zone is taken as UTC: XPath's comparisons ask for an implicit time zone, and with one fixed zone
all of them are comparable (dates are another matter: value_operators.py). A date is the instant at which it
starts (temporal.py).

Computed values get XML Schema 1.1's canonical lexical forms: 2 and 2.5 for decimals, 1.0E0 for floats and doubles.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

import numpy as np

from wukongs.csparql.terms import RDF, XSD, literal
from wukongs.query.terms.rdf_terms import split_literal
from wukongs.query.terms.temporal import (
    DURATION_TYPES,
    EXACT,
    MOMENT_LEXICALS,
    MOMENT_TYPES,
    DateTime,
    Duration,
    duration_lexical,
    duration_of,
    int_of,
    moment_at,
    moment_of,
)


class Kind(enum.IntEnum):
    """The kind of a term. The order of the members is the order of numeric type promotion."""

    INTEGER = 1
    DECIMAL = 2
    FLOAT = 3
    DOUBLE = 4
    BOOLEAN = 5
    STRING = 6
    LANG_STRING = 7
    DATETIME = 8
    DATE = 9
    TIME = 10
    GREGORIAN = 11
    DURATION = 12
    OPAQUE = 13
    IRI = 14
    BLANK = 15
    TRIPLE = 16


Number = int | float | Decimal


@dataclass(frozen=True, slots=True)
class Value:
    """A decoded term. text is its canonical form, or None if it was computed and nobody asked yet (see `text_of`).

    datatype and language are '' where a term has none; a simple string has datatype xsd:string.
    """

    kind: Kind
    data: Number | str | Duration
    text: str | None
    datatype: str = ""
    language: str = ""

    @property
    def is_literal(self) -> bool:
        return self.kind < Kind.IRI

    @property
    def is_numeric(self) -> bool:
        return self.kind <= Kind.DOUBLE

    @property
    def number(self) -> Number:
        """The data of a numeric, boolean or calendar value."""
        assert not isinstance(self.data, str | tuple), self
        return self.data

    @property
    def lexical(self) -> str:
        """The value of STR: the lexical form of a literal, the IRI without brackets, the label of a blank node."""
        if isinstance(self.data, str):
            return self.data
        return split_literal(text_of(self))[0]


_UNBOUNDED = (None, None)
INTEGER_BOUNDS: dict[str, tuple[int | None, int | None]] = {
    "integer": _UNBOUNDED,
    "nonNegativeInteger": (0, None),
    "positiveInteger": (1, None),
    "nonPositiveInteger": (None, 0),
    "negativeInteger": (None, -1),
    "long": (-(2**63), 2**63 - 1),
    "int": (-(2**31), 2**31 - 1),
    "short": (-(2**15), 2**15 - 1),
    "byte": (-128, 127),
    "unsignedLong": (0, 2**64 - 1),
    "unsignedInt": (0, 2**32 - 1),
    "unsignedShort": (0, 2**16 - 1),
    "unsignedByte": (0, 255),
}
_DATATYPES = {
    Kind.INTEGER: XSD + "integer",
    Kind.DECIMAL: XSD + "decimal",
    Kind.FLOAT: XSD + "float",
    Kind.DOUBLE: XSD + "double",
    Kind.BOOLEAN: XSD + "boolean",
}
_MOMENTS = {"dateTime": Kind.DATETIME, "date": Kind.DATE, "time": Kind.TIME}

# [0-9], not \d: other scripts' digits are no XML Schema digits, though Python's int() would take them.
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?INF|NaN")


# --- text -> value ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 14)
def value_of(text: str) -> Value:
    """Decode a term in canonical form."""
    if text.startswith("<"):
        return Value(Kind.IRI, text[1:-1], text)
    if text.startswith("("):
        return Value(Kind.TRIPLE, text, text)
    if not text.startswith('"'):
        return Value(Kind.BLANK, text, text)
    lexical, datatype, language = split_literal(text)
    if language is not None:
        return tagged(lexical, language)
    if datatype is None or datatype == XSD + "string":
        return Value(Kind.STRING, lexical, text, XSD + "string")
    parsed = parse(lexical, datatype.removeprefix(XSD)) if datatype.startswith(XSD) else None
    if parsed is None:
        return Value(Kind.OPAQUE, lexical, text, datatype)
    return Value(*parsed, text, datatype)


def parse(lexical: str, name: str) -> tuple[Kind, Number | Duration] | None:
    """Parse a lexical form by the name of its xsd datatype; None if it is ill-typed or the datatype has no Kind."""
    if name in INTEGER_BOUNDS:
        integer = int_of(lexical) if _INTEGER.fullmatch(lexical) else None
        lower, upper = INTEGER_BOUNDS[name]
        if integer is None or (lower is not None and integer < lower) or (upper is not None and integer > upper):
            return None
        return Kind.INTEGER, integer
    if name == "decimal":
        return (Kind.DECIMAL, EXACT.plus(Decimal(lexical))) if _DECIMAL.fullmatch(lexical) else None
    if name == "double":
        return (Kind.DOUBLE, float(lexical)) if _FLOAT.fullmatch(lexical) else None
    if name == "float":
        return (Kind.FLOAT, _float32(lexical)) if _FLOAT.fullmatch(lexical) else None
    if name == "boolean":
        return (Kind.BOOLEAN, lexical in ("true", "1")) if lexical in ("true", "false", "1", "0") else None
    if name in DURATION_TYPES:
        duration = duration_of(lexical, name)
        return None if duration is None else (Kind.DURATION, duration)
    if name in MOMENT_TYPES:
        moment = moment_of(lexical, name)
        return None if moment is None else (_MOMENTS.get(name, Kind.GREGORIAN), moment.instant())
    return None


def _float32(lexical: str) -> float:
    """Read an xsd:float; numbers with huge exponents are infinite or zero anyway."""
    double = float(lexical)
    is_usual = np.isfinite(double) and 1e-50 < abs(double) < 1e39
    return to_float32(Decimal(lexical)) if is_usual else to_float32(double)


def to_float32(number: Number) -> float:
    """Round to the nearest 32-bit float; infinite beyond its range.

    An exact number is not rounded twice: where its double lies midway between two floats, its exact value decides.
    """
    double = to_float64(number)
    with np.errstate(over="ignore"):
        single = np.float32(double)
        nearest = float(single)
        if isinstance(number, float) or nearest == double or not np.isfinite(single):
            return nearest
        other = float(np.nextafter(single, np.float32(np.copysign(np.inf, double - nearest))))
    if nearest + other != 2 * double or number == double:
        return nearest
    return max(nearest, other) if Decimal(number) > Decimal(double) else min(nearest, other)


def to_float64(number: Number) -> float:
    """Round to the nearest double; infinite beyond its range."""
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


# --- value -> text ----------------------------------------------------------------------------------------------------


def computed(kind: Kind, data: Number) -> Value:
    """Make the numeric or boolean value of an operation."""
    return Value(kind, data, None, _DATATYPES[kind])


def string(lexical: str) -> Value:
    return Value(Kind.STRING, lexical, f'"{lexical}"', XSD + "string")


def tagged(lexical: str, language: str) -> Value:
    """Make a language-tagged string; the tag goes to lower case, its base direction stays with it: `en--ltr`."""
    language = language.lower()
    name = "dirLangString" if "--" in language else "langString"
    return Value(Kind.LANG_STRING, lexical, f'"{lexical}"@{language}', RDF + name, language)


def moment(value: Value) -> DateTime | None:
    """Return the parts of a dateTime, date or time, None of another value; 24:00:00 as the start of the next day."""
    if value.kind not in (Kind.DATETIME, Kind.DATE, Kind.TIME):
        return None
    parts = moment_of(value.lexical, value.datatype.removeprefix(XSD))
    if parts is not None and parts.hour == 24:
        start = moment_at(parts.instant(), parts.zone_s)
        parts = start if value.kind == Kind.DATETIME else DateTime(None, None, None, 0, 0, Decimal(0), parts.zone_s)
    return parts


def moment_value(parts: DateTime, name: str) -> Value:
    """Make a dateTime, date or time of its parts; name: that of its xsd datatype."""
    return value_of(literal(MOMENT_LEXICALS[name](parts), XSD + name).text)


def duration_value(duration: Duration, name: str) -> Value | None:
    """Make a duration; None if its months and seconds have two signs. name: that of its xsd datatype."""
    months, seconds = duration
    if months * seconds < 0:
        return None
    return value_of(literal(duration_lexical(duration, name), XSD + name).text)


def iri(address: str) -> Value:
    return Value(Kind.IRI, address, f"<{address}>")


TRUE = computed(Kind.BOOLEAN, True)
FALSE = computed(Kind.BOOLEAN, False)


def text_of(value: Value) -> str:
    """Return a value's canonical form; the lexical form of a computed one is XML Schema's canonical one."""
    if value.text is not None:
        return value.text
    return f'"{number_lexical(value.kind, value.number)}"^^<{value.datatype}>'


def number_lexical(kind: Kind, data: Number) -> str:
    """Return XML Schema's canonical lexical form of a number or boolean."""
    if kind == Kind.BOOLEAN:
        return "true" if data else "false"
    if isinstance(data, Decimal):
        return _decimal_lexical(data)
    if isinstance(data, int):
        return str(Decimal(data))
    return _float_lexical(np.float32(data)) if kind == Kind.FLOAT else _double_lexical(float(data))


def _decimal_lexical(number: Decimal) -> str:
    """Digits without exponent, without trailing zeros, with a digit before the point."""
    digits = format(number, "f")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return digits


def _double_lexical(number: float) -> str:
    """Do the same as _float_lexical; Python's repr has the same digits, in some microseconds less."""
    mantissa, _, exponent = repr(number).partition("e")
    if not mantissa[-1].isdigit():
        return _float_lexical(np.float64(number))
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, fraction = mantissa[len(sign) :].partition(".")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return f"{sign}0.0E0"
    power = int(exponent or 0) + len(digits) - len(fraction) - 1
    return f"{sign}{digits[0]}.{digits[1:].rstrip('0') or '0'}E{power}"


def _float_lexical(number: np.float32 | np.float64) -> str:
    """The shortest digits that read back as the same number, such as 1.0E0 and -2.5E-10."""
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "INF" if number > 0 else "-INF"
    mantissa, exponent = np.format_float_scientific(number, unique=True, trim="0").split("e")
    return f"{mantissa}E{int(exponent)}"
