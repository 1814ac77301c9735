"""Windows with names of their own, several on one stream, COMPUTED EVERY beside STEP, and streams that queries make."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import wukongs
from tests.engine_helpers import EX, A, B, at, register_text, rows, windows
from tests.faces import Face

W1, W2 = EX + "w1", EX + "w2"
TWO = f"""FROM NAMED WINDOW <{W1}> ON <{A}> [RANGE PT0.1S STEP PT0.1S]
          FROM NAMED WINDOW <{W2}> ON <{A}> [RANGE PT0.3S STEP PT0.2S]"""


def answers(engine: wukongs.Engine, text: str, tuples: list[Any], until_ms: int) -> dict[int, Any]:
    stream = engine.stream(A, batch_ms=100, timing=True)
    stream.advance(0)
    query = engine.register(text)
    stream.push(tuples)
    stream.advance(until_ms)
    engine.settle(timeout_s=60)
    return {window.end_ms: window for window in query.results(timeout_s=0)}


LIFE = [at("a", 50), at("b", 150), at("c", 250), at("d", 350)]


@pytest.mark.parametrize("word", ["WINDOW", "GRAPH"])
def test_each_window_is_its_own_latest_closing(engine: wukongs.Engine, word: str) -> None:
    """At 300, w2 still stands as it closed at 200."""
    where = f"{{ {word} <{W1}> {{ ?x ?p ?o }} {word} <{W2}> {{ ?y ?p ?o }} }}"
    found = answers(engine, f"REGISTER RSTREAM q AS SELECT ?x ?y {TWO} WHERE {where}", LIFE, 400)
    assert {end_ms: rows(window) for end_ms, window in found.items()} == {
        100: [],
        200: [("b", "a"), ("b", "b")],
        300: [("c", "a"), ("c", "b")],
        400: [("d", "b"), ("d", "c"), ("d", "d")],
    }
    assert found[300].windows == {A: (-100, 200), W1: (200, 300), W2: (-100, 200)}
    assert found[300].start_ms == -100


def test_a_variable_ranges_over_windows_and_not_over_graphs(engine: wukongs.Engine) -> None:
    text = f"REGISTER RSTREAM q AS SELECT ?w ?s {TWO} FROM NAMED <{EX}g> WHERE {{ WINDOW ?w {{ ?s ?p ?o }} }}"
    found = answers(engine, text, LIFE, 200)
    assert rows(found[200]) == [("w1", "b"), ("w2", "a"), ("w2", "b")]


def test_graph_with_a_variable_ranges_over_named_windows_too(engine: wukongs.Engine) -> None:
    found = answers(engine, f"REGISTER RSTREAM q AS SELECT ?w ?s {TWO} WHERE {{ GRAPH ?w {{ ?s ?p ?o }} }}", LIFE, 200)
    assert rows(found[200]) == [("w1", "b"), ("w2", "a"), ("w2", "b")]


def test_a_window_without_named_joins_the_default_graph(engine: wukongs.Engine) -> None:
    text = f"""REGISTER RSTREAM q AS SELECT ?s FROM WINDOW <{W1}> ON <{A}> [RANGE 100ms STEP 100ms]
        FROM WINDOW ON <{A}> [RANGE 200ms STEP 200ms] WHERE {{ ?s ?p ?o }}"""
    found = answers(engine, text, LIFE, 300)
    assert {end_ms: rows(window) for end_ms, window in found.items()} == {
        100: [("a",)],
        200: [("a",), ("b",)],
        300: [("a",), ("b",), ("c",)],
    }


def test_a_named_window_is_not_in_the_default_graph(engine: wukongs.Engine) -> None:
    found = answers(engine, f"REGISTER RSTREAM q AS SELECT ?s {TWO} WHERE {{ ?s ?p ?o }}", LIFE, 200)
    assert rows(found[200]) == []


def test_the_form_without_the_stream_keyword(engine: wukongs.Engine) -> None:
    text = f"register query q as select ?s from <{A}> [range 100ms step 100ms] where {{ graph <{A}> {{ ?s ?p ?o }} }}"
    assert rows(answers(engine, text, LIFE, 200)[200]) == [("b",)]


@pytest.mark.parametrize(
    ("windows_text", "message"),
    [
        (f"FROM NAMED WINDOW <{W1}> ON <{A}> [RANGE 1s STEP 1s] " * 2, "two windows"),
        (f"FROM NAMED STREAM <{A}> [RANGE 1s STEP 1s] FROM WINDOW <{A}> ON <{B}> [RANGE 1s STEP 1s]", "two windows"),
        (f"FROM NAMED <{W1}> FROM NAMED WINDOW <{W1}> ON <{A}> [RANGE 1s STEP 1s]", "a window and a stored graph"),
    ],
)
def test_names_that_mean_two_things_are_refused(engine: wukongs.Engine, windows_text: str, message: str) -> None:
    with pytest.raises(wukongs.StreamError, match=rf"line 1, column \d+: <.*> would name {message}: give the window"):
        engine.register(f"REGISTER QUERY q AS SELECT * {windows_text} WHERE {{ }}")


# --- COMPUTED EVERY ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        # [RANGE 200ms STEP 200ms]: a period smaller than STEP reports a closing again, a larger one leaves some out.
        ("100ms", {100: [], 200: ["a", "b"], 300: ["a", "b"], 400: ["c", "d"]}),
        ("200ms", {200: ["a", "b"], 400: ["c", "d"]}),
        ("300ms", {300: ["a", "b"]}),
        ("400ms", {400: ["c", "d"]}),
        ("150ms", {150: [], 300: ["a", "b"], 450: ["c", "d"]}),
    ],
)
def test_computed_every_is_the_period(engine: wukongs.Engine, every: str, expected: dict[int, list[str]]) -> None:
    text = register_text("RANGE 200ms STEP 200ms").replace(" AS SELECT", f" COMPUTED EVERY {every} AS SELECT")
    found = answers(engine, text, LIFE, 400)
    assert {end_ms: [row[0] for row in rows(window)] for end_ms, window in found.items()} == expected


def test_slices_are_kept_for_a_period_longer_than_the_window(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100, timing=True, history_ms=0)
    stream.advance(0)
    text = register_text("RANGE 300ms STEP 200ms").replace(" AS SELECT", " COMPUTED EVERY 700ms AS SELECT")
    query = engine.register(text)
    for k in range(1, 30):
        stream.push([at(f"n{k}", 100 * k - 50)])
        engine.settle(timeout_s=60)
    stream.advance(2800)
    engine.settle(timeout_s=60)
    found = {window.end_ms: window for window in query.results(timeout_s=0)}
    assert {end_ms: [row[0] for row in rows(window)] for end_ms, window in found.items()} == {
        700: ["n4", "n5", "n6"],
        1400: ["n12", "n13", "n14"],
        2100: ["n18", "n19", "n20"],
        2800: ["n26", "n27", "n28"],
    }
    assert not any(window.partial for window in found.values())


# --- streams that queries make ----------------------------------------------------------------------------------------


def test_the_triples_of_a_stream_stand_at_the_end_of_their_window(face: Face) -> None:
    engine, other = face.open(), face.open()
    text = f"""REGISTER STREAM <{EX}out> AS CONSTRUCT {{ ?s <{EX}seen> ?o }}
        FROM STREAM <{A}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"""
    found = answers(engine, text, LIFE, 200)
    assert found[100].is_stream
    assert pa.RecordBatchReader.from_stream(found[200]).read_all() == found[200].arrow()
    assert pa.ipc.open_stream(found[200].serialize("arrow")).read_all() == found[200].arrow()
    assert found[200].arrow(dictionary=True).to_pylist() == found[200].arrow().to_pylist()
    assert found[200].arrow().to_pylist() == [
        {"subject": f"<{EX}b>", "predicate": f"<{EX}seen>", "object": f"<{EX}o>", "timestamp_ms": 200}
    ]
    stream = other.stream(EX + "out", batch_ms=100, timing=True)
    query = other.register(register_text("RANGE 100ms STEP 100ms", stream=EX + "out"))
    for window in found.values():
        stream.push_arrow(window.arrow())
    stream.advance(200)
    other.settle(timeout_s=60)
    assert windows(query) == {100: ["a"], 200: ["b"]}


def test_rows_are_no_stream(engine: wukongs.Engine) -> None:
    found = answers(engine, register_text("RANGE 100ms STEP 100ms"), LIFE, 200)
    assert not found[100].is_stream
    assert found[100].arrow().column_names == ["s"]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (f"{{ WINDOW <{W1}> {{ ?x <{EX}p> ?y }} }}", [("b", "o")]),
        (f"{{ WINDOW <{W1}> {{ ?x <{EX}q>* ?y }} }}", [("b", "b"), ("c", "c"), ("o", "o")]),
    ],
)
def test_only_what_no_query_can_match_is_left_out(
    engine: wukongs.Engine, where: str, expected: list[tuple[str, ...]]
) -> None:
    """Zero steps of a path lead from every term to itself, whatever the predicate that brought it."""
    stream = engine.stream(A, batch_ms=100, timing=True, index="matching")
    stream.advance(0)
    query = engine.register(f"REGISTER RSTREAM q AS SELECT ?x ?y {TWO} WHERE {where}")
    stream.push([at("b", 150), at("c", 150, "r")])
    stream.advance(200)
    engine.settle(timeout_s=60)
    *_, last = query.results(timeout_s=0)
    assert rows(last) == expected
