"""Merge: two batches on their way to one, in steps of bounded work. The inputs stay readable until it is done.

Every part of a merge is paid for with fuel: directory, values, codes, fences. What is left is a few allocations, whose
pages are touched only as they are written. The arrays are as large as the two inputs together, and are cut to what was
written when they are full: in place, without a copy.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from store.batch import Batch, Side, VertexIndex, assemble, code_dtype
from store.batch_kernels import fill_fences, plan_fences
from store.dtypes import Int32Array, Int64Array
from store.merge_kernels import NOT_STARTED, STATE_WIDTH, merge_directories, merge_side, merge_vertices

UNLIMITED_FUEL = 2**62
_NO_TIMES = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class _Directory:
    """The merged directory; rows_a, rows_b : int32[n_rows], the row of a and of b that each of its rows comes from, -1
    for none; rank_a, rank_b : int32, the merged row of each row of a and of b."""

    graphs: Int64Array
    predicates: Int64Array
    rows_a: Int32Array
    rows_b: Int32Array
    rank_a: Int32Array
    rank_b: Int32Array


def _fresh_state() -> Int64Array:
    state = np.zeros(STATE_WIDTH, np.int64)
    state[1:5] = NOT_STARTED
    return state


def _cut(array: npt.NDArray[Any], size: int) -> None:
    """Give back what lies behind `size`: realloc shrinks where it stands. Nothing may view the array yet."""
    if len(array) > size:
        array.resize(size, refcheck=False)


class Merge:
    """The merge of batches a (older) and b. work(fuel) moves it on; result is there once it is done."""

    def __init__(self, a: Batch, b: Batch) -> None:
        a.verify()
        b.verify()
        self.a = a
        self.b = b
        self.result: Batch | None = None
        self._fuel = 0
        self._work = self._merge()

    def work(self, fuel: int) -> int:
        """Merge at most about `fuel` values; return the fuel that is left (0: there is more to do, or just done)."""
        if self.result is not None or fuel <= 0:
            return fuel
        self._fuel = fuel
        next(self._work, None)
        return self._fuel

    def finish(self) -> Batch:
        """Merge all the rest and return the result."""
        self.work(UNLIMITED_FUEL)
        assert self.result is not None
        return self.result

    def _merge(self) -> Generator[None]:
        """Do the whole merge, with a pause whenever the fuel is used up."""
        a, b = self.a, self.b
        directory = yield from self._merge_directories()
        times = np.empty(len(a) + len(b) if len(a.times) or len(b.times) else 0, np.int64)
        out = yield from self._merge_side(0, directory, times)
        _cut(times, len(out.values) if len(times) else 0)
        in_ = yield from self._merge_side(1, directory, _NO_TIMES)
        index = yield from self._merge_vertices(directory)
        self.result = assemble(directory.graphs, directory.predicates, out, in_, index, times)

    def _merge_directories(self) -> Generator[None, None, _Directory]:
        n_a, n_b = len(self.a.graphs), len(self.b.graphs)
        graphs, predicates = np.empty(n_a + n_b, np.int64), np.empty(n_a + n_b, np.int64)
        rows_a, rows_b = np.empty(n_a + n_b, np.int32), np.empty(n_a + n_b, np.int32)
        rank_a, rank_b = np.empty(n_a, np.int32), np.empty(n_b, np.int32)
        state = np.zeros(STATE_WIDTH, np.int64)
        a, b = self.a.descriptor, self.b.descriptor
        while True:
            self._fuel = merge_directories(a, b, graphs, predicates, rows_a, rows_b, rank_a, rank_b, state, self._fuel)
            if state[1] == n_a and state[2] == n_b:
                break
            yield
        for array in (graphs, predicates, rows_a, rows_b):
            _cut(array, int(state[0]))
        return _Directory(graphs, predicates, rows_a, rows_b, rank_a, rank_b)

    def _merge_side(self, direction: int, directory: _Directory, times: Int64Array) -> Generator[None, None, Side]:
        a, b = (self.a.out, self.b.out) if direction == 0 else (self.a.in_, self.b.in_)
        key_starts = np.empty(len(directory.graphs) + 1, np.int64)
        keys = np.empty(len(a.keys) + len(b.keys), np.int64)
        offsets = np.empty(len(keys) + 1, np.int32)
        values = np.empty(len(a.values) + len(b.values), np.int64)
        state = _fresh_state()
        while True:
            self._fuel = merge_side(
                self.a.descriptor,
                self.b.descriptor,
                direction,
                directory.rows_a,
                directory.rows_b,
                key_starts,
                keys,
                offsets,
                values,
                times,
                state,
                self._fuel,
            )
            if state[0] == len(directory.graphs):
                break
            yield
        n_keys = int(state[5])
        _cut(keys, n_keys)
        _cut(offsets, n_keys + 1)
        _cut(values, int(state[6]))
        starts, shifts, fences = yield from self._fill_fences(keys, key_starts)
        return Side(key_starts, keys, offsets, values, starts, shifts, fences)

    def _merge_vertices(self, directory: _Directory) -> Generator[None, None, VertexIndex]:
        a, b = self.a.vertex_index, self.b.vertex_index
        n_a, n_b = len(a.vertices), len(b.vertices)
        vertices = np.empty(n_a + n_b, np.int64)
        starts = np.empty(n_a + n_b + 1, np.int32)
        codes = np.empty(len(a.codes) + len(b.codes), code_dtype(len(directory.graphs)))
        state = _fresh_state()
        state[1:3] = 0
        while True:
            self._fuel = merge_vertices(
                self.a.descriptor,
                self.b.descriptor,
                directory.rank_a,
                directory.rank_b,
                vertices,
                starts,
                codes,
                state,
                self._fuel,
            )
            if state[1] == n_a and state[2] == n_b:
                break
            yield
        n = int(state[5])
        _cut(vertices, n)
        _cut(starts, n + 1)
        _cut(codes, int(state[6]))
        _, shifts, fence = yield from self._fill_fences(vertices, np.array([0, n], np.int64))
        return VertexIndex(vertices, starts, codes, int(shifts[0]), fence)

    def _fill_fences(
        self, keys: Int64Array, key_starts: Int64Array
    ) -> Generator[None, None, tuple[Int64Array, Int64Array, Int32Array]]:
        starts, shifts = plan_fences(key_starts)
        fences = np.empty(starts[-1], np.int32)
        state = np.zeros(3, np.int64)
        while True:
            self._fuel = fill_fences(keys, key_starts, starts, shifts, fences, state, self._fuel)
            if state[0] == len(shifts):
                return starts, shifts, fences
            yield


def merge_batches(a: Batch, b: Batch) -> Batch:
    """Merge two batches at once: the union of their triples, with the newer time of each."""
    return Merge(a, b).finish()
