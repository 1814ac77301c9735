"""Ranks: the order in which the inferred triples of a recursive stratum were derived.

A round derives from what is there already. So each inferred triple has a derivation from triples of lower ranks; those
that are explicit, or come from strata before, have none, which is below all. A triple that has lost a derivation stays
if another one is left of triples of lower ranks than its own: by that order nothing rests on itself. Without ranks it
has to go with all that rests on it, until it is derived again. So on a graph in which most triples have several
derivations ranks spare most of the work of a deletion, and elsewhere they are not worth their memory: 67 bytes or more
for each triple.

The triples of one round get ranks one after the other, too: by that, half of what derives others beside it may do so.
"""

from __future__ import annotations

import numpy as np

from wukongs.rules.rank_kernels import forget_ranks, move_ranks, put_ranks, raise_to_ranks
from wukongs.store.dtypes import Int64Array
from wukongs.store.quads import Quads

_FILLED_MAX = 0.6
_ROOM = 1.5
"""More than is needed, so that it is long until all are moved again."""
_SLOTS_MIN = 1 << 10


class Ranks:
    """A hash table. A triple has a rank as long as it is inferred, and there; then it keeps its entry."""

    def __init__(self) -> None:
        self._slots = np.zeros((_SLOTS_MIN, 4), np.int64)
        self._ranks = np.zeros(_SLOTS_MIN, np.int64)
        self._filled = 0
        self._next = 1

    @property
    def size_bytes(self) -> int:
        return self._slots.nbytes + self._ranks.nbytes

    def put(self, quads: Quads) -> None:
        """Give triples that a round has derived ranks above all others, one to each."""
        needed = self._filled + len(quads[0])
        if needed > _FILLED_MAX * len(self._ranks):
            live = self._ranks > 0  # those that were forgotten are left behind
            self._filled = int(np.count_nonzero(live))
            needed = max(_SLOTS_MIN, self._filled + len(quads[0]))
            count = 1 << int(np.ceil(np.log2(_ROOM * needed / _FILLED_MAX)))
            slots, ranks = np.zeros((count, 4), np.int64), np.zeros(count, np.int64)
            move_ranks(self._slots[live], self._ranks[live], slots, ranks)
            self._slots, self._ranks = slots, ranks
        self._filled += int(put_ranks(self._slots, self._ranks, *quads, self._next))
        self._next += len(quads[0])

    def table(self) -> tuple[Int64Array, Int64Array]:
        """Return the slots and their ranks, as kernels take them."""
        return self._slots, self._ranks

    def forget(self, quads: Quads) -> None:
        """Let triples have no rank any more: they have gone, or are explicit now."""
        forget_ranks(self._slots, self._ranks, *quads)

    def raise_to(self, found: Int64Array, quads: Quads) -> None:
        """Raise each rank of some, int64[n], to that of a triple, if that is higher."""
        raise_to_ranks(self._slots, self._ranks, *quads, found)

    def of(self, quads: Quads) -> Int64Array:
        """Return the ranks of triples, 0 for those without. int64[n]"""
        found = np.zeros(len(quads[0]), np.int64)
        self.raise_to(found, quads)
        return found
