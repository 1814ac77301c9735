"""Journal: the way of all changes of an engine. A durable engine logs them here before they hold.

Every change is made under the engine's lock, in one of two ways:

* `prepare()`, then `note(message, then)`: tuples and progress of streams, often. The tuples wait under their stream
  batches at once; `then`, which moves the stream on, is called once the record is safe. The caller waits for that
  without the lock.
* `commit(change)`: everything else, seldom. Returns once the record, and so all before it, is safe and applied; the
  caller then makes the change, still under the lock.

So nothing becomes visible in a snapshot or a window before it is safe. An engine in memory has a Journal, where all of
this is immediate; wukongs.durable.durability has the durable one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from wukongs.errors import StorageError
from wukongs.live.header import Frame
from wukongs.live.pieces import Piece, Told
from wukongs.store.encoded import Encoded
from wukongs.store.quads import Quads

MARK, MESSAGE, CHANGE, ACKNOWLEDGED = 1, 2, 3, 4
"""The kinds of records: the state of streams and queries at the head of a segment (JSON); a message of
wukongs.live.pieces; another change (JSON); up to which window the results of queries were taken (JSON)."""
LOAD_STREAM = ""
"""The stream of a Piece that holds triples of a load or update. Its partition is the number of the load or update. No
real stream has this name."""
COMES, GOES = 0, 1
"""The number of such a Piece: whether its triples are stored, or an update deletes them."""

Change: TypeAlias = dict[str, Any]


class Journal:
    """The journal of an engine in memory: nothing is logged, and every change holds at once."""

    def prepare(self) -> None:
        """Be ready for `note`. Called with the engine's lock held, before anything is changed. Raises StorageError."""

    def note(self, message: Told, then: Callable[[], None]) -> int:
        """Log what was just taken; `then` is called once it is safe. Return its LSN, to wait for.

        Called with the engine's lock held, after prepare() and without letting go of the lock in between."""
        then()
        return 0

    def note_load(self, number: int, encoded: Encoded, goes: bool = False) -> None:
        """Log a chunk of loaded triples, before its terms are confirmed. It counts once the load is committed.

        goes: it is what an update deletes."""

    def note_quads(self, number: int, quads: Quads, goes: bool = False) -> None:
        """Log quads whose terms are known, as note_load does: an update stores them or, with goes, deletes them."""

    def abandon_load(self, number: int) -> None:
        """Forget the chunks of a load that has failed."""

    def commit(self, change: Change | Told) -> int:
        """Log a change and return its LSN when it, and everything before it, is safe; the caller applies it then.

        Called with the engine's lock held. Raises StorageError; then the change must not be made."""
        return 0

    def wait(self, lsn: int | None = None) -> None:
        """Wait until the record `lsn` (default: every record so far) is safe and holds. Called without the lock.

        Raises StorageError."""

    def fired(self, query_lsn: int, at_ms: int, needs_ms: Mapping[str, int], is_compared: bool) -> None:
        """Note that a query has picked the batches of a firing. needs_ms: it reads, of each stream, what came after
        this.

        is_compared: its next firing is compared with this one. Called with the lock held."""

    def acknowledge(self, query_lsn: int, end_ms: int) -> None:
        """Note that the windows of a query up to a time were taken. From any thread."""

    def forget_query(self, query_lsn: int, lsn: int) -> None:
        """Note that a query was closed by record lsn. Called with the lock held."""

    def sealed_late(self, sn: int) -> None:
        """Note that tuples of a stream that began late were sealed at an SN that is not that of their time."""

    def checkpoint(self) -> None:
        """Write what is stored to the data folder. Called without the lock. Raises StorageError."""

    def backup(self, target: Path) -> None:
        """Copy the data folder. Called without the lock. Raises StorageError (there is none; no room)."""
        raise StorageError("this engine is in memory: only one with a data_dir is backed up; dump() writes its graphs")

    def stats(self) -> dict[str, Any]:
        """Return counts and sizes of the log and the checkpoints."""
        return {}

    def close(self) -> None:
        """End, with a last checkpoint. Called without the lock, when nothing is taken any more."""


def pack_frames(frames: Sequence[Frame]) -> list[Frame]:
    """Return the payload that holds these frames: their count and sizes, then each frame, padded to 8 bytes."""
    sizes = [len(frame) for frame in frames]
    payload: list[Frame] = [struct.pack(f"<{1 + len(sizes)}Q", len(sizes), *sizes)]
    for frame, size in zip(frames, sizes, strict=True):
        payload.append(frame)
        if size % 8:
            payload.append(bytes(-size % 8))
    return payload


def unpack_frames(payload: memoryview) -> list[Frame]:
    """Return the frames of a payload, each aligned to 8 bytes."""
    data = memoryview(bytes(payload))
    count = int.from_bytes(data[:8], "little")
    at = 8 * (count + 1)
    frames: list[Frame] = []
    for size in struct.unpack_from(f"<{count}Q", data, 8):
        frames.append(data[at : at + size])
        at += size + -size % 8
    return frames


def load_piece(number: int, encoded: Encoded, goes: bool = False) -> Piece:
    """Return a chunk of loaded triples as a message; they have no times. goes: an update deletes them."""
    count = len(encoded)
    timed = replace(encoded, timestamps=np.zeros(count, np.int64))
    share = GOES if goes else COMES
    return Piece(LOAD_STREAM, str(number), 0, 0, max(count, 1), share, 0, timed, np.zeros(count, np.bool_))
