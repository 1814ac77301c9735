"""Rows find their slot soon, whatever numbers they are made of: not only ids, which are uniform."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from wukongs.query import rows_kernels as kernels
from wukongs.store.dtypes import UNBOUND, Int64Array

pytestmark = pytest.mark.nojit

ROWS = 1 << 12
_I = np.arange(ROWS, dtype=np.int64)
SHAPES: dict[str, list[Int64Array]] = {
    "one column of places": [_I],
    "pairs of places": [_I // 50, _I % 50],
    "pairs of many and few": [_I // 3, _I % 3],
    "triples of places": [_I // 256, _I // 16 % 16, _I % 16],
    "four columns": [_I % 8, _I // 8 % 8, _I // 64 % 8, _I // 512],
    "bits of doubles": [_I.astype(np.float64).view(np.int64), np.ones(ROWS, np.int64)],
    "bits of halves": [(_I / 2).view(np.int64)],
    "multiples of 2^40": [_I << 40],
    "unbound in places": [np.where(_I % 2 == 0, UNBOUND, _I), _I],
    "below zero": [-_I, _I % 5],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_slots_are_near_where_rows_are_looked_for(shape: str) -> None:
    keys = np.array(SHAPES[shape], np.int64)
    numbers, firsts, slots = kernels.number_rows(keys)
    assert numbers.tolist() == list(range(ROWS)), "all rows are distinct"
    taken = np.flatnonzero(slots >= 0)
    wanted = np.array([kernels.hash_row(keys, firsts[number]) for number in slots[taken]]) & (len(slots) - 1)
    distance = (taken - wanted) & (len(slots) - 1)
    assert distance.mean() < 1.5, "half a slot for random numbers in a table that is half full"
    assert distance.max() < 100


@given(st.lists(st.one_of(st.integers(-1, 40), st.integers(0, 2**62))))
@fuzzed(60)
def test_ids_have_the_numbers_of_their_first_occurrence(ids: list[int]) -> None:
    numbers, distinct, is_bound = kernels.number_ids(np.array(ids, np.int64))
    expected = list(dict.fromkeys(ids))
    assert distinct.tolist() == expected
    assert numbers.tolist() == [expected.index(term) for term in ids]
    assert is_bound == (UNBOUND not in ids)
