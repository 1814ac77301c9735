"""EXPLAIN's pieces; whole texts are in tests/golden/plans."""

from __future__ import annotations

import pytest

from tests.unit.csparql.counted_triples import CountedTriples
from wukongs.csparql.algebra import DEFAULT, Aggregate, Bgp
from wukongs.csparql.explain import explain, format_duration, format_expression, format_rows, step_kind
from wukongs.csparql.parser import parse_query
from wukongs.csparql.terms import Variable


@pytest.mark.parametrize(
    ("length_ms", "text"),
    [
        (1, "1ms"),
        (1_500, "1500ms"),
        (10_000, "10s"),
        (60_000, "1m"),
        (90_000, "90s"),
        (7_200_000, "2h"),
        (86_400_000, "1d"),
    ],
)
def test_durations(length_ms: int, text: str) -> None:
    assert format_duration(length_ms) == text


def test_aggregates() -> None:
    assert format_expression(Aggregate("COUNT", None)) == "COUNT(*)"
    assert format_expression(Aggregate("SUM", Variable("x"), True)) == "SUM(DISTINCT ?x)"
    assert (
        format_expression(Aggregate("GROUP_CONCAT", Variable("x"), False, ", ")) == "GROUP_CONCAT(?x; SEPARATOR=', ')"
    )


def test_kinds_of_steps() -> None:
    bgp = parse_query("ASK { ?x <p> ?y . ?x <p> <o> . <s> <p> <o> }").pattern
    assert isinstance(bgp, Bgp)
    scan, expand, check = bgp.patterns
    x, y = Variable("x"), Variable("y")
    assert [step_kind(scan, frozenset(known)) for known in ((), (x,), (x, y))] == ["scan", "expand", "check"]
    assert [step_kind(expand, frozenset(known)) for known in ((), (x,))] == ["expand", "check"]
    assert step_kind(check, frozenset()) == "check"


def test_a_query_without_patterns() -> None:
    assert explain(parse_query("ASK {}"), CountedTriples({})) == "ASK\nUnit\n"


def test_where_a_step_reads() -> None:
    query = parse_query(
        "REGISTER QUERY q COMPUTED EVERY 2s AS ASK FROM NAMED <g> FROM STREAM <s> [RANGE 3s TUMBLING] "
        "{ ?x a ?y GRAPH <s> { ?x ?p 1 } GRAPH <g> { ?y ?p 2.5 } GRAPH ?h { ?y ?p 3 } }"
    )
    assert explain(query, CountedTriples({})).splitlines()[:4] == [
        "ASK registered as q computed every 2s",
        "from named <g>",
        "from stream <s> [3s tumbling]",
        "Bgp of 4",
    ]
    text = explain(query, CountedTriples({}))
    for words in ("in the default graph", "in window <s> [3s tumbling]", "in stored graph <g>", "in each graph ?h"):
        assert f"  {words} " in text
    assert text.count(" rows") == 4
    assert [format_rows(rows) for rows in (12.4, 3.0, 0.123)] == ["~12 rows", "~3 rows", "~0.12 rows"]
    assert "in the stored default graph" in explain(parse_query("ASK { ?x a ?y }"), CountedTriples({}))


def test_operators_of_patterns() -> None:
    """Each with what it does; the pattern of an EXISTS stands below the operator whose expression asks for it."""
    text = """ASK {
      GRAPH ?g { SELECT (COUNT(*) AS ?n) { ?x <p> ?y } }
      MINUS { VALUES (?x ?y) { (1 UNDEF) (2 3) } }
      FILTER(?n > 1 || NOT EXISTS { ?x <p> ?y })
    }"""
    shown = explain(parse_query(text), CountedTriples({}))
    lines = [line.partition("  in ")[0] for line in shown.splitlines()]
    integer = "http://www.w3.org/2001/XMLSchema#integer"
    assert lines == [
        "ASK",
        f'Filter ((?n > "1"^^<{integer}>) || NOT EXISTS {{...}})',
        "  Minus",
        "    Extend ?g := ?.graph1",
        "      PerGraph ?.graph1",
        "        Join",
        "          GraphNames ?.graph1",
        "          Project ?n ?.graph1",
        "            Extend ?n := ?.agg1",
        "              Group by all rows: ?.agg1 := COUNT(*)",
        "                Bgp of 1",
        "                  1  scan  out  ?x.1 <p> ?y.1",
        "    Values ?x ?y: 2 rows",
        "  NOT EXISTS of",
        "    Bgp of 1",
        "      1  scan  out  ?x <p> ?y",
    ]


def test_a_path_says_where_it_is_walked_and_what_it_may_reach() -> None:
    graph = CountedTriples({DEFAULT: [("<hub>", "<p>", f"<{n}>") for n in range(9)]})
    query = parse_query(
        "ASK FROM <g> FROM NAMED WINDOW <w> ON <s> [RANGE 3s STEP 1s] { <hub> ^<q>?/<p>+ ?x WINDOW <w> { ?x <p>* ?y } }"
    )
    paths = [line.strip().partition("  ~")[0] for line in explain(query, graph).splitlines() if "Path" in line]
    assert "Path ?x <p>* ?y in window <w> [3s step 1s]" in paths
    one = explain(parse_query("ASK { <hub> <p>+ ?x }"), graph).splitlines()[-1]
    assert one == "Path <hub> <p>+ ?x in the stored default graph  ~10 rows"
