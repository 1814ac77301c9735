"""Sources: each sends the partitions of a stream to every node, from where that node says it is."""

from __future__ import annotations

import random
from typing import Any

from tests.sim.agenda import Agenda, Network
from tests.sim.data import Row, StreamData
from tests.sim.host import Host
from wukongs.protocol.events import Marker, Piece

BATCH_TIME = 20.0
"""Between two stream batches of one stream."""
RESEND = 18.0
WINDOW = 3
"""Stream batches sent ahead of what a node has acknowledged."""


class Source:
    """One source partition. It keeps everything, and goes back to wherever a node's acknowledgement says."""

    def __init__(
        self,
        data: StreamData,
        partition: str,
        hosts: list[Host],
        agenda: Agenda,
        network: Network,
        rng: random.Random,
    ) -> None:
        self.data, self.partition, self.hosts = data, partition, hosts
        self.agenda, self.network, self.rng = agenda, network, rng
        self.epoch = 1
        self.drift = rng.uniform(0.8, 1.25)
        self.positions: dict[int, tuple[Any, tuple[int, int, bool]]] = {}
        agenda.after(data.starts + rng.uniform(0, 5), self._tick)

    def rows(self, batch: int) -> list[Row]:
        return self.data.rows[self.partition, batch]

    @property
    def is_done(self) -> bool:
        return all(self.positions.get(host.number, (None, (0, 0, False)))[1][2] for host in self.hosts)

    def _tick(self) -> None:
        for host in self.hosts:
            self._send_to(host)
        if self.rng.random() < 0.02:
            self.epoch += 1  # Another writer takes over; what the old one sent may still be on its way.
        self.agenda.after(RESEND * self.drift, self._tick)

    def _send_to(self, host: Host) -> None:
        _, (offset, closed, is_ended) = self.positions.get(host.number, (None, (0, 0, False)))
        if is_ended:
            if self.rng.random() < 0.3:  # It may start anew, with less.
                self._offer(host, self._marker(self.data.last), set())
            return
        known = int((self.agenda.now - self.data.starts) / (BATCH_TIME * self.drift)) + 1
        first = min(closed + 1, self.data.last)
        for batch in range(first, min(closed + WINDOW, known, self.data.last) + 1):
            rows = [row for row in self.rows(batch) if row.offset >= offset]
            cut = self.rng.randint(0, len(rows))
            for part in (rows[:cut], rows[cut:]):
                if part:
                    self._offer(host, self._piece(batch, part), {row.edge for row in part})
            self._offer(host, self._marker(batch), set())

    def _piece(self, batch: int, rows: list[Row]) -> Piece:
        return Piece(self.data.name, self.partition, self.epoch, batch, rows[0].offset, rows[-1].offset + 1)

    def _marker(self, batch: int) -> Marker:
        end = sum(len(self.rows(number)) for number in range(1, batch + 1))
        return Marker(self.data.name, self.partition, self.epoch, batch, end, batch == self.data.last)

    def _offer(self, host: Host, event: Piece | Marker, edges: set[Any]) -> None:
        def arrive() -> None:
            if host.is_alive:
                incarnation, number, where = host.offer(event, edges)
                self.network.send(host.number, self, lambda: self._acknowledged(host, (incarnation, number), where))

        self.network.send(self, host.number, arrive)

    def _acknowledged(self, host: Host, stamp: Any, where: tuple[int, int, bool]) -> None:
        if host.number not in self.positions or stamp > self.positions[host.number][0]:
            self.positions[host.number] = stamp, where
