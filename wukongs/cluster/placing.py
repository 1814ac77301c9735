"""Which node answers for which shard, as the members stand now."""

from __future__ import annotations

import numpy as np

from wukongs.cluster.host import Host
from wukongs.cluster.node_store import NodeStore
from wukongs.errors import NodeUnavailable
from wukongs.protocol.records import Role
from wukongs.protocol.state import Node
from wukongs.wire.assignment import Assignment


def assignment_of(node: Node, store: NodeStore) -> Assignment:
    """Return, for each shard, this node if it is an in-sync replica, else the first that is one.

    Raises NodeUnavailable (a shard without one)."""
    synced, me = node.control.with_role(Role.IN), node.me.node
    nodes = np.empty(len(node.control.shards), np.int32)
    for shard, replicas in enumerate(node.control.shards):
        there = [replica for replica in replicas if replica in synced]
        if not there:
            raise NodeUnavailable(f"shard {shard} has no node left, of {', '.join(map(str, replicas))}: start one anew")
        nodes[shard] = me if me in there else there[0]
    return Assignment(nodes, me, store.split_ids)


class Placing:
    """Keeps the assignment until the members change."""

    def __init__(self, host: Host, store: NodeStore) -> None:
        self._host, self._store = host, store
        self._known: tuple[object, Assignment] | None = None

    def now(self) -> Assignment:
        """Return the assignment by the members of now. Raises as assignment_of."""
        node, known = self._host.node, self._known
        if known is None or known[0] is not node.control.members:
            known = self._known = node.control.members, assignment_of(node, self._store)
        return known[1]
