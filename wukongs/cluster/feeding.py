"""Feeding: what the writer of a stream's partition tells a node, and pieces as columns of a packet.

One message has all that a writer has to say at once: pieces of one or more stream batches, up to when they are
complete, and the end. A message with none of these says who writes from now on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wukongs.errors import DataError
from wukongs.live.pieces import Piece
from wukongs.store.dtypes import Int64Array
from wukongs.wire.packet_columns import column_of, count_of, numbers_of, text_of, time_of, tuples_in, tuples_packet
from wukongs.wire.packets import Packet

FEED = "feed"
_LATE = ("late_count", "dropped_count")
_NUMBERS = ("batch_numbers", "first_offsets", "end_offsets")


@dataclass(frozen=True, slots=True, eq=False)
class Fed:
    """One message of a writer, to a node or to all of them. The node takes in its parts in this order:

    pieces: their rows tile. complete_ms: all rows before end_offset were sent, and nothing at or before this time comes
    any more; None: it does not say so. is_last: the partition is at its end. is_idle: nothing was brought for so long
    that the writer itself closes it so far (idleness.py). first_ms: the time of its first row, or of an advance; all
    nodes are to know from when on the stream is there, and few have that row. late_count, dropped_count: how many
    tuples have come late to the stream so far, and how many of them are nowhere."""

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

    @property
    def is_opening(self) -> bool:
        """Whether it says no more than who writes."""
        return not (self.pieces or self.is_last or self.is_idle) and self.complete_ms is None

    def parts(self, pieces_max: int) -> list[Fed]:
        """Return the same in messages with at most so many pieces."""
        starts = range(0, len(self.pieces), pieces_max)
        found = [Fed(self.stream, self.partition, self.epoch, self.pieces[at : at + pieces_max]) for at in starts]
        return [*found[:-1], replace(self, pieces=found[-1].pieces if found else ())]

    def packet(self, index: int, view: int | None = None) -> Packet:
        """index: how far the node has to know the log; view: the one under which all new terms are agreed on already,
        if they are."""
        fields = {"stream": self.stream, "partition": self.partition, "epoch": self.epoch, "index": index, "view": view}
        fields |= {name: getattr(self, name) for name in _LATE if getattr(self, name)}
        if self.complete_ms is not None:
            fields |= {"end_offset": self.end_offset, "complete_ms": self.complete_ms}
        fields |= {name: True for name in ("is_last", "is_idle") if getattr(self, name)}
        if self.first_ms is not None:
            fields["first_ms"] = self.first_ms
        return pieces_packet(FEED, self.pieces, **fields)

    @staticmethod
    def of(packet: Packet) -> Fed:
        """Raises DataError: anything that is no such message."""
        is_last, is_idle = (packet.fields.get(name) is True for name in ("is_last", "is_idle"))
        late, dropped = (count_of(packet, name) if name in packet.fields else 0 for name in _LATE)
        first_ms = time_of(packet, "first_ms") if "first_ms" in packet.fields else None
        fed = Fed(*_writer_in(packet), pieces_in(packet), 0, None, is_last, is_idle, first_ms, late, dropped)
        if packet.fields.get("complete_ms") is None:
            return fed
        return replace(fed, end_offset=count_of(packet, "end_offset"), complete_ms=time_of(packet, "complete_ms"))


def index_of(packet: Packet) -> int:
    """Return how far the reader of a packet has to know the log. Raises DataError."""
    return count_of(packet, "index")


def view_of(packet: Packet) -> int | None:
    """Return under which view the terms of a packet are agreed on, None if they are not. Raises DataError."""
    return None if packet.fields.get("view") is None else count_of(packet, "view")


# --- pieces -----------------------------------------------------------------------------------------------------------


def pieces_packet(kind: str, pieces: Sequence[Piece], **fields: Any) -> Packet:
    """Return pieces of one writer as a packet: the groups of tuples of packet_columns.py, and beside them

    timing : bool[all rows]; places : int64[all rows], left out where all pieces are whole;
    batch_numbers, first_offsets, end_offsets : in the fields, one of each piece.

    fields: stream, partition and epoch are among them."""
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


def pieces_in(packet: Packet) -> list[Piece]:
    """Return the pieces of a packet. Raises DataError."""
    groups = tuples_in(packet)
    if not groups:
        return []
    stream, partition, epoch = _writer_in(packet)
    row_count = sum(map(len, groups))
    timing = column_of(packet, "timing", np.bool_, row_count)
    places = column_of(packet, "places", np.int64, row_count) if "places" in packet.arrays else None
    columns = (numbers_of(packet, name, len(groups)) for name in _NUMBERS)
    pieces, at = [], 0
    for encoded, number, first, end in zip(groups, *columns, strict=True):
        rows = slice(at, at + len(encoded))
        at = rows.stop
        if not 0 <= first < end:
            raise DataError(f"{packet.kind}: expected 0 <= first offset < end offset, found {first} and {end}")
        own = None if places is None else _ascending(packet, places[rows])
        pieces.append(Piece(stream, partition, epoch, first, end, 0, number, encoded, timing[rows], own))
    return pieces


def _writer_in(packet: Packet) -> tuple[str, str, int]:
    return text_of(packet, "stream"), text_of(packet, "partition"), count_of(packet, "epoch")


def _ascending(packet: Packet, places: Int64Array) -> Int64Array:
    if len(places) and (places[0] < 0 or (places[1:] <= places[:-1]).any()):
        raise DataError(f"{packet.kind}: expected ascending places in a share, found others")
    return places
