"""ReadLeases: reads at this node wait for its lease, and writes for the nodes that hold one (protocol/leases.py).

A read that has seen a change returns only once all that hold leases have exposed it, as the writer of the change waits
too. Otherwise another reader could still miss what this one has seen.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection

from wukongs.cluster.boot import LEASES
from wukongs.cluster.host import Host
from wukongs.cluster.members import is_silent, left_s
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.settling import seen_packet
from wukongs.cluster.times import ZERO, packed, unpacked
from wukongs.errors import DataError, NodeUnavailable, StreamError, WukongsError
from wukongs.protocol import events as ev
from wukongs.protocol import leasing
from wukongs.protocol.control import THE_FIRST
from wukongs.protocol.records import Role, Sn
from wukongs.protocol.state import Node
from wukongs.query.limits import Limits
from wukongs.wire.packets import Packet, Peers

LEASE = "lease"
NO_LEASE_S = 2.0
"""How long a read waits for a lease, or for the leader: after a change of leader that is sooner."""
SN_S = 60.0
"""How long a read without a time limit waits for the SN that its client was told."""
FIRST_S = 0.1
"""How long nodes are asked directly whether they have exposed an SN. From then on the leader is asked, which knows who
holds a lease."""
EARLIER_S = 2.0
"""How long nodes are asked while reads do not go by leases."""
POLL_S = 0.02
ASK_S = 0.5


class ReadLeases:
    """known_by: what a node knows, by its number (boot.KNOWS); nothing for one that has not introduced itself."""

    def __init__(
        self, host: Host, store: NodeStore, peers: Peers, known_by: Callable[[int], Collection[str] | None]
    ) -> None:
        self._host, self._store, self._peers, self._known_by = host, store, peers, known_by
        self._turn = threading.Lock()
        self._everywhere = ZERO
        """All that hold leases have exposed this SN."""

    @property
    def is_in_use(self) -> bool:
        """Whether reads go by leases: not while a node of an earlier release takes part, which neither has nor gives
        any."""
        node = self._host.node
        if not node.cluster.lease_ms:
            return False
        members = node.control.with_role(Role.IN, Role.HOLDING, Role.JOINING)
        known = (self._known_by(member) for member in members if member != node.me.node)
        return all(one is None or LEASES in one for one in known)

    # --- reads --------------------------------------------------------------------------------------------------------

    def begin_read(self, told_sn: int | None, limits: Limits) -> None:
        """Return once this node may answer reads, and has exposed the SN that the reader was told.

        Raises NodeUnavailable (it has no lease; it does not come to that SN), QueryTimeout, QueryKilled."""
        if self.is_in_use and self._host.lease_left_s <= 0:
            self._wait_for_lease(limits)
        if told_sn is not None and unpacked(told_sn) > self._store.reached:
            try:
                self._store.wait_for(unpacked(told_sn), limits.within(SN_S))
            except StreamError as error:
                limits.check()
                raise NodeUnavailable(
                    f"node {self._host.me.node}: {error}. The reader was told of SN {told_sn}, and reads nothing older"
                ) from error

    def _wait_for_lease(self, limits: Limits) -> None:
        """Return once this node has a lease. It may also read once a leader, which a majority has confirmed since, has
        said what is newest in its log, and this node has exposed that: a node that holds no shards has no leases."""
        host, deadline = self._host, time.monotonic() + limits.within(NO_LEASE_S)
        newest = leasing.Newest()
        while host.lease_left_s <= 0:
            host.check()
            limits.check()
            if newest.sn is None:
                newest.hear(self._asked_of_leader(THE_FIRST, min(ASK_S, left_s(deadline))))
            elif self._store.reached >= newest.sn:
                return
            if time.monotonic() >= deadline:
                raise NodeUnavailable(
                    f"node {host.me.node} has no lease for reads: no majority of the nodes has confirmed lately that "
                    f"it is one of them, so what it has may be old; {host.who_is_away()}. Ask another node, or read "
                    'what this one has with consistency="local"'
                )
            time.sleep(min(POLL_S, left_s(deadline)))

    def end_read(self, read_sn: int, limits: Limits) -> None:
        """Return once no reader with a lease can miss what a read has seen. read_sn: its SN.

        Raises NodeUnavailable (others do not answer), QueryTimeout, QueryKilled."""
        if not self.is_in_use:
            return
        timeout_s = limits.within(SN_S)
        marks = self._exposing(unpacked(read_sn), timeout_s).control.marks
        place = bisect_right(marks, unpacked(read_sn), key=lambda mark: mark.sn)
        if not place or marks[place - 1].sn <= self._everywhere:
            return
        sn = marks[place - 1].sn
        deadline = time.monotonic() + timeout_s
        if not self._turn.acquire(timeout=timeout_s):
            limits.check()
            raise self._not_exposed(sn, set())
        try:
            if sn > self._everywhere:
                self.wait_until_exposed(sn, left_s(deadline))
        except NodeUnavailable:
            limits.check()
            raise
        finally:
            self._turn.release()

    # --- writes -------------------------------------------------------------------------------------------------------

    def wait_until_exposed(self, sn: Sn, timeout_s: float) -> None:
        """Return once all that hold leases have exposed an SN, this node among them. Raises NodeUnavailable."""
        host, deadline = self._host, time.monotonic() + timeout_s
        if sn <= self._everywhere:
            return
        try:
            self._store.wait_for(sn, timeout_s)
        except StreamError as error:
            raise NodeUnavailable(f"node {host.me.node}: {error}") from error
        self._exposing(sn, left_s(deadline))
        exposure = leasing.Exposure({host.me.node})
        if not self.is_in_use:
            self._ask_nodes(exposure, sn, min(EARLIER_S, left_s(deadline)))
            return
        self._ask_nodes(exposure, sn, min(FIRST_S, left_s(deadline)))
        while left := exposure.left(host.node.control):
            host.check()
            if time.monotonic() >= deadline:
                raise self._not_exposed(sn, left)
            self._ask_leader(exposure, sn, min(ASK_S, left_s(deadline)))
            if exposure.left(host.node.control):
                time.sleep(min(POLL_S, left_s(deadline)))
        self._everywhere = max(self._everywhere, sn)

    def show(self, sn: Sn, timeout_s: float) -> None:
        """Wait as wait_until_exposed, for at most the given seconds."""
        try:
            self.wait_until_exposed(sn, timeout_s)
        except NodeUnavailable:
            self._host.check()

    def _exposing(self, sn: Sn, timeout_s: float) -> Node:
        """Return the node behind the step that has exposed an SN: reads may see that a moment before."""

        def has_exposed(node: Node) -> bool:
            return node.exposed is not None and node.exposed >= sn

        node = self._host.node
        return node if has_exposed(node) else self._host.wait_until(has_exposed, timeout_s, f"SN {packed(sn)}")

    def _ask_nodes(self, exposure: leasing.Exposure, sn: Sn, timeout_s: float) -> None:
        node = self._host.node
        asked = sorted(other for other in exposure.left(node.control) if not is_silent(node, other))
        packet = seen_packet(sn, timeout_s)
        try:
            if asked:
                self._peers.ask([(other, packet) for other in asked], timeout_s)
                exposure.seen.update(asked)
        except WukongsError:
            self._host.check()

    def _ask_leader(self, exposure: leasing.Exposure, sn: Sn, timeout_s: float) -> None:
        exposure.hear(self._asked_of_leader(sn, timeout_s), self._host.node.control.nodes)

    def _asked_of_leader(self, sn: Sn, timeout_s: float) -> leasing.LeaderSays | None:
        """Return what the leader says of an SN. None: there is none that answers."""
        leader = self._host.node.log.leader
        try:
            if leader is not None:
                (answer,) = self._peers.ask([(leader, Packet(LEASE, {"sn": packed(sn)}))], timeout_s)
                return _said_in(answer)
        except NodeUnavailable:
            self._host.check()
        return None

    def answer(self, packet: Packet) -> Packet:
        """Handler of LEASE: say who may hold a lease and has not exposed an SN. None of these gets another one
        before."""
        if type(packet.fields.get("sn")) is not int:
            raise DataError(f"{LEASE}: expected an SN, found {dict(packet.fields)!r:.200}")
        host, sn = self._host, unpacked(packet.fields["sn"])

        def ask() -> leasing.LeaderSays | None:
            host.take(ev.LeaseAsked(sn, host.now_ms()))
            return leasing.leader_says(host.node, sn)

        said = host.run(ask, ASK_S)
        if said is None:
            return Packet(LEASE)
        return Packet(LEASE, {**said._asdict(), "newest": packed(said.newest), "holders": sorted(said.holders)})

    def _not_exposed(self, sn: Sn, nodes: Collection[int]) -> NodeUnavailable:
        told = f"nodes {', '.join(map(str, sorted(nodes)))}" if nodes else "other nodes"
        return NodeUnavailable(
            f"node {self._host.me.node}: {told} may still answer reads without SN {packed(sn)}: "
            f"{self._host.who_is_away()}"
        )


def _said_in(answer: Packet) -> leasing.LeaderSays | None:
    fields = answer.fields
    if not fields:
        return None
    term, number, confirmed, newest, nodes = (fields.get(name) for name in leasing.LeaderSays._fields)
    if not isinstance(nodes, list) or not all(type(one) is int for one in (term, number, confirmed, newest, *nodes)):
        raise DataError(f"{LEASE}: expected what a leader says of leases, found {dict(fields)!r:.200}")
    return leasing.LeaderSays(term, number, confirmed, unpacked(newest), frozenset(nodes))  # type: ignore[arg-type]
