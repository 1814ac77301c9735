"""Joiner: lets a node that has started anew take over what the in-sync replicas of its shards hold, and go on from it.

Once it asks to join, others wait for it. So first it fetches the stored graph and the agreed terms from its donors, and
what has changed since, until that is little. When it has joined it asks for the last changes and everything else.

The protocol says when (InstallState): all nodes that take part know by then that this one is joining. Donors collect
their data at one SN (donating.py). Later data comes here as well, because its senders know of this node, or learn of it
from the answer (members.py). It waits until the earlier data is installed; parts that are here by then are known as
repeated. Records behind the SN are applied as on every node.

If a donor goes in the middle of it, it is asked again, or another donor in its place; the fetched data is dropped then.
A node that cannot fetch anything before it joins joins without it.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from wukongs.cluster.collecting import STATE
from wukongs.cluster.donating import COLLECT, HALT, LEND
from wukongs.cluster.host import Host
from wukongs.cluster.installing import Taken, entries_of, events_of, install, prepare, take_pieces, take_terms
from wukongs.cluster.intake import Intake
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.times import packed
from wukongs.errors import NodeUnavailable, WukongsError
from wukongs.protocol import events as ev
from wukongs.protocol.actions import InstallState
from wukongs.protocol.records import Role
from wukongs.protocol.state import Node
from wukongs.store.dtypes import BoolArray
from wukongs.store.tombstones import Difference
from wukongs.wire.assignment import SHARD_COUNT
from wukongs.wire.packets import Packet, Peers

log = logging.getLogger("wukongs")
ASK_S = 30.0
RETRY_S = 0.1
GIVE_UP_S = 60.0
"""How long nothing may come of the donors."""
AHEAD_S = 30.0
"""How long nothing may come of them before this node joins without."""
SPARE_S = 1.0
"""How often a node that holds nothing looks whether it is closed."""
LEND_S = 10.0
LITTLE_ROWS = 1 << 12
"""So many changed triples and new terms are fetched when the node has joined."""
ROUNDS_MAX = 10


@dataclass(frozen=True, slots=True)
class Ahead:
    """The data that a node has fetched before it joins. donors: whom it has asked for which shards; leases: the names
    of what they gave last; differences: of which the stored graph is the sum."""

    donors: Mapping[int, BoolArray]
    leases: dict[int, str] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)


class Joiner:
    """The joining of one node. has_folder: what it takes over is safe with the next checkpoint."""

    def __init__(self, host: Host, store: NodeStore, intake: Intake, peers: Peers, *, has_folder: bool = False) -> None:
        self._host, self._store, self._intake, self._peers = host, store, intake, peers
        self._has_folder = has_folder
        self._owner = f"node {host.me.node} {uuid.uuid4().hex}"
        self._ahead: Ahead | None = None
        self._asked: InstallState | None = None
        self._is_told = threading.Event()
        """It is to install, or is closed."""
        self._heard_s = 0.0
        self._said = ""
        """The last reason that was logged."""
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Fetch what can be had before this node asks to join. Before it takes part."""
        self._host.fetch_first()
        self._thread = threading.Thread(target=self._join, name="wukongs-joiner", daemon=True)
        self._thread.start()

    def begin(self, asked: InstallState) -> None:
        """Carry out InstallState, elsewhere. In the protocol's thread. Raises NodeUnavailable (it was done before)."""
        if self._host.is_installed:
            raise NodeUnavailable(
                f"node {self._host.me.node} has to take over anew what the others hold, since a stream was dropped "
                "while it was joining: start it again"
            )
        assert self._thread is not None, asked
        self._asked = asked
        self._is_told.set()

    def close(self) -> None:
        self._is_closed = True
        self._is_told.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _join(self) -> None:
        try:
            self._ahead = self._fetch_ahead()
            self._host.post(ev.Fetched())
            self._is_told.wait()
        except BaseException as error:
            self._host.fail(error)
            return
        self._run()

    def _say(self, error: WukongsError) -> None:
        """Log once why this node does not join yet."""
        if str(error) != self._said:
            self._said = str(error)
            level = logging.ERROR if isinstance(error, Lost) else logging.INFO
            log.log(level, "node %d does not join yet: %s", self._host.me.node, error)

    def _fetch_ahead(self) -> Ahead | None:
        """Fetch the stored graph and the agreed terms, until little of them is new; None if nobody gives them."""
        self._heard_s = time.monotonic()
        while not self._is_closed and self._host.failure is None and time.monotonic() - self._heard_s < AHEAD_S:
            try:
                node = self._host.wait_until(_may_fetch, LEND_S, "a majority of the nodes")
                if node.is_spare:
                    self._wait_for_shards()
                    continue
                ahead = Ahead(donors_of(node))
                while len(ahead.differences) < ROUNDS_MAX:
                    taken = self._fetch_changes(ahead)
                    if taken.row_count <= LITTLE_ROWS:
                        break
                return ahead
            except WukongsError as error:
                self._say(error)
                if self._host.node.log.leader is None:
                    self._heard_s = time.monotonic()
                time.sleep(RETRY_S)
        return None

    def _wait_for_shards(self) -> None:
        """Wait a while until this node, a spare one, is to take another's place."""
        with suppress(NodeUnavailable):
            self._host.wait_until(lambda node: not node.is_spare, SPARE_S, "the place of another node")
        self._heard_s = time.monotonic()

    def _fetch_changes(self, ahead: Ahead) -> Taken:
        fields = {"node": self._peers.me, "index": self._host.node.control.index}
        asked = [
            (donor, Packet(LEND, {**fields, "base": ahead.leases.get(donor)}, {"shards": shards}))
            for donor, shards in ahead.donors.items()
        ]
        ahead.leases.update(self._leases_in(asked, LEND_S))
        taken = self._fetch(ahead.leases, LEND_S)
        ahead.differences.append(prepare(self._store, taken))
        return taken

    def _leases_in(self, asked: list[tuple[int, Packet]], timeout_s: float) -> dict[int, str]:
        answers = self._peers.ask(asked, timeout_s)
        return {donor: answer.fields["lease"] for (donor, _), answer in zip(asked, answers, strict=True)}

    def _run(self) -> None:
        self._heard_s = time.monotonic()
        while not self._is_closed and not self._host.is_installed:
            try:
                self._take_over()
            except WukongsError as error:
                self._say(error)
                if time.monotonic() - self._heard_s > GIVE_UP_S:
                    self._host.fail(
                        NodeUnavailable(
                            f"node {self._host.me.node} could not take over what the others hold: {error} (for "
                            f"{GIVE_UP_S:g} s). Start it again once they are there"
                        )
                    )
                    return
                time.sleep(RETRY_S)
            except BaseException as error:
                self._host.fail(error)
                return

    def _take_over(self) -> None:
        asked = self._asked
        assert asked is not None
        taken = self._fetch_last()
        differences = [*([] if self._ahead is None else self._ahead.differences), prepare(self._store, taken)]
        self._host.wait_for_record(max(head["index"] for head in taken.heads), ASK_S)
        self._host.run(lambda: self._install(asked, taken, differences), ASK_S)
        self._ahead = None

    def _install(self, asked: InstallState, taken: Taken, differences: list[Difference]) -> None:
        """In the protocol's thread."""
        if asked.since != self._host.node.stay.since:
            raise NodeUnavailable("this node was told anew to join meanwhile")
        install(self._store, taken, entries_of(differences, packed(taken.sn)))
        for head in taken.heads:
            self._intake.restore_epochs(head["epochs"])
            self._intake.pushes.restore(head.get("pushes", {}))
            self._intake.restore_closes(head.get("closes", ()))
        take_pieces(self._store, taken)
        self._host.go_on(taken.sn, events_of(asked.since, taken, self._host.node, is_safe=not self._has_folder))
        log.info("node %d has taken over what the others hold at SN %d", self._host.me.node, packed(taken.sn))

    def _fetch_last(self) -> Taken:
        """Let the donors halt and collect what they hold, or what is new of it, and fetch that. Raises NodeUnavailable,
        and what a donor answers."""
        node = self._host.node
        if self._ahead is not None and not _hold_still(node, self._ahead.donors):
            self._ahead = None
        donors = donors_of(node) if self._ahead is None else self._ahead.donors
        bases = {} if self._ahead is None else self._ahead.leases
        fields = {
            "owner": self._owner,
            "index": max(node.stay.since, node.stay.index),
            "sn": packed(self._host.catching_up.least_sn),
        }
        # One after the other, in the same order for all that join: two of them would each wait for what the other has.
        halted = [
            self._peers.ask([(donor, Packet(HALT, {**fields, "base": bases.get(donor)}))], ASK_S)[0]
            for donor in sorted(donors)
        ]
        if not all(answer.fields.get("has_base") is True for answer in halted):
            self._ahead = None
            raise NodeUnavailable("a donor does not keep any more what it has given")
        fields = {"owner": self._owner, "sn": max(_sn_in(answer) for answer in halted), "node": node.me.node}
        asked = [
            (donor, Packet(COLLECT, {**fields, "base": bases.get(donor)}, {"shards": shards}))
            for donor, shards in donors.items()
        ]
        return self._fetch(self._leases_in(asked, ASK_S), ASK_S)

    def _fetch(self, leases: Mapping[int, str], timeout_s: float) -> Taken:
        """Fetch what donors have collected, and take over its terms. Raises as _fetch_last."""
        taken, numbers, over = Taken(), dict.fromkeys(leases, 0), set[int]()
        while len(over) < len(leases):
            # A donor whose last packet has come is asked for that again: so it keeps what it has given.
            numbers.update({donor: number + 1 for donor, number in numbers.items() if donor not in over})
            donated = [
                (donor, Packet(STATE, {"lease": name, "number": numbers[donor]})) for donor, name in leases.items()
            ]
            for (donor, _), answer in zip(donated, self._peers.ask(donated, timeout_s), strict=True):
                if donor not in over and taken.add(answer):
                    over.add(donor)
            take_terms(self._store, taken)
            self._heard_s = time.monotonic()
            if self._is_closed:
                raise NodeUnavailable("this node is closing")
        return taken


class Lost(NodeUnavailable):
    """A shard has no node left that has what it held."""


def _may_fetch(node: Node) -> bool:
    """Whether the others do without the earlier life of a node: from then on another one may go. Or never will."""
    if node.log.leader is None or not node.control.life:
        return False
    is_told = node.control.member(node.me.node).disk == node.me.disk
    is_voter = any(voter.node == node.me.node and voter != node.me.voter for voter in node.log.voters)
    return (is_told and not is_voter) or not node.control.is_covered_without(node.me.node)


def _hold_still(node: Node, donors: Mapping[int, BoolArray]) -> bool:
    """Whether donors are in sync, hold what they were asked for, and it is all of this node's shards."""
    synced, shards = node.control.with_role(Role.IN), node.control.shards
    mine = np.array([node.me.node in nodes for nodes in shards])
    asked = {donor: np.flatnonzero(wanted).tolist() for donor, wanted in donors.items()}
    they_do = all(donor in synced and all(donor in shards[one] for one in asked[donor]) for donor in donors)
    return they_do and np.array_equal(np.any([np.zeros(SHARD_COUNT, np.bool_), *donors.values()], axis=0), mine)


def _sn_in(answer: Packet) -> int:
    found = answer.fields.get("sn")
    if type(found) is not int:
        raise NodeUnavailable(f"a donor answered {dict(answer.fields)!r:.200}")
    return found


def donors_of(node: Node) -> dict[int, BoolArray]:
    """Return, for each in-sync replica that a joining node asks, the shards that it asks it for. bool[1024]

    Raises NodeUnavailable (no replica of a shard is in sync by the records that are known here), Lost (none ever will
    be)."""
    me, synced = node.me.node, node.control.with_role(Role.IN) - {node.me.node}
    found: dict[int, BoolArray] = {}
    for shard, replicas in enumerate(node.control.shards):
        if me in replicas:
            there = [replica for replica in replicas if replica in synced]
            if not there:
                raise _without_donor(node, shard)
            found.setdefault(there[0], np.zeros(SHARD_COUNT, np.bool_))[shard] = True
    return found


def _without_donor(node: Node, shard: int) -> NodeUnavailable:
    """Return the error of a node that finds no in-sync replica of a shard beside itself.

    The last in-sync replica is never taken out. So a record by which there is none beside this node is of a time when
    this node itself was in sync, unless it has joined since by a record that this node knows."""
    control, me = node.control, node.me.node
    replicas = control.shards[shard]
    said = f"shard {shard} (of nodes {', '.join(map(str, replicas))}) has no in-sync node beside node {me}"
    if node.role is not Role.JOINING or control.with_role(Role.HOLDING).intersection(replicas):
        return NodeUnavailable(f"{said} by the records of the log that are known here so far")
    return Lost(
        f"{said} since that has joined, by record {control.member(me).since} of the log: what they held is lost. To be "
        "sure, look into `wukongs stats` of each node: none says that one of them is in or holding. Then end all "
        "nodes, start them anew, and load again or restore a backup"
    )
