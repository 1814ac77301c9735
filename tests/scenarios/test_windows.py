"""Windows of streams and when they fire, through the Engine, one behaviour each."""

from __future__ import annotations

import io

import pytest

import wukongs
from tests.engine_helpers import A, B, at, names, register_text, rows, subjects, windows
from tests.pipelines import pipelines


def test_a_window_is_open_to_the_left_and_closed_to_the_right(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 200ms STEP 100ms"))
    stream.push([at("at100", 100), at("at101", 101), at("at300", 300), at("at301", 301)])
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["at100"], 200: ["at100", "at101"], 300: ["at101", "at300"]}


def test_window_bounds_are_reported(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 500ms STEP 200ms"))
    stream.push([at("a", 900)])
    stream.advance(1200)
    engine.settle(timeout_s=60)
    (first, second) = list(query.results(timeout_s=0))
    assert [(w.start_ms, w.end_ms) for w in (first, second)] == [(500, 1000), (700, 1200)]
    assert first.query == "q"
    assert list(first.vars) == ["s"]
    assert not first.partial
    assert first.latency_us >= 0


def test_empty_windows_are_reported(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    stream.push([at("a", 50)])
    stream.advance(400)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a"], 200: [], 300: [], 400: []}


@pytest.mark.parametrize(
    ("select", "where", "of_nothing"),
    [
        ("?s", "{ ?s ?p ?o }", []),
        ("(COUNT(*) AS ?n)", "{ ?s ?p ?o }", [("0",)]),
        ("?s ?t", "{ OPTIONAL { ?s ?p ?o } BIND(1 + 1 AS ?t) }", [("", "2")]),
    ],
)
def test_the_answer_to_nothing_is_the_same_each_time(
    engine: wukongs.Engine, select: str, where: str, of_nothing: list[tuple[str, ...]]
) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms", select=select, where=where))
    stream.push([at("a", 50)])
    stream.advance(300)
    stream.push([at("b", 350)])
    stream.advance(600)
    engine.settle(timeout_s=60)
    found = {window.end_ms: rows(window) for window in query.results(timeout_s=0)}
    assert [found[end] for end in (200, 300, 500, 600)] == [of_nothing] * 4
    assert len(found[100]) == len(found[400]) == 1
    assert of_nothing not in (found[100], found[400])


def test_a_tumbling_window_holds_each_tuple_once(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 300ms TUMBLING"))
    stream.push([at(f"t{t}", t) for t in (100, 300, 301, 600, 650)])
    stream.advance(900)
    engine.settle(timeout_s=60)
    assert windows(query) == {300: ["t100", "t300"], 600: ["t301", "t600"], 900: ["t650"]}


def test_a_step_longer_than_the_range_leaves_tuples_out(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 300ms"))
    stream.push([at(f"t{t}", t) for t in (50, 200, 250, 450, 600)])
    stream.advance(600)
    engine.settle(timeout_s=60)
    assert windows(query) == {300: ["t250"], 600: ["t600"]}


def test_duplicates_in_a_window_and_in_the_graph_count_once(engine: wukongs.Engine) -> None:
    engine.load(io.BytesIO(b"<http://ex/s> <http://ex/p> <http://ex/o> .\n"), format="nt")
    stream = engine.stream(A, batch_ms=100)
    text = register_text("RANGE 400ms STEP 400ms", select="(COUNT(*) AS ?n)")
    query = engine.register(text.replace("WHERE", "FROM <urn:x-wukongs:default> WHERE"))
    stream.push([at("s", 100), at("s", 100), at("s", 150), at("s", 350)])
    stream.advance(400)
    engine.settle(timeout_s=60)
    assert windows(query) == {400: ["1"]}
    assert rows(engine.query("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }")) == [("1",)]


def test_two_windows_of_one_stream_are_each_exact(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?s ?t FROM STREAM <{A}> [RANGE 200ms STEP 100ms] "
        f"FROM NAMED STREAM <{A}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o . GRAPH <{A}> {{ ?t ?p ?o }} }}"
    )
    stream.push([at("old", 100), at("new", 200)])
    stream.advance(300)
    engine.settle(timeout_s=60)
    found = {window.end_ms: rows(window) for window in query.results(timeout_s=0)}
    assert found == {100: [("old", "old")], 200: [("new", "new"), ("old", "new")], 300: []}


def test_a_named_window_leaves_the_default_graph_alone(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100, timing=True)
    clause = f"FROM NAMED STREAM <{A}> [RANGE 100ms STEP 100ms]"
    default = engine.register(f"REGISTER QUERY d AS SELECT ?s {clause} WHERE {{ ?s ?p ?o }}")
    named = engine.register(f"REGISTER QUERY n AS SELECT ?s {clause} WHERE {{ GRAPH <{A}> {{ ?s ?p ?o }} }}")
    any_graph = engine.register(f"REGISTER QUERY g AS SELECT ?g {clause} WHERE {{ GRAPH ?g {{ ?s ?p ?o }} }}")
    stream.push([at("a", 100)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    assert [windows(query) for query in (default, named, any_graph)] == [{100: []}, {100: ["a"]}, {100: ["streamA"]}]


def test_a_window_query_sees_stored_data_only_where_its_dataset_clause_says_so(engine: wukongs.Engine) -> None:
    engine.load(io.BytesIO(b"<http://ex/stored> <http://ex/p> <http://ex/o> .\n"), format="nt")
    stream = engine.stream(A, batch_ms=100)
    alone = engine.register(register_text("RANGE 100ms STEP 100ms", name="alone"))
    text = register_text("RANGE 100ms STEP 100ms", name="merged")
    merged = engine.register(text.replace("WHERE", "FROM <urn:x-wukongs:default> WHERE"))
    stream.push([at("a", 100)])
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert windows(alone) == {100: ["a"], 200: []}
    assert windows(merged) == {100: ["a", "stored"], 200: ["a", "stored"]}


def test_a_stream_iri_is_no_graph_of_a_query_that_does_not_declare_it(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    stream.push([at("a", 100)])
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert rows(engine.query(f"SELECT ?s {{ GRAPH <{A}> {{ ?s ?p ?o }} }}")) == []
    assert rows(engine.query("SELECT ?g { GRAPH ?g { ?s ?p ?o } }")) == []


def test_each_window_closes_at_its_own_multiple(engine: wukongs.Engine) -> None:
    one, two = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
    one.advance(0)
    two.advance(0)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE 100ms STEP 100ms] "
        f"FROM STREAM <{B}> [RANGE 200ms STEP 200ms] WHERE {{ ?s ?p ?o }}"
    )
    one.push([at("a100", 100), at("a200", 200), at("a300", 300), at("a400", 400)])
    two.push([at("b100", 100), at("b200", 200), at("b300", 300), at("b400", 400)])
    one.advance(400)
    two.advance(400)
    engine.settle(timeout_s=60)
    assert windows(query) == {
        100: ["a100"],  # the window of B that closes at 0 is empty
        200: ["a200", "b100", "b200"],
        300: ["a300", "b100", "b200"],
        400: ["a400", "b300", "b400"],
    }


def test_a_window_waits_for_all_streams_of_its_query(engine: wukongs.Engine) -> None:
    one, two = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
    one.push([at("a", 50)])
    two.push([at("b", 50)])
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE 100ms STEP 100ms] "
        f"FROM STREAM <{B}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
    )
    one.advance(500)
    engine.settle(timeout_s=60)
    assert windows(query) == {}
    two.advance(200)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a", "b"], 200: []}


def test_a_stream_that_has_not_started_holds_nobody(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    engine.stream(B, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    stream.push([at("a", 50)])
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a"], 200: []}
    assert subjects(engine) == ["a"]


def test_streams_pushed_one_after_the_other_lose_nothing(engine: wukongs.Engine) -> None:
    """The second stream starts in the past of the first: its tuples are in the windows and in the stored graph."""
    one, two = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE 100ms STEP 100ms] "
        f"FROM STREAM <{B}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
    )
    one.push([at(f"a{t}", t) for t in range(100, 501, 100)])
    one.advance(500)
    engine.settle(timeout_s=60)
    two.push([at(f"b{t}", t) for t in range(100, 501, 100)])
    two.advance(500)
    engine.settle(timeout_s=60)
    assert windows(query) == {t: [f"a{t}", f"b{t}"] for t in range(100, 501, 100)}
    assert subjects(engine) == sorted(f"{name}{t}" for name in "ab" for t in range(100, 501, 100))


def test_advance_moves_an_idle_stream(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    stream.advance(250)
    stream.advance(300)
    engine.settle(timeout_s=60)
    assert windows(query) == {300: []}  # the first multiple at or after the first advance


def test_a_query_registered_late_starts_at_the_next_multiple(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    early = engine.register(register_text("RANGE 300ms STEP 200ms", name="early"))
    stream.push([at("a", 150), at("b", 450)])
    stream.advance(600)
    engine.settle(timeout_s=60)
    late = engine.register(register_text("RANGE 300ms STEP 200ms", name="late"))
    stream.push([at("c", 750)])
    stream.advance(1000)
    engine.settle(timeout_s=60)
    assert windows(early) == {200: ["a"], 400: ["a"], 600: ["b"], 800: ["c"], 1000: ["c"]}
    assert windows(late) == {800: ["c"], 1000: ["c"]}


def test_a_late_query_reads_the_slices_that_are_still_kept(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, timing=True, batch_ms=100)
    stream.push([at(f"t{t}", t) for t in range(100, 1001, 100)])
    stream.advance(1000)
    engine.settle(timeout_s=60)
    query = engine.register(register_text("RANGE 1s STEP 100ms"))
    stream.advance(1100)
    engine.settle(timeout_s=60)
    (window,) = list(query.results(timeout_s=0))
    assert not window.partial
    assert names(window) == sorted(f"t{t}" for t in range(200, 1001, 100))


@pytest.mark.slow_on("cluster-1", "cluster-3")
def test_a_window_that_reaches_before_the_kept_slices_is_partial(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, timing=True, batch_ms=100, history_ms=1000)
    for start in range(0, 120_000, 10_000):
        stream.push([at(f"t{t}", t) for t in range(start + 100, start + 10_001, 100)])
        engine.settle(timeout_s=60)
    stream.advance(120_000)
    engine.settle(timeout_s=60)
    query = engine.register(register_text("RANGE 100s STEP 1s"))
    stream.advance(121_000)
    engine.settle(timeout_s=60)
    (window,) = list(query.results(timeout_s=0))
    assert window.end_ms == 121_000
    assert window.partial
    kept = set(names(window))
    # history_ms is a promise: what lies in the last second before the registration is there.
    assert {f"t{t}" for t in range(119_100, 120_001, 100)} <= kept <= {f"t{t}" for t in range(21_100, 120_001, 100)}


def test_a_window_that_reaches_before_the_first_tuple_is_not_partial(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 1h STEP 100ms"))
    stream.push([at("a", 100)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    (window,) = list(query.results(timeout_s=0))
    assert not window.partial


def test_slices_live_as_long_as_a_registered_window_needs_them(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, timing=True, batch_ms=100, history_ms=100)
    query = engine.register(register_text("RANGE 20s STEP 20s"))
    for t in range(1000, 60_001, 1000):
        stream.push([at(f"t{t}", t)])
    stream.advance(60_000)
    engine.settle(timeout_s=60)
    found = list(query.results(timeout_s=0))
    assert [window.end_ms for window in found] == [20_000, 40_000, 60_000]
    assert not any(window.partial for window in found)
    assert [len(list(window)) for window in found] == [20, 20, 20]


def test_a_stream_that_ends_fires_up_to_its_end_and_holds_nobody_back(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 500ms STEP 500ms"))
    stream.push([at("a", 50), at("b", 620)])
    stream.close()
    engine.settle(timeout_s=60)
    assert windows(query) == {500: ["a"], 1000: ["b"]}
    assert query.why().startswith("q has reported all windows: its streams have ended\n")
    engine.load(io.BytesIO(b"<http://ex/later> <http://ex/p> <http://ex/o> .\n"), format="nt")
    assert subjects(engine) == ["a", "b", "later"]


@pytest.mark.parametrize("history_ms", [300, 60_000])
def test_a_query_that_comes_late_has_the_history_that_slices_hold(engine: wukongs.Engine, history_ms: int) -> None:
    check_what_a_late_query_has(engine, history_ms)


@pytest.mark.faces("embedded", "durable", "connect", "cluster-1")  # of three nodes, it hangs on who had dropped what
def test_a_query_that_comes_late_is_told_what_is_gone_without_history(engine: wukongs.Engine) -> None:
    check_what_a_late_query_has(engine, 0)


def check_what_a_late_query_has(engine: wukongs.Engine, history_ms: int) -> None:
    stream = engine.stream(A, timing=True, batch_ms=100, history_ms=history_ms)
    for number in range(12):
        stream.push([at(f"s{number}", 100 * number + 5), at(f"t{number}", 100 * number + 50)])
    engine.settle(timeout_s=60)
    query = engine.register(register_text("RANGE 500ms STEP 100ms"))
    for number in range(12, 20):
        stream.push([at(f"s{number}", 100 * number + 5)])
    stream.advance(2000)
    engine.settle(timeout_s=60)
    found = {window.end_ms: (window.partial, names(window)) for window in query.results(timeout_s=0)}
    assert list(found) == list(range(1200, 2001, 100))
    lost = 1100 - history_ms
    """Up to where slices may have gone."""
    for end_ms, (partial, held) in found.items():
        times = {f"s{n}": 100 * n + 5 for n in range(20)} | {f"t{n}": 100 * n + 50 for n in range(12)}
        whole = {name for name, time_ms in times.items() if end_ms - 500 < time_ms <= end_ms}
        assert whole >= set(held) >= {name for name in whole if times[name] > lost}
        assert partial == (whole != set(held))


def test_a_window_with_a_name_beside_stored_data(engine: wukongs.Engine) -> None:
    """The usual form of RSP-QL: NAMED windows alone leave the stored default graph as it is (decision 0033)."""
    engine.load(io.BytesIO(b"<http://ex/u> <http://ex/knows> <http://ex/f> .\n"), format="nt")
    stream = engine.stream(A, timing=True, batch_ms=100)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?x FROM NAMED STREAM <{A}> [RANGE 100ms STEP 100ms] "
        f"WHERE {{ ?x <http://ex/knows> ?f . GRAPH <{A}> {{ ?f <http://ex/p> ?o }} }}"
    )
    assert query.warnings() == ()
    stream.push([at("f", 50), at("g", 150)])
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["u"], 200: []}


def test_partitions_of_pipelines_are_one_stream(engine: wukongs.Engine) -> None:
    """A stream batch is complete when all partitions have closed it; what is pushed is a partition of its own."""
    stream = engine.stream(A, batch_ms=100, timing=False, into="http://ex/g")
    query = engine.register(register_text("RANGE 200ms STEP 100ms"))
    with pipelines(engine, A, "p0", "p1") as (first, second):
        first.push(("a", 10), ("b", 20))
        second.push(("c", 15))
        stream.push([at("d", 12)])
        first.complete(100)
        stream.advance(100)
        engine.settle(timeout_s=60)
        assert windows(query) == {}
        second.complete(100)
        engine.settle(timeout_s=60)
        assert windows(query) == {100: ["a", "b", "c", "d"]}
        first.push(("e", 150))
        for pipeline in (first, second):
            pipeline.finish()
        stream.close()
    engine.settle(timeout_s=60)
    assert windows(query) == {200: ["a", "b", "c", "d", "e"]}
    assert names(engine.query("SELECT ?s { GRAPH <http://ex/g> { ?s ?p ?o } }")) == ["a", "b", "c", "d", "e"]
