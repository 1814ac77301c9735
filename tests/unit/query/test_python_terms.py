"""Python's values and the terms of libraries become literals and terms as written here by hand."""

from __future__ import annotations

import datetime as dt
import enum
import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyoxigraph as ox
import pytest
import rdflib

from wukongs.errors import DataError
from wukongs.query.terms.rdf_terms import from_python

XSD = "http://www.w3.org/2001/XMLSchema#"
EAST = dt.timezone(dt.timedelta(hours=5, minutes=30))
ODD = dt.timezone(dt.timedelta(minutes=17, seconds=30))


class Answer(enum.IntEnum):
    YES = 1


class Name(enum.StrEnum):
    A = '"a"'


@pytest.mark.parametrize(
    ("value", "lexical", "datatype"),
    [
        (True, "true", "boolean"),
        (np.bool_(False), "false", "boolean"),
        (5, "5", "integer"),
        (-(10**30), "-1" + "0" * 30, "integer"),
        (np.int64(3), "3", "integer"),
        (Answer.YES, "1", "integer"),
        (1.5, "1.5", "double"),
        (5.0, "5.0", "double"),
        (1e20, "1e+20", "double"),
        (float("inf"), "INF", "double"),
        (float("-inf"), "-INF", "double"),
        (float("nan"), "NaN", "double"),
        (np.float64(0.25), "0.25", "double"),
        (Decimal("2.50"), "2.50", "decimal"),
        (Decimal("1E+3"), "1000", "decimal"),
        (Decimal("1E-8"), "0.00000001", "decimal"),
        (dt.datetime(2020, 1, 2, 3, 4, 5), "2020-01-02T03:04:05", "dateTime"),
        (dt.datetime(2020, 1, 2, 3, 4, 0, 450_000), "2020-01-02T03:04:00.45", "dateTime"),
        (dt.datetime(2020, 1, 2, tzinfo=dt.UTC), "2020-01-02T00:00:00Z", "dateTime"),
        (dt.datetime(2020, 1, 2, 0, 0, 0, 5, EAST), "2020-01-02T00:00:00.000005+05:30", "dateTime"),
        (dt.datetime(2020, 1, 2, 1, 17, 30, tzinfo=ODD), "2020-01-02T01:00:00Z", "dateTime"),
        (pd.Timestamp("2020-01-02T00:00:00.000000001Z"), "2020-01-02T00:00:00.000000001Z", "dateTime"),
        (dt.date(987, 1, 2), "0987-01-02", "date"),
        (dt.timedelta(0), "PT0S", "dayTimeDuration"),
        (dt.timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=500_000), "P1DT2H3M4.5S", "dayTimeDuration"),
        (dt.timedelta(days=-1, seconds=5), "-PT23H59M55S", "dayTimeDuration"),
    ],
)
def test_values_are_literals_of_their_datatypes(value: Any, lexical: str, datatype: str) -> None:
    assert from_python(value) == f'"{lexical}"^^<{XSD}{datatype}>'


def test_an_integer_may_be_longer_than_python_writes_it() -> None:
    assert from_python(10**5000) == f'"1{"0" * 5000}"^^<{XSD}integer>'


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (ox.NamedNode("http://ex/a"), "<http://ex/a>"),
        (ox.BlankNode("b1"), "_:b1"),
        (ox.Literal('a "b"\n'), r'"a \"b\"\n"'),
        (ox.Literal("x", language="en"), '"x"@en'),
        (ox.Literal("x", language="ar", direction=ox.BaseDirection.RTL), '"x"@ar--rtl'),
        (ox.Literal("01", datatype=ox.NamedNode(f"{XSD}integer")), f'"01"^^<{XSD}integer>'),
        (rdflib.URIRef("http://ex/a"), "<http://ex/a>"),
        (rdflib.Literal("x", lang="en"), '"x"@en'),
        (Name.A, '"a"'),
        (np.str_("<http://ex/a>"), "<http://ex/a>"),
    ],
)
def test_terms_of_libraries_stay_the_same_term(term: Any, text: str) -> None:
    assert from_python(term) == text


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (Decimal("NaN"), "expected a Decimal that xsd:decimal can hold, found NaN"),
        (Decimal("1E+999999"), "expected a Decimal of at most 4000 digits, found 1E+999999"),
        (pd.NaT, "found a missing value (NaT)"),
        (dt.time(1, 2), "of type time"),
        (np.datetime64("2020-01-01"), "of type datetime64"),
        (b"x", "found b'x' of type bytes"),
        (ox.Variable("x"), "of type Variable"),
        (ox.DefaultGraph(), "of type DefaultGraph"),
    ],
)
def test_other_values_are_refused(value: Any, found: str) -> None:
    with pytest.raises(DataError) as it:
        from_python(value)
    assert found in str(it.value)


@pytest.mark.slow
def test_no_library_of_terms_is_loaded_for_values() -> None:
    program = (
        "import sys, wukongs, datetime\n"
        "with wukongs.Engine() as engine:\n"
        "    engine.stream('http://ex/s').push([('<http://ex/a>', '<http://ex/p>', v, 1) for v in (1, 2.5, True)])\n"
        "    engine.query('SELECT ?s { ?s ?p ?o }', bindings={'o': datetime.date(2020, 1, 1)})\n"
        "print([name for name in ('rdflib', 'pyoxigraph', 'pandas') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
