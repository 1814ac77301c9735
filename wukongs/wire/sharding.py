"""Which node owns which term, and how a piece is divided among the nodes.

A shard is a range of the top bits of the term id: ids are uniform in [0, 2^63), so 1024 virtual shards are even, and
moving one is slicing sorted columns. A tuple goes to the owner of its subject (which keeps the out-edge) and to the
owner of its object (which keeps the in-edge), once if they are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from store.dtypes import CLASH_FIRST, Int32Array, Int64Array
from store.encoded import Encoded
from wukongs.errors import SettingsError
from wukongs.wire.assignment import SHARD_COUNT, shards_of
from wukongs.wire.messages import Piece


@dataclass(frozen=True, slots=True, eq=False)
class ShardMap:
    """owners : int32[1024], the node of each virtual shard. Raises: SettingsError (a map that names no such nodes)."""

    owners: Int32Array
    node_count: int

    def __post_init__(self) -> None:
        owners = self.owners
        if len(owners) != SHARD_COUNT or self.node_count < 1 or owners.min() < 0 or owners.max() >= self.node_count:
            raise SettingsError(
                f"shard map of {len(owners)} shards over {self.node_count} nodes: expected {SHARD_COUNT} shards, "
                "each owned by one of the nodes 0 to node_count - 1"
            )

    @staticmethod
    def even(node_count: int) -> ShardMap:
        """Give each node one contiguous range of shards, as even as 1024 allows."""
        if not 1 <= node_count <= SHARD_COUNT:
            raise SettingsError(f"node_count = {node_count}: expected 1 to {SHARD_COUNT} nodes")
        return ShardMap((np.arange(SHARD_COUNT) * node_count // SHARD_COUNT).astype(np.int32), node_count)

    def owners_of(self, ids: Int64Array) -> Int32Array:
        """Return the node that owns each term id (ids >= 0)."""
        owners: Int32Array = self.owners[shards_of(ids)]
        return owners


def split(encoded: Encoded, shard_map: ShardMap) -> list[tuple[int, Int64Array]]:
    """Return (node, rows) for every node, in the order of the nodes; rows ascend and may be empty."""
    if shard_map.node_count == 1:
        return [(0, np.arange(len(encoded), dtype=np.int64))]
    of_subject = shard_map.owners_of(_hash_ids(encoded.subjects, encoded))
    of_object = shard_map.owners_of(_hash_ids(encoded.objects, encoded))
    return [(node, np.flatnonzero((of_subject == node) | (of_object == node))) for node in range(shard_map.node_count)]


def _hash_ids(column: Int64Array, encoded: Encoded) -> Int64Array:
    """Return a column with the codes of clashing terms replaced by the id that they clash on: its owner decides."""
    if not len(encoded.clashes):
        return column
    code = np.clip(CLASH_FIRST - column, 0, len(encoded.clashes) - 1)
    return np.where(column <= CLASH_FIRST, encoded.clashes.ids[code], column)


def split_piece(piece: Piece, shard_map: ShardMap) -> list[tuple[int, Piece]]:
    """Return each node's share of a piece, numbered by the node; a share may be empty, so that offsets stay gapless."""
    if shard_map.node_count == 1:
        return [(0, piece)]
    cutter = TermCutter(piece.encoded)
    return [
        (node, replace(piece, piece=node, encoded=cutter.cut(rows), timing=piece.timing[rows]))
        for node, rows in split(piece.encoded, shard_map)
    ]


class TermCutter:
    """Cuts rows out of encoded tuples, each cut with just the texts that its rows need.

    The clashes, which are next to never there, go along whole: the codes in the columns count them.
    """

    def __init__(self, encoded: Encoded) -> None:
        self._encoded = encoded
        order = np.argsort(encoded.terms.ids, kind="stable")
        sorted_ids = encoded.terms.ids[order]
        columns = (encoded.subjects, encoded.predicates, encoded.objects, encoded.graphs)
        self._places = [_places(column, sorted_ids, order) for column in columns]

    def cut(self, rows: Int64Array) -> Encoded:
        """Return the rows with these numbers, in this order."""
        encoded, term_count = self._encoded, len(self._encoded.terms)
        used = np.zeros(term_count + 1, np.bool_)
        for places in self._places:
            used[places[rows]] = True
        terms = encoded.terms.take(np.flatnonzero(used[:term_count]))
        times = encoded.timestamps[rows] if len(encoded.timestamps) else encoded.timestamps
        return Encoded(
            encoded.subjects[rows],
            encoded.predicates[rows],
            encoded.objects[rows],
            encoded.graphs[rows],
            times,
            terms,
            encoded.clashes,
        )


def _places(column: Int64Array, sorted_ids: Int64Array, order: Int64Array) -> Int64Array:
    """Return the row of each id in the term table, len(sorted_ids) for an id without text there (inlined, unbound)."""
    missing = len(sorted_ids)
    if missing == 0:
        return np.zeros(len(column), np.int64)
    found = np.minimum(np.searchsorted(sorted_ids, column), missing - 1)
    return np.where(sorted_ids[found] == column, order[found], missing)
