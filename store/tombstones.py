"""Tombstones: the deletions in a trace, and the merge of two entries that have them.

A deletion is a triple in the second batch of its entry. Invariants:

* newness is decided at sealing, in SN order: a triple is deleted only while it is seen, and added only while it is not.
  So, per triple, the entries hold additions and tombstones in turn, beginning with an addition;
* within one entry, additions and tombstones have no triple in common.

Hence a triple is seen at an SN if its additions up to there are one more than its tombstones, and a triple of a batch
is hidden if any later entry of the read holds a tombstone of it. Merging neighbours adds up their differences: an
addition and a tombstone of one triple cancel each other, whichever came first; the rest still takes turns. The oldest
entry never has tombstones, since there is nothing before it that they could hide.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import NamedTuple

import numpy as np

from wukongs.store.batch import UNLISTED, Batch, Side, VertexIndex, assemble, build_batch, code_dtype, is_listed
from wukongs.store.dtypes import Int32Array, Int64Array
from wukongs.store.fuel import Fuelled, Tank
from wukongs.store.merge import (
    cut_lists,
    fences_in_steps,
    filtered_in_steps,
    index_in_steps,
    listed_in_steps,
    merge_in_steps,
)
from wukongs.store.tombstone_kernels import NOT_STARTED, SUBTRACT_STATE_WIDTH, subtract_side, subtract_vertices

_NOTHING = np.empty(0, np.int64)
_Steps = Generator[None, None, Batch | None]


class Difference(NamedTuple):
    """The rows of an entry. tombstones: None if there are none."""

    additions: Batch
    tombstones: Batch | None

    @property
    def counts(self) -> tuple[int, int]:
        """How many triples go, and how many come."""
        return 0 if self.tombstones is None else len(self.tombstones), len(self.additions)


class DifferenceMerge(Fuelled[Difference]):
    """The merge of two neighbouring entries, in steps of bounded work, as Merge.

    Cost: that of merging both, and a copy of each batch of which the other entry may cancel triples: at most twice the
    cost of a Merge of as many rows.
    """

    def __init__(self, older: Difference, newer: Difference) -> None:
        for batch in (*older, *newer):
            if batch is not None:
                batch.verify()
        super().__init__(partial(_merge_differences, older, newer))


def _merge_differences(older: Difference, newer: Difference, tank: Tank) -> Generator[None, None, Difference]:
    tombstones = yield from _united(older.tombstones, newer.additions, newer.tombstones, older.additions, tank)
    additions = yield from _united(older.additions, newer.tombstones, newer.additions, older.tombstones, tank)
    if additions is None:
        additions = build_batch(_NOTHING, _NOTHING, _NOTHING, _NOTHING)
    if any(len(batch.key_filter) for batch in (*older, *newer) if batch is not None):
        additions = yield from filtered_in_steps(additions, tank)
        if tombstones is not None:
            tombstones = yield from filtered_in_steps(tombstones, tank)
    return Difference(additions, tombstones)


def _united(
    older: Batch | None, older_minus: Batch | None, newer: Batch | None, newer_minus: Batch | None, tank: Tank
) -> _Steps:
    """Unite the triples that two batches keep when each has lost the triples that cancel; None if none is left."""
    older = yield from _remaining(older, older_minus, tank)
    newer = yield from _remaining(newer, newer_minus, tank)
    if older is None or newer is None:
        return newer if older is None else older
    merged = yield from merge_in_steps(older, newer, tank)
    assert len(merged) == len(older) + len(newer), "additions and tombstones of a triple do not take turns"
    return merged


def _remaining(batch: Batch | None, minus: Batch | None, tank: Tank) -> _Steps:
    """Take the triples of another batch out of a batch; None if none is left."""
    if batch is not None and minus is not None and len(batch) > 0 and len(minus) > 0:
        batch = yield from subtract_in_steps(batch, minus, tank)
    return batch if batch is not None and len(batch) > 0 else None


def subtract_in_steps(batch: Batch, tombstones: Batch, tank: Tank) -> Generator[None, None, Batch]:
    """Copy a verified batch without the triples of another, with a pause whenever the fuel is used up."""
    n_rows = len(batch.graphs)
    out, kept = yield from _subtract_side(batch, tombstones, 0, tank)
    in_, _ = yield from _subtract_side(batch, tombstones, 1, tank)
    graphs, predicates = batch.graphs[kept], batch.predicates[kept]
    left = assemble(graphs, predicates, out, in_, UNLISTED, _NOTHING)
    if not is_listed(len(kept), len(out.values)):
        return left
    rank = np.full(n_rows, -1, np.int32)
    rank[kept] = np.arange(len(kept), dtype=np.int32)
    batch, tombstones = (yield from listed_in_steps(batch, tank)), (yield from listed_in_steps(tombstones, tank))
    index = yield from _subtract_vertices(batch, tombstones, left, rank, tank)
    return assemble(graphs, predicates, out, in_, index, _NOTHING)


def subtract(batch: Batch, gone: Batch) -> Batch:
    """Copy a batch without the triples of another."""
    batch.verify()
    return Fuelled(lambda tank: subtract_in_steps(batch, gone, tank)).finish()


def _fresh_state() -> Int64Array:
    state = np.zeros(SUBTRACT_STATE_WIDTH, np.int64)
    state[1:3] = NOT_STARTED
    return state


def _subtract_side(
    batch: Batch, tombstones: Batch, direction: int, tank: Tank
) -> Generator[None, None, tuple[Side, Int64Array]]:
    """Returns the side that is left, and the directory rows that have a triple left."""
    side = batch.out if direction == 0 else batch.in_
    n_rows = len(batch.graphs)
    starts = np.zeros(n_rows + 1, np.int64)
    keys = np.empty(len(side.keys), np.int64)
    offsets = np.empty(len(keys) + 1, np.int32)
    values = np.empty(len(side.values), np.int64)
    state = _fresh_state()
    while True:
        tank.fuel = subtract_side(
            batch.descriptor,
            tombstones.descriptor,
            direction,
            starts,
            keys,
            offsets,
            values,
            state,
            tank.fuel,
        )
        if state[0] == n_rows:
            break
        yield
    cut_lists(keys, offsets, values, state[4:6])
    kept = np.flatnonzero(np.diff(starts))
    key_starts = np.append(starts[:1], starts[kept + 1])
    fences = yield from fences_in_steps(keys, key_starts, tank)
    return Side(key_starts, keys, offsets, values, *fences), kept


def _subtract_vertices(
    batch: Batch, tombstones: Batch, left: Batch, rank: Int32Array, tank: Tank
) -> Generator[None, None, VertexIndex]:
    index = batch.vertex_index
    vertices = np.empty(len(index.vertices), np.int64)
    starts = np.zeros(len(vertices) + 1, np.int32)
    codes = np.empty(len(index.codes), code_dtype(len(left.graphs)))
    state = _fresh_state()
    state[1] = 0
    while True:
        tank.fuel = subtract_vertices(
            batch.descriptor,
            tombstones.descriptor,
            left.descriptor,
            rank,
            vertices,
            starts,
            codes,
            state,
            tank.fuel,
        )
        if state[1] == len(index.vertices):
            break
        yield
    cut_lists(vertices, starts, codes, state[4:6])
    return (yield from index_in_steps(vertices, starts, codes, tank))
