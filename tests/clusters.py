"""Clusters in one process: nodes with real sockets on loopback, each with threads of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from wukongs.cluster import changes, cluster_backend, cluster_node, counting, leases, members
from wukongs.cluster.boot import new_boot
from wukongs.cluster.cluster_node import SILENCE_PULSES_MAX, ClusterNode, ClusterShape
from wukongs.cluster.node_disk import NodeDisk, NodeFolder, Owner
from wukongs.protocol.messages import Incarnation
from wukongs.settings import Settings

PULSE_S = 0.02
READY_S = 60.0
QUICK_PULSE_S = 0.005
PATIENT = 6000
"""Quick pulses of silence that are 30 s: for tests that lose no node, on machines that are busy."""
PATIENT_LIMITS = (
    (members, "SILENT_PULSES", 400),
    (cluster_backend, "SHOW_S", 10.0),
    (counting, "ROUND_S", 10.0),
    (counting, "ASK_S", 20.0),
    (counting, "ALONE_S", 10.0),
    (changes, "ABANDON_S", 10.0),
    (leases, "NO_LEASE_S", 20.0),
    (cluster_node, "LEASE_MAX_S", 0.5),
)
"""How long patient nodes wait for each other where they otherwise soon go on without one that is slow: until it counts
as silent (2 s of quick pulses), shows what was declared at another one, says its counts, forgets a change, and has a
lease. That is short: a node is taken out only once its lease has run out."""


@contextmanager
def patience() -> Iterator[None]:
    """Let nodes wait for slow ones. So whatever is done at one node is seen at all of them, also on a busy machine."""
    with ExitStack() as stack:
        for module, name, limit in PATIENT_LIMITS:
            stack.enter_context(patch.object(module, name, limit))
        yield


@contextmanager
def cluster(
    node_count: int,
    replica_count: int = 1,
    settings: Settings | None = None,
    silence_pulses_max: int = SILENCE_PULSES_MAX,
    pulse_s: float | None = None,
    folder: Path | None = None,
    spare_count: int = 0,
    replace_pulses_max: int | None = None,
) -> Iterator[list[ClusterNode]]:
    """Give the nodes of a new cluster, all of them ready. Those that are patient agree on their leader sooner, and wait
    for each other for longer.

    spare_count: so many of them, the last ones, hold nothing at first, and are not ready. folder: where they have data
    folders; of nodes that had them before, which go on."""
    if pulse_s is None:
        pulse_s = QUICK_PULSE_S if silence_pulses_max == PATIENT else PULSE_S
    shape = ClusterShape(
        node_count,
        replica_count,
        silence_pulses_max=silence_pulses_max,
        spare_count=spare_count,
        replace_pulses_max=replace_pulses_max,
    )
    boot = time.time_ns() // 1_000_000
    with ExitStack() as stack:
        if silence_pulses_max >= PATIENT:
            stack.enter_context(patience())
        nodes = list[ClusterNode]()
        stack.callback(lambda: [node.close() for node in nodes])  # those that were started again in their places, too
        for number in range(node_count):
            me = Incarnation(number, 0, boot)
            disk = None if folder is None else _disk(folder / f"node{number}", me, shape, settings or Settings())
            node = ClusterNode(me, shape, "tcp://127.0.0.1:0", settings or Settings(), pulse_s=pulse_s, disk=disk)
            stack.callback(node.close)
            nodes.append(node)
        addresses = {node.me.node: node.address for node in nodes}
        for node in nodes:
            node.start(addresses)
        for node in nodes[: node_count - spare_count]:
            node.wait_until_ready(READY_S)
        yield nodes


@contextmanager
def added_node(nodes: list[ClusterNode], replica_count: int, clients: str = "") -> Iterator[ClusterNode]:
    """Give a node that a cluster does not know, at the end of the list. It waits to be added."""
    settings, first = nodes[0].store.core.settings, nodes[0].host.node.cluster
    number = len(nodes)
    shape = ClusterShape(first.node_count, replica_count, spare_count=first.spare_count)
    node = ClusterNode(Incarnation(number, 0, new_boot()), shape, "tcp://127.0.0.1:0", settings, pulse_s=PULSE_S)
    try:
        nodes.append(node)
        node.start({one.me.node: one.address for one in nodes})
        yield node
    finally:
        node.close()


def _disk(path: Path, me: Incarnation, shape: ClusterShape, settings: Settings) -> NodeDisk:
    told = shape.told_of_data(settings)
    folder = NodeFolder(path, me.node, told)
    is_spare = folder.owner is None and not shape.genesis.holds(me.node)
    folder.give_to(Owner(me.node, me.disk, me.boot, told, is_joining=is_spare))
    return NodeDisk(folder)


def cut_off(nodes: list[ClusterNode]) -> None:
    """End nodes with data folders as a power cut does: without a last checkpoint."""
    for node in nodes:
        assert node.checkpoints is not None
        node.checkpoints.give_up()
    for node in nodes:
        node.close()


def start_again(
    nodes: list[ClusterNode], number: int, *, replica_count: int, wait_s: float = READY_S, spare_count: int = 0
) -> ClusterNode:
    """Start a node anew whose last life was closed, in its place in `nodes`; return it once it is in sync (unless
    wait_s is 0)."""
    me = Incarnation(number, new_boot(), new_boot())
    settings = nodes[number].store.core.settings
    shape = ClusterShape(len(nodes), replica_count, spare_count=spare_count)
    node = ClusterNode(me, shape, "tcp://127.0.0.1:0", settings, pulse_s=PULSE_S)
    nodes[number] = node
    addresses = {one.me.node: one.address for one in nodes}
    for one in nodes:
        if one is not node and not one.host.failure:
            one.network.join(addresses)
    node.start(addresses)
    if wait_s:
        node.wait_until_ready(wait_s)
    return node
