"""Batch: an immutable, sorted, indexed set of triples in columns.

Invariants:

* the directory is sorted by (predicate, graph) and has no row without a triple;
* within a directory row, keys are strictly increasing on each side, and values are strictly increasing per key: a
  batch is a set;
* both sides hold the same triples, so a change is never seen from one end only;
* a vertex lists its codes (2 * directory row + direction) in increasing order; inlined literals are not listed, since
  hardly any query starts from one with its predicate unknown (the directory is walked then);
* a small batch with few directory rows lists no vertices at all: its directory is walked for each (decision 0045);
* a batch of a trace has a filter over its keys unless it is large, so that it costs little where it has nothing. The
  filter is on no disk: a batch that is read from a file has none (decision 0049).

Cost: 8 bytes a triple and side, 12 a key, 2 a vertex and directory row, a fence entry of 4 for every one to four keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from wukongs.store import layout
from wukongs.store.batch_kernels import (
    assign_directory,
    build_fences,
    compress_pairs,
    count_vertices_below,
    group_rows,
    list_vertices,
    swap_sides,
)
from wukongs.store.descriptor_kernels import write_descriptor
from wukongs.store.dtypes import Int32Array, Int64Array
from wukongs.store.key_filter_kernels import KEYS_PER_WORD, add_keys
from wukongs.store.sort_kernels import sort_ranges

if TYPE_CHECKING:
    from wukongs.store.column_file import ColumnFile

_NOTHING = np.empty(0, np.int64)
VALUES_MAX = 2**30 - 1
"""Triples of one batch: its offsets are int32, and a triple may add two vertex codes."""
UNLISTED_ROWS_MAX = 16
UNLISTED_TRIPLES_MAX = 2**16
"""A batch with no more directory rows and no more triples has no vertex index."""
FILTERED_TRIPLES_MAX = 2**18
"""A batch with more triples gets no key filter."""
VERTICES_COUNTED_MAX = 1 << 12
"""About so many keys of a batch without a vertex index are looked at to estimate its vertices."""
WIDE_CODES_FROM = 2**15
"""Directory rows from which on codes take 32 bits."""


@dataclass(frozen=True, slots=True)
class Side:
    """One direction of a batch: per directory row, sorted keys and, per key, sorted values."""

    key_starts: Int64Array
    keys: Int64Array
    offsets: Int32Array
    values: Int64Array
    fence_starts: Int64Array
    fence_shifts: Int64Array
    fences: Int32Array

    def arrays(self) -> tuple[npt.NDArray[np.signedinteger], ...]:
        """Return the arrays in the order of the descriptor."""
        return (
            self.key_starts,
            self.keys,
            self.offsets,
            self.values,
            self.fence_starts,
            self.fence_shifts,
            self.fences,
        )


@dataclass(frozen=True, slots=True)
class VertexIndex:
    """vertex -> its codes: through it `<s> ?p ?o` and `?s ?p <o>` find their predicates and graphs."""

    vertices: Int64Array
    starts: Int32Array
    codes: npt.NDArray[np.uint16] | Int32Array
    fence_shift: int
    fence: Int32Array


UNLISTED = VertexIndex(_NOTHING, np.zeros(1, np.int32), np.empty(0, np.uint16), layout.NO_FENCE, np.empty(0, np.int32))
"""The vertex index of a batch that has none."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Batch:
    """graphs, predicates : int64[n_directory]; out, in_ : the two sides; times : int64[n], the newest event time (ms)
    of each triple in the order of out.values, or empty for stored triples; descriptor : int64[DESCRIPTOR_WIDTH];
    source : the file that the arrays lie in, which is to be verified before they are read, or None; key_filter :
    int64[1 + n_words], or empty.
    """

    graphs: Int64Array
    predicates: Int64Array
    out: Side
    in_: Side
    vertex_index: VertexIndex
    times: Int64Array
    descriptor: Int64Array
    source: ColumnFile | None = None
    key_filter: Int64Array = field(default_factory=lambda: _NOTHING)

    def __len__(self) -> int:
        return len(self.out.values)

    def verify(self) -> None:
        """Check that the arrays are as they were written. Raises CorruptionError. Every reader of values calls it."""
        if self.source is not None:
            self.source.verify()

    @property
    def lists_vertices(self) -> bool:
        """Whether it has a vertex index, or no triple that one would list."""
        return len(self.vertex_index.vertices) > 0 or len(self) == 0

    def vertex_count(self) -> float:
        """Count the vertices that its vertex index has, or would have. If it has none, and more than
        VERTICES_COUNTED_MAX keys, the number is an estimate: ids are uniform, so those below a limit are counted."""
        if self.lists_vertices:
            return len(self.vertex_index.vertices)
        sides = self.out.key_starts, self.out.keys, self.in_.key_starts, self.in_.keys
        share = min(1.0, VERTICES_COUNTED_MAX / (len(self.out.keys) + len(self.in_.keys)))
        return float(count_vertices_below(min(int(share * 2**63), 2**63 - 1), *sides)) / share

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return every array by name, those of a side or index as `out.keys`; batch_of makes a batch of them again."""
        found: dict[str, npt.NDArray[Any]] = {}
        for column in fields(self):
            part = getattr(self, column.name)
            if isinstance(part, Side | VertexIndex):
                for inner in fields(part):
                    found[f"{column.name}.{inner.name}"] = np.atleast_1d(getattr(part, inner.name))
            elif column.name not in ("descriptor", "source", "key_filter"):
                found[column.name] = part
        return found

    @property
    def size_bytes(self) -> int:
        """Bytes of all columns and indexes."""
        index = self.vertex_index
        arrays = (*self.out.arrays(), *self.in_.arrays(), index.vertices, index.starts, index.codes, index.fence)
        others = self.graphs, self.predicates, self.times, self.key_filter
        return sum([a.nbytes for a in (*arrays, *others)])

    def triples(self) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """Return (graphs, subjects, predicates, objects) of all triples, in the order of out.values."""
        self.verify()
        rows = np.repeat(np.arange(len(self.graphs)), np.diff(self.out.key_starts))
        per_key = np.diff(self.out.offsets)
        rows = np.repeat(rows, per_key)
        return self.graphs[rows], np.repeat(self.out.keys, per_key), self.predicates[rows], self.out.values

    def has_row(self, predicate: int | None, graph: int | None) -> bool:
        """Tell whether it has a triple of a graph (None: of any) with a predicate (None: any)."""
        rows = np.ones(len(self.graphs), np.bool_) if graph is None else self.graphs == graph
        return bool((rows if predicate is None else rows & (self.predicates == predicate)).any())


def code_dtype(directory_size: int) -> np.dtype[Any]:
    """Return the type of the codes of a batch with a directory of this size."""
    return np.dtype(np.int32 if directory_size >= WIDE_CODES_FROM else np.uint16)


def make_side(key_starts: Int64Array, keys: Int64Array, offsets: Int32Array, values: Int64Array) -> Side:
    """Add the fences to the columns of a side."""
    return Side(key_starts, keys, offsets, values, *build_fences(keys, key_starts))


def is_listed(directory_size: int, triple_count: int) -> bool:
    """Tell whether a batch of this size gets a vertex index."""
    return directory_size > UNLISTED_ROWS_MAX or triple_count > UNLISTED_TRIPLES_MAX


def make_vertex_index(out: Side, in_: Side) -> VertexIndex:
    """List the directory rows of every vertex of both sides."""
    vertices, codes = list_vertices(out.key_starts, out.keys, in_.key_starts, in_.keys)
    one_range = np.array([0, len(vertices)], np.int64)
    sort_ranges(vertices, codes, _NOTHING, one_range)
    _, keys, starts, values, _, _ = compress_pairs(vertices, codes, _NOTHING, one_range)
    _, shifts, fence = build_fences(keys, np.array([0, len(keys)], np.int64))
    return VertexIndex(keys, starts, values.astype(code_dtype(len(out.key_starts) - 1)), int(shifts[0]), fence)


def assemble(
    graphs: Int64Array,
    predicates: Int64Array,
    out: Side,
    in_: Side,
    vertex_index: VertexIndex,
    times: Int64Array,
) -> Batch:
    """Put a batch together from its columns and note their addresses in its descriptor."""
    descriptor = np.zeros(layout.DESCRIPTOR_WIDTH, np.int64)
    descriptor[layout.VERTEX_FENCE_SHIFT] = vertex_index.fence_shift
    lists = vertex_index.vertices, vertex_index.starts, vertex_index.codes, vertex_index.fence
    arrays = graphs, predicates, *out.arrays(), *in_.arrays(), *lists, times
    write_descriptor(descriptor, *arrays)
    return Batch(graphs, predicates, out, in_, vertex_index, times, descriptor)


def room_for_key_filter(batch: Batch) -> Int64Array | None:
    """Return an empty filter for the keys of a batch; None if the batch is to have none, or has one."""
    if len(batch.key_filter) or not 0 < len(batch) <= FILTERED_TRIPLES_MAX:
        return None
    word_count = max(1, (len(batch.out.keys) + len(batch.in_.keys)) // KEYS_PER_WORD)
    words = np.zeros(1 + (1 << (word_count - 1).bit_length()), np.int64)
    words[0] = len(words) - 2
    return words


def put_key_filter(batch: Batch, words: Int64Array) -> Batch:
    """Return a batch with the filter that has all of its keys."""
    descriptor = batch.descriptor.copy()
    descriptor[layout.KEY_FILTER] = words.ctypes.data
    return replace(batch, descriptor=descriptor, key_filter=words)


def with_key_filter(batch: Batch) -> Batch:
    """Return a batch with a filter over its keys, if it is to have one."""
    words = room_for_key_filter(batch)
    if words is None:
        return batch
    for direction, side in enumerate((batch.out, batch.in_)):
        add_keys(words, side.keys, direction, 0, len(side.keys))
    return put_key_filter(batch, words)


def batch_of(columns: Mapping[str, npt.NDArray[Any]], source: ColumnFile | None = None) -> Batch:
    """Make a batch of the arrays that Batch.columns gave, without a copy; they may lie in a file, the source."""
    whole: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {"out": {}, "in_": {}, "vertex_index": {}}
    for name, array in columns.items():
        owner, _, inner = name.partition(".")
        if inner:
            parts[owner][inner] = array
        else:
            whole[name] = array
    index = parts["vertex_index"]
    index["fence_shift"] = int(index["fence_shift"][0])
    out, in_ = Side(**parts["out"]), Side(**parts["in_"])
    return replace(assemble(**whole, out=out, in_=in_, vertex_index=VertexIndex(**index)), source=source)


def distinct_predicates(predicates: Int64Array) -> Int64Array:
    """Return the distinct predicates of tuples, sorted. Cost: a look-up in a small hash table a tuple."""
    _, found, _, _ = assign_directory(predicates, predicates)
    return cast("Int64Array", found)


def build_batch(
    graphs: Int64Array,
    subjects: Int64Array,
    predicates: Int64Array,
    objects: Int64Array,
    times: Int64Array = _NOTHING,
    *,
    lists_vertices: bool = True,
) -> Batch:
    """Sort and index tuples in any order, repeats allowed, into a batch (DESIGN, section 4).

    graphs, subjects, predicates, objects : int64[n] ids; times : int64[n] in ms, or empty. Of repeats the newest time
    stays. lists_vertices: whether it gets a vertex index, if it is to have one; a batch that only goes into another
    need not. Raises ValueError for more than VALUES_MAX tuples.
    """
    if len(subjects) > VALUES_MAX:
        raise ValueError(f"{len(subjects)} tuples for one batch: at most {VALUES_MAX} fit, split them")
    rows, directory_graphs, directory_predicates, counts = assign_directory(graphs, predicates)
    keys, values, payload, starts = group_rows(rows, counts, subjects, objects, times)
    sort_ranges(keys, values, payload, starts)
    key_starts, out_keys, offsets, out_values, newest, value_starts = compress_pairs(keys, values, payload, starts)
    out = make_side(key_starts, out_keys, offsets, out_values)
    keys, values = swap_sides(key_starts, out_keys, offsets, out_values)
    sort_ranges(keys, values, _NOTHING, value_starts)
    key_starts, in_keys, offsets, in_values, _, _ = compress_pairs(keys, values, _NOTHING, value_starts)
    in_ = make_side(key_starts, in_keys, offsets, in_values)
    is_indexed = lists_vertices and is_listed(len(directory_graphs), len(out_values))
    index = make_vertex_index(out, in_) if is_indexed else UNLISTED
    return assemble(directory_graphs, directory_predicates, out, in_, index, newest)


def stack_descriptors(batches: tuple[Batch, ...]) -> Int64Array:
    """Return the descriptors of batches as int64[n, DESCRIPTOR_WIDTH]; the batches must outlive its use."""
    if not batches:
        return np.empty((0, layout.DESCRIPTOR_WIDTH), np.int64)
    return np.concatenate([batch.descriptor for batch in batches]).reshape(-1, layout.DESCRIPTOR_WIDTH)
