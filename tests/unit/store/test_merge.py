"""Merge: two batches to one in steps, one behaviour each."""

from __future__ import annotations

import numpy as np
import pytest

from tests.quads import batch_of, quads_of, spread, unlisted_up_to
from wukongs.store.fuel import UNLIMITED_FUEL
from wukongs.store.merge import Merge, merge_batches

G, P = spread(1), spread(2)


def test_no_fuel_moves_nothing() -> None:
    merge = Merge(batch_of([(G, spread(3), P, spread(4))]), batch_of([(G, spread(5), P, spread(6))]))
    assert merge.work(0) == 0
    assert merge.result is None


@pytest.mark.parametrize("fuel", [1000, UNLIMITED_FUEL])
def test_fuel_that_is_not_needed_comes_back(fuel: int) -> None:
    with unlisted_up_to(-1, -1):
        merge = Merge(batch_of([(G, spread(3), P, spread(4))]), batch_of([(G, spread(5), P, spread(6))]))
        left = merge.work(fuel)
    assert merge.result is not None
    # A directory row, two values a side, a code for each of four vertices, and three fences, if empty ones.
    assert left == fuel - 1 - 2 - 2 - 4 - 3
    assert merge.work(7) == 7


def test_a_triple_in_both_is_there_once_with_the_newer_time() -> None:
    quad = (0, spread(3), P, spread(4))
    for older, newer in ((10, 20), (20, 10)):
        result = merge_batches(batch_of([quad], [older]), batch_of([quad, (0, spread(3), P, spread(9))], [newer, 5]))
        assert len(result) == 2
        assert dict(zip(result.out.values.tolist(), result.times.tolist(), strict=True)) == {
            spread(4): 20,
            spread(9): 5,
        }


def test_one_graph_in_each() -> None:
    quads = [(spread(7), spread(3), P, spread(4)), (spread(8), spread(3), P, spread(4))]
    assert quads_of(merge_batches(batch_of(quads[:1]), batch_of(quads[1:]))) == sorted(quads)


def test_the_merged_batch_keeps_no_memory_of_its_inputs() -> None:
    """Rows that are equal in both are written once; the room for twice as many is given back."""
    quads = [(0, spread(i), P, spread(i + 1)) for i in range(2000)]
    result = merge_batches(batch_of(quads), batch_of(quads))
    for array in (result.out.keys, result.out.values, result.in_.keys, result.vertex_index.vertices):
        owner = array if array.base is None else array.base
        assert owner.nbytes <= array.nbytes * 17 // 16


def test_inputs_may_go_once_the_result_is_there() -> None:
    a, b = batch_of([(0, spread(1), P, spread(2))]), batch_of([(0, spread(3), P, spread(4))])
    result = merge_batches(a, b)
    for batch in (a, b):
        for array in (batch.out.keys, batch.out.values, batch.in_.keys):
            array[:] = -7
    assert quads_of(result) == sorted([(0, spread(1), P, spread(2)), (0, spread(3), P, spread(4))])
    assert np.all(result.in_.values >= 0)
