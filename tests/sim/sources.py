"""Sources: each sends the partitions of a stream to every node, from where that node says it is."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.sim.agenda import Agenda, Network
from tests.sim.data import StreamData
from tests.sim.machine import Machine
from wukongs.protocol.events import Marker, PieceOffered, Submitted
from wukongs.protocol.records import OpenPartition
from wukongs.protocol.sealing import position

BATCH_TIME = 20.0
"""Between two stream batches of one stream."""
RESEND = 18.0
WINDOW = 3
"""Stream batches with something in them that are sent ahead of what a node has acknowledged."""


class Source:
    """One source partition. It keeps everything, and goes back to wherever a node's acknowledgement says."""

    def __init__(
        self,
        data: StreamData,
        partition: str,
        hosts: list[Machine],
        agenda: Agenda,
        network: Network,
        rng: random.Random,
    ) -> None:
        self.data, self.partition, self.hosts = data, partition, hosts
        self.agenda, self.network, self.rng = agenda, network, rng
        self.epoch = 1
        self.drift = rng.uniform(0.8, 1.25)
        self.positions: dict[int, tuple[Any, tuple[int, int, bool]]] = {}
        self.dividers: random.Random | None = None
        """Chooses the node by whose knowledge rows are divided; None: the one that gets them."""
        agenda.after(data.starts + rng.uniform(0, 5), self._tick)

    @property
    def is_done(self) -> bool:
        """Whether all nodes know its end, or one of them that its stream was dropped."""
        key, index = self.data.key, self.data.index
        if key and any(host.control.index >= index and not host.control.takes_in(key) for host in self.hosts):
            return True
        hosts = [host for host in self.hosts if host.takes_part]
        return all(self.positions.get(host.number, (None, (0, 0, False)))[1][2] for host in hosts)

    def _tick(self) -> None:
        for host in self.hosts if self.data.key else ():
            self._send_to(host)
        if self.rng.random() < 0.02:
            self.epoch += 1  # Another writer takes over; what the old one sent may still be on its way.
        self.agenda.after(RESEND * self.drift, self._tick)

    def _send_to(self, host: Machine) -> None:
        _, (offset, closed, is_ended) = self.positions.get(host.number, (None, (0, 0, False)))
        numbers = self.data.numbers[self.partition]
        if is_ended and self.rng.random() < 0.7:  # It may start anew, with less.
            return
        known = int((self.agenda.now - self.data.starts) / (BATCH_TIME * self.drift)) + 1
        if self.partition in self.data.out_of_order:
            self._send_mixed(host, numbers[:known])
            return
        ahead = [batch for batch in numbers[:known] if batch > closed][:WINDOW] or numbers[:known][-1:]
        for batch in ahead:
            end = self.data.ends[self.partition, batch]
            rows = [row for row in self.data.rows[self.partition, batch] if row.offset >= offset]
            cut = self.rng.randint(0, len(rows))
            for part in (rows[:cut], rows[cut:]):
                if part:
                    piece = self._piece(batch, offset, part[-1].offset + 1)
                    self._offer(host, piece, {row.edge for row in part})
                    offset = piece.end_offset
            if batch == ahead[-1] or self.rng.random() < 0.6:
                self._offer(host, self._marker(batch, offset, end), set())
                offset = end

    def _send_mixed(self, host: Machine, known: list[int]) -> None:
        """Send rows that come out of order, those of stream batches that have begun. Rows that the node has inserted
        before it restarted are passed over: what is said so counts for that life of it only."""
        stamp, (offset, closed, _) = self.positions.get(host.number, (None, (0, 0, False)))
        life = None if stamp is None else stamp[0]
        numbers = self.data.numbers[self.partition]
        ahead = [(row, batch) for row, batch in self.data.arrivals(self.partition) if row.offset >= offset]
        for count, (row, batch) in enumerate(ahead):
            if batch not in known or count == 3 * WINDOW:
                break
            if batch <= closed:
                continue
            self._offer(host, self._piece(batch, offset, row.offset + 1, numbers[0] - 1), {row.edge}, life)
            offset = row.offset + 1
            if self.rng.random() < 0.4:
                self._close_mixed(host, known, offset, offset, life)
        passed = [row.offset + 1 for row, batch in ahead if batch <= closed]
        whole = all(batch <= closed or row.offset < offset for row, batch in ahead)
        end = max([offset, *passed]) if whole else offset
        if whole and known == numbers:
            end = max(end, self.data.ends[self.partition, numbers[-1]])
        self._close_mixed(host, known, offset, end, life)

    def _close_mixed(self, host: Machine, known: list[int], offset: int, end: int, life: Any) -> None:
        """Close what has all of its rows before an offset."""
        numbers = self.data.numbers[self.partition]
        closed = max((batch for batch in known if self.data.ends[self.partition, batch] <= end), default=numbers[0] - 1)
        is_last = closed == numbers[-1]
        self._offer(host, Marker(self.data.key, self.partition, self.epoch, closed, end, is_last, offset), set(), life)

    def _piece(self, batch: int, offset: int, end_offset: int, after: int | None = None) -> PieceOffered:
        return PieceOffered(self.data.key, self.partition, self.epoch, batch, offset, end_offset, after=after)

    def _marker(self, batch: int, offset: int, end_offset: int) -> Marker:
        """Close a stream batch, or all that are empty behind it as well; or, in its midst, those before it."""
        numbers = self.data.numbers[self.partition]
        is_last = batch == numbers[-1]
        closed = batch
        if not is_last and self.rng.random() < 0.3:
            closed = numbers[numbers.index(batch) + 1] - 1
        elif is_last and self.rng.random() < 0.3 and self.data.rows[self.partition, batch]:
            closed = batch - 1  # The end closes what has rows as well.
        return Marker(self.data.key, self.partition, self.epoch, closed, end_offset, is_last, offset)

    def _offer(self, host: Machine, event: PieceOffered | Marker, edges: set[Any], to: Any = None) -> None:
        """to: the life of the node that is meant, if it may be no other."""

        known = None if self.dividers is None else self.dividers.choice(self.hosts).control

        def answer(life: Any, number: int, where: tuple[int, int, bool]) -> None:
            self.network.send(host.number, self, lambda: self._acknowledged(host, (life, number), where))

        def arrive() -> None:
            if host.is_alive and to not in (None, host.me):
                host.acks += 1  # It says how far this life of it is.
                answer(host.me, host.acks, position(host.node.intakes.get(event.stream), event.partition))
            elif host.is_alive:
                host.offer(event, edges, answer, known or host.control)

        self.network.send(self, host.number, arrive)

    def _acknowledged(self, host: Machine, stamp: Any, where: tuple[int, int, bool]) -> None:
        if host.number not in self.positions or stamp > self.positions[host.number][0]:
            self.positions[host.number] = stamp, where


class LateSource:
    """Asks for a partition of its own in a stream that has begun, waits until all nodes have it, and then begins to
    send: from the first stream batch on that no node has sealed without it. It comes too late if the stream has ended.
    """

    def __init__(
        self,
        data: StreamData,
        partition: str,
        hosts: list[Machine],
        agenda: Agenda,
        rng: random.Random,
        begin: Callable[[int], Source],
    ) -> None:
        self.data, self.partition, self.hosts, self.agenda, self.rng = data, partition, hosts, agenda, rng
        self.begin = begin
        self.positions: dict[int, Any] = {}
        self.is_too_late = False
        self.source: Source | None = None
        agenda.after(rng.uniform(0, 120), self._ask)

    @property
    def is_done(self) -> bool:
        return self.is_too_late or (self.source is not None and self.source.is_done)

    def _ask(self) -> None:
        hosts = [host for host in self.hosts if not host.is_removed]
        streams = [host.control.streams.get(self.data.key) for host in hosts]
        if any(one is not None and one.last_batch is not None for one in streams):
            self.is_too_late = True
        elif all(host.is_alive for host in hosts) and all(
            one is not None and self.partition in one.partitions for one in streams
        ):
            intakes = [host.node.intakes.get(self.data.key) for host in self.hosts if host.takes_part]
            self.source = self.begin(max(intake.sealed if intake else 0 for intake in intakes))
        else:
            if self.data.key:
                self.rng.choice(self.hosts).handle(Submitted(OpenPartition(self.data.key, self.partition)))
            self.agenda.after(RESEND, self._ask)
