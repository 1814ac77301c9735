"""Resuming: a node goes on from its data folder (node_disk.py), as one that joins goes on from what others give it.

The store is made to stand where it stood at the checkpoint. Then everything that the log has is taken in again, in its
order, by the protocol and the store: so stream batches are sealed as they were, and records apply as they did. Nothing
is shown meanwhile; once the node hears how far the others are, it comes to that as to any SN, firing on its way.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from wukongs.cluster.changes import STAGE, stage
from wukongs.cluster.checkpoints import NO_STAY, OF, STAY
from wukongs.cluster.claims import AGREED
from wukongs.cluster.collecting import HEAD, STATE
from wukongs.cluster.deliveries import CURSORS, WINDOW, NodeDeliveries
from wukongs.cluster.feeding import Fed
from wukongs.cluster.host import Host
from wukongs.cluster.installing import Taken, events_of, install, take_pieces
from wukongs.cluster.intake import CLOSE, FED, PUSHED, Intake
from wukongs.cluster.node_disk import COMMITTED, NodeDisk, Note, Recorded, is_saved, saved_in
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.pushes import Push, asked_in
from wukongs.errors import StorageError, StreamError
from wukongs.live.pieces import Close
from wukongs.protocol import events as ev
from wukongs.protocol.control import Control
from wukongs.protocol.records import Role, Voter
from wukongs.wire.packet_columns import terms_in
from wukongs.wire.packets import Packet

_OF_CHECKPOINTS = (STATE, CURSORS, WINDOW)


def can_go_on(recorded: Recorded, voter: Voter) -> bool:
    """Tell whether a node's folder has what a life needs that goes on from it: as far as its log says, the others have
    not taken it out, and it has taken over what they hold, if it has to."""
    role, since = recorded.control.role_of(voter), recorded.control.member(voter.node).since
    return role is not Role.OUT and (role is not Role.JOINING or recorded.facts.get(STAY) == since)


def scanned(disk: NodeDisk, genesis: Control) -> Recorded | None:
    """Return what a node's log says in all, None if it is new. Raises as NodeDisk.scan."""
    return disk.scan(genesis, _OF_CHECKPOINTS)


def resume(
    disk: NodeDisk, recorded: Recorded, host: Host, store: NodeStore, intake: Intake, deliveries: NodeDeliveries
) -> None:
    """Bring a node to where its folder is; before its threads begin. Raises CorruptionError, StorageError."""
    taken = Taken()
    if recorded.facts:
        taken.add(Packet(STATE, {"part": HEAD, **recorded.facts}))
        deliveries.restore(recorded.facts["deliveries"])
    packets, recorded.packets = recorded.packets, []  # they are large
    for packet in packets:
        if packet.kind == STATE and packet.fields.get(OF) == disk.start:
            taken.add(packet)
        elif packet.kind != STATE and packet.fields.get(OF) in (None, disk.start):
            deliveries.take_in(packet)
    store.records.returned = deliveries.returned
    with host.replaying(), store.staging.unbounded():
        if recorded.facts:
            _install(disk, recorded, taken, host, store, intake)
        for number, note in disk.replay():
            if number > disk.start:
                _take_in(note, host, store, intake)
    host.had_to = host.node.log.last


def _install(disk: NodeDisk, recorded: Recorded, taken: Taken, host: Host, store: NodeStore, intake: Intake) -> None:
    """Let the store stand where it stood at the checkpoint. taken: what the log has of it."""
    restored, registry = disk.restored, store.terms
    assert restored is not None, disk.folder.path
    if registry.hash_bits != restored.hash_bits:
        raise StorageError(
            f"{disk.folder.path}: written with hash_bits = {restored.hash_bits}, and the setting is "
            f"{registry.hash_bits}: set what it was"
        )
    registry.restore(restored.dictionary, restored.exceptions)
    for table in registry.stored(store.shard_map.shards(store.me)):
        store.claims.take_over(table)
    for table in taken.agreed:
        store.claims.take_over(table)
    for table in taken.terms:
        registry.take_over(table)
    commit(host, recorded.index)
    install(store, taken, restored.entries)
    intake.restore_epochs(recorded.facts["epochs"])
    intake.pushes.restore(recorded.facts.get("pushes", {}))
    intake.restore_closes(recorded.facts.get("closes", ()))
    take_pieces(store, taken)
    host.go_on(taken.sn, events_of(recorded.facts.get(STAY, NO_STAY), taken, host.node))


def commit(host: Host, index: int) -> None:
    """Let the log be committed up to an index, and apply its records."""
    log = host.node.log
    host.node = replace(host.node, log=replace(log, commit=max(index, log.commit)))
    host.take(ev.Settled(0))


def _take_in(packet: Note, host: Host, store: NodeStore, intake: Intake) -> None:
    """Take in a note of the log."""
    if not isinstance(packet, Packet):
        host.take(packet)
        intake.restore_epochs([[packet.stream, packet.partition, packet.epoch]])
        return
    fields: Mapping[str, Any] = packet.fields
    if is_saved(packet):
        host.take(ev.SavedBefore(saved_in(packet)))
    elif packet.kind == COMMITTED:
        commit(host, fields["index"])
    elif packet.kind == AGREED:
        store.claims.take_over(terms_in(packet, is_trusted=True))
    elif packet.kind == STAGE:
        stage(store, packet, store.staging.hold_at, is_trusted=True)
        if fields.get("is_last") and fields.get("read_sn") is None:
            store.build(fields["change"])  # a load: while the rest of the log is read
    elif packet.kind == PUSHED:
        torn = None if fields["torn"] is None else asked_in(fields["torn"])
        intake.note_push(fields["stream"], fields["first_offset"], Push.of_json(fields["push"]), torn)
    elif packet.kind in (CLOSE, FED):
        with suppress(StreamError):  # it was dropped since, or the record is in the checkpoint as well
            if packet.kind == FED:
                intake.note(Fed.of(fields))
            else:
                intake.note_close(Close(**fields))
