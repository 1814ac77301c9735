"""Merge: two batches on their way to one, in steps of bounded work. The inputs stay readable until it is done.

Every part of a merge is paid for with fuel: directory, values, codes, fences, the key filter. Only two things are not:
one pass over the merged directory for each side, to choose its fences, and a few allocations, whose pages are touched
only as they are written. The arrays are as large as the two inputs together. When the merge ends, they are cut in place
to the length that was written, without a copy.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from wukongs.store.batch import (
    UNLISTED,
    Batch,
    Side,
    VertexIndex,
    assemble,
    code_dtype,
    is_listed,
    make_vertex_index,
    put_key_filter,
    room_for_key_filter,
)
from wukongs.store.batch_kernels import fill_fences, plan_fences
from wukongs.store.dtypes import Int32Array, Int64Array
from wukongs.store.fuel import Fuelled, Tank, at_once
from wukongs.store.key_filter_kernels import KEYS_PER_FUEL, add_keys
from wukongs.store.merge_kernels import (
    NOT_STARTED,
    STATE_WIDTH,
    merge_directories,
    merge_keys,
    merge_side,
    merge_vertices,
)

_NO_TIMES = np.empty(0, np.int64)
KEYS_MERGED_ROWS_MAX = 64
"""A batch with more directory rows gets its vertex index by a sort, if it need not be made in steps."""


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
    """Give back the memory behind `size`: realloc shrinks in place. Nothing may view the array yet."""
    if len(array) > size:
        array.resize(size, refcheck=False)


def cut_lists(keys: Int64Array, offsets: Int32Array, values: npt.NDArray[Any], counts: Int64Array) -> None:
    """Cut keys and their lists to the written length. counts : int64[2], keys and values; nothing may view them yet."""
    n_keys, n_values = counts.tolist()
    _cut(keys, n_keys)
    _cut(offsets, n_keys + 1)
    _cut(values, n_values)


class Merge(Fuelled[Batch]):
    """The merge of batches a (older) and b."""

    def __init__(self, a: Batch, b: Batch) -> None:
        a.verify()
        b.verify()
        self.a = a
        self.b = b
        super().__init__(partial(merge_in_steps, a, b))


def merge_batches(a: Batch, b: Batch) -> Batch:
    """Merge two batches at once: the union of their triples, with the newer time of each."""
    return Merge(a, b).finish()


def merge_runs(a: Batch, b: Batch) -> Batch:
    """Merge two large batches at once, in two threads, into one without times, vertex index and key filter."""
    a.verify()
    b.verify()
    directory = at_once(partial(_merge_directories, a, b))
    with ThreadPoolExecutor(1, "wukongs-merge") as beside:
        coming = beside.submit(at_once, partial(_merge_side, a, b, 1, directory, _NO_TIMES))
        out = at_once(partial(_merge_side, a, b, 0, directory, _NO_TIMES))
        in_ = coming.result()
    return assemble(directory.graphs, directory.predicates, out, in_, UNLISTED, _NO_TIMES)


def listed(batch: Batch) -> Batch:
    """Return a batch with its vertex index, if it is to have one."""
    if batch.lists_vertices or not is_listed(len(batch.graphs), len(batch)):
        return batch
    if len(batch.graphs) <= KEYS_MERGED_ROWS_MAX:
        return at_once(partial(listed_in_steps, batch))
    index = make_vertex_index(batch.out, batch.in_)
    return assemble(batch.graphs, batch.predicates, batch.out, batch.in_, index, batch.times)


def merge_in_steps(a: Batch, b: Batch, tank: Tank) -> Generator[None, None, Batch]:
    """Do the whole merge of two verified batches, with a pause whenever the fuel is used up."""
    directory = yield from _merge_directories(a, b, tank)
    times = np.empty(len(a) + len(b) if len(a.times) or len(b.times) else 0, np.int64)
    out = yield from _merge_side(a, b, 0, directory, times, tank)
    _cut(times, len(out.values) if len(times) else 0)
    is_filtered = len(a.key_filter) > 0 or len(b.key_filter) > 0
    in_ = yield from _merge_side(a, b, 1, directory, _NO_TIMES, tank)
    index = UNLISTED
    if is_listed(len(directory.graphs), len(out.values)):
        a, b = (yield from listed_in_steps(a, tank)), (yield from listed_in_steps(b, tank))
        index = yield from _merge_vertices(a, b, directory, tank)
    merged = assemble(directory.graphs, directory.predicates, out, in_, index, times)
    return (yield from filtered_in_steps(merged, tank)) if is_filtered else merged


def _merge_directories(a: Batch, b: Batch, tank: Tank) -> Generator[None, None, _Directory]:
    n_a, n_b = len(a.graphs), len(b.graphs)
    graphs, predicates = np.empty(n_a + n_b, np.int64), np.empty(n_a + n_b, np.int64)
    rows_a, rows_b = np.empty(n_a + n_b, np.int32), np.empty(n_a + n_b, np.int32)
    rank_a, rank_b = np.empty(n_a, np.int32), np.empty(n_b, np.int32)
    state = np.zeros(STATE_WIDTH, np.int64)
    while True:
        tank.fuel = merge_directories(
            a.descriptor,
            b.descriptor,
            graphs,
            predicates,
            rows_a,
            rows_b,
            rank_a,
            rank_b,
            state,
            tank.fuel,
        )
        if state[1] == n_a and state[2] == n_b:
            break
        yield
    for array in (graphs, predicates, rows_a, rows_b):
        _cut(array, int(state[0]))
    return _Directory(graphs, predicates, rows_a, rows_b, rank_a, rank_b)


def _merge_side(
    a: Batch, b: Batch, direction: int, directory: _Directory, times: Int64Array, tank: Tank
) -> Generator[None, None, Side]:
    side_a, side_b = (a.out, b.out) if direction == 0 else (a.in_, b.in_)
    key_starts = np.empty(len(directory.graphs) + 1, np.int64)
    keys = np.empty(len(side_a.keys) + len(side_b.keys), np.int64)
    offsets = np.empty(len(keys) + 1, np.int32)
    values = np.empty(len(side_a.values) + len(side_b.values), np.int64)
    state = _fresh_state()
    while True:
        tank.fuel = merge_side(
            a.descriptor,
            b.descriptor,
            direction,
            directory.rows_a,
            directory.rows_b,
            key_starts,
            keys,
            offsets,
            values,
            times,
            state,
            tank.fuel,
        )
        if state[0] == len(directory.graphs):
            break
        yield
    cut_lists(keys, offsets, values, state[5:7])
    fences = yield from fences_in_steps(keys, key_starts, tank)
    return Side(key_starts, keys, offsets, values, *fences)


def _merge_vertices(a: Batch, b: Batch, directory: _Directory, tank: Tank) -> Generator[None, None, VertexIndex]:
    index_a, index_b = a.vertex_index, b.vertex_index
    n_a, n_b = len(index_a.vertices), len(index_b.vertices)
    vertices = np.empty(n_a + n_b, np.int64)
    starts = np.empty(n_a + n_b + 1, np.int32)
    codes = np.empty(len(index_a.codes) + len(index_b.codes), code_dtype(len(directory.graphs)))
    state = _fresh_state()
    state[1:3] = 0
    while True:
        tank.fuel = merge_vertices(
            a.descriptor,
            b.descriptor,
            directory.rank_a,
            directory.rank_b,
            vertices,
            starts,
            codes,
            state,
            tank.fuel,
        )
        if state[1] == n_a and state[2] == n_b:
            break
        yield
    cut_lists(vertices, starts, codes, state[5:7])
    return (yield from index_in_steps(vertices, starts, codes, tank))


def filtered_in_steps(batch: Batch, tank: Tank) -> Generator[None, None, Batch]:
    """Return a batch with a filter over its keys, if it is to have one."""
    words = room_for_key_filter(batch)
    if words is None:
        return batch
    for direction, side in enumerate((batch.out, batch.in_)):
        start = 0
        while start < len(side.keys):
            if tank.fuel <= 0:
                yield
            stop = min(len(side.keys), start + KEYS_PER_FUEL * tank.fuel)
            add_keys(words, side.keys, direction, start, stop)
            tank.fuel -= -(-(stop - start) // KEYS_PER_FUEL)
            start = stop
    return put_key_filter(batch, words)


def listed_in_steps(batch: Batch, tank: Tank) -> Generator[None, None, Batch]:
    """Return a batch with its vertex index, which is made if it has none."""
    if batch.lists_vertices:
        return batch
    key_count = len(batch.out.keys) + len(batch.in_.keys)
    vertices, starts = np.empty(key_count, np.int64), np.empty(key_count + 1, np.int32)
    codes = np.empty(key_count, code_dtype(len(batch.graphs)))
    places = np.column_stack((batch.out.key_starts[:-1], batch.in_.key_starts[:-1])).ravel()
    heads, ends, state = np.empty_like(places), np.empty_like(places), np.zeros(3, np.int64)
    while True:
        tank.fuel = merge_keys(batch.descriptor, places, heads, ends, vertices, starts, codes, state, tank.fuel)
        if state[2]:
            break
        yield
    cut_lists(vertices, starts, codes, state[:2])
    index = yield from index_in_steps(vertices, starts, codes, tank)
    return assemble(batch.graphs, batch.predicates, batch.out, batch.in_, index, batch.times)


def index_in_steps(
    vertices: Int64Array, starts: Int32Array, codes: npt.NDArray[Any], tank: Tank
) -> Generator[None, None, VertexIndex]:
    """Add the fence to the columns of a vertex index."""
    _, shifts, fence = yield from fences_in_steps(vertices, np.array([0, len(vertices)], np.int64), tank)
    return VertexIndex(vertices, starts, codes, int(shifts[0]), fence)


def fences_in_steps(
    keys: Int64Array, key_starts: Int64Array, tank: Tank
) -> Generator[None, None, tuple[Int64Array, Int64Array, Int32Array]]:
    """Write the fences of a side. Returns (fence_starts, fence_shifts, fences), as build_fences."""
    starts, shifts = plan_fences(key_starts)
    fences = np.empty(starts[-1], np.int32)
    state = np.zeros(3, np.int64)
    while True:
        tank.fuel = fill_fences(keys, key_starts, starts, shifts, fences, state, tank.fuel)
        if state[0] == len(shifts):
            return starts, shifts, fences
        yield
