"""Arrangement: the trace of the stored graph, kept by one writer and shared by every query on the node."""

from __future__ import annotations

import numpy as np

from store.batch import build_batch
from store.dtypes import BoolArray, Int64Array
from store.lookup_kernels import mark_new
from store.trace import Handle, Trace
from store.tuple_filter import TupleFilter


class Arrangement:
    """A graph is a set: whether a tuple is new is decided here, when its SN is sealed, in SN order."""

    def __init__(self, name: str) -> None:
        self.trace = Trace(name)
        self._filter = TupleFilter()
        self._filtered_to = 0
        """All triples sealed before this SN are in the filter."""

    def __len__(self) -> int:
        return len(self.trace)

    def absorb(
        self, sn: int, graphs: Int64Array, subjects: Int64Array, predicates: Int64Array, objects: Int64Array
    ) -> int:
        """Seal SN sn with those of the tuples that the graph does not hold yet; return how many that are.

        graphs, subjects, predicates, objects : int64[n] ids, repeats allowed.
        """
        if len(subjects) == 0:
            self.trace.advance(sn + 1)
            return 0
        new = self._mark_new(graphs, predicates, subjects, objects)
        batch = build_batch(graphs[new], subjects[new], predicates[new], objects[new])
        self.trace.seal(sn, batch)
        self._filtered_to = self.trace.upper
        return len(batch)

    def _mark_new(
        self, graphs: Int64Array, predicates: Int64Array, subjects: Int64Array, objects: Int64Array
    ) -> BoolArray:
        """Mark the tuples that the graph does not hold yet, bool[n]; the filter knows them all from then on."""
        held = self.trace.read(self.trace.upper)
        for batch in self.trace.batches_from(self._filtered_to):  # sealed by others, such as a restart
            self._filter.add(held.batches, batch)
        met = self._filter.meet(held.batches, graphs, predicates, subjects, objects)
        new = ~met
        at = np.flatnonzero(met)
        if len(at):
            new[at] = mark_new(held.descriptors, graphs[at], predicates[at], subjects[at], objects[at])
        return new

    @property
    def filter_bytes(self) -> int:
        """Bytes of the filter that tells new triples from stored ones."""
        return self._filter.size_bytes

    def open(self, sn: int, owner: str, expires: bool = True) -> Handle:
        """Open a handle on the graph as of an SN; see Trace.open. Raises CompactedError if merging has forgotten it."""
        return self.trace.open(sn, owner, expires)
