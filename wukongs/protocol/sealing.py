"""Sealing: when a node has a stream batch whole.

Source partitions send each node its rows as pieces, which tile the partition's offsets and belong to one stream batch
each, and markers in between: one sequence. A piece is taken only where the one before it ended, a marker only when all
rows before it are here. So repeats are known as such, and missing rows are sent again before anything behind them is
taken. Rows that a node had not inserted when it crashed are sent again as well: it says how far it has come
(`position`), and sources go back to that.

Streams begin at any stream batch and may be silent for long: a marker closes all stream batches up to its own, and
pieces belong to any one that is not closed. So a closed stream batch is whole: the marker has all rows before it, and
those behind it belong to later stream batches.

Along most partitions the numbers of pieces never fall. A partition whose rows come out of order (`PieceOffered.after`)
goes back, to stream batches that are not closed. Its rows keep the order of arrival, so a prefix of them is here, as
ever. `ends` goes by the greatest number so far: rows before `ends[k]` belong to stream batches up to k. So the rows
before the offset of an inserted stream batch are inserted; some behind it may be, too.

Pieces are taken only once their new terms are agreed on (claims.py). The stream batches up to k are sealed when all
partitions of the stream have closed k, or are at their end. They count in the local VTS when the host has inserted
them, and logged them where data is durable. With `StreamIntake.sealed` only rising, each row is sealed once: a piece is
taken only for a stream batch that is not sealed.

A partition that joins late (OpenPartition) holds the stream back from its record on. A node waits for the partition as
soon as its log holds the record, committed or not: a node that has just started may have applied it before. The
partition's rows come once all nodes have applied the record, and only for stream batches that none of them had sealed
by then. So these stream batches are whole everywhere.

Two writers of one partition give a row the same stream batch: by its timestamp, and if it is late, by the rows behind
the newest marker, from which the second one goes on. Epochs lock out the older writer, so that the two do not throw
each other back for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from wukongs.protocol.events import Marker, PieceOffered
from wukongs.protocol.records import Vts


class Verdict(Enum):
    """TAKEN; REPEATED: it is here already; REFUSED: something before it is missing, or its writer is locked out."""

    TAKEN = "taken"
    REPEATED = "repeated"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Partition:
    """Rows [0, offset) of a source partition are here, stream batches up to `closed` are complete.

    epoch: the newest writer's. empty_to: nothing is in stream batches up to this one, by the first thing that has come.
    ends: by stream batch, in order, of those that are not inserted yet, the row behind the last one that came before
    rows of a later stream batch did. is_ended: nothing comes after `closed`."""

    offset: int = 0
    closed: int = 0
    epoch: int = 0
    empty_to: int = 0
    ends: Mapping[int, int] = field(default_factory=dict)
    is_ended: bool = False

    @property
    def is_fresh(self) -> bool:
        """Whether nothing has come of it."""
        return not (self.offset or self.closed or self.is_ended)

    @property
    def reached(self) -> int:
        """The latest stream batch of which rows are here, or that is closed."""
        return max(self.closed, next(reversed(self.ends), 0))


@dataclass(frozen=True, slots=True)
class StreamIntake:
    """One stream on this node. All stream batches up to `sealed` were complete, all up to `inserted` are in the store.

    offsets: per partition, the row behind the last one that is inserted."""

    sealed: int = 0
    inserted: int = 0
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(default_factory=dict)

    @property
    def has_ends(self) -> bool:
        """Whether a partition is at its end."""
        return any(one.is_ended for one in self.partitions.values())

    def last_batch(self, names: tuple[str, ...]) -> int | None:
        """Return the last stream batch of a stream with these partitions, None if it is not known yet."""
        partitions = [self.partitions.get(name, Partition()) for name in names]
        if not partitions:
            return None
        return max(one.closed for one in partitions) if all(one.is_ended for one in partitions) else None


def opened_at(batch: int, offsets: Mapping[str, int], old: StreamIntake | None = None) -> StreamIntake:
    """Return a stream of which everything up to a stream batch is in the store; old: the known state of its writers."""
    epochs = {name: partition.epoch for name, partition in old.partitions.items()} if old else {}
    partitions = {name: Partition(offset, batch, epochs.get(name, 0)) for name, offset in offsets.items()}
    return StreamIntake(batch, batch, partitions, offsets)


def add_piece(intake: StreamIntake, piece: PieceOffered) -> tuple[StreamIntake, Verdict]:
    """Take in a piece."""
    partition = intake.partitions.get(piece.partition, Partition())
    if piece.epoch < partition.epoch:
        return intake, Verdict.REFUSED
    if piece.end_offset <= partition.offset:
        return intake, Verdict.REPEATED
    is_closed = piece.batch <= max(partition.closed, intake.sealed)
    is_late = is_closed or (piece.after is None and piece.batch < partition.reached)
    if piece.first_offset != partition.offset or is_late or partition.is_ended:
        return intake, Verdict.REFUSED
    ends = {**partition.ends, max(piece.batch, partition.reached): piece.end_offset}
    empty_to = partition.empty_to
    if partition.is_fresh:
        empty_to = piece.batch - 1 if piece.after is None else min(piece.batch - 1, piece.after)
    partition = replace(partition, offset=piece.end_offset, epoch=piece.epoch, empty_to=empty_to, ends=ends)
    return _with(intake, piece.partition, partition), Verdict.TAKEN


def take_marker(intake: StreamIntake, marker: Marker) -> tuple[StreamIntake, Verdict]:
    """Take in a marker."""
    partition = intake.partitions.get(marker.partition, Partition())
    if marker.epoch < partition.epoch:
        return intake, Verdict.REFUSED
    if marker.batch <= partition.closed and (partition.is_ended or not marker.is_last):
        return intake, Verdict.REPEATED
    begins = marker.end_offset if marker.first_offset is None else marker.first_offset
    has_rows_behind = marker.end_offset < partition.offset
    if begins > partition.offset or partition.is_ended or (marker.is_last and has_rows_behind):
        return intake, Verdict.REFUSED
    offset, ends = partition.offset, partition.ends
    if offset < marker.end_offset:
        offset = marker.end_offset
        ends = {**ends, max(marker.batch, partition.reached): offset}
    closed = max(marker.batch, partition.reached if marker.is_last else partition.closed)
    empty_to = marker.batch if partition.is_fresh else partition.empty_to
    partition = Partition(offset, closed, marker.epoch, empty_to, ends, marker.is_last)
    return _with(intake, marker.partition, partition), Verdict.TAKEN


def sealable(intake: StreamIntake, names: tuple[str, ...]) -> int | None:
    """Return the stream batch up to which all are complete, if there is a new one. names: the stream's partitions."""
    if not names:
        return None
    partitions = [intake.partitions.get(name, Partition()) for name in names]
    still_open = [one.closed for one in partitions if not one.is_ended]
    batch = min(still_open) if still_open else max(one.closed for one in partitions)
    return batch if batch > intake.sealed else None


def ends_of(intake: StreamIntake, batch: int) -> dict[str, int]:
    """Return, per partition, the row behind the last one of the stream batches up to this one."""

    def end(name: str, partition: Partition) -> int:
        return max(
            (end for number, end in partition.ends.items() if number <= batch), default=intake.offsets.get(name, 0)
        )

    return {name: end(name, partition) for name, partition in intake.partitions.items()}


def inserted(intake: StreamIntake, batch: int) -> StreamIntake:
    """Note that stream batches up to this one are in the store. If they are already, it says nothing new."""
    if not intake.inserted < batch <= intake.sealed:
        return intake
    offsets = ends_of(intake, batch)
    for name, partition in intake.partitions.items():
        ends = {later: end for later, end in partition.ends.items() if later > batch}
        intake = _with(intake, name, replace(partition, ends=ends))
    return replace(intake, inserted=batch, offsets=offsets)


def position(intake: StreamIntake | None, partition: str) -> tuple[int, int, bool]:
    """Return how far a partition has come here: rows, closed stream batches, whether its end is known. Sources go on
    from there."""
    found = intake.partitions.get(partition, Partition()) if intake else Partition()
    return found.offset, found.closed, found.is_ended


def local_vts(intakes: Mapping[str, StreamIntake]) -> Vts:
    return {stream: intake.inserted for stream, intake in intakes.items() if intake.inserted}


def _with(intake: StreamIntake, name: str, partition: Partition) -> StreamIntake:
    return replace(intake, partitions={**intake.partitions, name: partition})
