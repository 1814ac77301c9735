"""ArrivalSequence as a state machine, against a plain list of all that ever came; recovery is a new one that stands
where the old one stood and is told again what had been dropped."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from tests.fuzz import fuzzed
from tests.property.test_slice_ring import held
from tests.quads import spread
from wukongs.store.arrival_sequence import ArrivalSequence

Arrival = tuple[int, tuple[int, int, int], int]
"""Stream batch, triple, time."""
BATCH_MS = 100


def columns_of(arrivals: list[Arrival]) -> list[np.ndarray]:
    rows = np.array([(*triple, time) for _, triple, time in arrivals], np.int64).reshape(-1, 4)
    return [rows[:, at] for at in range(4)]  # parts of a larger array, as those of a piece


class ArrivalSequenceMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.sequence = ArrivalSequence()
        self.all: list[Arrival] = []
        self.lost = 0
        """The arrivals up to this one may be gone, whole stream batches of them."""
        self.is_kept = False
        self.evicted = 0

    @initialize(kept=st.booleans(), first=st.sampled_from([-40, 0, 7]))
    def begin(self, kept: bool, first: int) -> None:
        self.next = first
        if kept:
            self.keep()

    @rule(gap=st.sampled_from([0, 0, 3]), size=st.integers(1, 5), seed=st.integers(0, 2**32))
    def add(self, gap: int, size: int, seed: int) -> None:
        number, rng = self.next + gap, random.Random(seed)
        times = sorted(rng.randrange((number - 1) * BATCH_MS + 1, number * BATCH_MS + 1) for _ in range(size))
        added = [(number, (spread(rng.randrange(2)), 1, spread(rng.randrange(3))), time) for time in times]
        self.sequence.add(number, *columns_of(added))
        self.all += added
        self.next = number + 1
        if not self.is_kept:
            self.lost = len(self.all)

    @rule()
    def keep(self) -> None:
        self.sequence.keep()
        self.is_kept = True

    @rule()
    def forget(self) -> None:
        self.sequence.forget()
        self.is_kept = False
        self.lost = len(self.all)
        assert self.sequence.size_bytes == 0

    @rule(back=st.integers(0, 12))
    def drop(self, back: int) -> None:
        """Only the stream batches that are wholly before are dropped."""
        to = max(0, len(self.all) - back)
        self.sequence.drop(to)
        if to < len(self.all):
            to = next(at for at in range(to, -1, -1) if at == 0 or self.all[at - 1][0] != self.all[at][0])
        self.lost = max(self.lost, to)

    @precondition(lambda self: self.sequence.oldest is not None)
    @rule()
    def evict(self) -> None:
        oldest = self.sequence.oldest
        self.sequence.evict(oldest)
        self.lost = self.evicted = sum(number <= oldest for number, _, _ in self.all)

    @rule()
    def recover(self) -> None:
        """Another one, that is told the number of arrivals which nobody needs, and the others again."""
        fresh = ArrivalSequence()
        known = self.lost // 2
        fresh.restore(known, self.sequence.began_after if self.is_kept else None)
        fresh.skip(self.lost - known)
        fresh.evicted_to = self.sequence.evicted_to
        batches: dict[int, list[Arrival]] = {}
        for arrival in self.all[self.lost :]:
            batches.setdefault(arrival[0], []).append(arrival)
        for number, arrivals in batches.items():
            fresh.add(number, *columns_of(arrivals))
        self.sequence = fresh

    @rule(count=st.integers(1, 9), step=st.integers(1, 4), back=st.integers(0, 20))
    def window(self, count: int, step: int, back: int) -> None:
        """The window at the end of any stream batch whose arrivals are still told apart."""
        number = self.next - back
        come = sum(each <= number for each, _, _ in self.all)
        if come < self.lost:
            return
        to = come // step * step
        after = max(0, to - count)
        assert self.sequence.span(number, count, step) == (after, to)
        for _ in range(2):  # the second time from memory
            found = self.sequence.window(after, to)
            arrivals = self.all[max(after, min(self.lost, to)) : to]
            assert held(found.batches) == {triple: time for _, triple, time in arrivals}  # the last time stands
            assert (found.start_ms, found.end_ms) == (
                (arrivals[0][2] - 1, arrivals[-1][2]) if arrivals else (None,) * 2
            )
        later = [self.all[edge - 1][0] for edge in range(to + step, len(self.all) + 1, step)]
        assert self.sequence.next_edge(number, step) == (later[0] if later else None)

    @invariant()
    def is_the_list(self) -> None:
        assert self.sequence.count == len(self.all)
        assert self.sequence.held_after == self.lost
        assert len(self.sequence) == len(self.all) - self.lost
        assert self.sequence.evicted_to == self.evicted
        assert self.sequence.oldest == (self.all[self.lost][0] if self.lost < len(self.all) else None)
        assert self.sequence.size_bytes >= 32 * len(self.sequence)
        for arrival in (self.lost + 1, len(self.all)):
            if self.lost < arrival <= len(self.all):
                assert self.sequence.batch_of(arrival) == self.all[arrival - 1][0]
        assert self.sequence.batch_of(len(self.all) + 1) is None


def test_an_arrival_sequence_is_a_list() -> None:
    run_machine(ArrivalSequenceMachine, settings=fuzzed(60, steps=40))


def test_a_long_sequence_is_dropped_from_its_front() -> None:
    """Over many more stream batches than are held; what is held, and its bytes, stay the same."""
    sequence = ArrivalSequence()
    sequence.keep()
    for number in range(5_000):
        sequence.add(number, *columns_of([(number, (spread(number), 1, 2), number * BATCH_MS)]))
        sequence.drop(number + 1 - 10)
        assert len(sequence) == min(10, number + 1)
        assert sequence.size_bytes == 32 * len(sequence)
    assert sequence.count == 5_000
    assert sorted(held(sequence.window(4_990, 5_000).batches).values()) == list(range(499_000, 500_000, 100))
