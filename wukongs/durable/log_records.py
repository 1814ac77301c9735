"""The records of a data folder's log: their kinds, and the messages in them. store/wal.py numbers the formats.

The payload of a record is JSON, except that of a message: the count and sizes of its frames (wukongs.live.pieces), and
the frames, each aligned to 8 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wukongs.live.header import Frame
from wukongs.live.pieces import Chunk, Piece, Pushed, Told, chunk_frames, from_frames, pushed_frames, to_frames

MARK, MESSAGE, CHANGE, ACKNOWLEDGED, POSITIONS = 1, 2, 3, 4, 5
"""The kinds: the state of streams and queries at the head of a segment; a message of wukongs.live.pieces; another
change; up to which window the results of queries were taken; how far the readers of live views have got."""


def message_payload(message: Told | Chunk | Pushed) -> list[Frame]:
    """Return the payload of a record that holds a message."""
    if isinstance(message, Chunk):
        frames = chunk_frames(message)
    else:
        frames = pushed_frames(message) if isinstance(message, Pushed) else to_frames(message)
    return framed(frames)


def framed(frames: Sequence[Frame]) -> list[Frame]:
    """Return frames as the payload of a record."""
    sizes = [len(frame) for frame in frames]
    payload: list[Frame] = [struct.pack(f"<{1 + len(sizes)}Q", len(sizes), *sizes)]
    for frame, size in zip(frames, sizes, strict=True):
        payload.append(frame)
        if size % 8:
            payload.append(bytes(-size % 8))
    return payload


def frames_in(payload: memoryview) -> list[Frame]:
    """Return the frames of a record whose checksum is right: aligned as the payload is."""
    count = int.from_bytes(payload[:8], "little")
    at = 8 * (count + 1)
    frames: list[Frame] = []
    for size in struct.unpack_from(f"<{count}Q", payload, 8):
        frames.append(payload[at : at + size])
        at += size + -size % 8
    return frames


def message_in(payload: memoryview) -> Told | Chunk | Pushed:
    """Return the message of a record whose checksum is right."""
    message = from_frames(frames_in(memoryview(bytes(payload))), is_trusted=True)
    if isinstance(message, Piece) and message.stream == "":
        return _chunk_of_format_2(message)
    return message


def _chunk_of_format_2(piece: Piece) -> Chunk:
    """Return the chunk that a log of format 1 or 2 holds as a piece of a stream without name: the partition is the
    number of the load or update, and the piece says whether its tuples come (0) or go (1)."""
    encoded = replace(piece.encoded, timestamps=np.empty(0, np.int64))
    return Chunk(int(piece.partition), encoded, goes=piece.piece == 1)
