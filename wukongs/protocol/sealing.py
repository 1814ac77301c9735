"""Sealing: when a node has a stream batch whole.

Source partitions send each node its rows as pieces, which tile the partition's offsets and end at stream batches, and
a marker behind each stream batch: one sequence. A piece or marker is taken only where the one before it ended; so what
is repeated is known as such, and what is missing is sent again before anything behind it is taken. What a node had not
inserted when it crashed is sent again as well: it says how far it has come (`position`), and sources go back to that.

Stream batch k is sealed when the markers of all declared partitions are here (and so all pieces before them), all of
its new terms are confirmed (terms.py), and k - 1 is sealed. It counts in the local VTS when the host has inserted it,
and logged it where data is durable. Every partition closes every stream batch up to the stream's last, with rows or
without.

What a stream batch holds is a function of the rows' timestamps, so two writers of one partition cannot cut it
differently; epochs lock out the older one, so that the two do not throw each other back for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from wukongs.protocol.events import Marker, Piece
from wukongs.protocol.snapshots import Vts


class Verdict(Enum):
    """TAKEN; REPEATED: it is here already; REFUSED: something before it is missing, or its writer is locked out."""

    TAKEN = "taken"
    REPEATED = "repeated"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Partition:
    """Rows [0, offset) of a source partition are here, stream batches up to `closed` are complete.

    epoch: the newest writer's. ends: per closed stream batch that is not inserted yet, the row behind its last.
    is_ended: `closed` is the partition's last stream batch."""

    offset: int = 0
    closed: int = 0
    epoch: int = 0
    ends: Mapping[int, int] = field(default_factory=dict)
    is_ended: bool = False


@dataclass(frozen=True, slots=True)
class Intake:
    """One stream on this node. sealed: the last stream batch that was complete; inserted: the last one in the store.

    unconfirmed: per stream batch, the texts that are not confirmed yet; offsets: per partition, the row behind the
    last one that is inserted."""

    sealed: int = 0
    inserted: int = 0
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    unconfirmed: Mapping[int, frozenset[str]] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(default_factory=dict)

    def last_batch(self, names: tuple[str, ...]) -> int | None:
        """Return the last stream batch of a stream with these partitions, None if it is not known yet."""
        partitions = [self.partitions.get(name, Partition()) for name in names]
        return max(one.closed for one in partitions) if all(one.is_ended for one in partitions) else None


def opened_at(batch: int, offsets: Mapping[str, int], old: Intake | None = None) -> Intake:
    """Return a stream of which everything up to a stream batch is in the store; old: what was known of its writers."""
    epochs = {name: partition.epoch for name, partition in old.partitions.items()} if old else {}
    partitions = {name: Partition(offset, batch, epochs.get(name, 0)) for name, offset in offsets.items()}
    return Intake(batch, batch, partitions, {}, offsets)


def take_piece(intake: Intake, piece: Piece) -> tuple[Intake, Verdict]:
    """Take in a piece. The texts in piece.unknown have to be confirmed before its stream batch is sealed."""
    partition = intake.partitions.get(piece.partition, Partition())
    if piece.epoch < partition.epoch:
        return intake, Verdict.REFUSED
    if piece.end_offset <= partition.offset:
        return intake, Verdict.REPEATED
    if piece.first_offset != partition.offset or piece.batch != partition.closed + 1 or partition.is_ended:
        return intake, Verdict.REFUSED
    unconfirmed = intake.unconfirmed
    if piece.unknown:
        texts = unconfirmed.get(piece.batch, frozenset()) | {term.text for term in piece.unknown}
        unconfirmed = {**unconfirmed, piece.batch: texts}
    partition = replace(partition, offset=piece.end_offset, epoch=piece.epoch)
    return _with(replace(intake, unconfirmed=unconfirmed), piece.partition, partition), Verdict.TAKEN


def take_marker(intake: Intake, marker: Marker) -> tuple[Intake, Verdict]:
    """Take in a marker."""
    partition = intake.partitions.get(marker.partition, Partition())
    if marker.epoch < partition.epoch:
        return intake, Verdict.REFUSED
    if marker.batch <= partition.closed:
        if marker.is_last and marker.batch == partition.closed and not partition.is_ended:
            return _with(intake, marker.partition, replace(partition, is_ended=True)), Verdict.TAKEN
        return intake, Verdict.REPEATED
    if marker.batch != partition.closed + 1 or marker.end_offset != partition.offset or partition.is_ended:
        return intake, Verdict.REFUSED
    ends = {**partition.ends, marker.batch: marker.end_offset}
    partition = replace(partition, closed=marker.batch, epoch=marker.epoch, ends=ends, is_ended=marker.is_last)
    return _with(intake, marker.partition, partition), Verdict.TAKEN


def settle_terms(intake: Intake, settled: frozenset[str]) -> Intake:
    """Take confirmed and re-encoded texts from those that are waited for."""
    left = {batch: texts - settled for batch, texts in intake.unconfirmed.items()}
    return replace(intake, unconfirmed={batch: texts for batch, texts in left.items() if texts})


def next_sealable(intake: Intake, names: tuple[str, ...]) -> int | None:
    """Return the next stream batch, if it is complete. names: the declared partitions."""
    batch = intake.sealed + 1
    is_closed = all(name in intake.partitions and intake.partitions[name].closed >= batch for name in names)
    return batch if is_closed and not intake.unconfirmed.get(batch) else None


def ends_of(intake: Intake, batch: int) -> dict[str, int]:
    """Return, per partition, the row behind the last one of a closed stream batch."""
    return {name: partition.ends[batch] for name, partition in intake.partitions.items()}


def inserted(intake: Intake, batch: int) -> Intake:
    """Note that a stream batch is in the store. They come in order; one that is in it already says nothing new."""
    if batch != intake.inserted + 1:
        return intake
    offsets = ends_of(intake, batch)
    for name, partition in intake.partitions.items():
        ends = {later: end for later, end in partition.ends.items() if later > batch}
        intake = _with(intake, name, replace(partition, ends=ends))
    return replace(intake, inserted=batch, offsets=offsets)


def position(intake: Intake | None, partition: str) -> tuple[int, int, bool]:
    """Return how far a partition has come here: rows, closed stream batches, whether its end is known. Sources go on
    from there."""
    found = intake.partitions.get(partition, Partition()) if intake else Partition()
    return found.offset, found.closed, found.is_ended


def local_vts(intakes: Mapping[str, Intake]) -> Vts:
    return {stream: intake.inserted for stream, intake in intakes.items() if intake.inserted}


def _with(intake: Intake, name: str, partition: Partition) -> Intake:
    return replace(intake, partitions={**intake.partitions, name: partition})
