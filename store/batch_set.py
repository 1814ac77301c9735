"""BatchSet: the batches that one read goes through, with their descriptors ready for a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from store.batch import Batch, stack_descriptors
from store.dtypes import Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class BatchSet:
    """batches, kept alive as long as this object; descriptors : int64[n_batches, DESCRIPTOR_WIDTH].

    disjoint: no triple stands in two of them, so that a read needs no union. count: the triples of all batches; those
    in several count as often.
    """

    batches: tuple[Batch, ...]
    descriptors: Int64Array
    disjoint: bool
    count: int

    def __len__(self) -> int:
        return self.count

    @staticmethod
    def of(batches: tuple[Batch, ...], disjoint: bool) -> BatchSet:
        count = sum(len(batch) for batch in batches)
        return BatchSet(batches, stack_descriptors(batches), disjoint or len(batches) < 2, count)


EMPTY = BatchSet.of((), True)
