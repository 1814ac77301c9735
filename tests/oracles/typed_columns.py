"""What a typed Arrow column is to hold, in plain Python: from the parts of its terms, one by one, with fractions.

It shares nothing with the code that it checks: dates are counted by datetime, shifted by whole cycles of 400 years.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from wukongs.csparql.terms import XSD

_BOUNDS = {
    "integer": (None, None),
    "nonNegativeInteger": (0, None),
    "positiveInteger": (1, None),
    "nonPositiveInteger": (None, 0),
    "negativeInteger": (None, -1),
    "long": (-(2**63), 2**63 - 1),
    "int": (-(2**31), 2**31 - 1),
    "short": (-(2**15), 2**15 - 1),
    "byte": (-(2**7), 2**7 - 1),
    "unsignedLong": (0, 2**64 - 1),
    "unsignedInt": (0, 2**32 - 1),
    "unsignedShort": (0, 2**16 - 1),
    "unsignedByte": (0, 2**8 - 1),
}
INTEGERS = tuple(_BOUNDS)
_DECIMAL = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?")
_FLOAT = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?")
_ZONE = r"(Z|[+-][0-9]{2}:[0-9]{2})?"
_DATE = re.compile(r"(-?[0-9]{4,})-([0-9]{2})-([0-9]{2})" + _ZONE)
_DATE_TIME = re.compile(r"(-?[0-9]{4,})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?" + _ZONE)


@dataclass(frozen=True)
class Part:
    """A term by its parts. kind: iri, blank, language or the local name of an xsd datatype, or a whole datatype IRI."""

    kind: str
    text: str

    @property
    def canonical(self) -> str:
        if self.kind == "iri":
            return f"<{self.text}>"
        if self.kind == "blank":
            return f"_:{self.text}"
        if self.kind == "language":
            return f'"{self.text}"@en'
        if self.kind == "string":
            return f'"{self.text}"'
        return f'"{self.text}"^^<{self.kind if ":" in self.kind else XSD + self.kind}>'


@dataclass(frozen=True)
class Column:
    """An Arrow type, what the metadata says, and each cell: numbers as fractions or floats, times as whole numbers."""

    type: pa.DataType
    terms: str | None
    cells: list[object]


def typed(column: Sequence[Part | None]) -> Column | None:
    """Return the column of values of these terms; None: they are to be N-Triples."""
    kinds = {part.kind for part in column if part is not None}
    if not kinds:
        return Column(pa.null(), None, [None] * len(column))
    if kinds <= {"iri", "blank"}:
        if any(part is not None and part.kind == "iri" and part.text.startswith("_:") for part in column):
            return None
        cells: list[object] = [None if part is None else _resource(part) for part in column]
        return Column(pa.dictionary(pa.int32(), pa.string()), "IRI", cells)
    if kinds <= set(INTEGERS):
        name = kinds.pop() if len(kinds) == 1 else "integer"
        return _integers([None if part is None else (integer(part.kind, part.text),) for part in column], XSD + name)
    if len(kinds) > 1:
        return None
    (kind,) = kinds
    texts = [None if part is None else part.text for part in column]
    if kind == "string":
        return Column(pa.string(), XSD + kind, list(texts))
    if kind == "decimal":
        return _decimals([None if text is None else (decimal(text),) for text in texts])
    reader = {"boolean": _boolean, "double": double, "float": single, "date": date, "dateTime": date_time}.get(kind)
    if reader is None:
        return None
    read = [None if text is None else (reader(text),) for text in texts]
    if (None,) in read:
        return None
    found = [None if cell is None else cell[0] for cell in read]
    if kind in ("date", "dateTime"):
        return _calendar(kind, found)
    types = {"boolean": pa.bool_(), "double": pa.float64(), "float": pa.float32()}
    return Column(types[kind], XSD + kind, list(found))


def _resource(part: Part) -> str:
    return part.text if part.kind == "iri" else f"_:{part.text}"


def _integers(read: list[tuple[int | None] | None], terms: str) -> Column | None:
    found = [None if cell is None else cell[0] for cell in read]
    if (None,) in read:
        return None
    numbers = [number for number in found if number is not None]
    if all(-(2**63) <= number < 2**63 for number in numbers):
        return Column(pa.int64(), terms, list(found))
    if all(abs(number) < 10**38 for number in numbers):
        return Column(pa.decimal128(38, 0), terms, list(found))
    return None


def _decimals(read: list[tuple[Fraction | None] | None]) -> Column | None:
    found = [None if cell is None else cell[0] for cell in read]
    if (None,) in read:
        return None
    numbers = [number for number in found if number is not None]
    scale = next((scale for scale in range(39) if all((n * 10**scale).denominator == 1 for n in numbers)), None)
    if scale is None or any(abs(number * 10**scale) >= 10**38 for number in numbers):
        return None
    return Column(pa.decimal128(38, scale), XSD + "decimal", list(found))


def _calendar(kind: str, found: list[tuple[Fraction, bool] | None]) -> Column | None:
    zones = {cell[1] for cell in found if cell is not None}
    if len(zones) > 1 or (kind == "date" and True in zones):
        return None
    unit, bits = (86_400, 31) if kind == "date" else (Fraction(1, 1_000_000), 63)
    cells = [None if cell is None else cell[0] / unit for cell in found]
    if any(cell is not None and (cell.denominator != 1 or not -(2**bits) <= cell < 2**bits) for cell in cells):
        return None
    type_ = pa.date32() if kind == "date" else pa.timestamp("us", "UTC" if True in zones else None)
    return Column(type_, XSD + kind, [None if cell is None else int(cell) for cell in cells])


# --- one literal ------------------------------------------------------------------------------------------------------


def integer(kind: str, text: str) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits or not digits.isascii() or not digits.isdigit():
        return None
    number = int(text)
    least, greatest = _BOUNDS[kind]
    fits = (least is None or number >= least) and (greatest is None or number <= greatest)
    return number if fits else None


def decimal(text: str) -> Fraction | None:
    match = _DECIMAL.fullmatch(text)
    return _number(match[1], match[2], match[3], None) if match else None


def _number(sign: str, whole: str, fraction: str | None, exponent: str | None) -> Fraction | None:
    fraction = fraction or ""
    if not whole + fraction:
        return None
    number = Fraction(int(whole + fraction)) / 10 ** len(fraction) * Fraction(10) ** int(exponent or 0)
    return -number if sign == "-" else number


def double(text: str) -> np.float64 | None:
    return _float(text, np.float64)


def single(text: str) -> np.float32 | None:
    return _float(text, np.float32)


def _float(text: str, kind: type) -> object:
    """Find the float that is nearest to the exact number."""
    if text in ("INF", "+INF", "-INF", "NaN"):
        return kind(text.lower())
    match = _FLOAT.fullmatch(text)
    exact = _number(*match.groups()) if match else None
    if exact is None:
        return None
    magnitude = abs(exact)
    largest = Fraction(float(np.finfo(kind).max))
    half_step = (largest - Fraction(float(np.nextafter(np.finfo(kind).max, kind(0))))) / 2
    if magnitude >= largest + half_step:
        found = kind(np.inf)
    else:
        with np.errstate(all="ignore"):
            near = kind(min(float(magnitude), float(largest)))
            choices = [near, np.nextafter(near, kind(np.inf)), np.nextafter(near, kind(0))]
        choices = [choice for choice in choices if np.isfinite(choice)]
        bits = np.uint64 if kind is np.float64 else np.uint32
        found = min(choices, key=lambda one: (abs(Fraction(float(one)) - magnitude), int(one.view(bits)) & 1))
    return -found if text.startswith("-") else found


def _boolean(text: str) -> bool | None:
    return {"true": True, "1": True, "false": False, "0": False}.get(text)


def date(text: str) -> tuple[Fraction, bool] | None:
    """Return the seconds from 1970-01-01 to a date as it is written, and whether it has a zone."""
    match = _DATE.fullmatch(text)
    if not match or not text.isascii() or _zone(match[4]) is None:
        return None
    days = _days(match[1], int(match[2]), int(match[3]))
    return None if days is None else (Fraction(days * 86_400), bool(match[4]))


def date_time(text: str) -> tuple[Fraction, bool] | None:
    match = _DATE_TIME.fullmatch(text)
    if not match or not text.isascii():
        return None
    days, zone = _days(match[1], int(match[2]), int(match[3])), _zone(match[8])
    hour, minute, second = (int(match[at]) for at in (4, 5, 6))
    fraction = Fraction(int(match[7] or 0), 10 ** len(match[7] or ""))
    is_end = (hour, minute, second, fraction) == (24, 0, 0, 0)
    if days is None or zone is None or (not is_end and (hour > 23 or minute > 59 or second > 59)):
        return None
    return days * 86_400 + hour * 3600 + minute * 60 + second + fraction - zone, bool(match[8])


def _zone(text: str | None) -> int | None:
    """Return seconds east of UTC; None for a zone that is none."""
    if text is None or text == "Z":
        return 0
    minutes = int(text[1:3]) * 60 + int(text[4:6])
    if minutes > 840 or int(text[4:6]) > 59:
        return None
    return -60 * minutes if text[0] == "-" else 60 * minutes


def _days(year: str, month: int, day: int) -> int | None:
    if len(year.lstrip("-")) > 4 and year.lstrip("-").startswith("0"):
        return None
    cycles, rest = divmod(int(year), 400)
    try:
        return datetime.date(rest + 400, month, day).toordinal() - 719_163 + (cycles - 1) * 146_097
    except ValueError:
        return None
