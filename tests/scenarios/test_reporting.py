"""Reports of firings: ISTREAM and DSTREAM over bags, graphs and truth, and REPORT."""

from __future__ import annotations

from typing import Any

import pytest

import wukongs
from tests.engine_helpers import EX, A, B, at, register_text, rows, windows

STEP = "RANGE 200ms STEP 100ms"


def registered(engine: wukongs.Engine, text: str, output: Any = None) -> tuple[Any, Any]:
    stream = engine.stream(A, batch_ms=100, timing=True)
    stream.advance(0)
    return stream, engine.register(text, output=output)


def told(engine: wukongs.Engine, stream: Any, query: Any, tuples: list[Any], until_ms: int) -> dict[int, list[str]]:
    stream.push(tuples)
    stream.advance(until_ms)
    engine.settle(timeout_s=60)
    return windows(query)


LIFE = [at("a", 50), at("b", 150), at("b", 250), at("c", 450)]
# The window (t - 200, t] holds: 100 a, 200 ab, 300 b, 400 b, 500 c, 600 c, 700 nothing.


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("rstream", {100: ["a"], 200: ["a", "b"], 300: ["b"], 400: ["b"], 500: ["c"], 600: ["c"], 700: []}),
        ("istream", {100: ["a"], 200: ["b"], 300: [], 400: [], 500: ["c"], 600: [], 700: []}),
        ("dstream", {100: [], 200: [], 300: ["a"], 400: [], 500: ["b"], 600: [], 700: ["c"]}),
    ],
)
@pytest.mark.parametrize("by", ["option", "REGISTER", "SELECT"])
def test_rows_that_came_and_rows_that_went(
    engine: wukongs.Engine, output: str, expected: dict[int, list[str]], by: str
) -> None:
    text = register_text(STEP)
    if by == "REGISTER":
        text = text.replace("REGISTER QUERY", f"REGISTER {output.upper()}")
    elif by == "SELECT":
        text = text.replace("SELECT", f"SELECT {output.upper()}")
    stream, query = registered(engine, text, output if by == "option" else None)
    assert told(engine, stream, query, LIFE, 700) == expected


def test_a_bag_loses_and_wins_as_many_rows_as_differ(engine: wukongs.Engine) -> None:
    text = register_text("RANGE 100ms STEP 100ms", select="?p")
    stream, plus = registered(engine, text, "istream")
    minus = engine.register(text.replace("QUERY q", "DSTREAM q2"))
    stream.push([at("a", 50, "p"), at("b", 50, "p"), at("c", 50, "r"), at("a", 150, "p"), at("b", 150, "r")])
    stream.push([at("c", 160, "r"), at("d", 160, "r")])
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert windows(plus) == {100: ["p", "p", "r"], 200: ["r", "r"]}
    assert windows(minus) == {100: [], 200: ["p"]}


def test_rows_with_unbound_and_computed_terms(engine: wukongs.Engine) -> None:
    where = "{ ?s ?p ?o OPTIONAL { ?s <http://ex/none> ?n } BIND(STR(?s) AS ?t) }"
    text = register_text("RANGE 100ms STEP 100ms", select="?t ?n", where=where)
    stream, query = registered(engine, text, "dstream")
    stream.push([at("a", 50)])
    stream.advance(200)
    engine.settle(timeout_s=60)
    found = {window.end_ms: rows(window) for window in query.results(timeout_s=0)}
    assert found == {100: [], 200: [("a", "")]}


def test_the_order_of_the_query_stays(engine: wukongs.Engine) -> None:
    text = register_text(STEP, where="{ ?s ?p ?o } ORDER BY DESC(?s)")
    stream, query = registered(engine, text, "istream")
    stream.push([at("b", 50), at("a", 150), at("d", 150), at("c", 150)])
    stream.advance(200)
    engine.settle(timeout_s=60)
    last = list(query.results(timeout_s=0))[-1]
    assert [str(row[0])[-1] for row in last] == ["d", "c", "a"]


@pytest.mark.parametrize(
    ("output", "expected"), [("istream", [True, False, False, False]), ("dstream", [False, False, True, False])]
)
def test_the_change_of_a_truth(engine: wukongs.Engine, output: str, expected: list[bool]) -> None:
    text = f"REGISTER QUERY q AS ASK FROM STREAM <{A}> [{STEP}] {{ ?s ?p ?o }}"
    stream, query = registered(engine, text, output)
    stream.push([at("a", 50)])
    stream.advance(400)
    engine.settle(timeout_s=60)
    assert [window.boolean for window in query.results(timeout_s=0)] == expected


@pytest.mark.parametrize("output", ["istream", "dstream"])
def test_graphs_that_came_and_went_with_their_blank_nodes(engine: wukongs.Engine, output: str) -> None:
    template = "{ ?s <http://ex/in> [ <http://ex/of> ?o ] }"
    text = f"REGISTER QUERY q AS CONSTRUCT {template} FROM STREAM <{A}> [{STEP}] WHERE {{ ?s ?p ?o }}"
    stream, query = registered(engine, text, output)
    stream.push([at("a", 50), at("b", 150)])
    stream.advance(400)
    engine.settle(timeout_s=60)
    found = {window.end_ms: window.triples() for window in query.results(timeout_s=0)}
    assert [len(triples) for triples in found.values()] == ([2, 2, 0, 0] if output == "istream" else [0, 0, 2, 2])
    for triples in found.values():
        if triples:
            (outer,), (inner,) = ([t for t in triples if t[1] == f"<{EX}{name}>"] for name in ("in", "of"))
            assert outer[2] == inner[0]
            assert outer[2].startswith("_:")


def test_equal_solutions_make_blank_nodes_of_their_own(engine: wukongs.Engine) -> None:
    """The union gives the one triple twice."""
    where = "{ { ?s ?p ?o } UNION { ?s ?p ?o } }"
    text = f"REGISTER ISTREAM q AS CONSTRUCT {{ _:b <http://ex/p> ?p }} FROM STREAM <{A}> [{STEP}] WHERE {where}"
    stream, query = registered(engine, text)
    stream.push([at("a", 50)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    (window,) = query.results(timeout_s=0)
    assert len({subject for subject, _, _ in window.triples()}) == 2


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("ON WINDOW CLOSE", [100, 200, 300, 400, 500, 600, 700, 800]),
        ("NON EMPTY CONTENT", [100, 200, 300, 400, 500, 600]),
        ("ON CONTENT CHANGE", [100, 200, 300, 400, 500, 700]),
        ("ON CONTENT CHANGE, NON EMPTY CONTENT", [100, 200, 300, 400, 500]),
    ],
)
def test_which_firings_are_reported(engine: wukongs.Engine, report: str, expected: list[int]) -> None:
    text = register_text(STEP).replace(" AS SELECT", f" REPORT {report} AS SELECT")
    stream, query = registered(engine, text)
    assert list(told(engine, stream, query, LIFE, 800)) == expected
    assert query.stats()["windows"] == len(expected)
    assert query.stats()["not_reported"] == 8 - len(expected)


def test_a_content_that_never_was_is_no_change(engine: wukongs.Engine) -> None:
    stream, query = registered(engine, register_text(STEP).replace(" AS S", " REPORT ON CONTENT CHANGE AS S"))
    stream.advance(300)
    engine.settle(timeout_s=60)
    assert windows(query) == {}


def test_a_repeated_tuple_is_a_change(engine: wukongs.Engine) -> None:
    """The window holds the same triple, but it has come again."""
    text = register_text("RANGE 300ms STEP 100ms").replace(" AS S", " REPORT ON CONTENT CHANGE AS S")
    stream, query = registered(engine, text)
    assert told(engine, stream, query, [at("a", 50), at("a", 250)], 600) == {
        100: ["a"],
        300: ["a"],
        400: ["a"],
        600: [],
    }


def test_empty_results_are_left_out_also_of_istream(engine: wukongs.Engine) -> None:
    text = register_text(STEP).replace(" AS S", " REPORT NON EMPTY RESULT AS S")
    stream, query = registered(engine, text, "istream")
    assert told(engine, stream, query, LIFE, 800) == {100: ["a"], 200: ["b"], 500: ["c"]}


def test_a_firing_that_is_left_out_is_not_what_the_next_is_compared_with(engine: wukongs.Engine) -> None:
    """At 300 and 400 the window is empty: nothing is evaluated, and what went is told at 500."""
    text = register_text("RANGE 100ms STEP 100ms").replace(" AS S", " REPORT NON EMPTY CONTENT AS S")
    stream, query = registered(engine, text, "dstream")
    tuples = [at("a", 50), at("a", 150), at("b", 150), at("b", 450)]
    assert told(engine, stream, query, tuples, 500) == {100: [], 200: [], 500: ["a"]}


def test_any_of_several_windows_counts(engine: wukongs.Engine) -> None:
    other = engine.stream(B, batch_ms=100, timing=True)
    other.advance(0)
    text = register_text(STEP).replace("WHERE", f"FROM NAMED STREAM <{B}> [RANGE 100ms STEP 100ms] WHERE")
    stream, query = registered(engine, text.replace(" AS S", " REPORT NON EMPTY CONTENT, CONTENT CHANGE AS S"))
    stream.push([at("a", 50)])
    other.push([at("x", 450)])
    other.advance(700)
    stream.advance(700)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a"], 500: []}


def test_after_a_pause_and_after_a_failed_firing_all_rows_are_new(engine: wukongs.Engine) -> None:
    stream, query = registered(engine, register_text("RANGE 300ms STEP 100ms"), "istream")
    stream.push([at("a", 50), at("b", 150)])
    stream.advance(200)
    engine.settle(timeout_s=60)
    query.pause()
    stream.advance(300)
    engine.settle(timeout_s=60)
    query.resume()
    stream.push([at("c", 350)])
    stream.advance(500)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a"], 200: ["b"], 400: ["b", "c"], 500: []}


def test_output_is_checked(engine: wukongs.Engine) -> None:
    registered(engine, register_text(STEP, name="first"))
    with pytest.raises(wukongs.SettingsError, match="output = 'both': expected one of 'rstream', 'istream', 'dstream'"):
        engine.register(register_text(STEP), output="both")  # type: ignore[arg-type]
    text = register_text(STEP).replace("REGISTER QUERY", "REGISTER ISTREAM")
    with pytest.raises(wukongs.SettingsError, match="'dstream': query q itself says ISTREAM: leave one of them out"):
        engine.register(text, output="dstream")
    engine.register(text, output="istream")
