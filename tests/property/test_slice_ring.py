"""SliceRing as a state machine, against a dictionary of slices."""

from __future__ import annotations

import random
from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from tests.fuzz import fuzzed
from tests.oracles.slice_ring import SliceRingModel, Triple
from tests.quads import quads_of, spread
from wukongs.store.batch_set import BatchSet
from wukongs.store.block_index import Timed
from wukongs.store.slice_ring import SliceRing

NOTHING = np.empty(0, np.int64)


def columns_of(timed: list[tuple[Triple, int]]) -> Timed:
    array = np.array([(*triple, time) for triple, time in timed], np.int64).reshape(-1, 4)
    return tuple(np.ascontiguousarray(array[:, part]) for part in range(4))  # type: ignore[return-value]


def add(ring: SliceRing, number: int, timed: list[tuple[Triple, int]], transient: list[int] | None = None) -> None:
    parts = columns_of(timed)
    ids = np.array(transient or [], np.int64)
    ring.add(number, parts[0], parts[1], parts[2], parts[3], ids, 10 * len(ids))


def held(window: BatchSet) -> dict[Triple, int]:
    """The tuples of a window, each with its newest time, once however many blocks have it."""
    found: dict[Triple, int] = {}
    for batch in window.batches:
        columns = [part.tolist() for part in batch.triples()]
        assert set(columns[0]) <= {0}
        for s, p, o, time in zip(*columns[1:], batch.times.tolist(), strict=True):
            found[s, p, o] = max(time, found.get((s, p, o), time))
    return found


class SliceRingMachine(RuleBasedStateMachine):
    """Stream batches come, close and go, with gaps; windows reach anywhere, also where nothing is; widths come and go;
    blocks are built by what closings pay and in idle time, in steps as small as can be."""

    def __init__(self) -> None:
        super().__init__()
        self.ring = SliceRing()
        self.model = SliceRingModel()
        self.next = 0
        self.closed: int | None = None
        self.dropped: int | None = None
        self.indexed = 1
        self.is_read = True
        """Whether everything is read after each step; else slices wait longer."""
        self.due: int | None = None
        """By when the blocks of slices that were there before a window came or went are all built."""

    @initialize(
        first=st.sampled_from([-40, -3, 0, 1, 1000]), indexed=st.sampled_from([0, 1, 3, 8]), is_read=st.booleans()
    )
    def begin(self, first: int, indexed: int, is_read: bool) -> None:
        self.next = first
        self.is_read = is_read
        if indexed:
            self.index_windows(indexed)

    @rule(
        gap=st.sampled_from([0, 0, 0, 1, 5]),
        size=st.sampled_from([0, 1, 1, 4]),
        ahead=st.sampled_from([0, 1, 2, 4]),
        is_next=st.booleans(),
        seed=st.integers(0, 2**32),
    )
    def add(self, gap: int, size: int, ahead: int, is_next: bool, seed: int) -> None:
        """ahead: of so many tuples a slice is built before it comes; is_next: of this stream batch, not of the next."""
        number = self.next + gap
        rng = random.Random(seed)
        timed = [
            ((spread(rng.randrange(4)), spread(rng.randrange(2)), spread(rng.randrange(4))), rng.randrange(-50, 50))
            for _ in range(size)
        ]
        transient = [rng.randrange(5) for _ in range(rng.randrange(3))]
        if timed[:ahead]:
            self.ring.build_ahead(number if is_next else number + 1, columns_of(timed[:ahead]))
        add(self.ring, number, timed, transient)
        self.model.add(number, timed, transient)
        self.has_closed(number)
        self.next = number + 1

    @rule(ahead=st.sampled_from([0, 0, 0, -2, 3, 20]))
    def close(self, ahead: int) -> None:
        """Close up to the newest stream batch, some time after it in silence, or again."""
        self.ring.close(self.next - 1 + ahead)
        self.has_closed(self.next - 1 + ahead)

    def has_closed(self, number: int) -> None:
        self.closed = number if self.closed is None else max(number, self.closed)
        self.next = max(self.next, self.closed + 1)
        assert self.ring.closed_to == self.closed

    @rule(fuel=st.sampled_from([1, 1, 2, 5, 30, 1000]))
    def work(self, fuel: int) -> None:
        """Idle time: a window that is read now stands in the middle of merges."""
        self.ring.work(fuel)

    @rule(count=st.sampled_from([1, 2, 3, 4, 10, 16, 33]))
    def index_windows(self, count: int) -> None:
        self.ring.index_windows(count)
        if count != self.indexed and self.closed is not None:
            self.due = max(self.closed + count // 2, self.closed if self.due is None else self.due)
        self.indexed = count

    @precondition(lambda self: self.closed is not None)
    @rule(back=st.integers(-1, 15))
    def drop(self, back: int) -> None:
        assert self.closed is not None
        to = self.closed - max(0, back)
        gone = self.ring.drop(to)
        if self.dropped is not None and to <= self.dropped:
            assert not len(gone)
            return
        self.dropped = to
        assert sorted(gone.tolist()) == self.model.drop(to)

    @rule(back=st.integers(-5, 60), size=st.integers(1, 40))
    def window(self, back: int, size: int) -> None:
        to = self.next - back
        self.check(to - size, to)

    def check(self, after: int, to: int) -> None:
        for _ in range(2):  # the second time from memory
            assert held(self.ring.window(after, to)) == self.model.window(after, to)
        if to == self.closed and to - after <= self.indexed and (self.due is None or to >= self.due):
            assert len(self.ring.window(after, to).batches) <= max(1, 5 * log2(to - after))

    @invariant()
    def is_the_dictionary(self) -> None:
        assert self.ring.slice_count == len(self.model.slices)
        if not self.is_read:
            return
        assert len(self.ring) == sum(map(len, self.model.slices.values()))
        self.check(self.next - 100, self.next + 5)
        if self.closed is not None:
            self.check(self.closed - self.indexed, self.closed)
        lost = self.ring.lost_to
        assert lost is None or (self.dropped is not None and lost <= self.dropped)

    def teardown(self) -> None:
        assert sorted(self.ring.drop(self.next + 100).tolist()) == self.model.drop(self.next + 100)
        assert len(self.ring) == 0
        assert self.ring.size_bytes == 0
        assert not self.ring.work(1)
        assert not self.ring.window(-(10**4), 10**4).batches


def test_slice_ring_is_a_dictionary_of_slices() -> None:
    run_machine(SliceRingMachine, settings=fuzzed(40, steps=30))


@pytest.mark.nojit
def test_slice_ring_on_a_few_steps() -> None:
    run_machine(SliceRingMachine, settings=fuzzed(3, steps=12))


@given(st.integers(-70, 70), st.integers(1, 64), st.integers(0, 2**32))
@fuzzed(30)
def test_a_window_is_read_through_few_blocks(first: int, size: int, seed: int) -> None:
    """Every window of an indexed size, at every place, over slices that are all there or mostly there."""
    rng = random.Random(seed)
    ring, model = SliceRing(), SliceRingModel()
    ring.index_windows(size)
    for number in range(first, first + 100):
        timed = [((spread(number), spread(1), spread(rng.randrange(3))), number)] if rng.random() < 0.9 else []
        add(ring, number, timed)
        model.add(number, timed, [])
        found = ring.window(number - size, number)
        assert held(found) == model.window(number - size, number)
        assert len(found.batches) <= max(1, 5 * log2(size))
        assert sum(map(len, found.batches)) == len(quads_of(*found.batches))
        ring.drop(number - size)
        model.drop(number - size)
