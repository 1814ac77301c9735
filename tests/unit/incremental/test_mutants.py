"""Each rule of the operators, broken once, is caught by the comparison of test_views_follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.unit.incremental.test_views_follow import follow
from wukongs.incremental import cuts, operators
from wukongs.incremental.arranged import Arranged
from wukongs.incremental.groups import Grouped
from wukongs.incremental.leaves import DeltaJoin, Refresh
from wukongs.incremental.lookups import Explored, Kept, Side
from wukongs.incremental.versions import Change
from wukongs.incremental.zset import ZSet

SEEDS, SEEDS_OF_LIMIT = range(40), range(95, 100)


def all_at(side: Side) -> Callable[..., Any]:
    """Look all rows up at one end of the change."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        for kind in (Explored, Kept, Refresh):
            right = kind.matching
            patch.setattr(kind, "matching", lambda self, rows, change, _, right=right: right(self, rows, change, side))

    return mutate


def patterns_all_after(patch: pytest.MonkeyPatch) -> None:
    right = DeltaJoin.change

    def change(self: DeltaJoin, change: Change) -> ZSet:
        return right(self, Change(change.after, change.after, change.inserted, change.deleted))

    patch.setattr(DeltaJoin, "change", change)


def deletes_are_ignored(patch: pytest.MonkeyPatch) -> None:
    right = DeltaJoin.change
    patch.setattr(
        DeltaJoin,
        "change",
        lambda self, change: right(
            self, Change(change.before, change.after, change.inserted, type(change.deleted).of((), True))
        ),
    )


def without(kind: str, method: str, found: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(getattr(operators, kind), method, found)


def partners_never_change(patch: pytest.MonkeyPatch) -> None:
    def change(self: Any, change: Change) -> ZSet:
        left, right = self.children
        of_left, _ = left.change(change), right.change(change)
        found: ZSet = self._at(of_left, change, Side.AFTER)
        return found.consolidated()

    patch.setattr(operators.Flag, "change", change)


def groups_are_not_removed(patch: pytest.MonkeyPatch) -> None:
    def change(self: Any, change: Change) -> ZSet:
        (below,) = self.children
        changed = below.change(change)
        if not len(changed):
            return ZSet.empty()
        found: ZSet = self._reduced(below.after.with_keys(changed.table), change.after)
        return found.consolidated()

    patch.setattr(operators.Reduce, "change", change)


def content_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Kept, "change", lambda self, change: self.below.change(change))


def newest_level_is_not_looked_up(patch: pytest.MonkeyPatch) -> None:
    right = Arranged.with_keys
    patch.setattr(Arranged, "with_keys", lambda self, rows: right(Arranged(self.keys, self.levels[:1]), rows))


def refreshed_never(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(operators, "reads_of", lambda part, evaluation: lambda change: False)


def weights_are_dropped(patch: pytest.MonkeyPatch) -> None:
    right = ZSet.joined
    patch.setattr(ZSet, "joined", lambda self, other: ZSet.of(right(self, other).table))


def groups_keep_what_was_deleted(patch: pytest.MonkeyPatch) -> None:
    right = Grouped._moved
    patch.setattr(
        Grouped,
        "_moved",
        lambda self, rows, is_anew: right(self, rows.take(np.flatnonzero(rows.weights > 0)), is_anew=is_anew),
    )


def rows_behind_the_last_one_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cuts, "_last_of", lambda first, rows: rows.length - 1)


MUTANTS = (
    groups_keep_what_was_deleted,
    rows_behind_the_last_one_count,
    all_at(Side.AFTER),
    all_at(Side.BEFORE),
    patterns_all_after,
    deletes_are_ignored,
    partners_never_change,
    groups_are_not_removed,
    content_stays,
    newest_level_is_not_looked_up,
    refreshed_never,
    weights_are_dropped,
    without("Sum", "change", lambda self, change: self.children[0].change(change)),
    without("Existing", "change", lambda self, change: self._applied(self.children[0].change(change), change.after)),
    without("Cut", "change", lambda self, change: self.children[0].change(change)),
    without(
        "Joined",
        "change",
        lambda self, change: self.children[1].matching(self.children[0].change(change), change, Side.AFTER),
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("mutate", MUTANTS)
def test_a_broken_rule_is_caught(monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None]) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError, match=r"seed|Counter"):
        sum(map(follow, SEEDS_OF_LIMIT if mutate is rows_behind_the_last_one_count else SEEDS))
