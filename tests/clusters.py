"""Clusters in one process: nodes with real sockets on loopback, each with threads of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from wukongs.nodes.cluster_node import ClusterNode, Shape
from wukongs.protocol.messages import Incarnation
from wukongs.settings import Settings

PULSE_S = 0.02
READY_S = 30.0


@contextmanager
def cluster(node_count: int, replica_count: int = 1, settings: Settings | None = None) -> Iterator[list[ClusterNode]]:
    """Give the nodes of a new cluster, all of them ready."""
    shape = Shape(node_count, replica_count)
    boot = time.time_ns() // 1_000_000
    with ExitStack() as stack:
        nodes = []
        for number in range(node_count):
            me = Incarnation(number, 0, boot)
            node = ClusterNode(me, shape, "tcp://127.0.0.1:0", settings or Settings(), pulse_s=PULSE_S)
            stack.callback(node.close)
            nodes.append(node)
        addresses = {node.me.node: node.address for node in nodes}
        for node in nodes:
            node.start(addresses)
        for node in nodes:
            node.wait_until_ready(READY_S)
        yield nodes
