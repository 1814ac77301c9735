"""OPTIONAL, MINUS, UNION, joins, groups and DISTINCT over windows follow what arrives and expires: lives of the mix of
the fuzzer for them, compared with pyoxigraph; and each rule, broken once, is caught."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.fuzz import SEED, TIER, scaled
from tests.fuzzing.continuous import MIXES, Tally, judged, lived
from wukongs.incremental import operators
from wukongs.incremental.counted import Counted
from wukongs.incremental.cuts import Cut
from wukongs.incremental.maintained import Part
from wukongs.incremental.operators import Flag, Joined
from wukongs.incremental.versions import Change
from wukongs.incremental.window_join import WindowJoin
from wukongs.incremental.zset import ZSet
from wukongs.live.engine_windows import StoredSince
from wukongs.query.rows import places_of
from wukongs.store.batch_set import EMPTY

LIVES = {"fast": 1, "ci": 3}.get(TIER) or scaled(12)
"""pyoxigraph takes up to a minute for one with LIMIT."""
LIVES_OF_MUTANTS = 12


def opened(seed: str, mix: str = "joins") -> tuple[list[str], int]:
    """Live one life; return what disagrees, and how many windows have followed their parts."""
    plan = MIXES[mix].make(random.Random(seed))
    found, used = lived(plan)
    return judged(plan, found, Tally(), mix), used[MIXES[mix].targets[0]]


@pytest.mark.parametrize("mix", ["joins", "exists", "stored", "ranked", pytest.param("limits", marks=pytest.mark.slow)])
def test_windows_are_those_of_pyoxigraph(mix: str) -> None:
    followed = 0
    for number in range(LIVES):
        disagreements, count = opened(f"{SEED or 0}/{number} follow", mix)
        assert not disagreements
        followed += count
    assert followed > 0 or TIER == "fast"


def expired_rows_stay(patch: pytest.MonkeyPatch) -> None:
    right = WindowJoin.change

    def change(self: WindowJoin, change: Any) -> ZSet:
        found = right(self, change)
        return found.take(np.flatnonzero(found.weights > 0))

    patch.setattr(WindowJoin, "change", change)


def partners_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    def change(self: Flag, change: Any) -> ZSet:
        left, right = self.children
        of_left, _ = left.change(change), right.change(change)
        return left_of(self, of_left, change)

    def left_of(flag: Flag, rows: ZSet, change: Any) -> ZSet:
        from wukongs.incremental.lookups import Side

        return flag._at(rows, change, Side.AFTER).consolidated()

    patch.setattr(Flag, "change", change)


def one_side_is_joined(patch: pytest.MonkeyPatch) -> None:
    from wukongs.incremental.lookups import Side

    def change(self: Joined, change: Any) -> ZSet:
        left, right = self.children
        of_left, _ = left.change(change), right.change(change)
        return right.matching(of_left, change, Side.AFTER).consolidated()

    patch.setattr(Joined, "change", change)


def distinct_rows_stay(patch: pytest.MonkeyPatch) -> None:
    right = Counted.change

    def change(self: Counted, change: Any) -> ZSet:
        found = right(self, change)
        return found.take(np.flatnonzero(found.weights > 0)) if self.is_distinct else found

    patch.setattr(Counted, "change", change)


def conditions_inside_of_exists_are_left_out(patch: pytest.MonkeyPatch) -> None:
    right = operators._partners
    patch.setattr(operators, "_partners", lambda pattern: None if (found := right(pattern)) is None else (found[0], ()))


def stored_graphs_stay(patch: pytest.MonkeyPatch) -> None:
    """Nothing is inserted or deleted in the stored graph."""
    right = StoredSince.change.fget
    assert right is not None

    def change(self: StoredSince) -> Change | None:
        found = right(self)
        return None if found is None else Change(found.before, found.after, EMPTY, EMPTY)

    patch.setattr(StoredSince, "change", property(change))


def stored_graphs_lose_nothing(patch: pytest.MonkeyPatch) -> None:
    right = StoredSince.change.fget
    assert right is not None

    def change(self: StoredSince) -> Change | None:
        found = right(self)
        return None if found is None else Change(found.before, found.after, found.inserted, EMPTY)

    patch.setattr(StoredSince, "change", property(change))


def deleted_rows_stay_among_the_first(patch: pytest.MonkeyPatch) -> None:
    right = Cut._moved
    patch.setattr(
        Cut,
        "_moved",
        lambda self, first, changed, stored: right(self, first, changed.take(places_of(changed.weights > 0)), stored),
    )


def limits_take_rows_up_as_they_were(patch: pytest.MonkeyPatch) -> None:
    """What LIMIT has kept before it was left out for some firings is taken for the content."""
    right = Cut.resume

    def resume(self: Cut, stored: Any) -> ZSet:
        return ZSet.of(self.solutions()) if self.solutions().variables else right(self, stored)

    patch.setattr(Cut, "resume", resume)
    patch.setattr(Cut, "forget", lambda self: None)


def parts_are_always_in_step(patch: pytest.MonkeyPatch) -> None:
    right = Part._followed

    def followed(self: Part, stored: Any, *, is_in_step: bool, wants_change: bool) -> Any:
        has_rows = any(join.moves is not None and not join.moves.is_anew for join in self.joins)
        return right(self, stored, is_in_step=has_rows, wants_change=wants_change)

    patch.setattr(Part, "_followed", followed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutate", "mix"),
    [
        (expired_rows_stay, "joins"),
        (partners_do_not_matter, "joins"),
        (one_side_is_joined, "joins"),
        (distinct_rows_stay, "joins"),
        (partners_do_not_matter, "exists"),
        (conditions_inside_of_exists_are_left_out, "exists"),
        (parts_are_always_in_step, "joins"),
        (stored_graphs_stay, "stored"),
        (stored_graphs_lose_nothing, "stored"),
        (deleted_rows_stay_among_the_first, "limits"),
        (deleted_rows_stay_among_the_first, "ranked"),
        (limits_take_rows_up_as_they_were, "ranked"),
    ],
)
def test_a_broken_rule_is_caught(
    monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None], mix: str
) -> None:
    mutate(monkeypatch)
    for number in range(LIVES_OF_MUTANTS):
        try:
            if opened(f"{number} follow", mix)[0]:
                return
        except AssertionError:
            return
    pytest.fail("all windows are right")
