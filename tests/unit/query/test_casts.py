"""Casts between the types of XML Schema: the table of SPARQL 1.1, 17.5, with XPath's rules."""

from __future__ import annotations

import pytest

from tests.expression_text import result

pytestmark = pytest.mark.nojit


@pytest.mark.parametrize(
    ("argument", "name", "lexical"),
    [
        ("'a'", "string", "a"),
        ("<http://e/a>", "string", "http://e/a"),
        ("'01'^^xsd:integer", "string", "1"),
        ("'2.50'^^xsd:decimal", "string", "2.5"),
        ("1e0", "string", "1"),
        ("1.5e3", "string", "1500"),
        ("1e6", "string", "1.0E6"),
        ("1e-7", "string", "1.0E-7"),
        ("'0.1'^^xsd:float", "string", "0.1"),
        ("'-0'^^xsd:double", "string", "-0"),
        ("'NaN'^^xsd:double", "string", "NaN"),
        ("'1'^^xsd:boolean", "string", "true"),
        ("'2020-01-01T23:00:00.50Z'^^xsd:dateTime", "string", "2020-01-01T23:00:00.5Z"),
        ("'2020-01-01T24:00:00Z'^^xsd:dateTime", "string", "2020-01-02T00:00:00Z"),
        ("'2020-01-01+00:00'^^xsd:date", "string", "2020-01-01Z"),
        ("'P400D'^^xsd:dayTimeDuration", "string", "P400D"),
        ("'a'@en", "string", None),
        ("'a'^^<http://e/t>", "string", None),
        ("'x'^^xsd:integer", "string", None),
        ("'true'", "boolean", "true"),
        ("' 0 '", "boolean", "false"),
        ("'TRUE'", "boolean", None),
        ("'0.0'^^xsd:decimal", "boolean", "false"),
        ("'NaN'^^xsd:double", "boolean", "false"),
        ("7", "boolean", "true"),
        ("<http://e/a>", "boolean", None),
        ("'07'", "integer", "7"),
        ("' 7\\n'", "integer", "7"),
        ("'7.0'", "integer", None),
        ("'٣'", "integer", None),
        ("2.9", "integer", "2"),
        ("-2.9", "integer", "-2"),
        ("1e30", "integer", "1000000000000000019884624838656"),
        ("'INF'^^xsd:double", "integer", None),
        ("'NaN'^^xsd:float", "integer", None),
        ("true", "integer", "1"),
        ("'2020-01-01'^^xsd:date", "integer", None),
        ("128", "byte", None),
        ("127.9", "byte", "127"),
        ("-1", "unsignedInt", None),
        ("'300'", "unsignedByte", None),
        ("'12'", "long", "12"),
        ("'1.50'", "decimal", "1.5"),
        ("'1e0'", "decimal", None),
        ("1e2", "decimal", "100"),
        ("0.5e0", "decimal", "0.5"),
        ("0.1e0", "decimal", "0.1000000000000000055511151231257827021181583404541015625"),
        ("'-INF'^^xsd:double", "decimal", None),
        ("false", "decimal", "0"),
        ("'1e400'", "double", "INF"),
        ("'inf'", "double", None),
        ("'-INF'", "double", "-INF"),
        ("9007199254740993", "double", "9.007199254740992E15"),
        ("'0.1'^^xsd:float", "double", "1.0000000149011612E-1"),
        ("true", "double", "1.0E0"),
        ("0.1e0", "float", "1.0E-1"),
        ("1e39", "float", "INF"),
        ("'16777217'", "float", "1.6777216E7"),
        ("'2020-02-29T01:02:03'", "dateTime", "2020-02-29T01:02:03"),
        ("'2020-02-30T01:02:03'", "dateTime", None),
        ("'2020-02-29'", "dateTime", None),
        ("'2020-02-29+01:00'^^xsd:date", "dateTime", "2020-02-29T00:00:00+01:00"),
        ("'2020-02-29T23:02:03.10-01:00'^^xsd:dateTime", "date", "2020-02-29-01:00"),
        ("'2020-02-29T23:02:03.10-01:00'^^xsd:dateTime", "time", "23:02:03.1-01:00"),
        ("'24:00:00'", "time", "00:00:00"),
        ("'2020-02-29'^^xsd:date", "time", None),
        ("7", "dateTime", None),
        ("'P1Y2M3DT4H'", "duration", "P1Y2M3DT4H"),
        ("'P14MT36H'^^xsd:duration", "yearMonthDuration", "P1Y2M"),
        ("'P14MT36H'^^xsd:duration", "dayTimeDuration", "P1DT12H"),
        ("'-P1Y'^^xsd:yearMonthDuration", "dayTimeDuration", "PT0S"),
        ("'P1Y'", "dayTimeDuration", None),
    ],
)
def test_cast(argument: str, name: str, lexical: str | None) -> None:
    expected = None if lexical is None else f'"{lexical}"' + ("" if name == "string" else f"^^<xsd:{name}>")
    assert result(f"xsd:{name}({argument})") == expected


def test_a_cast_takes_one_argument() -> None:
    assert result("xsd:integer()") is None
    assert result("xsd:integer(1, 2)") is None


@pytest.mark.parametrize("lexical", ["INF", "1.0E0", "2", "true", "2020-01-01Z", "PT1S"])
def test_a_blank_node_cannot_be_cast(lexical: str) -> None:
    assert result("xsd:string(?x)", x="_:b") is None
    assert result(f"xsd:string(STRDT('{lexical}', <http://e/t>))") is None
