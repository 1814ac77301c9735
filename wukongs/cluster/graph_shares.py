"""Shares of the stored graph: each node gives what lies on it of one snapshot, to a reader that asks all of them.

* A share is the triples whose subjects are in some shards. The shares of `nodes` are the graph, each triple once.
* A node reads a shard that it does not hold from the node that does. So a share is right also when members have come
  or gone since, and whichever node is asked for it.
* A reader holds its snapshot at each node before it reads. Until then the node keeps it as one of its newest SNs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wukongs.cluster.homes import nodes_of
from wukongs.cluster.host import Host
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.reads.fetched_graph import triples_in
from wukongs.cluster.reads.traffic import time_left_s
from wukongs.cluster.times import unpacked
from wukongs.errors import DataError
from wukongs.live.reading import ids_of, open_snapshot, terms_of
from wukongs.query.limits import limits_of
from wukongs.query.output.results import Result
from wukongs.query.terms.names import graph_term
from wukongs.store.dtypes import NO_MATCH, Int64Array
from wukongs.wire.assignment import SHARD_COUNT

COLUMNS = ("subject", "predicate", "object")


class GraphShares:
    """One node's side of them."""

    def __init__(self, host: Host, store: NodeStore) -> None:
        self._host, self._store = host, store

    def hold(self, hold_s: float, at: int | None, wait_s: float = 0) -> int:
        """Keep the newest snapshot, or that of SN `at`, readable at this node for a while; return its SN.

        wait_s: how long this node may take to come to it. Raises StreamError (it takes longer), CompactedError."""
        core = self._store.core
        if at is not None and wait_s:
            self._store.wait_for(unpacked(at), wait_s)
        with core.lock:
            return open_snapshot(core, at, "a reader of shares of the graph", hold_s).sn

    def nodes(self) -> dict[int, list[int]]:
        """Return the shards to ask each node for: it holds them now. Raises NodeUnavailable."""
        nodes = nodes_of(self._host.node)
        return {int(node): np.flatnonzero(nodes == node).tolist() for node in np.unique(nodes)}

    def read(self, graph: str | None, shards: Sequence[int], at: int, timeout_s: float | None) -> Result:
        """Return the triples of a share of a graph (None: the default graph) at an SN, once this node has come to it.

        Raises DataError (no shards), StreamError (it does not come to it), CompactedError, QueryTimeout,
        BudgetExceeded."""
        core = self._store.core
        wanted = np.zeros(SHARD_COUNT, np.bool_)
        if not all(type(shard) is int and 0 <= shard < SHARD_COUNT for shard in shards):
            raise DataError(f"shards = {shards!r:.100}: expected integers from 0 to {SHARD_COUNT - 1}")
        wanted[list(shards)] = True
        limits = limits_of(core.settings, timeout_s)
        limits.wait_s = 0.0  # for memory: readers wait for all nodes
        with limits:
            name = core.default_graph if graph is None else ids_of(core).resolve(graph_term(graph).text)
            self._store.wait_for(unpacked(at), time_left_s())
            with core.lock:
                handle = open_snapshot(core, at, "a share of the graph")
                stored, terms = handle.read(), terms_of(core)
            try:
                divided = None if core.reach is None else core.reach.graph(stored, at)
                parts = triples_in(stored, name, wanted) if divided is None else divided.triples(name, wanted)
                found: list[tuple[Int64Array, Int64Array, Int64Array]] = []
                rows = 0
                for part in parts if name != NO_MATCH else ():
                    rows += len(part[0])
                    limits.check_rows(rows, "Read a graph that is smaller", "a share of the graph")
                    limits.hold(3 * part[0].nbytes, "a share of the graph")
                    found.append(part)
            finally:
                with core.lock:
                    handle.close()
        nothing = np.empty(0, np.int64)
        columns = tuple(np.concatenate([nothing, *(part[place] for part in found)]) for place in range(3))
        return Result("select", COLUMNS, columns, terms, at)
