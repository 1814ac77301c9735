"""Values of terms and the operators of SPARQL 1.1, section 17, in plain Python.

Where SPARQL 1.1 leaves room, there are two readings. `strict`: only the operators of the table in 17.3, so that
literals which it cannot compare raise an error. `open`: known datatypes outside of the table compare too (dates), and
literals of known, different kinds are simply not equal (the extension of 17.3.1). Systems differ between the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from tests.oracles.rdf import XSD, Term

_INTEGERS = {XSD + name for name in ("integer", "int", "long", "short", "byte", "nonNegativeInteger", "unsignedInt")}
_RANKS = {"integer": 0, "decimal": 1, "float": 2, "double": 3}


class ExpressionError(Exception):
    """An expression without a value: false in a FILTER, unbound in a column."""


class Undefined(Exception):
    """The specification leaves the answer open, so that the example decides nothing."""


@dataclass(frozen=True)
class Number:
    """A numeric value: kind 'integer', 'decimal' (Fraction inside) or 'float', 'double' (float inside)."""

    kind: str
    value: Fraction | float


def number(term: Term | Number) -> Number | None:
    """The numeric value of a term, None for what is no number (an ill-typed literal has no value either)."""
    if isinstance(term, Number):
        return term
    if term.kind != "literal" or not term.datatype.startswith(XSD):
        return None
    text = term.value
    try:
        if term.datatype in _INTEGERS:
            return Number("integer", Fraction(int(text))) if text.lstrip("+-").isdigit() else None
        if term.datatype == XSD + "decimal":
            plain = text.replace(".", "", 1).lstrip("+-")
            return Number("decimal", Fraction(text)) if plain.isdigit() else None
        if term.datatype in (XSD + "double", XSD + "float"):
            return Number(term.datatype.removeprefix(XSD), float(text))
    except ValueError:
        return None
    return None


def boolean(term: object) -> bool | None:
    if isinstance(term, bool):
        return term
    if isinstance(term, Term) and term.datatype == XSD + "boolean":
        return {"true": True, "1": True, "false": False, "0": False}.get(term.value)
    return None


def _instant(term: object) -> datetime | None:
    if not isinstance(term, Term) or term.datatype not in (XSD + "dateTime", XSD + "date"):
        return None
    try:
        return datetime.fromisoformat(term.value.replace("Z", "+00:00"))
    except ValueError:
        return None


def _key(term: object) -> tuple[str, object] | None:
    """Kind and comparable value of what the table of 17.3 can compare."""
    as_number = number(term) if isinstance(term, Term | Number) else None
    if as_number is not None:
        return "number", as_number
    if boolean(term) is not None:
        return "boolean", boolean(term)
    if isinstance(term, Term) and term.kind == "literal":
        if not term.datatype and not term.language:
            return "string", term.value
        if term.datatype == XSD + "dateTime" and _instant(term) is not None:
            return "dateTime", _instant(term)
        if term.datatype == XSD + "date" and _instant(term) is not None:
            return "date", _instant(term)
        if term.language:
            return "language " + term.language, term.value
    return None


def _order(kind: str, left: object, right: object) -> int:
    """-1, 0 or 1 for two values of one kind; numbers are promoted to double if one of them is."""
    if kind == "number":
        assert isinstance(left, Number)
        assert isinstance(right, Number)
        a, b = left.value, right.value
        if isinstance(a, float) or isinstance(b, float):
            a, b = float(a), float(b)
            if math.isnan(a) or math.isnan(b):
                raise Undefined("NaN is not ordered")
        return (a > b) - (a < b)
    greater, less = left > right, left < right  # type: ignore[operator]
    return int(greater) - int(less)


def compare(operator: str, left: object, right: object, strict: bool, orders_itself: bool = False) -> bool:
    """One comparison of 17.3. Raises ExpressionError where it has no value. orders_itself: <= and >= hold of any term
    and itself, by an extension that 17.3.1 allows."""
    left_key, right_key = _key(left), _key(right)
    if left_key and right_key and left_key[0] == right_key[0]:
        kind = left_key[0]
        in_table = kind in ("number", "boolean", "string", "dateTime")
        if operator in ("=", "!=") and not in_table:
            return _term_equal(operator, left, right, strict, known=True)
        if not in_table and strict:
            raise ExpressionError
        sign = _order(kind, left_key[1], right_key[1])
        tests = {"=": sign == 0, "!=": sign != 0, "<": sign < 0, ">": sign > 0, "<=": sign <= 0, ">=": sign >= 0}
        return tests[operator]
    if operator in ("=", "!="):
        return _term_equal(operator, left, right, strict, known=bool(left_key and right_key))
    if orders_itself and left == right:
        return operator in ("<=", ">=")
    raise ExpressionError


def _term_equal(operator: str, left: object, right: object, strict: bool, known: bool) -> bool:
    """RDFterm-equal: an error for two literals that are different terms, unless both kinds are known (open reading)."""
    if left == right:
        return operator == "="
    literals = all(not isinstance(side, Term) or side.kind == "literal" for side in (left, right))
    if literals and (strict or not known):
        raise ExpressionError
    return operator == "!="


def calculate(operator: str, left: object, right: object) -> Number:
    """Arithmetic of 17.3: integer / integer is a decimal; division by zero is an error unless it is on doubles."""
    a = number(left) if isinstance(left, Term | Number) else None
    b = number(right) if isinstance(right, Term | Number) else None
    if a is None or b is None:
        raise ExpressionError
    kind = max(a.kind, b.kind, key=_RANKS.__getitem__)
    x, y = a.value, b.value
    if kind in ("float", "double"):
        x, y = float(x), float(y)
    if operator == "/":
        if y == 0:
            if kind in ("float", "double"):
                raise Undefined("infinities are printed differently")
            raise ExpressionError
        return Number("decimal" if kind == "integer" else kind, x / y)
    return Number(kind, {"+": x + y, "-": x - y, "*": x * y}[operator])


def effective_boolean(value: object) -> bool:
    """17.2.2."""
    if isinstance(value, Term) and value.language:
        raise Undefined("plain literals of RDF 1.0 had languages, simple literals of RDF 1.1 have not")
    as_boolean = boolean(value)
    if as_boolean is not None:
        return as_boolean
    as_number = number(value) if isinstance(value, Term | Number) else None
    if as_number is not None:
        return as_number.value != 0 and not math.isnan(as_number.value)
    if isinstance(value, Term) and value.kind == "literal":
        if not value.datatype:
            return value.value != ""
        if value.datatype == XSD + "boolean" or value.datatype in _INTEGERS or value.datatype.endswith("decimal"):
            return False
    raise ExpressionError


def order_terms(left: object, right: object) -> int | None:
    """ORDER BY of 15.1: unbound < blank node < IRI < literal. None where the order is left open."""
    ranks = []
    for term in (left, right):
        kind = "unbound" if term is None else term.kind if isinstance(term, Term) else "literal"
        ranks.append(["unbound", "bnode", "iri", "literal"].index(kind))
    if ranks[0] != ranks[1]:
        return (ranks[0] > ranks[1]) - (ranks[0] < ranks[1])
    if left == right:
        return 0
    if ranks[0] == 2:
        assert isinstance(left, Term)
        assert isinstance(right, Term)
        return (left.value > right.value) - (left.value < right.value)
    left_key, right_key = _key(left), _key(right)
    if ranks[0] == 3 and left_key and right_key and left_key[0] == right_key[0] and ("language" not in left_key[0]):
        if left_key[0] == "date":
            return None
        return _order(left_key[0], left_key[1], right_key[1])
    return None


def total(numbers: list[Number]) -> Number:
    result = Number("integer", Fraction(0))
    for each in numbers:
        result = calculate("+", result, each)
    return result
