"""WindowTable: rows of numbers for kernels, written when a window's batches change."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.quads import batch_of, spread
from wukongs.store import window_table
from wukongs.store.addresses import int64_array, int64_table
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.layout import (
    ACCESS_COUNT,
    ACCESS_FILTER,
    ACCESS_FIRST,
    ACCESS_SHIFT,
    ACCESS_WIDTH,
    DESCRIPTOR_WIDTH,
    HEAD_ACCESSES,
    HEAD_PROBES,
    NO_FILTER,
    PROBE_WIDTH,
    WINDOW_WIDTH,
)
from wukongs.store.lookup_kernels import values_at
from wukongs.store.window_table import WindowTable
from wukongs.store.window_table_kernels import may_hold, probe_key

pytestmark = pytest.mark.nojit


def batches(count: int, rows: int = 1, disjoint: bool = True) -> BatchSet:
    made = [batch_of([(1, spread(9 * at + row), 3, 4) for row in range(rows)]) for at in range(count)]
    return BatchSet.of(tuple(made), disjoint)


def seen(table: WindowTable, number: int) -> tuple[list[list[int]], bool, bool]:
    """Return the descriptors, and whether batches overlap and hide, as a kernel sees them."""
    windows, window_count, descriptors, descriptor_count, *_ = table.head.tolist()
    first, count, overlaps, hides = int64_table(windows, window_count, WINDOW_WIDTH)[number].tolist()
    held = int64_table(descriptors, descriptor_count, DESCRIPTOR_WIDTH)
    return held[first : first + count].tolist(), bool(overlaps), bool(hides)


def test_a_window_is_what_was_set_however_the_table_grows() -> None:
    table, address = WindowTable(), None
    wanted: dict[int, BatchSet] = {}
    for at in range(30):
        number = table.add()
        assert address in (None, table.address)
        address = table.address
        wanted[number] = batches(at % 5, disjoint=at % 2 == 0)
        table.set(number, wanted[number])
        again = number // 2
        wanted[again] = batches(1 + at, disjoint=False)
        table.set(again, wanted[again])
    for number, held in wanted.items():
        assert seen(table, number) == (held.descriptors.tolist(), not held.disjoint, False)
        assert table.batches(number) is held


def test_tombstones_are_told() -> None:
    table = WindowTable()
    number = table.add()
    one, other = batch_of([(1, spread(2), 3, 4)]), batch_of([(1, spread(5), 3, 4)])
    table.set(number, BatchSet.of((one, other), True, [None, one]))
    assert seen(table, number)[1:] == (False, True)


def test_the_version_changes_with_the_class_of_a_size_only() -> None:
    table = WindowTable()
    number = table.add()
    told = []
    for rows in (4, 5, 8, 3, 9, 16, 5, 4, 1):
        table.set(number, batches(1, rows))
        told.append(table.version)
    assert np.diff(told).tolist() == [0, 0, 0, 1, 0, 0, 1, 1]


def test_a_number_is_used_again() -> None:
    table = WindowTable()
    first, second = table.add(), table.add()
    table.set(first, batches(3))
    table.remove(first)
    assert table.batches(first) is EMPTY
    assert table.add() == first
    assert seen(table, first) == ([], False, False)
    assert second != first


def probed(table: WindowTable, access: int, key: int, direction: int) -> list[int]:
    """Return the values of a key, found by the probes of an access."""
    head = table.head.tolist()
    row = int64_table(head[HEAD_ACCESSES], access + 1, ACCESS_WIDTH)[access]
    first, count = int(row[ACCESS_FIRST]), int(row[ACCESS_COUNT])
    passes = row[ACCESS_SHIFT] == NO_FILTER or may_hold(row[ACCESS_FILTER], row[ACCESS_SHIFT], key)
    found: list[int] = []
    for probe in int64_table(head[HEAD_PROBES], first + count, PROBE_WIDTH)[first:]:
        lo, hi = probe_key(probe, key)
        descriptor = int64_table(head[2], int(probe[0]) + 1, DESCRIPTOR_WIDTH)[int(probe[0])]
        found += int64_array(values_at(descriptor, direction), hi)[lo:hi].tolist()
    assert passes or not found, "a filter has kept a key of the window back"
    return sorted(found)


@pytest.mark.parametrize("count", [0, 1, 40, 1000, 16_384, 16_385])
def test_a_filter_lets_few_other_keys_pass(count: int) -> None:
    table = WindowTable()
    number = table.add()
    access = table.access(number, 3, 1, 0)
    table.set(number, BatchSet.of((batch_of([(1, spread(at), 3, 4) for at in range(count)]),) if count else (), True))
    row = int64_table(table.head[HEAD_ACCESSES], access + 1, ACCESS_WIDTH)[access]
    if count > 16_384:
        assert row[ACCESS_SHIFT] == NO_FILTER
        return
    passed = [may_hold(row[ACCESS_FILTER], row[ACCESS_SHIFT], spread(at)) for at in range(count + 1000)]
    assert all(passed[:count])
    assert sum(passed[count:]) <= (450 if count > 4096 else 120)


def test_probes_find_what_the_batches_of_now_hold() -> None:
    table = WindowTable()
    keys = [spread(at) for at in range(60)]
    numbers = [table.add() for _ in range(12)]
    kinds = [(predicate, graph, direction) for predicate in (3, 5) for graph in (0, 1) for direction in (0, 1)]
    accesses = {(n, kind): table.access(n, *kind) for n in numbers for kind in kinds}
    for turn in range(3):
        for number in numbers:
            quads = {
                (at % 2, keys[at * (number + 3) % 50], 3 + 2 * (at % 3), keys[(at + turn) % 60])
                for at in range(1 + 40 * turn * (number % 3))
            }
            parts = [sorted(quads)[part :: 1 + 8 * turn] for part in range(1 + 8 * turn)]
            table.set(number, BatchSet.of(tuple(batch_of(part) for part in parts if part), True))
            for kind in kinds:
                assert table.access(number, *kind) == accesses[number, kind]
                predicate, graph, direction = kind
                for key in keys:
                    ends = [(q[1], q[3])[:: 1 - 2 * direction] for q in quads if (q[0], q[2]) == (graph, predicate)]
                    expected = sorted(value for held, value in ends if held == key)
                    assert probed(table, accesses[number, kind], key, direction) == expected


@pytest.mark.parametrize("sizes", [(0, 5), (3, 1), (40, 900), (5000, 10), (10_000, 9000), (16_384, 1), (17_000, 3)])
def test_one_batch_more_is_found_as_if_all_were_written_anew(sizes: tuple[int, int]) -> None:
    """sizes: the keys of a batch that is there, and of one that comes, some of them the same."""
    table = WindowTable()
    number = table.add()
    kinds = ((3, 1, 0), (3, 1, 1), (5, 1, 0))
    accesses = [table.access(number, *kind) for kind in kinds]
    first = [(1, spread(at), 3, spread(at % 7)) for at in range(sizes[0])]
    last = [(1, spread(at), 3 + 2 * (at % 2), 4) for at in range(sizes[0] // 2, sizes[0] // 2 + sizes[1])]
    before = BatchSet.of((batch_of(first),) if first else (), False)
    after = before.and_then(batch_of(last), False)
    table.foresee(number, before)
    version = table.version
    table.set(number, after)
    assert table.version == version + 1
    assert seen(table, number) == (after.descriptors.tolist(), not after.disjoint, False)
    other = WindowTable()
    again = other.add()
    others = [other.access(again, *kind) for kind in kinds]
    other.set(again, BatchSet.of(after.batches, after.disjoint))
    for (_, _, direction), access, expected in zip(kinds, accesses, others, strict=True):
        for key in {quad[1 + 2 * direction] for quad in (*first[::50], *last[::50], *last[:3])} | {spread(10**6)}:
            assert probed(table, access, key, direction) == probed(other, expected, key, direction)


def test_a_window_that_goes_on_from_another_one_is_written_as_a_whole() -> None:
    table = WindowTable()
    number = table.add()
    other, more = batches(2), batch_of([(1, spread(80), 3, 4)])
    table.set(number, batches(3))
    table.set(number, other.and_then(more, False))
    assert seen(table, number)[0] == BatchSet.of((*other.batches, more), False).descriptors.tolist()


def test_the_accesses_of_a_window_that_is_gone_are_used_again() -> None:
    table = WindowTable()
    number = table.add()
    access = table.access(number, 3, 1, 0)
    table.remove(number)
    assert table.access(table.add(), 5, 0, 1) == access


@pytest.mark.parametrize("seed", range(6))
def test_what_finds_no_memory_is_made_by_the_next_call(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Tables grow in the middle of a call, and cannot at times. Nothing of such a call is taken for done."""
    rng, grown = random.Random(seed), window_table._grown
    fails = False

    def may_grow(*given: Any) -> Any:
        if fails and rng.random() < 0.6:
            raise MemoryError
        return grown(*given)

    monkeypatch.setattr(window_table, "_grown", may_grow)
    table, numbers = WindowTable(), list[int]()
    wanted: dict[int, BatchSet] = {}
    for _ in range(120):
        fails = rng.random() < 0.5
        try:
            if not numbers or rng.random() < 0.3:
                numbers.append(table.add())
                wanted[numbers[-1]] = EMPTY
            number = rng.choice(numbers)
            if rng.random() < 0.5:
                held = batches(rng.randrange(24))
                table.set(number, held)
                wanted[number] = held
            table.access(number, 3, rng.choice([0, 1]), rng.choice([0, 1]))
        except MemoryError:
            pass
    fails = False
    for number in numbers:
        assert table.batches(number) is wanted[number]
        assert seen(table, number)[0] == wanted[number].descriptors.tolist()
        for direction in (0, 1):
            access = table.access(number, 3, 1, direction)
            for at in range(24):
                ends = (spread(9 * at), 4)[:: 1 - 2 * direction]
                values = [4 if direction == 0 else spread(9 * one) for one in range(len(wanted[number].batches))]
                expected = [values[at]] if direction == 0 and at < len(values) else sorted(values) if direction else []
                assert probed(table, access, ends[0], direction) == expected
