"""Signs by event time (DESIGN.md, section 6): the newest tuple of each triple counts, in whatever order tuples come."""

from __future__ import annotations

import random

import numpy as np
import pytest

from wukongs.live.absorption import Timeless, settled_by_event_time
from wukongs.store.encoded import signs
from wukongs.store.event_times import ABSENT, ENTRY_BYTES, EventTimes, packed
from wukongs.store.quads import Quads

Quad = tuple[int, int, int, int]
Tuple = tuple[Quad, int, bool]
"""A triple, its time in ms, and whether it is a retraction."""


def columns(quads: list[Quad]) -> Quads:
    table = np.array(quads, np.int64).reshape(-1, 4)
    return table[:, 0], table[:, 1], table[:, 2], table[:, 3]


def part(tuples: list[Tuple], clock_ms: int | None = 0, end_ms: int = 0, stream: str = "s") -> Timeless:
    goes = np.array([goes for _, _, goes in tuples], np.bool_)
    times = np.array([time_ms for _, time_ms, _ in tuples], np.int64)
    return Timeless(
        columns([quad for quad, _, _ in tuples]),
        signs(goes),
        stream,
        end_ms,
        times,
        np.zeros(len(tuples), np.int64),
        clock_ms,
    )


def rows(quads: Quads) -> set[Quad]:
    return set(zip(*(column.tolist() for column in quads), strict=True))


def store(held: set[Quad], parts: list[Timeless], entries: EventTimes, history_ms: int = 10**6) -> tuple[int, int]:
    gone, come, told = settled_by_event_time(parts, entries, history_ms)
    assert not rows(gone) & rows(come)
    held -= rows(gone)
    held |= rows(come)
    return sum(one.late_count for one in told.values()), sum(one.dropped_count for one in told.values())


def random_tuples(rng: random.Random, count: int) -> list[Tuple]:
    """Tuples with a time of their own each."""
    times = rng.sample(range(10 * count), count)
    return [
        ((rng.randint(0, 1), rng.randint(0, 2), 5, rng.randint(0, 2)), time_ms, rng.random() < 0.4) for time_ms in times
    ]


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_arrival_gives_what_the_sorted_order_gives(seed: int) -> None:
    rng = random.Random(seed)
    tuples = random_tuples(rng, 60)
    expected: set[Quad] = set()
    for quad, _, goes in sorted(tuples, key=lambda one: one[1]):
        (expected.discard if goes else expected.add)(quad)
    for _ in range(5):
        rng.shuffle(tuples)
        held, entries, late, newest = set[Quad](), EventTimes(), 0, dict[Quad, int]()
        at = 0
        while at < len(tuples):
            count = rng.choice([1, 1, 3, 10])
            call = tuples[at : at + count]
            ends = [part([one], end_ms=place) for place, one in enumerate(call)]  # in the order of the call
            late += store(held, ends, entries)[0]
            at += count
        for quad, time_ms, _ in tuples:
            late -= time_ms < newest.get(quad, -1)
            newest[quad] = max(time_ms, newest.get(quad, -1))
        assert held == expected
        assert late == 0
        assert len(entries.entries()[0]) == len({quad for quad, _, _ in tuples})


def test_equal_times_go_by_their_order() -> None:
    quad, held, entries = (1, 2, 3, 4), set[Quad](), EventTimes()
    assert store(held, [part([(quad, 5, False), (quad, 5, True)])], entries) == (0, 0)
    assert held == set()
    assert store(held, [part([(quad, 5, False)])], entries) == (0, 0)
    assert held == {quad}
    assert store(held, [part([(quad, 4, True)])], entries) == (1, 0)
    assert held == {quad}


def test_a_tuple_older_than_entries_are_kept_is_dropped() -> None:
    quad, held, entries = (1, 2, 3, 4), set[Quad](), EventTimes()
    assert store(held, [part([(quad, 99, False)], clock_ms=200)], entries, history_ms=100) == (1, 1)
    assert held == set()
    assert store(held, [part([(quad, 100, False)], clock_ms=200)], entries, history_ms=100) == (0, 0)
    assert held == {quad}


def test_a_tuple_of_another_stream_acts_and_erases_the_entry() -> None:
    quad, other, held, entries = (1, 2, 3, 4), (1, 2, 3, 5), set[Quad](), EventTimes()
    store(held, [part([(quad, 50, False), (other, 50, False)])], entries)
    mixed = [part([(quad, 7, True)], clock_ms=None, end_ms=1, stream="a"), part([(quad, 3, False)], end_ms=2)]
    assert store(held, mixed, entries) == (0, 0)
    assert held == {quad, other}
    assert entries.find(columns([quad, other])).tolist() == [2 * 3 + 1, 2 * 50 + 1]
    store(held, [part([(quad, 8, True)], clock_ms=None, stream="a")], entries)
    assert held == {other}
    assert entries.find(columns([quad])).tolist() == [ABSENT]


def test_entries_are_those_of_a_dictionary() -> None:
    rng, entries, known = random.Random(3), EventTimes(), dict[Quad, int]()
    for _ in range(300):
        quads = list({(rng.randint(0, 2), rng.randint(0, 9), 5, rng.randint(0, 9)) for _ in range(rng.randint(1, 12))})
        match rng.choice(["put", "put", "put", "erase", "graph", "forget", "restore"]):
            case "put":
                times = np.array([rng.randint(0, 1000) for _ in quads], np.int64)
                goes = np.array([rng.random() < 0.5 for _ in quads], np.bool_)
                entries.put(columns(quads), packed(times, goes))
                known |= {quad: 2 * int(t) + (not g) for quad, t, g in zip(quads, times, goes, strict=True)}
            case "erase":
                entries.erase(columns([*quads, quads[0]]))
                known = {quad: entry for quad, entry in known.items() if quad not in quads}
            case "graph" if rng.random() < 0.2:
                entries.erase_graphs([1])
                known = {quad: entry for quad, entry in known.items() if quad[0] != 1}
            case "forget" if rng.random() < 0.3:
                before_ms = rng.randint(0, 100)
                entries.forget(before_ms, -(1 << 62))
                known = {quad: entry for quad, entry in known.items() if entry >= 2 * before_ms}
            case "restore":
                other = EventTimes()
                other.restore(entries.entries())
                entries = other
        asked = [(g, s, 5, o) for g in range(3) for s in range(10) for o in range(10)]
        assert entries.find(columns(asked)).tolist() == [known.get(quad, ABSENT) for quad in asked]
        assert entries.size_bytes == ENTRY_BYTES * len(entries)
        assert len(entries) <= 4 * max(12, len(known)) + 24
