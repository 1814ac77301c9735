"""NodeStore in its nodes: which snapshots stay readable, whose slices are kept where, and what comes at which SN.

What users see of windows and streams is told in tests/scenarios, over a cluster too."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.engine_helpers import A, B, at, names, node, register_text, rows, subjects, windows
from tests.unit.cluster.wires import Wires, until, wired
from tests.unit.wire.pieces import make_piece
from wukongs.cluster.node_payloads import Registration
from wukongs.cluster.node_records import RecordedQuery
from wukongs.cluster.node_store import MissingSlices, NodeStore
from wukongs.cluster.slices import SLICES
from wukongs.cluster.times import first_tick_of, packed, unpacked
from wukongs.errors import CompactedError, GapError
from wukongs.live.declarations import stream_options
from wukongs.live.pieces import Close
from wukongs.live.query_source import QuerySource
from wukongs.live.views.options import ViewOptions
from wukongs.protocol import events as ev
from wukongs.protocol.actions import SealBatch
from wukongs.protocol.progress import HeldAnywhere
from wukongs.protocol.records import AlterQuery, BeginStream, Change, DeclareStream, MoveQuery, NameReaders, Sn
from wukongs.settings import Settings
from wukongs.store.encoder import encode_ntriples
from wukongs.wire.sharding import ShardMap

LINE = b"<http://ex/%s> <http://ex/p> <http://ex/o> .\n"
LIVE_MS = 1 << 40
"""What a tick of live streams is above its event time."""
SETTLE_S = 60.0


@pytest.fixture(params=[(1, 1), (3, 3), (3, 1)], ids=["alone", "whole", "shared"])
def wires(request: pytest.FixtureRequest) -> Iterator[Wires]:
    """One node; three that all hold everything; three that share the data."""
    with wired(*request.param) as wires:
        yield wires


def load(wires: Wires, lines: bytes, graph: str | None = None) -> int:
    return wires.nodes[0].engine.load(io.BytesIO(lines), graph=graph, format="nt")


def test_loads_updates_and_streams_are_read_at_the_sns_that_the_log_gave(wires: Wires) -> None:
    engine, core = wires.nodes[0].engine, wires.nodes[0].store.core
    with core.lock:
        reader = core.arrangement.open(core.sn, "a reader that keeps all SNs")
    stream = engine.stream(A, batch_ms=100)
    first = load(wires, LINE % b"l1")
    stream.push([at("a", 50), at("b", 150), at("c", 250)])
    engine.settle(SETTLE_S)
    second = load(wires, LINE % b"l2" + LINE % b"a")
    was, comes = ([f"{node(name)} {node('p')} {node('o')} ." for name in some] for some in (("a", "l1"), ("l3",)))
    third = engine.update(f"DELETE DATA {{ {' '.join(was)} }} ; INSERT DATA {{ {' '.join(comes)} }}")
    fourth = load(wires, LINE % b"g", graph="http://ex/g")
    fifth = engine.update(f"CLEAR DEFAULT ; INSERT DATA {{ {node('last')} {node('p')} {node('o')} }}")
    sixth = engine.update("CLEAR GRAPH <http://ex/g>")
    assert [unpacked(one).minor for one in (second, third, fourth, fifth, sixth)] == [1, 2, 3, 4, 5]
    assert unpacked(first).tick == 0
    at_200 = unpacked(second).tick << 20
    assert at_200 == (299 + LIVE_MS) << 20, "the next stream batch ends at 300"
    expected = {
        first: ["l1"],
        at_200: ["a", "b", "l1"],
        second: ["a", "b", "l1", "l2"],
        third: ["b", "l2", "l3"],
        fifth: ["last"],
    }
    for sn, found in expected.items():
        assert names(engine.query("SELECT ?s { ?s ?p ?o }", at=sn)) == found
    assert names(engine.query("SELECT ?s { GRAPH ?g { ?s ?p ?o } }", at=fifth)) == ["g"]
    assert names(engine.query("SELECT ?s { GRAPH ?g { ?s ?p ?o } }", at=sixth)) == []
    assert subjects(engine) == ["last"]
    reader.close()


def test_a_divided_graph_is_whole_by_subjects_and_by_objects() -> None:
    """Each node has the triples whose subject or object is of its shards, and no others."""
    lines = [(f"s{k % 70}", f"p{k % 3}", f"o{k % 50}") for k in range(400)]
    data = "".join(f"{node(s)} {node(p)} {node(o)} .\n" for s, p, o in lines).encode()
    with wired(3) as wires:
        stream = wires.nodes[0].engine.stream(A, batch_ms=100)
        load(wires, data)
        stream.push([at(f"t{k}", 10 * k, term=f"o{k % 50}") for k in range(100)])
        wires.nodes[0].engine.settle(SETTLE_S)
        expected = {*lines, *((f"t{k}", "p", f"o{k % 50}") for k in range(91))}
        out, into = set(), set()
        for number, store in enumerate(one.store for one in wires.nodes):
            registry = store.core.registry
            with store.core.lock:
                batch_set = store.core.arrangement.trace.read(store.core.sn)
            for subject_ids, predicate, object_ids in batch_set.triples(store.core.default_graph):
                for ends in zip(subject_ids.tolist(), object_ids.tolist(), strict=True):
                    texts = registry.texts([ends[0], predicate, ends[1]])
                    triple = rows([texts])[0]
                    triple = tuple(text[1:-1].removeprefix("http://ex/") for text in triple)
                    homes = [end >> 53 for end in ends]
                    assert any(home % 3 == number for home in homes)
                    out |= {triple} if homes[0] % 3 == number else set()
                    into |= {triple} if homes[1] % 3 == number else set()
        assert out == expected
        assert into == expected
        assert set(rows(wires.nodes[1].engine.query("SELECT ?s ?p ?o { ?s ?p ?o }"))) == expected


def test_whole_slices_go_with_the_last_query_that_reads_them(wires: Wires) -> None:
    home = wires.nodes[-1]
    engine = home.engine
    stream = engine.stream(A, timing=True, batch_ms=100, history_ms=100)
    first = engine.register(register_text("RANGE 1s STEP 100ms", "q1"))
    second = engine.register(register_text("RANGE TRIPLES 3", "q2"))
    stream.push([at(f"s{k}", 10 * k) for k in range(100)])
    engine.settle(SETTLE_S)
    state = home.store.records.streams[A]
    assert state.state.ring.slice_count > 5
    first.close()
    until(lambda: home.store.query("q1") is None)
    assert state.is_home
    second.close()
    until(lambda: not state.is_home)
    assert state.state.ring.size_bytes == 0
    stream.push([at("last", 2000)])
    stream.advance(9000)
    engine.settle(SETTLE_S)
    for one in wires.nodes:  # the last shares and their texts went, too; timestamps are younger than history_ms
        assert one.store.held().oldest_firing == 9099 + LIVE_MS
        until(lambda store=one.store: shares_of(store) == 0)  # type: ignore[misc]
        assert len(one.store.core.registry.transient) <= 1  # the name of the default graph
    query = engine.register(register_text("RANGE 100ms STEP 100ms", "q3"))
    stream.push([at("new", 9050), at("newer", 9150)])
    engine.settle(SETTLE_S)
    assert windows(query) == {9100: ["new"]}


def shares_of(store: NodeStore) -> int:
    """How many rows of the stream this node keeps for homes."""
    with store.core.lock:
        count: int = store.records.streams[A].shares.row_count
        return count


def test_a_marker_that_is_noted_after_its_tick_is_shown_begins_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with wired(1) as wires:
        node = wires.nodes[0]
        stream = node.engine.stream(A, timing=True, batch_ms=100)
        query = node.engine.register(register_text("RANGE 100ms STEP 100ms", "q"))
        note, messages = node.store.take_close, list[Close]()
        monkeypatch.setattr(node.store, "take_close", messages.append)
        stream.advance(200)
        until(lambda: node.store.exposure.shown == 299 + LIVE_MS)
        note(*messages)
        node.engine.settle(SETTLE_S)
        assert [window.end_ms for window in query.results(timeout_s=0)] == [200]


def test_what_replicas_had_no_room_for_is_missed_by_name() -> None:
    with wired(3) as wires:
        home = wires.nodes[0]
        engine = home.engine
        stream = engine.stream(A, timing=True, batch_ms=100)
        states = [one.store.records.streams[A] for one in wires.nodes]
        for state in states[1:]:
            state.state.slice_bytes_max = 4000
        timed = engine.register(register_text("RANGE 300ms STEP 100ms", "timed"))
        counted = engine.register(register_text("RANGE TRIPLES 20 STEP 10", "counted"))
        stream.push([at("before", 50)] * 5)
        stream.advance(100)
        engine.settle(SETTLE_S)
        faults = [wires.lose(SLICES, other) for other in (1, 2)]
        for number in range(1, 40):
            stream.push([at(f"s{k}", 100 * number + k, term=f"o{number}") for k in range(1, 31)])
        stream.advance(4000)
        tick = 4099 + LIVE_MS
        until(lambda: home.store.exposure.exposed.tick == tick)
        assert home.store.missing_slices() == [MissingSlices(A, 2, 40)]
        assert home.store.reached.tick < home.store.exposure.exposed.tick
        assert all(0 < state.shares.size_bytes <= 4000 < states[0].shares.size_bytes for state in states[1:])
        for fault in faults:
            fault.count = 0
        engine.settle(SETTLE_S)
        found = timed.results(timeout_s=0.05)
        assert ((first := next(found)).end_ms, first.partial) == (100, False)
        with pytest.raises(GapError) as caught:
            next(found)
        gap = caught.value
        assert (gap.from_ms, gap.count, gap.gone) == (200, gap.to_ms // 100 - 1, gap.count)
        rest = [(w.end_ms, w.partial) for w in timed.results(timeout_s=0.05)]
        assert rest[0] == (gap.to_ms + 100, True)
        assert rest[-1] == (4000, False)
        stream.push([at(f"t{k}", 4001 + k) for k in range(30)])
        stream.advance(4400)
        engine.settle(SETTLE_S)
        later = [(w.end_ms, w.partial, len(names(w))) for w in timed.results(timeout_s=0)]
        assert later == [(4100, False, 90), (4200, False, 60), (4300, False, 30), (4400, False, 0)]
        last = list(counted.results(timeout_s=0))[-1]
        assert (last.end_ms, last.partial, len(names(last))) == (4100, False, 20)
        assert min(int(name[1:]) for name in names(last)) == 5  # 1205 have come: the last ten wait for the next STEP


def test_a_query_moves_to_another_node_with_the_history() -> None:
    with wired(3) as wires:
        engine, other = wires.nodes[0].engine, wires.nodes[2]
        stream = engine.stream(A, batch_ms=100)
        first = engine.register(register_text("RANGE 300ms STEP 100ms"))
        stream.push([at(f"s{k}", 50 * k) for k in range(1, 13)])
        engine.settle(SETTLE_S)
        other.host.carry_out(ev.Submitted(MoveQuery("q", (2,))), SETTLE_S)
        second = other.store.query("q")
        assert second is not None
        stream.push([at(f"s{k}", 50 * k) for k in range(13, 18)])
        engine.settle(SETTLE_S)
        assert sorted(windows(first)) == [100, 200, 300, 400, 500]
        assert windows(second) == {
            600: sorted(f"s{k}" for k in range(7, 13)),
            700: sorted(f"s{k}" for k in range(9, 15)),
            800: sorted(f"s{k}" for k in range(11, 17)),
        }
        assert not wires.nodes[0].store.records.streams[A].is_home


def test_a_late_stream_joins_the_stored_graph_by_records_until_it_has_come_as_far(wires: Wires) -> None:
    engine, core = wires.nodes[-1].engine, wires.nodes[-1].store.core
    with core.lock:
        reader = core.arrangement.open(core.sn, "a reader that keeps all SNs")
    first, late = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms", stream=B))
    first.push([at("a", 950), at("a2", 1001)])
    engine.settle(SETTLE_S)
    late.push([at("b", 150), at("b2", 250), at("b3", 960)])
    engine.settle(SETTLE_S)
    assert list(windows(query)) == list(range(200, 1000, 100))
    first.advance(1200)
    engine.settle(SETTLE_S)
    assert subjects(engine) == ["a", "a2", "b", "b2"], "the late stream holds nothing back"
    late.advance(1200)
    engine.settle(SETTLE_S)
    assert list(windows(query)) == [1000, 1100, 1200]
    late.push([at("b4", 1250)])
    late.advance(1300)
    engine.settle(SETTLE_S)
    assert subjects(engine) == ["a", "a2", "b", "b2", "b3"], "it counts now"
    first.advance(1300)
    engine.settle(SETTLE_S)
    assert subjects(engine) == ["a", "a2", "b", "b2", "b3", "b4"]
    control = wires.nodes[0].host.node.control
    assert control.streams[B].began == 1099 + LIVE_MS
    assert control.streams[B].counts == 1299 + LIVE_MS
    assert {join.sn.tick - LIVE_MS for join in control.joins} == {1099, 1299}
    at_last = packed(control.joins[-1].sn)
    assert names(engine.query("SELECT ?s { ?s ?p ?o }", at=at_last - 1)) == ["a", "a2", "b", "b2"]
    assert names(engine.query("SELECT ?s { ?s ?p ?o }", at=at_last)) == ["a", "a2", "b", "b2", "b3"]
    reader.close()


def test_a_dropped_stream_is_gone_and_its_name_is_free(wires: Wires) -> None:
    engine = wires.nodes[-1].engine
    stores = [one.store for one in wires.nodes]
    first, other = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
    first.push([at("a", 50), at("b", 150), at("c", 250)])
    other.push([at("x", 10), at("y", 110)])
    engine.settle(SETTLE_S)
    engine.drop_stream(A)
    engine.settle(SETTLE_S)
    assert all(A not in store.records.streams for store in stores)
    assert all(list(store.core.streams) == [B] for store in stores)
    again = engine.stream(A, timing=True, batch_ms=50)
    assert stores[0].key_of(A) != A
    query = engine.register(register_text("RANGE 50ms STEP 50ms"))
    again.push([at("new", 120), at("newer", 180)])
    other.advance(300)
    again.advance(300)
    engine.settle(SETTLE_S)
    assert windows(query) == {150: ["new"], 200: ["newer"], 250: [], 300: []}
    engine.drop_stream(B)
    assert subjects(engine) == ["a", "b", "x", "y"]  # what was closed stays, what was open is forgotten
    query.close()
    engine.drop_stream(A)
    engine.stream(A, batch_ms=100)
    assert stores[0].key_of(A).startswith(A + " ")
    engine.drop_stream(A)
    engine.settle(SETTLE_S)
    for store in stores:
        assert not store.core.streams
        assert not store.records.streams
        assert len(store.core.registry.transient) == 1  # the name of the default graph


def test_the_graph_stays_readable_from_the_oldest_sn_that_is_held() -> None:
    with wired(1) as wires:
        store, engine = wires.nodes[0].store, wires.nodes[0].engine
        load(wires, LINE % b"0")
        second = load(wires, LINE % b"1")
        with store.core.lock:
            handle = store.core.arrangement.open(store.core.sn, "a reader")
        for k in range(2, 40):
            load(wires, LINE % str(k).encode())
        assert store.held().oldest_sn == unpacked(handle.sn) == unpacked(second)
        assert len(names(engine.query("SELECT ?s { ?s ?p ?o }", at=second))) == 2
        handle.close()
        for k in range(40, 110):  # more than the newest SNs that stay readable anyway
            load(wires, LINE % str(k).encode())
        with pytest.raises(CompactedError):
            engine.query("SELECT ?s { ?s ?p ?o }", at=second)
        assert store.held().oldest_sn == store.reached


def test_what_is_exposed_waits_for_what_is_not_inserted_here() -> None:
    store = NodeStore(Settings(), 0, ShardMap.even(1))
    store.start()
    options = stream_options(Settings(), (), 1000, None, None, None, "all")
    first_tick, tick = first_tick_of(1000), 2000 + LIVE_MS
    stream = "http://ex/s"
    store.apply(
        1, DeclareStream(stream, ("part-0",), 1000, first_tick=first_tick, payload=json.dumps(options)), Sn(0, 1)
    )
    store.apply(2, BeginStream(stream), Sn(0, 2))
    piece = make_piece([(node("a"), node("p"), node("o"))])
    store.check(piece)
    store.take(piece)
    store.expose(Sn(tick, 0), {stream: store.protocol_batch(stream, 2)})
    store.injector.settle(10)
    assert store.reached < Sn(tick, 0)
    store.seal(SealBatch(stream, 0, store.protocol_batch(stream, 1), {}))
    store.injector.settle(10)
    assert store.reached == Sn(tick - 1, 0)
    assert len(store.core.arrangement) == 1
    store.seal(SealBatch(stream, 0, store.protocol_batch(stream, 2), {}))
    store.wait_for(Sn(tick, 0), 10)
    assert store.real_batch(stream, store.protocol_batch(stream, 2)) == 2
    assert store.stats()["triples"] == 1
    store.close()


@pytest.mark.parametrize("is_behind", [False, True])
def test_what_a_second_partition_brings_of_before_the_beginning_joins_with_the_next_tick(is_behind: bool) -> None:
    """The first one began behind the clock's tick, so the stream counts at once. A node that is behind has the tuples
    before it shows the beginning."""
    store = NodeStore(Settings(), 0, ShardMap.even(1))
    store.start()
    options = stream_options(Settings(), (), 1000, None, None, None, "all")
    tick, stream = 1999 + LIVE_MS, "http://ex/s"
    declared = DeclareStream(stream, ("p", "q"), 1000, first_tick=first_tick_of(1000), payload=json.dumps(options))
    store.apply(1, declared, Sn(0, 1))
    first, second = (store.protocol_batch(stream, number) for number in (1, 2))
    store.apply(2, BeginStream(stream, first), Sn(tick, 1))

    def begins() -> None:
        store.expose(Sn(tick, 1), {})
        store.wait_for(Sn(tick, 1), 10)

    def come() -> None:
        for number, partition in ((1, "q"), (2, "p")):
            piece = make_piece([(node(partition), node("p"), node("o"))], number=number, time=number * 1000)
            store.take(replace(piece, partition=partition))
        store.seal(SealBatch(stream, 0, second, {}))
        store.stable({stream: second})
        store.injector.settle(10)

    for step in (come, begins) if is_behind else (begins, come):
        step()
    assert store.stats()["triples"] == 0
    store.expose(Sn(tick + 1, 0), {stream: second})
    store.wait_for(Sn(tick + 1, 0), 10)
    assert store.stats()["triples"] == 2
    store.close()


def test_until_others_have_said_what_they_need_a_node_keeps_everything() -> None:
    store = NodeStore(Settings(), 0, ShardMap.even(2))
    store.start()
    for number in range(1, 30):
        store.stage(str(number), 0, encode_ntriples(LINE % str(number).encode(), b"")[0], is_last=True)
        payload = json.dumps({"change": str(number), "graph": None, "cleared": [], "operations": 0})
        store.apply(number, Change("c", number, payload, None, 0), Sn(0, number))
        store.expose(Sn(0, number), {})
        store.hold(HeldAnywhere(None, None, None))
    store.wait_for(Sn(0, 29), 10)
    with store.core.lock:
        assert [len(store.core.arrangement.trace.read(sn)) for sn in range(30)] == list(range(30))
    store.close()


def test_on_result_of_a_node_changes_the_cluster() -> None:
    """While another thread updates: nobody waits for anybody for ever."""
    with wired(1) as wires:
        engine = wires.nodes[0].engine
        stream = engine.stream(A, timing=True, batch_ms=100)
        done: list[int] = []

        def on_result(window: Any) -> None:
            engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
            engine.stream(B).close()
            engine.register(register_text("RANGE 100ms STEP 100ms", "other"))
            done.append(window.end_ms)

        engine.register(register_text("RANGE 100ms STEP 100ms", "q"), on_result=on_result)
        stream.push([at("a", 50)])
        stream.advance(100)
        for number in range(5):
            engine.update(f"INSERT DATA {{ <http://ex/b> <http://ex/p> {number} }}")
        engine.settle(SETTLE_S)
        assert done == [100]
        assert len(engine.query("SELECT * { ?s ?p ?o }")) == 6


def test_what_readers_have_is_not_known_before_their_query_runs_again() -> None:
    """Another home of it would go on behind what is said here."""
    store, tick = NodeStore(Settings(), 0, ShardMap.even(2)), 2000 + LIVE_MS
    text = "REGISTER QUERY q AS SELECT ?s FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] WHERE { ?s ?p ?o }"
    found = RecordedQuery(1, ("http://ex/s",), Registration(QuerySource(text), None).payload())
    store.exposure.show(tick)
    store.records.restore(Sn(tick, 0), {}, {}, {"q": (found, (0,))})
    assert store.held().delivered is None
    store.start()
    store.expose(Sn(tick, 0), {})
    until(lambda: store.held().delivered == tick)  # its stream is gone, so there is nothing more to come of it
    store.close()


def test_a_record_that_is_exposed_does_not_take_its_readers_back() -> None:
    """A reader may have got further between the record of a change of its query and what this changes."""
    store, tick = NodeStore(Settings(), 0, ShardMap.even(2)), 2000 + LIVE_MS
    text = "REGISTER QUERY v AS SELECT ?s WHERE { ?s ?p ?a }"
    found = RecordedQuery(1, (), Registration(QuerySource(text), None, view=ViewOptions()).payload())
    store.exposure.show(tick)
    store.records.restore(Sn(tick, 0), {}, {}, {"v": (found, (1,))})
    store.start()
    changes = [AlterQuery("v", (), "", 1, bound='["bind", "a table", ""]'), AlterQuery("v", (), "paused", 2)]
    with store.core.lock:
        for number, change in enumerate(changes, 1):
            store.records.apply(2 * number, change, Sn(tick, number))
            store.records.apply(2 * number + 1, NameReaders("v", "g", (0, 0), f"at {number}"), None)
    store.expose(Sn(tick, len(changes)), {})
    until(lambda: store.records.homes["v"][0].payload == "paused")
    assert store.records.homes["v"][0].stands == {"g": "at 2"}
    store.close()
