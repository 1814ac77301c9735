"""GraphChange: the changes that an update has made to a snapshot so far, while its operations go on.

A change has three parts: graphs that are cleared, quads that go, quads that come. They are applied in this order. The
last action on a quad counts, so the last two parts have no quad in common.

The outcome is a Difference over the snapshot: tombstones of triples that it holds, and additions of others. An update
has not seen triples that were sealed after the snapshot. It deletes none of them, not even where it clears a graph.
Triples that were retracted since are gone already, and come anew if the update inserts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from wukongs.store.batch import Batch, build_batch
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.quads import Quads, graph_quads, is_held, joined, last_actions, only, read_of, taken, without_held
from wukongs.store.tombstones import Difference

_NOTHING = joined(())


class GraphChange:
    """stored: the snapshot that is changed; may_hold: tells what it may hold, more cheaply than a look-up, if given."""

    def __init__(self, stored: BatchSet, may_hold: Callable[[Quads], BoolArray] | None = None) -> None:
        self._stored = stored
        self._may_hold = may_hold
        self._cleared = np.empty(0, np.int64)
        self._gone = _NOTHING
        self._come = _NOTHING
        self._deleted = _NOTHING
        self._steps: list[tuple[bool, Quads]] = []
        """Not in _gone and _come yet: (whether they come, quads)."""
        self._coming: Batch | None = None
        """A batch of `_come`, if that was made."""
        self._difference: Difference | None = None

    def see(self, stored: BatchSet) -> None:
        """Read the part of the snapshot that the change rests on (see `needs`), if it was not read yet."""
        if stored is not self._stored:
            self._stored, self._may_hold = stored, None
            self._difference = None

    def needs(self) -> tuple[Quads, Int64Array]:
        """Return the data that `difference` rests on: the quads that it looks up, and the graphs that it reads
        whole."""
        self._fold()
        return self._gone, self._cleared

    # --- operations ---------------------------------------------------------------------------------------------------

    def delete(self, quads: Quads) -> None:
        """Let quads go. Repeats, and quads that are not there, are allowed."""
        self._add(False, quads)

    def insert(self, quads: Quads) -> None:
        """Let quads come. Repeats, and quads that are there, are allowed."""
        self._add(True, quads)

    def clear(self, graphs: Iterable[int]) -> None:
        """Let everything in some graphs go."""
        ids = np.fromiter(graphs, np.int64)
        if len(ids):
            self._fold()
            self._gone, self._come = (taken(part, ~np.isin(part[0], ids)) for part in (self._gone, self._come))
            self._coming = None
            self._cleared = np.union1d(self._cleared, ids)
            self._difference = None

    def _add(self, comes: bool, quads: Quads) -> None:
        if len(quads[0]):
            self._steps.append((comes, quads))
            self._difference = None

    def _fold(self) -> None:
        """Bring the latest actions into _gone and _come."""
        if not self._steps:
            return
        steps = [(False, self._gone), (True, self._come), *self._steps]
        self._steps, self._coming = [], None
        self._gone = joined([quads for comes, quads in steps if not comes])
        self._come = joined([quads for comes, quads in steps if comes])
        if not len(self._gone[0]) or not len(self._come[0]):
            return
        self._coming = build_batch(*self._come)
        both = is_held(BatchSet.of((self._coming,), disjoint=True), self._gone)
        if both.any():
            self._coming = None
            disputed = read_of(taken(self._gone, both))
            self._gone = taken(self._gone, ~both)
            self._come = taken(self._come, ~is_held(disputed, self._come))
            parts = [taken(quads, is_held(disputed, quads)) for _, quads in steps]
            goes = np.repeat([not comes for comes, _ in steps], [len(part[0]) for part in parts])
            gone, come = last_actions(joined(parts), goes)
            self._gone, self._come = joined((self._gone, gone)), joined((self._come, come))

    # --- its outcome --------------------------------------------------------------------------------------------------

    @property
    def cleared(self) -> Int64Array:
        """The graphs of which everything goes, sorted."""
        return self._cleared

    @property
    def gone(self) -> Quads:
        """The quads of the snapshot that go, but for those of cleared graphs."""
        self.difference()
        return self._deleted

    @property
    def come(self) -> Quads:
        """The quads that come, also if they were there."""
        self._fold()
        return self._come

    def difference(self) -> Difference:
        """Return the change over the snapshot. tombstones: None if nothing has gone."""
        if self._difference is None:
            self._fold()
            come = build_batch(*self._come) if self._coming is None else self._coming
            gone = self._held(build_batch(*self._gone))
            self._deleted = gone.triples()
            if len(self._cleared):
                stays, parts = BatchSet.of((come,), disjoint=True), [self._deleted]
                for graph in self._cleared.tolist():
                    held = graph_quads(self._stored, graph)
                    parts.append(taken(held, ~is_held(stays, held)))
                gone = build_batch(*joined(parts))
            self._difference = Difference(self._new(come), gone if len(gone) else None)
        return self._difference

    def _held(self, gone: Batch) -> Batch:
        """Return what the snapshot holds of what goes, but for graphs that are cleared."""
        quads = gone.triples()
        return only(gone, is_held(self._stored, quads) & ~np.isin(quads[0], self._cleared))

    def _new(self, come: Batch) -> Batch:
        """Return what the snapshot does not hold of what comes."""
        quads = come.triples()
        held = np.ones(len(come), np.bool_) if self._may_hold is None else self._may_hold(quads)
        held[held] = is_held(self._stored, taken(quads, held))
        return only(come, ~held)

    def beside(self, since: Sequence[Batch], now: BatchSet | None = None) -> tuple[Difference, Quads]:
        """Return the difference now that others have sealed these additions after the snapshot, and those additions
        that stay though their graph is cleared. A later repetition of the change has to add these again.

        now: the graph as it is; None: no triple was retracted since the snapshot.

        Cost: look-ups for the smaller of the two sets of additions; after retractions, for each triple that the update
        names."""
        come, gone = self.difference()
        added = joined([batch.triples() for batch in since]) if len(self._cleared) else _NOTHING
        added = taken(added, np.isin(added[0], self._cleared))
        if now is None:
            return Difference(without_held(come, BatchSet.of(tuple(since), disjoint=True)), gone), added
        come = build_batch(*taken(self._come, ~is_held(now, self._come)))
        gone = None if gone is None else only(gone, is_held(now, gone.triples()))
        unseen = taken(added, is_held(now, added) & ~is_held(self._stored, added))
        return Difference(come, gone if gone else None), unseen
