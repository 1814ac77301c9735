"""The kernel that finds the newest time of tuples in batches, against a dictionary."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.quads import spread
from wukongs.store.batch import build_batch, stack_descriptors
from wukongs.store.lookup_kernels import raise_to_newest

Tuple = tuple[int, int, int, int]
BEFORE = -(10**9)


@pytest.mark.nojit
@given(st.integers(0, 2**32), st.integers(0, 3), st.sampled_from([0, 1, 5, 300]))
@fuzzed(30)
def test_the_newest_time_of_each_tuple(seed: int, batch_count: int, size: int) -> None:
    rng = random.Random(seed)
    newest: dict[Tuple, int] = {}
    batches = []
    for _ in range(batch_count):
        rows = [
            (rng.choice((0, 7)), spread(rng.randrange(60)), spread(rng.randrange(3)), spread(rng.randrange(4)))
            for _ in range(size)
        ]
        times = [rng.randrange(-50, 50) for _ in rows]
        for row, time in zip(rows, times, strict=True):
            newest[row] = max(time, newest.get(row, time))
        columns = np.array(rows, np.int64).reshape(-1, 4)
        batches.append(build_batch(*(np.ascontiguousarray(column) for column in columns.T), np.array(times, np.int64)))
    # Also rows whose variables are unbound, and constants that no data has.
    terms = [-1, -2, *map(spread, range(6))]
    asked = [(rng.choice(terms), rng.choice(terms[:5]), rng.choice(terms)) for _ in range(200)]
    asked += [row[1:] for row in newest]
    columns = np.array(asked, np.int64).reshape(-1, 3)
    found = np.full(len(asked), BEFORE, np.int64)
    raise_to_newest(stack_descriptors(tuple(batches)), 7, *(np.ascontiguousarray(part) for part in columns.T), found)
    assert found.tolist() == [newest.get((7, *row), BEFORE) for row in asked]
    before = np.full(len(asked), 10, np.int64)
    raise_to_newest(stack_descriptors(tuple(batches)), 7, *(np.ascontiguousarray(part) for part in columns.T), before)
    assert before.tolist() == [max(10, newest.get((7, *row), 10)) for row in asked]
