"""The questions of reads to the owners of shards: asking, counting, and how long an answer may take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt

from wukongs.errors import NodeUnavailable, QueryTimeout
from wukongs.query.limits import current
from wukongs.wire.assignment import Assignment
from wukongs.wire.packets import Packet, Peers

ASK_TIMEOUT_S = 30.0
"""How long an answer is waited for where the query has no time limit."""


@dataclass(slots=True)
class Traffic:
    """Requests, and the rows and bytes of the arrays that went out and came."""

    requests: int = 0
    rows_sent: int = 0
    rows_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count(self, sent: Iterable[Packet], received: Iterable[Packet]) -> None:
        """Count questions and their answers. From any thread."""
        with self._lock:
            for packet in sent:
                self.requests += 1
                self.rows_sent += _rows(packet, "length")
                self.bytes_sent += _size(packet)
            for packet in received:
                self.rows_received += _rows(packet, "rows")
                self.bytes_received += _size(packet)

    def numbers(self) -> npt.NDArray[np.int64]:
        """Return requests, rows and bytes, of both directions together. int64[3]"""
        rows, size = self.rows_sent + self.rows_received, self.bytes_sent + self.bytes_received
        return np.array([self.requests, rows, size], np.int64)

    def stats(self) -> dict[str, int]:
        """Return the counts by name."""
        counted = fields(self)[:-1]
        return {each.name: getattr(self, each.name) for each in counted}


def _rows(packet: Packet, name: str) -> int:
    rows = packet.fields.get(name, 0)
    return rows if isinstance(rows, int) else 0


def _size(packet: Packet) -> int:
    return sum(array.nbytes for array in packet.arrays.values())


def time_left_s() -> float:
    """Return how many seconds an answer may take. Raises QueryTimeout if that is over."""
    limits = current()
    limits.check()
    if limits.deadline_s is None:
        return ASK_TIMEOUT_S
    return max(limits.deadline_s - time.monotonic(), 1e-3)


def _check_time(*notes: str) -> None:
    """Raise QueryTimeout if the time of the execution is over. notes: what is told beside that."""
    try:
        current().check()
    except QueryTimeout as error:
        raise QueryTimeout(". ".join((str(error), *notes))) from None


@dataclass(frozen=True, slots=True)
class Owners:
    """The nodes that answer for keys. assignment: which node answers for which shard now; each execution asks for it
    anew, perhaps with the core's lock held. It names this node for every shard of which this node is an in-sync
    replica. traffic: of all executions together."""

    peers: Peers
    assignment: Callable[[], Assignment]
    traffic: Traffic = field(default_factory=Traffic)

    def ask(self, asked: Sequence[tuple[int, Packet]], traffic: Traffic | None = None) -> list[Packet]:
        """Ask other nodes at the same time, within the time that the execution has left; return their answers.

        traffic: that of the execution. Raises QueryTimeout, NodeUnavailable, and what a node answers by name."""
        try:
            answers = self.peers.ask(asked, time_left_s())
        except QueryTimeout as error:  # of what was left of the time for that node
            _check_time(*getattr(error, "__notes__", ()))
            raise
        except NodeUnavailable as error:
            if error.is_slow:
                _check_time(f"{error}")
            raise
        for counted in (self.traffic, traffic):
            if counted is not None:
                counted.count((packet for _, packet in asked), answers)
        return answers
