"""One seeded run: nodes, sources, clients, a network, what goes wrong; then everything heals, and all must agree."""

from __future__ import annotations

import random
import traceback
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.sim.agenda import Agenda, Network
from tests.sim.checkers import Checkers, Violation
from tests.sim.clients import Client, Operator
from tests.sim.data import StreamData, join, mix, random_stream, random_streams, random_terms
from tests.sim.homes import NAME, TAKING
from tests.sim.leased import LEASE_MS, Leased
from tests.sim.machine import Machine
from tests.sim.ruled import Ruled
from tests.sim.sources import LateSource, Source
from wukongs.protocol.leading import seats
from wukongs.protocol.records import (
    LIVE,
    AddNode,
    AlterQuery,
    DeclareStream,
    Drain,
    DropQuery,
    DropStream,
    Record,
    RegisterQuery,
    RemoveNode,
    Role,
)
from wukongs.protocol.state import Cluster

DURATION = 260.0
MIXED_FROM = 1000
"""From this seed on rows may come out of order; the lives before are those that mutants and rare failures name."""
GROWING_FROM = 2000
"""From this seed on there are spare nodes that take others' places."""
ADDING_FROM = 4000
"""From this seed on some of these were not named at the beginning, and nodes that were drained may be taken off."""
RULED_FROM = 1_000_000
"""From this seed on there are rules at times."""
LEASED_FROM = 3_000_000
"""From this seed on reads need a lease."""
UNLEASED = range(7_000_000, 8_000_000)
"""But not here: mutants and rare failures name these lives."""
WRITING_FROM, PARTIAL_SHARE = 2_000_000, 0.5
"""From this seed on, so many of the nodes that have taken over what others hold take time to write it down."""
"""How long things may go wrong."""
HEALING = 4000.0
"""How long a healed cluster has to agree, at most."""
STORY_EVENTS = 60


@dataclass(frozen=True)
class Weather:
    """What goes wrong in a run. crash_share: of the steps that end in a crash; restart_share: of the dead nodes that
    start again, each 50 units of time; the others: how many of each."""

    is_lossy: bool = True
    crash_share: float = 0.0
    restart_share: float = 0.4
    crashes: int = 0
    cuts: int = 0
    disks: int = 0


WEATHERS = (
    Weather(is_lossy=False),
    Weather(),
    Weather(crash_share=0.004, crashes=2),
    Weather(crashes=4, cuts=1, restart_share=0.15),
    Weather(cuts=4),
    Weather(disks=3, restart_share=0.8),
    Weather(disks=4, restart_share=0.8),
    Weather(disks=3, crashes=1, cuts=1, restart_share=0.7),
    Weather(is_lossy=False, disks=4, crash_share=0.002, restart_share=0.7),
)


@dataclass
class Report:
    """seed, and what went wrong, if anything; story: the last events of the nodes concerned."""

    seed: int
    failure: str | None
    story: str
    ended: float
    messages: int


class World:
    def __init__(self, seed: int, node_count: int | None = None) -> None:
        self.seed = seed
        rng = self.rng = random.Random(seed)
        count = node_count or rng.choice((1, 2, 3, 3, 3, 3, 4, 4, 5, 5))
        self.weather = rng.choice(WEATHERS)
        self.growing = random.Random(f"spares {seed}")
        self.spares = self.growing.choice((1, 1, 2, 3)) if seed >= GROWING_FROM else 0
        self.adding = random.Random(f"added {seed}")
        self.added = self.adding.randint(1, self.spares) if seed >= ADDING_FROM else 0
        self.cluster = self._cluster(count)
        count += self.spares
        self.agenda = Agenda()
        self.network = Network(self.agenda, rng)
        self.events: deque[tuple[float, int, str, dict[str, Any]]] = deque(maxlen=5000)
        self.hosts: list[Machine] = []
        self.terms = random_terms(rng)
        self.streams = random_streams(rng, self.terms, DURATION)
        dropping = self._dropping()
        self._mix()
        ruling = random.Random(f"rules {seed}")
        for stream in self.streams if seed >= RULED_FROM else ():
            stream.is_timing = stream.group != LIVE or ruling.random() < 0.25
        self.checkers = Checkers(self.streams, self.hosts)
        self.hosts += [Machine(n, self.cluster, self.agenda, self.network, rng, self.tell) for n in range(count)]
        for host in self.hosts if seed >= WRITING_FROM else ():
            host.partial_share = PARTIAL_SHARE
        self.checkers.start()
        for host in self.hosts:
            host.peers = self.hosts
        self.sources: list[Source | LateSource] = [
            Source(stream, name, self.hosts, self.agenda, self.network, rng)
            for stream in self.streams
            for name in stream.partitions
        ]
        self._plan_late_sources()
        for source in self.sources if self.spares else ():
            if isinstance(source, Source):
                source.dividers = random.Random(f"dividers {seed} {source.data.name} {source.partition}")
        self.clients = [
            Client(f"client {n}", rng.randint(2, 6), self, self.agenda, self.network, rng)
            for n in range(rng.randint(1, 3))
        ]
        records, drains = self._records() + dropping + self._homes(), self._drains()
        hopes = self._hopes([record for _, record in drains])
        self.operator = Operator([*records, *drains, *self._adds()], self, self.agenda, rng, hopes, DURATION)
        self._plan_faults()
        self.leased: Leased | None = None
        if self.is_leased:
            leasing = random.Random(f"leases {seed}")
            args = self.hosts, self.terms, self.agenda, self.network, leasing, DURATION, self._fail
            self.leased = Leased(*args)
        self.ruled: Ruled | None = None
        if seed >= RULED_FROM:
            self.ruled = Ruled(self.hosts, self.checkers.entries, self.agenda, ruling, DURATION)

    @property
    def is_leased(self) -> bool:
        """Whether reads need a lease in this life."""
        return self.seed >= LEASED_FROM and self.seed not in UNLEASED

    def _cluster(self, count: int) -> Cluster:
        """Return a random cluster. loses_nothing: no shard's only disk is lost, and with it what nobody sends again (a
        dropped stream, a record that was cut off the log)."""
        rng = self.rng
        replicas = rng.choice((1, 2, 2, 3))
        self.loses_nothing = min(replicas, count) > 1 or not self.weather.disks
        entries_max = rng.choice((3, 8, 1000)) if self.loses_nothing else 1000
        quiet = random.Random(f"pulses {self.seed}").choice((1, 2, 3))
        shards, voters = rng.choice((count, 8)), rng.choice((3, 5))
        replace_pulses_max = self.growing.choice((None, 24)) if self.spares else None
        return Cluster(
            count + self.spares - self.added,
            replicas,
            shards,
            voters,
            12,
            entries_max,
            election_pulses=3 + 2 * quiet,
            quiet_pulses=quiet,
            spare_count=self.spares - self.added,
            replace_pulses_max=replace_pulses_max,
            lease_ms=LEASE_MS if self.is_leased else 0,
        )

    def _hopes(self, drains: list[Drain]) -> list[Record]:
        """Return what may be possible later: that a node that was drained takes the place of another one."""
        used = {node for record in drains for node in (record.node, *record.to)}
        left = [host.number for host in self.hosts if host.number not in used] or sorted(used)
        again: list[Record] = [Drain(self.growing.choice(left), (record.node,)) for record in drains]
        if not self.added:
            return again
        return [
            RemoveNode(record.node) if self.adding.random() < 0.6 else one
            for record, one in zip(drains, again, strict=True)
        ]

    def _adds(self) -> list[tuple[float, AddNode]]:
        """Return when nodes are added."""
        first = len(self.hosts) - self.added
        added = [AddNode(node, f"peers {node}", f"clients {node}") for node in range(first, len(self.hosts))]
        return [(self.adding.uniform(0, DURATION / 2), record) for record in added]

    def _drains(self) -> list[tuple[float, Drain]]:
        """Return when nodes are drained: each to other spare ones."""
        if not self.spares:
            return []
        rng, count = self.growing, len(self.hosts)
        first = count - self.spares
        spares = rng.sample(range(first, count), self.spares)
        drained = rng.sample(range(first), min(rng.choice((1, 1, 2)), first, self.spares))
        shares = [tuple(sorted(spares[place :: len(drained)])) for place in range(len(drained))]
        return [(rng.uniform(20, DURATION), Drain(node, to)) for node, to in zip(drained, shares, strict=True)]

    def _mix(self) -> None:
        """Let the rows of some partitions come out of order."""
        own = random.Random(f"out of order {self.seed}")
        for stream in self.streams if self.seed >= MIXED_FROM else ():
            for partition in stream.partitions:
                if own.random() < 0.5:
                    mix(stream, partition, own)

    def _dropping(self) -> list[tuple[float, Record]]:
        """Return when the last stream is dropped, if it is. Another one may be declared under its name."""
        rng, dropped = self.rng, self.streams[-1]
        if len(self.streams) == 1 or not self.loses_nothing or rng.random() < 0.5:
            return []
        when = rng.uniform(60, DURATION + 60)
        if rng.random() < 0.6:
            first = min(numbers[0] for numbers in dropped.numbers.values())
            epoch, starts = first * dropped.batch_ticks, when + rng.uniform(1, 40)
            another = random_stream(rng, dropped.name, self.terms, epoch, starts)
            another.replaces = dropped.name
            self.streams.append(another)
        return [(when, DropStream(dropped.name))]

    def _records(self) -> list[tuple[float, Record]]:
        rng = self.rng
        records: list[tuple[float, Record]] = [
            (max(0.0, stream.starts - rng.uniform(-20, 40)), _declaration(stream)) for stream in self.streams
        ]
        nodes = tuple(sorted(rng.sample(range(len(self.hosts)), min(2, len(self.hosts)))))
        when, read = rng.uniform(60, DURATION), (self.streams[0].name,)
        records.append((when, RegisterQuery("q", read, nodes)))
        if rng.random() < 0.5:
            return [*records, (DURATION + 50, DropQuery("q"))]
        other = random.Random(f"other texts {self.seed}")  # some come before the query or their turn, and again later
        numbers = range(1, 1 + other.choice((0, 2, 3)))
        altered = [(other.uniform(60, DURATION), AlterQuery("q", read, f"text {number}", number)) for number in numbers]
        return [*records, *altered]

    def _homes(self) -> list[tuple[float, Record]]:
        """Return when queries are registered whose windows are looked at, each at one node."""
        own, data = random.Random(f"homes {self.seed}"), self.streams[0]
        if data.group != LIVE:
            return []
        nodes = [own.randrange(len(self.hosts)) for _ in range(own.choice((1, 2)))]
        if self.weather.disks:
            for _ in range(own.choice((1, 2))):
                self.agenda.after(own.uniform(60, DURATION * 0.8), self._lose_home)
        return [
            (own.uniform(5, 80), RegisterQuery(f"{NAME}{number}", (data.name,), (node,)))
            for number, node in enumerate(nodes)
        ]

    def _plan_late_sources(self) -> None:
        """Let partitions join the first stream, sometimes."""
        rng, data = random.Random(f"late sources {self.seed}"), self.streams[0]

        def begin(name: str, after: int) -> Source:
            join(data, name, after, rng, self.terms)
            return Source(data, name, self.hosts, self.agenda, self.network, rng)

        for name in ("late", "later")[: rng.choice((0, 0, 0, 1, 1, 2))]:
            start = partial(begin, name)
            self.sources.append(LateSource(data, name, self.hosts, self.agenda, rng, start))

    def tell(self, node: int, kind: str, **details: Any) -> None:
        self.events.append((self.agenda.now, node, kind, details))
        self.checkers.tell(node, kind, details)

    def has_read(self, node: int, client: str, sn: Any, vts: Any, answer: Any) -> None:
        self.events.append((self.agenda.now, node, "answer", {"client": client, "sn": sn}))
        self.checkers.reads.append((node, client, sn, vts, answer))

    def acknowledged(self, client: str, number: int, sn: Any) -> None:
        self.checkers.acknowledged.append((client, number, sn))

    def run(self) -> Report:
        failure, nodes = None, set(range(len(self.hosts)))
        try:
            self.agenda.run(DURATION)
            self._heal()
            self.agenda.run(DURATION + HEALING, self._is_over)
            if not self._is_over():
                raise Violation(f"no agreement after healing: {self._state()}", nodes)
            self.agenda.run(self.agenda.now + 2 * TAKING)
            self.checkers.at_end(self.terms)
            self._check_queries()
        except Violation as violation:
            failure, nodes = str(violation), violation.nodes or nodes
        except Exception:
            failure = traceback.format_exc()
        story = "" if failure is None else self._story(nodes)
        return Report(self.seed, failure, story, self.agenda.now, self.network.sent)

    def _fail(self, reason: str, nodes: list[int]) -> None:
        raise Violation(reason, nodes)

    def _check_queries(self) -> None:
        """All nodes agree on what a query is, wherever they stand in the log."""
        told: dict[int, Any] = {}
        for host in self.hosts:
            control = host.control
            if told.setdefault(control.index, control.queries) != control.queries:
                raise Violation(f"nodes know other queries at index {control.index}", {host.number})

    def _is_over(self) -> bool:
        if (
            self.operator.left
            or (self.ruled is not None and self.ruled.left)
            or self.operator.is_removing
            or not all(done.is_done for done in (*self.clients, *self.sources))
        ):
            return False
        last = {stream.key: stream.last for stream in self.streams if stream.key not in self.checkers.gone}
        hosts = [host for host in self.hosts if host.takes_part]
        sns = {host.node.exposed for host in hosts}
        return len(sns) == 1 and all(
            host.node.role is Role.IN
            and not host.control.drains
            and host.node.progress.stable == last
            and self.checkers.meaning[host.node.exposed] == last
            for host in hosts
        )

    def _state(self) -> str:
        lines = [
            f"node {h.number} {h.node.role.value} {'up' if h.is_alive else 'down'} {h.node.log.standing.value} "
            f"term {h.node.log.term} commit {h.node.log.commit}/{h.node.log.last} exposed {h.node.exposed} "
            f"vts {dict(h.node.vts)} stable {dict(h.node.progress.stable)} claims {dict(h.node.claims)} "
            f"pending {list(h.node.pending)}"
            for h in self.hosts
        ]
        lines += [f"{c.name}: {c.left} left, {c.kind}, {c.number}" for c in self.clients if not c.is_done]
        lines += [f"source {s.data.name} {s.partition} {s.positions}" for s in self.sources if not s.is_done]
        return f"operator {self.operator.left}\n  " + "\n  ".join(lines)

    def _story(self, nodes: set[int]) -> str:
        told = [event for event in self.events if event[1] in nodes][-STORY_EVENTS:]
        return "\n".join(
            f"{now:7.1f}  node {node}  {kind:8} " + " ".join(f"{name}={value}" for name, value in details.items())
            for now, node, kind, details in told
        )

    def _plan_faults(self) -> None:
        rng, network = self.rng, self.network
        weather = self.weather
        if weather.is_lossy and rng.random() < 0.7:
            network.loss, network.repeats, network.slow = (
                rng.choice((0, 0.05, 0.2)),
                rng.choice((0, 0.1)),
                rng.choice((0, 0.1)),
            )
        for host in self.hosts:
            host.crash_share = rng.choice((0.0, weather.crash_share))
        faults = [self._crash] * weather.crashes + [self._cut] * weather.cuts + [self._lose_disk] * weather.disks
        for fault in faults:
            self.agenda.after(rng.uniform(20, DURATION * 0.8), fault)
        self.agenda.after(50, self._restart_dead)

    def _restart_dead(self) -> None:
        """Restart what has crashed, some time later."""
        for host in self.hosts:
            if not host.is_alive and self.rng.random() < self.weather.restart_share:
                host.start()
        if self.agenda.now < DURATION:
            self.agenda.after(50, self._restart_dead)

    def _crash(self) -> None:
        host = self.rng.choice(self.hosts)
        if host.is_alive:
            host.crash()

    def _lose_home(self) -> None:
        """Let the home of a query lose its disk."""
        homes = [self.hosts[placed[-1][1][0]] for placed in self.checkers.placed.values()]
        if homes:
            self._lose_disk(homes[0])

    def _lose_disk(self, host: Machine | None = None) -> None:
        """Let a node, or some node, lose its disk; not while another one is on its way back from that, nor a
        majority's."""
        host = host or self.rng.choice(self.hosts)
        voters = self.cluster.first_voters
        lost = [h for h in self.hosts if self.checkers.roles[h.number][1] != h.disk.generation]
        others = [h for h in self.hosts if h is not host and h.takes_part]
        others_in = all(self.checkers.roles[h.number][0] is Role.IN for h in others)
        if lost or not others_in or len(self.hosts) == 1:
            return
        for node in (h.node for h in self.hosts):
            voting = {voter.node for voter in node.log.voters}
            if len(voting) < len(voters):
                return  # An earlier one does not vote again yet.
            if len(voters) < 3 and host.number in voting.union(seats(node.log, node.control)):
                return
        host.crash(loses_disk=True)

    def _cut(self) -> None:
        """Cut some nodes off, in one direction or both."""
        rng = self.rng
        numbers = [host.number for host in self.hosts]
        some = set(rng.sample(numbers, rng.randint(1, max(1, len(numbers) // 2))))
        pairs = {(a, b) for a in some for b in numbers if b not in some}
        if rng.random() < 0.6:
            pairs |= {(b, a) for a, b in pairs}
        self.network.blocked |= pairs
        self.agenda.after(rng.uniform(30, 180), lambda: self.network.blocked.difference_update(pairs))

    def _heal(self) -> None:
        self.network.heal()
        for host in self.hosts:
            host.crash_share = 0.0
            if not host.is_alive:
                host.start()


def _declaration(data: StreamData) -> DeclareStream:
    how = data.batch_ticks, data.group, data.first_tick
    return DeclareStream(data.name, data.partitions, *how, data.options, data.replaces)
