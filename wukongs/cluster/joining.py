"""Joiner: lets a node that has started anew take over what the in-sync replicas of its shards hold, and go on from it.

The protocol says when (InstallState): all nodes that take part know by then that this one is joining. Donors collect
their data at one SN (donating.py). Later data comes here as well, because its senders know of this node, or learn of it
from the answer (members.py). It waits until the earlier data is installed; parts that are here by then are known as
repeated. Records behind the SN are applied as on every node.

If a donor goes in the middle of it, it is asked again, or another donor in its place; the fetched data is dropped then.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid

import numpy as np

from wukongs.cluster.collecting import STATE
from wukongs.cluster.donating import COLLECT, HALT
from wukongs.cluster.host import Host
from wukongs.cluster.installing import Taken, events_of, install, prepare, take_pieces
from wukongs.cluster.intake import Intake
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.times import packed
from wukongs.errors import NodeUnavailable, WukongsError
from wukongs.protocol.actions import InstallState
from wukongs.protocol.records import Role
from wukongs.protocol.state import Node
from wukongs.store.dtypes import BoolArray
from wukongs.store.trace import TraceEntry
from wukongs.wire.assignment import SHARD_COUNT
from wukongs.wire.packets import Packet, Peers

log = logging.getLogger("wukongs")
ASK_S = 30.0
RETRY_S = 0.1
GIVE_UP_S = 60.0
"""How long nothing may come of the donors."""


class Joiner:
    """The joining of one node."""

    def __init__(self, host: Host, store: NodeStore, intake: Intake, peers: Peers) -> None:
        self._host, self._store, self._intake, self._peers = host, store, intake, peers
        self._owner = f"node {host.me.node} {uuid.uuid4().hex}"
        self._asked: InstallState | None = None
        self._heard_s = 0.0
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def begin(self, asked: InstallState) -> None:
        """Carry out InstallState, elsewhere. In the protocol's thread. Raises NodeUnavailable (it was done before)."""
        if self._host.is_installed:
            raise NodeUnavailable(
                f"node {self._host.me.node} has to take over anew what the others hold, since a stream was dropped "
                "while it was joining: start it again"
            )
        self._asked = asked
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="wukongs-joiner", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._is_closed = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        self._heard_s = time.monotonic()
        while not self._is_closed and not self._host.is_installed:
            try:
                self._take_over()
            except WukongsError as error:
                log.info("node %d: %s", self._host.me.node, error)
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
        taken = self._fetch()
        entry = prepare(self._store, taken)
        self._host.wait_for_record(max(head["index"] for head in taken.heads), ASK_S)
        self._host.run(lambda: self._install(asked, taken, entry), ASK_S)

    def _install(self, asked: InstallState, taken: Taken, entry: TraceEntry) -> None:
        """In the protocol's thread."""
        if asked.since != self._host.node.stay.since:
            raise NodeUnavailable("this node was told anew to join meanwhile")
        install(self._store, taken, [entry])
        for head in taken.heads:
            self._intake.restore_epochs(head["epochs"])
            self._intake.pushes.restore(head.get("pushes", {}))
        take_pieces(self._store, taken)
        self._host.go_on(taken.sn, events_of(asked.since, taken, self._host.node))
        log.info("node %d has taken over what the others hold at SN %d", self._host.me.node, packed(taken.sn))

    def _fetch(self) -> Taken:
        """Let the donors collect what they hold, and fetch it. Raises NodeUnavailable, and what a donor answers."""
        node = self._host.node
        donors = donors_of(node)
        fields = {
            "owner": self._owner,
            "index": max(node.stay.since, node.stay.index),
            "sn": packed(self._host.catching_up.least_sn),
        }
        # One after the other, in the same order for all that join: two of them would each wait for what the other has.
        halted = [self._peers.ask([(donor, Packet(HALT, fields))], ASK_S)[0] for donor in sorted(donors)]
        fields = {"owner": self._owner, "sn": max(_sn_in(answer) for answer in halted), "node": node.me.node}
        asked = [(donor, Packet(COLLECT, fields, {"shards": shards})) for donor, shards in donors.items()]
        answers = self._peers.ask(asked, ASK_S)
        leases = {donor: answer.fields["lease"] for donor, answer in zip(donors, answers, strict=True)}
        taken, number = Taken(), 0
        while leases:
            number += 1
            donated = [(donor, Packet(STATE, {"lease": name, "number": number})) for donor, name in leases.items()]
            for (donor, _), answer in zip(donated, self._peers.ask(donated, ASK_S), strict=True):
                if taken.add(answer):
                    del leases[donor]
            self._heard_s = time.monotonic()
            if self._is_closed:
                raise NodeUnavailable("this node is closing")
        return taken


def _sn_in(answer: Packet) -> int:
    found = answer.fields.get("sn")
    if type(found) is not int:
        raise NodeUnavailable(f"a donor answered {dict(answer.fields)!r:.200}")
    return found


def donors_of(node: Node) -> dict[int, BoolArray]:
    """Return, for each in-sync replica that a joining node asks, the shards that it asks it for. bool[1024]

    Raises NodeUnavailable (a shard has no in-sync replica)."""
    me, synced = node.me.node, node.control.with_role(Role.IN) - {node.me.node}
    found: dict[int, BoolArray] = {}
    for shard, replicas in enumerate(node.control.shards):
        if me in replicas:
            there = [replica for replica in replicas if replica in synced]
            if not there:
                raise NodeUnavailable(
                    f"shard {shard} has no other node that holds it, of {', '.join(map(str, replicas))}: what node "
                    f"{me} held of it is lost. End all nodes, start them anew, and load again"
                )
            found.setdefault(there[0], np.zeros(SHARD_COUNT, np.bool_))[shard] = True
    return found
