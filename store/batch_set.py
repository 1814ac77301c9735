"""BatchSet: the batches that one read goes through, with their descriptors ready for a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

from wukongs.store.batch import Batch, build_batch, stack_descriptors, with_key_filter
from wukongs.store.dtypes import Int64Array
from wukongs.store.layout import TOMBSTONE_COUNT, TOMBSTONES
from wukongs.store.tombstone_kernels import visible_pairs


@dataclass(frozen=True, eq=False)
class BatchSet:
    """batches, kept alive as long as this object.

    disjoint: no triple is seen in two of them, so that a read needs no union. count: the triples of all batches that
    are seen; a triple in several batches counts as often. tombstones: batches in `hiding` : int64[n, DESCRIPTOR_WIDTH];
    later: how many of the last of these hide triples of each batch, empty if there are none. mark: stands for this
    object, and keeps nothing alive; goes_on: the mark of the one that has all batches but the last, if it was made from
    that.
    """

    batches: tuple[Batch, ...]
    disjoint: bool
    count: int
    tombstones: tuple[Batch, ...] = ()
    hiding: Int64Array | None = None
    later: tuple[int, ...] = ()
    goes_on: object = None
    mark: object = field(default_factory=object, init=False)

    def __len__(self) -> int:
        return self.count

    @staticmethod
    def of(batches: tuple[Batch, ...], disjoint: bool, tombstones: Sequence[Batch | None] = ()) -> BatchSet:
        """tombstones: for each batch, the triples deleted together with it, or None; empty if nothing was ever deleted.

        Every tombstone must hide a triple of exactly one earlier batch, as those of a trace do. Raises CorruptionError
        if a batch lies in a file that has changed since it was written.
        """
        for batch in (*batches, *tombstones):
            if batch is not None and batch.source is not None:
                batch.verify()
        count = sum([len(batch.out.values) for batch in batches])
        hiding = [(at, batch) for at, batch in enumerate(tombstones) if batch is not None]
        if not hiding:  # windows never have any, and this runs at each tick
            return BatchSet(batches, disjoint or len(batches) < 2, count)
        buried = tuple(batch for _, batch in hiding)
        count -= sum(len(batch) for batch in buried)
        later = tuple(accumulate([-(batch is not None) for batch in tombstones], initial=len(hiding)))[1:]
        return BatchSet(batches, disjoint or len(batches) < 2, count, buried, stack_descriptors(buried), later)

    @cached_property
    def descriptors(self) -> Int64Array:
        """int64[n_batches, DESCRIPTOR_WIDTH]"""
        found = stack_descriptors(self.batches)
        if self.hiding is not None:
            later = np.array(self.later, np.int64)
            found[:, TOMBSTONES] = self.hiding.ctypes.data + (len(self.tombstones) - later) * self.hiding.strides[0]
            found[:, TOMBSTONE_COUNT] = later
        return found

    def and_then(self, batch: Batch, disjoint: bool) -> BatchSet:
        """Return this read with one more batch, of which nothing is hidden. disjoint: as `of`. Nothing of this read may
        be hidden, either."""
        assert not self.tombstones, "it is to be read as a whole"
        count = self.count + len(batch.out.values)
        return BatchSet((*self.batches, batch), disjoint or not self.batches, count, goes_on=self.mark)

    def followed_by(self, batches: tuple[Batch, ...], last: Batch | None = None, gone: Batch | None = None) -> BatchSet:
        """Return this read with more batches, whose triples may be in other batches too, and then with a change whose
        tombstones hide triples of all batches before it."""
        tombstones = [*self._tombstones_by_batch(), *[None] * len(batches)]
        if last is not None:
            return BatchSet.of((*self.batches, *batches, last), False, [*tombstones, gone])
        return BatchSet.of((*self.batches, *batches), False, tombstones)

    def and_changes(self, changes: Sequence[tuple[Batch, Batch | None]]) -> BatchSet:
        """Return this read with changes behind it: each has triples that come, which are not seen before it, and
        triples that go, which are."""
        if not changes:
            return self
        tombstones = [*self._tombstones_by_batch(), *(gone for _, gone in changes)]
        return BatchSet.of((*self.batches, *(come for come, _ in changes)), self.disjoint, tombstones)

    def _tombstones_by_batch(self) -> list[Batch | None]:
        later = [len(self.tombstones), *(self.later or [0] * len(self.batches))]
        waiting = iter(self.tombstones)
        return [next(waiting) if before > after else None for before, after in pairwise(later)]

    @cached_property
    def graphs(self) -> Int64Array:
        """The ids of the graphs with a triple in this read, sorted; hidden graphs, whose ids are negative, are left
        out."""
        return self.all_graphs[np.searchsorted(self.all_graphs, 0) :]

    def has_graph(self, graph: int) -> bool:
        """Tell whether a graph has a triple in this read. It may be a hidden one."""
        at = int(np.searchsorted(self.all_graphs, graph))
        return at < len(self.all_graphs) and int(self.all_graphs[at]) == graph

    @cached_property
    def all_graphs(self) -> Int64Array:
        """The ids of all graphs with a triple in this read, sorted, hidden ones among them.

        Cost: one sort of the directories, not of triples. If there are tombstones, they are counted against the
        triples, graph by graph."""
        held = [batch.graphs for batch in self.batches]
        if not held:
            return np.empty(0, np.int64)
        if not self.tombstones:
            return np.unique(np.concatenate(held))
        counts = [row_counts(batch) for batch in self.batches] + [-row_counts(batch) for batch in self.tombstones]
        names, places = np.unique(
            np.concatenate([*held, *(batch.graphs for batch in self.tombstones)]), return_inverse=True
        )
        totals = np.zeros(len(names), np.int64)
        np.add.at(totals, places, np.concatenate(counts))
        assert (totals >= 0).all(), "more was deleted from a graph than it held"
        return names[totals > 0]

    def counts_of(self, graphs: Int64Array) -> Int64Array:
        """Return how many triples of some graphs this read sees; hidden ones may be among them. Only for a disjoint
        read.

        graphs : int64[n], sorted, each once. Cost: one look at the directories."""
        assert self.disjoint, "the triples of overlapping batches would count more than once"
        found = np.zeros(len(graphs), np.int64)
        for sign, batches in ((1, self.batches), (-1, self.tombstones)):
            for batch in batches:
                rows = np.flatnonzero(np.isin(batch.graphs, graphs))
                np.add.at(found, np.searchsorted(graphs, batch.graphs[rows]), sign * row_counts(batch)[rows])
        assert (found >= 0).all(), "more was deleted from a graph than it held"
        return found

    @cached_property
    def hidden_count(self) -> int:
        """The triples of hidden graphs in this read. Cost: one look at the directories."""
        return sum([_hidden_count(batch) for batch in self.batches]) - sum(map(_hidden_count, self.tombstones))

    def without_inferred(self, graph: int) -> BatchSet:
        """Return this read without those triples of a graph that its hidden graph has: with one more change, whose
        tombstones hide them. All of them are in the graph. It is made once, and kept with this read.

        Cost: a sort of the hidden graph's triples; if it has none, one look at the directories."""
        if not any((batch.graphs == ~graph).any() for batch in self.batches):
            return self
        found = self._explicit.get(graph)
        if found is None:
            pairs = list(self.pairs(~graph))
            subjects, objects = (np.concatenate([pair[at] for pair in pairs]) for at in (0, 2))
            predicates = np.repeat([pair[1] for pair in pairs], [len(pair[0]) for pair in pairs])
            gone = with_key_filter(build_batch(np.full(len(subjects), graph), subjects, predicates, objects))
            nothing = build_batch(*[np.empty(0, np.int64)] * 4)
            tombstones = [*self._tombstones_by_batch(), gone if len(gone) else None]
            found = BatchSet.of((*self.batches, nothing), self.disjoint, tombstones)
            self._explicit[graph] = found
        return found

    @cached_property
    def _explicit(self) -> dict[int, BatchSet]:
        return {}

    def triples(self, graph: int) -> Iterator[tuple[Int64Array, int, Int64Array]]:
        """Yield (subjects, predicate, objects) of a graph, one directory row after the other, each triple that is seen
        once. subjects, objects : int64[n]. Only for a disjoint read."""
        assert self.disjoint, "the triples of overlapping batches would come more than once"
        return self.pairs(graph)

    def count_at_most(self, graph: int) -> int:
        """Return how many triples `pairs` yields at most: those that were deleted since are counted."""
        return sum(int(row_counts(batch)[batch.graphs == graph].sum()) for batch in self.batches)

    def pairs(self, graph: int, predicate: int | None = None) -> Iterator[tuple[Int64Array, int, Int64Array]]:
        """Do the same as triples, for any read: a triple comes once from each batch that it is seen in. predicate: of
        those that are wanted, None: any."""
        for batch, descriptor in zip(self.batches, self.descriptors, strict=True):
            is_row = batch.graphs == graph
            for row in np.flatnonzero(is_row if predicate is None else is_row & (batch.predicates == predicate)):
                subjects, objects = visible_pairs(descriptor, row)
                yield subjects, int(batch.predicates[row]), objects


def row_counts(batch: Batch) -> Int64Array:
    """Return the triples of each directory row. int64[n_directory]"""
    ends = batch.out.offsets[batch.out.key_starts].astype(np.int64)
    return ends[1:] - ends[:-1]


def _hidden_count(batch: Batch) -> int:
    """Return the triples of hidden graphs in a batch."""
    is_hidden = batch.graphs < 0
    return int(row_counts(batch)[is_hidden].sum()) if is_hidden.any() else 0


EMPTY = BatchSet.of((), True)
