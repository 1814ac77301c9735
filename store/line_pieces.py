"""Text of lines cut into pieces that end where a line ends, so that each can be read apart from the others.

A piece ends behind a line feed, or behind a carriage return that has its next byte in view: the two of a CRLF stay
together. Together the pieces are the text, in order; none is empty.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO

LOOK_BYTES = 1 << 16
"""How much is read at once to find the end of a line."""
LINE_BYTES_MAX = 80_000_000
"""A line that ends a piece has at most as many bytes: four terms and a time."""


class LongLine(Exception):
    """A line is longer than LINE_BYTES_MAX. line: its number, from 1."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def _cut_behind_last_line(data: bytes) -> int:
    """Return where the last whole line of data ends, 0 if it holds none."""
    return max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1


def cut_stream(file: IO[bytes], piece_bytes: int) -> Iterator[memoryview]:
    """Read a file to its end and yield it in pieces of about piece_bytes; a longer line makes a longer piece.

    Raises LongLine."""
    rest, line = b"", 1
    while piece := file.read(piece_bytes):
        data = rest + piece
        cut = _cut_behind_last_line(data)
        rest = data[cut:]
        line += _line_count(data, cut)
        if len(rest) > LINE_BYTES_MAX:
            raise LongLine(line)
        if cut:
            yield memoryview(data)[:cut]
    if rest:
        yield memoryview(rest)


def cut_ranges(descriptor: int, start: int, stop: int, piece_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges [from, to) of the pieces of an open file between start, where a line begins, and stop.

    Only the neighbourhood of each cut is read. Raises OSError, LongLine."""
    while start < stop:
        end = _line_end(descriptor, start + piece_bytes, stop)
        if end - start > piece_bytes + LINE_BYTES_MAX:
            pieces = (os.pread(descriptor, LOOK_BYTES, at) for at in range(0, start, LOOK_BYTES))
            text = os.pread(descriptor, piece_bytes, start)
            lines = sum(map(_line_count, pieces)) + _line_count(text, _cut_behind_last_line(text))
            raise LongLine(1 + lines)
        yield start, end
        start = end


def _line_count(data: bytes, stop: int | None = None) -> int:
    return data.count(b"\n", 0, stop) or data.count(b"\r", 0, stop)


def _line_end(descriptor: int, at: int, stop: int) -> int:
    """Return where the line ends that holds the byte before `at`, `stop` if that is the last one."""
    at -= 1
    while at < stop:
        data = os.pread(descriptor, LOOK_BYTES, at)
        feed, carriage = data.find(b"\n"), data.find(b"\r", 0, len(data) - 1)
        if 0 <= carriage < feed or feed < 0 <= carriage:
            # Of a CRLF the feed is the end.
            feed = carriage + (data[carriage + 1] == 10)
        if feed >= 0:
            return min(at + feed + 1, stop)
        # A carriage return at the very end is looked at again, with what follows it.
        at += max(len(data) - 1, 1)
    return stop
