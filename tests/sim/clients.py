"""Clients: each loads, updates and reads through any node, tries again elsewhere, and never reads before what it was
told last."""

from __future__ import annotations

import random
from typing import Any

from tests.sim.agenda import Agenda, Network
from tests.sim.data import Edge, edges_of, payload_of, random_edge
from tests.sim.machine import Machine
from wukongs.cluster.draining import is_drained
from wukongs.protocol.events import Submitted
from wukongs.protocol.records import Change, Drain, Record, RemoveNode, Role, Sn
from wukongs.protocol.state import Node

POLL = 9.0
HOPES = 10.0
"""How often an operator asks for what may be possible now."""
PATIENCE = 90.0
"""How long a client waits for a node before it tries another one."""


class Read:
    """One read through a node at its newest SN: every shard is asked of some in-sync replica."""

    def __init__(self, host: Machine, network: Network, rng: random.Random) -> None:
        self.host, self.network, self.me = host, network, host.me
        assert host.node.exposed is not None
        self.sn = host.node.exposed
        self.vts = host.control.vts_at(self.sn)
        self.after = host.control.last_update(self.sn)
        self.parts: dict[int, Any] = {}
        self.shards: dict[int, list[int]] = {}
        synced = host.control.with_role(Role.IN)
        for shard, nodes in enumerate(host.control.shards):
            replicas = sorted(synced.intersection(nodes))
            if replicas:
                self.shards.setdefault(rng.choice(replicas), []).append(shard)
        self.is_possible = sum(map(len, self.shards.values())) == len(host.control.shards)

    def ask(self) -> None:
        for node, shards in self.shards.items():
            if node not in self.parts:
                peer = self.host.peers[node]
                self.network.send(self.host.number, node, lambda p=peer, s=shards: self._serve(p, s))  # type: ignore[misc]

    def _serve(self, peer: Machine, shards: list[int]) -> None:
        if peer.is_alive and (part := peer.read(self.sn, self.vts, shards)) is not None:
            self.network.send(peer.number, self.host.number, lambda: self.parts.setdefault(peer.number, part))

    def answer(self) -> tuple[set[Edge], set[Edge]] | None:
        """Return the out-edges and the in-edges as texts, when all parts are there."""
        if len(self.parts) < len(self.shards) or not self.host.is_alive or self.host.me != self.me:
            return None
        texts = {(hashed, 0): text for _, _, claims in self.parts.values() for hashed, text in claims.items()}
        numbers = {number: text for text, number in self.host.control.exceptions.items()}

        def decode(term: Any) -> str:
            return numbers[term[1]] if term[1] else texts.get(term, f"unknown {term}")

        def edges(side: int) -> set[Edge]:
            return {(decode(s), decode(p), decode(o)) for part in self.parts.values() for s, p, o in part[side]}

        return edges(0), edges(1)


class Client:
    """Does `count` things, one after the other."""

    def __init__(self, name: str, count: int, world: Any, agenda: Agenda, network: Network, rng: random.Random) -> None:
        self.name, self.left, self.world = name, count, world
        self.agenda, self.network, self.rng = agenda, network, rng
        self.session: Sn = Sn(0, 0)
        self.number = 0
        self.kind = ""
        self.host: Machine | None = None
        self.life: Any = None
        self.until = 0.0
        self.read: Read | None = None
        self.submitted: Change | None = None
        agenda.after(rng.uniform(0, 40), self._poll)

    @property
    def is_done(self) -> bool:
        return self.left == 0 and not self.kind

    def _poll(self) -> None:
        if not self.kind and self.left:
            self.left -= 1
            self.kind = self.rng.choice(("load", "update", "update", "read", "read"))
            self.number += self.kind != "read"
            self._turn_to_a_node()
        if self.kind:
            assert self.host is not None
            if not self.host.is_alive or self.host.me != self.life or self.agenda.now > self.until:
                self._turn_to_a_node()
            elif self._go_on():
                self.kind = ""
        self.agenda.after(POLL, self._poll)

    def _turn_to_a_node(self) -> None:
        self.host = self.rng.choice(self.world.hosts)
        self.life, self.until = self.host.me, self.agenda.now + PATIENCE
        self.read = self.submitted = None

    def _go_on(self) -> bool:
        """Do what can be done now; return whether this thing is done."""
        host = self.host
        assert host is not None
        if self.kind == "read":
            return self._answer() is not None
        key = self.name, self.number
        if key in host.sn_of:
            if host.node.exposed is None or host.node.exposed < host.sn_of[key]:
                return False
            self.session = max(self.session, host.sn_of[key])
            self.world.acknowledged(self.name, self.number, host.sn_of[key])
            return True
        if key in host.dropped:
            host.dropped.discard(key)
            self.read = self.submitted = None
        if self.submitted is None:
            self.submitted = self._load() if self.kind == "load" else self._update()
            if self.submitted is not None:
                gone, come = edges_of(self.submitted.payload)
                texts = {text for edge in (*gone, *come) for text in edge}
                host.submit(self.submitted, texts)
        return False

    def _load(self) -> Change | None:
        host = self.host
        assert host is not None
        read = host.node.exposed if host.control.rules else None
        if host.control.rules and read is None:
            return None
        come = tuple(
            sorted({random_edge(self.rng, self.world.terms, self.rng.random()) for _ in range(self.rng.randint(1, 3))})
        )
        return Change(self.name, self.number, payload_of((), come), None, 0, read=read)

    def _update(self) -> Change | None:
        """Count one more than what the snapshot says, and delete something."""
        answer = self._answer()
        if answer is None or self.read is None:
            return None
        outs = sorted(answer[0])
        old = [edge for edge in outs if edge[:2] == ("counter", "p0")]
        value = max((int(edge[2][1:]) for edge in old), default=0)
        others = [edge for edge in outs if edge[0] != "counter"]
        gone = (*old, *([self.rng.choice(others)] if others and self.rng.random() < 0.5 else []))
        payload = payload_of(gone, [("counter", "p0", f"n{value + 1}")])
        assert self.host is not None
        read = self.read.sn if self.host.control.rules else None
        change = Change(self.name, self.number, payload, self.read.after, 0, read=read)
        self.read = None
        return change

    def _answer(self) -> tuple[set[Edge], set[Edge]] | None:
        host = self.host
        assert host is not None
        if self.read is None:
            if host.node.exposed is None or host.node.exposed < self.session:
                return None
            self.read = Read(host, self.network, self.rng)
            if not self.read.is_possible:
                self.read = None
                return None
        answer = self.read.answer()
        if answer is None:
            self.read.ask()
            return None
        self.session = max(self.session, self.read.sn)
        self.world.has_read(host.number, self.name, self.read.sn, self.read.vts, answer)
        if self.kind == "read":
            self.read = None
        return answer


class Operator:
    """Asks for control records, of any node, until they are in the log. hopes: for those that may never be valid it
    asks until some time."""

    def __init__(
        self,
        records: list[tuple[float, Record]],
        world: Any,
        agenda: Agenda,
        rng: random.Random,
        hopes: list[Record],
        until: float,
    ) -> None:
        self.until = until
        self.world, self.agenda, self.rng = world, agenda, rng
        self.left = len(records)
        self.removes = [record.node for record in hopes if isinstance(record, RemoveNode)]
        for delay, record in records:
            agenda.after(delay, lambda record=record: self._ask(record))  # type: ignore[misc]
        for record in hopes:
            agenda.after(HOPES, lambda record=record: self._hope(record))  # type: ignore[misc]

    def _ask(self, record: Record) -> None:
        records = [entry.record for entry, _ in self.world.checkers.entries.values()]
        if record in records or any(_is_instead(record, other) for other in records):
            self.left -= 1
            return
        host = self.rng.choice(self.world.hosts)
        host.handle(Submitted(record))
        self.agenda.after(60, lambda: self._ask(record))

    def _hope(self, record: Record) -> None:
        if self.agenda.now < self.until or isinstance(record, RemoveNode):
            host = self.world.hosts[0]
            if isinstance(record, RemoveNode):
                host = self._newest(record.node)
                self._stop(record.node, host.node)
            host.handle(Submitted(record))
            self.agenda.after(HOPES, lambda: self._hope(record))

    @property
    def is_removing(self) -> bool:
        """Whether a node that holds nothing any more is still to be removed."""
        controls = {node: self._newest(node).control for node in self.removes}
        return any(not at.holds(node) and not at.members[node].is_removed for node, at in controls.items())

    def _newest(self, node: int) -> Any:
        """Return the machine, but for one node's, that knows most of the log."""
        others = [host for host in self.world.hosts if host.number != node]
        return max(others, key=lambda host: (host.takes_part, host.control.index))

    def _stop(self, node: int, newest: Node) -> None:
        """Stop a node that holds nothing any more for some time, so that it may be removed."""
        host = self.world.hosts[node]
        if is_drained(newest, node) and newest.control.members[node].role is Role.IN and host.is_alive:
            host.crash()
            self.agenda.after(8 * HOPES, lambda: None if host.is_alive else host.start())


def _is_instead(record: Record, other: Record) -> bool:
    """Whether a record can never be in the log, since a leader has used its spare nodes, or drained its node."""
    is_drain = isinstance(record, Drain) and isinstance(other, Drain)
    return is_drain and (record.node == other.node or bool(set(record.to) & set(other.to)))  # type: ignore[union-attr]
