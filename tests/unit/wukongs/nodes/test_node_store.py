"""NodeStore, driven by the protocol: the windows and snapshots that an embedded engine would have."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import wukongs
from tests.engine_helpers import A, B, at, names, node, register_text, rows, subjects, windows
from tests.node_cluster import Cluster
from tests.unit.wukongs.pieces import make_piece
from wukongs.cluster.node_core import unpacked
from wukongs.cluster.node_store import MissingSlices, NodeStore
from wukongs.cluster.node_stream import first_tick_of
from wukongs.errors import CompactedError, StreamError
from wukongs.live.declarations import stream_options
from wukongs.protocol.records import BeginStream, Change, DeclareStream, Sn
from wukongs.settings import Settings
from wukongs.store.encoder import encode_ntriples
from wukongs.wire.sharding import ShardMap

LINE = b"<http://ex/%s> <http://ex/p> <http://ex/o> .\n"


@pytest.fixture(params=[(1, 1), (3, 3), (3, 1)], ids=["alone", "whole", "shared"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One node; three that all hold everything; three that share the data."""
    with Cluster(*request.param) as cluster:
        cluster.home = len(cluster.hosts) - 1
        yield cluster


def both(cluster: Cluster, tell: Any) -> tuple[Any, Any]:
    """Tell an engine and a cluster the same."""
    with wukongs.Engine() as engine:
        return tell(engine), tell(cluster)


def test_windows_are_those_of_an_engine(cluster: Cluster) -> None:
    def tell(engine: Any) -> Any:
        stream = engine.stream(A, batch_ms=100)
        query = engine.register(register_text("RANGE 200ms STEP 100ms"))
        stream.push([at("a", 50), at("b", 120), at("c", 250), at("d", 420)])
        engine.settle()
        return windows(query)

    expected, found = both(cluster, tell)
    assert found == expected == {100: ["a"], 200: ["a", "b"], 300: ["b", "c"], 400: ["c"]}


@pytest.mark.parametrize("history_ms", [0, 300, 60_000])
def test_a_late_query_gets_the_history_that_slices_hold(cluster: Cluster, history_ms: int) -> None:
    def tell(engine: Any) -> Any:
        stream = engine.stream(A, timing=True, batch_ms=100, history_ms=history_ms)
        for number in range(12):
            stream.push([at(f"s{number}", 100 * number + 5), at(f"t{number}", 100 * number + 50)])
            engine.settle()
        query = engine.register(register_text("RANGE 500ms STEP 100ms"))
        for number in range(12, 20):
            stream.push([at(f"s{number}", 100 * number + 5)])
        engine.settle()
        return [(window.end_ms, window.partial, names(window)) for window in query.results(timeout_s=0.05)]

    expected, found = both(cluster, tell)
    assert found == expected
    assert len(found) == 8
    assert found[0][1] == (history_ms < 500)


def test_windows_that_count_go_by_the_order_of_arrival_over_partitions(cluster: Cluster) -> None:
    stream = cluster.stream(A, batch_ms=100, partitions=("p0", "p1"))
    for number in range(4):
        stream.push([at(f"early{number}", 25 * number, term=f"x{number}")], "p1")
    stream.push([at("early4", 30)], "p0")
    stream.advance(100, "p0")
    stream.advance(100, "p1")
    cluster.settle()
    query = cluster.register(register_text("RANGE TRIPLES 4 STEP 3"))
    random = np.random.default_rng(7)
    pushed = []
    for partition in ("p1", "p0"):
        times = np.sort(random.integers(101, 180, 30)).tolist()
        tuples = [at(f"s{k % 9}", t, term=f"{partition}o{k % 5}") for k, t in enumerate(times)]
        stream.push(tuples, partition)
        pushed += [(t, partition, k, row) for k, (t, row) in enumerate(zip(times, tuples, strict=True))]
    for partition in ("p0", "p1"):
        stream.advance(400, partition)
    cluster.settle()
    arrivals = [row for *_, row in sorted(pushed, key=lambda one: one[:3])]
    edge = (len(arrivals) + 5) // 3 * 3 - 5
    expected = sorted({(row[0], row[2]) for row in arrivals[edge - 4 : edge]})
    (window,) = query.results(timeout_s=0.05)
    assert window.end_ms == 200
    assert names(window) == sorted(subject[len("<http://ex/") : -1] for subject, _ in expected)


@pytest.mark.parametrize("cluster", [(1, 1), (3, 3)], indirect=True, ids=["alone", "whole"])
def test_loads_updates_and_streams_are_read_at_the_sns_that_the_log_gave(cluster: Cluster) -> None:
    cluster.read_from = Sn(0, 1)
    stream = cluster.stream(A, batch_ms=100)
    first = cluster.load(io.BytesIO(LINE % b"l1"))
    stream.push([at("a", 50), at("b", 150), at("c", 250)])
    second = cluster.load(io.BytesIO(LINE % b"l2" + LINE % b"a"))
    gone = encode_ntriples(LINE % b"a" + LINE % b"l1", b"")[0]
    third = cluster.change([encode_ntriples(LINE % b"l3", b"")[0]], [gone])
    fourth = cluster.load(io.BytesIO(LINE % b"g"), graph="http://ex/g")
    fifth = cluster.change([encode_ntriples(LINE % b"last", b"")[0]], cleared=[None])
    sixth = cluster.change([], graph="http://ex/g", cleared=["http://ex/g"])
    assert [unpacked(one).minor for one in (second, third, fourth, fifth, sixth)] == [1, 2, 3, 4, 5]
    assert unpacked(first).tick == 0
    at_200 = unpacked(second).tick << 20
    assert at_200 == (200 + (1 << 40)) << 20
    expected = {
        first: ["l1"],
        at_200: ["a", "b", "l1"],
        second: ["a", "b", "l1", "l2"],
        third: ["b", "l2", "l3"],
        fifth: ["last"],
    }
    for sn, found in expected.items():
        assert names(cluster.query("SELECT ?s { ?s ?p ?o }", at=sn)) == found
    assert names(cluster.query("SELECT ?s { GRAPH ?g { ?s ?p ?o } }", at=fifth)) == ["g"]
    assert names(cluster.query("SELECT ?s { GRAPH ?g { ?s ?p ?o } }", at=sixth)) == []
    assert subjects(cluster) == ["last"]


def test_a_divided_graph_is_whole_by_subjects_and_by_objects() -> None:
    lines = [(f"s{k % 70}", f"p{k % 3}", f"o{k % 50}") for k in range(400)]
    data = "".join(f"{node(s)} {node(p)} {node(o)} .\n" for s, p, o in lines).encode()
    with Cluster(3, 1) as cluster:
        stream = cluster.stream(A, batch_ms=100)
        cluster.load(io.BytesIO(data))
        stream.push([at(f"t{k}", 10 * k, term=f"o{k % 50}") for k in range(100)])
        cluster.settle()
        expected = {*lines, *((f"t{k}", "p", f"o{k % 50}") for k in range(91))}
        out, into = set(), set()
        for host in cluster.hosts:
            cluster.reader._core = host.store.core
            mine = host.store.core.registry
            for triple in rows(cluster.query("SELECT ?s ?p ?o { ?s ?p ?o }")):
                ends = [mine.known(node(triple[place])) >> 53 for place in (0, 2)]
                assert any(end % 3 == host.number for end in ends)
                out |= {triple} if ends[0] % 3 == host.number else set()
                into |= {triple} if ends[1] % 3 == host.number else set()
        assert out == expected
        assert into == expected


def test_whole_slices_go_with_the_last_query_that_reads_them(cluster: Cluster) -> None:
    home = cluster.hosts[cluster.home].store
    stream = cluster.stream(A, timing=True, batch_ms=100, history_ms=100)
    cluster.register(register_text("RANGE 1s STEP 100ms", "q1"))
    cluster.register(register_text("RANGE TRIPLES 3", "q2"))
    stream.push([at(f"s{k}", 10 * k) for k in range(100)])
    cluster.settle()
    state = home.records.streams[A]
    assert state.ring.slice_count > 5
    cluster.drop_query("q1")
    cluster.settle()
    assert state.is_home
    assert home.query("q1") is None
    cluster.drop_query("q2")
    cluster.settle()
    assert not state.is_home
    assert state.ring.size_bytes == 0
    stream.push([at("last", 2000)])
    stream.advance(9000)
    cluster.settle()
    for host in cluster.hosts:  # the last shares and their texts went, too; timestamps are younger than history_ms
        assert host.store.held().oldest_firing == 9000 + (1 << 40)
        assert host.store.records.streams[A].shares.row_count == 0
        assert len(host.store.core.registry.transient) <= 1  # the name of the default graph
    query = cluster.register(register_text("RANGE 100ms STEP 100ms", "q3"))
    stream.push([at("new", 9050), at("newer", 9150)])
    cluster.settle()
    assert windows(query) == {9100: ["new"]}


def test_what_replicas_had_no_room_for_is_missed_by_name() -> None:
    with Cluster(3, 1) as cluster:
        stream = cluster.stream(A, timing=True, batch_ms=100)
        states = [host.store.records.streams[A] for host in cluster.hosts]
        for state in states[1:]:
            state.slice_bytes_max = 4000
        timed = cluster.register(register_text("RANGE 300ms STEP 100ms", "timed"))
        counted = cluster.register(register_text("RANGE TRIPLES 20 STEP 10", "counted"))
        stream.push([at("before", 50)] * 5)
        stream.advance(100)
        cluster.settle()
        cluster.is_paused = True
        for number in range(1, 40):
            stream.push([at(f"s{k}", 100 * number + k, term=f"o{number}") for k in range(1, 31)])
        stream.advance(4000)
        home = cluster.hosts[0].store
        cluster.until(lambda: home.injector.exposed.tick == 4000 + (1 << 40))
        assert home.missing_slices() == [MissingSlices(A, 2, 40)]
        assert home.reached.tick < home.injector.exposed.tick
        assert all(0 < state.shares.size_bytes <= 4000 < states[0].shares.size_bytes for state in states[1:])
        cluster.is_paused = False
        cluster.settle()
        assert [(w.end_ms, w.partial) for w in timed.results(timeout_s=0.05)][:2] == [(100, False), (200, True)]
        stream.push([at(f"t{k}", 4001 + k) for k in range(30)])
        stream.advance(4400)
        cluster.settle()
        later = [(w.end_ms, w.partial, len(names(w))) for w in timed.results(timeout_s=0.05)]
        assert later == [(4100, False, 90), (4200, False, 60), (4300, False, 30), (4400, False, 0)]
        last = list(counted.results(timeout_s=0.05))[-1]
        assert (last.end_ms, last.partial, len(names(last))) == (4100, False, 20)
        assert min(int(name[1:]) for name in names(last)) == 5  # 1205 have come: the last ten wait for the next STEP


def test_a_query_moves_to_another_node_with_the_history() -> None:
    with Cluster(3, 1) as cluster:
        stream = cluster.stream(A, batch_ms=100)
        first = cluster.register(register_text("RANGE 300ms STEP 100ms"))
        stream.push([at(f"s{k}", 50 * k) for k in range(1, 13)])
        cluster.settle()
        second = cluster.move_query("q", 2)
        stream.push([at(f"s{k}", 50 * k) for k in range(13, 18)])
        cluster.settle()
        assert sorted(windows(first)) == [100, 200, 300, 400, 500]
        assert windows(second) == {
            600: sorted(f"s{k}" for k in range(7, 13)),
            700: sorted(f"s{k}" for k in range(9, 15)),
            800: sorted(f"s{k}" for k in range(11, 17)),
        }
        assert not cluster.hosts[0].store.records.streams[A].is_home


def test_what_a_late_stream_has_closed_before_shows_at_the_next_tick(cluster: Cluster) -> None:
    first, late = cluster.stream(A, batch_ms=100), cluster.stream(B, batch_ms=100)
    query = cluster.register(register_text("RANGE 100ms STEP 100ms", stream=B))
    first.push([at("a", 950), at("a2", 1001)])
    cluster.settle()
    late.push([at("b", 150), at("b2", 250), at("b3", 960)])
    late.advance(1000)
    cluster.settle()
    assert windows(query) == {}
    first.advance(1200)
    late.advance(1200)
    cluster.settle()
    found = windows(query)
    assert {end_ms: found[end_ms] for end_ms in found if found[end_ms]} == {200: ["b"], 300: ["b2"], 1000: ["b3"]}
    assert min(found) == 200
    assert max(found) == 1200
    begun = cluster.hosts[0].node.control.streams[B].began
    assert begun == 1000 + (1 << 40)
    if len(cluster.hosts) == 1:
        assert names(cluster.query("SELECT ?s { ?s ?p ?o }", at=(begun + 1) << 20)) == ["a", "b", "b2", "b3"]
        assert subjects(cluster) == ["a", "a2", "b", "b2", "b3"]


def test_a_stream_that_ends_holds_nothing_back_and_fires_to_its_end(cluster: Cluster) -> None:
    stream = cluster.stream(A, batch_ms=100)
    query = cluster.register(register_text("RANGE 500ms STEP 500ms"))
    stream.push([at("a", 50), at("b", 620)])
    stream.close(650)
    cluster.settle()
    assert windows(query) == {500: ["a"], 1000: ["b"]}
    assert query.why() == "q has reported all windows: its streams have ended"
    cluster.load(io.BytesIO(LINE % b"later"))
    with pytest.raises(StreamError, match="is closed"):
        stream.push([at("c", 900)])


def test_a_dropped_stream_is_gone_and_its_name_is_free(cluster: Cluster) -> None:
    first, other = cluster.stream(A, batch_ms=100), cluster.stream(B, batch_ms=100)
    first.push([at("a", 50), at("b", 150), at("c", 250)])
    other.push([at("x", 10), at("y", 110)])
    cluster.settle()
    cluster.drop_stream(A)
    states = [host.store.records for host in cluster.hosts]
    assert all(A not in records.streams for records in states)
    assert all(list(host.store.core.streams) == [B] for host in cluster.hosts)
    again = cluster.stream(A, timing=True, batch_ms=50)
    assert again.key != A
    query = cluster.register(register_text("RANGE 50ms STEP 50ms"))
    again.push([at("new", 120), at("newer", 180)])
    other.advance(300)
    again.advance(300)
    cluster.settle()
    assert windows(query) == {150: ["new"], 200: ["newer"], 250: [], 300: []}
    cluster.drop_stream(B)
    if len(cluster.shard_map.owners[0]) == len(cluster.hosts):
        assert subjects(cluster) == ["a", "b", "x", "y"]  # what was closed stays, what was open is forgotten
    cluster.drop_query("q")
    cluster.drop_stream(A)
    never = cluster.stream(A, batch_ms=100)
    assert never.key.startswith(A + " ")
    cluster.drop_stream(A)
    for host in cluster.hosts:
        assert not host.store.core.streams
        assert not host.store.records.streams
        assert len(host.store.core.registry.transient) == 1  # the name of the default graph


def test_the_graph_stays_readable_from_the_oldest_sn_that_is_held() -> None:
    with Cluster(1) as cluster:
        store = cluster.hosts[0].store
        sns = [cluster.load(io.BytesIO(LINE % str(k).encode())) for k in range(2)]
        cluster.read_from = unpacked(sns[1])
        for k in range(2, 40):
            cluster.load(io.BytesIO(LINE % str(k).encode()))
        assert store.held().oldest_sn == store.reached
        assert len(names(cluster.query("SELECT ?s { ?s ?p ?o }", at=sns[1]))) == 2
        cluster.read_from = store.reached
        cluster.load(io.BytesIO(LINE % b"last"))
        cluster.load(io.BytesIO(LINE % b"more"))
        with pytest.raises(CompactedError):
            cluster.query("SELECT ?s { ?s ?p ?o }", at=sns[1])
        with store.core.lock:
            handle = store.core.arrangement.open(store.core.sn, "a reader")
        cluster.load(io.BytesIO(LINE % b"most"))
        assert store.held().oldest_sn == unpacked(handle.sn)
        handle.close()
        store.hold(None, None)
        assert store.held().oldest_sn == store.reached


def test_what_is_exposed_waits_for_what_is_not_inserted_here() -> None:
    store = NodeStore(Settings(), 0, ShardMap.even(1))
    options = stream_options(Settings(), (), 1000, None, None, None, "all")
    first_tick, tick = first_tick_of(1000), 2000 + (1 << 40)
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
    store.seal(stream, store.protocol_batch(stream, 1))
    store.injector.settle(10)
    assert store.reached == Sn(tick - 1, 0)
    assert len(store.core.arrangement) == 1
    store.seal(stream, store.protocol_batch(stream, 2))
    store.wait_for(Sn(tick, 0), 10)
    assert store.real_batch(stream, store.protocol_batch(stream, 2)) == 2
    assert store.stats()["triples"] == 1
    store.close()


def test_until_others_have_said_what_they_need_a_node_keeps_everything() -> None:
    store = NodeStore(Settings(), 0, ShardMap.even(2))
    for number in range(1, 30):
        store.stage(str(number), 0, encode_ntriples(LINE % str(number).encode(), b"")[0], is_last=True)
        payload = json.dumps({"change": str(number), "graph": None, "cleared": [], "operations": 0})
        store.apply(number, Change("c", number, payload, None, 0), Sn(0, number))
        store.expose(Sn(0, number), {})
        store.hold(None, None)
    store.wait_for(Sn(0, 29), 10)
    with store.core.lock:
        assert [len(store.core.arrangement.trace.read(sn)) for sn in range(30)] == list(range(30))
    store.close()
