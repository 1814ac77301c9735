"""Feeding: what the writer of a stream's partition tells a node, and pieces as columns of a packet.

One message has all that a writer has to say at once: pieces of one or more stream batches, up to when they are
complete, and the end. A message with none of these says who writes from now on. A packet has the messages of one or
more streams that one node writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np

from wukongs.cluster.pushes import Push, asked_in
from wukongs.errors import DataError
from wukongs.live.pieces import Piece
from wukongs.outcomes import Asked
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoded import Encoded
from wukongs.wire.packet_columns import (
    column_of,
    count_of,
    numbers_of,
    objects_of,
    text_of,
    time_of,
    tuples_in,
    tuples_packet,
)
from wukongs.wire.packets import Packet

FEED = "feed"
_Writer: TypeAlias = tuple[str, str, int]
"""Stream, partition and epoch."""
_LATE = ("late_count", "dropped_count", "carried_count")
_NUMBERS = ("batch_numbers", "first_offsets", "end_offsets")


@dataclass(frozen=True, slots=True, eq=False)
class Fed:
    """One message of a writer, to a node or to all of them. The node takes in its parts in this order:

    pieces: their rows tile. complete_ms: all rows before end_offset were sent, and nothing at or before this time comes
    any more; None: it does not say so. is_last: the partition is at its end. is_idle: nothing was brought for so long
    that the writer itself closes it so far (idleness.py). first_ms: the time of its first row, or of an advance; all
    nodes are to know from when on the stream is there, and few have that row. late_count, dropped_count,
    carried_count: how many tuples have come late to the stream so far, how many of them are nowhere, and how many
    stream batches carry. push: the client's push that it is a
    part of, if its client has numbered it; torn: of a push before it, which some nodes have and others never will."""

    stream: str
    partition: str
    epoch: int
    pieces: Sequence[Piece] = ()
    end_offset: int = 0
    complete_ms: int | None = None
    is_last: bool = False
    is_idle: bool = False
    first_ms: int | None = None
    late_count: int = 0
    dropped_count: int = 0
    carried_count: int = 0
    push: Push | None = None
    torn: Asked | None = None
    divided: object = None
    """The nodes of the shards (Control.shards) by which the pieces of a share were divided."""

    @property
    def is_opening(self) -> bool:
        """Whether it says no more than who writes."""
        return not (self.pieces or self.is_last or self.is_idle) and self.complete_ms is None

    def parts(self, pieces_max: int) -> list[Fed]:
        """Return the same in messages with at most so many pieces."""
        starts = range(0, len(self.pieces), pieces_max)
        who = {"push": self.push, "torn": self.torn, "divided": self.divided}
        found = [
            Fed(self.stream, self.partition, self.epoch, self.pieces[at : at + pieces_max], **who)  # type: ignore[arg-type]
            for at in starts
        ]
        return [*found[:-1], replace(self, pieces=found[-1].pieces if found else ())]

    @property
    def fields(self) -> dict[str, Any]:
        """All but its pieces, as JSON."""
        fields: dict[str, Any] = {"stream": self.stream, "partition": self.partition, "epoch": self.epoch}
        fields |= {name: getattr(self, name) for name in _LATE if getattr(self, name)}
        if self.complete_ms is not None:
            fields |= {"end_offset": self.end_offset, "complete_ms": self.complete_ms}
        fields |= {name: True for name in ("is_last", "is_idle") if getattr(self, name)}
        if self.first_ms is not None:
            fields["first_ms"] = self.first_ms
        if self.push is not None:
            fields |= {"push": self.push} | ({} if self.torn is None else {"torn": self.torn})
        return fields

    @staticmethod
    def of(fields: Mapping[str, Any], pieces: Sequence[Piece] = ()) -> Fed:
        """Return the message with these fields and pieces. Raises DataError."""
        said = Packet(FEED, fields)
        is_last, is_idle = (fields.get(name) is True for name in ("is_last", "is_idle"))
        late = [count_of(said, name) if name in fields else 0 for name in _LATE]
        first_ms = time_of(said, "first_ms") if "first_ms" in fields else None
        push = Push.of_json(fields.get("push"))
        torn = None if fields.get("torn") is None else asked_in(fields["torn"])
        fed = Fed(*_writer_in(said), pieces, 0, None, is_last, is_idle, first_ms, late[0], late[1], late[2], push, torn)
        if fields.get("complete_ms") is None:
            return fed
        return replace(fed, end_offset=count_of(said, "end_offset"), complete_ms=time_of(said, "complete_ms"))


def feds_packet(feds: Sequence[Fed], index: int, view: int | None = None) -> Packet:
    """Return messages to one node as a packet: the pieces of all of them, and in the fields "feds", for each what it
    says beside these, with the number of its pieces.

    index: how far the node has to know the log; view: the one under which all new terms are agreed on already, if they
    are."""
    told = [fed.fields | {"piece_count": len(fed.pieces)} for fed in feds]
    pieces = [piece for fed in feds for piece in fed.pieces]
    return pieces_packet(FEED, pieces, feds=told, index=index, view=view)


def feds_in(packet: Packet) -> list[Fed]:
    """Return the messages of a packet. Raises DataError: anything that is none."""
    said = objects_of(packet, "feds")
    counts = [count_of(Packet(FEED, fields), "piece_count") for fields in said]
    pieces = pieces_in(packet, [fields for fields, count in zip(said, counts, strict=True) for _ in range(count)])
    bounds = pairwise(accumulate(counts, initial=0))
    return [Fed.of(fields, pieces[lo:hi]) for fields, (lo, hi) in zip(said, bounds, strict=True)]


def index_of(packet: Packet) -> int:
    """Return how far the reader of a packet has to know the log. Raises DataError."""
    return count_of(packet, "index")


def view_of(packet: Packet) -> int | None:
    """Return under which view the terms of a packet are agreed on, None if they are not. Raises DataError."""
    return None if packet.fields.get("view") is None else count_of(packet, "view")


# --- pieces -----------------------------------------------------------------------------------------------------------


def pieces_packet(kind: str, pieces: Sequence[Piece], **fields: Any) -> Packet:
    """Return pieces as a packet: the groups of tuples of packet_columns.py, and beside them

    timing : bool[all rows]; places : int64[all rows], left out where all pieces are whole;
    batch_numbers, first_offsets, end_offsets : in the fields, one of each piece.

    fields: those of one writer are stream, partition and epoch; see also feds_packet."""
    if not pieces:
        return Packet(kind, fields)
    fields["batch_numbers"] = [piece.batch_number for piece in pieces]
    fields["first_offsets"] = [piece.first_offset for piece in pieces]
    fields["end_offsets"] = [piece.end_offset for piece in pieces]
    made = tuples_packet(kind, [piece.encoded for piece in pieces], **fields)
    arrays = {**made.arrays, "timing": np.concatenate([piece.timing for piece in pieces])}
    if any(piece.places is not None for piece in pieces):
        arrays["places"] = np.concatenate([piece.row_places() for piece in pieces])
    return Packet(kind, made.fields, arrays)


def pieces_in(packet: Packet, said: Sequence[Mapping[str, Any]] | None = None, is_trusted: bool = False) -> list[Piece]:
    """Return the pieces of a packet. said: stream, partition and epoch of each; None: all have those of the packet;
    is_trusted: as in tuples_in. Raises DataError."""
    groups = tuples_in(packet, is_trusted=is_trusted)
    if said is None:
        return _pieces(packet, groups, [_writer_in(packet)] * len(groups)) if groups else []
    if len(said) != len(groups):
        raise DataError(f"{packet.kind}: expected {len(said)} pieces, found {len(groups)}")
    return _pieces(packet, groups, [_writer_in(Packet(packet.kind, fields)) for fields in said])


def _pieces(packet: Packet, groups: Sequence[Encoded], writers: Sequence[_Writer]) -> list[Piece]:
    if not groups:
        return []
    row_count = sum(map(len, groups))
    timing = column_of(packet, "timing", np.bool_, row_count)
    places = column_of(packet, "places", np.int64, row_count) if "places" in packet.arrays else None
    columns = (numbers_of(packet, name, len(groups)) for name in _NUMBERS)
    pieces, at = [], 0
    named = zip(groups, writers, *columns, strict=True)
    for encoded, (stream, partition, epoch), number, first, end in named:
        rows = slice(at, at + len(encoded))
        at = rows.stop
        if not 0 <= first < end:
            raise DataError(f"{packet.kind}: expected 0 <= first offset < end offset, found {first} and {end}")
        own = None if places is None else _ascending(packet, places[rows])
        pieces.append(Piece(stream, partition, epoch, first, end, 0, number, encoded, timing[rows], own))
    return pieces


def _writer_in(packet: Packet) -> _Writer:
    return text_of(packet, "stream"), text_of(packet, "partition"), count_of(packet, "epoch")


def _ascending(packet: Packet, places: Int64Array) -> Int64Array:
    if len(places) and (places[0] < 0 or (places[1:] <= places[:-1]).any()):
        raise DataError(f"{packet.kind}: expected ascending places in a share, found others")
    return places
