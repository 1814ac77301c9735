"""CountedRows is a Counter of tuples, in which a row keeps its slot as long as it is there."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from tests.fuzz import SEED, scaled
from wukongs.query.counted_rows import SLOTS_MIN, CountedRows


@pytest.mark.nojit
@pytest.mark.parametrize("width", [0, 1, 3])
def test_rows_are_those_of_a_counter(width: int) -> None:
    rng = random.Random(((SEED or 0) << 4) + width)
    rows, held = CountedRows(width), Counter[tuple[int, ...]]()
    slots: dict[tuple[int, ...], int] = {}
    for _ in range(scaled(60)):
        most, count = rng.choice([2, 9, 1 << 62]), rng.choice([0, 3, 90])
        came = [tuple(rng.randrange(-1, most) for _ in range(width)) for _ in range(count)]
        was_there = Counter(held)
        held.update(came)
        all_rows = list(held.elements())
        went = rng.sample(all_rows, int(len(all_rows) * rng.choice([0, 0.1, 0.7, 1])))
        held = held - Counter(went)
        if rows.is_roomy(len(came)):
            had = rows.compact().tolist()
            slots = {row: had.index(slot) for row, slot in slots.items()}
            assert rows.room <= max(SLOTS_MIN, len(slots))
        some = np.array([*came, *went], np.int64).reshape(len(came) + len(went), width)
        found = rows.move(some, np.repeat([1, -1], [len(came), len(went)]))
        counted = Counter[tuple[int, ...]](came)
        counted.update(went)
        touched = [tuple(row) for row in rows.keys[found.slots].tolist()]
        assert sorted(touched) == sorted(counted), "each once"
        assert found.before.tolist() == [was_there[row] for row in touched]
        assert found.after.tolist() == [held[row] for row in touched]
        assert [tuple(row) for row in rows.keys[found.of_rows].tolist()] == [*came, *went]
        here = {tuple(rows.keys[slot].tolist()): slot for slot in rows.slots().tolist()}
        assert {row: int(rows.counts[slot]) for row, slot in here.items()} == held
        assert all(here[row] == slot for row, slot in slots.items() if row in here and held[row] and row not in went)
        assert rows.count == len(held)
        slots = here
