"""Checkpoints of a node: now and then it writes down all that it holds, and its log begins anew from there.

A checkpoint is what a joining node would be given of everything here (collecting.py): the node halts for a moment at
one SN, the protocol's state there becomes the head of a new segment of the log, and all else is written behind it while
the node goes on: stored triples and their dictionary by the store's checkpoint, the rest as records of the log. Windows
that are due at the SN belong to it: they are written once they are reported.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from wukongs.cluster.collecting import AGREED, ROWS_MAX, STATE, Collected
from wukongs.cluster.deliveries import NodeDeliveries
from wukongs.cluster.donating import Donor
from wukongs.cluster.node_disk import NodeDisk
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.times import unpacked
from wukongs.errors import NodeUnavailable, StorageError, StreamError
from wukongs.live.journal import ReportedBy
from wukongs.protocol.records import Sn
from wukongs.protocol.state import Node
from wukongs.store.encoded import TermTable
from wukongs.wire.assignment import SHARD_COUNT
from wukongs.wire.packet_columns import term_arrays
from wukongs.wire.packets import Packet

log = logging.getLogger("wukongs")
OF = "of"
"""The field of a record that belongs to a checkpoint: the number of its head."""
STAY = "stay"
"""The fact of a checkpoint that says which stay's data it has (membership.py)."""
NO_STAY = -1
LOOK_S = 1.0
REPORT_S, POLL_S = 10.0, 0.01
"""How long a checkpoint waits for windows that are due, and how often it looks."""
ENTRIES_MAX = 4096
"""A longer majority log needs a checkpoint: it is cut only before the entries that one has."""
_ALL_SHARDS = np.ones(SHARD_COUNT, np.bool_)


class Checkpoints:
    """The checkpoints of one node. bytes_max: one is made once it would take so much off the log. Changes that are
    staged would only be written again: they wait until their records have come."""

    def __init__(
        self, disk: NodeDisk, store: NodeStore, donor: Donor, deliveries: NodeDeliveries, bytes_max: int
    ) -> None:
        self._disk, self._store, self._donor, self._bytes_max = disk, store, donor, bytes_max
        self._deliveries = deliveries
        self._turn = threading.Lock()
        self._looked_at = 0
        """Entries of the agreed terms, up to the last checkpoint."""
        self._not_stored = TermTable.empty()
        """Those of them that no stored triple had."""
        self._staged_bytes = 0
        """The changes that the last checkpoint has as they were staged."""
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wukongs-checkpoints", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def make(self) -> None:
        """Make a checkpoint. Raises NodeUnavailable (a joining node halts this one), StreamError, StorageError."""
        if not self._donor.is_installed:
            raise NodeUnavailable("the node has not taken over yet what the others hold")
        with self._turn:
            collected, start, settled, stay = self._donor.collect_here(self._begin)
            self._wait_for_reports()
            not_returned = self._deliveries.not_returned()  # first: a query that runs by now is among the others
            windows = self._deliveries.waiting(self._queries())
            for packet in chain(self._agreed(collected), collected.waiting(), not_returned, windows):
                self._disk.add(replace(packet, fields={**packet.fields, OF: start}))
            upper = collected.head["sn"] + 1
            self._disk.complete(start, settled, collected.entries, upper, self._store.terms)
            self._donor.say_safe(stay)

    def _wait_for_reports(self) -> None:
        """Wait until queries with groups have reported what is due by the streams that the checkpoint has: a restart
        goes on behind that, so their windows have to be in it. Raises StreamError (not within REPORT_S)."""
        deadline, core = time.monotonic() + REPORT_S, self._store.core
        with core.lock:
            due = {
                query: max((state.closed_ms or 0 for state in query.windows.states.values()), default=0)
                for query in self._store.injector.queries.values()
                if self._deliveries.has_groups(query.lsn)
            }
            while late := [
                query for query, to_ms in due.items() if not (query.is_closed or query.times.has_reported(to_ms))
            ]:
                core.check_is_open()
                if time.monotonic() >= deadline:
                    raise StreamError(f"query {late[0].name} has not reported what is due within {REPORT_S:g} s")
                core.changed.wait(POLL_S)

    def _begin(self, collected: Collected, node: Node) -> tuple[Collected, int, int, int]:
        """In the protocol's thread."""
        sn, stay = unpacked(collected.head["sn"]), stay_of(node)
        facts = {**collected.head, "deliveries": self._deliveries.facts(self._queries), STAY: stay}
        start = self._disk.begin(node.control.index, facts)
        # Workers stage and agree meanwhile: what they have logged before the new head is here by now. What was staged
        # before may be stored by now, behind the SN: no record comes in meanwhile, but those that are here go on.
        with self._store.core.lock:
            staged, agreed_count = {**collected.staged, **self._store.staged()}, len(self._store.claims)
            self._staged_bytes = self._store.staging.size_bytes
        return replace(collected, staged=staged, agreed_count=agreed_count), start, settled_at(node, sn), stay

    def _queries(self) -> list[ReportedBy]:
        with self._store.core.lock:
            return self._store.joined.reporters()

    def _agreed(self, collected: Collected) -> Iterator[Packet]:
        claims, tables = collected.claims, [self._not_stored]
        for first in range(self._looked_at, collected.agreed_count, ROWS_MAX):
            end = min(first + ROWS_MAX, collected.agreed_count)
            tables.append(self._store.terms.not_stored(claims.agreed(first, end, _ALL_SHARDS)))
        self._looked_at = collected.agreed_count
        self._not_stored = self._store.terms.not_stored(TermTable.joined(tables))
        if len(self._not_stored):
            yield Packet(STATE, {"part": AGREED}, term_arrays(self._not_stored))

    def _run(self) -> None:
        while not self._is_closing.wait(LOOK_S):
            owner = self._disk.folder.owner
            has_joined = owner is not None and owner.is_joining and self._donor.is_installed
            if has_joined or self._is_long():
                self._try("the log goes on")

    def _is_long(self) -> bool:
        with self._store.core.lock:
            stored_bytes = self._staged_bytes - self._store.staging.size_bytes
        is_long = self._disk.bytes_since_checkpoint + stored_bytes >= self._bytes_max
        return is_long or self._disk.entries_since_checkpoint >= ENTRIES_MAX

    def _try(self, meanwhile: str) -> None:
        try:
            self.make()
        except (NodeUnavailable, StorageError, StreamError) as error:
            log.warning("node %d: no checkpoint, %s: %s", self._store.me, meanwhile, error)
        except Exception:
            log.exception("node %d: no checkpoint, %s", self._store.me, meanwhile)

    def give_up(self) -> None:
        """Make no more of them: the log has what comes."""
        self._is_closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def close(self) -> None:
        """End, with a last checkpoint if the node can still halt."""
        if self._thread.is_alive():
            self.give_up()
            self._try("the log has it all")


def stay_of(node: Node) -> int:
    """Return the record that made a node JOINING, if it has taken over what it then had to."""
    return node.stay.since if node.stay.is_installed else NO_STAY


def settled_at(node: Node, sn: Sn) -> int:
    """Return the last record of the majority log before all that take effect behind an SN."""
    later = (mark.index for mark in node.control.marks if mark.sn > sn)
    return min(later, default=node.control.index + 1) - 1
