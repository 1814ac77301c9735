"""Spare nodes that take other nodes' places, while the cluster runs: its answers stay those of an engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np
import pytest

import wukongs
from tests.clusters import PATIENT, READY_S, added_node, cluster, cut_off, start_again
from tests.faults.test_nodes_come_back import QUERY, Told, in_time
from tests.fuzz import slow
from tests.unit.cluster.test_fetching_ahead import before, held
from wukongs.cluster.cluster_node import SILENCE_PULSES_MAX, ClusterNode
from wukongs.cluster.collecting import Wanted
from wukongs.cluster.draining import is_drained
from wukongs.cluster.host import Host
from wukongs.cluster.node_store import NodeStore
from wukongs.errors import NodeUnavailable, SettingsError, StorageError
from wukongs.live.pieces import Piece
from wukongs.protocol import events as ev
from wukongs.protocol import membership
from wukongs.protocol.control import apply
from wukongs.protocol.messages import Incarnation
from wukongs.protocol.records import Drain, Drained, Entry, Membership, Role, Voter
from wukongs.protocol.state import Cluster, Kept, boot
from wukongs.settings import Settings
from wukongs.store.encoder import encode_columns
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.link import IngestLink
from wukongs.wire.sharding import ShardMap

EX = "http://ex/"
WAIT_S = 60.0


@contextmanager
def told(
    node_count: int,
    replica_count: int,
    spare_count: int = 1,
    replace_pulses_max: int | None = None,
    silence_pulses_max: int = SILENCE_PULSES_MAX,
) -> Iterator[Told]:
    with cluster(
        node_count + spare_count,
        replica_count,
        silence_pulses_max=silence_pulses_max,
        spare_count=spare_count,
        replace_pulses_max=replace_pulses_max,
    ) as nodes:
        of = Told(nodes)
        with of.embedded:
            yield of


def check_replicas(of: Told) -> None:
    """Check that each node holds what the others hold of its shards, too."""
    control = of.nodes[2].host.node.control
    nodes = [of.nodes[number] for number in sorted(control.with_role(Role.IN)) if control.holds(number)]
    for node in nodes:
        mine = node.store.shard_map.shards(node.me.node)
        wanted = Wanted(node.me.node, node.store.shard_map, node.store.split_ids, mine, mine)
        assert held(node, wanted) == set[tuple[int, ...]]().union(*(held(other, wanted) for other in nodes))


def begun(of: Told) -> None:
    of.declare(1)
    of.load(0, "x", 40)
    of.load(1, "y", 20, EX + "graph")
    of.push(0, "a", 12)
    of.update(1, f"DELETE WHERE {{ <{EX}x3> ?p ?o }}")


@pytest.mark.slow
@pytest.mark.parametrize(("node_count", "replica_count", "spare_count"), [(3, 2, 1), slow(3, 2, 2), slow(2, 1, 1)])
def test_spares_take_a_nodes_place_and_then_it_may_go(node_count: int, replica_count: int, spare_count: int) -> None:
    with told(node_count, replica_count, spare_count) as of:
        begun(of)
        spares = range(node_count, node_count + spare_count)
        of.nodes[1].engine.drain(0, list(spares), WAIT_S)
        assert not of.nodes[0].store.shard_map.shards(0).any()
        for spare in spares:
            assert of.nodes[spare].host.node.role is Role.IN
            of.nodes[spare].wait_until_ready(WAIT_S)
        check_replicas(of)
        of.push(0, "b", 12)
        of.load(0, "z", 20)
        of.update(spares[0], f"INSERT DATA {{ <{EX}new> <{EX}l> <{EX}o3> }}; DELETE WHERE {{ <{EX}x4> ?p ?o }}")
        of.check(*range(node_count + spare_count))
        of.nodes[0].close()
        of.push(1, "c", 12)
        of.update(spares[-1], f"DELETE WHERE {{ <{EX}x5> ?p ?o }}")
        of.check(*range(1, node_count + spare_count))
        check_replicas(of)


@pytest.mark.slow
def test_everything_goes_on_while_spares_take_places() -> None:
    """Tuples, loads, updates and windows in the middle of it; then the node that was drained first is used again."""
    with told(3, 2, 1) as of:
        nodes = of.nodes
        begun(of)
        query, alone = nodes[1].engine.register(QUERY), of.embedded.register(QUERY)
        is_over, failures = threading.Event(), list[BaseException]()

        def go_on() -> None:
            round_ = 0
            try:
                while not is_over.is_set() or round_ < 12:
                    of.push(round_ % 3, f"t{round_}", 3)
                    if round_ % 3 == 0:
                        of.load(1, f"l{round_}-", 4)
                    if round_ % 4 == 0:
                        of.update(round_ % 3, f"DELETE WHERE {{ <{EX}x{round_}> ?p ?o }}")
                    round_ += 1
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            nodes[0].engine.drain(2, timeout_s=WAIT_S)
        finally:
            is_over.set()
            thread.join(WAIT_S)
        assert not failures
        of.check(0, 1, 2, 3)
        check_replicas(of)
        windows = [
            [(window.end_ms, sorted(window.texts())) for window in one.results(timeout_s=1)] for one in (query, alone)
        ]
        assert windows[0] == windows[1]
        assert len(windows[0]) > 5


@pytest.mark.slow
def test_a_node_that_was_drained_is_a_spare_one_when_it_is_started_anew() -> None:
    with told(3, 2) as of:
        begun(of)
        of.nodes[0].engine.drain(2, timeout_s=WAIT_S)
        of.nodes[2].close()
        of.push(0, "b", 12)
        with pytest.raises(NodeUnavailable, match="no spare node is heard"):
            of.nodes[0].engine.drain(1)
        again = start_again(of.nodes, 2, replica_count=2, spare_count=1, wait_s=0)
        deadline = time.monotonic() + WAIT_S
        while not of.nodes[0].host.node.control.is_spare(2):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        of.nodes[0].engine.drain(1, timeout_s=WAIT_S)
        again.wait_until_ready(READY_S)
        of.nodes[1].close()
        of.push(2, "c", 12)
        of.check(0, 2, 3)
        check_replicas(of)


@pytest.mark.slow
def test_shards_have_their_replicas_again_after_a_loss() -> None:
    with told(3, 2, 1, replace_pulses_max=200) as of:
        begun(of)
        of.nodes[1].close()
        of.nodes[3].wait_until_ready(WAIT_S)
        of.nodes[0].host.wait_until(lambda node: not node.control.holds(1), WAIT_S, "the place of node 1")
        of.push(0, "b", 12)
        of.check(0, 2, 3)
        check_replicas(of)
        of.nodes[2].close()
        of.push(3, "c", 12)
        of.check(0, 3)


def test_a_store_knows_the_shards_of_the_state_that_its_disk_has() -> None:
    shape = Cluster(4, 2, spare_count=1)
    control = apply(shape.genesis, Entry(1, Drain(0, (3,))))
    store = NodeStore(Settings(), 3, ShardMap.placed(shape.genesis.shards, 4))
    assert not store.shard_map.shards(3).any()
    host = Host(shape, Incarnation(3, 0, 1), store, lambda *_: None, kept=Kept(control=control))
    assert store.shard_map.shards(3).sum() == store.shard_map.shards(0).sum() > 0
    host.close()
    store.close()


@pytest.mark.slow
def test_nodes_with_data_folders_know_who_holds_what(tmp_path: Path) -> None:
    text = "SELECT ?s ?p ?o { ?s ?p ?o }"
    with wukongs.Engine() as engine:

        def update(node: ClusterNode, name: str, gone: int) -> None:
            rows = " ".join(f"<{EX}{name}{row}> <{EX}p> <{EX}o{row}> ." for row in range(30))
            for one in (node.engine, engine):
                one.update(f"INSERT DATA {{ {rows} }}; DELETE WHERE {{ <{EX}{name}{gone}> ?p ?o }}")

        for life in range(3):
            with cluster(3, 2, folder=tmp_path, spare_count=1) as nodes:
                nodes[2].wait_until_ready(WAIT_S) if life else None
                update(nodes[1], f"a{life}-", 3)
                if not life:
                    nodes[1].engine.drain(0, timeout_s=WAIT_S)
                update(nodes[2], f"b{life}-", 4)
                if life == 1:
                    nodes[1].engine.checkpoint()
                    update(nodes[2], f"c{life}-", 5)
                for node in nodes:
                    in_time(lambda node=node: node.engine.settle(WAIT_S))  # type: ignore[misc]
                    assert sorted(node.engine.query(text).texts()) == sorted(engine.query(text).texts()), (
                        life,
                        node.me,
                    )
                if life == 1:
                    cut_off(nodes)


@pytest.mark.slow
def test_a_node_keeps_its_shards_until_the_next_one_has_them_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut at the new one would lose what the old one has."""

    def refuse() -> None:
        raise StorageError("no room")

    with cluster(2, 1, folder=tmp_path, spare_count=1) as nodes:
        nodes[0].engine.update(f"INSERT DATA {{ <{EX}a> <{EX}p> <{EX}o> }}")
        host = nodes[1].host
        with monkeypatch.context() as full:
            full.setattr(nodes[1].checkpoints, "make", refuse)
            thread = threading.Thread(target=lambda: nodes[0].engine.drain(0, timeout_s=WAIT_S))
            thread.start()
            host.wait_until(lambda node: node.stay.is_installed, WAIT_S, "what the other node holds")
            time.sleep(0.5)
            assert host.node.role is Role.JOINING
            assert nodes[0].store.shard_map.shards(0).any()
        thread.join(WAIT_S)
        assert not thread.is_alive()
        assert host.node.role is Role.IN
        assert not nodes[0].store.shard_map.shards(0).any()


@pytest.mark.slow
def test_a_node_that_starts_again_in_the_middle_of_joining_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has on disk what it has taken over, and is not to take it over again."""
    with monkeypatch.context() as far, cluster(2, 1, folder=tmp_path, spare_count=1) as nodes:
        nodes[0].engine.update(f"INSERT DATA {{ <{EX}a> <{EX}p> <{EX}o> }}")
        far.setattr(membership, "_is_near", lambda *_: False)
        nodes[0].host.submit(ev.Submitted(Drain(0, (1,))), WAIT_S)
        host = nodes[1].host
        host.wait_until(lambda node: node.stay.is_installed and node.stay.is_safe, WAIT_S, "what the other node holds")
        assert host.node.role is Role.JOINING
        cut_off(nodes)
    with cluster(2, 1, folder=tmp_path, spare_count=1) as nodes:
        nodes[1].host.wait_until(lambda node: node.role is Role.IN, WAIT_S, "its turn")
        in_time(lambda: nodes[1].engine.settle(WAIT_S))
        assert len(nodes[1].engine.query(f"SELECT ?s {{ ?s <{EX}p> ?o }}")) == 1


@pytest.mark.parametrize("kind", ["stage", "feed"])
def test_rows_that_were_divided_before_a_node_joined_come_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have divided rows by the old shards, and are held up until the spare node has what was there before."""
    with told(3, 2, silence_pulses_max=PATIENT) as of:
        begun(of)
        nodes = of.nodes
        thread = threading.Thread(target=lambda: nodes[1].engine.drain(0, timeout_s=WAIT_S))
        happened: list[bool] = []

        def drained() -> None:
            if not happened:
                happened.append(True)
                thread.start()
            nodes[3].host.wait_until_installed(WAIT_S)

        for node in nodes[:3]:
            before(node, kind, drained, monkeypatch)
        if kind == "stage":
            of.load(1, "late", 40)
        else:
            of.push(1, "later", 12)
        thread.join(WAIT_S)
        assert happened
        of.check(0, 1, 2, 3)
        check_replicas(of)


def test_who_cannot_be_drained_is_told_why() -> None:
    with wukongs.Engine() as engine, pytest.raises(SettingsError, match="no cluster"):
        engine.drain(0)
    with cluster(3, 2, spare_count=1) as nodes:
        engine = nodes[0].engine
        refused: list[tuple[Callable[[], object], type[Exception], str]] = [
            (lambda: engine.drain(7), SettingsError, "the nodes are 0 to 2"),
            (lambda: engine.drain(0, [1]), SettingsError, r"to = \[1\]: expected different spare nodes, of \[2\]"),
            (lambda: engine.drain(0, []), SettingsError, "expected different spare nodes"),
        ]
        for call, error, said in refused:
            with pytest.raises(error, match=said):
                call()
        assert nodes[0].host.node.control.drains == {}


class Pipelines:
    """Pipelines of a cluster with spare nodes, each with one partition of the stream, and the same pushed to an engine.

    They send `together` pieces between two ends of stream batches."""

    def __init__(self, of: Told, addresses: list[str], count: int) -> None:
        self._of, self._sent = of, [0] * count
        self._links = [IngestLink(addresses, resend_s=1.0, timeout_s=WAIT_S) for _ in range(count)]
        for number, link in enumerate(self._links):
            link.open(EX + "s", f"p{number}", 1)
        self.rows: list[tuple[str, str, str, int]] = []

    def send(self, batch: int, closes: bool = True) -> None:
        for number, link in enumerate(self._links):
            first, end_ms = self._sent[number], batch * 100
            subjects, objects = [f"<{EX}b{batch}-{number}>"] * 8, [f"<{EX}o{first + row}>" for row in range(8)]
            encoded = encode_columns(subjects, [f"<{EX}p>"] * 8, objects, np.full(8, end_ms - 1), scope=b"")
            timing = np.zeros(8, np.bool_)
            link.send(Piece(EX + "s", f"p{number}", 1, first, first + 8, 0, batch, encoded, timing))
            self._sent[number] = first + 8
            self.rows += [(subjects[0], f"<{EX}p>", one, end_ms - 1) for one in objects]
        if closes:
            for number, link in enumerate(self._links):
                link.close_batches(EX + "s", f"p{number}", 1, self._sent[number], batch * 100)

    def finish(self) -> None:
        for number, link in enumerate(self._links):
            link.finish(EX + "s", f"p{number}", 1)
            link.close()
        self._of.stream.push(self.rows)
        self._of.stream.close()


@contextmanager
def piped(of: Told, count: int) -> Iterator[Pipelines]:
    sockets = [ClientSocket("tcp://127.0.0.1:*", {}, node.intake) for node in of.nodes]
    try:
        yield Pipelines(of, [socket.address for socket in sockets], count)
    finally:
        for socket in sockets:
            socket.close()


@pytest.mark.slow
@pytest.mark.parametrize(("node_count", "replica_count", "to"), [(3, 2, [3]), slow(2, 1, [2, 3])])
def test_pipelines_send_to_those_that_hold_the_shards(node_count: int, replica_count: int, to: list[int]) -> None:
    """They go on while a node is drained, and when it is gone. Many pieces of a stream batch are there already."""
    with told(node_count, replica_count, len(to)) as of:
        of.declare(0)
        of.load(0, "x", 40)
        with piped(of, 2) as pipelines:
            nodes, batch = of.nodes, 11
            pipelines.send(batch)
            thread = threading.Thread(target=lambda: nodes[1].engine.drain(0, to, timeout_s=WAIT_S))
            thread.start()
            while thread.is_alive() or batch < 20:
                batch += 1
                pipelines.send(batch, closes=batch % 3 == 0)
            thread.join()
            assert not nodes[0].host.node.control.holds(0)
            pipelines.send(batch + 1)
            assert not nodes[0].store.shard_map.shards(0).any()
            nodes[0].close()
            pipelines.send(batch + 2)
            pipelines.finish()
            of.check(*range(1, len(nodes)))
            check_replicas(of)


@pytest.mark.slow
def test_pipelines_go_on_without_a_node_that_is_lost() -> None:
    with told(3, 2) as of:
        of.declare(0)
        with piped(of, 1) as pipelines:
            pipelines.send(11, closes=False)
            of.nodes[1].close()
            pipelines.send(12)
            pipelines.finish()
            of.check(0, 2)


def test_a_node_that_holds_nothing_refuses_reads_that_would_miss_rows() -> None:
    with told(3, 2, silence_pulses_max=PATIENT) as of:
        begun(of)
        of.nodes[1].engine.drain(0, timeout_s=WAIT_S)
        of.push(1, "b", 12)
        of.check(1)
        store, at = of.nodes[0].store, of.nodes[1].store.exposure.reached
        with pytest.raises(NodeUnavailable, match="holds no shards any more"):
            store.check_holds(at)
        of.nodes[2].store.check_holds(at)
        in_time(lambda: of.nodes[0].engine.settle(WAIT_S))


@pytest.mark.slow
def test_a_small_cluster_with_clashing_hashes() -> None:
    with cluster(3, 1, settings=Settings(hash_bits=11), spare_count=1) as nodes, wukongs.Engine() as engine:
        for number in range(300):
            text = f"INSERT DATA {{ <{EX}s{number}> <{EX}p> <{EX}o{number}> }}"
            if number % 100 == 99:
                nodes[0].engine.drain(0, timeout_s=WAIT_S)
            for one in (engine, nodes[number % 2].engine):
                one.update(text)
        asked = "SELECT ?s ?o { ?s ?p ?o }"
        for node in nodes:
            assert sorted(node.engine.query(asked).texts()) == sorted(engine.query(asked).texts())


@pytest.mark.slow
def test_a_node_that_nobody_named_takes_a_place_and_the_one_that_had_it_is_removed() -> None:
    with told(3, 2, 0) as of:
        of.declare(0)
        of.load(0, "x", 40)
        nodes = of.nodes
        with pytest.raises(NodeUnavailable, match="no spare node is heard"):
            nodes[1].engine.drain(0, timeout_s=WAIT_S)
        with piped(of, 1) as pipelines, added_node(nodes, 2) as new:
            pipelines.send(11)
            socket = ClientSocket("tcp://127.0.0.1:*", {}, new.intake)
            assert nodes[1].engine.add_node(socket.address, new.address) == 3
            assert nodes[2].engine.add_node(socket.address, new.address) == 3
            nodes[1].engine.drain(0, timeout_s=WAIT_S)
            new.wait_until_ready(WAIT_S)
            pipelines.send(12)
            with pytest.raises(SettingsError, match="node 1 holds shards: drain it first"):
                new.engine.remove_node(1)
            with pytest.raises(NodeUnavailable, match="node 0 to be out: stop its process"):
                new.engine.remove_node(0, timeout_s=0.1)
            nodes[0].close()
            new.engine.remove_node(0, WAIT_S)
            new.engine.remove_node(0, WAIT_S)
            pipelines.send(13)
            pipelines.finish()
            of.update(3, f"INSERT DATA {{ <{EX}new> <{EX}l> <{EX}o3> }}; DELETE WHERE {{ <{EX}x4> ?p ?o }}")
            of.load(2, "z", 20)
            of.check(1, 2, 3)
            check_replicas(of)
            assert nodes[1].host.node.control.nodes == [1, 2, 3]
            in_time(lambda: new.engine.settle(WAIT_S))
            socket.close()


def test_what_cannot_be_added_or_removed_is_told_why() -> None:
    with wukongs.Engine() as engine:
        with pytest.raises(SettingsError, match="nodes cannot be added to it"):
            engine.add_node("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")
        with pytest.raises(SettingsError, match="no nodes to remove"):
            engine.remove_node(0)
    with cluster(3, 2) as nodes:
        engine = nodes[0].engine
        assert engine.add_node("tcp://127.0.0.1:1", "tcp://127.0.0.1:2") == 3
        assert engine.add_node("tcp://127.0.0.1:3", "tcp://127.0.0.1:4") == 4
        refused: list[tuple[Callable[[], object], str]] = [
            (lambda: engine.add_node("here", "tcp://127.0.0.1:2"), "expected the form"),
            (lambda: engine.add_node("tcp://127.0.0.1:9", "tcp://127.0.0.1:2"), "node 3 is there, with clients"),
            (lambda: engine.add_node("tcp://127.0.0.1:9", "tcp://127.0.0.1:8", "no key"), "expected 40 characters"),
            (lambda: engine.remove_node(7), r"the nodes are \[0, 1, 2, 3, 4\]"),
        ]
        for call, said in refused:
            with pytest.raises(SettingsError, match=said):
                call()
        engine.remove_node(3)
        assert engine.add_node("tcp://127.0.0.1:1", "tcp://127.0.0.1:2") == 5, "numbers are not used again"


def test_a_leader_is_drained_once_another_node_votes_in_its_place() -> None:
    shape = Cluster(3, 2, spare_count=1)
    records = (
        Drain(0, (2,)),
        *(Membership(2, 0, role, 2) for role in (Role.JOINING, Role.HOLDING, Role.IN)),
        Drained(0),
    )
    control = reduce(apply, [Entry(1, record) for record in records], shape.genesis)
    node = boot(shape, Incarnation(1, 0, 1), Kept(control=control, voters=shape.first_voters))
    node = replace(node, log=replace(node.log, leader=0))
    assert not control.holds(0)
    assert not is_drained(node, 0), "nodes 0 and 1 vote: node 1 alone would be no majority"
    three = frozenset(Voter(number, 0) for number in range(3))
    agreed = boot(shape, Incarnation(1, 0, 1), Kept(control=control, voters=three))
    assert is_drained(replace(agreed, log=replace(agreed.log, leader=0)), 0)
    assert not is_drained(replace(agreed, log=replace(agreed.log, leader=1)), 0), "it gives its vote up"
