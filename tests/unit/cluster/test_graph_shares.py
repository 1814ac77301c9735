"""Shares of the stored graph: together they are the graph at one snapshot, whoever is asked, whatever goes on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

import wukongs
from tests.clusters import PATIENT, cluster
from tests.faces import served, served_node
from tests.inside import ingest_of
from wukongs.cluster.cluster_node import SILENCE_PULSES_MAX, ClusterNode
from wukongs.errors import CompactedError, DataError, StreamError
from wukongs.remote.client import GraphShares, RemoteEngine
from wukongs.settings import Settings

Triple = tuple[str | None, ...]
GRAPH = "http://ex/g"
HOLD_S = 600.0
"""Longer than a test takes, however busy the machine is."""


def _triples(count: int) -> list[Triple]:
    return [(f"<http://ex/s{n % 97}>", f"<http://ex/p{n % 5}>", f'"text {n}"') for n in range(count)]


@contextmanager
def _served(
    node_count: int, replica_count: int, silence_pulses_max: int = PATIENT
) -> Iterator[tuple[list[ClusterNode], list[str]]]:
    with cluster(node_count, replica_count, silence_pulses_max=silence_pulses_max) as nodes, ExitStack() as stack:
        addresses = tuple(stack.enter_context(served_node(node, Settings())) for node in nodes)
        for node in nodes:
            node.backend.ingest_addresses = addresses
        yield nodes, list(addresses)


def _insert(engine: RemoteEngine, triples: list[Triple], graph: str | None = None) -> None:
    lines = " ".join(f"{' '.join(map(str, triple))} ." for triple in triples)
    engine.update(f"INSERT DATA {{ {lines if graph is None else f'GRAPH <{graph}> {{ {lines} }}'} }}")


def _hold(engine: RemoteEngine) -> GraphShares:
    found = engine.graph_shares(HOLD_S)
    assert found is not None
    for address, _ in found.shares:
        with wukongs.connect(address) as each:
            each.hold_snapshot(HOLD_S, found.at)
    return found


def _read(found: GraphShares | None, graph: str | None = None, asked: str | None = None) -> Counter[Triple]:
    """Read all shares, each from its own node or, with asked, from that one; count each triple."""
    assert found is not None
    read = Counter[Triple]()
    for address, shards in found.shares:
        with wukongs.connect(asked or address) as engine:
            read.update(engine.graph_share(graph, shards, found.at).texts())
    return read


@pytest.mark.parametrize(("node_count", "replica_count"), [(2, 1), (2, 2), (3, 2)])
def test_the_shares_are_the_graph_once(node_count: int, replica_count: int) -> None:
    default, named = _triples(600), _triples(50)
    with _served(node_count, replica_count) as (_, addresses), wukongs.connect(addresses[-1]) as engine:
        _insert(engine, default)
        _insert(engine, named, GRAPH)
        found = engine.graph_shares(60)
        assert found is not None
        assert [address for address, _ in found.shares] == addresses
        assert sorted(shard for _, shards in found.shares for shard in shards) == list(range(1024))
        assert _read(found) == Counter(default)
        assert _read(found, GRAPH) == Counter(named)
        assert not _read(found, "http://ex/none")
        for address in addresses:
            assert _read(found, asked=address) == Counter(default)
        for _, shards in found.shares:
            assert len(engine.graph_share(None, shards, found.at)) > 0


@pytest.mark.slow
def test_all_shares_are_of_one_snapshot_while_updates_go_on() -> None:
    with _served(2, 1) as (_, addresses), ExitStack() as stack:
        clients = [stack.enter_context(wukongs.connect(address)) for address in addresses]
        _insert(clients[0], _generation(0))
        for number in range(1, 40):
            found = _hold(clients[number % 2])
            _turn(clients[(number + 1) % 2], number)
            assert _read(found) == Counter(_generation(number - 1))
        old = _hold(clients[0])
        for number in range(40, 120):
            _turn(clients[number % 2], number)
        assert _read(old) == Counter(_generation(39))
        assert _read(clients[1].graph_shares(60, at=old.at)) == Counter(_generation(39))


def test_a_snapshot_is_held_for_its_time_only() -> None:
    with _served(2, 1) as (nodes, addresses), wukongs.connect(addresses[0]) as engine:
        _insert(engine, _generation(0))
        found = engine.graph_shares(0.001)
        assert _held(nodes[0])
        time.sleep(0.01)
        _turn(engine, 1)
        assert not _held(nodes[0])
        assert found is not None
        with pytest.raises(CompactedError, match="expected a snapshot number"):
            engine.graph_shares(60, at=found.at + (1 << 30))


@pytest.mark.slow
def test_a_share_of_a_node_that_has_gone_is_given_by_another() -> None:
    default = _triples(300)
    with _served(3, 2, SILENCE_PULSES_MAX) as (nodes, addresses), wukongs.connect(addresses[0]) as engine:
        _insert(engine, default)
        found = engine.graph_shares(60)
        nodes[1].close()
        deadline = time.monotonic() + 30
        while 1 in nodes[0].backend.shares.nodes():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert _read(found, asked=addresses[0]) == Counter(default)
        again = engine.graph_shares(60)
        assert again is not None
        assert [address for address, _ in again.shares] == [addresses[0], addresses[2]]
        assert _read(again) == Counter(default)


def test_an_engine_has_all_and_no_shares() -> None:
    with ExitStack() as stack:
        engine = stack.enter_context(wukongs.Engine())
        address = stack.enter_context(served(engine, Settings(), ingest_of(engine)))
        client = stack.enter_context(wukongs.connect(address))
        assert client.graph_shares(60) is None
        with pytest.raises(StreamError, match="in no cluster"):
            client.graph_share(None, [0], 0)


@pytest.mark.parametrize("shards", [[-1], [1024], ["x"], [True]])
def test_shards_that_there_are_not_are_refused(shards: list[int]) -> None:
    with _served(1, 1) as (_, addresses), wukongs.connect(addresses[0]) as engine:
        assert engine.graph_shares(60) is None  # one node has all
        with pytest.raises(DataError, match="expected integers from 0 to 1023"):
            engine.graph_share(None, shards, 0)


def _generation(number: int) -> list[Triple]:
    return [(f"<http://ex/s{place}>", "<http://ex/is>", f'"{number}"') for place in range(20)]


def _turn(engine: RemoteEngine, number: int) -> None:
    """Replace a generation by the next one, in one update."""
    is_old = "{ ?s <http://ex/is> ?old }"
    engine.update(f'DELETE {is_old} INSERT {{ ?s <http://ex/is> "{number}" }} WHERE {is_old}')


def _held(node: ClusterNode) -> bool:
    core = node.store.core
    with core.lock:
        return any("shares" in handle.owner for handle in core.arrangement.trace.handles())
