"""Tombstones: what a trace holds of deletions, and the merge of two entries that have them.

A deletion is a triple in the second batch of its entry. Invariants:

* newness is decided at sealing, in SN order: a triple is deleted only while it is seen, and added only while it is not.
  So, per triple, the entries hold additions and tombstones in turn, beginning with an addition;
* within one entry, additions and tombstones have no triple in common.

Hence a triple is seen at an SN if its additions up to there are one more than its tombstones, and a triple of a batch
is hidden if any later entry of the read holds a tombstone of it. Merging neighbours adds up their differences: an
addition and a tombstone of one triple cancel each other, whichever came first; what is left still takes turns. The
oldest entry never has tombstones, since there is nothing before it that they could hide.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import cast

import numpy as np
import numpy.typing as npt

from store.batch import Batch, Side, VertexIndex, assemble, build_batch, code_dtype, make_side
from store.batch_kernels import build_fences
from store.dtypes import Int32Array
from store.merge import Merge
from store.tombstone_kernels import NOT_STARTED, SUBTRACT_STATE_WIDTH, subtract_side, subtract_vertices

_NOTHING = np.empty(0, np.int64)


class Subtraction:
    """A batch without the triples of another, on its way, in steps of bounded work. result is there once it is done.

    Cost: a copy of the batch; keys are looked up in neither.
    """

    def __init__(self, batch: Batch, tombstones: Batch) -> None:
        batch.verify()
        tombstones.verify()
        self.batch = batch
        self.tombstones = tombstones
        self.result: Batch | None = None
        self._sides: list[Side] = []
        self._start_side()

    def work(self, fuel: int) -> int:
        """Copy at most about `fuel` values; return the fuel that is left (0: there is more to do, or just done)."""
        while self.result is None and fuel > 0:
            fuel = self._subtract_vertices(fuel) if len(self._sides) == 2 else self._subtract_side(fuel)
        return fuel

    def _start_side(self) -> None:
        side = self.batch.in_ if self._sides else self.batch.out
        self._key_starts = np.zeros(len(side.key_starts), np.int64)
        self._keys = np.empty(len(side.keys), np.int64)
        self._offsets = np.zeros(len(side.keys) + 1, np.int32)
        self._values = np.empty(len(side.values), np.int64)
        self._state = np.zeros(SUBTRACT_STATE_WIDTH, np.int64)
        self._state[1:3] = NOT_STARTED

    def _subtract_side(self, fuel: int) -> int:
        fuel = subtract_side(
            self.batch.descriptor,
            self.tombstones.descriptor,
            len(self._sides),
            self._key_starts,
            self._keys,
            self._offsets,
            self._values,
            self._state,
            fuel,
        )
        if self._state[0] == len(self.batch.graphs):
            n_keys, n_values = self._state[4:6]
            self._kept = np.flatnonzero(np.diff(self._key_starts))
            key_starts = np.concatenate((self._key_starts[:1], self._key_starts[self._kept + 1]))
            self._sides.append(
                make_side(
                    key_starts,
                    self._keys[:n_keys].copy(),
                    self._offsets[: n_keys + 1].copy(),
                    self._values[:n_values].copy(),
                )
            )
            if len(self._sides) == 2:
                self._start_vertices()
            else:
                self._start_side()
        return int(fuel)

    def _start_vertices(self) -> None:
        index = self.batch.vertex_index
        kept = self._kept
        out, in_ = self._sides
        self._left = assemble(self.batch.graphs[kept], self.batch.predicates[kept], out, in_, index, _NOTHING)
        self._rank = np.full(len(self.batch.graphs), -1, np.int32)
        self._rank[kept] = np.arange(len(kept), dtype=np.int32)
        self._keys = np.empty(len(index.vertices), np.int64)
        self._offsets = np.zeros(len(index.vertices) + 1, np.int32)
        self._codes = np.empty(len(index.codes), code_dtype(len(kept)))
        self._state[:] = 0

    def _subtract_vertices(self, fuel: int) -> int:
        fuel = subtract_vertices(
            self.batch.descriptor,
            self.tombstones.descriptor,
            self._left.descriptor,
            self._rank,
            self._keys,
            self._offsets,
            self._codes,
            self._state,
            fuel,
        )
        if self._state[1] == len(self.batch.vertex_index.vertices):
            n_vertices, n_codes = self._state[4:6]
            vertices = self._keys[:n_vertices].copy()
            _, shifts, fence = build_fences(vertices, np.array([0, n_vertices], np.int64))
            index = VertexIndex(
                vertices,
                self._offsets[: n_vertices + 1].copy(),
                cast("npt.NDArray[np.uint16] | Int32Array", self._codes[:n_codes].copy()),
                int(shifts[0]),
                fence,
            )
            left = self._left
            self.result = assemble(left.graphs, left.predicates, left.out, left.in_, index, _NOTHING)
        return int(fuel)


_Steps = Generator[Subtraction | Merge, None, Batch | None]


class DifferenceMerge:
    """The merge of two neighbouring entries, additions and tombstones, in steps of bounded work, as Merge.

    result and tombstones (None: none are left) are there once it is done. Cost: where nothing cancels, that of merging
    both; else a copy more of what tombstones are taken out of.
    """

    def __init__(
        self, older: Batch, older_tombstones: Batch | None, newer: Batch, newer_tombstones: Batch | None
    ) -> None:
        self.result: Batch | None = None
        self.tombstones: Batch | None = None
        self._steps = self._run(older, older_tombstones, newer, newer_tombstones)
        self._step = next(self._steps, None)

    def work(self, fuel: int) -> int:
        """Move at most about `fuel` values; return the fuel that is left (0: there is more to do, or just done)."""
        while self._step is not None and fuel > 0:
            fuel = self._step.work(fuel)
            if self._step.result is not None:
                self._step = next(self._steps, None)
        return fuel

    def _run(
        self, older: Batch, older_tombstones: Batch | None, newer: Batch, newer_tombstones: Batch | None
    ) -> Generator[Subtraction | Merge, None, None]:
        self.tombstones = yield from _united(older_tombstones, newer, newer_tombstones, older)
        additions = yield from _united(older, newer_tombstones, newer, older_tombstones)
        self.result = additions if additions is not None else build_batch(_NOTHING, _NOTHING, _NOTHING, _NOTHING)


def _united(older: Batch | None, older_minus: Batch | None, newer: Batch | None, newer_minus: Batch | None) -> _Steps:
    """Unite what is left of two batches when each has lost what cancels it; None if that is nothing."""
    older = yield from _remaining(older, older_minus)
    newer = yield from _remaining(newer, newer_minus)
    if older is None or newer is None:
        return newer if older is None else older
    merge = Merge(older, newer)
    yield merge
    assert merge.result is not None
    assert len(merge.result) == len(older) + len(newer), "additions and tombstones of a triple do not take turns"
    return merge.result


def _remaining(batch: Batch | None, minus: Batch | None) -> _Steps:
    """Take from a batch what is in another; None if that is all."""
    if batch is None or minus is None or len(batch) == 0 or len(minus) == 0:
        return batch if batch is not None and len(batch) else None
    subtraction = Subtraction(batch, minus)
    yield subtraction
    assert subtraction.result is not None
    return subtraction.result if len(subtraction.result) else None
