"""Donor: gives a joining node what this one holds of its shards.

All donors of a joining node have to stand at one SN, because their data becomes one trace there. So each donor halts
first (HALT), for one joining node at a time, and says how far it is. It shows nothing behind that, while pieces and
records come in as ever. Then all go on as far as the one that is furthest, and collect their data (COLLECT). That takes
a moment, and ends by itself after HALT_S if nobody asks on. The collected data is kept for LEASE_S after the last
question, and goes in packets, one at a time (STATE).

Before it joins, a node fetches the stored graph and the agreed terms (LEND): at the SN at which each donor stands, and
nobody halts. The lease holds that SN, so that what has changed since can be asked for by its name: by LEND, and at last
by COLLECT.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from wukongs.cluster.collecting import END, NO_BASE, STATE, Base, Collected, Wanted, collect, collect_stored
from wukongs.cluster.feeding import index_of
from wukongs.cluster.host import Host
from wukongs.cluster.intake import LOG_S, Intake
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.times import packed, unpacked
from wukongs.errors import CompactedError, DataError, NodeUnavailable
from wukongs.protocol import events as ev
from wukongs.protocol.records import Role, Sn
from wukongs.protocol.sealing import Partition
from wukongs.protocol.state import Node
from wukongs.store.dtypes import BoolArray
from wukongs.store.trace import Handle
from wukongs.wire.assignment import SHARD_COUNT
from wukongs.wire.packets import Handler, Packet

Taken = TypeVar("Taken")
HALT = "halt"
LEND = "lend"
COLLECT = "collect"
HALT_S = 2.0
LEASE_S = 60.0
LEASES_MAX = 2


@dataclass(slots=True)
class _Lease:
    """base: what a node that has all of it has; held: keeps that SN apart, None: nothing is asked for by its name."""

    packets: Iterator[Packet]
    node: int
    base: Base
    held: Handle | None
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
        return {
            HALT: self._answer_halt,
            LEND: self._answer_lend,
            COLLECT: self._answer_collect,
            STATE: self._answer_state,
        }

    @property
    def is_installed(self) -> bool:
        """Whether this node has anything to give."""
        return self._host.is_installed

    def say_safe(self, since: int) -> None:
        """Tell the protocol that a restart finds what this node has taken over. since: as in InstallState."""
        self._host.post(ev.StateSafe(since))

    def pulse(self) -> None:
        """Go on if who has asked to halt is gone, and forget what nobody asks for. In the protocol's thread."""
        now = time.monotonic()
        if self._halt is not None and now >= self._halt.until_s:
            self._go_on()
        self._let_go(lambda _, lease: now - lease.used_s > LEASE_S)

    def _let_go(self, is_over: Callable[[str, _Lease], bool]) -> None:
        with self._lock:
            over = [name for name, lease in self._leases.items() if is_over(name, lease)]
            held = [handle for name in over if (handle := self._leases.pop(name).held) is not None]
        if held:
            with self._store.core.lock:
                for handle in held:
                    handle.close()

    # --- halting ------------------------------------------------------------------------------------------------------

    def _answer_halt(self, packet: Packet) -> Packet:
        """owner: who halts this node; index: how far it has to know the log; sn: what it has to have come to; base: the
        lease of what it was given before. The answer says whether that is still held."""
        owner, index, sn = packet.fields.get("owner"), packet.fields.get("index"), packet.fields.get("sn")
        if not isinstance(owner, str) or type(index) is not int or type(sn) is not int:
            raise DataError(f"{HALT}: expected owner, index and sn, found {dict(packet.fields)!r:.200}")
        self._host.wait_for_record(index, LOG_S)
        self._store.wait_for(unpacked(sn), LOG_S)
        has_base = self._base(packet) is not None
        return self._host.run(lambda: self._begin(owner, has_base), LOG_S)

    def _begin(self, owner: str, has_base: bool) -> Packet:
        self._check_is_in()
        return Packet(HALT, {"sn": packed(self._halt_for(owner)), "has_base": has_base})

    def _check_is_in(self) -> None:
        if self._host.node.role is not Role.IN:
            raise NodeUnavailable(f"node {self._host.me.node} cannot give what it holds now: ask again")

    def _base(self, packet: Packet) -> Base | None:
        """Return what the lease that a packet names as its base has given, None if it is not held any more."""
        name = packet.fields.get("base")
        if name is None:
            return NO_BASE
        with self._lock:
            lease = self._leases.get(name) if isinstance(name, str) else None
            if lease is None or lease.held is None:
                return None
            lease.used_s = time.monotonic()
            return lease.base

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
            return take(self._collect(owner, wanted, sn, NO_BASE), self._host.node)

        sn = self._host.run(lambda: self._halt_for(owner), LOG_S)
        try:
            store.wait_for(sn, HALT_S)
            return self._host.run(collect_now, LOG_S)
        finally:
            self._host.run(lambda: self._end(owner), LOG_S)

    def _end(self, owner: str) -> None:
        if self._halt is not None and self._halt.owner == owner:
            self._go_on()

    def _answer_lend(self, packet: Packet) -> Packet:
        """node: who is going to join; shards: what it asks this node for; index: how far the log has to be known; base:
        the lease of what it was given."""
        self._host.wait_for_record(index_of(packet), LOG_S)
        wanted, base = self._wanted(packet, LEND), self._base(packet)
        if base is None:
            raise self._not_kept(packet.fields.get("base"))
        self._check_is_in()
        store = self._store
        head = {"index": self._host.node.control.index, "streams": [], "keys": {}, "homes": {}, "intakes": {}}
        with store.core.lock:
            sn = packed(store.exposure.reached)
            try:
                collected = collect_stored(store, wanted, base, sn, head)
            except CompactedError as error:
                raise NodeUnavailable(f"node {self._host.me.node} cannot lend: {error}") from error
            held = store.core.arrangement.open(sn, f"node {wanted.node}, which is going to join", expires=False)
        return Packet(LEND, {"lease": self._keep(collected, held, packet.fields.get("base"))})

    def _answer_collect(self, packet: Packet) -> Packet:
        """owner, sn: where to stand; node: who joins; shards: what it asks this node for; base: as in HALT."""
        owner, sn = (packet.fields.get(name) for name in ("owner", "sn"))
        if not isinstance(owner, str) or type(sn) is not int:
            raise DataError(f"{COLLECT}: expected owner, sn, node and shards, found {dict(packet.fields)!r:.200}")
        wanted, base = self._wanted(packet, COLLECT), self._base(packet)
        if base is None:
            raise self._not_kept(packet.fields.get("base"))
        self._host.run(lambda: self._move(owner, unpacked(sn)), LOG_S)
        self._store.wait_for(unpacked(sn), HALT_S)
        collected = self._host.run(lambda: self._collect(owner, wanted, unpacked(sn), base), LOG_S)
        return Packet(COLLECT, {"lease": self._keep(collected, None, packet.fields.get("base"))})

    def _wanted(self, packet: Packet, kind: str) -> Wanted:
        asked: BoolArray | None = packet.arrays.get("shards")  # type: ignore[assignment]
        joining = packet.fields.get("node")
        if type(joining) is not int or asked is None or asked.dtype != np.bool_ or len(asked) != SHARD_COUNT:
            raise DataError(f"{kind}: expected node and shards, found {dict(packet.fields)!r:.200}")
        shard_map = self._store.shard_map
        return Wanted(joining, shard_map, self._store.split_ids, shard_map.shards(joining), asked)

    def _move(self, owner: str, sn: Sn) -> None:
        self._check_halt(owner)
        self._limit(sn)

    def _check_halt(self, owner: str) -> None:
        if self._halt is None or self._halt.owner != owner:
            raise NodeUnavailable(f"node {self._host.me.node} has gone on meanwhile: ask it to halt again")

    def _collect(self, owner: str, wanted: Wanted, sn: Sn, base: Base) -> Collected:
        self._check_halt(owner)
        node = self._host.node
        try:
            head = {"index": node.control.index, "intakes": intakes_of(node), "epochs": self._intake.epochs()}
            head["pushes"], head["closes"] = self._intake.pushes.as_json(), self._intake.closes()
            return collect(self._store, wanted, sn, head, base)
        finally:
            self._go_on()

    def _keep(self, collected: Collected, held: Handle | None, base: str | None) -> str:
        """Keep what was collected, and what it was based on, until something is based on this."""
        joining, name = collected.wanted.node, uuid.uuid4().hex
        stands = Base(collected.head["sn"], collected.agreed_count)
        with self._lock:
            self._leases[name] = _Lease(collected.packets(), joining, stands, held, time.monotonic())
        self._let_go(lambda other, lease: lease.node == joining and other not in (name, base))
        with self._lock:
            is_full = len({lease.node for lease in self._leases.values()}) > LEASES_MAX
        if is_full:
            self._let_go(lambda other, _: other == name)
            raise NodeUnavailable(f"node {self._host.me.node} gives to {LEASES_MAX} other nodes: ask again later")
        return name

    def _not_kept(self, name: object) -> NodeUnavailable:
        return NodeUnavailable(
            f"node {self._host.me.node} keeps nothing under {str(name)[:40]!r}: what a joining node does not ask "
            f"for is kept for {LEASE_S:g} s. Ask it to collect again"
        )

    # --- giving -------------------------------------------------------------------------------------------------------

    def _answer_state(self, packet: Packet) -> Packet:
        """lease: what was collected; number: of the packet, from 1 on. The last one may be asked for again."""
        name, number = packet.fields.get("lease"), packet.fields.get("number")
        with self._lock:
            lease = self._leases.get(name) if isinstance(name, str) else None
        if lease is None or type(number) is not int:
            raise self._not_kept(name)
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
