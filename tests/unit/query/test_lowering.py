"""Lowering: plan steps as rows of operands."""

from __future__ import annotations

import pytest

from tests.property.test_plan import DEFAULT_ID, PREDICATES, VERTICES, resolve, term
from tests.quads import batch_of
from wukongs.csparql.algebra import DEFAULT, DatasetClause, GraphRef, TriplePattern
from wukongs.csparql.plan import PlanStep
from wukongs.csparql.terms import Term, Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.plans import plan_layout as layout
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.lowered_plan import LoweredPlan
from wukongs.query.plans.lowering import lower, with_parts
from wukongs.query.plans.plan_runner import run
from wukongs.store.batch import Batch
from wukongs.store.batch_set import BatchSet

A, B, C = VERTICES[:3]
P = term(PREDICATES[0])
X, Y, G = Variable("x"), Variable("y"), Variable("g")
DATASET = Dataset(
    DatasetClause(),
    BatchSet.of((batch_of([(DEFAULT_ID, A, PREDICATES[0], B)]), batch_of([(DEFAULT_ID, B, PREDICATES[0], C)])), True),
    {},
    resolve,
)


def step(subject: object, predicate: object, object_: object, graph: GraphRef = DEFAULT, way: str = "out") -> PlanStep:
    return PlanStep(TriplePattern(subject, predicate, object_, graph), way, 1.0)  # type: ignore[arg-type]


def operands(plan: LoweredPlan, at: int = 0) -> list[tuple[int, int]]:
    """(kind, reference) of key, predicate, value and graph."""
    columns = (layout.KEY_KIND, layout.PREDICATE_KIND, layout.VALUE_KIND, layout.GRAPH_KIND)
    return [(int(plan.steps[at, c]), int(plan.steps[at, c + 1])) for c in columns]


def test_the_first_use_of_a_variable_fills_its_column() -> None:
    plan = lower([step(X, P, Y), step(Y, P, X)], (), DATASET)
    assert plan.variables == (X, Y)
    predicate = (layout.CONSTANT, PREDICATES[0])
    assert operands(plan, 0) == [(layout.NEW, 0), predicate, (layout.NEW, 1), (layout.ANY, 0)]
    assert operands(plan, 1) == [(layout.BOUND, 1), predicate, (layout.BOUND, 0), (layout.ANY, 0)]


def test_the_seeds_come_first() -> None:
    plan = lower([step(X, P, Y)], (Y,), DATASET)
    assert plan.variables == (Y, X)
    assert plan.steps[0, layout.DIRECTION] == 1
    assert operands(plan)[0] == (layout.BOUND, 0)


def test_a_repeat_within_one_pattern_is_compared() -> None:
    plan = lower([step(X, X, X, X)], (), DATASET)
    assert operands(plan) == [(layout.NEW, 0), (layout.SAME, 0), (layout.SAME, 0), (layout.SAME, 0)]
    assert operands(lower([step(X, X, X, G)], (X,), DATASET)) == [
        (layout.BOUND, 0),
        (layout.BOUND, 0),
        (layout.BOUND, 0),
        (layout.NEW, 1),
    ]


@pytest.mark.parametrize(
    ("subject", "object_", "way", "direction"),
    [
        (term(A), Y, "in", 0),
        (X, term(A), "out", 1),
        (term(A), term(B), "out", 0),
        (term(A), term(B), "in", 1),
        (X, Y, "out", 0),
        (X, Y, "in", 1),
    ],
)
def test_only_a_bound_end_is_looked_up(subject: object, object_: object, way: str, direction: int) -> None:
    plan = lower([step(subject, P, object_, way=way)], (), DATASET)
    assert plan.steps[0, layout.DIRECTION] == direction


def test_parts_are_the_batches_that_the_dataset_has_now() -> None:
    plan = lower([step(X, P, Y), step(Y, P, X), step(X, P, Y, Term("<of no data>"))], (), DATASET)
    steps, parts = with_parts(plan, DATASET)
    assert steps[:, layout.PARTS_FROM].tolist() == [0, 2, 4]
    assert steps[:, layout.PARTS_TO].tolist() == [2, 4, 6]
    assert steps[:, layout.UNION].tolist() == [0, 0, 0]
    assert parts.shape == (6, layout.PART_WIDTH)
    assert not plan.steps[:, layout.PARTS_TO].any(), "the plan itself is kept for other datasets"


def test_tables_are_laid_out_anew_only_for_a_dataset_of_another_shape() -> None:
    batch = batch_of([(DEFAULT_ID, A, PREDICATES[0], B)])
    gone = batch_of([(DEFAULT_ID, A, PREDICATES[0], B)])

    def over(*batches: Batch, disjoint: bool = True, tombstones: tuple[Batch | None, ...] = ()) -> Dataset:
        return Dataset(DatasetClause(), BatchSet.of(batches, disjoint, tombstones), {}, resolve)

    plan = lower([step(X, P, Y)], (), DATASET)
    steps, parts = with_parts(plan, over(batch))
    again, also = with_parts(plan, over(batch_of([(DEFAULT_ID, B, PREDICATES[0], A)])))
    assert again is steps
    assert also is parts
    two, parts_of_two = with_parts(plan, over(batch, batch))
    assert parts_of_two[:, layout.PART_BATCH].tolist() == [0, 1]
    assert two[0, layout.PARTS_TO] == 2
    assert steps[0, layout.PARTS_TO] == 1, "whoever still runs the first is not disturbed"
    overlapping, _ = with_parts(plan, over(batch, batch, disjoint=False))
    assert overlapping[0, layout.UNION] == 1
    hiding, _ = with_parts(plan, over(batch, batch_of([]), tombstones=(None, gone)))
    assert hiding[0, layout.HIDING] == 1
    assert hiding[0, layout.UNION] == 0


@pytest.mark.parametrize("way", ["in", "out"])
@pytest.mark.parametrize("graph", [DEFAULT, G])
@pytest.mark.parametrize("place", ["subject", "predicate", "object"])
def test_a_term_that_no_data_can_have_matches_nothing(place: str, graph: GraphRef, way: str) -> None:
    """Its id is no id: it must not be taken for `not known yet`, wherever it stands."""
    stored = BatchSet.of((batch_of([(graph_id, A, PREDICATES[0], B) for graph_id in (DEFAULT_ID, C)]),), True)
    dataset = Dataset(DatasetClause(), stored, {}, resolve)
    nothing = Term("<of no data>")
    pattern = {"subject": term(A), "predicate": P, "object": term(B)}
    known = run(lower([step(*pattern.values(), graph, way)], (), dataset), BindingTable.unit(), dataset, Limits())
    assert known.length == 1
    plan = lower([step(*{**pattern, place: nothing}.values(), graph, way)], (), dataset)
    assert plan.is_void
    assert run(plan, BindingTable.unit(), dataset, Limits()).length == 0
