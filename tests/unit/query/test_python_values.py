from __future__ import annotations

import datetime
from decimal import Decimal

import pytest

from wukongs.csparql.terms import XSD
from wukongs.query.terms.python_values import to_python


@pytest.mark.parametrize(
    ("canonical", "value"),
    [
        (f'"01"^^<{XSD}integer>', 1),
        (f'"1.50"^^<{XSD}decimal>', Decimal("1.50")),
        (f'"1e3"^^<{XSD}double>', 1000.0),
        (f'"true"^^<{XSD}boolean>', True),
        (f'"2020-01-02"^^<{XSD}date>', datetime.date(2020, 1, 2)),
        (f'"2020-01-02T03:04:05"^^<{XSD}dateTime>', datetime.datetime(2020, 1, 2, 3, 4, 5)),
        (f'"2020-01-02T03:04:05.5Z"^^<{XSD}dateTime>', datetime.datetime(2020, 1, 2, 3, 4, 5, 500_000, datetime.UTC)),
        (f'"-0044-03-15T00:00:00"^^<{XSD}dateTime>', "-0044-03-15T00:00:00"),
        (f'"2020-13-02"^^<{XSD}date>', "2020-13-02"),
        (f'"abc"^^<{XSD}integer>', "abc"),
        (f'"1_000"^^<{XSD}integer>', "1_000"),
        (f'"0"^^<{XSD}boolean>', False),
        (f'"yes"^^<{XSD}boolean>', "yes"),
        (f'"123456789012345678901234567890"^^<{XSD}long>', "123456789012345678901234567890"),
        ('"5"^^<http://ex/length>', "5"),
        (f'"ff"^^<{XSD}hexBinary>', "ff"),
        ('"hallo"@de', "hallo"),
        ('"hallo"', "hallo"),
        ("<http://ex/a>", "http://ex/a"),
        ("_:b", "_:b"),
    ],
)
def test_python_values(canonical: str, value: object) -> None:
    found = to_python(canonical)
    assert (found, type(found)) == (value, type(value))
