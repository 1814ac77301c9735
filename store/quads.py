"""Quads: triples with their graphs as columns of ids, and which of them a read of the stored graph sees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wukongs.store.batch import Batch, build_batch
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.held_kernels import mark_held

Quads = tuple[Int64Array, Int64Array, Int64Array, Int64Array]
"""Graphs, subjects, predicates, objects: int64[n] ids each."""


def joined(parts: Sequence[Quads]) -> Quads:
    """Put quads behind one another; none at all are no quads."""
    nothing = np.empty(0, np.int64)
    graphs, subjects, predicates, objects = (
        np.concatenate(column) for column in zip((nothing,) * 4, *parts, strict=True)
    )
    return graphs, subjects, predicates, objects


def taken(quads: Quads, mask: BoolArray) -> Quads:
    """Return the quads under a mask, bool[n]; the same columns if that is all."""
    rows = np.flatnonzero(mask)
    if len(rows) == len(mask):
        return quads
    graphs, subjects, predicates, objects = quads
    return graphs[rows], subjects[rows], predicates[rows], objects[rows]


def is_held(read: BatchSet, quads: Quads) -> BoolArray:
    """Mark the tuples that a read sees. bool[n]"""
    graphs, subjects, predicates, objects = quads
    held: BoolArray = mark_held(read.descriptors, graphs, predicates, subjects, objects)
    return held


def graph_quads(read: BatchSet, graph: int, name: int | None = None) -> Quads:
    """Return all triples that a read sees in a graph, each once. name: the graph that they are to have instead.

    Cost: that of BatchSet.pairs, and a sort if the read is not disjoint."""
    parts = []
    for subjects, predicate, objects in read.pairs(graph):
        graphs, predicates = (np.full(len(subjects), term) for term in (graph if name is None else name, predicate))
        parts.append((graphs, subjects, predicates, objects))
    found = joined(parts)
    return found if read.disjoint else build_batch(*found).triples()


def without_held(batch: Batch, read: BatchSet) -> Batch:
    """Return the batch without the tuples that a read sees; itself if there are none.

    Cost: a look-up for each tuple of the smaller side; then one for each tuple of the batch if they have any in
    common."""
    if not len(batch) or not read.batches:
        return batch
    if len(read) < len(batch):
        alone = BatchSet.of((batch,), disjoint=True)
        if not any(is_held(alone, other.triples()).any() for other in read.batches):
            return batch
    return only(batch, ~is_held(read, batch.triples()))


def only(batch: Batch, wanted: BoolArray) -> Batch:
    """Return a batch of these of the tuples of a batch; itself if that is all."""
    return batch if wanted.all() else build_batch(*taken(batch.triples(), wanted))
