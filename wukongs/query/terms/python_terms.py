"""Python's own values, and the terms of rdflib and pyoxigraph, in canonical form.

Both libraries are recognised among the modules that are loaded: an object of theirs is only there if its module is. So
nothing is imported here for somebody who has neither.

| Python                           | literal                                                                           |
|----------------------------------|-----------------------------------------------------------------------------------|
| bool                             | xsd:boolean                                                                       |
| int                              | xsd:integer                                                                       |
| float                            | xsd:double, as Python writes it; INF, -INF and NaN                                |
| Decimal                          | xsd:decimal, all of its digits, without an exponent                               |
| datetime                         | xsd:dateTime; with its zone if it has one, UTC as Z; no zeros behind the seconds  |
| date                             | xsd:date                                                                          |
| timedelta                        | xsd:dayTimeDuration                                                               |

Booleans, integers and floats of numpy are as Python's.
"""

from __future__ import annotations

import math
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from wukongs.csparql.terms import XSD
from wukongs.errors import DataError
from wukongs.query.terms.temporal import duration_lexical

EXPECTED = (
    "an N-Triples string, an int, float, bool, Decimal, datetime, date or timedelta, or a term of rdflib (URIRef, "
    "BNode, Literal) or pyoxigraph (NamedNode, BlankNode, Literal)"
)
_DIGITS_MAX = 4000
"""More digits of an integer Python does not write by itself; of a decimal nobody means to give so many."""
_BITS_MAX = 13_000


def from_value(value: object) -> str | None:
    """Return the canonical form of a Python value, None for anything else.

    Raises DataError (a value that its datatype cannot hold)."""
    if isinstance(value, bool | np.bool_):
        return f'"{"true" if value else "false"}"^^<{XSD}boolean>'
    if isinstance(value, int | np.integer):
        number = int(value)
        digits = str(number) if number.bit_length() < _BITS_MAX else f"{Decimal(number):f}"
        return f'"{digits}"^^<{XSD}integer>'
    if isinstance(value, float | np.floating):
        return f'"{_double(float(value))}"^^<{XSD}double>'
    if isinstance(value, Decimal):
        return f'"{_decimal(value)}"^^<{XSD}decimal>'
    if isinstance(value, date | timedelta):
        if value != value:  # the missing value of pandas, which passes for a datetime
            raise DataError(f"expected {EXPECTED}, found a missing value ({value!r})")
        if isinstance(value, datetime):
            return f'"{_date_time(value)}"^^<{XSD}dateTime>'
        if isinstance(value, date):
            return f'"{value.isoformat()}"^^<{XSD}date>'
        return f'"{duration(value)}"^^<{XSD}dayTimeDuration>'
    return None


def from_float32(value: np.float32) -> str:
    """Return the canonical form of the xsd:float of a 32-bit float."""
    lexical = str(value) if np.isfinite(value) else _double(float(value))
    return f'"{lexical}"^^<{XSD}float>'


def from_library(term: Any) -> str | None:
    """Return the canonical form of a term of rdflib or pyoxigraph, None for anything else."""
    rdflib, oxigraph = sys.modules.get("rdflib.term"), sys.modules.get("pyoxigraph")
    if rdflib is not None:
        if isinstance(term, rdflib.URIRef):
            return f"<{term}>"
        if isinstance(term, rdflib.BNode):
            return f"_:{term}"
        if isinstance(term, rdflib.Literal):
            return _literal(str(term), term.language, None if term.datatype is None else str(term.datatype))
    if oxigraph is not None:
        if isinstance(term, oxigraph.NamedNode):
            return f"<{term.value}>"
        if isinstance(term, oxigraph.BlankNode):
            return f"_:{term.value}"
        if isinstance(term, oxigraph.Literal):
            direction = "" if term.direction is None else f"--{term.direction}"
            return _literal(term.value, term.language and term.language + direction, term.datatype.value)
    return None


def is_of_rdflib(value: object) -> bool:
    """Whether a value is a term of rdflib, also one that stands for no term of a graph: all of them are strings."""
    rdflib = sys.modules.get("rdflib.term")
    return rdflib is not None and isinstance(value, rdflib.Identifier)


def is_table(given: object) -> bool:
    """Whether something is a table, or a data frame and the like."""
    return hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__")


def duration(value: timedelta) -> str:
    """Return the lexical form of an xsd:dayTimeDuration."""
    seconds = Decimal(value // timedelta(microseconds=1)).scaleb(-6)
    return duration_lexical((0, seconds), "dayTimeDuration")


def _literal(lexical: str, language: str | None, datatype: str | None) -> str:
    if language:
        return f'"{lexical}"@{language.lower()}'
    return f'"{lexical}"' if datatype in (None, XSD + "string") else f'"{lexical}"^^<{datatype}>'


def _double(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise DataError(f"expected a Decimal that xsd:decimal can hold, found {value}: give it as a float")
    if abs(value.adjusted()) > _DIGITS_MAX:
        raise DataError(f"expected a Decimal of at most {_DIGITS_MAX} digits, found {value}: give it as a float")
    return f"{value:f}"


def _date_time(value: datetime) -> str:
    offset = value.utcoffset()
    if offset is not None and (offset % timedelta(minutes=1) or abs(offset) > timedelta(hours=14)):
        value = value.astimezone(UTC)
    text = value.isoformat()
    clock, zone = (text, "") if offset is None else (text[:-6], text[-6:])
    if "." in clock:
        clock = clock.rstrip("0").rstrip(".")
    return clock + ("Z" if zone == "+00:00" else zone)
