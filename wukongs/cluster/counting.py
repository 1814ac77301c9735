"""Counting: what a cluster counts, each thing once, though several nodes hold it. Asks each other node once.

A node counts its data by shards: stored triples, tuples and the changes of updates by the shards of their subjects,
terms by the shards of their hashes. The largest count of a shard's replicas stands: the others are behind, or have
joined later. Things without a shard are counted at each node and added.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from wukongs.cluster.host import Host
from wukongs.cluster.members import is_silent, members_of
from wukongs.cluster.node_records import by_shard
from wukongs.cluster.node_store import NodeStore
from wukongs.errors import WukongsError
from wukongs.wire.assignment import SHARD_COUNT
from wukongs.wire.packets import Packet, Peers

COUNTS = "counts"
ASK_S = 2.0
ROUND_S = 0.6
"""All are asked again after so long, and twice as long: one of which nothing is heard by then is not asked again."""
ALONE_S = 0.5
"""How long each node may take once one has not answered in time."""
Facts = dict[str, Any]
TUPLES, LATE_SIGNS, DROPPED_SIGNS = _OF_STREAMS = ("tuples", "late", "dropped")
"""The arrays of an answer that count by shards, for each stream; the stream's place stands behind the name."""
_OF_A_DISK = ("folder_bytes", "log_bytes", "disk_free_bytes", "failure")


class Counting:
    """Asks the other nodes for one node, and answers them. is_reached: whether there is a connection to a node; facts:
    the node's own engine's, as JSON; traffic: counts of the socket for other nodes."""

    def __init__(
        self,
        host: Host,
        store: NodeStore,
        peers: Peers,
        is_reached: Callable[[int], bool],
        facts: Callable[[], Facts],
        traffic: Callable[[], Facts],
    ) -> None:
        self._traffic = traffic
        self.clients_traffic: Callable[[], Facts] = dict
        """Counts of the socket for clients, once there is one."""
        self._is_reached = is_reached
        self._host, self._store, self._peers, self.own = host, store, peers, facts
        self._counting = threading.Lock()

    def answer(self, _: Packet) -> Packet:
        """Handler of COUNTS."""
        store = self._store
        with store.core.lock:
            entries = [(entry.batch, entry.tombstones) for entry in store.core.arrangement.trace.entries()]
            streams = {
                one.state.iri: (one.counts_by_shard(), *one.late_signs.copy())
                for one in store.exposure.streams.values()
                if not one.state.is_dropped
            }
            updated = store.records.updated
            deleted, inserted = updated.deleted.copy(), updated.inserted.copy()
            requests, operations = updated.requests, updated.operations
        stored, inferred = np.zeros(SHARD_COUNT, np.int64), np.zeros(SHARD_COUNT, np.int64)
        for batch, tombstones in entries:
            for counts, is_hidden in ((stored, False), (inferred, True)):
                counts += by_shard(batch, is_hidden)
                if tombstones is not None:
                    counts -= by_shard(tombstones, is_hidden)
        mine = store.shard_map.shards(store.me)
        fields = {"facts": self.own(), "streams": list(streams), "requests": requests, "operations": operations}
        fields |= {"network": dict(self._traffic()), "clients": dict(self.clients_traffic())}
        arrays = {
            "stored": stored * mine,
            "inferred": inferred * mine,
            "deleted": deleted * mine,
            "inserted": inserted * mine,
        }
        with self._counting:
            arrays["terms"] = store.claims.counts_by_shard() * mine
        for place, of_stream in enumerate(streams.values()):
            for name, counts in zip(_OF_STREAMS, of_stream, strict=True):
                if name == TUPLES or counts.any():
                    arrays[f"{name} {place}"] = counts * mine
        return Packet(COUNTS, fields, arrays)

    def cluster(self) -> tuple[Facts, list[int]]:
        """Return the counts of the cluster, as Engine.stats, and the members that have not answered, or are not asked
        since nothing is heard of them."""
        members = sorted(members_of(self._host) | {self._host.me.node})
        deadline, round_s = time.monotonic() + ASK_S, ROUND_S
        answers = dict[int, Packet]()
        while not answers:
            heard = [node for node in members if self._is_heard(node)]
            try:
                found = self._peers.ask([(node, Packet(COUNTS)) for node in heard], round_s)
                answers.update(zip(heard, found, strict=True))
            except WukongsError:
                round_s *= 2
                if time.monotonic() >= deadline:
                    break
        if not answers:
            for node in filter(self._is_heard, members):
                with suppress(WukongsError):
                    answers[node] = self._peers.ask([(node, Packet(COUNTS))], ALONE_S)[0]
        return merged(self._host.me.node, answers), [node for node in members if node not in answers]

    def _is_heard(self, node: int) -> bool:
        return node == self._host.me.node or (self._is_reached(node) and not is_silent(self._host.node, node))


_NOT_TOLD = np.zeros(SHARD_COUNT, np.int64)
"""Counts that a node of an earlier release does not have."""


def merged(me: int, answers: Mapping[int, Packet]) -> Facts:
    """Return what nodes have answered as one: see docs/api.md."""
    facts = {node: dict(answer.fields["facts"]) for node, answer in sorted(answers.items())}

    def once(name: str) -> int:
        counts = [answer.arrays.get(name, _NOT_TOLD) for answer in answers.values()]
        return int(np.max(counts, axis=0).sum())

    def most(name: str) -> int:
        return max(int(answer.fields[name]) for answer in answers.values())

    def total(*path: str) -> int:
        return sum(_at(one, path) for one in facts.values())

    names = ("requests", "operations")
    queries, views = (
        {name: {**stats, "node": node} for node, one in facts.items() for name, stats in one.get(kind, {}).items()}
        for kind in ("queries", "views")
    )
    return {
        **facts[me],
        "stored_triples": once("stored"),
        "inferred_triples": once("inferred"),
        **{name: total(name) for name in ("stored_bytes", "stored_batches", "term_bytes", "malformed_lines")},
        "terms": once("terms"),
        "held_back_by": _held_back_by([one["held_back_by"] for one in facts.values()]),
        "handles": [{**handle, "node": node} for node, one in facts.items() for handle in one["handles"]],
        "streams": {name: _stream(name, me, facts, answers) for name in facts[me]["streams"]},
        "updates": {
            **{name: most(name) for name in names},
            **{name: once(name) for name in ("deleted", "inserted")},
        },
        "queries": dict(sorted(queries.items())),
        **({"views": dict(sorted(views.items()))} if views else {}),
        "nodes": {str(node): _of_node(one, facts, answers[node]) for node, one in facts.items()},
        "durability": {str(node): one["durability"] for node, one in facts.items() if one["durability"]},
        "prepared_queries": {name: total("prepared_queries", name) for name in ("kept", "hits")},
    }


def _of_node(own: Facts, facts: Mapping[int, Facts], answer: Packet) -> Facts:
    """Return what one node takes and does. behind_ms: per stream, how far others have closed it beyond this node."""
    newest = {
        name: max(one["streams"][name]["closed_ms"] or 0 for one in facts.values() if name in one["streams"])
        for name in own["streams"]
    }
    return {
        **own.get("process", {}),
        **{name: own[name] for name in ("sn", "stored_triples", "stored_bytes", "term_bytes")},
        "slice_bytes": sum(stream["slice_bytes"] for stream in own["streams"].values()),
        "waiting_bytes": sum(stream["waiting_bytes"] for stream in own["streams"].values()),
        "behind_ms": {name: newest[name] - (stream["closed_ms"] or 0) for name, stream in own["streams"].items()},
        "queries": len(own["queries"]),
        "network": answer.fields.get("network", {}),
        "clients": answer.fields.get("clients", {}),
        "reads_of_other_nodes": own.get("reads_of_other_nodes", {}),
        "disk": {name: own["durability"][name] for name in _OF_A_DISK if name in own["durability"]},
    }


def _stream(name: str, me: int, facts: Mapping[int, Facts], answers: Mapping[int, Packet]) -> Facts:
    of_nodes = [one["streams"][name] for one in facts.values() if name in one["streams"]]

    def once(what: str) -> int:
        places = [(one, one.fields["streams"].index(name)) for one in answers.values() if name in one.fields["streams"]]
        counts = [answer.arrays.get(f"{what} {place}", _NOT_TOLD) for answer, place in places]
        return int(np.max(counts, axis=0).sum()) if counts else 0

    def most(key: str) -> int:  # nodes of an earlier release do not count what is carried or passed over
        return max(int(one.get(key, 0)) for one in of_nodes)

    return {
        **facts[me]["streams"][name],
        "tuples": once(TUPLES),
        **{key: most(key) for key in ("slices", "arrivals", "tuples_not_indexed", "carried", "passed_over")},
        "late": most("late") + once(LATE_SIGNS),
        "dropped": most("dropped") + once(DROPPED_SIGNS),
        **{key: sum(one[key] for one in of_nodes) for key in ("slice_bytes", "slices_evicted", "waiting_bytes")},
    }


def _held_back_by(of_nodes: Sequence[Mapping[str, int | None]]) -> dict[str, int | None]:
    """Return the streams that hold others back on some node, as the node says that has least of them."""
    found: dict[str, int | None] = {}
    for name, ms in (item for one in of_nodes for item in one.items()):
        known = found.get(name, ms)
        found[name] = None if ms is None or known is None else min(ms, known)
    return found


def _at(facts: Facts, path: tuple[str, ...]) -> int:
    found: Any = facts
    for name in path:
        found = found[name]
    return int(found)
