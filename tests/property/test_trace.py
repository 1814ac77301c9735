"""Trace and Arrangement as state machines, against a list of (SN, quad)."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import pairwise
from math import log2

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from tests.fuzz import fuzzed
from tests.oracles.trace import TraceModel
from tests.quads import Quad, batch_of, columns, quads_of, spread
from wukongs.bench.kernels.loop_kernels import count_passing as passing
from wukongs.errors import CompactedError
from wukongs.store import trace as trace_module
from wukongs.store import tuple_filter
from wukongs.store.arrangement import Arrangement
from wukongs.store.batch import Batch
from wukongs.store.fuel import UNLIMITED_FUEL
from wukongs.store.lookup_kernels import side_keys
from wukongs.store.trace import QUIET_RATIO, Handle, Trace


def check_filter(batch: Batch) -> None:
    """A batch of a trace has a filter, which passes all of its keys."""
    assert len(batch.key_filter) or not len(batch)
    for direction in range(2):
        keys = side_keys(batch.descriptor, direction)
        assert passing(batch.descriptor, direction, keys) == len(keys)


def read(trace: Trace, sn: int) -> list[Quad]:
    return quads_of(*trace.read(sn).batches)


class TraceMachine(RuleBasedStateMachine):
    """Seals, handles, merges in any order. Merges get so little fuel that they are under way most of the time."""

    handles = Bundle("handles")
    fuel_per_row = 2

    def __init__(self) -> None:
        super().__init__()
        self.trace = Trace("t", self.fuel_per_row)
        self.model = TraceModel()
        self.next = 0
        self.open_handles: dict[Handle, list[Quad]] = {}

    @rule(size=st.sampled_from([0, 1, 1, 1, 2, 5, 20]), gap=st.sampled_from([0, 0, 1, 7]))
    def seal(self, size: int, gap: int) -> None:
        sn = self.trace.upper + gap
        quads = [(0, spread(n), spread(n % 3), spread(n % 5)) for n in range(self.next, self.next + size)]
        self.next += size
        self.trace.seal(sn, batch_of(quads))
        self.model.seal(sn, quads)
        assert self.trace.upper == self.model.upper

    @rule(by=st.sampled_from([0, 1, 5]))
    def advance(self, by: int) -> None:
        self.trace.advance(self.trace.upper + by)
        self.model.upper += by
        assert self.trace.upper == self.model.upper

    @rule(target=handles, back=st.integers(0, 12))
    def open(self, back: int) -> Handle | None:
        """Open a handle on a recent SN: it opens, or merging has passed there."""
        sn = max(0, self.model.upper - 1 - back)
        if self.model.upper == 0:
            return None
        try:
            handle = self.trace.open(sn, "test")
        except CompactedError:
            assert sn < self.trace.since, "an SN from `since` on can always be read"
            return None
        self.open_handles[handle] = self.model.read(sn)
        return handle

    @rule(target=handles, share=st.floats(0, 1))
    def open_what_can_be_read(self, share: float) -> Handle | None:
        """Open a handle on any SN that can be read, however old, also between seals."""
        readable = []
        for sn in range(self.model.upper):
            with suppress(CompactedError):
                self.trace.read(sn)
                readable.append(sn)
        if not readable:
            return None
        sn = readable[int(share * (len(readable) - 1))]
        handle = self.trace.open(sn, "test")
        self.open_handles[handle] = self.model.read(sn)
        return handle

    @rule(handle=consumes(handles))
    def close(self, handle: Handle | None) -> None:
        if handle is None:
            return
        handle.close()
        handle.close()
        self.open_handles.pop(handle, None)
        with pytest.raises(CompactedError, match="no longer open"):
            handle.read()

    @rule(fuel=st.sampled_from([1, 3, 17, 200, 5000]))
    def work(self, fuel: int) -> None:
        self.trace.work(fuel)

    @rule(fuel=st.sampled_from([1, 17, 5000]))
    def merge_further(self, fuel: int) -> None:
        """Merge as quiet time does."""
        self.trace.merge_further(fuel)

    @rule(fuel=st.sampled_from([1, 3, 17, 5000]))
    def pay(self, fuel: int) -> None:
        """Pay what the newest seal owes, before the next one does."""
        self.trace.pay(fuel)

    @rule()
    def merge_all(self) -> None:
        self.trace.merge_all()
        cuts = {sum(sn <= handle.sn for sn in self.model.sealed_sns) for handle in self.open_handles}
        inner = cuts - {0, len(self.model.sealed_sns)}
        assert self.trace.batch_count == (len(inner) + 1 if self.model.log else 0)

    @rule(share=st.floats(0, 1))
    def revoke(self, share: float) -> None:
        """Take the older part of the handles away."""
        by_age = sorted(self.open_handles, key=lambda handle: handle.opened_at_s)
        old = by_age[: int(share * len(by_age))]
        for handle in old:
            handle.opened_at_s -= 1e6
        assert self.trace.revoke(5e5) == len(old)
        for handle in old:
            del self.open_handles[handle]
            with pytest.raises(CompactedError, match="maximum age"):
                handle.read()

    @invariant()
    def open_handles_are_exact(self) -> None:
        for handle, expected in self.open_handles.items():
            assert quads_of(*handle.read().batches) == expected
        assert set(self.trace.handles()) == set(self.open_handles)

    @invariant()
    def every_sn_is_exact_or_refused(self) -> None:
        since = self.trace.since
        assert since < max(1, self.model.upper)
        held = {handle.sn for handle in self.open_handles}
        for sn in range(max(0, self.model.upper + 1)):
            try:
                found = read(self.trace, sn)
            except CompactedError:
                assert sn < since
                assert sn not in held
                later = self.trace.readable_from(sn)
                assert later > sn
                read(self.trace, later)
            else:
                assert found == self.model.read(sn)
                assert self.trace.readable_from(sn) == sn
        assert len(self.trace) == len(self.model.log)

    @invariant()
    def batches_have_filters_that_pass_their_keys(self) -> None:
        for entry in self.trace.entries():
            check_filter(entry.batch)

    @invariant()
    def batches_are_disjoint_and_few(self) -> None:
        found = quads_of(*self.trace.read(self.trace.upper).batches)
        assert len(found) == len(set(found))
        assert self.trace.batch_count <= len(self.model.sealed_sns)


def test_trace_with_little_fuel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "FUEL_MIN", 1)
    run_state_machine_as_test(TraceMachine, settings=fuzzed(60, steps=40))


class EagerTraceMachine(TraceMachine):
    """Every merge is done within the seal that begins it."""

    fuel_per_row = UNLIMITED_FUEL // 2**32


def test_trace_with_eager_fuel() -> None:
    run_state_machine_as_test(EagerTraceMachine, settings=fuzzed(15, steps=40))


def test_trace_as_it_is() -> None:
    run_state_machine_as_test(TraceMachine, settings=fuzzed(25, steps=40))


@pytest.mark.nojit
def test_trace_on_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "FUEL_MIN", 1)
    run_state_machine_as_test(TraceMachine, settings=fuzzed(3, steps=12))


class ArrangementMachine(RuleBasedStateMachine):
    """A graph is a set, whatever is absorbed again, within one SN or later."""

    def __init__(self) -> None:
        super().__init__()
        self.arrangement = Arrangement("g")
        self.model = TraceModel()
        self.known: set[Quad] = set()

    @rule(seed=st.integers(0, 2**32), size=st.sampled_from([0, 1, 3, 12]), gap=st.sampled_from([0, 4]))
    def absorb(self, seed: int, size: int, gap: int) -> None:
        rng = random.Random(seed)
        nodes = [spread(i) for i in range(3)]
        quads: list[Quad] = [
            (rng.choice(nodes), rng.choice(nodes), rng.choice(nodes), rng.choice([*nodes, spread(9, 0), spread(9, 1)]))
            for _ in range(size)
        ]
        sn = self.arrangement.trace.upper + gap
        new = {quad for quad in quads if quad not in self.known}
        assert self.arrangement.absorb(sn, *columns(quads)) == len(new)
        self.known |= new
        self.model.seal(sn, new)

    @rule(number=st.integers(0, 30))
    def seal_elsewhere(self, number: int) -> None:
        """The arrangement also knows tuples that enter the trace past it, as at a restart."""
        quad = (spread(1), spread(50 + number), spread(2), spread(3))
        if quad not in self.known:
            sn = self.arrangement.trace.upper
            self.arrangement.trace.seal(sn, batch_of([quad]))
            self.known.add(quad)
            self.model.seal(sn, {quad})

    @rule(sn_gap=st.integers(0, 2))
    def absorb_all_again(self, sn_gap: int) -> None:
        """Nothing that is there is new, however the filter has grown meanwhile."""
        sn = self.arrangement.trace.upper + sn_gap
        assert self.arrangement.absorb(sn, *columns(self.known)) == 0
        self.model.seal(sn, set())

    @rule()
    def merge(self) -> None:
        self.arrangement.trace.merge_all()

    @invariant()
    def is_the_set(self) -> None:
        assert read(self.arrangement.trace, self.model.upper) == sorted(self.known)
        assert len(self.arrangement) == len(self.known)
        for sn in range(self.arrangement.trace.since, self.model.upper):
            with self.arrangement.open(sn, "test") as handle:
                assert quads_of(*handle.read().batches) == self.model.read(sn)


def test_arrangement_is_a_set() -> None:
    run_state_machine_as_test(ArrangementMachine, settings=fuzzed(20, steps=25))


def test_arrangement_whose_filter_grows_is_a_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuple_filter, "FIRST_TUPLES", 1)
    run_state_machine_as_test(ArrangementMachine, settings=fuzzed(40, steps=25))


@pytest.mark.nojit
def test_arrangement_on_a_few_steps() -> None:
    run_state_machine_as_test(ArrangementMachine, settings=fuzzed(3, steps=8))


# --- how many batches there are ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[1] * 40, [900, *[3] * 12], [500, 60, 7, 1], [1, 7, 60, 500]])
def test_quiet_time_leaves_few_batches(sizes: list[int]) -> None:
    trace, model = Trace("t", fuel_per_row=0), TraceModel()
    count_batches(trace, sizes, model)
    while trace.merge_further(100):
        pass
    found = [len(entry) for entry in trace.entries()]
    assert all(older > QUIET_RATIO * newer for older, newer in pairwise(found)), found
    assert read(trace, trace.upper) == model.read(trace.upper)


def test_quiet_time_makes_no_large_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "QUIET_ROWS_MAX", 100)
    trace = Trace("t", fuel_per_row=0)
    count_batches(trace, [90, 40, 3, 1], TraceModel())
    while trace.merge_further(100):
        pass
    assert [len(entry) for entry in trace.entries()] == [90, 40, 4]


def test_twelve_small_batches_pass_hardly_any_key_that_they_have_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search asks small batches without its keys by their filters only: few look-ups are made for nothing."""
    monkeypatch.setattr(trace_module, "FUEL_MIN", 0)
    trace = Trace("t", fuel_per_row=0)
    count_batches(trace, [2000, *[100] * 12], TraceModel())
    absent = np.array([spread(10**6 + n) for n in range(1000)], np.int64)
    small = trace.read(trace.upper).batches[1:]
    assert len(small) == 12
    for direction in range(2):
        assert sum(int(passing(batch.descriptor, direction, absent)) for batch in small) < 0.02 * 12 * len(absent)


def count_batches(trace: Trace, sizes: list[int], model: TraceModel) -> list[int]:
    """Seal batches of these sizes; return the count of batches after each."""
    counts = []
    number = len(model.log)
    for size in sizes:
        quads = [(0, spread(n), spread(n % 3), spread(n + 1)) for n in range(number, number + size)]
        number += size
        model.seal(trace.upper, quads)
        trace.seal(trace.upper, batch_of(quads))
        counts.append(trace.batch_count)
    return counts


@pytest.mark.parametrize("fuel_min", [1, 4096])
@pytest.mark.parametrize("sizes", ["ones", "mixed"])
def test_batches_are_logarithmic_in_the_rows(monkeypatch: pytest.MonkeyPatch, fuel_min: int, sizes: str) -> None:
    """Merging keeps pace with insertion with the default fuel alone, FUEL_MIN or not."""
    monkeypatch.setattr(trace_module, "FUEL_MIN", fuel_min)
    rng = random.Random(11)
    many = [1] * 3000 if sizes == "ones" else [rng.choice([1, 1, 1, 10, 100, 400]) for _ in range(600)]
    trace, model = Trace("t"), TraceModel()
    counts = count_batches(trace, many, model)
    rows = 0
    for size, count in zip(many, counts, strict=True):
        rows += size
        assert count <= 4 + 2 * log2(rows), (rows, count)
    assert read(trace, trace.upper) == model.read(trace.upper)


def test_one_old_handle_costs_few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "FUEL_MIN", 1)
    trace, model = Trace("t"), TraceModel()
    count_batches(trace, [1] * 500, model)
    handle = trace.open(trace.upper - 1, "old")
    expected = model.read(handle.sn)
    counts = count_batches(trace, [1] * 3000, model)
    assert max(counts) <= 8 + 4 * log2(3500)
    assert quads_of(*handle.read().batches) == expected
    assert trace.read(handle.sn).descriptors.shape[0] <= 4 + 2 * log2(500)
    handle.close()
    trace.merge_all()
    assert trace.batch_count == 1
    with pytest.raises(CompactedError):
        trace.open(handle.sn, "too late")
