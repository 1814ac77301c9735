"""Readers and writers that go by leases (wukongs/protocol/leases.py), while nodes pause and clocks drift.

Two things must hold. A read that begins after a write was acknowledged sees it, on whatever node with a lease. A read
that begins after another read has returned sees what that one has seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.sim.agenda import Agenda, Network
from tests.sim.data import payload_of, random_edge
from tests.sim.machine import Machine
from wukongs.protocol import leasing
from wukongs.protocol.control import THE_FIRST
from wukongs.protocol.events import LeaseAsked
from wukongs.protocol.leases import DRIFT
from wukongs.protocol.log import LogRole
from wukongs.protocol.records import Change, Role, Sn

LEASE_MS = 1000
"""Ten pulses: a node is taken out after twelve."""
POLL = 4.0
PATIENCE = 60.0
ACTORS = 4


class Leased:
    """The readers and writers of one run. fail: is called with what must not be, and the nodes concerned."""

    def __init__(
        self,
        hosts: list[Machine],
        terms: list[str],
        agenda: Agenda,
        network: Network,
        rng: random.Random,
        until: float,
        fail: Callable[[str, list[int]], None],
    ) -> None:
        self.hosts, self.terms, self.agenda, self.network, self.rng = hosts, terms, agenda, network, rng
        self.until, self.fail = until, fail
        self.told: list[tuple[float, Sn, str]] = []
        """When an SN was acknowledged to a writer, or returned to a reader."""
        self.reads = self.writes = 0
        for host in hosts:
            host.clock_rate = rng.uniform(1 - DRIFT / 2.2, 1 + DRIFT / 2.2)
        for _ in range(rng.choice((0, 2, 4))):
            agenda.after(rng.uniform(30, until), self._pause)
        for _ in range(rng.choice((0, 1, 2))):
            agenda.after(rng.uniform(50, until), self._isolate)
        for number in range(ACTORS):
            agenda.after(rng.uniform(20, 60), lambda number=number: self._turn(number, 1))  # type: ignore[misc]

    def _pause(self) -> None:
        self.rng.choice(self.hosts).pause(self.rng.choice((5, 40, 95, 105, 150)))

    def _isolate(self) -> None:
        """Cut one node off from all others, most often the one that leads, or from some of them."""
        leaders = [host for host in self.hosts if host.node.log.standing is LogRole.LEADER]
        some = leaders if leaders and self.rng.random() < 0.7 else self.hosts
        alone = self.rng.choice(some)
        others = [host.number for host in self.hosts if host is not alone]
        if len(others) > 1 and self.rng.random() < 0.4:
            others = self.rng.sample(others, len(others) - 1)
        pairs = {pair for other in others for pair in ((alone.number, other), (other, alone.number))}
        self.network.blocked |= pairs
        self.agenda.after(self.rng.uniform(30, 150), lambda: self.network.blocked.difference_update(pairs))

    def _turn(self, actor: int, number: int) -> None:
        if self.agenda.now > self.until:
            return
        host = self.rng.choice(self.hosts)
        if self.rng.random() < 0.4:
            self._write(host, f"leased {actor}", number)
        else:
            self._read(host)
        self.agenda.after(self.rng.uniform(1, 15), lambda: self._turn(actor, number + 1))

    def _write(self, host: Machine, client: str, number: int) -> None:
        edge = random_edge(self.rng, self.terms, self.rng.random())
        change, until = Change(client, number, payload_of((), [edge]), None, 0), self.agenda.now + PATIENCE

        def look() -> None:
            sn = host.sn_of.get((client, number))
            if sn is not None and host.exposed is not None and host.exposed >= sn:
                self._await(host, sn, f"the write {client} {number}")
            elif self.agenda.now < until:
                self.agenda.after(POLL, host.alive(look))

        if host.is_alive and not host.control.rules:
            host.submit(change, set(edge))
            host.alive(look)()

    def _read(self, host: Machine) -> None:
        began = self.agenda.now
        if not host.is_alive or host.is_paused or host.host.lease_left_s <= 0:
            return

        def pick() -> None:
            sn = THE_FIRST if host.exposed is None else host.exposed
            for time, other, what in self.told:
                if time <= began and other > sn:
                    read = f"a read at node {host.number} from {began:.1f} on, at {sn}"
                    self.fail(f"{read}, misses {what} at {other}, told at {time:.1f}", [host.number])
            self.reads += 1
            newest = [mark.sn for mark in host.control.marks if mark.sn <= sn]
            if newest:
                self._await(host, newest[-1], f"what a read at node {host.number} has seen")

        self.agenda.after(self.rng.uniform(0, 2), host.awake(pick))

    def _await(self, host: Machine, sn: Sn, what: str) -> None:
        """Wait until all that hold leases have exposed an SN; note it then as told."""
        exposure, until = leasing.Exposure({host.number}), self.agenda.now + 3 * PATIENCE

        def ask_node(peer: Machine) -> None:
            if peer.is_alive and peer.node.role is Role.IN and peer.exposed is not None and peer.exposed >= sn:
                self.network.send(peer.number, host.number, lambda: exposure.seen.add(peer.number))

        def ask_leader(peer: Machine) -> None:
            if peer.is_alive:
                peer.handle(LeaseAsked(sn, peer.host.now_ms()))
                said = leasing.leader_says(peer.node, sn) if peer.is_alive else None
                nodes = list(host.control.nodes)
                self.network.send(peer.number, host.number, lambda: exposure.hear(said, nodes))

        def send(peer: Machine, asked: Callable[[Machine], None]) -> None:
            self.network.send(host.number, peer.number, peer.awake(lambda: asked(peer)))

        def look() -> None:
            left = exposure.left(host.control)
            if not left:
                self.told.append((self.agenda.now, sn, what))
                self.writes += "write" in what
                return
            for node in sorted(left):
                send(self.hosts[node], ask_node)
            leader: Any = host.node.log.leader
            if leader is not None:
                send(self.hosts[leader], ask_leader)
            if self.agenda.now < until:
                self.agenda.after(POLL, host.awake(look))

        host.awake(look)()
