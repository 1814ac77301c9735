"""Canonical text -> value -> canonical text."""

from __future__ import annotations

from decimal import Decimal

import pytest

from wukongs.csparql.terms import RDF, XSD, literal
from wukongs.query.terms.values import Kind, computed, text_of, to_float32, value_of


def typed(lexical: str, name: str) -> str:
    return literal(lexical, XSD + name).text


def test_terms_that_are_no_literals() -> None:
    assert (value_of("<http://e/a>").kind, value_of("<http://e/a>").data) == (Kind.IRI, "http://e/a")
    assert (value_of("_:s00x1").kind, value_of("_:s00x1").data) == (Kind.BLANK, "_:s00x1")


def test_strings_are_read_from_the_right_end() -> None:
    odd = value_of('"say "hi"@en"')
    assert (odd.kind, odd.data, odd.datatype) == (Kind.STRING, 'say "hi"@en', XSD + "string")
    tagged = value_of('"a"^^<b>"@en-gb')
    assert (tagged.kind, tagged.data, tagged.language) == (Kind.LANG_STRING, 'a"^^<b>', "en-gb")
    assert tagged.datatype == RDF + "langString"


@pytest.mark.parametrize(
    ("lexical", "name", "kind", "data"),
    [
        ("+007", "integer", Kind.INTEGER, 7),
        ("-128", "byte", Kind.INTEGER, -128),
        ("18446744073709551615", "unsignedLong", Kind.INTEGER, 2**64 - 1),
        ("-.50", "decimal", Kind.DECIMAL, Decimal("-0.5")),
        ("5.", "decimal", Kind.DECIMAL, Decimal(5)),
        ("0.1", "float", Kind.FLOAT, 0.10000000149011612),
        ("1e39", "float", Kind.FLOAT, float("inf")),
        ("-1.5E-3", "double", Kind.DOUBLE, -0.0015),
        ("-INF", "double", Kind.DOUBLE, float("-inf")),
        ("1", "boolean", Kind.BOOLEAN, True),
        ("false", "boolean", Kind.BOOLEAN, False),
        ("0001-01-01T00:00:00Z", "dateTime", Kind.DATETIME, 0),
        ("0001-01-01T00:00:00.25", "dateTime", Kind.DATETIME, Decimal("0.25")),
        ("1970-01-01T02:00:00+02:00", "dateTime", Kind.DATETIME, 719162 * 86400),
        ("1969-12-31T24:00:00Z", "dateTime", Kind.DATETIME, 719162 * 86400),
        ("0000-12-31", "date", Kind.DATE, -86400),
        ("2000-02-29-01:00", "date", Kind.DATE, 730178 * 86400 + 3600),
        ("0001-01", "gYearMonth", Kind.GREGORIAN, 0),
        ("0002", "gYear", Kind.GREGORIAN, 365 * 86400),
        ("--02-29", "gMonthDay", Kind.GREGORIAN, (719162 + 730 + 31 + 28) * 86400),
        ("12:00:00.5+01:00", "time", Kind.TIME, (719162 + 730 + 365) * 86400 + Decimal("39600.5")),
        ("24:00:00", "time", Kind.TIME, (719162 + 730 + 365) * 86400),
        ("-P1Y2MT1.5S", "duration", Kind.DURATION, (-14, Decimal("-1.5"))),
        ("P1DT2H3M", "dayTimeDuration", Kind.DURATION, (0, Decimal(93780))),
    ],
)
def test_well_typed_literals(lexical: str, name: str, kind: Kind, data: object) -> None:
    value = value_of(typed(lexical, name))
    assert (value.kind, value.data) == (kind, data)
    assert text_of(value) == typed(lexical, name), "the lexical form is kept to the letter"
    assert value.lexical == lexical


@pytest.mark.parametrize(
    ("lexical", "name"),
    [
        ("1.0", "integer"),
        (" 1", "integer"),
        ("٣", "integer"),
        ("128", "byte"),
        ("-1", "nonNegativeInteger"),
        ("0", "negativeInteger"),
        ("1e3", "decimal"),
        (".", "decimal"),
        ("inf", "double"),
        ("nan", "float"),
        ("TRUE", "boolean"),
        ("2021-02-29", "date"),
        ("21-02-03", "date"),
        ("2021-13-01T00:00:00Z", "dateTime"),
        ("2021-01-01T24:00:01Z", "dateTime"),
        ("2021-01-01T12:60:00Z", "dateTime"),
        ("2021-01-01T12:00:60Z", "dateTime"),
        ("2021-01-01T12:00:00+15:00", "dateTime"),
        ("P1D", "yearMonthDuration"),
        ("P1Y", "dayTimeDuration"),
        ("P1DT", "duration"),
        ("P", "duration"),
        ("24:00:01", "time"),
        ("2021", "gMonth"),
        ("--02-30", "gMonthDay"),
        ("a", "anyURI"),
    ],
)
def test_ill_typed_and_unknown_literals_are_opaque(lexical: str, name: str) -> None:
    value = value_of(typed(lexical, name))
    assert (value.kind, value.data, value.datatype) == (Kind.OPAQUE, lexical, XSD + name)
    assert value.is_literal
    assert not value.is_numeric


@pytest.mark.parametrize(
    ("kind", "data", "lexical"),
    [
        (Kind.INTEGER, -12, "-12"),
        (Kind.DECIMAL, Decimal("2.50"), "2.5"),
        (Kind.DECIMAL, Decimal("300"), "300"),
        (Kind.DECIMAL, Decimal("3E+2"), "300"),
        (Kind.DECIMAL, Decimal("-0.0010"), "-0.001"),
        (Kind.DECIMAL, Decimal("0.00"), "0"),
        (Kind.DOUBLE, 1.0, "1.0E0"),
        (Kind.DOUBLE, -123456.5, "-1.234565E5"),
        (Kind.DOUBLE, 1e-300, "1.0E-300"),
        (Kind.DOUBLE, -0.0, "-0.0E0"),
        (Kind.DOUBLE, float("nan"), "NaN"),
        (Kind.DOUBLE, float("-inf"), "-INF"),
        (Kind.FLOAT, to_float32(0.1), "1.0E-1"),
        (Kind.BOOLEAN, True, "true"),
    ],
)
def test_computed_values_get_canonical_lexical_forms(kind: Kind, data: float, lexical: str) -> None:
    text = text_of(computed(kind, data))
    name = kind.name.lower()
    assert text == typed(lexical, name)
    read_back = value_of(text)
    assert read_back.kind == kind
    assert read_back.data == data or data != data


def test_integers_of_more_digits_than_python_converts() -> None:
    lexical = "9" * 5000
    value = value_of(typed(lexical, "integer"))
    assert value.data == 10**5000 - 1
    assert text_of(computed(Kind.INTEGER, value.number)) == typed(lexical, "integer")
    assert value_of(typed(f"1{lexical}-01-01", "date")).kind == Kind.DATE


@pytest.mark.parametrize(
    ("lexical", "number"),
    [
        ("16777217", 16777216.0),
        ("16777217.0000000001", 16777218.0),
        ("16777219", 16777220.0),
        ("16777218.9999999999", 16777218.0),
        ("-16777217.0000000001", -16777218.0),
        ("3.4028235e38", 3.4028234663852886e38),
        ("1e-46", 0.0),
        ("1e400", float("inf")),
        ("1e-999999999999", 0.0),
    ],
)
def test_a_float_is_rounded_once(lexical: str, number: float) -> None:
    """The double of 16777217.0000000001 lies midway between two floats, though the number does not."""
    assert value_of(typed(lexical, "float")).data == number
