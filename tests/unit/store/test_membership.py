"""Which stream batches have brought tuples last: against dictionaries."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tests.fuzz import SEED
from wukongs.store import membership
from wukongs.store.layout import NEVER
from wukongs.store.membership import Membership
from wukongs.store.membership_kernels import may_have_come_again, times_of
from wukongs.store.slice_ring import SliceRing

pytestmark = pytest.mark.nojit

P, Q = 5, 6
NONE = np.empty(0, np.int64)


def add(ring: SliceRing, number: int, tuples: list[tuple[int, int, int]]) -> None:
    columns = np.array(tuples, np.int64).reshape(-1, 3).T
    subjects, predicates, objects = (np.ascontiguousarray(column) for column in columns)
    ring.add(number, subjects, predicates, objects, np.full(len(subjects), number, np.int64), NONE)


def found_of(table: Membership, subject: int, object_: int) -> tuple[int | None, int | None]:
    newest, before = times_of(table.address, np.int64(subject), np.int64(object_))
    return None if newest == NEVER else int(newest), None if before == NEVER else int(before)


def rows_of(parts: list[npt.NDArray[np.int64]]) -> list[tuple[int, int]]:
    return [(int(subject), int(object_)) for part in parts for subject, object_ in part]


@pytest.mark.parametrize("waiting_min", [0, 8, 1000])
def test_random_streams(monkeypatch: pytest.MonkeyPatch, waiting_min: int) -> None:
    """Windows move by one to four stream batches at a time; most are looked at, few tuples make repeats likely. Tables
    are small, so that entries are forgotten; slices wait, are noted in idle time or with the next one."""
    monkeypatch.setattr(membership, "ENTRIES_MIN", 2)
    monkeypatch.setattr(membership, "WAITING_TUPLES_MIN", waiting_min)
    rng = np.random.default_rng(SEED)
    for _ in range(20):
        ring, table = SliceRing(), Membership(P)
        came: dict[tuple[int, int], list[int]] = {}
        reach, number = int(rng.integers(1, 12)), 0
        before: int | None = None
        windows: dict[int, set[tuple[int, int]]] = {}
        noted: dict[tuple[int, int], int | None] = {}
        for _ in range(60):
            for _ in range(int(rng.integers(1, 5))):
                number += 1
                tuples = rng.integers(1, 6, (int(rng.integers(0, 12)), 3))
                tuples[:, 1] = rng.choice([P, P, Q], len(tuples))
                add(ring, number, [tuple(row) for row in tuples.tolist()])
                for subject, predicate, object_ in tuples.tolist():
                    if predicate == P:
                        came.setdefault((subject, object_), []).append(number)
            if rng.random() < 0.1:
                continue
            after = number - reach
            windows[number] = {one for one, numbers in came.items() if any(after < n <= number for n in numbers)}
            assert table.stand(ring, after, number)
            assert not table.stand(ring, after - 1, number - 1), "it does not go back"
            for subject in range(1, 6):
                for object_ in range(1, 6):
                    numbers = [one for one in came.get((subject, object_), []) if one > after]
                    newest, earlier = found_of(table, subject, object_)
                    last = noted.get((subject, object_))
                    if before is not None and last is not None and newest != last > before - reach:
                        assert may_have_come_again(table.address, subject, object_)
                    noted[subject, object_] = newest
                    assert (newest if newest is not None and newest > after else None) == max(numbers, default=None)
                    if before is not None and numbers and max(numbers) > before:
                        held = [one for one in came[subject, object_] if table.since < one <= before]
                        assert earlier is None or earlier in came[subject, object_]
                        if held and held[-1] > before - reach:
                            assert earlier == held[-1]
            assert table.epoch == before
            if rng.random() < 0.5:
                table.note()
                if before is not None and before >= after and table.epoch == before:
                    arrived = rows_of(table.arrived(ring, before, number, before - reach))
                    expired = rows_of(table.expired(ring, before - reach, after))
                    assert sorted(arrived) == sorted(windows[number] - windows[before])
                    assert sorted(expired) == sorted(windows[before] - windows[number])
            before = number


@pytest.mark.parametrize("step", [1, 3])
def test_the_change_of_a_window(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of two sizes are asked for, the wider one now and then; some stream batches have no tuple."""
    monkeypatch.setattr(membership, "ENTRIES_MIN", 2)
    monkeypatch.setattr(membership, "WAITING_TUPLES_MIN", 8)
    rng = np.random.default_rng(SEED)
    whole = 0
    for _ in range(40):
        ring, table = SliceRing(), Membership(P)
        held: dict[int, set[tuple[int, int]]] = {}
        reach, before = 3 * step, None
        for number in range(1, 40):
            tuples = [(int(a), P, int(b)) for a, b in rng.integers(1, 6, (int(rng.integers(0, 12)), 2))]
            if rng.random() < 0.1:
                tuples = []
            add(ring, number, tuples)
            held[number] = {(subject, object_) for subject, _, object_ in tuples}
            if number % step:
                continue
            if rng.random() < 0.1:
                assert table.stand(ring, number - 2 * reach, number)
            assert table.stand(ring, number - reach, number)
            now, then = (
                set().union(*(held.get(k, set()) for k in range(at - reach + 1, at + 1)))
                for at in (number, number - step)
            )
            for subject in range(1, 6):
                for object_ in range(1, 6):
                    newest, _ = found_of(table, subject, object_)
                    numbers = [k for k in held if (subject, object_) in held[k] and k > number - reach]
                    assert (newest if newest is not None and newest > number - reach else None) == max(
                        numbers, default=None
                    )
            if before is not None and table.epoch == before:
                whole += 1
                table.note()
                assert sorted(rows_of(table.arrived(ring, before, number, before - reach))) == sorted(now - then)
                assert sorted(rows_of(table.expired(ring, before - reach, number - reach))) == sorted(then - now)
            before = number
    assert whole > 100


def test_a_window_that_reaches_back_further_begins_anew() -> None:
    ring, table = SliceRing(), Membership(P)
    for number in range(1, 9):
        add(ring, number, [(number, P, 1)])
    assert table.stand(ring, 6, 8)
    assert (table.since, table.epoch) == (6, None)
    assert table.stand(ring, 2, 8)
    assert (table.since, table.epoch) == (2, None)
    assert [found_of(table, number, 1)[0] for number in range(1, 9)] == [None, None, 3, 4, 5, 6, 7, 8]


def test_tables_are_bounded_by_what_windows_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    ring, table = SliceRing(), Membership(P)
    for number in range(1, 200):
        add(ring, number, [(1000 * number + one, P, 1) for one in range(100)])
        assert table.stand(ring, number - 3, number)
        assert len(table.table) <= 2048
    monkeypatch.setattr(membership, "ENTRIES_MAX", 1024)
    other = Membership(P)
    assert not other.stand(ring, 0, 199)
    assert not other.stand(ring, 198, 199), "it is given up for good"
    assert len(other.table) == 1024
