"""Quads: triples with their graphs as columns of ids, and which of them a read of the stored graph sees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wukongs.store.batch import Batch, build_batch
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.held_kernels import mark_held
from wukongs.store.tombstones import subtract

Quads = tuple[Int64Array, Int64Array, Int64Array, Int64Array]
"""Graphs, subjects, predicates, objects: int64[n] ids each."""
NO_QUADS: Quads = (np.empty(0, np.int64),) * 4


def joined(parts: Sequence[Quads]) -> Quads:
    """Put quads behind one another; none at all are no quads."""
    graphs, subjects, predicates, objects = (np.concatenate(column) for column in zip(NO_QUADS, *parts, strict=True))
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


def read_of(quads: Quads) -> BatchSet:
    """Return a read that sees these quads alone."""
    return BatchSet.of((build_batch(*quads),), disjoint=True)


def last_actions(quads: Quads, goes: BoolArray) -> tuple[Quads, Quads]:
    """Return the distinct quads that go and those that come, each by the last of its actions. goes : bool[n], in order
    of time."""
    order = np.lexsort((np.arange(len(goes)), *quads))
    ordered = np.stack(quads)[:, order]
    is_last = np.ones(len(goes), np.bool_)
    is_last[:-1] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    last = order[is_last]
    graphs, subjects, predicates, objects = (column[last] for column in quads)
    distinct = graphs, subjects, predicates, objects
    return taken(distinct, goes[last]), taken(distinct, ~goes[last])


def last_signs(quads: Quads, goes: BoolArray, keys: Sequence[Int64Array]) -> tuple[Quads, Quads]:
    """Return the quads that go, and those that come, repeats allowed: of quads of which some go, the last action counts
    by keys (int64[n] each, the first one first) and then by their places.

    Cost: a look-up for each quad in those that go; a sort of the quads of which some go."""
    has_gone = goes | is_held(read_of(taken(quads, goes)), quads)
    rows = np.flatnonzero(has_gone)
    rows = rows[np.lexsort(tuple(key[rows] for key in reversed(keys)))]
    graphs, subjects, predicates, objects = (column[rows] for column in quads)
    gone, come = last_actions((graphs, subjects, predicates, objects), goes[rows])
    return gone, joined((taken(quads, ~has_gone), come))


def graph_quads(read: BatchSet, graph: int, name: int | None = None, predicate: int | None = None) -> Quads:
    """Return all triples that a read sees in a graph, each once. name: the graph that they are to have instead;
    predicate: theirs, None: any.

    Cost: that of BatchSet.pairs, and a sort if the read is not disjoint."""
    parts = []
    for subjects, term, objects in read.pairs(graph, predicate):
        graphs, predicates = (np.full(len(subjects), one) for one in (graph if name is None else name, term))
        parts.append((graphs, subjects, predicates, objects))
    found = joined(parts)
    return found if read.disjoint else build_batch(*found).triples()


def hidden(quads: Quads) -> Quads:
    """Return quads in the hidden graphs of theirs, and those of hidden graphs in the graphs that they belong to."""
    return np.invert(quads[0]), *quads[1:]


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
    """Return a batch of these of the tuples of a batch; itself if that is all.

    wanted : bool[n], in the order of the batch. Cost: a copy if most are wanted, else a sort of those."""
    if wanted.all():
        return batch
    if 4 * int(wanted.sum()) < 3 * len(batch):
        return build_batch(*taken(batch.triples(), wanted))
    return subtract(batch, build_batch(*taken(batch.triples(), ~wanted)))
