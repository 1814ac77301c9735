"""C-SPARQL clauses: registration, dataset, windows."""

from __future__ import annotations

import pytest

from wukongs.csparql.algebra import DatasetClause, Registration, StreamWindow
from wukongs.csparql.parser import parse_query
from wukongs.errors import QuerySyntaxError

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
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(text)
    assert message in str(caught.value)
