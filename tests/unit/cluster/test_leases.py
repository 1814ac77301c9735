"""Leases for one-shot reads: a node that is cut off refuses them, and a write waits until its lease has run out."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests import clusters
from tests.clusters import PULSE_S, cluster, cut_off
from tests.unit.cluster.wires import EX, WAIT_S, Wires, until, wired
from wukongs.cluster import leases
from wukongs.cluster.boot import EVENT_TIMES
from wukongs.cluster.cluster_node import LEASE_MAX_S, ClusterNode, ClusterShape, lease_ms
from wukongs.cluster.host import lease_clock
from wukongs.cluster.settling import SETTLE
from wukongs.consistency import reading_from
from wukongs.errors import NodeUnavailable, OutcomeUnknown, QueryTimeout, SettingsError
from wukongs.protocol.control import THE_FIRST
from wukongs.remote.service import Service
from wukongs.wire.client_socket import ClientSocket

ASK = f"SELECT ?n {{ <{EX}x> <{EX}n> ?n }}"


def write(number: int) -> str:
    old = f"<{EX}x> <{EX}n> ?n"
    return f"DELETE {{ {old} }} INSERT {{ <{EX}x> <{EX}n> {number} }} WHERE {{ OPTIONAL {{ {old} }} }}"


def read(node: ClusterNode, **options: object) -> list[int]:
    return [int(row[0]) for row in node.engine.query(ASK, **options)]  # type: ignore[arg-type]


@pytest.fixture
def three() -> Iterator[Wires]:
    with wired(3, 3) as wires:
        wires.nodes[0].engine.update(write(1))
        for node in wires.nodes:
            assert read(node) == [1]
        yield wires


def leader_of(wires: Wires) -> int:
    found = wires.nodes[0].host.node.log.leader
    assert found is not None
    return found


def others_than(wires: Wires, number: int) -> list[ClusterNode]:
    return [node for node in wires.nodes if node.me.node != number]


class Behind:
    """A node that is heard, and shows nothing newer for a while."""

    def __init__(self, node: ClusterNode) -> None:
        self.node = node

    def __enter__(self) -> None:
        with self.node.store.core.lock:
            self.node.store.exposure.limit = self.node.store.exposure.reached

    def __exit__(self, *_: object) -> None:
        with self.node.store.core.lock:
            self.node.store.exposure.limit = None
            self.node.store.injector.wake()


def begun(node: ClusterNode, number: int) -> tuple[threading.Thread, threading.Event]:
    """Begin a write; the event says that it was acknowledged."""
    is_acknowledged = threading.Event()

    def run() -> None:
        node.engine.update(write(number), timeout_s=WAIT_S)
        is_acknowledged.set()

    thread = threading.Thread(target=run)
    thread.start()
    return thread, is_acknowledged


def test_a_write_waits_until_the_lease_of_a_node_that_does_not_show_it_has_run_out(
    three: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = (leader_of(three) + 1) % 3
    with Behind(three.nodes[slow]):
        thread, is_acknowledged = begun(others_than(three, slow)[0], 2)
        while three.nodes[slow].host.lease_left_s > 0:
            assert not is_acknowledged.is_set() or three.nodes[slow].host.lease_left_s <= 0
            time.sleep(0.001)
        thread.join(WAIT_S)
        assert is_acknowledged.is_set()
        assert three.nodes[slow].host.lease_left_s <= 0
        monkeypatch.setattr(leases, "NO_LEASE_S", 0.1)
        with pytest.raises(NodeUnavailable, match=f"node {slow} has no lease for reads.*Ask another node.*local"):
            read(three.nodes[slow])
        assert read(three.nodes[slow], consistency="local") == [1]
        assert read(others_than(three, slow)[1]) == [2]
    monkeypatch.setattr(leases, "NO_LEASE_S", WAIT_S)
    assert read(three.nodes[slow]) == [2]


def test_a_write_is_acknowledged_though_a_node_does_not_say_itself_that_it_shows_it(three: Wires) -> None:
    """The leader has heard it."""
    writer, other = others_than(three, leader_of(three))
    three.lose(SETTLE, other.me.node)
    three.kinds()
    writer.engine.update(write(2))
    assert (leases.LEASE, leader_of(three)) in three.kinds()
    assert other.host.lease_left_s > 0
    assert read(other) == [2]


def test_what_one_reader_has_seen_another_one_does_not_miss(three: Wires) -> None:
    """The write is not acknowledged to anybody yet."""
    slow = (leader_of(three) + 1) % 3
    writer, reader = others_than(three, slow)
    with Behind(three.nodes[slow]):
        thread, _ = begun(writer, 2)
        until(lambda: read(reader, consistency="local") == [2])
        assert read(reader) == [2]
        assert three.nodes[slow].host.lease_left_s <= 0
        thread.join(WAIT_S)


@pytest.mark.parametrize("cuts_leader", [False, True])
def test_a_node_that_is_cut_off_refuses_reads_and_the_others_go_on(
    three: Wires, cuts_leader: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = leader_of(three) if cuts_leader else (leader_of(three) + 1) % 3
    three.cut.add(alone)
    for node in others_than(three, alone):
        assert read(node) == [1]
    until(lambda: three.nodes[alone].host.lease_left_s <= 0)
    for node in others_than(three, alone):
        assert read(node) == [1]
    monkeypatch.setattr(leases, "NO_LEASE_S", 0.1)
    began_s = time.monotonic()
    engine = three.nodes[alone].engine
    for ask in (lambda: engine.query(ASK), lambda: engine.prepare(ASK)(), engine.graph_names):
        with pytest.raises(NodeUnavailable, match="no lease"):
            ask()
    assert time.monotonic() - began_s < WAIT_S
    assert read(three.nodes[alone], consistency="local") == [1]
    assert engine.prepare(ASK)(consistency="local").snapshot == engine.query(ASK, consistency="local").snapshot
    three.cut.clear()
    monkeypatch.setattr(leases, "NO_LEASE_S", WAIT_S)
    assert read(three.nodes[alone]) == [1]


def test_nothing_older_than_the_reader_was_told_is_read(three: Wires) -> None:
    slow = (leader_of(three) + 1) % 3
    node = three.nodes[slow]
    with Behind(node):
        thread, _ = begun(others_than(three, slow)[0], 2)
        until(lambda: read(others_than(three, slow)[1], consistency="local") == [2])
        told = others_than(three, slow)[1].engine.query(ASK, consistency="local").snapshot
        with reading_from(told), pytest.raises((NodeUnavailable, QueryTimeout)):
            read(node, timeout_s=0.2)
        thread.join(WAIT_S)
    with reading_from(told):
        assert read(node) == [2]


def test_a_change_that_others_may_miss_is_of_unknown_outcome(three: Wires) -> None:
    """Its record is in the log; no leader says whose lease has run out."""
    slow = (leader_of(three) + 1) % 3
    three.lose(leases.LEASE, leader_of(three))
    told = f"nodes .*{slow}.* may still answer reads without"
    with Behind(three.nodes[slow]), pytest.raises(OutcomeUnknown, match=told):
        others_than(three, slow)[0].engine.update(write(2), timeout_s=1.0)
    until(lambda: read(three.nodes[slow]) == [2])


def test_nodes_of_an_earlier_release_have_no_leases_and_none_is_needed_beside_them(three: Wires) -> None:
    alone = three.nodes[(leader_of(three) + 1) % 3]
    alone._knows = {**alone._knows, leader_of(three): frozenset({EVENT_TIMES})}
    three.cut.add(alone.me.node)
    until(lambda: alone.host.lease_left_s <= 0)
    assert read(alone) == [1]


def test_a_client_that_goes_to_another_node_reads_nothing_older(three: Wires, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases do not help it: a node of an earlier release takes part."""
    monkeypatch.setattr(leases, "EARLIER_S", 0.1)
    slow = (leader_of(three) + 1) % 3
    writer = others_than(three, slow)[0]
    for node in three.nodes:
        node._knows = {number: frozenset({EVENT_TIMES}) for number in range(3)}
    with ExitStack() as stack:
        sockets = [served(node, stack) for node in (writer, three.nodes[slow])]
        client = stack.enter_context(wukongs.connect([socket.address for socket in sockets], silence_s=5))
        fresh = stack.enter_context(wukongs.connect(sockets[1].address))
        assert [int(row[0]) for row in client.query(ASK)] == [1]
        with Behind(three.nodes[slow]):
            client.update(write(2))
            assert [int(row[0]) for row in fresh.query(ASK)] == [1], "it was told nothing"
            sockets[0].close()
            with pytest.raises((NodeUnavailable, QueryTimeout)):
                client.query(ASK, timeout_s=0.3)
        assert [int(row[0]) for row in client.query(ASK)] == [2]


def served(node: ClusterNode, stack: ExitStack) -> ClientSocket:
    """Let clients connect to a node, as one that was started by its file does."""
    life = node.host.node.control.life
    service = Service(node.engine, node.store.core.settings, node.backend, life=lambda: life)
    socket = ClientSocket("tcp://127.0.0.1:0", service.handlers)
    stack.callback(service.close)
    stack.callback(socket.close)
    return socket


def test_a_cluster_of_one_always_has_a_lease() -> None:
    with cluster(1) as (node,):
        assert node.host.lease_left_s == float("inf")
        node.engine.update(write(1))
        assert read(node) == [1]


def test_a_node_that_starts_again_answers_reads_once_it_shows_again_what_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the only one, and slow to carry out its records again."""
    with cluster(1, folder=tmp_path) as nodes:
        nodes[0].engine.update(write(1))
        cut_off(nodes)
    behind = ExitStack()

    class Slow(ClusterNode):
        def start(self, *args: Any) -> None:
            behind.enter_context(Behind(self))
            super().start(*args)

        def wait_until_ready(self, *_: object) -> None:
            """Nothing: it would wait until all is shown."""

    monkeypatch.setattr(clusters, "ClusterNode", Slow)
    monkeypatch.setattr(leases, "NO_LEASE_S", 0.1)
    with cluster(1, folder=tmp_path) as (node,), behind:
        until(lambda: node.host.node.leases.floor > THE_FIRST)  # it leads
        assert read(node, consistency="local") == []
        assert node.host.lease_left_s <= 0
        with pytest.raises(NodeUnavailable, match="no lease"):
            read(node)
        behind.close()
        monkeypatch.setattr(leases, "NO_LEASE_S", WAIT_S)
        assert read(node) == [1]
        until(lambda: node.host.lease_left_s == float("inf"))


def test_the_clock_of_leases_begins_elsewhere_in_each_process() -> None:
    """Else what was granted to an earlier life could look as if it were granted to this one, once the machine was
    started again."""
    program = "from wukongs.cluster.host import lease_clock; print(lease_clock())"
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert abs(float(told) - lease_clock()) > 60


def test_an_unknown_rule_is_refused(three: Wires) -> None:
    with pytest.raises(SettingsError, match='"latest" or "local"'):
        read(three.nodes[0], consistency="newest")


def test_a_lease_is_shorter_than_the_silence_after_which_a_node_is_taken_out() -> None:
    for silence_pulses_max in (10, 100, 1000, 100_000):
        found = lease_ms(ClusterShape(3, silence_pulses_max=silence_pulses_max), PULSE_S)
        assert 0 < found < 1000 * silence_pulses_max * PULSE_S
        assert found <= 1000 * LEASE_MAX_S
