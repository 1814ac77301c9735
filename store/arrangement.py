"""Arrangement: the trace of the stored graph, kept by one writer and shared by every query on the node."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from wukongs.store.batch import Batch, build_batch
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.graph_change import GraphChange
from wukongs.store.quads import NO_QUADS, Quads, hidden, is_held, only, taken, without_held
from wukongs.store.tombstones import Difference
from wukongs.store.trace import Handle, Trace
from wukongs.store.tuple_filter import TupleFilter


class Follower(Protocol):
    """Says what follows from changes of the stored graph. That is sealed with them."""

    @property
    def is_active(self) -> bool:
        """Whether anything may follow."""

    def follow(self, before: BatchSet, change: Difference, asserted: Quads) -> Difference:
        """Return a change with all that follows. before: the graph as it is; asserted: the quads that the change makes
        explicit, also those that are there already."""

    def note_sealed(self, is_sealed: bool) -> None:
        """Note whether the change that was derived last is sealed. If not, all that follows is derived anew with the
        next change: what the follower keeps may be of a graph that there is not."""


class Arrangement:
    """A graph is a set: whether a tuple is new is decided here, when its SN is sealed, in SN order. follower: is asked
    at each seal what follows from it."""

    def __init__(self, name: str, follower: Follower | None = None) -> None:
        self.trace = Trace(name)
        self._follower = follower
        self._filter = TupleFilter()
        self._filtered_to = 0
        """All triples sealed before this SN are in the filter."""
        self._expected: list[tuple[Batch, Int64Array]] = []
        """Batches that are to be sealed, and up to which place the filter knows them."""

    def __len__(self) -> int:
        return len(self.trace)

    def absorb(
        self,
        sn: int,
        graphs: Int64Array,
        subjects: Int64Array,
        predicates: Int64Array,
        objects: Int64Array,
        *,
        gone: Quads = NO_QUADS,
        first_sn: int | None = None,
    ) -> int:
        """Seal SN sn with the tuples that the graph does not hold yet; return how many these are.

        graphs, subjects, predicates, objects : int64[n] ids, repeats allowed. gone: those that it loses, if it holds
        them; none of them comes. first_sn: as in Trace.seal.
        """
        if len(subjects) == 0 and len(gone[0]) == 0:
            self.trace.advance(sn + 1)
            return 0
        quads = graphs, subjects, predicates, objects
        tombstones = self._held_of(gone) if len(gone[0]) else None
        batch = build_batch(*taken(quads, self._mark_new(quads)))
        self._seal(sn, batch, tombstones, first_sn=first_sn, asserted=quads)
        return len(batch)

    def _held_of(self, quads: Quads) -> Batch:
        return build_batch(*taken(quads, is_held(self.trace.read(self.trace.upper), quads)))

    def apply(
        self, sn: int, deletes: Quads, inserts: Quads, cleared: Iterable[int] = (), read: Handle | None = None
    ) -> Difference:
        """Seal SN sn with an update: first all triples of the cleared graphs go, then deletes, then inserts come.
        Returns what has changed.

        Repeats are allowed. A triple in both stays if it is there, and else comes. read: the snapshot that the update
        has read (None: all that there is). Additions that were sealed since stay.
        """
        change = GraphChange(self.trace.read(self.trace.upper) if read is None else read.read())
        change.clear(cleared)
        change.delete(deletes)
        change.insert(inserts)
        difference = change.difference() if read is None else self.beside(change, read.sn)[0]
        self.apply_difference(sn, difference, change.come)
        return difference

    def beside(self, change: GraphChange, read_sn: int) -> tuple[Difference, Quads]:
        """Return what GraphChange.beside does, now that others have sealed what came after the SN that was read. Of the
        additions that stay, the inferred ones are left out: whoever repeats the change infers them again."""
        now = self.trace.read(self.trace.upper) if self.trace.has_deleted_from(read_sn + 1) else None
        difference, unseen = change.beside(self.trace.batches_from(read_sn + 1), now)
        if len(unseen[0]):
            unseen = taken(unseen, ~is_held(self.trace.read(self.trace.upper), hidden(unseen)))
        return difference, unseen

    def apply_difference(
        self, sn: int, difference: Difference, asserted: Quads = NO_QUADS, fuel: int | None = None
    ) -> tuple[int, int]:
        """Seal SN sn with tombstones of triples that are there, and additions that are not. Returns how many each.

        asserted: as in Follower.follow; fuel: as in Trace.seal."""
        come, gone = difference
        self._learn(come)
        self._seal(sn, come, gone, fuel, asserted=asserted)
        return difference.counts

    def _mark_new(self, quads: Quads) -> BoolArray:
        """Mark the tuples that the graph does not hold yet, bool[n]. The filter knows all tuples from then on."""
        held = self._fill_filter()
        graphs, subjects, predicates, objects = quads
        met = self._filter.meet(self._filtered(held), graphs, predicates, subjects, objects)
        new = ~met
        if met.any():
            new[met] = ~is_held(held, taken(quads, met))
        return new

    def _fill_filter(self) -> BatchSet:
        """Let the filter know the triples that others have sealed, such as a restart; return all batches that are
        held."""
        held = self.trace.read(self.trace.upper)
        if self.trace.batches_from(self._filtered_to):
            self._filter.learn(self._filtered(held))
        self._filtered_to = self.trace.upper
        return held

    def filter_reader(self) -> Callable[[Quads], BoolArray]:
        """Return what tells, of quads, those that the graph may hold by now; the others it certainly does not. It needs
        no lock."""
        self._fill_filter()
        return self._filter.reader()

    def _filtered(self, held: BatchSet) -> tuple[Batch, ...]:
        """Return the batches that have all triples of the filter."""
        return *held.batches, *(batch for batch, _ in self._expected)

    def expect(self, batch: Batch, count: int) -> bool:
        """Let the filter know the next `count` triples of a batch that absorb_batch is to seal; tell whether it knows
        all. So a large batch is sealed without a long pause."""
        place = next((place for expected, place in self._expected if expected is batch), None)
        if place is None:
            place = np.zeros(3, np.int64)
            self._expected.append((batch, place))
        self._filter.add_part(self._filtered(self._fill_filter()), batch, place, count)
        return bool(place[2] == len(batch))

    def give_up(self, batch: Batch) -> None:
        """Expect a batch no longer."""
        self._expected = [(other, place) for other, place in self._expected if other is not batch]

    def _learn(self, batch: Batch) -> None:
        """Let the filter know all triples of a batch that is sealed next."""
        self.expect(batch, len(batch))
        self.give_up(batch)

    def absorb_batch(
        self, sn: int, batch: Batch, known: Handle | None = None, whole: Batch | None = None, fuel: int | None = None
    ) -> Batch:
        """Seal SN sn with the new triples of a batch that was built beforehand, and return these.

        known: a handle at whose SN the graph held none of the batch; whole: the batch with the triples that the graph
        held then. `whole` is taken if triples were deleted since, since some of these may be among them, or if the
        handle was revoked, since merging may then have forgotten deletions. fuel: as in Trace.seal."""
        asserted = NO_QUADS if self._follower is None or not self._follower.is_active else (whole or batch).triples()
        if known is not None:
            self._learn(batch)
        if known is None or (whole is not None and (not known.is_open or self.trace.has_deleted_from(known.sn + 1))):
            batch = batch if whole is None else whole
            batch = only(batch, self._mark_new(batch.triples()))
        else:
            batch = without_held(batch, BatchSet.of(tuple(self.trace.batches_from(known.sn + 1)), disjoint=True))
        self._seal(sn, batch, fuel=fuel, asserted=asserted)
        return batch

    def _seal(
        self,
        sn: int,
        batch: Batch,
        tombstones: Batch | None = None,
        fuel: int | None = None,
        first_sn: int | None = None,
        asserted: Quads = NO_QUADS,
    ) -> None:
        """Seal triples that the filter knows already, and what follows from them."""
        follower = self._follower if self._follower is not None and self._follower.is_active else None
        with _noting(follower):
            if follower is not None:
                change = Difference(batch, tombstones)
                batch, tombstones = follower.follow(self.trace.read(self.trace.upper), change, asserted)
                if batch is not change.additions:
                    self._learn(batch)
            self.trace.seal(sn, batch, tombstones, fuel, first_sn)
        self._filtered_to = self.trace.upper

    def seal_inferred(self, sn: int, difference: Difference) -> None:
        """Seal SN sn with inferred triples that come and go, from which all follows that is in there, too."""
        with _noting(self._follower):
            self._learn(difference.additions)
            self.trace.seal(sn, *difference)
        self._filtered_to = self.trace.upper

    @property
    def filter_bytes(self) -> int:
        """Bytes of the filter that tells new triples from stored ones."""
        return self._filter.size_bytes

    def open(self, sn: int, owner: str, expires: bool = True, age_max_s: float = math.inf) -> Handle:
        """Open a handle on the graph as of an SN; see Trace.open. Raises CompactedError if merging has forgotten it."""
        return self.trace.open(sn, owner, expires, age_max_s)


@contextmanager
def _noting(follower: Follower | None) -> Iterator[None]:
    """Seal what a follower has derived, and have it note whether that was done."""
    try:
        yield
    except BaseException:
        if follower is not None:
            follower.note_sealed(False)
        raise
    if follower is not None:
        follower.note_sealed(True)
