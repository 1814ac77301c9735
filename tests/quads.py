"""Small encoded graphs for tests: ids that spread over the id range as hashes do; quads as columns and tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from wukongs.store import batch as batch_module
from wukongs.store.batch import Batch, build_batch, with_key_filter
from wukongs.store.dtypes import Int64Array

Quad = tuple[int, int, int, int]
"""graph, subject, predicate, object"""
UNLISTED_SIZES = ((-1, -1), (16, 2**16), (16, 60))
"""Directory rows and triples up to which a batch lists no vertices: none, as shipped, small ones beside others."""
_GOLDEN = 0x9E3779B97F4A7C15


def spread(number: int, mark: int = 0) -> int:
    """The id of term `number`: uniform in [0, 2**63), with `mark` as its low bit (1: an inlined literal)."""
    return ((number + 1) * _GOLDEN & (1 << 62) - 1) << 1 | mark


def columns(quads: Iterable[Quad]) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Graphs, subjects, predicates, objects."""
    array = np.array(list(quads), np.int64).reshape(-1, 4)
    return tuple(np.ascontiguousarray(array[:, part]) for part in range(4))  # type: ignore[return-value]


def batch_of(quads: Iterable[Quad], times: Iterable[int] = ()) -> Batch:
    return build_batch(*columns(quads), np.array(list(times), np.int64))


def filtered_of(quads: Iterable[Quad]) -> Batch:
    """Make a batch as a trace holds it, with a key filter."""
    return with_key_filter(batch_of(quads))


@contextmanager
def unlisted_up_to(rows: int, triples: int) -> Iterator[None]:
    """Let batches up to this size list no vertices, and others list them."""
    with (
        patch.object(batch_module, "UNLISTED_ROWS_MAX", rows),
        patch.object(batch_module, "UNLISTED_TRIPLES_MAX", triples),
    ):
        yield


def quads_of(*batches: Batch) -> list[Quad]:
    """All quads of some batches, sorted, repeats kept."""
    return sorted(q for batch in batches for q in zip(*(part.tolist() for part in batch.triples()), strict=True))


def arrays_of(batch: Batch) -> dict[str, Any]:
    """Every array of a batch by name: two batches with the same triples have the same."""
    index = batch.vertex_index
    named = {
        "graphs": batch.graphs,
        "predicates": batch.predicates,
        "times": batch.times,
        "vertices": index.vertices,
        "code_starts": index.starts,
        "codes": index.codes,
        "vertex_fence": index.fence,
        "vertex_fence_shift": np.array([index.fence_shift]),
    }
    for name, side in (("out", batch.out), ("in", batch.in_)):
        for place, array in enumerate(side.arrays()):
            named[f"{name}{place}"] = array
    return named


def assert_same_batch(one: Batch, other: Batch) -> None:
    expected = arrays_of(other)
    for name, array in arrays_of(one).items():
        assert array.dtype == expected[name].dtype, name
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def plain(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The Python function behind a kernel (itself where nothing is compiled)."""
    found: Callable[..., Any] = getattr(kernel, "py_func", kernel)
    return found
