"""The head of a query (REGISTER, FROM, windows), of C-SPARQL and of RSP-QL, and WINDOW blocks."""

from __future__ import annotations

import pytest

from tests.unit.csparql.counted_triples import CountedTriples
from wukongs.csparql.algebra import (
    Bgp,
    DatasetClause,
    Extend,
    GraphNames,
    Join,
    Registration,
    StreamWindow,
    TriplePattern,
    Union,
    Values,
)
from wukongs.csparql.explain import explain
from wukongs.csparql.parser import parse_query
from wukongs.csparql.terms import Term, Variable
from wukongs.errors import QuerySyntaxError, UnsupportedFeatureError

PAPER = """
REGISTER QUERY Q_C AS
PREFIX : <http://example.org/>
SELECT ?x ?y ?z
FROM STREAM <Tweet_Stream> [RANGE 10s STEP 1s]
FROM STREAM :Like_Stream [range 5 seconds step 1 SECOND]
FROM <X-Lab>
WHERE {
  GRAPH <Tweet_Stream> { ?x :po ?z }
  GRAPH <X-Lab> { ?x :fo ?y }
  GRAPH :Like_Stream { ?y :li ?z }
}
"""
S, P, O = Variable("s"), Variable("p"), Variable("o")  # noqa: E741
TWO = "FROM NAMED WINDOW <w1> ON <a> [RANGE 2s STEP 1s] FROM NAMED WINDOW <w2> ON <a> [RANGE 5s STEP 1s]"


def triple(graph: str) -> TriplePattern:
    return TriplePattern(S, P, O, Term(f"<{graph}>"))


def test_the_query_of_the_paper() -> None:
    query = parse_query(PAPER)
    assert query.registration == Registration("Q_C", None)
    assert query.dataset == DatasetClause(
        ("X-Lab",),
        (),
        (
            StreamWindow("Tweet_Stream", 10_000, 1_000, False, 5, 28),
            StreamWindow("http://example.org/Like_Stream", 5_000, 1_000, False, 6, 26),
        ),
    )
    assert query.variables == ("x", "y", "z")


@pytest.mark.parametrize(
    ("window", "range_ms", "step_ms"),
    [
        ("[RANGE 100ms STEP 50 MS]", 100, 50),
        ("[RANGE 1 millisecond STEP 2 MILLISECONDS]", 1, 2),
        ("[RANGE 10S STEP 1 s]", 10_000, 1_000),
        ("[RANGE 3 SEC STEP 1 SECS]", 3_000, 1_000),
        ("[RANGE 1m STEP 30s]", 60_000, 30_000),
        ("[RANGE 2 minutes STEP 1 MIN]", 120_000, 60_000),
        ("[RANGE 1h STEP 1 hours]", 3_600_000, 3_600_000),
        ("[RANGE 1d STEP 2 DAYS]", 86_400_000, 172_800_000),
        ("[RANGE 7s TUMBLING]", 7_000, 7_000),
    ],
)
def test_windows(window: str, range_ms: int, step_ms: int) -> None:
    (found,) = parse_query(f"ASK FROM STREAM <s> {window} {{}}").dataset.windows
    assert (found.range_ms, found.step_ms, found.named) == (range_ms, step_ms, False)


def test_all_kinds_of_from() -> None:
    text = "FROM <a> FROM NAMED <b> FROM NAMED STREAM <s> [RANGE 2s STEP 1s] FROM <a> from named <c>"
    for form in ("SELECT *", "ASK", "CONSTRUCT { ?s ?p ?o }", "CONSTRUCT"):
        dataset = parse_query(f"{form} {text} WHERE {{ ?s ?p ?o }}").dataset
        assert dataset.default_graphs == ("a",)
        assert dataset.named_graphs == ("b", "c")
        assert [(window.stream, window.named) for window in dataset.windows] == [("s", True)]
        assert not dataset.is_empty
    assert parse_query("ASK {}").dataset.is_empty


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("REGISTER QUERY q AS", Registration("q")),
        ("register query q1.v-2 as", Registration("q1.v-2")),
        ("REGISTER QUERY 2024-L1 COMPUTED EVERY 1s AS", Registration("2024-L1", 1_000)),
        ("REGISTER QUERY <http://e/q> COMPUTED EVERY 100 ms AS", Registration("http://e/q", 100)),
        ("PREFIX e: <http://e/> REGISTER QUERY e:q AS", Registration("http://e/q")),
        ("BASE <http://e/x/> REGISTER QUERY <q> AS PREFIX e: <f>", Registration("http://e/x/q")),
        ("REGISTER QUERY q. AS", None),
    ],
)
def test_registrations(head: str, expected: Registration | None) -> None:
    if expected is None:
        with pytest.raises(QuerySyntaxError, match=r"expected AS and the query after its name, found '\.'"):
            parse_query(f"{head} ASK {{}}")
    else:
        assert parse_query(f"{head} ASK {{}}").registration == expected


@pytest.mark.parametrize(
    ("window", "count", "step"),
    [
        ("RANGE TRIPLES 10", 10, 1),
        ("range triples 10 step 3", 10, 3),
        ("RANGE TRIPLES 1 STEP 7", 1, 7),
        ("RANGE TRIPLES 10 TUMBLING", 10, 10),
    ],
)
def test_windows_that_count_triples(window: str, count: int, step: int) -> None:
    (found,) = parse_query(f"ASK FROM NAMED STREAM <s> [{window}] {{}}").dataset.windows
    assert found == StreamWindow("s", 0, 0, True, 1, 27, count, step)
    assert found.is_counted


def test_a_missing_window_is_shown_how_to_write() -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query("SELECT ?x\n\nFROM STREAM <http://a/bc> WHERE { }", source="traffic.rq")
    window = "a window such as [RANGE 10s STEP 1s] after the stream IRI"
    assert str(caught.value) == f"traffic.rq, line 3, column 27: expected {window}, found 'WHERE'"


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ('REGISTER QUERY "my query" AS', Registration("my query")),
        ("REGISTER QUERY 'L1' AS", Registration("L1")),
        ("register STREAM s computed every 15m as", Registration("s", 900_000, is_stream=True)),
        ("REGISTER STREAM <http://e/s> AS", Registration("http://e/s", is_stream=True)),
        ("PREFIX e: <http://e/> REGISTER RSTREAM e:o AS", Registration("http://e/o", has_operator=True)),
        ("REGISTER IStream <o> AS", Registration("o", output="istream", has_operator=True)),
        ("REGISTER DSTREAM <o> COMPUTED EVERY PT2S AS", Registration("o", 2_000, "dstream", has_operator=True)),
        ("REGISTER QUERY q REPORT ON WINDOW CLOSE AS", Registration("q", report=("window close",))),
        ("REGISTER QUERY q REPORT ON_WINDOW_CLOSE AS", Registration("q", report=("window close",))),
        ("REGISTER QUERY q REPORT NON EMPTY CONTENT AS", Registration("q", report=("non-empty content",))),
        ("REGISTER QUERY q REPORT ON NON-EMPTY CONTENT AS", Registration("q", report=("non-empty content",))),
        ("REGISTER QUERY q REPORT NON_EMPTY_CONTENT AS", Registration("q", report=("non-empty content",))),
        ("REGISTER QUERY q report non empty result AS", Registration("q", report=("non-empty result",))),
        (
            "REGISTER QUERY q REPORT ON CONTENT CHANGE, NON EMPTY RESULT AND CONTENT CHANGE COMPUTED EVERY 1s AS",
            Registration("q", 1_000, report=("content change", "non-empty result")),
        ),
        (
            "REGISTER QUERY q COMPUTED EVERY 1s REPORT ON_CONTENT_CHANGE AS",
            Registration("q", 1_000, report=("content change",)),
        ),
    ],
)
def test_registrations_with_operators_and_policies(head: str, expected: Registration) -> None:
    assert parse_query(f"{head} CONSTRUCT {{ ?s ?p ?o }} WHERE {{ ?s ?p ?o }}").registration == expected


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("REGISTER STREAM s AS SELECT ISTREAM ?s WHERE { ?s ?p ?o }", "istream"),
        ("REGISTER STREAM s AS SELECT RSTREAM * WHERE { ?s ?p ?o }", "rstream"),
        ("REGISTER STREAM s AS CONSTRUCT DSTREAM { ?s ?p ?o } WHERE { ?s ?p ?o }", "dstream"),
        ("REGISTER DSTREAM s AS SELECT DSTREAM DISTINCT ?s WHERE { ?s ?p ?o }", "dstream"),
    ],
)
def test_the_operator_may_stand_after_the_form(text: str, output: str) -> None:
    registration = parse_query(text).registration
    assert registration is not None
    assert registration.output == output


@pytest.mark.parametrize(
    ("length", "expected_ms"),
    [
        ("PT10S", 10_000),
        ("pt1m30s", 90_000),
        ("PT0.5S", 500),
        ("PT1,250S", 1_250),
        ("PT1.5000S", 1_500),
        ("P1DT12H", 129_600_000),
        ("P2W", 1_209_600_000),
        ("PT36H", 129_600_000),
        ("PT1H2M3.004S", 3_723_004),
        ("P36525D", 36_525 * 86_400_000),
    ],
)
def test_lengths_in_iso_8601(length: str, expected_ms: int) -> None:
    for text in (f"[RANGE {length} STEP {length}]", f"[RANGE {length} TUMBLING]", f"[ELAPSED {length} SLIDE {length}]"):
        (window,) = parse_query(f"ASK FROM NAMED WINDOW <w> ON <s> {text} {{}}").dataset.windows
        assert (window.range_ms, window.step_ms) == (expected_ms, expected_ms)


def test_windows_and_their_names() -> None:
    text = """BASE <http://e/> PREFIX : <http://p/>
        SELECT * FROM NAMED WINDOW :w ON :s [RANGE PT10S STEP PT1S]
        FROM NAMED WINDOW <v> ON STREAM :s [RANGE 1s STEP 1s]
        FROM WINDOW <d> ON <t> [RANGE 1s STEP 1s] FROM WINDOW ON <u> [RANGE 1s STEP 1s]
        FROM NAMED STREAM <t> [ITEMS 10 STEP 5] FROM NAMED WINDOW <c> ON <t> [RANGE TRIPLES 3]
        FROM <n> [RANGE 1s STEP 100ms] FROM NAMED <m> [RANGE 1s STEP 100ms] FROM <g> WHERE { }"""
    dataset = parse_query(text).dataset
    assert [(window.name, window.stream, window.named) for window in dataset.windows] == [
        ("http://p/w", "http://p/s", True),
        ("http://e/v", "http://p/s", True),
        ("http://e/d", "http://e/t", False),
        ("http://e/u", "http://e/u", False),
        ("http://e/t", "http://e/t", True),
        ("http://e/c", "http://e/t", True),
        ("http://e/n", "http://e/n", False),
        ("http://e/m", "http://e/m", True),
    ]
    assert [window.is_counted for window in dataset.windows].index(True) == 4
    assert dataset.default_graphs == ("http://e/g",)


def test_a_window_block_matches_in_that_window() -> None:
    query = parse_query(f"ASK {TWO} {{ WINDOW <w1> {{ ?s ?p ?o }} WINDOW <w2> {{ ?s ?p ?o }} }}")
    assert query.pattern == Bgp((triple("w1"), triple("w2")))
    query = parse_query("ASK FROM STREAM <a> [RANGE 1s STEP 1s] { WINDOW <a> { ?s ?p ?o } }")
    assert query.pattern == Bgp((triple("a"),))
    assert parse_query(f"ASK {TWO} {{ WINDOW <w1> {{}} }}").pattern == GraphNames(Term("<w1>"))


def test_a_window_variable_ranges_over_the_windows_that_are_declared() -> None:
    w = Variable("w")
    query = parse_query(f"SELECT ?w ?s FROM NAMED <g> {TWO} {{ WINDOW ?w {{ ?s ?p ?o }} }}")
    union = query.pattern.pattern  # type: ignore[union-attr]
    assert union == Union(Extend(Bgp((triple("w1"),)), w, Term("<w1>")), Extend(Bgp((triple("w2"),)), w, Term("<w2>")))
    inside = parse_query(f"SELECT * {TWO} {{ WINDOW ?w {{ ?s ?p ?w }} }}").pattern.pattern  # type: ignore[union-attr]
    pattern = TriplePattern(S, P, w, Term("<w2>"))
    assert inside.right == Join(Bgp((pattern,)), Values((w,), ((Term("<w2>"),),)))


def test_blank_nodes_of_a_repeated_block_are_those_of_one_block() -> None:
    query = parse_query(f"SELECT ?w {TWO} {{ WINDOW ?w {{ _:b ?p ?o . _:b ?q ?r }} }}")
    for branch in (query.pattern.pattern.left, query.pattern.pattern.right):  # type: ignore[union-attr]
        first, second = branch.pattern.patterns
        assert first.subject == second.subject


def test_explain_shows_all() -> None:
    text = f"REGISTER ISTREAM <o> COMPUTED EVERY 4s REPORT NON EMPTY CONTENT, ON CONTENT CHANGE AS SELECT * {TWO}"
    shown = explain(parse_query(text + " { WINDOW <w2> { } }"), CountedTriples({}))
    assert shown.splitlines()[:3] == [
        "SELECT registered as o computed every 4s, istream, report non-empty content, content change",
        "from named window <w1> on <a> [2s step 1s]",
        "from named window <w2> on <a> [5s step 1s]",
    ]
    stream = explain(parse_query("REGISTER STREAM s AS CONSTRUCT WHERE { ?s ?p ?o }"), CountedTriples({}))
    assert stream.splitlines()[0] == "CONSTRUCT registered as stream s"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ASK FROM STREAM s [RANGE 1s STEP 1s] {}", "column 17: expected the IRI of a stream after STREAM, found 's'"),
        ("ASK FROM STREAM <s> [STEP 1s] {}", "column 22: expected RANGE, as in [RANGE 10s STEP 1s], found 'STEP'"),
        (
            "ASK FROM STREAM <s> [RANGE 0s STEP 1s] {}",
            "column 28: expected a whole number above 0 and a unit after RANGE",
        ),
        (
            "ASK FROM STREAM <s> [RANGE 5s STEP 0 s] {}",
            "column 36: expected a whole number above 0 and a unit after STEP",
        ),
        (
            "ASK FROM STREAM <s> [RANGE -5s STEP 1s] {}",
            "column 28: expected a whole number above 0 and a unit after RANGE",
        ),
        ("ASK FROM STREAM <s> [RANGE 1.5s STEP 1s] {}", "such as 10s, found '1.5'"),
        ("ASK FROM STREAM <s> [RANGE 9999999999999999s STEP 1s] {}", "column 28: expected a whole number above 0"),
        (
            "ASK FROM STREAM <s> [RANGE 5 STEP 1s] {}",
            "column 30: expected a unit of time: ms, s, m, h or d (or its long",
        ),
        (
            "ASK FROM STREAM <s> [RANGE 5y STEP 1s] {}",
            "column 29: expected a unit of time: ms, s, m, h or d (or its long",
        ),
        (
            "ASK FROM STREAM <s> [RANGE 5s] {}",
            "column 30: expected STEP and its length, or TUMBLING, after the length of",
        ),
        ("ASK FROM STREAM <s> [RANGE 5s STEP 1s {}", "column 39: expected ']' at the end of the window, found '{'"),
        (
            "ASK FROM STREAM <s> [RANGE TRIPLES 0] {}",
            "column 36: expected a whole number of triples above 0 after TRIPLES, found '0'",
        ),
        (
            "ASK FROM STREAM <s> [RANGE TRIPLES STEP 2] {}",
            "column 36: expected a whole number of triples above 0 after TRIPLES, found 'STEP'",
        ),
        (
            "ASK FROM STREAM <s> [RANGE TRIPLES 5 STEP 0] {}",
            "column 43: expected a whole number of triples above 0 after STEP, found '0'",
        ),
        (
            "ASK FROM STREAM <s> [RANGE TRIPLES 5 STEP 1s] {}",
            "column 44: expected a STEP without a unit: a window that counts triples moves on by triples, found 's'",
        ),
        (
            "ASK FROM STREAM <s> [RANGE TRIPLES 5 1] {}",
            "column 38: expected ']', or STEP and a whole number of triples, found '1'",
        ),
        ("ASK FROM STREAM <s> [RANGE TRIPLES 5 STEP 2 {}", "column 45: expected ']' after STEP, found '{'"),
        ("ASK FROM {}", "column 10: expected an IRI, NAMED, STREAM or WINDOW after FROM, found '{'"),
        ("ASK FROM NAMED {}", "column 16: expected an IRI, found '{'"),
        ("REGISTER q AS ASK {}", "column 10: expected QUERY, STREAM, RSTREAM, ISTREAM or DSTREAM after REGISTER"),
        (
            "REGISTER QUERY AS ASK {}",
            "column 16: expected a name for the query (letters, digits, '_', '-', '.'), a quoted one or an IRI",
        ),
        ("REGISTER QUERY q ASK {}", "column 18: expected AS and the query after its name, found 'ASK'"),
        ("REGISTER QUERY q COMPUTED 1s AS ASK {}", "column 27: expected EVERY after COMPUTED, found '1'"),
        (
            "REGISTER QUERY q COMPUTED EVERY 0s AS ASK {}",
            "column 33: expected a whole number above 0 and a unit after EVERY",
        ),
        ("REGISTER QUERY q AS {}", "column 21: expected SELECT, ASK, CONSTRUCT or DESCRIBE, found '{'"),
        ("REGISTER STREAM s AS SELECT * {}", "column 22: expected CONSTRUCT: a stream is made of triples"),
        ("REGISTER STREAM s AS ASK {}", "column 22: expected CONSTRUCT"),
        ("REGISTER STREAM AS CONSTRUCT WHERE {}", "expected a name for the stream"),
        ('REGISTER QUERY "" AS ASK {}', "column 16: expected a name for the query"),
        ('REGISTER QUERY "a\\nb" AS ASK {}', "column 16: expected a name for the query"),
        ("REGISTER QUERY q REPORT AS ASK {}", "column 25: expected ON WINDOW CLOSE, ON CONTENT CHANGE, NON EMPTY"),
        ("REGISTER QUERY q REPORT ON CHANGE AS ASK {}", "column 25: expected ON WINDOW CLOSE"),
        ("REGISTER QUERY q REPORT NON EMPTY CONTENT, AS ASK {}", "column 44: expected ON WINDOW CLOSE"),
        ("REGISTER QUERY q REPORT ON WINDOW CLOSE REPORT ON WINDOW CLOSE AS ASK {}", "column 41: expected AS and the"),
        ("REGISTER ISTREAM q AS SELECT DSTREAM * {}", "column 30: expected no other operator than that of REGISTER"),
        ("SELECT ISTREAM * {}", "column 8: expected '*', a variable"),
        ("ASK FROM NAMED WINDOW ON <s> [RANGE 1s STEP 1s] {}", "column 23: expected the IRI of a window after WINDOW"),
        ("ASK FROM NAMED WINDOW <w> <s> [RANGE 1s STEP 1s] {}", "column 27: expected ON and the IRI of a stream"),
        ("ASK FROM NAMED WINDOW <w> ON ?s [RANGE 1s STEP 1s] {}", "column 30: expected the IRI of a stream after ON"),
        ("ASK FROM NAMED WINDOW <w> ON <s> {}", "column 34: expected a window such as [RANGE 10s STEP 1s]"),
        ("ASK FROM NAMED WINDOW <w> ON <s> [RANGE 1s] {}", "column 43: expected STEP and its length, or TUMBLING"),
        ("ASK FROM NAMED WINDOW <w> ON <s> [RANGE 10000 STEP 1] {}", "column 47: expected a unit of time"),
        ("ASK FROM STREAM <s> [RANGE PT STEP 1s] {}", "column 28: expected a duration such as PT10S"),
        ("ASK FROM STREAM <s> [RANGE P STEP 1s] {}", "column 28: expected a duration such as PT10S"),
        ("ASK FROM STREAM <s> [RANGE PT10 STEP 1s] {}", "column 28: expected a duration such as PT10S"),
        (
            "ASK FROM STREAM <s> [RANGE PT0S STEP 1s] {}",
            "expected a duration such as PT10S, PT0.5S or P1DT12H",
        ),
        ("ASK FROM STREAM <s> [RANGE PT0.0005S STEP 1s] {}", "a duration of whole milliseconds, found 'PT0.0005S'"),
        (
            "ASK FROM STREAM <s> [RANGE P36526D STEP 1s] {}",
            "expected a length of time of at most 36525 days",
        ),
        ("ASK FROM STREAM <s> [RANGE 999999999999999d STEP 1s] {}", "a length of time of at most 36525 days"),
        ("ASK { WINDOW <w> { ?s ?p ?o } }", "column 14: expected a window that FROM [NAMED] WINDOW or STREAM declares"),
        (f"ASK {TWO} {{ WINDOW <w> {{ }} }}", "declares (declared: <w1>, <w2>), found '<w>'"),
        ("ASK { WINDOW ?w { ?s ?p ?o } }", "column 14: expected a window that WINDOW ?w can range over"),
        (f"ASK {TWO} {{ WINDOW {{ ?s ?p ?o }} }}", "expected an IRI or a variable after WINDOW, found '{'"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ASK FROM STREAM <s> [RANGE P1M STEP 1s] {}", "column 28: a duration in months is not supported yet; their"),
        ("ASK FROM STREAM <s> [RANGE P1Y2M STEP 1s] {}", "column 28: a duration in years is not supported yet"),
        (
            "REGISTER QUERY q REPORT PERIODIC AS ASK {}",
            "column 25: REPORT PERIODIC is not supported yet; COMPUTED",
        ),
        ("ASK FROM STREAM <s> [RANGE 1s STEP 1s REPORT NON_EMPTY_CONTENT] {}", "column 39: REPORT inside of a window"),
        (f"ASK {TWO} {{ WINDOW ?v {{ WINDOW ?w {{ }} }} }}", "WINDOW ?w inside of another WINDOW with a variable"),
        (
            "SELECT ?d FROM STREAM <s> [RANGE 1s STEP 1s] { ?d ?p ?o } AGGREGATE { (?n, COUNT, {?d}) }",
            "column 59: the AGGREGATE clause of C-SPARQL is not supported yet; write it in SPARQL 1.1",
        ),
    ],
)
def test_unsupported(text: str, message: str) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        parse_query(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("clause", "pattern", "default_graphs"),
    [
        ("FROM NAMED STREAM <s> [RANGE 1s STEP 1s]", "{ ?u <p> ?f . GRAPH <s> { ?f <q> ?p } }", True),
        ("FROM NAMED STREAM <s> [RANGE 1s STEP 1s]", "{ GRAPH <s> { ?f <q> ?p } FILTER EXISTS { ?f <r> ?p } }", True),
        ("FROM NAMED STREAM <s> [RANGE 1s STEP 1s]", "{ GRAPH <s> { ?f <q> ?p } OPTIONAL { ?f <r>* ?p } }", True),
        ("FROM NAMED STREAM <s> [RANGE 1s STEP 1s]", "{ GRAPH <s> { ?f <q> ?p } }", False),
        ("FROM NAMED STREAM <s> [RANGE 1s STEP 1s] FROM NAMED <g>", "{ ?u <p> ?f }", False),
        ("FROM NAMED STREAM <s> [RANGE 1s STEP 1s] FROM STREAM <t> [RANGE 1s STEP 1s]", "{ ?u <p> ?f }", False),
        ("FROM NAMED <g>", "{ ?u <p> ?f }", False),
    ],
)
def test_named_windows_alone_leave_the_default_graph_as_it_is(clause: str, pattern: str, default_graphs: bool) -> None:
    found = parse_query(f"SELECT * {clause} {pattern}").dataset.default_graphs
    assert found == (("urn:x-wukongs:default",) if default_graphs else ())
