"""Functions and values through the Engine: the moment of a query and of a firing, and values of stored literals."""

from __future__ import annotations

import datetime
import io

import pytest

import wukongs
from tests.engine_helpers import EX, A, at, names, register_text, rows
from tests.faces import Face

XSD = "PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> PREFIX : <http://ex/> "


def of_firings(engine: wukongs.Engine, select: str, where: str = "{ ?s ?p ?o }") -> dict[int, list[tuple[str, ...]]]:
    """Push the same three tuples into each of two windows; return the rows of both."""
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms", select=select, where=where))
    stream.push([at(name, t) for t in (50, 150) for name in ("b", "a", "c")])
    stream.advance(200)
    engine.settle(timeout_s=60)
    return {window.end_ms: rows(window) for window in query.results(timeout_s=0)}


def test_now_in_a_firing_is_the_end_of_its_window(engine: wukongs.Engine) -> None:
    found = of_firings(engine, "?s (NOW() AS ?t)")
    assert {row[1] for row in found[100]} == {"1970-01-01T00:00:00.1Z"}
    assert {row[1] for row in found[200]} == {"1970-01-01T00:00:00.2Z"}


def test_now_in_an_empty_window_is_not_that_of_an_earlier_one(engine: wukongs.Engine) -> None:
    where = '{ OPTIONAL { ?s ?p ?o } FILTER(NOW() > "1970-01-01T00:00:00.25Z"^^xsd:dateTime) }'
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(XSD + register_text("RANGE 100ms STEP 100ms", select="(1 AS ?one)", where=where))
    stream.push([at("a", 50)])
    stream.advance(400)
    engine.settle(timeout_s=60)
    assert {w.end_ms: len(list(w)) for w in query.results(timeout_s=0)} == {100: 0, 200: 0, 300: 1, 400: 1}


def test_now_in_a_query_is_one_instant_of_today(engine: wukongs.Engine) -> None:
    before = datetime.datetime.now(datetime.UTC)
    ((first, second),) = list(engine.query("SELECT (NOW() AS ?a) (NOW() AS ?b) {}"))
    assert first == second
    told = datetime.datetime.fromisoformat(str(first))
    assert before - datetime.timedelta(seconds=1) <= told <= datetime.datetime.now(datetime.UTC)


def test_a_firing_draws_the_same_values_whenever_it_happens(face: Face) -> None:
    select = "?s (RAND() AS ?r) (STRUUID() AS ?u) (STR(RAND()) AS ?v)"
    answers = [of_firings(face.open(), select) for _ in range(2)]
    assert answers[0] == answers[1]
    assert len({value for row in [*answers[0][100], *answers[0][200]] for value in row[1:]}) == 18, "no value twice"


def test_a_query_draws_other_values_each_time(engine: wukongs.Engine) -> None:
    drawn = {str(next(iter(engine.query("SELECT (RAND() AS ?r) {}")))[0]) for _ in range(5)}
    assert len(drawn) == 5


def test_bnode_of_a_string_is_one_node_in_one_solution(engine: wukongs.Engine) -> None:
    engine.load(io.BytesIO(b'<http://ex/1> <http://ex/p> "a" . <http://ex/2> <http://ex/p> "a" .'), format="ttl")
    text = """SELECT ?x ?a ?b ?c ?d { ?x ?p ?o BIND(BNODE(?o) AS ?a) BIND(BNODE("a") AS ?b) BIND(BNODE("b") AS ?c)
              BIND(BNODE() AS ?d) }"""
    solutions = list(engine.query(text))
    assert len(solutions) == 2
    for _, one, same, other, fresh in solutions:
        assert one == same
        assert len({one, other, fresh}) == 3
    assert len({node for row in solutions for node in row[1:]}) == 6, "another solution has other nodes"


def test_random_filters_choose_rows_one_by_one(engine: wukongs.Engine) -> None:
    lines = "".join(f"<http://ex/{number}> <http://ex/p> <http://ex/o> .\n" for number in range(1000))
    engine.load(io.BytesIO(lines.encode()), format="nt")
    chosen = len(list(engine.query("SELECT ?s { ?s ?p ?o FILTER(RAND() < 0.5) }")))
    assert 350 < chosen < 650


VALUES = """
:five :v 5 . :fivePointZero :v 5.0 . :fiveDouble :v 5e0 . :int :v "05"^^xsd:int . :float :v "5"^^xsd:float .
:long :v "000000000000000000000000000000005"^^xsd:long . :text :v "5" . :tagged :v "5"@en . :ill :v "5x"^^xsd:integer .
:odd :v "5"^^:unknown . :big :v 9007199254740993 . :bigDouble :v 9007199254740992e0 .
:bigDecimal :v 9007199254740993.0 .
:nan :v "NaN"^^xsd:double . :negativeZero :v "-0.0"^^xsd:double . :zero :v 0 . :inf :v "INF"^^xsd:float .
:infDouble :v "INF"^^xsd:double . :utc :v "2020-01-01T00:00:00Z"^^xsd:dateTime .
:east :v "2020-01-01T01:30:00+01:30"^^xsd:dateTime . :local :v "2020-01-01T00:00:00"^^xsd:dateTime .
"""


@pytest.fixture
def with_values(engine: wukongs.Engine) -> wukongs.Engine:
    turtle = XSD.replace("PREFIX", "@prefix").replace("> ", "> .\n") + VALUES
    engine.load(io.BytesIO(turtle.encode()), format="ttl")
    return engine


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("?x = 5", "fivePointZero fiveDouble five float int long"),
        ("?x IN (5.00, 6)", "fivePointZero fiveDouble five float int long"),
        ("sameTerm(?x, 5)", "five"),
        ("?x = '5'", "text"),
        ("?x = 9007199254740993", "bigDecimal big bigDouble"),
        ("?x = 9007199254740992", "bigDouble"),
        ("?x = 9007199254740992e0", "bigDecimal big bigDouble"),
        ("?x > 9007199254740992", "bigDecimal big infDouble inf"),
        ("?x = 0", "negativeZero zero"),
        ("?x < 0", ""),
        ("1 / ?x < 0", "negativeZero"),
        ("isNumeric(?x) && ?x != ?x", "nan"),
        ("?x = 'INF'^^xsd:double", "infDouble inf"),
        ("?x = '2020-01-01T00:00:00+00:00'^^xsd:dateTime", "east local utc"),
        ("?x >= '2020-01-01T00:00:00.000001Z'^^xsd:dateTime", ""),
        ("ROUND(?x + 0.4) = 5", "fivePointZero fiveDouble five float int long"),
        ("xsd:integer(?x) = 5", "fivePointZero fiveDouble five float int long text"),
        ("YEAR(?x) = 2020 && HOURS(?x) = 1", "east"),
        ("STRLEN(STR(?x)) = 1", "five odd tagged text float zero"),
    ],
)
def test_stored_values_compare_by_value(with_values: wukongs.Engine, condition: str, expected: str) -> None:
    found = names(with_values.query(f"{XSD} SELECT ?s {{ ?s :v ?x FILTER({condition}) }}"))
    assert found == sorted(expected.split())


def test_terms_are_told_apart_where_they_are_grouped(with_values: wukongs.Engine) -> None:
    text = f"{XSD} SELECT (COUNT(DISTINCT ?x) AS ?terms) (COUNT(?x) AS ?all) {{ ?s :v ?x FILTER(?x = 5) }}"
    assert rows(with_values.query(text)) == [("6", "6")]
    text = f"{XSD} SELECT ?x {{ ?s :v ?x FILTER(?x = 5) }} GROUP BY ?x"
    assert len(list(with_values.query(text))) == 6


def test_iri_goes_by_the_base_of_the_query(engine: wukongs.Engine) -> None:
    found = engine.query('SELECT (IRI("x") AS ?a) (URI(<y>) AS ?b) {}', base=EX)
    assert rows(found) == [("x", "y")]
    found = engine.query('BASE <http://ex/deep/> SELECT (IRI("../x") AS ?a) {}')
    assert rows(found) == [("x",)]
