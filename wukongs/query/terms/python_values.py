"""RDF terms as the Python values that a data frame wants."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from wukongs.query.terms.rdf_terms import split_literal, to_ntriples
from wukongs.query.terms.values import Kind, value_of

_NUMBERS = (Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE, Kind.BOOLEAN)


def to_python(canonical: str) -> object:
    """Return int, Decimal, float, bool, datetime or date for a literal of such a datatype whose lexical form is right.

    Otherwise a str: the lexical form, the IRI without brackets, `_:label`, or a triple term in N-Triples. So is
    a date that Python cannot hold, such as one before the year 1.
    """
    if canonical.startswith("("):
        return to_ntriples(canonical)
    if not canonical.startswith('"'):
        return canonical[1:-1] if canonical.startswith("<") else canonical
    value = value_of(canonical)
    if value.kind in _NUMBERS:
        return value.data
    lexical = split_literal(canonical)[0]
    if value.kind == Kind.DATETIME:
        return _read(datetime.datetime.fromisoformat, lexical)
    if value.kind == Kind.DATE:
        return _read(datetime.date.fromisoformat, lexical)
    return lexical


def _read(parse: Callable[[str], object], lexical: str) -> object:
    try:
        return parse(lexical.strip())
    except ValueError:
        return lexical
