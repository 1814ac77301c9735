"""Merge: two batches on their way to one, in steps of bounded work. The inputs stay readable until it is done."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from store.batch import (
    WIDE_CODES_FROM,
    Batch,
    Side,
    VertexIndex,
    assemble,
    make_side,
)
from store.batch_kernels import assign_directory, build_fences
from store.dtypes import Int32Array, Int64Array
from store.merge_kernels import NOT_STARTED, STATE_WIDTH, merge_side, merge_vertices

UNLIMITED_FUEL = 2**62


def _fresh_state() -> Int64Array:
    state = np.zeros(STATE_WIDTH, np.int64)
    state[1:5] = NOT_STARTED
    return state


def _fitted(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Cut an array to size; copy it where the cut would keep much unused memory alive."""
    return array[:size].copy() if len(array) > size + size // 16 else array[:size]


class Merge:
    """The merge of batches a (older) and b. work(fuel) moves it on; result is there once it is done."""

    def __init__(self, a: Batch, b: Batch) -> None:
        a.verify()
        b.verify()
        self.a = a
        self.b = b
        self.result: Batch | None = None
        rows, self._graphs, self._predicates, _ = assign_directory(
            np.concatenate((a.graphs, b.graphs)), np.concatenate((a.predicates, b.predicates))
        )
        self._rank_a, self._rank_b = rows[: len(a.graphs)], rows[len(a.graphs) :]
        n_rows = len(self._graphs)
        self._rows_a = np.full(n_rows, -1, np.int32)
        self._rows_b = np.full(n_rows, -1, np.int32)
        self._rows_a[self._rank_a] = np.arange(len(a.graphs), dtype=np.int32)
        self._rows_b[self._rank_b] = np.arange(len(b.graphs), dtype=np.int32)
        self._direction = 0
        self._sides: list[Side] = []
        self._times = np.empty(len(a) + len(b) if len(a.times) or len(b.times) else 0, np.int64)
        self._start_side()

    def work(self, fuel: int) -> int:
        """Merge at most about `fuel` values; return the fuel that is left (0: there is more to do, or just done)."""
        while self.result is None and fuel > 0:
            fuel = self._merge_vertices(fuel) if self._direction == 2 else self._merge_side(fuel)
        return fuel

    def finish(self) -> Batch:
        """Merge all the rest and return the result."""
        self.work(UNLIMITED_FUEL)
        assert self.result is not None
        return self.result

    def _start_side(self) -> None:
        n_values = len(self.a) + len(self.b)
        a, b = (self.a.out, self.b.out) if self._direction == 0 else (self.a.in_, self.b.in_)
        n_keys = len(a.keys) + len(b.keys)
        self._key_starts = np.zeros(len(self._graphs) + 1, np.int64)
        self._keys = np.empty(n_keys, np.int64)
        self._offsets = np.zeros(n_keys + 1, np.int32)
        self._values = np.empty(n_values, np.int64)
        self._state = _fresh_state()

    def _merge_side(self, fuel: int) -> int:
        times = self._times if self._direction == 0 else np.empty(0, np.int64)
        fuel = int(
            merge_side(
                self.a.descriptor,
                self.b.descriptor,
                self._direction,
                self._rows_a,
                self._rows_b,
                self._key_starts,
                self._keys,
                self._offsets,
                self._values,
                times,
                self._state,
                fuel,
            )
        )
        if self._state[0] == len(self._graphs):
            n_keys, n_values = int(self._state[5]), int(self._state[6])
            self._sides.append(
                make_side(
                    self._key_starts,
                    _fitted(self._keys, n_keys),
                    _fitted(self._offsets, n_keys + 1),
                    _fitted(self._values, n_values),
                )
            )
            self._direction += 1
            if self._direction == 1:
                self._times = _fitted(self._times, n_values if len(self._times) else 0)
                self._start_side()
            else:
                self._start_vertices()
        return fuel

    def _start_vertices(self) -> None:
        index_a, index_b = self.a.vertex_index, self.b.vertex_index
        n = len(index_a.vertices) + len(index_b.vertices)
        self._keys = np.empty(n, np.int64)
        self._offsets = np.zeros(n + 1, np.int32)
        self._codes = np.empty(len(index_a.codes) + len(index_b.codes), np.int32)
        self._state = np.zeros(STATE_WIDTH, np.int64)

    def _merge_vertices(self, fuel: int) -> int:
        fuel = int(
            merge_vertices(
                self.a.descriptor,
                self.b.descriptor,
                self._rank_a,
                self._rank_b,
                self._keys,
                self._offsets,
                self._codes,
                self._state,
                fuel,
            )
        )
        read_a, read_b = self._state[1], self._state[2]
        if read_a == len(self.a.vertex_index.vertices) and read_b == len(self.b.vertex_index.vertices):
            n_vertices, n_codes = int(self._state[5]), int(self._state[6])
            vertices = _fitted(self._keys, n_vertices)
            _, shifts, fence = build_fences(vertices, np.array([0, n_vertices], np.int64))
            wide = len(self._graphs) >= WIDE_CODES_FROM
            codes = self._codes[:n_codes].astype(np.int32 if wide else np.uint16)
            index = VertexIndex(
                vertices,
                _fitted(self._offsets, n_vertices + 1),
                cast("npt.NDArray[np.uint16] | Int32Array", codes),
                int(shifts[0]),
                fence,
            )
            self.result = assemble(self._graphs, self._predicates, self._sides[0], self._sides[1], index, self._times)
        return fuel


def merge_batches(a: Batch, b: Batch) -> Batch:
    """Merge two batches at once: the union of their triples, with the newer time of each."""
    return Merge(a, b).finish()
