"""index="matching": what enters the slices, and what queries that come later are told."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import wukongs
from tests.engine_helpers import EX, A, B, at, names, register_text, subjects, windows
from wukongs.csparql.parser import parse_query
from wukongs.live.slice_filter import ANY_PREDICATE, SliceFilter
from wukongs.live.windows import matched_in
from wukongs.settings import Settings

P_ONLY = f"{{ ?s <{EX}p> ?o }}"
Q_ONLY = f"{{ ?s <{EX}q> ?o }}"


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine(settings=Settings(batch_ms=100)) as engine:
        yield engine


def kept(found: SliceFilter, number: int, *predicates: int) -> list[bool]:
    keep: list[bool] = found.keep(number, np.array(predicates, np.int64)).tolist()
    return keep


def test_what_was_left_out_is_remembered_by_predicate() -> None:
    found = SliceFilter()
    assert kept(found, 1, 10, 20) == [False, False]
    found.match({10})
    assert kept(found, 2, 10, 20) == [True, False]
    found.match({10, 20})
    assert kept(found, 3, 10, 20, 30) == [True, True, False]
    assert (found.lacks_to({10}), found.lacks_to({20}), found.lacks_to({10, 20})) == (1, 2, 2)
    found.match({10, ANY_PREDICATE})
    assert kept(found, 4, 10, 40) == [True, True]
    found.match({10, 50, ANY_PREDICATE})
    assert (found.lacks_to({10}), found.lacks_to({50}), found.lacks_to({ANY_PREDICATE})) == (1, 3, 3)
    assert found.discarded_count == 4


def test_a_query_over_all_that_came_lacks_nothing() -> None:
    found = SliceFilter()
    found.match({10})
    assert kept(found, 7, 10, 10) == [True, True]
    found.match({10, ANY_PREDICATE})
    assert found.lacks_to({ANY_PREDICATE}) is None


@pytest.mark.parametrize(
    ("clause", "where", "predicates"),
    [
        (f"FROM STREAM <{A}> [RANGE 1s STEP 1s]", "?s <p> ?o . OPTIONAL { ?o <q> ?t }", {"<p>", "<q>"}),
        (f"FROM STREAM <{A}> [RANGE 1s STEP 1s]", f"?s <p> ?o . GRAPH <{A}> {{ ?o <q> ?t }}", {"<p>", "<q>"}),
        (f"FROM STREAM <{A}> [RANGE 1s STEP 1s]", "?s <p> ?o . GRAPH <other> { ?o <q> ?t }", {"<p>"}),
        (f"FROM NAMED STREAM <{A}> [RANGE 1s STEP 1s]", f"?s <p> ?o . GRAPH <{A}> {{ ?o <q> ?t }}", {"<q>"}),
        (f"FROM NAMED STREAM <{A}> [RANGE 1s STEP 1s]", "?s <p> ?o . GRAPH ?g { ?o ?q ?t }", {"?q"}),
        (f"FROM STREAM <{A}> [RANGE 1s STEP 1s]", "?s (<p>/^<q>)+ ?o", {"<p>", "<q>"}),
        (f"FROM STREAM <{A}> [RANGE 1s STEP 1s]", "?s (<p>|!<q>)+ ?o", {"<p>", "?p"}),
        (f"FROM STREAM <{A}> [RANGE 1s STEP 1s]", "?s <p>* ?o", {"<p>", "?p"}),
        (f"FROM STREAM <{A}> [RANGE 1s STEP 1s]", "GRAPH <other> { ?s <p>* ?o }", set()),
        (f"FROM STREAM <{B}> [RANGE 1s STEP 1s] FROM NAMED STREAM <{A}> [RANGE 1s STEP 1s]", "?s <p> ?o", set()),
    ],
)
def test_the_patterns_that_a_window_can_match(clause: str, where: str, predicates: set[str]) -> None:
    query = parse_query(f"REGISTER QUERY q AS SELECT * {clause} WHERE {{ {where} }}", None)
    found = [pattern.predicate for pattern in matched_in(query, A)]
    assert {str(getattr(p, "text", f"?{getattr(p, 'name', '')}")) for p in found} == predicates


def test_only_what_a_query_can_match_is_held_and_answers_are_the_same(engine: wukongs.Engine) -> None:
    every, some = engine.stream(A), engine.stream(B, index="matching")
    texts = {name: register_text("RANGE 1s STEP 200ms", f"q{name[-1]}", name, P_ONLY) for name in (A, B)}
    queries = {name: engine.register(text) for name, text in texts.items()}
    for stream in (every, some):
        stream.push([at(f"s{t}", t, "p" if t % 3 == 0 else "other") for t in range(10, 3000, 10)])
        stream.advance(3000)
    engine.settle(timeout_s=60)
    stats = engine.stats()["streams"]
    assert stats[B]["slice_bytes"] < stats[A]["slice_bytes"] / 2
    assert stats[A]["tuples_not_indexed"] == 0
    assert stats[B]["tuples_not_indexed"] == sum(t % 3 != 0 for t in range(10, 3000, 10))
    expected = windows(queries[A])
    assert len(expected) == 15
    found = list(queries[B].results(timeout_s=0))
    assert {window.end_ms: names(window) for window in found} == expected
    assert not any(window.partial for window in found)


def test_timeless_tuples_join_the_stored_graph_all_the_same(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, index="matching")
    stream.push([at("a", 50), at("b", 150, "other")])
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert subjects(engine) == ["a", "b"]
    assert engine.stats()["streams"][A]["slices"] == 0


def test_windows_that_reach_before_their_registration_are_partial(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, index="matching")
    engine.register(register_text("RANGE 100ms STEP 100ms", "first", where=P_ONLY))
    stream.push([at("p1", 50), at("q1", 150, "q"), at("p2", 250)])
    stream.advance(300)
    engine.settle(timeout_s=60)
    late = engine.register(register_text("RANGE 300ms STEP 100ms", "late", where=Q_ONLY))
    same = engine.register(register_text("RANGE 300ms STEP 100ms", "same", where=P_ONLY))
    stream.push([at("q2", 350, "q")])
    stream.advance(600)
    engine.settle(timeout_s=60)
    assert {w.end_ms: (names(w), w.partial) for w in late.results(timeout_s=0)} == {
        400: (["q2"], True),
        500: (["q2"], False),
        600: (["q2"], False),
    }
    assert [w.partial for w in same.results(timeout_s=0)] == [False, False, False], "its tuples were always kept"


def test_transient_terms_of_tuples_that_are_left_out_go_with_their_stream_batch(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, timing=True, history_ms=0, index="matching")
    before = engine.stats()["terms"]
    for t in range(50, 2050, 100):
        stream.push([at(f"t{t}", t)])
    stream.advance(3000)
    engine.settle(timeout_s=60)
    assert engine.stats()["terms"] <= before


def test_an_unknown_index_is_refused(engine: wukongs.Engine) -> None:
    with pytest.raises(wukongs.SettingsError, match='index = \'some\': expected "all" or "matching"'):
        engine.stream(A, index="some")  # type: ignore[arg-type]
