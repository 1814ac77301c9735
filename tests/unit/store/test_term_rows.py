"""Finding terms by their ids, and taking some of them with their texts, beside plain Python."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from wukongs.store.encoded import TermRows, TermTable


@pytest.mark.parametrize("count", [0, 1, 2, 7, 500])
def test_each_id_is_found_at_its_first_place(count: int) -> None:
    rng = random.Random(count)
    ids = [rng.choice((-1, 0, 4, 1 << 62, rng.randrange(1 << 63))) for _ in range(count)]
    column = [rng.choice((*ids, rng.randrange(-3, 1 << 63), -1, -(1 << 63))) for _ in range(2 * count + 3)]
    found = TermRows(np.array(ids, np.int64)).of(np.array(column, np.int64))
    assert found.tolist() == [ids.index(one) if one in ids else -1 for one in column]


def test_many_ids_of_one_range_are_found() -> None:
    ids = np.arange(1 << 61, (1 << 61) + 200_000, 2)
    assert (TermRows(ids).of(ids[::-1]) == np.arange(len(ids))[::-1]).all()
    assert (TermRows(ids).of(ids + 1) == -1).all()


@pytest.mark.parametrize("is_read_only", [False, True])
def test_terms_are_taken_with_their_texts(is_read_only: bool) -> None:
    rng = random.Random(3)
    texts = [rng.randbytes(rng.choice((0, 1, 7, 8, 9, 100))) for _ in range(200)]
    table = TermTable.of(np.arange(200), texts)
    if not is_read_only:
        table = TermTable(table.ids, table.offsets, table.text.copy())
    for rows in ([], [199], list(range(200)), [rng.randrange(200) for _ in range(300)]):
        taken = table.take(np.array(rows, np.int64))
        assert taken.ids.tolist() == rows
        assert taken.is_divided
        bounds = taken.offsets.tolist()
        assert [taken.text[a:b].tobytes() for a, b in pairwise(bounds)] == [texts[r] for r in rows]
