"""SliceRing: slices, blocks and windows, one behaviour each."""

from __future__ import annotations

import numpy as np
import pytest

from tests.property.test_slice_ring import add, columns_of, held
from tests.quads import spread
from wukongs.store import block_index
from wukongs.store.batch import Batch, build_batch
from wukongs.store.block_index import SLICE_BYTES_MAX, SLICE_BYTES_PER_TUPLE_MAX, WORK_PER_ROW, level_count
from wukongs.store.dtypes import Int64Array
from wukongs.store.merge import Merge
from wukongs.store.slice_ring import WINDOWS_REMEMBERED, SliceRing

P = spread(100)


def ring_of(*numbers: int, indexed: int = 8, is_built: bool = True) -> SliceRing:
    """A ring with one tuple, of its own subject, in each of these stream batches; all blocks built, if so wished."""
    ring = SliceRing()
    ring.index_windows(indexed)
    for number in numbers:
        add(ring, number, [((spread(number), P, spread(0)), number * 100)], [number])
    while is_built and ring.work(1000):
        pass
    return ring


def numbers_in(ring: SliceRing, after: int, to: int) -> list[int]:
    return sorted(time // 100 for time in held(ring.window(after, to)).values())


def test_aligned_windows_are_single_blocks() -> None:
    ring = ring_of(*range(8), indexed=16)
    assert [len(ring.window(after, to).batches) for after, to in ((-1, 7), (3, 7), (1, 3), (0, 7))] == [1, 1, 2, 4]


def test_numbers_below_zero_align_too() -> None:
    ring = ring_of(*range(-8, 4))
    assert len(ring.window(-9, -5).batches) == 1
    assert numbers_in(ring, -3, 1) == [-2, -1, 0, 1]


def test_windows_indexed_later_see_the_slices_kept() -> None:
    ring = ring_of(*range(16), indexed=1)
    assert len(ring.window(-1, 15).batches) == 16
    ring.index_windows(16)
    assert numbers_in(ring, 3, 7) == [4, 5, 6, 7]
    while ring.work(1):
        pass
    assert len(ring.window(3, 7).batches) == 4, "it was remembered"
    assert len(ring.window(-1, 7).batches) == 1
    assert len(ring.window(-1, 15).batches) == 2, "what was read before there were blocks is not"
    assert numbers_in(ring, 3, 7) == [4, 5, 6, 7]


def test_blocks_over_slices_kept_and_later_ones_are_built_in_time() -> None:
    """A block that is due before a child of it, of slices kept before they were indexed, waits for the child."""
    ring = ring_of(*range(6), indexed=1)
    ring.index_windows(32)
    for number in range(6, 48):
        add(ring, number, [((spread(number), P, spread(0)), number * 100)], [number])
    assert [len(ring.window(after, to).batches) for after, to in ((3, 7), (-1, 15), (-1, 31))] == [1, 1, 2]


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
    assert alone.copy_count == 2
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
        ring.drop(number - 8)
    assert ring.slice_count == 8
    blocks = ring._blocks
    assert len(blocks._blocks) <= 16
    assert sum(map(len, blocks._unpaired)) <= 16
    assert sum(map(len, blocks._in_order)) <= 16
    assert len(blocks._by_deadline) <= 4
    assert len(ring._transient) == 8


def test_a_window_over_very_many_open_stream_batches_is_read_at_once() -> None:
    ring = ring_of(0, 1)
    add(ring, 10**12, [((spread(2), P, spread(0)), 10**14)])
    assert numbers_in(ring, 10**12 - 8, 2 * 10**12) == [10**12]


def built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by the count of tuples of each slice that is built."""
    counts: list[int] = []

    def counted(graphs: Int64Array, *columns: Int64Array) -> Batch:
        counts.append(len(graphs))
        return build_batch(graphs, *columns)

    monkeypatch.setattr(block_index, "build_batch", counted)
    return counts


def test_a_slice_that_nobody_reads_is_never_built(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, ring = built(monkeypatch), ring_of(*range(8), indexed=1, is_built=False)
    ring.drop(7)
    assert not counts
    assert ring.size_bytes == 0


def test_a_slice_is_built_once_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, ring = built(monkeypatch), ring_of(1, 2, 3, indexed=1, is_built=False)
    assert ring.size_bytes == 3 * (SLICE_BYTES_MAX + SLICE_BYTES_PER_TUPLE_MAX) + 30
    assert numbers_in(ring, 1, 2) == [2]
    assert numbers_in(ring, 1, 2) == [2]
    assert counts == [1]
    assert numbers_in(ring, 0, 3) == [1, 2, 3]
    assert counts == [1, 1, 1]


def test_idle_time_builds_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, ring = built(monkeypatch), ring_of(1, 2, indexed=1, is_built=False)
    assert ring.work(1)
    assert counts == [1]
    assert not ring.work(1)
    assert counts == [1, 1]
    assert ring.size_bytes == sum(batch.size_bytes for batch in ring.window(0, 2).batches) + 20


def test_a_merge_that_closings_pay_for_builds_its_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, ring = built(monkeypatch), ring_of(*range(16), is_built=False)
    assert 8 <= len(counts) < 16
    assert numbers_in(ring, -1, 15) == list(range(16))
    assert len(counts) <= 16


@pytest.mark.parametrize("predicates", [1, 40, 40_000])
@pytest.mark.parametrize("count", [1, 31, 33, 1000, 40_000])
def test_a_slice_that_waits_counts_with_the_most_that_it_may_take(count: int, predicates: int) -> None:
    rng = np.random.default_rng(count)
    subjects, objects = rng.integers(0, 1 << 62, (2, count)) * 2
    ring = SliceRing()
    ring.add(1, subjects, np.arange(count) % predicates * 2, objects, subjects, np.empty(0, np.int64))
    before = ring.size_bytes
    ring.build_slices()
    assert ring.size_bytes == ring.window(0, 1).batches[0].size_bytes <= before


def test_a_slice_keeps_no_larger_array_alive() -> None:
    ring, column = SliceRing(), np.arange(1000)
    ring.add(1, column[:2], column[:2], column[:2], column[:2], np.empty(0, np.int64))
    column[:] = 7
    assert held(ring.window(0, 1)) == {(0, 0, 0): 0, (1, 1, 1): 1}


class Fuel:
    """Counts the values that Merge.work is asked to write at most, by call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used = 0
        work = Merge.work

        def counted(merge: Merge, fuel: int) -> int:
            left = work(merge, fuel)
            self.used += fuel - left
            return left

        monkeypatch.setattr(Merge, "work", counted)

    def take(self) -> int:
        used, self.used = self.used, 0
        return used


def test_no_closing_pays_for_a_large_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """512 stream batches of 20 tuples: the block of 256 takes about 20,000 values, no closing pays 2,000."""
    fuel = Fuel(monkeypatch)
    ring = SliceRing()
    ring.index_windows(512)
    paid = []
    for number in range(1024):
        add(ring, number, [((spread(number), P, spread(value)), number) for value in range(20)])
        paid.append(fuel.take())
        ring.drop(number - 512)
    levels = level_count(512)
    assert levels == 8
    assert max(paid) <= 2 * WORK_PER_ROW * 20 * levels
    assert sum(paid[512:]) >= 2 * 20 * 512 * (levels - 1), "and yet all blocks are built"


def test_idle_time_pays_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    fuel = Fuel(monkeypatch)
    ring = SliceRing()
    ring.index_windows(64)
    for number in range(64):
        add(ring, number, [((spread(number), P, spread(0)), 0)])
        assert fuel.take() == 0
        while ring.work(3):
            pass
        assert fuel.take() > 0 or number % 2 == 0


def test_narrower_windows_give_blocks_back() -> None:
    ring = ring_of(*range(64), indexed=64)
    narrow = ring_of(*range(64), indexed=8)
    before = ring.size_bytes
    ring.index_windows(8)
    assert ring.size_bytes == narrow.size_bytes < before
    ring.index_windows(1)
    assert ring.size_bytes == ring_of(*range(64), indexed=1).size_bytes
    assert numbers_in(ring, 3, 50) == list(range(4, 51))


def test_a_jump_of_event_time_does_not_merge_what_no_window_will_read(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = ring_of(*range(64), indexed=64, is_built=False)
    fuel = Fuel(monkeypatch)
    ring.close(100_000)
    assert fuel.take() == 0
    assert numbers_in(ring, -1, 63) == list(range(64)), "but it is all there"
    while ring.work(5):
        pass
    assert numbers_in(ring, -1, 63) == list(range(64))


def test_bytes_are_those_of_slices_blocks_and_transient_texts() -> None:
    ring = SliceRing()
    add(ring, 1, [((spread(1), P, spread(0)), 0)], [3, 4])
    add(ring, 2, [((spread(2), P, spread(0)), 0)])
    slices = sum(batch.size_bytes for batch in ring.window(0, 2).batches)
    assert ring.size_bytes == slices + 20
    ring.drop(1)
    assert ring.size_bytes == ring.window(0, 2).batches[0].size_bytes
    assert ring.oldest == 2


def test_a_tuple_is_held_on_every_second_level() -> None:
    """The blocks of 4 and 16 of 64 slices are kept; those of 2 and 8 only where nothing larger has them whole."""
    ring = ring_of(*range(64), indexed=32)
    sizes = sorted(len(batch) for batch in ring._blocks._blocks.values())
    assert sizes == [1] * 64 + [4] * 16 + [16] * 4
    assert ring.copy_count == 3
    assert len(ring.window(-1, 63).batches) == 4
    assert len(ring.window(1, 63).batches) == 2 + 3 + 3, "2, 3; 4, 8, 12; 16, 32, 48"
    assert numbers_in(ring, 1, 61) == list(range(2, 62))


def test_what_was_folded_is_merged_again_when_it_is_the_highest_level() -> None:
    ring = ring_of(*range(64), indexed=32)
    ring.index_windows(16)  # levels 0 to 3, of which 3 was folded
    assert len(ring.window(47, 63).batches) == 4
    while ring.work(50):
        pass
    ring._windows.clear()
    assert len(ring.window(47, 63).batches) == 2
    ring.index_windows(32)
    while ring.work(50):
        pass
    wide = ring_of(*range(64), indexed=32)
    assert numbers_in(ring, 3, 50) == list(range(4, 51))
    for other in (ring, wide):
        other.drop(31)
    assert ring.size_bytes == wide.size_bytes
    assert len(ring.window(31, 63).batches) == 2


def test_a_slice_that_comes_after_it_was_dropped_is_lost_and_takes_no_room() -> None:
    ring = SliceRing()
    ring.drop(5)
    empty = np.empty(0, np.int64)
    ring.add(4, empty, empty, empty, empty, empty)
    assert ring.lost_to is None
    one = np.array([1])
    ring.add(5, one, one, one, one, empty)
    assert (ring.lost_to, ring.slice_count) == (5, 0)
    ring.add(6, one, one, one, one, empty)
    assert (ring.lost_to, ring.slice_count) == (5, 1)


@pytest.mark.parametrize("count_ahead", [2, 1], ids=["all were there", "more came"])
def test_a_slice_that_is_built_ahead_serves_if_no_more_tuples_come(
    count_ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = ring_of(0)
    timed = [((spread(n), P, spread(0)), 100 + n) for n in range(2)]
    bytes_before = ring.size_bytes
    ring.build_ahead(1, columns_of(timed[:count_ahead]))
    assert ring.count_ahead(1) == count_ahead
    assert (ring.count_ahead(2), ring.slice_count) == (0, 1)
    assert ring.size_bytes > bytes_before
    built: list[int] = []
    build = block_index.build_slice
    monkeypatch.setattr(block_index, "build_slice", lambda tuples: built.append(len(tuples[0])) or build(tuples))
    add(ring, 1, timed)
    assert held(ring.window(0, 1)) == dict(timed)
    assert built == ([] if count_ahead == 2 else [2])
    assert ring.count_ahead(1) == 0
