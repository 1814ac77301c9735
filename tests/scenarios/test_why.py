"""why(): what empties a query, a fact a line, after the line that tells what it waits for."""

from __future__ import annotations

import io
from typing import Any

import wukongs
from tests.engine_helpers import A, at, node, register_text
from tests.faces import Face
from wukongs.settings import Settings

WINDOW = "RANGE 200ms STEP 100ms"
P, Q, R = node("p"), node("q"), node("r")


def fired(engine: Any, where: str, *tuples: Any) -> Any:
    """A query that has fired over some tuples, up to 200 ms."""
    return stream_and_fired(engine, where, *tuples)[1]


def stream_and_fired(engine: Any, where: str, *tuples: Any, **options: Any) -> tuple[Any, Any]:
    stream = engine.stream(A, batch_ms=100, timing=True, **options)
    query = engine.register(register_text(WINDOW, where=where, select="*"))
    stream.push(list(tuples))
    stream.advance(200)
    engine.settle(timeout_s=60)
    return stream, query


def test_the_first_pattern_without_matches_and_the_rows_of_each_step_are_told(face: Face) -> None:
    where = f"{{ ?s {P} ?o . ?o {Q} ?x }}"
    pushed = [at("a", 50), at("b", 50), at("c", 50), at("other", 50, "q", "z")]
    query = fired(face.open(), where, *pushed)
    told = query.why().split("\n")
    assert told[0] == f"q waits to report the window ending at 300 ms for {A} (closed up to 200 ms)"
    assert "the last window reported, ending at 200 ms, has 0 rows" in told
    anew = "the window ending at 200 ms was evaluated anew, over what is held now: its patterns and filters give 0 rows"
    assert anew in told
    steps = [line for line in told if line.startswith("step ")]
    assert [line.rsplit(": ", 1)[1] for line in steps] in (["3 rows", "0 rows"], ["1 rows", "0 rows"])
    pattern = steps[1].split(", ", 1)[1].rsplit(": ", 1)[0]
    assert f"the first pattern without matches is {pattern}" in told
    assert not [line for line in told if line.startswith("no data has predicate")]


def test_predicates_that_nothing_has_brought_are_told(face: Face) -> None:
    engine = face.open()
    engine.load(io.BytesIO(f"<urn:x> {R} <urn:y> .\n".encode()), format="nt")
    query = fired(engine, f"{{ ?s {P} ?o . ?s {Q} ?x . ?s {R} ?y }}", at("a", 50))
    told = [line for line in query.why().split("\n") if line.startswith("no data has predicate")]
    assert any(Q in line for line in told)
    assert not any(P in line for line in told)
    assert len(told) == 1


def test_a_pattern_that_need_not_match_is_not_named(face: Face) -> None:
    where = f"{{ ?s {P} ?o OPTIONAL {{ ?s {Q} ?x }} FILTER(STR(?o) = 'nothing') }}"
    text = fired(face.open(), where, at("a", 50), at("a", 50, "q")).why()
    assert "the first pattern without matches" not in text
    assert "each pattern has matches: a filter, or a join of them, leaves no row" in text


def test_rows_are_told_of_a_query_that_is_not_empty(face: Face) -> None:
    told = fired(face.open(), f"{{ ?s {P} ?o }}", at("a", 50), at("b", 50)).why().split("\n")
    assert "the last window reported, ending at 200 ms, has 2 rows" in told
    assert any(line.startswith(f"step 1, ?s {P} ?o ") and line.endswith(": 2 rows") for line in told)
    assert not any("without matches" in line or "leaves no row" in line for line in told)


def test_late_tuples_are_told(face: Face) -> None:
    engine = face.open()
    stream, query = stream_and_fired(engine, f"{{ ?s {P} ?o }}", at("a", 50), on_late="count")
    assert "came late" not in query.why()
    stream.push([at("b", 60), at("c", 250)])
    engine.settle(timeout_s=60)
    assert f"stream {A}: 1 tuples came late, 1 of them were dropped" in query.why().split("\n")


def test_a_query_that_has_not_begun_is_told_by_one_line(face: Face) -> None:
    engine = face.open()
    engine.stream(A)
    query = engine.register(register_text("RANGE 1s STEP 1s"))
    assert query.why() == f"q waits for the first tuple or advance of {A}"


def test_a_limit_is_told_and_not_raised(face: Face) -> None:
    query = fired(face.open(Settings(rows_max=50)), "{ ?s ?p ?o . ?x ?y ?z }", *(at(f"n{i}", 50) for i in range(20)))
    text = query.why()
    assert "the window ending at 200 ms could not be evaluated anew: " in text
    assert "rows_max = 50" in text
    assert "errors were counted, of firings and of on_result" in text


def test_windows_that_were_dropped_unread_are_told() -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True)
        query = engine.register(register_text("RANGE 100ms STEP 100ms"), unread_bytes_max=2000)
        stream.push([at("a", t) for t in range(50, 1000, 100)])
        stream.advance(1000)
        engine.settle(timeout_s=60)
        dropped = query.stats()["results_dropped"]
        assert dropped
        assert f"{dropped} windows were dropped unread, up to the one ending at 900 ms" in query.why().split("\n")


def test_windows_that_were_partial_are_told() -> None:
    with wukongs.Engine() as engine:
        stream, _ = stream_and_fired(engine, f"{{ ?s {P} ?o }}", at("a", 50), at("b", 50, "q"), index="matching")
        wide = engine.register(register_text("RANGE 1s STEP 100ms", name="wide", where=f"{{ ?s {Q} ?o }}"))
        stream.advance(300)
        engine.settle(timeout_s=60)
        assert "1 windows were partial, the last of them ended at 300 ms" in wide.why().split("\n")
