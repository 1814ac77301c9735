"""Limits of time, rows, bytes and room: each refuses by name, changes nothing, and the engine goes on."""

from __future__ import annotations

import io

import pytest

import wukongs
from tests.engine_helpers import A, B, at, names, node, register_text, slow_filter, subjects, windows
from tests.faces import Face
from wukongs.settings import Settings

PATTERNS = "?a ?p ?b . ?c ?q ?d . ?e ?r ?f"
SLOW = f"SELECT (COUNT(*) AS ?n) {{ {PATTERNS} {slow_filter('ace')} }}"


def filled(face: Face, **options: int) -> wukongs.Engine:
    """An engine with these limits, and a hundred triples."""
    engine: wukongs.Engine = face.open(Settings(**options))
    lines = "".join(f"{node(f's{number}')} {node('p')} {node('o')} .\n" for number in range(100))
    engine.load(io.BytesIO(lines.encode()), format="nt")
    return engine


def goes_on(engine: wukongs.Engine) -> bool:
    return len(engine.query("SELECT ?s { ?s ?p ?o }")) == 100


def test_a_query_ends_in_its_time(face: Face) -> None:
    engine = filled(face)
    timeout_s = 0.05 if face.name != "cluster-3" else 2  # what other nodes have is there by then
    with pytest.raises(wukongs.QueryTimeout, match=f"timeout_s = {timeout_s:g}, at last in"):
        engine.query(SLOW, timeout_s=timeout_s)
    with pytest.raises(wukongs.QueryTimeout, match=f"timeout_s = {timeout_s:g}, at last in"):
        engine.explain(SLOW, analyze=True, timeout_s=timeout_s)
    assert goes_on(engine)


def test_a_query_has_so_many_rows_and_no_more(face: Face) -> None:
    engine = filled(face, rows_max=5_000)
    with pytest.raises(wukongs.BudgetExceeded, match="rows_max = 5000"):
        engine.query("SELECT * { ?a ?p ?b . ?c ?q ?d }")
    assert goes_on(engine)


def test_a_query_takes_so_many_bytes_and_no_more(face: Face) -> None:
    engine = filled(face, query_bytes_max=1 << 20)
    doubled = " ".join(f"BIND(CONCAT(?x{number}, ?x{number}) AS ?x{number + 1})" for number in range(30))
    with pytest.raises(wukongs.BudgetExceeded, match="query_bytes_max = 1048576"):
        engine.query(f"SELECT ?x30 {{ BIND('abc' AS ?x0) {doubled} }}")
    assert goes_on(engine)


def test_an_update_over_its_limits_changes_nothing(face: Face) -> None:
    engine = filled(face, rows_max=5_000)
    before = engine.stats()["sn"]
    with pytest.raises(wukongs.BudgetExceeded, match="rows_max = 5000"):
        engine.update("CLEAR NAMED ; INSERT { ?a ?p ?d } WHERE { ?a ?p ?b . ?c ?q ?d }")
    assert goes_on(engine)
    assert engine.stats()["sn"] == before


def test_a_firing_over_its_budget_is_told_to_its_reader_alone(face: Face) -> None:
    engine = face.open(Settings(rows_max=500))
    stream = engine.stream(A, timing=True, batch_ms=100)
    product = "{ ?a ?p ?b . ?c ?q ?d }"
    bad = engine.register(register_text("RANGE 100ms STEP 100ms", "bad", where=product, select="*"))
    good = engine.register(register_text("RANGE 100ms STEP 100ms", "good"))
    stream.push([at(f"n{number}", 50) for number in range(30)])
    stream.push([at("late", 150)])
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert windows(good) == {100: sorted(f"n{number}" for number in range(30)), 200: ["late"]}
    with pytest.raises(wukongs.BudgetExceeded, match="rows_max = 500"):
        next(bad.results(timeout_s=60))
    assert next(bad.results(timeout_s=60)).end_ms == 200, "later windows are reported again"
    assert bad.stats()["errors"] == 1


def test_what_waits_for_other_streams_is_bounded(face: Face) -> None:
    engine = face.open(Settings(queued_bytes_max=4100))
    stream, other = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
    other.push([at("x", 10)])
    stream.push([at("a", 50)] * 60)
    with pytest.raises(wukongs.StreamError, match="would exceed queued_bytes_max"):
        stream.push([at("b", 60)] * 60)
    stream.advance(100)
    other.advance(100)
    engine.settle(timeout_s=60)
    stream.push([at("c", 160)] * 60)
    stream.advance(200)
    other.advance(200)
    engine.settle(timeout_s=60)
    assert subjects(engine) == ["a", "c", "x"], "nothing of the call that was refused"


def test_slices_stay_within_their_bytes(face: Face) -> None:
    engine = face.open(Settings(batch_ms=100))
    stream = engine.stream(A, slice_bytes_max=20_000)
    query = engine.register(register_text("RANGE 1s STEP 1s"))
    for end in range(100, 2001, 100):
        stream.push([at(f"t{end}n{number}", end) for number in range(40 if end > 1000 else 1)])
    stream.advance(2000)
    engine.settle(timeout_s=60)
    found = query.results(timeout_s=60)
    assert len(names(next(found))) == 10
    window = next(found)
    assert (window.end_ms, window.partial) == (2000, True)
    assert 0 < len(window) < 400
