"""Warnings of likely mistakes in the text of a continuous query. The queries that we publish have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from wukongs.csparql.parser import parse_query
from wukongs.csparql.warnings import query_warnings

EXAMPLES = sorted(Path(__file__).parents[3].glob("examples/**/*.rq"))
W = "[RANGE 1s STEP 1s]"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            f"SELECT * FROM STREAM <s> {W}\nFROM <g> {{ GRAPH <g> {{ ?s ?p ?o }} }}",
            "line 1, column 26: no pattern reads the window over <s>: there is no pattern outside of GRAPH, nor in "
            "GRAPH <s> { ... }; write one, or take the window out",
        ),
        (
            f"SELECT * FROM <g>\nFROM NAMED STREAM <s> {W} {{ ?s ?p ?o }}",
            "line 2, column 23: no pattern reads the window over <s>: only GRAPH <s> { ... } reads a window declared "
            "by NAMED; put a pattern in one, or declare it without NAMED",
        ),
        (
            f"SELECT * FROM STREAM <s> {W}\n{{ ?s ?p ?o .\n  GRAPH <x> {{ ?s ?q ?z }} }}",
            "line 3, column 9: GRAPH <x> matches nothing, since the query declares no graph and no window of that "
            "name: add FROM NAMED <x> for a stored graph, FROM NAMED STREAM for a window",
        ),
        (
            f"SELECT * FROM NAMED <g> FROM NAMED STREAM <s> {W} {{ ?s ?p ?o GRAPH <s> {{ ?s ?q ?z }} }}",
            "line 1, column 47: the patterns outside of GRAPH match nothing, since all that the query declares is "
            "NAMED: put them in a GRAPH block, add FROM <urn:x-wukongs:default> for stored data, or declare the window "
            "without NAMED",
        ),
        (
            f"SELECT ?s (COUNT( ?o )  AS ?n) FROM STREAM <s> {W} {{ ?s ?p ?o }}\nGROUP BY ?s HAVING (?n > 2)",
            "line 2, column 21: ?n is unbound in HAVING, since SELECT binds it only after HAVING has chosen, and a "
            "condition that fails drops the row: write COUNT( ?o ) in its place",
        ),
        (
            f"SELECT ?s FROM STREAM <s> {W} {{ ?s ?p ?o {{ SELECT ?s (MAX(?o)+1 AS ?m) {{ ?s <q> ?o }} GROUP BY ?s\n"
            "HAVING (MIN(?o) > 1) (1 < ?m)\n} }",
            "line 2, column 27: ?m is unbound in HAVING, since SELECT binds it only after HAVING has chosen, and a "
            "condition that fails drops the row: write MAX(?o)+1 in its place",
        ),
    ],
)
def test_one_warning_with_place_and_way_out(text: str, warning: str) -> None:
    assert query_warnings(parse_query(text)) == (warning,)


def test_the_window_of_a_name_of_its_own() -> None:
    text = f"SELECT * FROM <g> FROM NAMED WINDOW <w> ON <s> {W} {{ ?s ?p ?o GRAPH <s> {{ ?s ?p ?o }} }}"
    unread, undeclared = query_warnings(parse_query(text))
    assert unread.startswith("line 1, column 48: no pattern reads the window over <s>: only GRAPH <w> { ... } reads")
    assert undeclared.startswith("line 1, column 84: GRAPH <s> matches nothing")


PER_SENSOR = f"SELECT ?x (AVG(?v) AS ?mean) FROM STREAM <s> {W} {{{{ ?x <measured> ?v {{more}} }}}} GROUP BY ?x"
IS_STORED = {"<in>"}


def aggregate_warnings(text: str) -> tuple[str, ...]:
    return query_warnings(parse_query(text), lambda predicate: predicate.text in IS_STORED)


def test_equal_readings_of_a_sensor_are_one_triple_and_the_way_out_is_a_node_for_each() -> None:
    (told,) = aggregate_warnings(PER_SENSOR.format(more=""))
    assert told == (
        "line 1, column 46: AVG(?v) counts equal readings once: a window is a set of triples, so two readings with the "
        "same ?x and the same ?v are one triple. Give each reading a node of its own, such as "
        "{ ?reading <sensor> ?x ; <measured> ?v }"
    )


@pytest.mark.parametrize(
    "text",
    [
        PER_SENSOR.format(more="; <in> ?room"),  # a key of the group, whatever else it has
        PER_SENSOR.format(more="").replace("AVG(?v)", "COUNT(?v)"),
        PER_SENSOR.format(more="").replace("AVG(?v)", "COUNT(*)"),
        PER_SENSOR.format(more="").replace("AVG(?v)", "SUM(?v * 1.8 + 32)"),
        PER_SENSOR.format(more="FILTER(?v > 5)"),
        f"SELECT (AVG(?v) AS ?mean) FROM STREAM <s> {W} {{ <s1> <measured> ?v ; <in> ?room }}",
        f"SELECT (AVG(?v) AS ?mean) FROM STREAM <s> {W} {{ ?x <measured> ?v }}",
        f"SELECT ?r (AVG(?v) AS ?mean) FROM STREAM <s> {W} FROM <g> {{ ?x <measured> ?v ; <in> ?r }} GROUP BY ?r",
        f"SELECT ?r (AVG(?v) AS ?mean) FROM NAMED STREAM <s> {W} FROM <g>"
        " { GRAPH <s> { ?x <measured> ?v } ?x <at> ?r } GROUP BY ?r",
        f"SELECT * FROM STREAM <s> {W} {{ {{ SELECT ?x (SUM(?v) AS ?m) {{ ?x <measured> ?v }} GROUP BY ?x }} }}",
    ],
)
def test_other_shapes_in_which_equal_readings_count_once(text: str) -> None:
    (told,) = aggregate_warnings(text)
    assert "counts equal readings once" in told


@pytest.mark.parametrize(
    "text",
    [
        PER_SENSOR.format(more="").replace("AVG(?v)", "MAX(?v)"),
        PER_SENSOR.format(more="").replace("AVG(?v)", "COUNT(DISTINCT ?v)"),
        f"SELECT ?x (AVG(?v) AS ?m) FROM STREAM <s> {W} {{ ?o <by> ?x ; <value> ?v }} GROUP BY ?x",
        f"SELECT ?x (AVG(?v) AS ?m) FROM STREAM <s> {W} {{ ?o <by> ?x ; <result> ?r . ?r <value> ?v }} GROUP BY ?x",
        f"SELECT ?r (AVG(?v) AS ?m) FROM STREAM <s> {W} FROM <g> {{ ?o <by> ?x ; <v> ?v . ?x <in> ?r }} GROUP BY ?r",
        f"SELECT ?v (COUNT(?x) AS ?n) FROM STREAM <s> {W} {{ ?x <measured> ?v }} GROUP BY ?v",
        f"SELECT ?x (COUNT(?post) AS ?n) FROM STREAM <s> {W} {{ ?x <likes> ?post . ?post a <Post> }} GROUP BY ?x",
        f"SELECT ?x (COUNT(?v) AS ?n) FROM NAMED STREAM <s> {W} FROM <g> {{ GRAPH <s> {{ ?x <saw> ?y }} ?y <v> ?v }}"
        " GROUP BY ?x",
    ],
)
def test_no_warning_where_each_reading_is_a_triple_of_its_own(text: str) -> None:
    assert aggregate_warnings(text) == ()


BENCHMARKS = sorted(Path(__file__).parents[3].glob("bench/*/queries/*.rq"))


def test_few_warnings_in_the_queries_of_the_benchmarks() -> None:
    told = {path.stem: query_warnings(parse_query(path.read_text())) for path in BENCHMARKS}
    assert len(told) > 30
    assert {name for name, warnings in told.items() if any("equal readings" in one for one in warnings)} == set()


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT * FROM STREAM <s> {W} {{ ?s ?p ?o }}",
        f"SELECT ?s (COUNT(?o) AS ?n) FROM STREAM <s> {W} {{ ?s ?p ?o }} GROUP BY ?s HAVING (COUNT(?o) > 2)"
        " ORDER BY ?n",
        f"SELECT ?k FROM STREAM <s> {W} {{ ?s ?p ?o }} GROUP BY (STR(?s) AS ?k) HAVING (?k != 'x')",
        f"SELECT ?s (?s AS ?t) FROM STREAM <s> {W} {{ ?s ?p ?o }} GROUP BY ?s HAVING (?s != <x>)",
        f"SELECT * FROM STREAM <s> {W} {{ GRAPH <s> {{ ?s ?p ?o }} }}",
        f"SELECT * FROM NAMED STREAM <s> {W} {{ GRAPH <s> {{ ?s ?p ?o }} }}",
        f"SELECT * FROM NAMED STREAM <s> {W} {{ GRAPH ?g {{ ?s ?p ?o }} }}",
        f"SELECT * FROM NAMED WINDOW <w> ON <s> {W} {{ WINDOW <w> {{ ?s ?p ?o }} }}",
        f"SELECT * FROM NAMED WINDOW <w> ON <s> {W} FROM <g> {{ ?s ?p ?o MINUS {{ WINDOW <w> {{ ?s ?q ?o }} }} }}",
        f"SELECT * FROM STREAM <s> {W} {{ ?s <p>/<q> ?o OPTIONAL {{ ?s <r>+ ?z }} }}",
        f"SELECT * FROM STREAM <s> {W} {{ {{ SELECT ?s {{ ?s ?p ?o }} }} }}",
        f"SELECT * FROM STREAM <s> {W} {{ ?s ?p ?o FILTER(timestamp(?s) > 5) }}",
        f"DESCRIBE <x> FROM STREAM <s> {W}",
        "SELECT * FROM NAMED <g> { ?s ?p ?o }",
    ],
)
def test_none_where_all_is_read(text: str) -> None:
    assert query_warnings(parse_query(text)) == ()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_none_for_the_queries_that_we_publish(path: Path) -> None:
    assert query_warnings(parse_query(path.read_text())) == ()
