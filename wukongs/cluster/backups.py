"""Backups of a cluster: one node writes down what all of them hold of one snapshot.

The node that is asked picks its newest snapshot. Each node then gives the triples of the shards that it answers for,
with the texts of their terms, in parts that are asked for one after the other. A node reads the snapshot when it is
asked for the first part, before merging forgets it. All of that is immutable, so the cluster goes on meanwhile.

A node that goes meanwhile leaves parts missing. The backup then begins anew, with the nodes that are left.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from wukongs.cluster.checkpoints import Checkpoints
from wukongs.cluster.homes import nodes_of
from wukongs.cluster.host import Host
from wukongs.cluster.made_feeds import is_declared_for_readers
from wukongs.cluster.members import members_of
from wukongs.cluster.node_payloads import read_registration, ruleset_of
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.times import unpacked
from wukongs.durable.content import NewFolder, gathered
from wukongs.errors import CompactedError, DataError, NodeUnavailable, StorageError
from wukongs.live.argument_tables import table_text
from wukongs.live.definitions import Definitions
from wukongs.live.header import PROTOCOL_VERSION
from wukongs.live.query_source import QuerySource
from wukongs.live.reading import open_snapshot
from wukongs.live.views.logged_arguments import LoggedArguments
from wukongs.protocol.control import Control
from wukongs.store.batch_set import BatchSet
from wukongs.store.disk import Disk
from wukongs.store.dtypes import UNBOUND, BoolArray
from wukongs.store.term_registry import TermReader, with_texts
from wukongs.wire.assignment import SHARD_COUNT, shards_of
from wukongs.wire.packet_columns import column_of, tuples_in, tuples_packet
from wukongs.wire.packets import Packet, Peers

PART, CHECKPOINT = "backup", "checkpoint"
REACH_S = 30.0
"""How long a node may take to come to the snapshot."""
PART_S = 60.0
CHECKPOINT_S = 600.0
CHANGE_S = 10.0
"""So long a backup waits for the others to go on without a node that does not answer."""
ATTEMPTS = 5
FORGET_S = 120.0
"""A node forgets a backup of which nobody asks for more."""


@dataclass(slots=True)
class _Given:
    """One backup that this node gives to. parts: those that are left, with the exceptions among term ids; number: of
    the part that was given last, which is kept since a question may come again."""

    parts: Iterator[Packet]
    number: int = -1
    last: Packet = field(default_factory=lambda: Packet(PART))
    asked_s: float = field(default_factory=time.monotonic)


class Backups:
    """One node's side of them, as giver and as writer, and its checkpoints, if it has a data folder."""

    def __init__(self, host: Host, store: NodeStore, peers: Peers, checkpoints: Checkpoints | None) -> None:
        self._host, self._store, self._peers, self._checkpoints = host, store, peers, checkpoints
        self._given: dict[str, _Given] = {}
        self._turn = threading.Lock()

    # --- giving -------------------------------------------------------------------------------------------------------

    def answer_part(self, packet: Packet) -> Packet:
        """Handler of PART. Raises DataError, NodeUnavailable, CompactedError, StreamError."""
        name, number, sn = (packet.fields.get(key) for key in ("backup", "number", "sn"))
        if not isinstance(name, str) or type(number) is not int or type(sn) is not int:
            raise DataError(f"{PART}: expected backup, number and sn, found {dict(packet.fields)!r:.200}")
        if number == 0:
            self._open(name, sn, column_of(packet, "shards", np.bool_, SHARD_COUNT))
        with self._turn:
            given = self._given.get(name)
            if given is None or number not in (given.number, given.number + 1):
                raise NodeUnavailable(f"node {self._host.me.node} knows no part {number} of this backup: begin anew")
            if number != given.number:
                given.last, given.number = next(given.parts), number
            given.asked_s = time.monotonic()
            return given.last

    def _open(self, name: str, sn: int, shards: BoolArray) -> None:
        """Read the snapshot of a backup, unless that was done."""
        with self._turn:
            if name in self._given:
                return
        self._store.wait_for(unpacked(sn), REACH_S)
        core = self._store.core
        with core.lock:
            handle = open_snapshot(core, sn, "a backup")
            stored, reader = handle.read(), core.registry.snapshot_reader()
            handle.close()
        if not (nodes_of(self._host.node) == self._host.me.node)[shards].all():
            raise NodeUnavailable("the members of the cluster have just changed: begin anew")
        with self._turn:
            self._given[name] = _Given(self._parts(stored, reader, shards))

    def _parts(self, stored: BatchSet, reader: TermReader, shards: BoolArray) -> Iterator[Packet]:
        exceptions = [[term, text] for term, text in self._store.terms.exception_records(0)]
        for quads in gathered(stored, lambda subjects: shards[shards_of(subjects)]):
            encoded = with_texts(quads, reader.gather)
            own = np.where(encoded.graphs == self._store.core.default_graph, UNBOUND, encoded.graphs)
            yield tuples_packet(PART, [replace(encoded, graphs=own)], exceptions=exceptions)
            exceptions = []
        yield Packet(PART, {"is_last": True})

    def pulse(self) -> None:
        """Forget backups that nobody goes on with. In the protocol's thread."""
        if self._given and self._turn.acquire(blocking=False):
            try:
                now_s = time.monotonic()
                self._given = {n: given for n, given in self._given.items() if now_s - given.asked_s < FORGET_S}
            finally:
                self._turn.release()

    # --- writing ------------------------------------------------------------------------------------------------------

    def write(self, target: Path, disk: Disk | None = None) -> None:
        """Write all stored triples at one snapshot, and the streams and queries there are, to a new data folder.

        Raises StorageError, NodeUnavailable."""
        for left in reversed(range(ATTEMPTS)):
            view = self._host.node.control.view
            try:
                self._write(target, disk)
                return
            except CompactedError:
                if not left:
                    raise
            except NodeUnavailable:
                self._host.check()
                if not left:
                    raise
                self._await_change(view)

    def _await_change(self, view: int) -> None:
        """Wait until the members are others than they were. Called in an error's handler: raises that, if not."""
        try:
            self._host.wait_until(lambda node: node.control.view != view, CHANGE_S, "a change of the members")
        except NodeUnavailable:
            self._host.check()
            raise

    def _write(self, target: Path, disk: Disk | None) -> None:
        core, name = self._store.core, uuid.uuid4().hex
        with NewFolder(target, core.settings, disk) as folder:
            with core.lock:
                core.check_is_open()
                core.finish_tick()
                sn = core.sn
            node = self._host.node
            nodes = nodes_of(node)
            asked = {
                int(one): Packet(PART, {"backup": name, "number": 0, "sn": sn}, {"shards": nodes == one})
                for one in np.unique(nodes)
            }
            while asked:
                answers = self._peers.ask(list(asked.items()), PART_S)
                for one, answer in zip(list(asked), answers, strict=True):
                    exceptions = [(int(term), str(text)) for term, text in answer.fields.get("exceptions", ())]
                    for chunk in tuples_in(answer):
                        folder.add(chunk, exceptions)
                    if answer.fields.get("is_last"):
                        del asked[one]
                    else:
                        fields = asked[one].fields
                        asked[one] = Packet(PART, {**fields, "number": fields["number"] + 1})
            origin = {
                "of": "cluster",
                "life": node.control.life,
                "sn": sn,
                "triples": len(folder),
                "nodes": len(node.control.members),
                "version": PROTOCOL_VERSION,
                "made_ms": time.time_ns() // 1_000_000,
            }
            folder.complete(definitions_of(node.control), origin)

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def answer_checkpoint(self, _: Packet) -> Packet:
        """Handler of CHECKPOINT. Raises as Checkpoints.make."""
        if self._checkpoints is not None:
            self._checkpoints.make()
        return Packet(CHECKPOINT, {"is_made": self._checkpoints is not None})

    def checkpoint(self) -> None:
        """Let each node with a data folder make a checkpoint, one after the other: each halts for a moment.

        Raises StorageError (nodes without one, and what fails at a node), NodeUnavailable."""
        without = []
        members = sorted(members_of(self._host))
        for node in members:
            [answer] = self._peers.ask([(node, Packet(CHECKPOINT))], CHECKPOINT_S)
            if not answer.fields.get("is_made"):
                without.append(node)
        if without:
            others = "" if len(without) == len(members) else "; the other nodes have made their checkpoints"
            raise StorageError(
                f"without a data folder: {', '.join(f'node {node}' for node in without)}. What they hold is in memory "
                f"only: backup() writes it{others}"
            )


def definitions_of(control: Control) -> Definitions:
    """Return the streams, queries and rules of a cluster."""
    streams = {
        name: json.loads(control.streams[key].payload)
        for name, key in control.keys.items()
        if control.takes_in(key) and not is_declared_for_readers(control, name)
    }
    registrations = {name: read_registration(one.payload, name) for name, one in control.queries.items()}
    queries = {name: (one.source, one.is_paused) for name, one in registrations.items() if one.view is None}
    views = [
        (_with_arguments(one.source, control.queries[name].bound), one.view, one.is_paused)
        for name, one in registrations.items()
        if one.view is not None
    ]
    return Definitions(streams, queries, list(ruleset_of(control.rules).rules.values()), views)


def _with_arguments(source: QuerySource, changes: Sequence[str]) -> QuerySource:
    """Return the source of a view with the arguments that are bound. changes: of them, as the log has these."""
    if source.bindings is None:
        return source
    return source._replace(bindings=table_text(LoggedArguments.of(source.bindings, changes).table.combine_chunks()))
