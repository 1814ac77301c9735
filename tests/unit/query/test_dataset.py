"""Dataset: what each graph of a query stands for, and what the planner is told of it (answers: property/test_plan)."""

from __future__ import annotations

import random

import pytest

from tests.property.test_plan import DEFAULT_ID, GRAPHS, NAMES, PREDICATES, VERTICES, resolve, term
from tests.property.test_slice_ring import add
from tests.quads import Quad, batch_of, spread
from wukongs.csparql.algebra import DEFAULT, DatasetClause, StreamWindow, TriplePattern
from wukongs.csparql.terms import Term, Variable
from wukongs.query.plans.cardinalities import DatasetCardinalities
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_layout import ALL_NAMED, FROM_DIRECTORY
from wukongs.store.batch_set import BatchSet
from wukongs.store.slice_ring import SliceRing

A, B, C = VERTICES[:3]
P = PREDICATES[0]
NAMED = GRAPHS[1]
QUADS: list[Quad] = [(DEFAULT_ID, A, P, B), (DEFAULT_ID, A, P, C), (NAMED, B, P, C)]
WINDOW = StreamWindow("777", 200, 100, False)


def stored() -> BatchSet:
    return BatchSet.of((batch_of(QUADS[:1]), batch_of(QUADS[1:])), True)


def windowed(clause: DatasetClause) -> Dataset:
    """Two stream batches, both with A P B, the second with A P C too."""
    ring = SliceRing()
    add(ring, 1, [((A, P, B), 1)])
    add(ring, 2, [((A, P, B), 2), ((A, P, C), 2)])
    return Dataset(clause, stored(), {window: ring.window(0, 2) for window in clause.windows}, resolve)


def test_all_batches_stand_in_one_table() -> None:
    dataset = windowed(DatasetClause(default_graphs=(str(DEFAULT_ID),), windows=(WINDOW,)))
    parts, united = dataset.parts(DEFAULT), dataset.source(DEFAULT).united
    assert united
    assert parts[:, 0].tolist() == [0, 1, 2, 3]
    assert parts[:, 1].tolist() == [DEFAULT_ID, DEFAULT_ID, 0, 0]
    assert len(dataset.descriptors) == 4
    assert dataset.shape(DEFAULT) is dataset.shape(DEFAULT), "worked out once"


def test_without_a_clause_a_graph_variable_is_any_named_graph() -> None:
    dataset = Dataset(DatasetClause(), stored(), {}, resolve)
    parts, united = dataset.parts(Variable("g")), dataset.source(Variable("g")).united
    assert not united
    assert {tuple(row) for row in parts[:, 1:].tolist()} == {(ALL_NAMED, FROM_DIRECTORY)}
    assert dataset.named_graphs().tolist() == [NAMED]
    assert dataset.is_named(term(NAMED))
    assert not dataset.is_named(term(DEFAULT_ID))
    assert not dataset.is_named(term(A))


def test_a_clause_is_exact() -> None:
    dataset = Dataset(DatasetClause(named_graphs=(str(NAMED), "nowhere")), stored(), {}, resolve)
    assert len(dataset.parts(DEFAULT)) == 0
    assert len(dataset.parts(term(DEFAULT_ID))) == 0
    assert len(dataset.parts(term(NAMED))) == 2
    assert dataset.is_named(term(NAMED))
    assert dataset.is_named(Term("<nowhere>")), "a declared graph is there, if empty"
    assert dataset.declared_names() == [str(NAMED), "nowhere"]


@pytest.mark.parametrize("named", [False, True])
def test_a_stream_is_reached_by_graph_declared_either_way(named: bool) -> None:
    window = StreamWindow("777", 200, 100, named)
    dataset = windowed(DatasetClause(windows=(window,)))
    assert len(dataset.parts(Term("<777>"))) == 2
    assert len(dataset.parts(DEFAULT)) == (0 if named else 2)
    assert dataset.named_graphs().tolist() == ([NAMES["<777>"]] if named else [])
    assert len(dataset.parts(Variable("g"))) == (2 if named else 0)
    assert len(dataset.parts(term(NAMED))) == 0


def test_the_planner_is_told_exact_counts_of_disjoint_batches() -> None:
    sizes = DatasetCardinalities(Dataset(DatasetClause(), stored(), {}, resolve))
    predicate = term(P)
    assert sizes.edges(DEFAULT, predicate) == 2
    assert sizes.keys(DEFAULT, predicate, "out") == 1, "A stands in both batches"
    assert sizes.keys(DEFAULT, predicate, "in") == 2
    assert sizes.degree(DEFAULT, predicate, "out", term(A)) == 2
    assert sizes.degree(DEFAULT, predicate, "in", term(C)) == 1
    assert sizes.degree(DEFAULT, predicate, "in", term(A)) == 0
    assert sizes.edges(Variable("g"), predicate) == 1
    assert sizes.degree(Variable("g"), predicate, "out", term(B)) == 1
    assert sizes.edges(term(NAMED), predicate) == 1
    assert sizes.edges(term(A), predicate) == 0
    assert sizes.edges(DEFAULT, Term("<of no data>")) == 0
    assert sizes.edges(DEFAULT, None) == 2, "any predicate, of this graph alone"
    assert sizes.keys(DEFAULT, None, "out") == 2
    assert sizes.degree(DEFAULT, None, "out", term(A)) == 2
    assert sizes.degree(DEFAULT, None, "in", term(C)) == 1
    assert sizes.degree(DEFAULT, None, "out", Term("<of no data>")) == 0
    assert sizes.edges(Variable("g"), None) == 1
    assert sizes.degree(Variable("g"), None, "out", term(B)) == 1
    assert sizes.degree(Variable("g"), None, "out", term(A)) == 0


def classes(count: int) -> list[Quad]:
    """So many subjects with a P and a kind, which is B for every third; the P of even ones leads to A."""
    rng = random.Random(3)
    subjects = [rng.randrange(1 << 62) << 1 for _ in range(count)]  # ids are hashes
    kinds = [(DEFAULT_ID, s, PREDICATES[1], B if i % 3 == 0 else C) for i, s in enumerate(subjects)]
    links = [(DEFAULT_ID, s, P, A if i % 2 == 0 else spread(9000 + i)) for i, s in enumerate(subjects)]
    return rng.sample(kinds + links, 2 * count)


@pytest.mark.parametrize(("count", "tolerance"), [(12, 0.0), (6000, 0.2)])
@pytest.mark.parametrize("batches", [1, 3])
def test_the_planner_is_told_which_share_passes_a_check(count: int, tolerance: float, batches: int) -> None:
    """Exactly of few values, of many from a few of them: they are tried."""
    quads, x, y = classes(count), Variable("x"), Variable("y")
    cut = [batch_of(quads[at::batches]) for at in range(batches)]
    sizes = DatasetCardinalities(Dataset(DatasetClause(), BatchSet.of(tuple(cut), True), {}, resolve))
    found = TriplePattern(x, term(P), y)

    def share(found: TriplePattern, kind: int) -> float | None:
        return sizes.share(found, x, TriplePattern(x, term(PREDICATES[1]), term(kind)))

    assert share(found, B) == pytest.approx(1 / 3, abs=tolerance)
    assert share(found, C) == pytest.approx(2 / 3, abs=tolerance)
    assert share(TriplePattern(x, term(P), term(A)), B) == pytest.approx(1 / 3, abs=tolerance), (
        "of those that lead to A"
    )
    assert share(found, A) == 0.5 / min(count, 64), "none of those that were tried"
    assert share(TriplePattern(x, term(A), y), B) is None, "there is nothing to try"
    backwards = TriplePattern(y, term(PREDICATES[1]), x)
    to_a = TriplePattern(x, term(P), term(A))
    assert sizes.share(backwards, x, to_a) == (0.5 / 2 if count == 12 else None), "two kinds, seen again and again"


def test_counts_over_a_window_are_upper_bounds() -> None:
    sizes = DatasetCardinalities(windowed(DatasetClause(windows=(WINDOW,))))
    assert sizes.edges(DEFAULT, term(P)) == 3
    assert sizes.degree(DEFAULT, term(P), "in", term(B)) == 2


def test_a_stored_default_graph_is_named_like_any_other() -> None:
    dataset = Dataset(DatasetClause(default_graphs=("urn:x-wukongs:default",)), stored(), {}, resolve)
    assert set(dataset.parts(DEFAULT)[:, 1].tolist()) == {DEFAULT_ID}
    assert spread(0) == A


def test_many_named_graphs_are_counted_together() -> None:
    """The answer is the same as if each were asked; only a constant's degree is then taken from some of them."""
    graphs = [spread(1000 + i) for i in range(100)]
    quads: list[Quad] = [(graph, A, P, B) for graph in graphs] + [(graphs[0], A, P, C), (DEFAULT_ID, A, P, C)]
    dataset = Dataset(DatasetClause(), BatchSet.of((batch_of(quads),), True), {}, resolve)
    sizes = DatasetCardinalities(dataset)
    assert dataset.named_graphs().tolist() == sorted(graphs)
    assert sizes.edges(Variable("g"), term(P)) == 101
    assert sizes.keys(Variable("g"), term(P), "out") == 100
    assert sizes.keys(Variable("g"), term(P), "in") == 101
    assert sizes.degree(Variable("g"), term(P), "out", term(A)) == pytest.approx(101, rel=0.05)
    assert sizes.degree(Variable("g"), term(P), "in", term(B)) == pytest.approx(100, rel=0.05)
    assert sizes.degree(Variable("g"), term(P), "in", term(C)) == 1
    assert sizes.degree(Variable("g"), term(P), "out", term(spread(77))) == 0
    assert sizes.edges(Variable("g"), term(C)) == 0
