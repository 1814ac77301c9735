"""Dates and times: our columns, of inlined ids and of others, against the plain oracle; and against pyoxigraph."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pyoxigraph
import pytest

from tests.differential.test_functions import canonical, from_canonical
from tests.expression_text import PREFIXES, column
from tests.fuzz import first_and_slow
from tests.oracles.rdf import XSD, Term, iri, literal, ntriples
from tests.oracles.times import FUNCTIONS, ExpressionError, add, compare, or_error, subtract
from wukongs.csparql.algebra import Extend, Filter, Project
from wukongs.csparql.parser import parse_query
from wukongs.csparql.terms import Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.expressions.expressions import evaluate, holds
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.dtypes import UNBOUND
from wukongs.store.term_ids import is_inlined
from wukongs.store.term_registry import TermRegistry

pytestmark = pytest.mark.nojit

OPS = ("=", "!=", "<", ">", "<=", ">=")
X, Y = Variable("x"), Variable("y")
ODD = (
    *("2010-01-02T24:00:00Z", "2009-12-31T24:00:00", "9999-12-31T24:00:00Z", "-0001-12-31T24:00:00.0-05:00"),
    *("0000-02-29T00:00:00Z", "0000-01-01T00:00:00", "-0004-02-29T01:02:03Z", "12010-01-02T03:04:05.5Z"),
    *("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "2010-01-02T03:04:05-00:00", "2010-01-02T03:04:05+00:01"),
    *("1949-12-31T23:59:59.999999Z", "1950-01-01T00:00:00.000001Z", "2119-10-02T23:59:59.999999+14:00"),
    *("2010-01-02T03:04:05.000000", "2010-01-02T03:04:05.100000Z", "2010-01-02T03:04:05.120", "2010-01-02T03:04:05.00"),
)
ILL_TYPED = (
    *(
        "2010-02-29T00:00:00Z",
        "2010-01-02T24:00:01",
        "2010-01-02T03:04:60",
        "2010-1-2T03:04:05",
        "02010-01-02T00:00:00",
    ),
    *(
        "2010-01-02T03:04:05+14:01",
        "2010-01-02T03:04:05.",
        "2010-01-02",
        "2010-01-02 03:04:05",
        "",
        "2010-13-01T00:00:00",
    ),
)
OTHERS = (
    *(literal(form, XSD + "dateTime") for form in ILL_TYPED),
    *(literal(form, XSD + "date") for form in ("2010-02-29", "0000-02-29", "-0001-01-01Z", "12010-01-01", "x")),
    *(literal(form, XSD + "time") for form in ("03:04:05", "24:00:00Z", "03:04:05.50-05:00", "3:4:5", "23:59:59.999Z")),
    *(literal("2010-01-02T03:04:05Z"), literal(" 2010-01-02\n"), literal("2010", XSD + "gYear"), iri("http://e/a")),
    *(literal("7", XSD + "integer"), literal("P1D", XSD + "dayTimeDuration"), literal("x", "", "en")),
)


def moments(source: random.Random, count: int) -> list[Term]:
    """Dates and times near each other and far apart."""
    found: list[Term] = []
    for _ in range(count):
        year = source.choice((2010, 2010, 2010, source.randrange(1, 10000), source.randrange(-3, 3)))
        day = f"{'-' if year < 0 else ''}{abs(year):04}-{source.randrange(1, 13):02}-{source.randrange(1, 29):02}"
        digits = source.choice((0, 0, 0, 1, 2, 3, 4, 6, 6, 7, 9))
        fraction = "." + "".join(source.choices("0012359", k=digits)) if digits else ""
        clock = f"{source.randrange(24):02}:{source.randrange(60):02}:{source.randrange(60):02}{fraction}"
        zone = source.choice(("", "", "Z", "Z", "+00:00", "-00:00", "+05:30", "-11:45", "+14:00", "-14:00", "+01:07"))
        made = [(f"{day}T{clock}", "dateTime"), (f"{day}T{clock}", "dateTime"), (day, "date"), (clock, "time")]
        form, name = source.choice(made)
        found.append(literal(form + zone, XSD + name))
    return found


SOURCE = random.Random("times")
TERMS = [*moments(SOURCE, 400), *(literal(form, XSD + "dateTime") for form in ODD), *OTHERS]
NEAR = [*moments(random.Random("near"), 40), *(literal(form, XSD + "dateTime") for form in ODD), *OTHERS]


def by_store_ids(expression: str, rows: list[tuple[Term, ...]]) -> list[str | None]:
    """Evaluate over the ids of the store."""
    pattern = parse_query(f"{PREFIXES} SELECT ({expression} AS ?result) {{}}").pattern
    assert isinstance(pattern, Project)
    assert isinstance(pattern.pattern, Extend)
    terms, table = stored(rows)
    ids = evaluate(pattern.pattern.expression, table, terms)
    texts = iter(terms.texts(ids[ids != UNBOUND]))
    return [None if found == UNBOUND else next(texts).replace(f"^^<{XSD}", "^^<xsd:") for found in ids.tolist()]


def stored(rows: list[tuple[Term, ...]]) -> tuple[QueryTerms, BindingTable]:
    registry = TermRegistry()
    terms = QueryTerms(registry, registry.snapshot_reader())
    columns = [terms.ids([canonical(term) for term in column]) for column in zip(*rows, strict=True)]
    return terms, BindingTable((X, Y)[: len(columns)], tuple(columns), len(rows))


def test_the_terms_are_of_both_kinds() -> None:
    _, table = stored([(term,) for term in TERMS])
    inlined = is_inlined(table.columns[0])
    assert 150 < np.count_nonzero(inlined) < len(TERMS) - 100


def test_store_ids_and_list_ids_give_what_the_oracle_gives() -> None:
    rows = [(term,) for term in TERMS]
    for name, function in FUNCTIONS.items():
        expected = [or_error(function, term) for term in TERMS]
        assert sum(term is not None for term in expected) > 200, name
        for found in (
            by_store_ids(f"{name}(?x)", rows),
            column(f"{name}(?x)", ["x"], [(canonical(t),) for t in TERMS]),
        ):
            differing = [
                entry for entry in zip(TERMS, map(from_canonical, found), expected, strict=True) if entry[1] != entry[2]
            ]
            assert not differing, f"{name}: {differing[:5]}"


def test_differences() -> None:
    rows = list(itertools.product(NEAR, NEAR))
    expected = [or_error(subtract, *row) for row in rows]
    assert sum(term is not None for term in expected) > 700
    some = [row for row in rows if row[0].datatype != XSD + "integer"]  # whose difference is a number
    wanted = [or_error(subtract, *row) for row in some]
    texts = [(canonical(one), canonical(other)) for one, other in some]
    for found in (by_store_ids("?x - ?y", some), column("?x - ?y", ["x", "y"], texts)):
        differing = [e for e in zip(some, map(from_canonical, found), wanted, strict=True) if e[1] != e[2]]
        assert not differing, differing[:5]


@pytest.mark.parametrize("lexical", ["PT0S", "PT5M", "-PT0.000001S", "P1DT3H15M0.5S", "-P400000D", "PT0.0000001S"])
def test_sums_with_durations(lexical: str) -> None:
    """The duration is a constant of the query, so rows with dateTimes are added by columns; the rest one by one."""
    duration = literal(lexical, XSD + "dayTimeDuration")
    rows, texts = [(term,) for term in TERMS], [(canonical(term),) for term in TERMS]
    written = f'"{lexical}"^^<{XSD}dayTimeDuration>'
    for expression, function in ((f"?x + {written}", add), (f"{written} + ?x", add), (f"?x - {written}", subtract)):
        wanted = [or_error(function, term, duration) for term in TERMS if term.datatype != XSD + "dayTimeDuration"]
        assert sum(term is not None for term in wanted) > 200
        for found in (by_store_ids(expression, rows), column(expression, ["x"], texts)):
            pairs = zip(TERMS, map(from_canonical, found), strict=True)
            shown = [text for term, text in pairs if term.datatype != XSD + "dayTimeDuration"]
            assert shown == wanted


@pytest.mark.parametrize("op", OPS)
def test_comparisons(op: str) -> None:
    names = (XSD + "dateTime", XSD + "date", XSD + "time")
    moments = [term for term in NEAR if term.datatype in names]
    rows, expected = [], []
    for row in itertools.product(moments, moments):
        try:
            truth = compare(op, *row)
        except ExpressionError:
            continue
        rows.append(row)
        expected.append(truth)
    found = by_store_ids(f"?x {op} ?y", rows)
    differing = [e for e in zip(rows, found, expected, strict=True) if e[1] != f'"{str(e[2]).lower()}"^^<xsd:boolean>']
    assert not differing, differing[:5]


@pytest.mark.parametrize("op", first_and_slow(OPS))
def test_filters_on_parts_and_differences(op: str) -> None:
    """A comparison of what a function gives is that of its values, made apart."""
    rows = list(itertools.product(NEAR, NEAR))
    terms, table = stored(rows)
    for left, right in (
        ("YEAR(?x)", "YEAR(?y)"),
        ("MONTH(?x)", "6"),
        ("xsd:date(?x)", "?y"),
        ("TZ(?x)", "'Z'"),
        ("?x - ?y", "'PT12H0.5S'^^xsd:dayTimeDuration"),
        ("'P1D'^^xsd:dayTimeDuration", "?y - ?x"),
        ("?x - ?y", "'P1M'^^xsd:yearMonthDuration"),
        ("?x - ?y", "?y - ?x"),
        ("NOW() - ?y", "?x - '1969-05-01T00:00:00Z'^^xsd:dateTime"),
        ("HOURS(?x) + 1", "MINUTES(?y)"),
    ):
        query = f"{PREFIXES} SELECT * {{ BIND({left} AS ?l) BIND({right} AS ?r) FILTER(?l {op} ?r) }}"
        pattern = parse_query(query).pattern
        extends = []
        while not isinstance(pattern, Filter):
            pattern = pattern.pattern  # type: ignore[union-attr]
        condition, pattern = pattern.condition, pattern.pattern
        while isinstance(pattern, Extend):
            extends.append(pattern.expression)
            pattern = pattern.pattern
        columns = tuple(evaluate(expression, table, terms) for expression in reversed(extends))
        apart = BindingTable((Variable("l"), Variable("r")), columns, table.length)
        whole = parse_query(f"{PREFIXES} SELECT ({left} {op} {right} AS ?z) {{}}").pattern
        together = whole.pattern.expression  # type: ignore[union-attr]
        assert holds(together, table, terms).tolist() == holds(condition, apart, terms).tolist(), (left, right)


# --- pyoxigraph -------------------------------------------------------------------------------------------------------


def by_pyoxigraph(expression: str) -> Term | None:
    solutions = pyoxigraph.Store().query(f"{PREFIXES} SELECT ({expression} AS ?result) {{}}")
    assert isinstance(solutions, pyoxigraph.QuerySolutions)
    term = next(iter(solutions))["result"]
    if not isinstance(term, pyoxigraph.Literal):
        return None
    datatype = "" if term.datatype.value == XSD + "string" else term.datatype.value
    return literal(term.value, datatype)


def has_zone(term: Term) -> bool:
    return term.value.endswith("Z") or (term.value[-3:-2] == ":" and term.value[-6:-5] in ("+", "-"))


def test_parts_against_pyoxigraph() -> None:
    """It writes every zone of UTC as Z, ends some years early, and gives parts of all calendar types."""
    terms = [term for term in TERMS if term.datatype in (XSD + "dateTime", XSD + "date")]
    for name, function in FUNCTIONS.items():
        for term in terms:
            expected = or_error(function, term)
            if expected is None or (name == "TZ" and "00:00" in expected.value):
                continue
            assert by_pyoxigraph(f"{name}({ntriples(term)})") == expected, (name, term)


def test_differences_against_pyoxigraph() -> None:
    """It has none where one of two has a zone."""
    terms = [term for term in NEAR if term.datatype in (XSD + "dateTime", XSD + "date")]
    compared = 0
    for one, other in itertools.product(terms[:40], terms[:40]):
        expected = or_error(subtract, one, other)
        if expected is not None and has_zone(one) == has_zone(other):
            compared += 1
            assert by_pyoxigraph(f"{ntriples(one)} - {ntriples(other)}") == expected, (one, other)
    assert compared > 200
