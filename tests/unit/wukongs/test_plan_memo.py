"""PlanMemo: a plan is kept while sizes and ids hold."""

from __future__ import annotations

from csparql.algebra import Bgp, DatasetClause, TriplePattern
from csparql.plan import FilteredBgp
from csparql.terms import Term, Variable
from store.batch_set import BatchSet
from tests.property.test_plan import DEFAULT_ID, PREDICATES, term
from tests.quads import batch_of, spread
from wukongs import plan_layout as layout
from wukongs.dataset import Dataset
from wukongs.lowering import LoweredPlan
from wukongs.plan_memo import PlanMemo

S, END = Variable("s"), Variable("o")
BGP = Bgp((TriplePattern(S, term(PREDICATES[0]), END), TriplePattern(S, term(PREDICATES[1]), END)))


class Ids:
    """What names mean, which a collision may change."""

    def __init__(self) -> None:
        self.moved: dict[str, int] = {}

    def __call__(self, wanted: Term) -> int:
        name = wanted.text[1:-1]
        return self.moved.get(name, int(name) if name.isdigit() else DEFAULT_ID)


def dataset(first: int, second: int, ids: Ids) -> Dataset:
    """So many triples with the first predicate, and with the second."""
    quads = [(DEFAULT_ID, spread(i), PREDICATES[i >= first], spread(i + 1)) for i in range(first + second)]
    return Dataset(DatasetClause(), BatchSet.of((batch_of(quads),), True), {}, ids)


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
    assert 3 <= memo.planned_count <= 4


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
