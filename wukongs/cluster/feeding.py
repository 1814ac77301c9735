"""Ingest messages between nodes: those of wukongs/live/pieces.py, several of them in one packet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np

from wukongs.errors import DataError
from wukongs.live.pieces import Piece
from wukongs.store.encoded import Encoded
from wukongs.wire.messages import Message, from_frames, to_frames
from wukongs.wire.packets import Packet

FEED = "feed"
SIZES = "frame_sizes"
"""The field that says, per message, how many bytes each of its frames has; the array FRAMES has them all in a row."""
FRAMES = "frames"
INDEX = "index"
CLAIM_VIEW = "view"


def feed_packet(messages: Sequence[Message], index: int = 0, view: int | None = None) -> Packet:
    """Put ingest messages into one packet. index: how far who reads them has to know the log; view: the one under which
    all new terms in them are agreed on already, if they are."""
    every = [to_frames(message, 1) for message in messages]
    data = b"".join(frame for frames in every for frame in frames)
    sizes = [[len(frame) for frame in frames] for frames in every]
    fields = {SIZES: sizes, INDEX: index, CLAIM_VIEW: view}
    return Packet(FEED, fields, {FRAMES: np.frombuffer(data, np.uint8)})


def as_piece(encoded: Encoded) -> Piece:
    """Return tuples without times, which belong to no stream, as a piece: so they can be sent."""
    count = len(encoded)
    tuples = replace(encoded, timestamps=np.zeros(count, np.int64))
    return Piece("", "", 0, 0, count, 0, 0, tuples, np.zeros(count, np.bool_))


def messages_in(packet: Packet) -> list[Message]:
    """Return the messages of a packet. Raises DataError."""
    sizes, data = _sizes(packet), packet.arrays.get(FRAMES)
    if data is None or data.dtype != np.uint8 or sum(map(sum, sizes)) != len(data):
        found = "nothing" if data is None else f"{len(data)} bytes"
        raise DataError(f"{packet.kind}: expected frames of {sum(map(sum, sizes))} bytes, found {found}")
    messages, at = [], 0
    for frame_sizes in sizes:
        bounds = list(accumulate(frame_sizes, initial=at))
        messages.append(from_frames([data[lo:hi].data for lo, hi in pairwise(bounds)])[0])
        at = bounds[-1]
    return messages


def index_of(packet: Packet) -> int:
    """Return how far who reads a packet has to know the log. Raises DataError."""
    index = packet.fields.get(INDEX)
    if type(index) is not int:
        raise DataError(f"{packet.kind}: expected an index of the log, found {index!r}")
    return index


def view_of(packet: Packet) -> int | None:
    """Return under which view the terms of a packet are agreed on, None if they are not. Raises DataError."""
    view = packet.fields.get(CLAIM_VIEW)
    if view is not None and type(view) is not int:
        raise DataError(f"{packet.kind}: expected the index of a view, found {view!r}")
    return view


def _sizes(packet: Packet) -> list[list[int]]:
    sizes = packet.fields.get(SIZES)
    is_list = isinstance(sizes, list) and all(isinstance(one, list) for one in sizes)
    if not is_list or not all(type(size) is int and size >= 0 for one in sizes or () for size in one):
        raise DataError(f"{packet.kind}: expected the sizes of each message's frames, found {str(sizes)[:60]}")
    return sizes or []
