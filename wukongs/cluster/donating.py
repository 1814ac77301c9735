"""Donor: gives a joining node what this one holds of its shards.

All donors of a joining node have to stand at one SN, because their data becomes one trace there. So each donor halts
first (HALT), for one joining node at a time, and says how far it is. It shows nothing behind that, while pieces and
records come in as ever. Then all go on as far as the one that is furthest, and collect their data (COLLECT). That takes
a moment, and ends by itself after HALT_S if nobody asks on. The collected data is kept for LEASE_S after the last
question, and goes in packets, one at a time (STATE).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from wukongs.cluster.collecting import END, STATE, Collected, Wanted, collect
from wukongs.cluster.host import Host
from wukongs.cluster.intake import LOG_S, Intake
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.times import packed, unpacked
from wukongs.errors import DataError, NodeUnavailable
from wukongs.protocol.records import Role, Sn
from wukongs.protocol.sealing import Partition
from wukongs.protocol.state import Node
from wukongs.wire.assignment import SHARD_COUNT
from wukongs.wire.packets import Handler, Packet

Taken = TypeVar("Taken")
HALT = "halt"
COLLECT = "collect"
HALT_S = 2.0
LEASE_S = 60.0
LEASES_MAX = 2


@dataclass(slots=True)
class _Lease:
    packets: Iterator[Packet]
    node: int
    used_s: float
    number: int = 0
    last: Packet | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True)
class _Halt:
    owner: str
    until_s: float


class Donor:
    """The donor of one node."""

    def __init__(self, host: Host, store: NodeStore, intake: Intake) -> None:
        self._host, self._store, self._intake = host, store, intake
        self._halt: _Halt | None = None
        self._leases: dict[str, _Lease] = {}
        self._lock = threading.Lock()

    def handlers(self) -> dict[str, Handler]:
        return {HALT: self._answer_halt, COLLECT: self._answer_collect, STATE: self._answer_state}

    @property
    def is_installed(self) -> bool:
        """Whether this node has anything to give."""
        return self._host.is_installed

    def pulse(self) -> None:
        """Go on if who has asked to halt is gone, and forget what nobody asks for. In the protocol's thread."""
        now = time.monotonic()
        if self._halt is not None and now >= self._halt.until_s:
            self._go_on()
        with self._lock:
            for name in [name for name, lease in self._leases.items() if now - lease.used_s > LEASE_S]:
                del self._leases[name]

    # --- halting ------------------------------------------------------------------------------------------------------

    def _answer_halt(self, packet: Packet) -> Packet:
        """owner: who halts this node; index: how far it has to know the log; sn: what it has to have come to."""
        owner, index, sn = packet.fields.get("owner"), packet.fields.get("index"), packet.fields.get("sn")
        if not isinstance(owner, str) or type(index) is not int or type(sn) is not int:
            raise DataError(f"{HALT}: expected owner, index and sn, found {dict(packet.fields)!r:.200}")
        self._host.wait_for_record(index, LOG_S)
        self._store.wait_for(unpacked(sn), LOG_S)
        return self._host.run(lambda: self._begin(owner), LOG_S)

    def _begin(self, owner: str) -> Packet:
        if self._host.node.role is not Role.IN:
            raise NodeUnavailable(f"node {self._host.me.node} cannot give what it holds now: ask again")
        return Packet(HALT, {"sn": packed(self._halt_for(owner))})

    def _halt_for(self, owner: str) -> Sn:
        if self._halt is not None and self._halt.owner != owner:
            raise NodeUnavailable(f"node {self._host.me.node} cannot give what it holds now: ask again")
        self._halt = _Halt(owner, time.monotonic() + HALT_S)
        return self._limit(None)

    def _limit(self, sn: Sn | None) -> Sn:
        """Let this node show what comes up to an SN, and no more; None: up to what is begun. Return how far."""
        exposure = self._store.exposure
        with self._store.core.lock:
            limit = max(exposure.reached, Sn(exposure.shown, 0)) if sn is None else sn
            exposure.limit = limit
            self._store.injector.wake()
        return limit

    def _go_on(self) -> None:
        self._halt = None
        with self._store.core.lock:
            self._store.exposure.limit = None
            self._store.injector.wake()

    # --- collecting ---------------------------------------------------------------------------------------------------

    def collect_here(self, take: Callable[[Collected, Node], Taken]) -> Taken:
        """Let this node halt, collect everything that it holds, and go on. take: is given it in the protocol's thread,
        with the protocol's state there. Raises NodeUnavailable (a joining node halts it)."""
        store, owner = self._store, f"node {self._host.me.node} itself"
        shards = store.shard_map.shards(store.me)
        wanted = Wanted(store.me, store.shard_map, store.split_ids, shards, shards)

        def collect_now() -> Taken:
            return take(self._collect(owner, wanted, sn), self._host.node)

        sn = self._host.run(lambda: self._halt_for(owner), LOG_S)
        try:
            store.wait_for(sn, HALT_S)
            return self._host.run(collect_now, LOG_S)
        finally:
            self._host.run(lambda: self._end(owner), LOG_S)

    def _end(self, owner: str) -> None:
        if self._halt is not None and self._halt.owner == owner:
            self._go_on()

    def _answer_collect(self, packet: Packet) -> Packet:
        """owner, sn: where to stand; node: who joins; shards: what it asks this node for. bool[1024]"""
        owner, sn, joining = (packet.fields.get(name) for name in ("owner", "sn", "node"))
        asked: Any = packet.arrays.get("shards")
        is_sound = isinstance(owner, str) and type(sn) is int and type(joining) is int
        if not is_sound or asked is None or asked.dtype != np.bool_ or len(asked) != SHARD_COUNT:
            raise DataError(f"{COLLECT}: expected owner, sn, node and shards, found {dict(packet.fields)!r:.200}")
        assert isinstance(owner, str), owner
        assert isinstance(sn, int), sn
        assert isinstance(joining, int), joining
        store, shard_map = self._store, self._store.shard_map
        wanted = Wanted(joining, shard_map, store.split_ids, shard_map.shards(joining), asked)
        self._host.run(lambda: self._move(owner, unpacked(sn)), LOG_S)
        store.wait_for(unpacked(sn), HALT_S)
        collected = self._host.run(lambda: self._collect(owner, wanted, unpacked(sn)), LOG_S)
        return Packet(COLLECT, {"lease": self._keep(collected, joining)})

    def _move(self, owner: str, sn: Sn) -> None:
        self._check_halt(owner)
        self._limit(sn)

    def _check_halt(self, owner: str) -> None:
        if self._halt is None or self._halt.owner != owner:
            raise NodeUnavailable(f"node {self._host.me.node} has gone on meanwhile: ask it to halt again")

    def _collect(self, owner: str, wanted: Wanted, sn: Sn) -> Collected:
        self._check_halt(owner)
        node = self._host.node
        try:
            head = {"index": node.control.index, "intakes": intakes_of(node), "epochs": self._intake.epochs()}
            head["pushes"] = self._intake.pushes.as_json()
            return collect(self._store, wanted, sn, head)
        finally:
            self._go_on()

    def _keep(self, collected: Collected, joining: int) -> str:
        name = uuid.uuid4().hex
        with self._lock:
            for old in [old for old, lease in self._leases.items() if lease.node == joining]:
                del self._leases[old]
            if len(self._leases) >= LEASES_MAX:
                raise NodeUnavailable(f"node {self._host.me.node} gives to {LEASES_MAX} other nodes: ask again later")
            self._leases[name] = _Lease(collected.packets(), joining, time.monotonic())
        return name

    # --- giving -------------------------------------------------------------------------------------------------------

    def _answer_state(self, packet: Packet) -> Packet:
        """lease: what was collected; number: of the packet, from 1 on. The last one may be asked for again."""
        name, number = packet.fields.get("lease"), packet.fields.get("number")
        with self._lock:
            lease = self._leases.get(name) if isinstance(name, str) else None
        if lease is None or type(number) is not int:
            raise NodeUnavailable(
                f"node {self._host.me.node} keeps nothing under {str(name)[:40]!r}: what a joining node does not ask "
                f"for is kept for {LEASE_S:g} s. Ask it to collect again"
            )
        with lease.lock:
            lease.used_s = time.monotonic()
            if number == lease.number + 1 and (lease.last is None or lease.last.fields.get("part") != END):
                lease.last, lease.number = next(lease.packets), number
            if number != lease.number or lease.last is None:
                raise DataError(f"{STATE}: expected to be asked for packet {lease.number} or the next, found {number}")
            return lease.last


def intakes_of(node: Node) -> dict[str, Any]:
    """Return, as JSON, how far the partitions of each stream are at a node."""

    def told(known: Partition) -> list[Any]:
        ends = [list(end) for end in known.ends.items()]
        return [known.offset, known.closed, known.is_ended, known.epoch, known.empty_to, ends]

    return {
        stream: {
            "offsets": dict(intake.offsets),
            "inserted": intake.inserted,
            "partitions": {name: told(known) for name, known in intake.partitions.items()},
        }
        for stream, intake in node.intakes.items()
    }
