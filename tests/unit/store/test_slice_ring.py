"""SliceRing: slices, blocks and windows, one behaviour each."""

from __future__ import annotations

import pytest

from store.slice_ring import WINDOWS_REMEMBERED, SliceRing
from tests.property.test_slice_ring import add, held
from tests.quads import spread

P = spread(100)


def ring_of(*numbers: int, indexed: int = 4) -> SliceRing:
    """A ring with one tuple, of its own subject, in each of these stream batches; all closed."""
    ring = SliceRing()
    ring.index_windows(indexed)
    for number in numbers:
        add(ring, number, [((spread(number), P, spread(0)), number * 100)], [number])
    ring.close(numbers[-1])
    return ring


def numbers_in(ring: SliceRing, after: int, to: int) -> list[int]:
    return sorted(time // 100 for time in held(ring.window(after, to)).values())


def test_aligned_windows_are_single_blocks() -> None:
    ring = ring_of(*range(8), indexed=8)
    assert [len(ring.window(after, to).batches) for after, to in ((-1, 7), (3, 7), (1, 3), (0, 7))] == [1, 1, 1, 3]


def test_numbers_below_zero_align_too() -> None:
    ring = ring_of(*range(-8, 4))
    assert len(ring.window(-9, -5).batches) == 1
    assert numbers_in(ring, -3, 1) == [-2, -1, 0, 1]


def test_windows_indexed_later_see_the_slices_kept() -> None:
    ring = ring_of(*range(16), indexed=1)
    assert len(ring.window(-1, 15).batches) == 16
    ring.index_windows(16)
    assert len(ring.window(3, 7).batches) == 1
    assert len(ring.window(-1, 15).batches) == 1, "also where the window was read before"
    assert numbers_in(ring, 3, 7) == [4, 5, 6, 7]


def test_a_window_over_what_is_not_closed_is_not_remembered() -> None:
    ring = ring_of(0, 1)
    assert numbers_in(ring, -1, 3) == [0, 1]
    add(ring, 2, [((spread(2), P, spread(0)), 200)])
    assert numbers_in(ring, -1, 3) == [0, 1, 2]
    assert numbers_in(ring, -1, 2) == [0, 1, 2]


def test_a_slice_beside_a_dropped_one_of_its_block_is_still_read() -> None:
    ring = ring_of(0, 1, 2, 3)
    ring.drop(0)
    assert numbers_in(ring, -1, 3) == [1, 2, 3]
    assert numbers_in(ring, -5, 1) == [1]
    assert ring.dropped_to == 0


def test_what_was_lost_is_told_from_what_was_never_there() -> None:
    ring = ring_of(10, 12)
    ring.drop(5)
    assert (ring.dropped_to, ring.lost_to) == (5, None)
    ring.drop(11)
    assert (ring.dropped_to, ring.lost_to) == (11, 10)


def test_transient_ids_come_back_once() -> None:
    ring = ring_of(1, 2, 3)
    assert ring.drop(2).tolist() == [1, 2]
    assert ring.drop(2).tolist() == []
    assert ring.drop(1).tolist() == []
    assert ring.drop(9).tolist() == [3]


def test_a_closed_stream_batch_takes_nothing_more() -> None:
    ring = ring_of(1, 2)
    with pytest.raises(AssertionError):
        add(ring, 2, [((spread(1), P, spread(0)), 200)])


def test_blocks_of_one_child_take_no_room() -> None:
    alone, beside = ring_of(0, 4), ring_of(0, 1, indexed=1)
    assert alone.size_bytes == beside.size_bytes
    assert ring_of(0, 1).size_bytes > beside.size_bytes


def test_few_windows_are_remembered() -> None:
    ring = ring_of(*range(8))
    for after in range(-500, 0):
        ring.window(after, 7)
    assert len(ring._windows) <= WINDOWS_REMEMBERED
    ring.drop(3)
    assert all(key[0] >= 3 for key in ring._windows)


def test_an_endless_stream_leaves_nothing_behind() -> None:
    ring = SliceRing()
    ring.index_windows(8)
    for number in range(400):
        add(ring, number, [((spread(number), P, spread(0)), 0)], [number])
        ring.close(number)
        ring.drop(number - 8)
    assert ring.slice_count == 8
    assert len(ring._blocks) <= 16
    assert sum(map(len, ring._unpaired)) <= 16
    assert len(ring._transient_ids) == 8


def test_a_window_over_very_many_open_stream_batches_is_read_at_once() -> None:
    ring = ring_of(0, 1)
    add(ring, 10**12, [((spread(2), P, spread(0)), 10**14)])
    assert numbers_in(ring, 0, 2 * 10**12) == [1, 10**12]
    fresh = SliceRing()
    add(fresh, 10**12, [((spread(2), P, spread(0)), 10**14)])
    assert numbers_in(fresh, 0, 2 * 10**12) == [10**12]
