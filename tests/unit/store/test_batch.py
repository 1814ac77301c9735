"""Batch: what it holds and what it refuses, one behaviour each (contents: tests/property/test_batch.py)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.quads import batch_of, columns, quads_of, spread, unlisted_up_to
from wukongs.store import batch as batch_module
from wukongs.store import layout
from wukongs.store.batch import build_batch, stack_descriptors
from wukongs.store.batch_kernels import plan_fences
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.lookup_kernels import code_at, code_range, directory_row, find_key

P = spread(100)


def test_an_empty_batch_answers_everything_with_nothing() -> None:
    batch = batch_of([])
    assert len(batch) == 0
    assert quads_of(batch) == []
    assert directory_row(batch.descriptor, P, 0) == -1
    assert code_range(batch.descriptor, spread(1)) == (0, 0)


def test_too_many_tuples_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "VALUES_MAX", 3)
    with pytest.raises(ValueError, match="4 tuples for one batch: at most 3 fit, split them"):
        batch_of([(0, spread(i), P, spread(i)) for i in range(4)])


@pytest.mark.parametrize(("rows", "width"), [(2**15 - 1, 2), (2**15, 4), (2**15 + 3, 4)])
def test_codes_are_wide_where_the_directory_is(rows: int, width: int) -> None:
    """The last directory row of each width is found from both ends of its triple."""
    batch = batch_of([(0, 8, 2 * i + 20, 4) for i in range(rows)])
    assert batch.vertex_index.codes.itemsize == batch.descriptor[layout.CODE_BYTES] == width
    for vertex, direction in ((8, 0), (4, 1)):
        lo, hi = code_range(batch.descriptor, vertex)
        codes = [code_at(batch.descriptor, i) for i in range(lo, hi)]
        assert codes == [2 * row + direction for row in range(rows)]
    assert find_key(batch.descriptor, 0, rows - 1, 8) == rows - 1


def test_an_inlined_literal_has_no_codes_as_an_object() -> None:
    with unlisted_up_to(-1, -1):
        batch = batch_of([(0, spread(1), P, spread(2, 1)), (0, spread(1), P, spread(3))])
    assert batch.vertex_index.vertices.tolist() == sorted([spread(1), spread(3)])


def test_vertices_of_an_unlisted_batch_are_counted_by_a_sample_of_its_keys() -> None:
    with unlisted_up_to(16, 1 << 20):
        batch = batch_of([(0, spread(i), P, spread(i + 3000)) for i in range(20_000)])
    assert not batch.lists_vertices
    assert batch.vertex_count() == pytest.approx(23_000, rel=0.1)


def test_only_a_large_batch_or_a_large_directory_lists_its_vertices() -> None:
    of_rows = [batch_of([(0, spread(1), spread(100 + i), spread(2)) for i in range(rows)]) for rows in (16, 17)]
    assert [batch.lists_vertices for batch in of_rows] == [False, True]
    assert [batch.vertex_count() for batch in of_rows] == [2, 2]
    with unlisted_up_to(16, 40):
        of_triples = [batch_of([(0, spread(i), P, spread(2)) for i in range(count)]) for count in (40, 41)]
    assert [batch.lists_vertices for batch in of_triples] == [False, True]
    assert all(len(batch.vertex_index.codes) == 0 for batch in (of_rows[0], of_triples[0]))


def test_size_counts_every_array() -> None:
    small, timed = batch_of([(0, spread(1), P, spread(2))]), batch_of([(0, spread(1), P, spread(2))], [5])
    assert timed.size_bytes == small.size_bytes + 8


def test_input_columns_stay_as_they_are() -> None:
    given = columns([(0, spread(5 - i), P, spread(i)) for i in range(5)])
    before = [column.copy() for column in given]
    build_batch(*given)
    for column, copy in zip(given, before, strict=True):
        np.testing.assert_array_equal(column, copy)


def test_a_batch_costs_what_its_module_says() -> None:
    """8 bytes a triple and side, 12 a key, 2 a code, a fence entry of 4 for every one to four keys."""
    rng = np.random.default_rng(3)
    n = 60_000
    subjects, objects = (2 * rng.integers(0, 2**61, m)[rng.integers(0, m, n)] for m in (n // 8, n // 4))
    predicates = np.array([spread(i) for i in range(20)])[rng.integers(0, 20, n)]
    batch = build_batch(np.zeros(n, np.int64), subjects, predicates, objects)
    keys = len(batch.out.keys) + len(batch.in_.keys)
    index = batch.vertex_index
    expected = 16 * len(batch) + 12 * (keys + len(index.vertices)) + 2 * len(index.codes)
    assert expected < batch.size_bytes <= expected + 4 * (keys + len(index.vertices)) + 2000


def test_large_ranges_have_a_sparser_fence() -> None:
    sizes = [
        layout.FENCE_KEYS_MIN - 1,
        layout.FENCE_KEYS_MIN,
        layout.FENCE_DENSE_MAX,
        layout.FENCE_DENSE_MAX + 1,
        10**6,
    ]
    starts, shifts = plan_fences(np.cumsum([0, *sizes]))
    keys_per_bucket = [size / (entries - 1) for size, entries in zip(sizes[1:], np.diff(starts)[1:], strict=True)]
    assert shifts[0] == layout.NO_FENCE
    assert starts[1] == 0
    assert all(1 <= n < 2 for n in keys_per_bucket[:2])
    assert all(2 <= n < 4 for n in keys_per_bucket[2:])


def test_a_batch_set_counts_repeats_and_knows_when_it_is_disjoint() -> None:
    one, other = batch_of([(0, spread(1), P, spread(2))]), batch_of([(0, spread(1), P, spread(2))])
    assert len(BatchSet.of((one, other), disjoint=False)) == 2
    assert not BatchSet.of((one, other), disjoint=False).disjoint
    assert BatchSet.of((one,), disjoint=False).disjoint
    assert EMPTY.descriptors.shape == (0, layout.DESCRIPTOR_WIDTH)
    assert stack_descriptors((one, other)).shape == (2, layout.DESCRIPTOR_WIDTH)
