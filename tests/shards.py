"""Engines that share one graph, in one process: what a cluster reads by, without sockets, streams and agreement.

One engine, the oracle, holds everything. `share` gives each node what has changed there since: the tuples that the
placement rule puts on it, at the oracle's snapshot numbers, with the texts of just these tuples.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

import wukongs
from tests.inside import core_of
from wukongs.cluster.reads.owner import handlers
from wukongs.cluster.reads.reach import OwnersReach
from wukongs.cluster.reads.traffic import Owners
from wukongs.csparql.parser_update import parse_update
from wukongs.csparql.terms import RDF, iri
from wukongs.errors import NodeUnavailable
from wukongs.live.core import Core
from wukongs.live.update import evaluated
from wukongs.query.limits import Limits
from wukongs.settings import Settings
from wukongs.store.dtypes import INLINE_MARK, BoolArray, Int32Array, Int64Array
from wukongs.store.encoded import TermTable
from wukongs.store.quads import Quads, is_held, joined, taken
from wukongs.wire.answering import Quick
from wukongs.wire.assignment import SHARD_COUNT, Assignment, shards_of
from wukongs.wire.packets import Handler, Packet


def copied(packet: Packet) -> Packet:
    """The packet as it comes over the wire."""
    return Packet(packet.kind, json.loads(json.dumps(packet.fields)), {k: a.copy() for k, a in packet.arrays.items()})


@dataclass
class DirectPeers:
    """Peers whose handlers are called, those for quick answers first; `lies`: (asked node, its answer) -> what is
    answered in its place."""

    me: int
    handlers: Sequence[Mapping[str, Handler]]
    quick: Sequence[Mapping[str, Quick]]
    silent: set[int] = field(default_factory=set)
    lies: Callable[[int, Packet], Packet] | None = None
    asked: list[tuple[int, Packet]] = field(default_factory=list)
    quick_count: int = 0

    def ask(self, asked: Sequence[tuple[int, Packet]], timeout_s: float) -> list[Packet]:
        assert timeout_s > 0
        self.asked += asked
        return [self._answer(node, packet) for node, packet in asked]

    def quickly(self, node: int, packet: Packet) -> Packet | None:
        """What a node answers at once."""
        replies: list[Packet] = []
        take = self.quick[node].get(packet.kind)
        assert (take is not None and take(packet, replies.append)) == bool(replies)
        return replies[0] if replies else None

    def _answer(self, node: int, packet: Packet) -> Packet:
        assert node != self.me, "a node does not ask itself"
        if node in self.silent:
            raise NodeUnavailable(f"node {node} does not answer")
        quickly = self.quickly(node, copied(packet))
        if quickly is not None:
            self.quick_count += 1
        answer = copied(quickly or self.handlers[node][packet.kind](copied(packet)))
        return answer if self.lies is None else self.lies(node, answer)


def wait_for_sn(core: Core, sn: int, timeout_s: float) -> None:
    end_s = time.monotonic() + timeout_s
    with core.changed:
        while core.sn < sn:
            if time.monotonic() > end_s:
                raise NodeUnavailable(f"SN {sn} is not there after {timeout_s:g} s")
            core.changed.wait(0.002)


class Shards:
    """count nodes with so many replicas of each shard; split: predicates, as IRIs."""

    def __init__(
        self, count: int, replicas: int = 1, settings: Settings | None = None, split: Iterable[str] = (RDF + "type",)
    ) -> None:
        self.settings = settings or Settings()
        self.whole = wukongs.Engine(settings=self.settings)
        self.nodes = [wukongs.Engine(settings=self.settings) for _ in range(count)]
        self.replicas = (np.arange(SHARD_COUNT)[:, None] + np.arange(replicas)) % count
        """The nodes of each shard. int64[SHARD_COUNT, replicas]"""
        self._split = [iri(name).text for name in split]
        made = [handlers(core_of(engine), partial(wait_for_sn, core_of(engine))) for engine in self.nodes]
        self.peers = [DirectPeers(me, *zip(*made, strict=True)) for me in range(count)]
        for me, engine in enumerate(self.nodes):
            owners = Owners(self.peers[me], lambda me=me: self.assignment(me))
            core_of(engine).reach = OwnersReach(core_of(engine).registry, owners)

    @property
    def split_ids(self) -> frozenset[int]:
        return frozenset(map(self.core.registry.resolve, self._split))

    @property
    def core(self) -> Core:
        return core_of(self.whole)

    def assignment(self, me: int) -> Assignment:
        nodes: Int32Array = np.where((self.replicas == me).any(axis=1), me, self.replicas[:, 0]).astype(np.int32)
        return Assignment(nodes, me, self.split_ids)

    def held_by(self, node: int, quads: Quads) -> BoolArray:
        """Tell which tuples the placement rule puts on a node."""
        _, subjects, predicates, objects = quads
        holds = (self.replicas == node).any(axis=1)
        is_split = np.isin(predicates, list(self.split_ids))
        return holds[shards_of(subjects)] | (holds[shards_of(objects)] & ~is_split)

    def share(self) -> None:
        """Give all nodes what has changed in the whole engine since."""
        trace = self.core.arrangement.trace
        now = all_quads(self.core)
        for number, engine in enumerate(self.nodes):
            core = core_of(engine)
            with core.lock:
                held = core.arrangement.trace.read(core.sn)
                own = taken(now, self.held_by(number, now))
                before = all_quads(core)
                gone = taken(before, ~np.isin(_keys(before), _keys(own)))
                come = taken(own, ~is_held(held, own))
                self._tell_terms(core, come)
                sn = trace.upper - 1
                if len(come[0]) or len(gone[0]):
                    core.arrangement.apply(sn, gone, come)
                core.pass_to(trace.upper)

    def _tell_terms(self, core: Core, quads: Quads) -> None:
        core.registry.restore_exceptions(self.core.registry.exception_records(0))
        ids = np.unique(np.concatenate(quads))
        ids = ids[(ids & INLINE_MARK == 0) & (ids > 0)]
        ids = ids[~core.registry.persistent.contains(ids)]
        texts = [text.encode() for text in self.core.registry.texts(ids)]
        refused = core.registry.persistent.add(TermTable.of(ids, texts))
        assert not len(refused), refused

    @property
    def requests(self) -> int:
        return sum(len(peers.asked) for peers in self.peers)

    def evaluated(self, node: int, text: str) -> tuple[Quads, Quads, Int64Array]:
        """The changes of the next update, evaluated on a node: quads that go, quads that come, cleared graphs."""
        core = core_of(self.nodes[node])
        core.load_count = self.core.load_count
        with evaluated(core, parse_update(text).operations, Limits()) as (_, _, change):
            return change.gone, change.come, change.cleared

    def load(self, text: str | bytes, format: str = "trig") -> None:
        data = text.encode() if isinstance(text, str) else text
        self.whole.load(io.BytesIO(data), format=format)
        self.share()

    def close(self) -> None:
        for engine in (self.whole, *self.nodes):
            engine.close()

    def __enter__(self) -> Shards:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def all_quads(core: Core) -> Quads:
    """All that a core sees at its newest SN."""
    stored = core.arrangement.trace.read(core.sn)
    parts: list[Quads] = []
    for graph in stored.graphs.tolist():
        for subjects, predicate, objects in stored.triples(graph):
            parts.append((np.full(len(subjects), graph), subjects, np.full(len(subjects), predicate), objects))
    return joined(parts)


def _keys(quads: Quads) -> Int64Array:
    """One comparable value for each quad."""
    rows = np.ascontiguousarray(np.stack(quads, axis=1))
    return rows.view([("", np.int64)] * 4).reshape(-1)
