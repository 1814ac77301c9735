"""Membership: which stream batches have brought the tuples of one predicate of a stream last.

A window holds a tuple as long as it reaches back to the last stream batch with it, whatever blocks its slices are in.
So one look-up tells when a match ends, and windows of all sizes share the table (docs/decisions/0043-deltas.md).

Invariants:

* all tuples of the stream batches since < k <= to are there, with the last of these that brought them;
* of a tuple that has come behind the epoch, the last stream batch up to the epoch with it is there too.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.dtypes import Int64Array
from wukongs.store.layout import ENTRY_NEWEST, ENTRY_WIDTH, NEVER
from wukongs.store.membership_kernels import copy_entries, count_tuples, note_slice
from wukongs.store.slice_ring import SliceRing

ENTRIES_MIN = 1 << 10
ENTRIES_MAX = 1 << 23
"""A table with more entries (256 MiB) is not kept: whoever needs it does without."""


class Membership:
    """The tuples of one predicate of a stream. table : int64[2 ** n, ENTRY_WIDTH], for kernels; it is made anew as it
    grows."""

    def __init__(self, predicate: int) -> None:
        self.predicate = predicate
        self.users = 0
        self.table = _free(ENTRIES_MIN)
        self.since = 0
        self.epoch: int | None = None
        """The stream batch at which it stood before this time. None: nobody has moved it on yet."""
        self.to: int | None = None
        self._count = 0
        self._is_too_large = False
        self._reach = 0
        """The widest window that was asked for, in stream batches."""

    def stand(self, ring: SliceRing, after: int, to: int) -> bool:
        """Know the stream batches after < k <= to of a stream; return whether it does. It goes on from where it stood,
        or begins anew; it never goes back, since others are ahead."""
        self._reach = max(self._reach, to - after)
        if self._is_too_large or (self.to is not None and to < self.to):
            return False
        if self.to is not None and self.since <= after:
            if to > self.to:
                first, self.epoch = self.to, self.to
                self._note(ring, first, to)
        else:
            self.table, self._count = _free(ENTRIES_MIN), 0
            self.since, self.epoch = after, None
            self._note(ring, after, to)
        return not self._is_too_large

    def _note(self, ring: SliceRing, after: int, to: int) -> None:
        epoch = to if self.epoch is None else self.epoch
        for number in ring.numbers(after, to):
            batch = ring.slice(number)
            count = int(count_tuples(batch.descriptor, self.predicate))
            if not self._make_room(count, to - self._reach):
                self._is_too_large, self.table = True, _free(ENTRIES_MIN)
                return
            self._count += note_slice(self.table, batch.descriptor, self.predicate, number, epoch)
        self.to = to

    def _make_room(self, count: int, after: int) -> bool:
        """Have room for so many more, at most half of the entries taken; forget those that no window reaches. Return
        whether there is room."""
        if 2 * (self._count + count) <= len(self.table):
            return True
        kept = int((self.table[:, ENTRY_NEWEST] > after).sum())
        room = max(ENTRIES_MIN, 1 << (4 * (kept + count) - 1).bit_length())
        if room > ENTRIES_MAX:
            return False
        target = _free(room)
        self._count = copy_entries(self.table, target, after)
        self.table, self.since = target, max(self.since, after)
        return True


def _free(count: int) -> Int64Array:
    table = np.empty((count, ENTRY_WIDTH), np.int64)
    table[:, ENTRY_NEWEST] = NEVER
    return table
