"""Homes: which node runs a registered query, when another one may have its name, and who answers for which shard."""

from __future__ import annotations

import time
from contextlib import suppress

import numpy as np

from wukongs.cluster.host import Dropped, Host
from wukongs.cluster.members import is_silent
from wukongs.cluster.node_payloads import read_registration
from wukongs.cluster.node_store import NodeStore
from wukongs.errors import NodeUnavailable, StreamError
from wukongs.live.query_source import QuerySource
from wukongs.live.views.live_view import LiveView
from wukongs.live.views.options import ViewOptions
from wukongs.protocol import events as ev
from wukongs.protocol.control import Registered
from wukongs.protocol.records import DropQuery, Role
from wukongs.protocol.state import Node
from wukongs.store.dtypes import Int32Array
from wukongs.wire.assignment import Assignment

PATIENCE_S = 1.0
"""How long a name that is taken may still become free: another node's client has perhaps just closed its query."""
OUT_S = 30.0
"""How long it may take until a silent node is taken out."""


def closing_here(node: Node, store: NodeStore) -> bool:
    """Return whether the log has a query of this node that does not run here: closed, or not started yet."""
    return any(
        query.nodes.keys() == {node.me.node} and store.query(name) is None
        for name, query in node.control.queries.items()
    )


def is_left_here(store: NodeStore, name: str, source: QuerySource, view: ViewOptions | None = None) -> bool:
    """Return whether a query with this source (and, of a live view, these options) was left by another node, runs here,
    and is nobody's yet."""
    here = store.query(name)
    if here is None or not here.is_recovered:
        return False
    if isinstance(here, LiveView):
        return view is not None and here.is_of(source, view)
    return view is None and here.source == source


def free_name(host: Host, store: NodeStore, name: str, source: QuerySource, view: ViewOptions | None = None) -> bool:
    """Wait until a query of this name may be registered; return whether it is one with this source that another node
    has left and this one has taken over.

    Raises StreamError (the name is taken), NodeUnavailable (by a query of a node that does not answer)."""
    began_s = time.monotonic()
    while (known := host.node.control.queries.get(name)) is not None:
        seen = host.node
        homes = known.nodes.keys()
        is_left = not homes & seen.control.with_role(Role.IN)
        is_same = read_registration(known.payload, name).is_of(source, view)
        if is_left and not is_same:
            _drop(host, name, known)
            continue
        if homes == {seen.me.node} and is_left_here(store, name, source, view):
            return True
        silent = sorted(home for home in homes if is_silent(seen, home))
        is_coming = is_left or (homes == {seen.me.node} and store.query(name) is None)  # or it was closed here
        waited_s = time.monotonic() - began_s
        if silent and not is_left and (waited_s > OUT_S or not all(map(seen.control.is_covered_without, silent))):
            raise NodeUnavailable(
                f"query {name} is registered at node {silent[0]}, which does not answer. Start it, or all nodes, anew"
            )
        if (is_left or not silent) and waited_s > (OUT_S if is_coming else PATIENCE_S):
            raise StreamError(f"a query named {name} is registered already: close it first")
        host.wait_until(lambda node, seen=seen: node is not seen, OUT_S, "a pulse")  # type: ignore[misc]
    return False


def _drop(host: Host, name: str, known: Registered) -> None:
    with suppress(Dropped):  # somebody else did
        host.carry_out(ev.Submitted(DropQuery(name, known.since)), OUT_S)


def assignment_of(node: Node, store: NodeStore) -> Assignment:
    """Return, for each shard, this node if it is an in-sync replica, else the first that is one. Raises as nodes_of."""
    me = node.me.node
    return Assignment(nodes_of(node, me), me, store.split_ids)


def nodes_of(node: Node, wanted: int | None = None) -> Int32Array:
    """Return, for each shard, the wanted node if it is an in-sync replica, else the first that is one.

    Raises NodeUnavailable (a shard without one)."""
    synced = node.control.with_role(Role.IN)
    nodes = np.empty(len(node.control.shards), np.int32)
    for shard, replicas in enumerate(node.control.shards):
        there = [replica for replica in replicas if replica in synced]
        if not there:
            raise NodeUnavailable(f"shard {shard} has no node left, of {', '.join(map(str, replicas))}: start one anew")
        nodes[shard] = wanted if wanted in there else there[0]
    return nodes


class Placing:
    """Keeps the assignment until the members or their shards change."""

    def __init__(self, host: Host, store: NodeStore) -> None:
        self._host, self._store = host, store
        self._known: tuple[object, object, Assignment] | None = None

    def now(self) -> Assignment:
        """Return the assignment by the members of now. Raises as assignment_of."""
        node, known = self._host.node, self._known
        members, shards = node.control.members, node.control.shards
        if known is None or known[0] is not members or known[1] is not shards:
            known = self._known = members, shards, assignment_of(node, self._store)
        return known[2]
