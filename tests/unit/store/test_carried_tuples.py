"""CarriedTuples, and a SliceRing with carried tuples, against plain lists."""

from __future__ import annotations

import random

import numpy as np

from wukongs.store.batch_set import BatchSet
from wukongs.store.carried_tuples import CarriedTuples
from wukongs.store.membership import Membership
from wukongs.store.slice_ring import SliceRing

BATCH_MS = 10
Tuple = tuple[int, int, int]
"""Subject, time in ms, and the stream batch that holds it."""


def columns(tuples: list[Tuple]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    subjects = np.array([subject for subject, _, _ in tuples], np.int64)
    times = np.array([time_ms for _, time_ms, _ in tuples], np.int64)
    return subjects, np.full(len(tuples), 7, np.int64), subjects, times


def own(tuples: list[Tuple]) -> np.ndarray:
    return np.array([-(-time_ms // BATCH_MS) for _, time_ms, _ in tuples], np.int64)


def held(batches: BatchSet) -> dict[int, int]:
    """Subject -> its newest time."""
    found: dict[int, int] = {}
    for batch in batches.batches:
        for subject, time_ms in zip(batch.triples()[1].tolist(), batch.times.tolist(), strict=True):
            found[subject] = max(time_ms, found.get(subject, time_ms))
    return found


def expected(tuples: list[Tuple], after: int, to: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for subject, time_ms, number in tuples:
        if after * BATCH_MS < time_ms and number <= to:
            found[subject] = max(time_ms, found.get(subject, time_ms))
    return found


def test_windows_hold_what_a_plain_list_does() -> None:
    rng = random.Random(1)
    for _ in range(30):
        ring, tuples, dropped_to = SliceRing(), list[Tuple](), 0
        ring.index_windows(rng.choice([1, 4, 9]))
        for number in range(1, 25):
            fresh = [(rng.randint(1, 9), rng.randint((number - 1) * BATCH_MS + 1, number * BATCH_MS), number)]
            fresh *= rng.choice([0, 1])
            late = [
                (rng.randint(1, 9), rng.randint(max(1, (number - 9) * BATCH_MS), (number - 1) * BATCH_MS), number)
                for _ in range(rng.choice([0, 0, 1, 3]) if number > 1 else 0)
            ]
            if late:
                ring.carry(number, own(late), columns(late))
            ring.add(number, *columns(fresh), np.empty(0, np.int64))
            tuples += [*fresh, *late]
            for _ in range(4):
                after = rng.randint(dropped_to, number)
                to = rng.randint(after, number)
                assert held(ring.window(after, to)) == expected(tuples, after, to), (after, to)
                is_carried = [(u, n) for _, u, n in tuples if after * BATCH_MS < u <= (n - 1) * BATCH_MS and n <= to]
                assert ring.holds_carried(after, to) == bool(is_carried)
                assert Membership(7).stand(ring, after, to) != bool(is_carried)
            if rng.random() < 0.2:
                dropped_to = rng.randint(dropped_to, number)
                gone = [-(-u // BATCH_MS) for _, u, _ in tuples if u <= dropped_to * BATCH_MS]
                ring.drop(dropped_to)
                assert ring.lost_to == max(gone, default=None)
            left = [u for _, u, _ in tuples if u > dropped_to * BATCH_MS]
            assert ring.oldest == (-(-min(left) // BATCH_MS) if left else None)
            assert len(ring) >= len(expected(tuples, dropped_to, number))


def test_the_extent_of_a_window_changes_with_its_content() -> None:
    rng = random.Random(2)
    for _ in range(200):
        ring, tuples = SliceRing(), list[Tuple]()
        for number in range(1, 9):
            late = [
                (subject, rng.randint(1, max(1, (number - 1) * BATCH_MS)), number)
                for subject in range(rng.choice([0, 1]))
            ]
            if late and number > 1:
                ring.carry(number, own(late), columns(late))
                tuples += late
            if rng.random() < 0.5:
                fresh = [(number, number * BATCH_MS, number)]
                ring.add(number, *columns(fresh), np.empty(0, np.int64))
                tuples += fresh
            else:
                ring.close(number)
        spans = [(to - 3, to) for to in range(3, 9)]
        contents = [{one for one in tuples if after * BATCH_MS < one[1] and one[2] <= to} for after, to in spans]
        extents = [ring.extent(*span) for span in spans]
        for before, now, was, stands in zip(contents, contents[1:], extents, extents[1:], strict=False):
            assert (before == now) == (was == stands)


def test_a_tuple_of_a_dropped_stream_batch_is_lost() -> None:
    ring, late = SliceRing(), [(1, 15, 5), (2, 35, 5)]
    ring.close(4)
    ring.drop(2)
    ring.carry(5, own(late), columns(late))
    ring.close(5)
    assert ring.lost_to == 2
    assert held(ring.window(2, 5)) == {2: 35}
    assert ring.next_after(4) == 5


def test_what_is_dropped_takes_no_room() -> None:
    carried, late = CarriedTuples(), [(1, 15, 5), (2, 35, 5)]
    carried.add(5, own(late), columns(late))
    full = carried.size_bytes
    assert carried.drop(1) is None
    assert carried.drop(3) == 2
    assert 0 < carried.size_bytes < full
    assert carried.drop(9) == 4
    assert (carried.size_bytes, len(carried), carried.oldest) == (0, 0, None)
