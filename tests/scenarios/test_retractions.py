"""Streams whose tuples have a sign: `-` takes a triple from the stored graph, and is in no window."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import wukongs
from tests.faces import Face
from tests.fuzz import SEED, scaled
from tests.oracles.retractions import Quad, Signed, SignedStreams, Triple
from tests.pipelines import Pipeline, pipelines
from wukongs import CompactedError, DataError, StreamError

S, T = "http://e/s", "http://e/t"
ALL = "SELECT ?s ?p ?o ?g { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
Row = tuple[str, str, str, str, int]
"""+ or -, subject, predicate, object, time in ms."""


def a(name: str) -> str:
    return f"<http://e/{name}>"


def signed(*tuples: Row, ops: Any = None, **more: Any) -> pa.Table:
    columns = [[row[at] for row in tuples] for at in range(5)]
    terms = {name: [a(text) for text in columns[at]] for at, name in enumerate(("subject", "predicate", "object"), 1)}
    signs = pa.array(columns[0], pa.string()) if ops is None else ops
    return pa.table({**terms, "timestamp_ms": pa.array(columns[4], pa.int64()), "op": signs, **more})


def stored(engine: Any, at: int | None = None) -> set[str]:
    """The stored triples, by the last parts of their names, graphs behind @."""
    found = set()
    for row in engine.query(ALL, at=at).arrow().to_pylist():
        *terms, graph = (None if term is None else term.rpartition("/")[2].rstrip(">") for term in row.values())
        found.add(" ".join(terms) + (f" @{graph}" if graph else ""))
    return found


def quads(engine: Any, at: int) -> set[Quad]:
    return {(*row.split()[:3], row.partition(" @")[2]) for row in stored(engine, at)}  # type: ignore[misc]


def quad_table(found: list[Quad]) -> pa.Table:
    names = {name: [a(quad[at]) for quad in found] for at, name in enumerate(("subject", "predicate", "object"))}
    graphs = pa.array([a(quad[3]) if quad[3] else None for quad in found], pa.string())
    return pa.table({**{name: pa.array(column, pa.string()) for name, column in names.items()}, "graph": graphs})


def windows(query: Any) -> dict[int, list[str]]:
    return {
        window.end_ms: sorted(" ".join(term.rpartition("/")[2] for term in map(str, row)) for row in window)
        for window in query.results(timeout_s=0)
    }


def test_a_retraction_takes_a_triple_from_the_stored_graph_and_is_in_no_window(engine: wukongs.Engine) -> None:
    stream = engine.stream(S, batch_ms=100)
    query = engine.register(f"REGISTER QUERY q AS SELECT * FROM STREAM <{S}> [RANGE 200ms STEP 100ms] {{ ?s ?p ?o }}")
    assert stream.push_arrow(signed(("+", "a", "p", "b", 50), ("+", "a", "p", "c", 60))) == 2
    stream.advance(100)
    engine.settle(timeout_s=60)
    assert stored(engine) == {"a p b", "a p c"}
    assert stream.push_arrow(signed(("-", "a", "p", "b", 150), ("-", "never", "p", "there", 160))) == 2
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert stored(engine) == {"a p c"}
    stream.push_arrow(signed(("+", "a", "p", "b", 250)))
    stream.advance(400)
    engine.settle(timeout_s=60)
    assert stored(engine) == {"a p b", "a p c"}
    assert windows(query) == {100: ["a p b", "a p c"], 200: ["a p b", "a p c"], 300: ["a p b"], 400: ["a p b"]}
    assert engine.stats()["streams"][S]["tuples"] == 3


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_the_last_sign_at_a_snapshot_counts(engine: wukongs.Engine, kind: pa.DataType) -> None:
    """By time, then stream, then the order of the call; every + is in the windows."""
    one, other = (engine.stream(iri, batch_ms=100) for iri in (S, T))
    query = engine.register(f"REGISTER QUERY q AS SELECT * FROM STREAM <{S}> [RANGE 100ms STEP 100ms] {{ ?s ?p ?o }}")
    engine.update("INSERT DATA { <http://e/old> <http://e/p> <http://e/x>, <http://e/y> }")
    tuples: list[Row] = [
        ("+", "a", "p", "gone", 10),
        ("-", "a", "p", "gone", 20),
        ("-", "a", "p", "here", 20),
        ("+", "a", "p", "here", 20),
        ("+", "a", "p", "later", 30),
        ("-", "old", "p", "x", 40),
        ("-", "old", "p", "y", 40),
        ("+", "old", "p", "y", 50),
    ]
    table = signed(*tuples)
    one.push_arrow(table.set_column(4, "op", table.column("op").cast(kind)))
    other.push_arrow(signed(("-", "a", "p", "here", 19), ("-", "a", "p", "later", 30)))
    one.advance(100)
    other.advance(100)
    engine.settle(timeout_s=60)
    assert stored(engine) == {"a p here", "old p y"}
    assert windows(query) == {100: ["a p gone", "a p here", "a p later", "old p y"]}


def test_a_retraction_that_comes_late_acts_at_the_next_snapshot(engine: wukongs.Engine) -> None:
    stream = engine.stream(S, batch_ms=100, lateness_ms=50)
    engine.stream(T).close()
    stream.push_arrow(signed(("+", "a", "p", "b", 50), ("+", "a", "p", "c", 60)))
    stream.advance(300)
    engine.settle(timeout_s=60)
    before = engine.query("ASK {}").snapshot
    late = signed(
        ("-", "a", "p", "b", 120), ("+", "a", "p", "b", 110), ("-", "a", "p", "c", 80), ("+", "a", "p", "c", 90)
    )
    assert stream.push_arrow(late) == 0
    assert stored(engine) == {"a p c"}
    assert stored(engine, before) == {"a p b", "a p c"}
    assert engine.stats()["streams"][S]["late"] == 4


def test_signs_of_one_time_are_ordered_by_their_source_partitions(engine: wukongs.Engine) -> None:
    engine.stream(PIPED, batch_ms=100)
    engine.update("INSERT DATA { <http://e/c> <http://e/p> <http://e/x> }")
    with pipelines(engine, PIPED, "p1", "p0") as (second, first):
        push_piped(second, [Signed("+", ("a", "p", "x", ""), 50), Signed("-", ("b", "p", "x", ""), 50)])
        push_piped(first, [Signed("-", ("a", "p", "x", ""), 50), Signed("+", ("b", "p", "x", ""), 50)])
        push_piped(second, [Signed("-", ("c", "p", "x", ""), 150)])
        for pipeline in (second, first):
            pipeline.complete(200)
        engine.settle(timeout_s=60)
        assert stored(engine) == {"a p x"}


def test_a_retraction_is_no_arrival(engine: wukongs.Engine) -> None:
    stream = engine.stream(S, batch_ms=100)
    query = engine.register(f"REGISTER QUERY q AS SELECT * FROM STREAM <{S}> [RANGE TRIPLES 2 STEP 1] {{ ?s ?p ?o }}")
    rows: list[Row] = [
        ("+", "a", "p", "1", 10),
        ("-", "a", "p", "1", 20),
        ("+", "a", "p", "2", 30),
        ("-", "a", "p", "9", 40),
    ]
    stream.push_arrow(signed(*rows))
    stream.advance(100)
    stream.push_arrow(signed(("-", "a", "p", "2", 150)))
    stream.advance(200)
    stream.push_arrow(signed(("+", "a", "p", "3", 250)))
    stream.advance(300)
    engine.settle(timeout_s=60)
    assert list(windows(query).values()) == [["a p 1", "a p 2"], ["a p 2", "a p 3"]]
    assert stored(engine) == {"a p 3"}


@pytest.mark.faces("embedded", "durable")
def test_late_retractions_are_handed_on_with_their_signs(engine: wukongs.Engine, tmp_path: Path) -> None:
    other = engine.stream(T, batch_ms=100)
    stream = engine.stream(S, batch_ms=100, on_late=other.push_arrow)
    written = engine.stream("http://e/written", batch_ms=100, on_late=tmp_path / "late.nq")
    late = signed(("+", "a", "p", "b", 10), ("-", "a", "p", "b", 10))
    for one in (stream, written):
        one.advance(100)
        assert one.push_arrow(late) == 0
    assert (
        tmp_path / "late.nq"
    ).read_text() == f"{a('a')} {a('p')} {a('b')} . # 10 ms\n# - {a('a')} {a('p')} {a('b')} . # 10 ms\n"
    engine.update("INSERT DATA { <http://e/a> <http://e/p> <http://e/b> }")
    other.advance(100)
    engine.settle(timeout_s=60)
    assert stored(engine) == set()


def test_a_retraction_names_its_graph(engine: wukongs.Engine) -> None:
    stream = engine.stream(S, batch_ms=100, into="http://e/g")
    graphs = pa.array([None, a("h"), None, a("h")], pa.string())
    rows: list[Row] = [
        ("+", "a", "p", "b", 1),
        ("+", "a", "p", "b", 1),
        ("+", "a", "p", "c", 1),
        ("+", "a", "p", "c", 1),
    ]
    stream.push_arrow(signed(*rows, graph=graphs))
    stream.advance(100)
    stream.push_arrow(signed(("-", "a", "p", "b", 101), ("-", "a", "p", "c", 101), graph=graphs[:2]))
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert stored(engine) == {"a p b @h", "a p c @g"}


@pytest.mark.parametrize(
    ("table", "error", "said"),
    [
        (
            signed(("+", "a", "p", "b", 10), ("*", "a", "p", "b", 20)),
            DataError,
            r"row 1, column 'op': expected \+ or -",
        ),
        (signed(("+", "a", "p", "b", 10), ops=pa.array([None], pa.string())), DataError, "row 0, column 'op': a value"),
        (signed(("+", "a", "p", "b", 10), ops=pa.nulls(1)), DataError, "row 0, column 'op': a value is missing"),
        (signed(("+", "a", "p", "b", 10), ops=pa.array([1])), DataError, "column 'op': expected strings, found int64"),
        (
            signed(("+", "a", "p", "b", 10), ("-", "a", "timing", "b", 20)),
            StreamError,
            "row 1, column 'op': found - , but tuples with this predicate are timing",
        ),
        (
            signed(("+", "a", "p", "b", 10)).append_column("op", pa.array(["+"])),
            StreamError,
            "the table has several columns op",
        ),
    ],
)
def test_a_sign_that_does_not_fit_is_refused_and_nothing_applied(
    engine: wukongs.Engine, table: pa.Table, error: type[Exception], said: str
) -> None:
    stream, other = engine.stream(S, timing=["http://e/timing"], batch_ms=100), engine.stream(T, batch_ms=100)
    with pytest.raises(error, match=said):
        stream.push_arrow(table)
    with pytest.raises(error, match=said):
        engine.push_many({T: signed(("+", "a", "p", "b", 10)), S: table}, 100)
    stream.push_arrow(signed(("+", "a", "p", "c", 5)))
    stream.advance(100)
    other.advance(100)
    engine.settle(timeout_s=60)
    assert stored(engine) == {"a p c"}


def test_a_timing_stream_has_no_retractions(engine: wukongs.Engine) -> None:
    stream = engine.stream(S, timing=True)
    with pytest.raises(StreamError, match="row 0, column 'op': found - , but tuples of this stream are timing"):
        stream.push_arrow(signed(("-", "a", "p", "b", 10)))


@pytest.mark.faces("durable")
def test_signs_are_there_after_a_restart(face: Face) -> None:
    engine = face.open()
    stream = engine.stream(S, batch_ms=100, lateness_ms=50)
    stream.push_arrow(signed(("+", "a", "p", "b", 50), ("+", "a", "p", "c", 60), ("+", "a", "p", "d", 60)))
    stream.advance(100)
    stream.push_arrow(signed(("-", "a", "p", "b", 120), ("-", "a", "p", "c", 50)))
    engine.settle(timeout_s=60)
    assert stored(engine) == {"a p b", "a p d"}
    engine = face.reopen(engine)
    assert stored(engine) == {"a p b", "a p d"}
    engine.stream(S, batch_ms=100, lateness_ms=50).advance(200)
    engine.settle(timeout_s=60)
    assert stored(engine) == {"a p d"}
    assert engine.stats()["streams"][S]["tuples"] == 3
    assert stored(face.reopen(engine)) == {"a p d"}


START_MS = 1000
CLASHING_BITS = 5
"""Some of a dozen terms have one hash."""
PIPED = "http://e/piped"
CLAUSE = f"FROM NAMED STREAM <{S}> [RANGE 300ms STEP 100ms]"
STORED = "FROM <urn:x-wukongs:default>"
QUERIES = {
    "alone": f"SELECT ?s ?p ?o FROM STREAM <{S}> [RANGE 300ms STEP 100ms] {{ ?s ?p ?o }}",
    "piped": f"SELECT ?s ?p ?o FROM STREAM <{PIPED}> [RANGE 200ms STEP 200ms] {{ ?s ?p ?o }}",
    "joined": f"SELECT ?s ?o ?x {CLAUSE} {STORED} {{ GRAPH <{S}> {{ ?s <http://e/p> ?o }} ?o <http://e/q> ?x }}",
    "merged": f"SELECT ?s ?o ?x FROM STREAM <{S}> [RANGE 200ms STEP 100ms] {STORED} "
    "{ ?s <http://e/p> ?o . ?o <http://e/q> ?x }",
    "counted": f"SELECT ?s (COUNT(*) AS ?n) {CLAUSE} {STORED} {{ ?s <http://e/q> ?o }} GROUP BY ?s",
    "optional": f"SELECT ?s ?o ?x {CLAUSE} {STORED} "
    f"{{ GRAPH <{S}> {{ ?s <http://e/timing> ?o }} OPTIONAL {{ ?s <http://e/p> ?x }} }}",
    "named": f"SELECT ?s ?o {CLAUSE} FROM NAMED <http://e/g> {{ GRAPH <http://e/g> {{ ?s <http://e/p> ?o }} }}",
}


def expected(name: str, model: SignedStreams, at_ms: int) -> list[str]:
    """The rows of a query's firing, by definition."""

    def window(range_ms: int, stream: str = S) -> set[Triple]:
        return model.window(stream, at_ms - range_ms, at_ms)

    def of(triples: set[Triple], predicate: str) -> list[tuple[str, str]]:
        return [(s, o) for s, p, o in triples if p == predicate]

    default = {(s, p, o) for s, p, o, graph in model.at[at_ms] if not graph}
    rows: list[tuple[Any, ...]]
    match name:
        case "alone":
            rows = list(window(300))
        case "piped":
            rows = list(window(200, PIPED))
        case "joined":
            rows = [(s, o, x) for s, o in of(window(300), "p") for other, x in of(default, "q") if o == other]
        case "merged":
            both = default | window(200)
            rows = [(s, o, x) for s, o in of(both, "p") for other, x in of(both, "q") if o == other]
        case "counted":
            rows = list(Counter(s for s, _ in of(default, "q")).items())
        case "optional":
            rows = []
            for s, o in of(window(300), "timing"):
                found = [x for other, x in of(default, "p") if other == s]
                rows += [(s, o, x) for x in found or [None]]
        case _:
            rows = of({(s, p, o) for s, p, o, graph in model.at[at_ms] if graph == "g"}, "p")
    return sorted(" ".join(map(str, row)) for row in rows)


def random_signed(rng: random.Random, count: int, low_ms: int, high_ms: int) -> list[Signed]:
    """Signed tuples in order of time, low_ms < time <= high_ms; many have the same."""
    found = []
    for at_ms in sorted(rng.randrange(high_ms, low_ms, -20) for _ in range(count)):
        predicate = rng.choice(["p", "p", "q", "q", "timing"])
        quad = rng.choice("aaabc"), predicate, rng.choice("abbbc"), rng.choice(["", "", "", "g"])
        found.append(Signed("+" if predicate == "timing" else rng.choice("+-"), quad, at_ms))
    return found


def table_of(tuples: list[Signed]) -> pa.Table:
    graphs = pa.array([a(one.quad[3]) if one.quad[3] else None for one in tuples], pa.string())
    return signed(*((one.sign, *one.quad[:3], one.time_ms) for one in tuples), graph=graphs)


def push_piped(pipeline: Pipeline, tuples: list[Signed]) -> None:
    """Send tuples as pieces of their stream batches."""
    for _, some in groupby(tuples, lambda one: -(-one.time_ms // 100)):
        pipeline.push_table(table_of(list(some)))


@pytest.mark.slow_on("cluster-3")
@pytest.mark.parametrize("number", range(3))
def test_random_lives_are_what_plain_sets_say(face: Face, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.query.plans.deltas.ROWS_MIN", [0.0, 1000.0, 0.0][number])
    for seed in range(scaled(6)):
        _live(face, random.Random(((SEED or 0) << 16) + 10 * seed + number), 250 if number == 2 else 0)


def _live(face: Face, rng: random.Random, lateness_ms: int) -> None:
    """A life over a stream of calls out of order, if lateness_ms says so, one in order, and one of two partitions."""
    model = SignedStreams(100, "timing")
    options: dict[str, Any] = {"timing": ["http://e/timing"], "batch_ms": 100}
    late: dict[str, Any] = {"lateness_ms": lateness_ms} if lateness_ms else {"on_late": "count"}

    def declared() -> dict[str, Any]:
        engine.stream(PIPED, **options)
        return {S: engine.stream(S, **options, **late), T: engine.stream(T, **options)}

    engine = face.open(wukongs.Settings(hash_bits=rng.choice([62, CLASHING_BITS])))
    streams = declared()
    stack = face.stack.enter_context(ExitStack())
    piped = stack.enter_context(pipelines(engine, PIPED, "p1", "p0"))
    engine.push_many({S: None, T: None}, START_MS)
    for pipeline in piped:
        pipeline.complete(START_MS)
    for stream, partition in ((S, ""), (T, ""), (PIPED, "p0"), (PIPED, "p1")):
        model.complete(stream, partition, START_MS)
    queries = {
        name: engine.register(f"REGISTER QUERY {name} AS {text}")
        for name, text in QUERIES.items()
        if rng.random() < 0.7
    }
    found: dict[str, dict[int, list[str]]] = {name: {} for name in QUERIES}
    read: dict[int, frozenset[Any]] = {}

    def look() -> None:
        engine.settle(timeout_s=60)
        model.move_on()
        snapshot = engine.query("ASK {}").snapshot
        read[snapshot] = frozenset(model.stored)
        for sn in {snapshot, rng.choice(sorted(read))}:
            try:
                assert quads(engine, sn) == read[sn]
            except CompactedError:
                assert sn != snapshot
        for name, query in queries.items():
            found[name] |= windows(query)

    look()
    for turn in range(rng.randint(4, 8)):
        low_ms = START_MS + 200 * turn
        for _ in range(rng.randint(2, 6)):
            tuples = random_signed(rng, rng.randint(1, 6), low_ms, low_ms + 200)
            what = rng.choice(["S", "S", "T", "piped", "late", "update"])
            if what == "S" and lateness_ms:
                rng.shuffle(tuples)
            elif what in ("S", "T"):
                last_ms = max(low_ms, model.complete_ms(S if what == "S" else T, ""))
                tuples = [one for one in tuples if one.time_ms > last_ms]
            if what in ("S", "T") and tuples:
                name = S if what == "S" else T
                streams[name].push_arrow(table_of(tuples))
                model.push(name, "", tuples)
                newest_ms = max(one.time_ms for one in tuples)
                model.complete(name, "", newest_ms - (lateness_ms if name == S else 0) - 1)
            elif what == "piped":
                pipeline = rng.choice(piped)
                last_ms = model.complete_ms(PIPED, pipeline.partition)
                tuples = [one for one in tuples if one.time_ms > last_ms]
                push_piped(pipeline, tuples)
                model.push(PIPED, pipeline.partition, tuples)
                if tuples:
                    pipeline.complete(tuples[-1].time_ms)
                    model.complete(PIPED, pipeline.partition, tuples[-1].time_ms)
            elif what == "late":
                stands_ms = model.complete_ms(S, "")
                tuples = random_signed(rng, rng.randint(1, 5), stands_ms - 300, stands_ms)
                rng.shuffle(tuples)
                assert streams[S].push_arrow(table_of(tuples)) == 0
                model.push_late(tuples)
            elif what == "update":
                gone, come = (
                    [one.quad for one in random_signed(rng, 2, 0, 1) if one.quad[1] != "timing"] for _ in "ab"
                )
                engine.apply(quad_table(come), quad_table(gone))
                model.stored = (model.stored - set(gone)) | set(come)
            look()
        if face.name == "durable" and rng.random() < 0.5:
            stack.close()
            if rng.random() < 0.5:
                engine.checkpoint()
            engine = face.reopen(engine)
            streams = declared()
            queries = {query.name: query for query in engine.queries()}
            piped = stack.enter_context(pipelines(engine, PIPED, "p1", "p0", epoch=turn + 2))
            read.clear()
            look()
        end_ms = low_ms + 200
        engine.push_many({S: None, T: None}, end_ms)
        for pipeline in rng.sample(piped, 2):
            pipeline.complete(end_ms)
        for stream, partition in ((S, ""), (T, ""), (PIPED, "p0"), (PIPED, "p1")):
            model.complete(stream, partition, end_ms)
        look()
    for name in queries:
        ends = range(START_MS + (200 if name == "piped" else 100), low_ms + 201, 200 if name == "piped" else 100)
        assert found[name] == {at_ms: expected(name, model, at_ms) for at_ms in ends}, name
    stack.close()
    engine.close()
