"""Trace: seals, handles and merges, one behaviour each."""

from __future__ import annotations

import gc
import weakref

import pytest

from tests.quads import batch_of, quads_of, spread
from wukongs.errors import CompactedError
from wukongs.store import merge as merge_module
from wukongs.store import trace as trace_module
from wukongs.store.batch_set import BatchSet
from wukongs.store.merge import Merge
from wukongs.store.trace import Trace


def quad(number: int) -> tuple[int, int, int, int]:
    return 0, spread(number), spread(-1), spread(number + 1)


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Trace:
    """Three sealed SNs, 2, 5 and 6, that nothing has merged yet (larger ones first)."""
    monkeypatch.setattr(trace_module, "FUEL_MIN", 1)
    trace = Trace("follows", fuel_per_row=0)
    for sn, numbers in ((2, range(9)), (5, range(10, 13)), (6, [20])):
        trace.seal(sn, batch_of(map(quad, numbers)))
    assert trace.batch_count == 3
    return trace


def test_a_read_sees_what_was_sealed_up_to_its_sn(trace: Trace) -> None:
    assert [len(trace.read(sn)) for sn in (0, 1, 2, 4, 5, 6, 7, 1000)] == [0, 0, 9, 9, 12, 13, 13, 13]
    assert trace.read(1).descriptors.shape[0] == 0
    assert all(trace.read(sn).disjoint for sn in (0, 6))


def test_an_sn_that_was_passed_is_not_sealed(trace: Trace) -> None:
    with pytest.raises(AssertionError):
        trace.seal(6, batch_of([quad(99)]))
    assert trace.upper == 7


def test_an_empty_seal_takes_its_sn_and_no_batch(trace: Trace) -> None:
    trace.seal(9, batch_of([]))
    assert trace.upper == 10
    assert trace.batch_count == 3


def test_a_seal_that_finds_no_memory_changes_nothing(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what is read of the newest SN, nor which SNs are sealed."""

    def without_memory(*_: object, **__: object) -> None:
        raise MemoryError

    trace.read(trace.upper)
    for owner, name in ((trace_module, "with_key_filter"), (BatchSet, "and_then")):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, without_memory)
            with pytest.raises(MemoryError):
                trace.seal(7, batch_of([quad(50)]))
        assert (trace.upper, trace.batch_count, len(trace), len(trace.read(trace.upper))) == (7, 3, 13, 13)
    trace.seal(7, batch_of([quad(51)]))
    assert len(trace.read(trace.upper)) == len(trace) == 14


def test_a_seal_is_seen_by_the_next_read_of_the_newest(trace: Trace) -> None:
    assert len(trace.read(trace.upper)) == 13
    trace.seal(7, batch_of([quad(50)]))
    assert len(trace.read(trace.upper)) == 14
    trace.advance(20)
    assert len(trace.read(trace.upper)) == 14
    trace.seal(20, batch_of([quad(51)]))
    assert len(trace.read(trace.upper)) == 15


def test_compacted_error_says_what_where_and_what_next(trace: Trace) -> None:
    trace.merge_all()
    with pytest.raises(CompactedError) as caught:
        trace.open(5, "me")
    assert str(caught.value) == (
        "cannot read 'follows' at SN 5: compacted up to SN 6. Read at SN >= 6, or open the handle earlier to hold it."
    )
    assert trace.since == 6
    assert not list(trace.handles())


def test_before_the_first_seal_all_can_be_read_for_ever(trace: Trace) -> None:
    trace.merge_all()
    assert len(trace.read(1)) == 0


@pytest.mark.parametrize("sn", [2, 3, 4, 5])
def test_a_handle_holds_its_boundary_and_no_other(trace: Trace, sn: int) -> None:
    handle = trace.open(sn, "me")
    before = quads_of(*handle.read().batches)
    trace.merge_all()
    assert trace.batch_count == 2
    assert quads_of(*handle.read().batches) == before
    other = 5 if sn < 5 else 2
    with pytest.raises(CompactedError):
        trace.read(other)


def test_a_merge_that_is_done_waits_for_the_handle_opened_meanwhile(trace: Trace) -> None:
    trace._start(*trace._entries[:2])
    handle = trace.open(3, "me")
    trace.work(10_000)
    assert trace.batch_count == 3
    assert len(handle.read()) == 9
    handle.close()
    trace.work(1)
    assert trace.batch_count == 2


def test_a_closed_handle_is_refused_by_name(trace: Trace) -> None:
    with trace.open(5, "query q") as handle:
        assert [h.owner for h in trace.handles()] == ["query q"]
    assert not list(trace.handles())
    with pytest.raises(CompactedError, match=r"handle of query q at SN 5 is no longer open .*open a new one"):
        handle.read()


def test_revoke_takes_only_the_old(trace: Trace) -> None:
    old, young = trace.open(2, "old"), trace.open(5, "young")
    old.opened_at_s -= 100
    assert trace.revoke(50) == 1
    assert [h.owner for h in trace.handles()] == ["young"]
    assert old.age_s >= 100 > young.age_s
    with pytest.raises(CompactedError):
        old.read()
    assert len(young.read()) == 12


def test_a_handle_may_have_an_age_of_its_own(trace: Trace) -> None:
    short, long = trace.open(2, "short", age_max_s=50), trace.open(5, "long", age_max_s=5000)
    for handle in (short, long):
        handle.opened_at_s -= 100
    assert trace.revoke(1000) == 1
    assert [h.owner for h in trace.handles()] == ["long"]
    assert trace.revoke(50) == 1


def test_sizes_add_up(trace: Trace) -> None:
    assert len(trace) == 13
    assert trace.size_bytes == sum(batch.size_bytes for batch in trace.read(6).batches)


def test_merge_all_ends_the_merges_that_others_have_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge that ends may start the next: merge_all waits for that one too."""
    monkeypatch.setattr(trace_module, "FUEL_MIN", 1)
    trace = Trace("t", fuel_per_row=1)
    for sn in range(40):
        trace.seal(sn, batch_of([quad(sn)]))
        if sn == 20:
            handle = trace.open(sn, "me")
    handle.close()
    trace.merge_all()
    assert trace.batch_count == 1


def test_batches_whose_union_would_not_fit_stay_apart(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "VALUES_MAX", 12)
    trace.merge_all()
    assert [len(batch) for batch in trace.read(trace.upper).batches] == [12, 1]
    assert len(trace.read(trace.upper)) == 13


def test_a_replaced_batch_goes_with_its_last_reader(trace: Trace) -> None:
    """Nothing but the readers keeps what was merged: its memory is free at once, without a garbage collection."""
    gc.disable()
    try:
        kept = trace.read(trace.upper)
        columns = [weakref.ref(batch.out.values) for batch in kept.batches]
        trace.merge_all()
        other = trace.open(trace.upper - 1, "other").read()
        assert trace.batch_count == 1
        assert quads_of(*kept.batches) == quads_of(*other.batches)
        assert all(column() is not None for column in columns)
        del kept
        assert all(column() is None for column in columns)
    finally:
        gc.enable()


def test_a_merge_that_is_given_up_keeps_nothing(trace: Trace) -> None:
    """A handle opened meanwhile keeps two batches apart: merge_all merges them with their other neighbours instead."""
    gc.disable()
    try:
        trace._start(*trace._entries[:2])
        trace.work(3)
        trace.open(3, "me")
        columns = [weakref.ref(entry.batch.out.values) for entry in trace._entries]
        trace.merge_all()
        assert [column() is not None for column in columns] == [True, False, False]
        assert trace.merging_count == 0
    finally:
        gc.enable()


def test_rows_under_merge_are_counted(trace: Trace) -> None:
    assert trace.merging_count == 0
    trace._start(*trace._entries[:2])
    assert trace.merging_count == 12
    trace.work(10_000)
    assert trace.merging_count == 0


def test_a_handle_that_does_not_expire_is_not_revoked(trace: Trace) -> None:
    kept, old = trace.open(2, "kept", expires=False), trace.open(2, "old")
    kept.opened_at_s = old.opened_at_s = old.opened_at_s - 100
    assert trace.revoke(50) == 1
    assert [h.owner for h in trace.handles()] == ["kept"]


def test_a_seal_leaves_merging_for_later_and_the_next_pays_at_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a seal and its reader no value is merged."""
    monkeypatch.setattr(trace_module, "FUEL_MIN", 1)
    trace = Trace("t", fuel_per_row=5)
    used = 0
    work = Merge.work

    def counted(merge: Merge, fuel: int) -> int:
        nonlocal used
        left = work(merge, fuel)
        used += fuel - left
        return left

    monkeypatch.setattr(Merge, "work", counted)
    trace.seal(0, batch_of(map(quad, range(40))))
    trace.seal(1, batch_of(map(quad, range(40, 80))))
    assert used == 0
    assert [trace.pay(20) for _ in range(9)] == [True] * 9
    assert 170 <= used <= 180
    trace.seal(2, batch_of([quad(99)]))
    assert 190 <= used <= 200, "the rest of the 40 rows, 5 values each"
    assert not trace.pay()
    assert 195 <= used <= 205
    assert not trace.pay()


def test_every_sn_that_is_kept_stays_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "FUEL_MIN", 1)
    trace = Trace("follows")
    for sn in range(1, 60):
        trace.seal(sn, batch_of([quad(sn)]))
        trace.keep_from(sn - 10)
        trace.keep_from(sn - 30)  # it never falls
        trace.pay()
        for kept in range(max(sn - 10, 0), sn + 1):
            assert len(trace.read(kept)) == kept
    assert trace.batch_count < 20
    with pytest.raises(CompactedError):
        trace.read(20)


def test_what_was_sealed_between_two_sns_is_kept_while_somebody_watches(trace: Trace) -> None:
    assert trace.between(5, 6) is None, "nobody watched"
    watcher = trace.watch()
    for sn in (8, 9, 11):
        trace.seal(sn, batch_of([quad(100 + sn)]))
    trace.merge_all()
    assert trace.batch_count == 1
    found = trace.between(8, 11)
    assert found is not None
    assert [(entry.lower, len(entry.batch)) for entry in found] == [(9, 1), (11, 1)]
    assert trace.between(11, 20) == ()
    watcher.sn = 9
    trace.forget_sealed()
    assert trace.between(8, 11) is None
    assert [entry.lower for entry in trace.between(9, 11) or ()] == [11]


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("deleted", [(), (3, 4)], ids=["additions", "tombstones"])
def test_a_merge_that_has_failed_is_done_anew(
    deleted: tuple[int, ...], error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Trace("follows", fuel_per_row=0)
    trace.seal(1, batch_of(map(quad, range(20))), fuel=0)
    trace.seal(2, batch_of(map(quad, range(20, 40))), batch_of(map(quad, deleted)), fuel=0)

    def fail(*_: object) -> int:
        raise error

    left = sorted(map(quad, {*range(40)} - {*deleted}))
    for _ in range(2):
        trace.work_apart(1)
        monkeypatch.setattr(merge_module, "merge_side", fail)
        with pytest.raises(error):
            trace.work_apart(1 << 20)
        monkeypatch.undo()
        assert len(trace.read(2)) == len(left)
    trace.work(1 << 20)
    assert trace.batch_count == 1
    assert quads_of(*trace.read(2).batches) == left
    assert not trace.merge_further(1 << 20), "there is nothing left to merge"


def test_a_merge_that_fails_does_not_hold_up_the_others(trace: Trace) -> None:
    trace.merge_further(1)
    trace.seal(7, batch_of(map(quad, range(30, 32))), fuel=0)
    trace.seal(8, batch_of(map(quad, range(40, 44))), fuel=0)
    first, *others = trace._merges
    assert others, "there are two merges at least"

    def fail(fuel: int) -> int:
        raise MemoryError

    first.merge.work = fail  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        trace.work_apart(1 << 20)
    assert first.merge.result is None
    assert all(other.merge.result is not None for other in others)
