"""Streams with late="open", on every face: which windows hold a tuple that comes behind the watermark.

The right values are those of DESIGN.md, section 6: with c the end of the last closed stream batch when a tuple with
timestamp u arrives, the window (t - r, t] holds it if t > c and t - r < u <= t.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import wukongs
from tests.engine_helpers import EX, A, B, at, names, node, register_text, rows, subjects, windows
from tests.faces import Face
from tests.oracles.lateness import OpenArrivals


def test_a_late_tuple_joins_the_windows_that_end_after_the_watermark(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100, late="open", timing=True)
    query = engine.register(register_text("RANGE 300ms STEP 100ms"))
    assert stream.push([at("a", 50), at("b", 250), at("late", 150), at("c", 350)]) == 4
    assert stream.push([at("later", 120)]) == 1
    stream.advance(900)
    engine.settle(timeout_s=60)
    found = {end: names for end, names in windows(query).items() if names}
    assert found == {
        100: ["a"],
        200: ["a"],  # closed when `late` arrived
        300: ["a", "b", "late"],  # closed when `later` arrived
        400: ["b", "c", "late", "later"],
        500: ["b", "c"],
        600: ["c"],
    }
    counts = engine.stats()["streams"][A]
    assert [counts[name] for name in ("tuples", "late", "carried", "dropped")] == [5, 2, 2, 0]


def test_a_tuple_behind_the_watermark_in_an_open_stream_batch_is_in_its_windows(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100, late="open", timing=True)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    stream.push([at("a", 290), at("b", 210)])
    stream.advance(300)
    engine.settle(timeout_s=60)
    assert windows(query) == {300: ["a", "b"]}


def test_tuples_older_than_history_ms_are_dropped(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100, late="open", history_ms=200, timing=[EX + "seen"])
    query = engine.register(register_text("RANGE 1s STEP 100ms"))
    stream.push([at("a", 1000)])  # it closes 900
    assert stream.push([at("kept", 700), at("old", 699), at("gone", 699, predicate="seen")]) == 1
    assert subjects(engine) == ["old"], "timeless and too old: it joins at the next SN"
    stream.advance(1000)
    engine.settle(timeout_s=60)
    assert windows(query) == {1000: ["a", "kept"]}
    assert subjects(engine) == ["a", "kept", "old"]
    counts = engine.stats()["streams"][A]
    assert [counts[name] for name in ("late", "carried", "dropped")] == [3, 1, 1]


def test_a_carried_timeless_tuple_joins_the_stored_graph_with_the_stream_batch_that_carries_it(
    engine: wukongs.Engine,
) -> None:
    stream = engine.stream(A, batch_ms=100, late="open")
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?s FROM <urn:x-wukongs:default> FROM NAMED STREAM <{A}> [RANGE 100ms STEP 100ms] "
        f"WHERE {{ ?s ?p <{EX}o> }}"
    )
    stream.push([at("a", 250), at("late", 50)])
    engine.settle(timeout_s=60)
    assert subjects(engine) == []
    stream.advance(400)
    engine.settle(timeout_s=60)
    assert windows(query) == {300: ["a", "late"], 400: ["a", "late"]}


def test_a_carried_retraction_goes_in_the_order_of_event_time(engine: wukongs.Engine) -> None:
    """Within a stream batch signs are ordered by time, also if they are carried."""
    stream = engine.stream(A, batch_ms=100, late="open")
    columns = {"subject": [node("a")], "predicate": [node("p")], "object": [node("o")]}
    stream.push([at("a", 250), at("b", 250)])
    stream.push_arrow(pa.table({**columns, "timestamp_ms": [150], "op": ["-"]}))
    stream.advance(400)
    engine.settle(timeout_s=60)
    assert subjects(engine) == ["a", "b"]


def test_a_counted_window_has_a_carried_tuple_at_the_end_of_the_stream_batch_that_carries_it(
    engine: wukongs.Engine,
) -> None:
    stream = engine.stream(A, batch_ms=100, late="open", timing=True)
    query = engine.register(register_text("RANGE TRIPLES 2 STEP 1"))
    stream.push([at("a", 150), at("b", 280), at("late", 50), at("c", 290)])
    stream.advance(400)
    engine.settle(timeout_s=60)
    found = [(window.end_ms, names(window)) for window in query.results(timeout_s=0)]
    assert [names for _, names in found] == [["a"], ["c", "late"]]


def test_timestamp_gives_a_carried_tuples_own_time(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100, late="open", timing=True)
    query = engine.register(
        "PREFIX f: <http://larkc.eu/csparql/sparql/jena/ext#> "
        "REGISTER QUERY q AS SELECT ?s (f:timestamp(?s, ?p, ?o) AS ?t) "
        f"FROM STREAM <{A}> [RANGE 300ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
    )
    stream.push([at("a", 250), at("late", 150)])
    stream.advance(300)
    engine.settle(timeout_s=60)
    found = {window.end_ms: dict(rows(window)) for window in query.results(timeout_s=0)}
    assert found[300] == {"a": "250", "late": "150"}


def test_late_is_one_of_two_words(engine: wukongs.Engine) -> None:
    with pytest.raises(wukongs.SettingsError, match='late = \'close\': expected "drop" or "open"'):
        engine.stream(A, late="close")  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
def test_windows_over_random_arrivals_are_those_of_the_calls_alone(engine: wukongs.Engine, seed: int) -> None:
    """Windows of time of two widths, a join with another stream, a counted window, and a stream made of a query."""
    rng = random.Random(seed)
    lateness_ms, history_ms = rng.choice([0, 50, 250]), rng.choice([300, 60_000])
    options: dict[str, Any] = {"batch_ms": 100, "lateness_ms": lateness_ms, "history_ms": history_ms, "timing": True}
    stream, arrivals = engine.stream(A, **options, late="open"), OpenArrivals(lateness_ms, history_ms=history_ms)
    other = engine.stream(B, batch_ms=100, timing=True)
    for each in (stream, other):
        each.advance(0)
    arrivals.advance(0)
    queries = {
        range_ms: engine.register(register_text(f"RANGE {range_ms}ms STEP 100ms", name=f"q{range_ms}"))
        for range_ms in (100, 300, 1000)
    }
    joined = engine.register(
        f"REGISTER QUERY j AS SELECT ?s ?x FROM STREAM <{A}> [RANGE 500ms STEP 100ms] "
        f"FROM STREAM <{B}> [RANGE 500ms STEP 100ms] WHERE {{ ?s <{EX}p> <{EX}o> . ?s <{EX}x> ?x }}"
    )
    counted = engine.register(register_text("RANGE TRIPLES 5 STEP 1", name="counted"))
    made = EX + "made"
    engine.register(
        f"REGISTER STREAM <{made}> AS CONSTRUCT {{ ?s <{EX}p> <{EX}o> }} FROM STREAM <{A}> [RANGE 200ms STEP 100ms] "
        "WHERE { ?s ?p ?o }"
    )
    reader = engine.register(register_text("RANGE 300ms STEP 100ms", name="reader", stream=made))
    now_ms, others, count = 0, list[tuple[str, int]](), 0
    for _ in range(rng.randint(10, 25)):
        tuples = []
        for _ in range(rng.randint(1, 4)):
            count += 1
            tuples.append(at(f"n{count}", max(1, now_ms + rng.randint(-700, 200))))
            now_ms = max(now_ms, tuples[-1][3])
        late = len(arrivals.late)
        arrivals.push(tuples)
        assert stream.push(tuples) == len(tuples) - (len(arrivals.late) - late)
        if rng.random() < 0.3:
            now_ms += rng.randint(0, 150)
            stream.advance(now_ms)
            arrivals.advance(now_ms)
        if rng.random() < 0.5:
            name, t = f"n{rng.randint(1, count)}", max(now_ms, others[-1][1] if others else 1)
            other.push([(node(name), node("x"), node("y"), t)])
            others.append((name, t))
        if rng.random() < 0.3:
            engine.settle(timeout_s=60)
    end_ms = now_ms // 100 * 100 + 1500
    for each in (stream, other):
        each.advance(end_ms)
    engine.settle(timeout_s=60)

    def expected(range_ms: int, end: int) -> list[str]:
        return sorted(str(one[0])[1:-1][len(EX) :] for one in arrivals.window(end - range_ms, end))

    for range_ms, query in queries.items():
        found = windows(query)
        assert sorted(found) == list(range(100, end_ms + 1, 100))
        assert found == {end: expected(range_ms, end) for end in found}, range_ms
    for window in joined.results(timeout_s=0):
        held = set(expected(500, window.end_ms))
        mates = {name for name, t in others if window.end_ms - 500 < t <= window.end_ms}
        assert rows(window) == sorted((name, "y") for name in held & mates), window.end_ms
    of_made = windows(reader)
    fired = {end: expected(200, end) for end in range(100, end_ms + 1, 100)}
    for end, found in of_made.items():
        assert found == sorted({name for at_ms in (end - 200, end - 100, end) for name in fired.get(at_ms, [])}), end
    order = [str(one[0])[1:-1][len(EX) :] for one in arrivals.in_order()]
    last = list(counted.results(timeout_s=0))[-1]
    assert names(last) == sorted(order[-5:])


def test_groups_and_queries_of_one_shape_read_carried_tuples(engine: wukongs.Engine) -> None:
    """A group of queries, queries that differ in a constant, an aggregate and a path, over the same windows."""
    rng = random.Random(7)
    stream, arrivals = engine.stream(A, batch_ms=100, late="open", timing=True), OpenArrivals(0)
    stream.advance(0)
    arrivals.advance(0)
    clause, users = f"FROM STREAM <{A}> [RANGE 500ms STEP 100ms]", range(6)
    group = engine.register(
        f"REGISTER QUERY g AS SELECT ?u ?o {clause} WHERE {{ ?u <{EX}p> ?o }}",
        bindings=pa.table({"u": [node(f"u{user}") for user in users]}),
    )
    alike = [
        engine.register(f"REGISTER QUERY a{user} AS SELECT ?o {clause} WHERE {{ <{EX}u{user}> <{EX}p> ?o }}")
        for user in users
    ]
    counted = engine.register(
        f"REGISTER QUERY c AS SELECT ?u (COUNT(*) AS ?n) {clause} WHERE {{ ?u <{EX}p> ?o }} GROUP BY ?u"
    )
    path = engine.register(f"REGISTER QUERY w AS SELECT ?x ?y {clause} WHERE {{ ?x <{EX}p>+ ?y }}")
    now_ms = 0
    for _ in range(25):
        tuples = [
            at(f"u{rng.choice(users)}", max(1, now_ms + rng.choice([60, 60, -130, -420])), term=f"u{rng.choice(users)}")
            for _ in range(rng.randint(1, 5))
        ]
        stream.push(tuples)
        arrivals.push(tuples)
        now_ms += rng.choice([50, 100])
        stream.advance(now_ms)
        arrivals.advance(now_ms)
        if rng.random() < 0.5:
            engine.settle(timeout_s=60)
    engine.settle(timeout_s=60)
    assert arrivals.carried

    def triples(end_ms: int) -> set[tuple[str, str]]:
        held = arrivals.window(end_ms - 500, end_ms)
        return {(str(one[0])[1:-1][len(EX) :], str(one[2])[1:-1][len(EX) :]) for one in held}

    ends = list(range(100, now_ms // 100 * 100 + 1, 100))
    found = {window.end_ms: {row[1:] for row in rows(window)} for window in group.results(timeout_s=0)}
    assert found == {end: triples(end) for end in ends}
    for user, query in zip(users, alike, strict=True):
        assert windows(query) == {end: sorted(o for s, o in triples(end) if s == f"u{user}") for end in ends}
    for window in counted.results(timeout_s=0):
        held = [s for s, _ in triples(window.end_ms)]
        assert rows(window) == sorted((s, str(held.count(s))) for s in set(held)), window.end_ms
    for window in path.results(timeout_s=0):
        reached = triples(window.end_ms)
        for _ in users:
            reached |= {(x, y) for x, z in reached for mid, y in reached if mid == z}
        assert rows(window) == sorted(reached), window.end_ms


@pytest.mark.faces("durable")
def test_a_restart_repeats_the_windows_with_their_carried_tuples(face: Face) -> None:
    engine = face.open()
    options: dict[str, Any] = {"batch_ms": 100, "late": "open", "timing": True, "history_ms": 1000}
    stream = engine.stream(A, **options)
    text = register_text("RANGE 500ms STEP 100ms")
    engine.register(text)
    stream.push([at("a", 450), at("late", 150)])
    engine = face.reopen(engine)
    with pytest.raises(wukongs.StreamError, match="in the data folder"):
        engine.stream(A, **{**options, "late": "drop"})
    stream = engine.stream(A, **options)
    stream.push([at("later", 340)])
    stream.advance(900)
    engine.settle(timeout_s=60)
    found = {end: names for end, names in windows(engine.register(text)).items() if names}
    assert found == {
        500: ["a", "late", "later"],
        600: ["a", "late", "later"],
        700: ["a", "later"],
        800: ["a", "later"],
        900: ["a"],
    }
    counts = engine.stats()["streams"][A]
    assert [counts[name] for name in ("late", "carried", "dropped")] == [2, 2, 0]
