"""The function library by examples: those of the specifications, and the edges of each function."""

from __future__ import annotations

import logging
import time

import pytest

from tests.expression_text import column, result
from wukongs.errors import BudgetExceeded, QueryTimeout
from wukongs.query.functions import strings
from wukongs.query.limits import Limits
from wukongs.query.terms.values import string

pytestmark = pytest.mark.nojit


def integer(number: int) -> str:
    return f'"{number}"^^<xsd:integer>'


def check(expression: str, expected: str | None) -> None:
    """Compare with what is expected: a canonical text, or true and false for short."""
    wanted = f'"{expected}"^^<xsd:boolean>' if expected in ("true", "false") else expected
    assert result(expression) == wanted


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("STRLEN('chat')", integer(4)),
        ("STRLEN('chat'@en)", integer(4)),
        ("STRLEN('\U0001f600é')", integer(2)),
        ("STRLEN('')", integer(0)),
        ("STRLEN(1)", None),
        ("STRLEN(<a>)", None),
        ("SUBSTR('foobar', 4)", '"bar"'),
        ("SUBSTR('foobar'@en, 4)", '"bar"@en'),
        ("SUBSTR('foobar', 4, 1)", '"b"'),
        ("SUBSTR('foobar', 0, 3)", '"fo"'),
        ("SUBSTR('foobar', -1, 3)", '"f"'),
        ("SUBSTR('foobar', 3, -1)", '""'),
        ("SUBSTR('foobar', 7)", '""'),
        ("SUBSTR('foobar', 2, 100000000000000000000)", '"oobar"'),
        ("SUBSTR('foobar', 1.5)", None),
        ("SUBSTR(1, 1)", None),
        ("UCASE('straße')", '"STRASSE"'),
        ("UCASE('foo'@EN)", '"FOO"@en'),
        ("LCASE('BAR')", '"bar"'),
        ("LCASE('ΟΔΟΣ')", '"οδος"'),
        ("UCASE(:a)", None),
        ("STRSTARTS('foobar', 'foo')", "true"),
        ("STRSTARTS('foobar'@en, 'foo'@en)", "true"),
        ("STRSTARTS('foobar'@en, 'foo')", "true"),
        ("STRSTARTS('foobar', 'foo'@en)", None),
        ("STRSTARTS('foobar'@en, 'foo'@fr)", None),
        ("STRENDS('foobar', 'bar')", "true"),
        ("STRENDS('foobar', '')", "true"),
        ("CONTAINS('foobar', 'bar')", "true"),
        ("CONTAINS('foobar', 'BAR')", "false"),
        ("CONTAINS('1', 1)", None),
        ("STRBEFORE('abc', 'b')", '"a"'),
        ("STRBEFORE('abc'@en, 'bc')", '"a"@en'),
        ("STRBEFORE('abc'@en, 'b'@cy)", None),
        ("STRBEFORE('abc'@en, '')", '""@en'),
        ("STRBEFORE('abc'@en, 'z'@en)", '""'),
        ("STRBEFORE('abc'@en, 'z')", '""'),
        ("STRBEFORE('abc', 'xyz')", '""'),
        ("STRAFTER('abc', 'b')", '"c"'),
        ("STRAFTER('abc'@en, 'ab')", '"c"@en'),
        ("STRAFTER('abc'@en, '')", '"abc"@en'),
        ("STRAFTER('abc'@en, 'z'@en)", '""'),
        ("STRAFTER('abcbd', 'b')", '"cbd"'),
        ("ENCODE_FOR_URI('Los Angeles')", '"Los%20Angeles"'),
        ("ENCODE_FOR_URI('~b\\u00E9b\\u00E9/_-.\\u65E5'@fr)", '"~b%C3%A9b%C3%A9%2F_-.%E6%97%A5"'),
        ("CONCAT('foo', 'bar')", '"foobar"'),
        ("CONCAT('foo'@en, 'bar'@en)", '"foobar"@en'),
        ("CONCAT('foo'@en, 'bar'@es)", '"foobar"'),
        ("CONCAT('foo'@en, 'bar')", '"foobar"'),
        ("CONCAT('foo'@en)", '"foo"@en'),
        ("CONCAT()", '""'),
        ("CONCAT('foo', 1)", None),
        ("LANGMATCHES('fr', 'FR')", "true"),
        ("LANGMATCHES('fr-BE', 'fr')", "true"),
        ("LANGMATCHES('fro', 'fr')", "false"),
        ("LANGMATCHES('fr', 'fr-BE')", "false"),
        ("LANGMATCHES('fr', '*')", "true"),
        ("LANGMATCHES('', '*')", "false"),
        ("LANGMATCHES('fr', 1)", None),
        ("MD5('abc')", '"900150983cd24fb0d6963f7d28e17f72"'),
        ("SHA1('abc')", '"a9993e364706816aba3e25717850c26c9cd0d89d"'),
        ("SHA256('abc')", '"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"'),
        ("STRLEN(SHA384('')) + STRLEN(SHA512(''))", integer(96 + 128)),
        ("MD5('é')", '"66ddcd97cfdeabb2f6fb8a999b4bc76f"'),
        ("MD5('abc'@en)", None),
        ("SHA1(1)", None),
    ],
)
def test_strings(expression: str, expected: str | None) -> None:
    check(expression, expected)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("ABS(-3)", integer(3)),
        ("ABS('-3'^^xsd:byte)", integer(3)),
        ("ABS(-2.50)", '"2.5"^^<xsd:decimal>'),
        ("ABS(-0.0e0)", '"0.0E0"^^<xsd:double>'),
        ("ABS('-INF'^^xsd:float)", '"INF"^^<xsd:float>'),
        ("ABS('1')", None),
        ("CEIL(2.1)", '"3"^^<xsd:decimal>'),
        ("CEIL(-0.5)", '"0"^^<xsd:decimal>'),
        ("CEIL(-0.5e0)", '"-0.0E0"^^<xsd:double>'),
        ("CEIL(5)", integer(5)),
        ("FLOOR(-2.1)", '"-3"^^<xsd:decimal>'),
        ("FLOOR('2.5'^^xsd:float)", '"2.0E0"^^<xsd:float>'),
        ("FLOOR('NaN'^^xsd:double)", '"NaN"^^<xsd:double>'),
        ("ROUND(2.5)", '"3"^^<xsd:decimal>'),
        ("ROUND(-2.5)", '"-2"^^<xsd:decimal>'),
        ("ROUND(2.4999)", '"2"^^<xsd:decimal>'),
        ("ROUND(2.5e0)", '"3.0E0"^^<xsd:double>'),
        ("ROUND(-2.5e0)", '"-2.0E0"^^<xsd:double>'),
        ("ROUND(-0.2e0)", '"-0.0E0"^^<xsd:double>'),
        ("ROUND(0.49999999999999994e0)", '"0.0E0"^^<xsd:double>'),
        ("ROUND(4503599627370497.5e0)", '"4.503599627370498E15"^^<xsd:double>'),
        ("ROUND('INF'^^xsd:double)", '"INF"^^<xsd:double>'),
        ("ROUND(true)", None),
        (
            "FLOOR(123456789012345678901234567890123456789.9)",
            '"123456789012345678901234567890123456789"^^<xsd:decimal>',
        ),
    ],
)
def test_numbers(expression: str, expected: str | None) -> None:
    check(expression, expected)


MOMENT = "'2011-01-10T14:45:13.815-05:00'^^xsd:dateTime"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"YEAR({MOMENT})", integer(2011)),
        (f"MONTH({MOMENT})", integer(1)),
        (f"DAY({MOMENT})", integer(10)),
        (f"HOURS({MOMENT})", integer(14)),
        (f"MINUTES({MOMENT})", integer(45)),
        (f"SECONDS({MOMENT})", '"13.815"^^<xsd:decimal>'),
        (f"TIMEZONE({MOMENT})", '"-PT5H"^^<xsd:dayTimeDuration>'),
        (f"TZ({MOMENT})", '"-05:00"'),
        ("TIMEZONE('2011-01-10T14:45:13Z'^^xsd:dateTime)", '"PT0S"^^<xsd:dayTimeDuration>'),
        ("TIMEZONE('2011-01-10T14:45:13+05:30'^^xsd:dateTime)", '"PT5H30M"^^<xsd:dayTimeDuration>'),
        ("TIMEZONE('2011-01-10T14:45:13'^^xsd:dateTime)", None),
        ("TZ('2011-01-10T14:45:13Z'^^xsd:dateTime)", '"Z"'),
        ("TZ('2011-01-10T14:45:13+00:00'^^xsd:dateTime)", '"+00:00"'),
        ("TZ('2011-01-10T14:45:13'^^xsd:dateTime)", '""'),
        ("YEAR('-0044-03-15T00:00:00'^^xsd:dateTime)", integer(-44)),
        ("YEAR('2019-12-31T24:00:00'^^xsd:dateTime)", integer(2020)),
        ("HOURS('2019-12-31T24:00:00'^^xsd:dateTime)", integer(0)),
        ("SECONDS('2011-01-10T14:45:07Z'^^xsd:dateTime)", '"7"^^<xsd:decimal>'),
        ("MONTH('2011-07-10'^^xsd:date)", integer(7)),
        ("TZ('2011-07-10+02:00'^^xsd:date)", '"+02:00"'),
        ("HOURS('2011-07-10'^^xsd:date)", None),
        ("MINUTES('14:45:00'^^xsd:time)", integer(45)),
        ("DAY('14:45:00'^^xsd:time)", None),
        ("YEAR('2011-13-10T14:45:13'^^xsd:dateTime)", None),
        ("YEAR('2011')", None),
        ("NOW()", '"1970-01-01T00:00:00Z"^^<xsd:dateTime>'),
        ("NOW() = NOW()", "true"),
    ],
)
def test_times(expression: str, expected: str | None) -> None:
    check(expression, expected)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("STRDT('123', xsd:integer)", integer(123)),
        ("STRDT('iiii', <http://e/romanNumeral>)", '"iiii"^^<http://e/romanNumeral>'),
        ("STRDT('a', xsd:string)", '"a"'),
        ("STRDT('a'@en, xsd:string)", None),
        ("STRDT(1, xsd:string)", None),
        ("STRDT('a', 'b')", None),
        ("STRDT('a', <http://www.w3.org/1999/02/22-rdf-syntax-ns#langString>)", None),
        ("STRLANG('chat', 'EN-gb')", '"chat"@en-gb'),
        ("STRLANG('chat'@en, 'en')", None),
        ("STRLANG('chat', '')", None),
        ("STRLANG('chat', 'e n')", None),
        ("IRI('http://e/x')", "<http://e/x>"),
        ("URI(<http://e/x>)", "<http://e/x>"),
        ("IRI('a b')", None),
        ("IRI('http://e/>')", None),
        ("IRI('a'@en)", None),
        ("IRI(1)", None),
        ("hasLANG('a'@en)", "true"),
        ("hasLANG('a')", "false"),
        ("isNumeric('1'^^xsd:short)", "true"),
        ("isURI(IRI('http://e/'))", "true"),
        ("isBLANK(BNODE())", "true"),
        ("BNODE(1)", None),
        ("BNODE('a') = BNODE('a')", "true"),
        ("BNODE('a') = BNODE('b')", "false"),
        ("BNODE() = BNODE()", "false"),
        ("STRLEN(STRUUID())", integer(36)),
        ("REGEX(STR(UUID()), '^urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')", "true"),
        ("RAND() < 1 && RAND() >= 0", "true"),
        ("DATATYPE(RAND()) = xsd:double", "true"),
        ("RAND() = RAND()", "false"),
    ],
)
def test_terms(expression: str, expected: str | None) -> None:
    check(expression, expected)


def test_iri_is_resolved_against_the_base() -> None:
    assert result("IRI('b?c')", base="http://e/x/a") == "<http://e/x/b?c>"
    assert result("URI('#f')", base="http://e/x/a") == "<http://e/x/a#f>"
    assert result("IRI('http://other/')", base="http://e/x/a") == "<http://other/>"
    assert result("IRI('b')") == "<b>", "as <b> in the query itself without a base"


def test_random_values_are_of_their_rows() -> None:
    rows = [('"a"',), ('"a"',), ('"b"',)]
    for expression in ("RAND()", "UUID()", "STRUUID()", "BNODE()", "BNODE(?x)"):
        assert len(set(column(expression, ["x"], rows))) == 3, expression
    assert len(set(column("RAND() + 0", ["x"], rows))) == 3
    assert column("RAND() IN (RAND(), 2)", ["x"], rows) == ['"false"^^<xsd:boolean>'] * 3
    assert len(set(column("NOW()", ["x"], rows))) == 1


def test_random_values_spread_evenly() -> None:
    drawn = column("RAND() < 0.25", ["x"], [('"a"',)] * 2000)
    assert 400 < drawn.count('"true"^^<xsd:boolean>') < 600


def test_an_unknown_function_is_an_error_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "wukongs"):
        assert column("COALESCE(:unknown(?x), 'none')", ["x"], [('"a"',), ('"b"',)]) == ['"none"', '"none"']
        assert result("<http://e/unknown>()") is None
    assert [record.getMessage() for record in caplog.records] == [
        "there is no function <http://e/unknown>: each call of it is an error, so it gives no value"
    ]


@pytest.mark.parametrize("expression", ["STR(?x)", "CONCAT('a', ?x)", "ABS(?x)", "xsd:integer(?x)", "REGEX(?x, 'a')"])
def test_an_error_in_an_argument_is_an_error(expression: str) -> None:
    assert column(expression, ["x"], [(None,), ("_:b",)]) == [None, None]


# --- long texts -------------------------------------------------------------------------------------------------------

LONG = "Straße ΑΣ ǰ %é𝄞/" * 5


@pytest.mark.parametrize("call", ["UCASE", "LCASE", "ENCODE_FOR_URI", "SHA256", "MD5"])
@pytest.mark.parametrize("held", [LONG, LONG.replace("Σ", "σ"), ""])
def test_long_texts_are_worked_on_in_pieces(call: str, held: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = [(f'"{held}"',)]
    expected = column(f"{call}(?x)", ["x"], value)
    monkeypatch.setattr(strings, "PIECE_CHARACTERS", 3)
    assert column(f"{call}(?x)", ["x"], value) == expected
    if call == "LCASE":
        assert expected == [f'"{held.lower()}"']


@pytest.mark.parametrize("call", ["UCASE", "LCASE", "ENCODE_FOR_URI", "SHA256", "MD5"])
def test_long_texts_end_at_the_deadline(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is looked at within a text."""
    monkeypatch.setattr(strings, "PIECE_CHARACTERS", 3)
    with Limits(deadline_s=time.monotonic() - 1, timeout_s=1), pytest.raises(QueryTimeout):
        strings.FUNCTIONS[call](string("abcdefg"))


@pytest.mark.parametrize("call", ["UCASE", "ENCODE_FOR_URI"])
def test_long_texts_that_grow_are_refused(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strings, "PIECE_CHARACTERS", 3)
    with Limits(bytes_max=4 * 12), pytest.raises(BudgetExceeded, match=f"{call} would take"):
        strings.FUNCTIONS[call](string("ßßßßßßßß"))
