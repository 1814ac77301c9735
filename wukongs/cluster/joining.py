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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from wukongs.cluster.collecting import STATE
from wukongs.cluster.donating import COLLECT, HALT
from wukongs.cluster.host import Host
from wukongs.cluster.installing import Taken, install, prepare
from wukongs.cluster.intake import Intake
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.times import packed
from wukongs.errors import NodeUnavailable, WukongsError
from wukongs.protocol import events as ev
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
        install(self._store, taken, entry)
        for head in taken.heads:
            self._intake.restore_epochs(head["epochs"])
        for key, stream in taken.streams.items():
            known = standings(taken, key)
            for piece in stream.pieces:
                is_inserted = stream.inserted_to is not None and piece.batch_number <= stream.inserted_to
                if not is_inserted and piece.partition in known and piece.end_offset <= known[piece.partition].offset:
                    self._store.take(piece)
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


@dataclass(frozen=True, slots=True)
class DonorsAt:
    """How far a stream's partition is on all donors, behind what is inserted on all of them: from row `first` on, the
    rows behind the last of each stream batch in order (sealing.Partition.ends)."""

    offset: int
    closed: int
    is_ended: bool
    epoch: int
    empty_to: int
    first: int
    ends: tuple[tuple[int, int], ...]


def standings(taken: Taken, stream: str) -> dict[str, DonorsAt]:
    """Return, for each partition of a stream that all donors know, what all of them have."""
    intakes = [head["intakes"][stream] for head in taken.heads if stream in head["intakes"]]
    if len(intakes) < len(taken.heads):
        return {}
    last = min(intakes, key=lambda intake: intake["inserted"])  # knows all ends behind what all have inserted
    found: dict[str, DonorsAt] = {}
    for name in set[str].intersection(*(set(intake["partitions"]) for intake in intakes)):
        known = (one["partitions"][name] for one in intakes)
        offset, closed, is_ended, epoch, empty_to, _ = min(known, key=lambda one: one[:3])
        first = last["offsets"].get(name, 0)
        ends, at = [], first
        for batch, end in last["partitions"][name][5]:
            if at < offset:
                at = min(end, offset)
                ends.append((batch, at))
        found[name] = DonorsAt(offset, closed, is_ended, epoch, empty_to, first, tuple(ends))
    return found


def events_of(since: int, taken: Taken, node: Node) -> Iterator[ev.Event]:
    """Return the events of an installation for the protocol: the inserted stream batches, then the pieces of later
    ones, as if they had come here. Their rows are in the store by then."""
    inserted: dict[str, int] = {}
    offsets: dict[str, dict[str, int]] = {}
    for stream in node.control.live_streams:
        intakes = [head["intakes"].get(stream.key, _NO_INTAKE) for head in taken.heads]
        last = min(intakes, key=lambda intake: intake["inserted"])
        if last["inserted"]:
            inserted[stream.key], offsets[stream.key] = last["inserted"], last["offsets"]
    yield ev.StateInstalled(since, inserted, offsets)
    for key in taken.streams:
        for name, known in sorted(standings(taken, key).items()):
            at = known.first
            for batch, end in known.ends:
                yield ev.PieceOffered(key, name, known.epoch, batch, at, end, after=known.empty_to)
                at = end
            if known.closed > inserted.get(key, 0) or known.is_ended:
                yield ev.Marker(key, name, known.epoch, known.closed, at, known.is_ended)


_NO_INTAKE: dict[str, Any] = {"inserted": 0, "offsets": {}}
