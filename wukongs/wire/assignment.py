"""Assignment: which node answers for each shard, as one read sees it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wukongs.store.dtypes import ID_BITS, BoolArray, Int32Array, Int64Array

SHARD_BITS = 10
SHARD_COUNT = 1 << SHARD_BITS
_SHIFT = ID_BITS - SHARD_BITS


def shards_of(ids: Int64Array) -> Int64Array:
    """Return the shard of each term id (ids >= 0): its top bits. Ids are uniform, those of inlined literals too."""
    return ids >> _SHIFT


@dataclass(frozen=True, eq=False)
class Assignment:
    """nodes : int32[SHARD_COUNT], for each shard one of its in-sync replicas; me: the node that reads; split: ids of
    predicates whose in-edges live with the subject, since the lists of their objects would be very long."""

    nodes: Int32Array
    me: int
    split: frozenset[int] = frozenset()

    def of(self, ids: Int64Array) -> Int32Array:
        """Return the node that answers for each id."""
        found: Int32Array = self.nodes[shards_of(ids)]
        return found

    def shards(self, node: int) -> BoolArray:
        """Tell for which shards a node answers. bool[SHARD_COUNT]"""
        answers: BoolArray = self.nodes == node
        return answers

    @cached_property
    def others(self) -> tuple[int, ...]:
        """The other nodes that answer for some shard, in order."""
        return tuple(node for node in np.unique(self.nodes).tolist() if node != self.me)

    @property
    def is_local(self) -> bool:
        """Whether the reading node answers for everything itself."""
        return not self.others

    @cached_property
    def answered(self) -> float:
        """Which part of the ids the reading node answers for."""
        return max(float((self.nodes == self.me).mean()), 1e-3)

    @cached_property
    def split_ids(self) -> Int64Array:
        """The ids of split predicates, sorted. int64[n]"""
        return np.array(sorted(self.split), np.int64)
