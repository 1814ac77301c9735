"""Sharding: the nodes that keep a term's edges, and how a piece is divided among the nodes.

A shard is a range of the top bits of the term id: ids are uniform in [0, 2^63), so 1024 virtual shards are even, and
moving one is slicing sorted columns. A tuple goes to all replicas of its subject's shard, which keep the out-edge.
Unless its predicate is split, it also goes to all replicas of its object's shard, which keep the in-edge. No node gets
it twice. A timing tuple only goes to the replicas of its subject: it lives in windows, which are put together from the
shares by subjects.

A split predicate, such as rdf:type, has few objects with very many subjects each. Their in-edges stay with the
subjects, and so are spread over all nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wukongs.csparql.terms import iri
from wukongs.errors import SettingsError
from wukongs.live.pieces import Piece
from wukongs.store.dtypes import CLASH_FIRST, BoolArray, Int32Array, Int64Array
from wukongs.store.encoded import Encoded, TermCutter
from wukongs.wire.assignment import SHARD_COUNT, shards_of
from wukongs.wire.messages import Place

SPLIT_PREDICATES = ("http://www.w3.org/1999/02/22-rdf-syntax-ns#type",)
NOBODY = -1


@dataclass(frozen=True, slots=True, eq=False)
class ShardMap:
    """owners : int32[1024, n], the nodes of each virtual shard, distinct, NOBODY where it has fewer; split: IRIs of
    split predicates.

    Raises: SettingsError (a map that names no such nodes)."""

    owners: Int32Array
    node_count: int
    split: Sequence[str] = SPLIT_PREDICATES

    def __post_init__(self) -> None:
        shape, node_count = self.owners.shape, self.node_count
        if len(shape) != 2 or shape[0] != SHARD_COUNT or not shape[1] or node_count < 1 or self._is_wrong():
            raise SettingsError(
                f"shard map of {' x '.join(map(str, shape))} over {node_count} nodes: expected {SHARD_COUNT} shards, "
                "each with different nodes among 0 to node_count - 1"
            )

    def _is_wrong(self) -> bool:
        ascending = np.sort(self.owners, axis=1)
        is_outside = ascending[:, 0].min() < NOBODY or ascending.max() >= self.node_count or ascending[:, -1].min() < 0
        return bool(is_outside or ((ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)).any())

    @staticmethod
    def even(node_count: int, replica_count: int = 1, split: Sequence[str] = SPLIT_PREDICATES) -> ShardMap:
        """Give shard s to the nodes s, s + 1, ... (modulo node_count), as wukongs.protocol.control.genesis does; to all
        nodes if there are fewer than replica_count."""
        if not 1 <= node_count <= SHARD_COUNT:
            raise SettingsError(f"node_count = {node_count}: expected 1 to {SHARD_COUNT} nodes")
        if replica_count < 1:
            raise SettingsError(f"replica_count = {replica_count}: expected at least 1")
        places = np.arange(SHARD_COUNT)[:, None] + np.arange(min(replica_count, node_count))
        return ShardMap((places % node_count).astype(np.int32), node_count, split)

    @staticmethod
    def placed(shards: Sequence[Sequence[int]], node_count: int, split: Sequence[str] = SPLIT_PREDICATES) -> ShardMap:
        """Give each shard to some nodes."""
        owners = np.full((len(shards), max(map(len, shards))), NOBODY, np.int32)
        for shard, nodes in enumerate(shards):
            owners[shard, : len(nodes)] = nodes
        return ShardMap(owners, node_count, split)

    @staticmethod
    def of(place: Place) -> ShardMap:
        """Return the map of the cluster that a node has told a writer of. Raises: SettingsError."""
        if place.shards:
            return ShardMap.placed(place.shards, place.node_count, place.split)
        return ShardMap.even(place.node_count, place.replica_count, place.split)

    def place(self, node: int, index: int = 0, members: Iterable[int] = ()) -> Place:
        """Return the place of a node, for writers; see Place."""
        count, replicas = self.node_count, self.owners.shape[1]
        is_even = np.array_equal(self.owners, ShardMap.even(count, replicas, self.split).owners)
        shards = () if is_even else tuple(tuple(one for one in nodes if one >= 0) for nodes in self.owners.tolist())
        return Place(node, count, replicas, tuple(self.split), index, tuple(sorted(members)), shards)

    def shards(self, node: int) -> BoolArray:
        """Tell which shards a node replicates. bool[1024]"""
        found: BoolArray = (self.owners == node).any(axis=1)
        return found


def share_of(encoded: Encoded, shard_map: ShardMap, node: int) -> BoolArray:
    """Tell which tuples a node gets: those with its subjects, and those with its objects unless they are split.
    bool[n]"""
    return _in_share(*ends_of(encoded, shard_map), shard_map.shards(node))


def split(encoded: Encoded, shard_map: ShardMap, timing: BoolArray | None = None) -> list[tuple[int, Int64Array]]:
    """Return (node, rows) for every node, in the order of the nodes; rows ascend and may be empty.

    timing : bool[n], which tuples only live in windows (None: none does)."""
    if shard_map.node_count == 1:
        return [(0, np.arange(len(encoded), dtype=np.int64))]
    of_subject, of_object, is_whole = ends_of(encoded, shard_map)
    is_whole = is_whole if timing is None else is_whole & ~timing
    nodes = range(shard_map.node_count)
    shares = [_in_share(of_subject, of_object, is_whole, shard_map.shards(node)) for node in nodes]
    return [(node, np.flatnonzero(share)) for node, share in zip(nodes, shares, strict=True)]


def ends_of(encoded: Encoded, shard_map: ShardMap) -> tuple[Int64Array, Int64Array, BoolArray]:
    """Return the shards of subjects and of objects, and whether the objects' count."""
    codes = encoded.codes_of([iri(name).text for name in shard_map.split])
    is_whole = ~np.isin(encoded.predicates, codes)
    of_subject, of_object = (shards_of(hash_ids(column, encoded)) for column in (encoded.subjects, encoded.objects))
    return of_subject, of_object, is_whole


def _in_share(of_subject: Int64Array, of_object: Int64Array, is_whole: BoolArray, mine: BoolArray) -> BoolArray:
    found: BoolArray = mine[of_subject] | (mine[of_object] & is_whole)
    return found


def hash_ids(column: Int64Array, encoded: Encoded) -> Int64Array:
    """Return a column with the codes of clashing terms replaced by the id that they clash on: its owner decides."""
    if not len(encoded.clashes):
        return column
    code = np.clip(CLASH_FIRST - column, 0, len(encoded.clashes) - 1)
    return np.where(column <= CLASH_FIRST, encoded.clashes.ids[code], column)


def split_piece(piece: Piece, shard_map: ShardMap) -> list[tuple[int, Piece]]:
    """Return each node's share of a piece, numbered by the node; a share may be empty, so that offsets stay gapless.
    Offsets still name the rows of the whole piece, and places say which of them are there."""
    if shard_map.node_count == 1:
        return [(0, piece)]
    cutter = TermCutter(piece.encoded)
    places = piece.row_places()
    return [
        (node, replace(piece, piece=node, encoded=cutter.cut(rows), timing=piece.timing[rows], places=places[rows]))
        for node, rows in split(piece.encoded, shard_map, piece.timing)
    ]
