"""Rows of long tables, worked on in pieces, against plain Python; short ones in one call."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from wukongs.query import rows
from wukongs.query.limits import Limits, current
from wukongs.store.dtypes import Int64Array

ID = st.one_of(st.integers(-2, 4), st.sampled_from([1 << 11, (1 << 62) + 1, (1 << 63) - 3]))
COLUMNS = st.integers(0, 3).flatmap(
    lambda width: st.lists(st.tuples(*[ID] * width), max_size=20).map(lambda found: (width, found))
)
PIECES = st.sampled_from([1, 3, 7, 1000])
MANY = fuzzed(200)


def columns_of(width: int, found: Sequence[tuple[int, ...]]) -> list[Int64Array]:
    return [np.array([row[place] for row in found], np.int64) for place in range(width)]


@given(COLUMNS, COLUMNS, PIECES)
@MANY
def test_numbers_groups_and_pairs(one: tuple[int, list], other: tuple[int, list], piece: int) -> None:  # type: ignore[type-arg]
    width = min(one[0], other[0])
    hashed, lookup = ([row[:width] for row in found] for _, found in (one, other))
    with pytest.MonkeyPatch.context() as patched, Limits() as limits:
        patched.setattr(rows, "PIECE_ROWS", piece)
        keys = rows.key_matrix(columns_of(width, hashed), len(hashed))
        numbers, firsts, slots = rows.number_rows(keys)
        distinct = list(dict.fromkeys(hashed))
        assert [distinct[number] for number in numbers.tolist()] == hashed
        assert firsts.tolist() == [hashed.index(row) for row in distinct]
        found = rows.find_rows(keys, firsts, slots, rows.key_matrix(columns_of(width, lookup), len(lookup)))
        assert found.tolist() == [distinct.index(row) if row in distinct else -1 for row in lookup]
        offsets, members = rows.group_members(numbers, len(firsts))
        groups = [members[start:stop].tolist() for start, stop in itertools.pairwise(offsets)]
        assert groups == [[at for at, row in enumerate(hashed) if row == wanted] for wanted in distinct]
        count = rows.count_pairs(offsets, found)
        pairs = rows.fill_pairs(offsets, members, found, count)
        assert list(zip(*(side.tolist() for side in pairs), strict=True)) == [
            (at, place) for at, row in enumerate(lookup) for place, key in enumerate(hashed) if key == row
        ]
        assert limits.peak >= 8 * (len(hashed) + 2 * count)


@given(COLUMNS.filter(lambda found: found[0] > 0), PIECES)
@MANY
def test_order_and_distinct_rows(one: tuple[int, list], piece: int) -> None:  # type: ignore[type-arg]
    width, found = one
    columns = columns_of(width, found)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rows, "PIECE_ROWS", piece)
        order = rows.stable_order(columns).tolist()
        assert order == sorted(range(len(found)), key=found.__getitem__)
        assert list(map(tuple, rows.distinct_rows(*columns).tolist())) == sorted(set(found))
        whole = rows.put_together([*columns, rows.taken(columns[0], np.array(order, np.int64)), rows.filled(4, 7)])
        again = np.concatenate([*columns, columns[0][order], [7] * 4])
        assert whole.tolist() == again.tolist()


def test_what_is_numbered_is_given_back_but_for_the_numbers() -> None:
    column = np.arange(1000, dtype=np.int64) % 10
    with Limits() as limits:
        assert current() is limits
        rows.numbered([column, column], 1000)
        assert limits.held == 8 * 1000 + 8 * 10
        assert limits.peak >= 16 * 1000 + limits.held
    assert current() is not limits
