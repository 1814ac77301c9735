"""What happens at the end of stream batches, in order: slices, the queries that match none of the tuples which join the
stored graph then, these tuples, the other queries."""

from __future__ import annotations

import io
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wukongs
from tests.engine_helpers import A, B, at, node, rows
from tests.inside import core_of
from wukongs.live.core import Core
from wukongs.live.engine_windows import StoredSince
from wukongs.live.firing import Firing
from wukongs.live.injector import Injector
from wukongs.live.query_firings import QueryFirings
from wukongs.query.plans.deltas import Deltas
from wukongs.settings import Settings
from wukongs.store.arrangement import Arrangement
from wukongs.store.window_table import WindowTable

STORED = "FROM <urn:x-wukongs:default>"
WINDOW = f"FROM NAMED STREAM <{A}> [RANGE 200ms STEP 100ms]"
SEALED = "sealed"


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine(settings=Settings(batch_ms=100)) as engine:
        engine.update(
            f"INSERT DATA {{ {node('s1')} {node('knows')} {node('f')} . {node('s2')} {node('p')} {node('o')} }}"
        )
        yield engine


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """What has happened, with its time: names of queries that have fired, and SEALED."""
    found: list[tuple[int, str]] = []
    seal, put = Core.seal, QueryFirings._put

    def sealing(core: Core, end_ms: int, to_ms: int | None = None) -> None:
        found.append((end_ms, SEALED))
        seal(core, end_ms, to_ms)

    def putting(query: QueryFirings, last_ms: int, *given: Any) -> None:
        found.append((last_ms, query.name))
        put(query, last_ms, *given)

    monkeypatch.setattr(Core, "seal", sealing)
    monkeypatch.setattr(QueryFirings, "_put", putting)
    return found


def register(engine: wukongs.Engine, name: str, where: str, graphs: str = STORED) -> Any:
    return engine.register(f"REGISTER QUERY {name} AS SELECT * {graphs} {WINDOW} WHERE {{ {where} }}")


def tell(engine: wukongs.Engine, stream: Any, *ends: int) -> None:
    for end in ends:
        stream.push([at(f"s{end // 100}", end - 10), at("s1", end, "q")])
        stream.advance(end)
        engine.settle(timeout_s=60)


IN_WINDOW = f"GRAPH <{A}> {{ ?s {node('p')} ?o }}"
BEFORE = {
    "windows alone": (IN_WINDOW, ""),
    "windows merged": (f"?s {node('p')} ?o", f"FROM STREAM <{A}> [RANGE 100ms STEP 100ms]"),
    "another predicate": (f"{IN_WINDOW} ?s {node('knows')} ?f", STORED),
    "optional": (f"{IN_WINDOW} OPTIONAL {{ ?s {node('knows')} ?f }}", STORED),
}
BEHIND = {
    "the same predicate": (f"{IN_WINDOW} ?s {node('p')} ?other", STORED),
    "any predicate": (f"{IN_WINDOW} ?s ?any ?f", STORED),
    "a path": (f"{IN_WINDOW} ?s ({node('knows')}|{node('q')})+ ?f", STORED),
    "a path of no length": (f"{IN_WINDOW} ?s {node('knows')}* ?f", STORED),
    "in a filter": (f"{IN_WINDOW} ?s {node('knows')} ?f FILTER NOT EXISTS {{ ?f {node('q')} ?x }}", STORED),
    "of the default graph by its name": (
        f"{IN_WINDOW} GRAPH <urn:x-wukongs:default> {{ ?s {node('p')} ?other }}",
        STORED,
    ),
    "of a graph that FROM merges": (f"{IN_WINDOW} GRAPH <http://ex/g> {{ ?s {node('q')} ?f }}", "FROM <http://ex/g>"),
    "of a named graph": (f"{IN_WINDOW} GRAPH ?g {{ ?s {node('q')} ?f }}", f"{STORED} FROM NAMED <http://ex/g>"),
}


@pytest.mark.parametrize("kind", BEFORE | BEHIND)
def test_who_fires_before_tuples_join_the_stored_graph(
    engine: wukongs.Engine, order: list[tuple[int, str]], kind: str
) -> None:
    where, graphs = (BEFORE | BEHIND)[kind]
    stream = engine.stream(A)
    register(engine, "q", where, graphs)
    tell(engine, stream, 100, 200, 300)
    told = [(end, what) for end in (100, 200, 300) for what in (("q", SEALED) if kind in BEFORE else (SEALED, "q"))]
    assert order == told


def test_both_kinds_at_one_time_read_what_is_theirs(engine: wukongs.Engine, order: list[tuple[int, str]]) -> None:
    stream = engine.stream(A)
    behind = register(engine, "behind", f"{IN_WINDOW} ?s {node('p')} ?stored")
    before = register(engine, "before", f"{IN_WINDOW} ?s {node('knows')} ?f")
    tell(engine, stream, 100, 200, 300)
    assert order == [(end, what) for end in (100, 200, 300) for what in ("before", SEALED, "behind")]
    found = [rows(window) for window in behind.results(timeout_s=0)]
    assert [len(each) for each in found] == [1, 2, 2]  # each sees what has come with its own window
    assert [len(rows(window)) for window in before.results(timeout_s=0)] == [1, 1, 0]


def test_a_query_goes_on_by_what_is_new_whether_it_fires_before_or_behind(
    engine: wukongs.Engine, order: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deltas of stored triples, when only some ends of stream batches bring triples that match."""
    monkeypatch.setattr("wukongs.query.plans.deltas.ROWS_MIN", 0.0)
    anew = list[bool]()
    stand = Deltas.stand

    def standing(deltas: Deltas, at_ms: int, *, is_known: bool, goes_on: bool, comes: bool) -> None:
        anew.append(not goes_on)
        stand(deltas, at_ms, is_known=is_known, goes_on=goes_on, comes=comes)

    monkeypatch.setattr(Deltas, "stand", standing)
    stream = engine.stream(A)
    matching = {"r": {200, 300, 600, 900, 1000}, "u": {100, 300, 400, 500, 1000}}
    queries = {
        name: engine.register(
            f"REGISTER QUERY {name} AS SELECT * {STORED} FROM NAMED STREAM <{A}> [RANGE 1s STEP 100ms] "
            f"WHERE {{ {IN_WINDOW} ?s {node(name)} ?x }}"
        )
        for name in matching
    }
    all_ends = range(100, 1001, 100)
    for end in all_ends:
        stream.push([at("s", end - 10), *(at("s", end, name, f"x{end}") for name in matching if end in matching[name])])
        stream.advance(end)
        engine.settle(timeout_s=60)
    for name, ends in matching.items():
        assert {end for end in all_ends if order.index((end, SEALED)) < order.index((end, name))} == ends
        found = {window.end_ms: len(rows(window)) for window in queries[name].results(timeout_s=0)}
        assert found == {end: sum(one <= end for one in ends) for end in all_ends}
    assert anew == [True] * 2 + [False] * 18


def test_what_was_stored_since_may_reach_further_back_than_a_query_asks() -> None:
    """If nothing that it matches has come that early. What reaches back less far is never enough."""
    stored, table = Arrangement("stored"), WindowTable()
    since = StoredSince(stored, table, table.add(), stored.trace.watch())
    for sn, predicate in enumerate((7, 8, 9, 9), 1):
        stored.absorb(sn, *(np.array([term]) for term in (0, sn, predicate, sn)))
        if sn == 1:
            since.move(sn)
    since.move(4)
    assert since.before == 1
    kinds: dict[int, list[tuple[int | None, int]]] = {one: [(one, 0)] for one in (7, 8, 9)}
    assert [since.has_come_after(sn, kinds[8]) for sn in range(5)] == [False, True, False, False, False]
    assert [since.has_come_after(sn, kinds[9]) for sn in range(5)] == [False, True, True, False, False]
    assert not since.has_come_after(3, [*kinds[7], (None, 0)])


def while_before(
    monkeypatch: pytest.MonkeyPatch, name: str, end_ms: int, do: Callable[[], object]
) -> list[BaseException]:
    """Do something behind the firing of a query, once, before tuples join the stored graph. Return what it raises."""
    put, done, raised = QueryFirings._put, list[int](), list[BaseException]()

    def putting(query: QueryFirings, last_ms: int, *given: Any) -> None:
        put(query, last_ms, *given)
        if (query.name, last_ms) == (name, end_ms) and not done:
            done.append(end_ms)
            try:
                assert query._core.open_ms == end_ms
                do()
            except BaseException as error:
                raised.append(error)

    monkeypatch.setattr(QueryFirings, "_put", putting)
    return raised


def test_who_has_a_window_reads_all_that_has_come_with_it(
    engine: wukongs.Engine, order: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = engine.stream(A)
    query = register(engine, "before", IN_WINDOW, "")
    register(engine, "behind", f"{IN_WINDOW} ?s {node('p')} ?stored")
    asked: list[Any] = []

    def look() -> None:
        window = next(query.results(timeout_s=60))
        is_there = bool(engine.query(f"ASK {{ {node('s1')} {node('p')} ?o }}"))
        asked.append((window.end_ms, is_there, engine.stats()["sealed_ms"]))

    raised = while_before(monkeypatch, "before", 100, lambda: inside(look))
    tell(engine, stream, 100, 200)
    assert not raised, raised
    assert asked == [(100, True, 100)]
    assert order == [(100, "before"), (100, SEALED), (100, "behind"), (200, "before"), (200, SEALED), (200, "behind")]


def inside(do: Callable[[], object]) -> None:
    """Do something in a thread of its own, as a user would."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            do()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert not raised, raised


def test_an_update_meanwhile_comes_behind_all_firings_of_the_time(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = engine.stream(A)
    register(engine, "before", IN_WINDOW, "")
    behind = register(engine, "behind", f"{IN_WINDOW} ?s {node('p')} ?stored")
    updates: list[threading.Thread] = []

    def update() -> None:
        updates.append(
            threading.Thread(target=engine.update, args=(f"DELETE WHERE {{ {node('s1')} {node('p')} ?o }}",))
        )
        updates[0].start()

    raised = while_before(monkeypatch, "before", 100, update)
    tell(engine, stream, 100)
    updates[0].join(60)
    assert not updates[0].is_alive()
    assert not raised, raised
    assert [len(rows(window)) for window in behind.results(timeout_s=0)] == [1]
    tell(engine, stream, 200)
    assert [len(rows(window)) for window in behind.results(timeout_s=0)] == [1]  # s2 alone


def test_a_load_that_waited_for_one_moment_while_the_next_one_began_is_stored_behind_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record begins a segment of the log, and before that all joins that has come by then."""
    waits, is_loaded = threading.Event(), threading.Event()

    def is_behind(injector: Injector, target_ms: int) -> bool:
        """Look only when the next moment has begun, as a thread that seldom gets the lock."""
        waits.set()
        return target_ms == 200 or core_of(engine).open_ms != 200

    def load() -> None:
        engine.load(io.BytesIO(b"<http://ex/loaded> <http://ex/p> <http://ex/o> ."), format="nt")
        is_loaded.set()

    engine = wukongs.Engine(tmp_path / "data", settings=Settings(batch_ms=100, log_segment_bytes=1 << 10))
    stream = engine.stream(A)
    for number in range(5):
        engine.stream(f"http://ex/more{number}")  # the head of each segment alone is longer than a segment may be
    register(engine, "before", IN_WINDOW, "")
    tell(engine, stream, 100)
    put = QueryFirings._put

    def putting(query: QueryFirings, *given: Any) -> None:
        is_loaded.wait(30)
        put(query, *given)

    with monkeypatch.context() as patched:
        patched.setattr(QueryFirings, "_put", putting)
        patched.setattr(Injector, "_is_behind", is_behind)
        loading = threading.Thread(target=load)
        loading.start()
        assert waits.wait(60)
        stream.push([at("s2", 190)])
        stream.advance(200)
        loading.join(60)
    assert is_loaded.is_set()
    engine.settle(timeout_s=60)
    shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    engine.close()
    with wukongs.Engine(tmp_path / "crashed", settings=Settings(batch_ms=100)) as engine:
        assert engine.query(f"ASK {{ {node('loaded')} {node('p')} ?o }}")


@pytest.mark.parametrize("is_checkpoint", [False, True])
def test_a_crash_in_between_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_checkpoint: bool
) -> None:
    def open_in(folder: Path) -> tuple[wukongs.Engine, Any, list[Any]]:
        engine = wukongs.Engine(folder, settings=Settings(batch_ms=100))
        stream = engine.stream(A)
        queries = [
            register(engine, "before", IN_WINDOW, ""),
            register(engine, "behind", f"{IN_WINDOW} ?s {node('p')} ?stored"),
        ]
        return engine, stream, queries

    engine, stream, queries = open_in(tmp_path / "data")

    def crash() -> None:
        if is_checkpoint:
            engine.checkpoint()
        shutil.copytree(tmp_path / "data", tmp_path / "crashed")

    raised = while_before(monkeypatch, "before", 200, crash)
    tell(engine, stream, 100, 200, 300)
    expected = [[(window.end_ms, rows(window)) for window in query.results(timeout_s=0)] for query in queries]
    engine.close()
    assert not raised, raised
    engine, stream, queries = open_in(tmp_path / "crashed")
    with engine:
        tell(engine, stream, 300)
        found = [[(window.end_ms, rows(window)) for window in query.results(timeout_s=0)] for query in queries]
    assert found == expected


def test_queries_do_not_wait_for_the_slices_of_other_streams(
    engine: wukongs.Engine, order: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled queries over the same streams are picked together, those over others behind them."""
    streams = [engine.stream(A), engine.stream(B)]
    prepare = QueryFirings.prepare

    def preparing(query: QueryFirings, at_ms: int, picked: Any) -> Firing | None:
        order.append((at_ms, f"{query.name} is picked"))
        return prepare(query, at_ms, picked)

    monkeypatch.setattr(QueryFirings, "prepare", preparing)
    for stream in streams:
        stream.advance(0)
    engine.settle(timeout_s=60)
    order.clear()
    for name, iri in (("a1", A), ("b", B), ("a2", A)):
        engine.register(
            f"REGISTER QUERY {name} AS SELECT ?s FROM STREAM <{iri}> [RANGE 100ms STEP 100ms] "
            f"WHERE {{ ?s {node('p')} ?o }}"
        )
    engine.push_many({A: [at("s", 50)], B: [at("s", 60)]}, 100)
    engine.settle(timeout_s=60)
    assert [what for _, what in order] == [
        *("a1 is picked", "a2 is picked", "a1", "a2"),
        *("b is picked", "b"),
        SEALED,
    ]
