"""Arrangement: the trace of the stored graph, kept by one writer and shared by every query on the node."""

from __future__ import annotations

from store.batch import build_batch
from store.dtypes import Int64Array
from store.lookup_kernels import mark_new
from store.trace import Handle, Trace


class Arrangement:
    """A graph is a set: whether a tuple is new is decided here, when its SN is sealed, in SN order."""

    def __init__(self, name: str) -> None:
        self.trace = Trace(name)

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
        held = self.trace.read(self.trace.upper)
        if len(held):
            new = mark_new(held.descriptors, graphs, predicates, subjects, objects)
            graphs, subjects, predicates, objects = graphs[new], subjects[new], predicates[new], objects[new]
        batch = build_batch(graphs, subjects, predicates, objects)
        self.trace.seal(sn, batch)
        return len(batch)

    def open(self, sn: int, owner: str) -> Handle:
        """Open a handle on the graph as of an SN. Raises CompactedError if merging has forgotten it."""
        return self.trace.open(sn, owner)
