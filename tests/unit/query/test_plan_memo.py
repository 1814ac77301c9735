"""PlanMemo: a plan is kept while sizes and ids hold."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache

import pytest

from tests.property.test_plan import DEFAULT_ID, PREDICATES, term
from tests.quads import batch_of, spread
from wukongs.csparql.algebra import DEFAULT, Bgp, DatasetClause, PathPattern, StreamWindow, TriplePattern
from wukongs.csparql.paths import ZeroOrMore
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.terms import Term, Variable
from wukongs.query.plans import plan_layout as layout
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.lowered_plan import LoweredPlan
from wukongs.query.plans.plan_memo import FAR_FACTOR, PlanMemo
from wukongs.query.plans.plan_versions import PATIENCE, VERSIONS_MAX
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import WINDOW_GRAPH

S, END = Variable("s"), Variable("o")
BGP = Bgp((TriplePattern(S, term(PREDICATES[0]), END), TriplePattern(S, term(PREDICATES[1]), END)))


class Ids:
    """The ids of names, which a collision may change."""

    def __init__(self) -> None:
        self.moved: dict[str, int] = {}

    def __call__(self, wanted: Term) -> int:
        name = wanted.text[1:-1]
        return self.moved.get(name, int(name) if name.isdigit() else DEFAULT_ID)


def dataset(first: int, second: int, ids: Ids) -> Dataset:
    """So many triples with the first predicate, and with the second."""
    quads = [(DEFAULT_ID, spread(i), PREDICATES[i >= first], spread(i + 1)) for i in range(first + second)]
    return Dataset(DatasetClause(), BatchSet.of((batch_of(quads),), True), {}, ids)


@cache
def window_of(count: int) -> BatchSet:
    return BatchSet.of(
        (batch_of([(WINDOW_GRAPH, spread(i), PREDICATES[0], spread(i + 1)) for i in range(count)]),), True
    )


def windows_of(counts: Mapping[Term, int]) -> Dataset:
    """Named windows, each with so many triples of the first predicate."""
    sets = {StreamWindow(name.text[1:-1], 1, 1, True): window_of(count) for name, count in counts.items()}
    return Dataset(DatasetClause(windows=tuple(sets)), BatchSet.of((), True), sets, Ids())


def lowered(memo: PlanMemo, bound: tuple[Variable, ...], rows: int, data: Dataset) -> LoweredPlan:
    (segment,) = memo.route(FilteredBgp(BGP), bound, rows, data).segments
    return segment.lowered


def test_a_plan_is_made_once_for_sizes_that_are_close() -> None:
    memo, ids = PlanMemo(), Ids()
    plans = [lowered(memo, (), 1, dataset(n, 1, ids)) for n in (5, 6, 7, 6)]
    assert memo.planned_count == 1
    assert all(plan is plans[0] for plan in plans)


def test_a_plan_follows_the_sizes() -> None:
    memo, ids = PlanMemo(), Ids()
    rare_second = lowered(memo, (), 1, dataset(100, 3, ids))
    rare_first = lowered(memo, (), 1, dataset(30, 3000, ids))
    assert memo.planned_count == 2
    assert rare_second.steps[0, layout.PREDICATE] == PREDICATES[1]
    assert rare_first.steps[0, layout.PREDICATE] == PREDICATES[0]


def test_slow_growth_is_noticed_in_the_end() -> None:
    memo, ids = PlanMemo(), Ids()
    for n in range(1, 70):
        lowered(memo, (), 1, dataset(n, 1, ids))
    assert memo.planned_count == 5  # of 2, 5, 11, 23, 47 triples


def test_a_window_that_goes_up_and_down_is_planned_once_for_each_of_its_sizes() -> None:
    memo, ids = PlanMemo(), Ids()
    swing = [dataset(n, 1, ids) for n in (1, 9, 70, 300, 40, 5)]
    for at in range(1000):
        lowered(memo, (), 1, swing[at % len(swing)])
    assert memo.planned_count == 4  # 40 triples are explored as 70 are, 5 as 9


def test_sizes_that_always_come_new_are_planned_now_and_then() -> None:
    """Four windows whose sizes jump by themselves: more combinations than versions are kept."""
    memo, rng = PlanMemo(), random.Random(5)
    names = [term(number) for number in range(4)]
    bgp = Bgp(tuple(TriplePattern(S, term(PREDICATES[0]), END, name) for name in names))
    for _ in range(1000):
        memo.route(FilteredBgp(bgp), (), 1, windows_of({name: 8 ** rng.randint(0, 3) for name in names}))
    assert VERSIONS_MAX < memo.planned_count <= VERSIONS_MAX + 1000 // PATIENCE


def test_a_registered_query_runs_the_plan_there_is_until_it_is_renewed() -> None:
    memo, ids = PlanMemo(is_patient=True), Ids()
    first = lowered(memo, (), 1, dataset(10, 2, ids))
    assert not memo.is_stale
    assert lowered(memo, (), 1, dataset(2, 60, ids)) is first
    assert (memo.is_stale, memo.planned_count) == (True, 1)
    memo.renew()
    assert (memo.is_stale, memo.planned_count) == (False, 2)
    renewed = lowered(memo, (), 1, dataset(2, 60, ids))
    assert [plan.steps[0, layout.PREDICATE] for plan in (first, renewed)] == [PREDICATES[1], PREDICATES[0]]
    assert (memo.is_stale, memo.planned_count) == (False, 2)


def test_what_has_grown_far_does_not_wait() -> None:
    memo, ids = PlanMemo(is_patient=True), Ids()
    lowered(memo, (), 1, dataset(10, 2, ids))
    lowered(memo, (), 1, dataset(12 * FAR_FACTOR, 1, ids))
    assert (memo.is_stale, memo.planned_count) == (False, 2)


def test_a_plan_that_cannot_be_made_anew_leaves_the_old_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memo, ids = PlanMemo(is_patient=True), Ids()
    first = lowered(memo, (), 1, dataset(10, 2, ids))
    lowered(memo, (), 1, dataset(40, 2, ids))
    monkeypatch.setattr("wukongs.query.plans.plan_memo.plan_filtered", lambda *_: 1 / 0)
    memo.renew()
    assert "a plan could not be made anew" in caplog.text
    assert lowered(memo, (), 1, dataset(40, 2, ids)) is first


def test_the_rows_to_start_from_are_sizes_too() -> None:
    memo, ids = PlanMemo(), Ids()
    data = dataset(5, 5, ids)
    assert lowered(memo, (S,), 100, data) is lowered(memo, (S,), 190, data)
    assert lowered(memo, (S,), 10, data) is not lowered(memo, (S,), 100, data)
    assert memo.planned_count == 2


def test_an_order_follows_the_sizes() -> None:
    """Three products: which of them comes first is settled by their sizes, whichever these are by now."""
    memo, one, other = PlanMemo(), term(1), term(2)
    parts = [Bgp((TriplePattern(Variable(f"s{at}"), term(PREDICATES[0]), END, at),)) for at in (one, other)]
    path = PathPattern(Variable("x"), ZeroOrMore(term(PREDICATES[1])), Variable("y"), DEFAULT)
    for first, second, expected in ((9, 300, 0), (300, 9, 1), (8, 310, 0), (500, 300, 1)):
        order = memo.order((parts[0], path, parts[1]), frozenset(), 1, windows_of({one: first, other: second}))
        assert next(part for part in order if part in parts) == parts[expected], (first, second)


def test_bound_variables_have_plans_of_their_own() -> None:
    memo, ids = PlanMemo(), Ids()
    data = dataset(5, 5, ids)
    assert lowered(memo, (S,), 1, data).variables[0] == S
    assert lowered(memo, (END,), 1, data).variables[0] == END
    assert lowered(memo, (), 1, data) is lowered(memo, (), 9, data)
    assert memo.planned_count == 3


def test_a_constant_with_a_new_id_is_lowered_again_and_not_planned_again() -> None:
    memo, ids = PlanMemo(), Ids()
    before = lowered(memo, (), 1, dataset(5, 5, ids))
    ids.moved[str(PREDICATES[0])] = 4444
    after = lowered(memo, (), 1, dataset(5, 5, ids))
    assert memo.planned_count == 1
    assert PREDICATES[0] in before.steps[:, layout.PREDICATE]
    assert 4444 in after.steps[:, layout.PREDICATE]
    assert PREDICATES[0] not in after.steps[:, layout.PREDICATE]
