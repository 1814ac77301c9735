"""What a cluster counts is the cluster's: each thing once, at whatever node it is asked; and queries of other nodes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import wukongs
from tests.clusters import PATIENT, PULSE_S, cluster, start_again
from tests.unit.wire.conftest import wait_until
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.counting import COUNTS, _of_node
from wukongs.cluster.distant_query import OF_QUERY, DistantQuery
from wukongs.cluster.node_records import by_shard
from wukongs.errors import DataError, NodeUnavailable, StreamError
from wukongs.remote.client import connect
from wukongs.remote.service import Service
from wukongs.settings import Settings
from wukongs.store.batch import build_batch
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.packets import Packet

EX = "http://ex/"
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
QUERY = """REGISTER QUERY {} AS
SELECT ?s ?o FROM STREAM <http://ex/s> [RANGE 200ms STEP 200ms] WHERE {{ ?s <http://ex/p> ?o }}"""
COUNTED = ("stored_triples", "updates", "malformed_lines")


def fill(engine: wukongs.Engine, other: wukongs.Engine) -> None:
    """Load, update and push; `other` is another node of the same cluster, or the same engine."""
    rows = "".join(f"<{EX}s{row}> <{EX}p> <{EX}o{row % 7}> .\n<{EX}s{row}> <{TYPE}> <{EX}C> .\n" for row in range(50))
    engine.load(io.BytesIO(rows.encode() + b"<malformed\n"), format="nt")
    other.load(io.BytesIO(b"<malformed\n"), format="nt")
    other.update(
        f"DELETE WHERE {{ <{EX}s1> ?p ?o }} ; INSERT DATA {{ <{EX}n> <{EX}p> <{EX}s2> , <{EX}s3> , <{EX}o1> }}"
    )
    engine.update(f"CLEAR GRAPH <{EX}g>")
    stream = engine.stream(EX + "s", batch_ms=100, timing=[EX + "t"])
    stream.push([(f"<{EX}u{n}>", f"<{EX}{'pt'[n % 2]}>", f"<{EX}v{n % 3}>", 1000 + n) for n in range(40)])
    stream.advance(1000)
    engine.settle(60)


@contextmanager
def client_of(node: ClusterNode) -> Iterator[wukongs.Engine]:
    service = Service(node.engine, node.store.core.settings, node.backend)
    socket = ClientSocket("tcp://127.0.0.1:0", service.handlers)
    try:
        with connect(socket.address) as client:
            yield client  # type: ignore[misc]
    finally:
        service.close()
        socket.close()


@pytest.mark.parametrize(("node_count", "replica_count"), [(1, 1), (3, 1), (3, 2)])
def test_each_thing_counts_once_at_every_node_as_in_an_engine(node_count: int, replica_count: int) -> None:
    with wukongs.Engine() as embedded:
        fill(embedded, embedded)
        expected = embedded.stats()
    assert expected["updates"] == {"requests": 2, "operations": 3, "deleted": 2, "inserted": 3}
    with cluster(node_count, replica_count, silence_pulses_max=PATIENT) as nodes:
        fill(nodes[0].engine, nodes[-1].engine)
        for node in nodes:
            stats = node.engine.stats()
            assert stats.keys() >= expected.keys()
            assert {name: stats[name] for name in COUNTED} == {name: expected[name] for name in COUNTED}
            assert stats["streams"][EX + "s"]["tuples"] == expected["streams"][EX + "s"]["tuples"] == 40
            assert stats["terms"] == nodes[0].engine.stats()["terms"]
            assert abs(stats["terms"] - expected["terms"]) <= 3, "names of graphs and predicates that only one knows"
            assert (stats["node"], stats["silent_nodes"]) == (node.me.node, [])
            assert stats["this_node"]["stored_triples"] == node.store.stats()["triples"]
            mine = stats["nodes"][str(node.me.node)]
            assert mine["stored_triples"] == stats["this_node"]["stored_triples"]
            assert (mine["pid"], mine["behind_ms"].keys(), mine["queries"], mine["disk"]) == (
                os.getpid(),
                {EX + "s"},
                0,
                {},
            )
            assert 0 < mine["open_files"] < mine["open_files_max"]
            assert mine["memory_bytes"] > 1 << 20
            assert list(stats["nodes"]) == [str(number) for number in range(node_count)]
        if node_count > 1:
            assert all(one["network"]["requests"] > 0 for one in nodes[0].engine.stats()["nodes"].values())
            copies = [node.engine.stats()["this_node"]["stored_triples"] for node in nodes]
            assert sum(copies) > expected["stored_triples"] > max(copies) or replica_count > 1


@pytest.mark.parametrize("count", [0, 10, 20_000])
def test_triples_are_counted_by_the_shards_of_their_subjects(count: int) -> None:
    random = np.random.default_rng(count)
    subjects, objects = random.integers(1, 1 << 62, (2, count)) | (random.integers(0, 2, (2, count)) << 62)
    graphs, predicates = np.full(count, 5), random.integers(1, 4, count)
    batch = build_batch(graphs, np.repeat(subjects[: count // 2], 2), predicates, objects)
    expected = np.bincount(batch.triples()[1] >> 53, minlength=1024)
    assert by_shard(batch).tolist() == expected.tolist()


def test_a_node_that_is_away_is_named_and_its_replicas_count() -> None:
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        fill(nodes[0].engine, nodes[1].engine)
        before = nodes[0].engine.stats()
        nodes[2].close()
        wait_until(lambda: not nodes[0].network.is_connected(2), "its connections are gone")
        stats = nodes[0].engine.stats()
        assert stats["silent_nodes"] == [2]
        assert list(stats["nodes"]) == ["0", "1"]
        names = ("stored_triples", "updates", "terms", "streams")
        assert [stats[name] for name in names[:3]] == [before[name] for name in names[:3]]
        assert stats["streams"][EX + "s"]["tuples"] == 40
        start_again(nodes, 2, replica_count=2)
        for node in nodes:
            stats = node.engine.stats()
            assert [stats[name] for name in names[:3]] == [before[name] for name in names[:3]]
            assert stats["streams"][EX + "s"]["tuples"] == 40


def test_what_one_node_lacks_of_a_stream_is_its_own() -> None:
    """The other node has closed more of it."""
    facts = {
        node: {
            **dict.fromkeys(("sn", "stored_triples", "stored_bytes", "term_bytes"), 1),
            "streams": {EX + "s": {"closed_ms": closed_ms, "slice_bytes": 5, "waiting_bytes": 7}},
            "queries": {"q": {}} if node else {},
            "durability": {"log_bytes": 9, "lsn": 3} if node else {},
        }
        for node, closed_ms in enumerate([None, 700])
    }
    first, second = (_of_node(facts[node], facts, Packet(COUNTS)) for node in (0, 1))
    assert (first["behind_ms"], second["behind_ms"]) == ({EX + "s": 700}, {EX + "s": 0})
    assert (first["queries"], second["queries"]) == (0, 1)
    assert (first["disk"], second["disk"]) == ({}, {"log_bytes": 9})


def test_a_stream_that_was_dropped_is_not_counted_while_its_tuples_are_still_sealed() -> None:
    with cluster(2, silence_pulses_max=PATIENT) as nodes:
        one, two = (node.engine for node in nodes)
        other = one.stream(EX + "other", batch_ms=100)
        other.advance(1000)
        for turn in range(3):
            stream = one.stream(EX + "s", batch_ms=100)
            stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}b>", 1050)])
            stream.advance(2000)
            two.settle(60)
            two.drop_stream(EX + "s")
            assert two.streams() == [EX + "other"], turn
            stats = two.stats()
            assert list(stats["streams"]) == [EX + "other"], turn
            assert stats["held_back_by"].keys() <= {EX + "other"}, turn


def test_queries_of_all_nodes_are_there_at_each_and_do_what_they_are_told() -> None:
    with cluster(2, silence_pulses_max=PATIENT) as nodes:
        one, two = (node.engine for node in nodes)
        stream = one.stream(EX + "s", batch_ms=100)
        here, there = one.register(QUERY.format("here")), two.register(QUERY.format("there"))
        stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}b>", 1050)])
        stream.advance(2000)
        one.settle(60)
        assert [query.name for query in one.queries()] == [query.name for query in two.queries()] == ["here", "there"]
        first, distant = one.queries()
        assert first is here
        assert isinstance(distant, DistantQuery)
        assert one.queries()[1] is distant
        assert (distant.node, distant.text, distant.is_stream) == (1, there.source.text, False)
        assert distant.stats() == {**there.stats(), "node": 1}
        assert distant.stats()["windows"] == 5
        assert {name: found["node"] for name, found in two.stats()["queries"].items()} == {"here": 0, "there": 1}
        assert distant.why() == there.why()
        assert distant.explain() == there.explain()
        assert " ms]" in distant.explain(analyze=True)
        assert distant.warnings() == there.warnings()
        distant.pause()
        assert distant.why() == "there is paused"
        distant.resume()
        for read in (distant.results, distant.aresults):
            with pytest.raises(StreamError, match="query there runs at node 1, which keeps its windows"):
                read()
        distant.close()
        distant.close()  # closing twice is allowed, as for a query that runs here
        assert there.is_closed
        assert [query.name for query in one.queries()] == ["here"]
        with pytest.raises(StreamError, match="query there does not run here: it was closed, or has moved"):
            distant.why()


def test_clients_see_queries_of_all_nodes() -> None:
    with cluster(2, silence_pulses_max=PATIENT) as nodes, client_of(nodes[0]) as client:
        nodes[0].engine.stream(EX + "s", batch_ms=100)
        there = nodes[1].engine.register(QUERY.format("there"))
        (query,) = client.queries()
        assert (query.name, query.why(), query.stats()["node"]) == ("there", there.why(), 1)
        with pytest.raises(StreamError, match="query there runs at node 1, which keeps its windows"):
            next(iter(query.results(timeout_s=20)))
        assert client.stats()["queries"]["there"]["node"] == 1
        query.close()
        assert client.queries() == []


def test_questions_about_queries_that_are_none() -> None:
    with cluster(2, silence_pulses_max=PATIENT) as nodes:
        named: dict[str, object] = {"query": "q", "method": "why"}
        for fields in ({}, {**named, "method": "fire", "options": {}}, {**named, "options": 1}):
            with pytest.raises(DataError, match="expected query, method and options"):
                nodes[0].network.ask([(1, Packet(OF_QUERY, fields))], 20)
        fields = {**named, "options": {"analyze": True}}
        with pytest.raises(DataError, match="why has no options"):
            nodes[0].network.ask([(1, Packet(OF_QUERY, fields))], 20)
        with pytest.raises(NodeUnavailable):
            nodes[0].network.ask([(7, Packet(COUNTS))], 1)


def test_rows_that_wait_are_counted_whose_terms_clash() -> None:
    """With 6 bits of hash, terms of one piece clash with each other: such rows have no final ids yet."""
    with cluster(2, settings=Settings(hash_bits=6), silence_pulses_max=PATIENT, pulse_s=PULSE_S) as nodes:
        stream = nodes[0].engine.stream(EX + "s", batch_ms=100)
        stream.push([(f"<{EX}s{number}>", f"<{EX}p>", f"<{EX}o{number}>", 50) for number in range(40)])
        for node in nodes:
            assert node.engine.stats()["streams"][EX + "s"]["tuples"] == 40
