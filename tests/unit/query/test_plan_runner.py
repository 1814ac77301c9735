"""The runner of plans: limits, buffers that grow, threads (matches: tests/property/test_plan.py)."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from tests.property.test_plan import DEFAULT_ID, LITERALS, PREDICATES, VERTICES, resolve, shrink_buffers, term
from tests.quads import batch_of, spread
from wukongs.csparql.algebra import DEFAULT, DatasetClause, StreamWindow, TriplePattern
from wukongs.csparql.plan import PlanStep
from wukongs.csparql.terms import Variable
from wukongs.errors import BudgetExceeded, QueryTimeout
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.plans import plan_layout, plan_runner
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.lowering import lower
from wukongs.query.plans.plan_runner import run
from wukongs.store.batch_set import BatchSet

S, P, END, X, Y = (Variable(name) for name in "spoxy")
SCAN = PlanStep(TriplePattern(S, term(PREDICATES[0]), END), "out", 1.0)
AGAIN = PlanStep(TriplePattern(S, term(PREDICATES[0]), X), "out", 1.0)
THIRD = PlanStep(TriplePattern(S, term(PREDICATES[0]), Y), "out", 1.0)


def fan(n: int) -> Dataset:
    """One subject with n objects: two steps make n * n rows."""
    quads = [(DEFAULT_ID, spread(0), PREDICATES[0], spread(i)) for i in range(n)]
    return Dataset(DatasetClause(), BatchSet.of((batch_of(quads),), True), {}, resolve)


def rows_of(dataset: Dataset, limits: Limits, rows_wanted: int | None = None, *steps: PlanStep) -> BindingTable:
    return run(lower(steps or (SCAN, AGAIN), (), dataset), BindingTable.unit(), dataset, limits, rows_wanted)


def test_all_rows_come_through_small_buffers() -> None:
    found = rows_of(fan(200), Limits())
    assert found.length == 40_000
    assert len(set(zip(*(column.tolist() for column in found.columns), strict=True))) == 40_000


def test_too_many_rows_are_refused_by_name() -> None:
    with pytest.raises(BudgetExceeded, match="pattern would hold 12288 rows or more, the limit is rows_max = 10000"):
        rows_of(fan(200), Limits(rows_max=10_000))
    assert rows_of(fan(100), Limits(rows_max=10_000)).length == 10_000


def test_a_query_past_its_deadline_is_stopped() -> None:
    begun = time.monotonic()
    with pytest.raises(QueryTimeout, match=r"longer than timeout_s = 0.25, at last in the query: give it more time"):
        rows_of(fan(4000), Limits(10**12, time.monotonic() - 1, 0.25), None, SCAN, AGAIN, THIRD)
    assert time.monotonic() - begun < 20


def test_a_step_that_matches_nothing_comes_up_for_air(monkeypatch: pytest.MonkeyPatch) -> None:
    """One triple in a row, `?s :p ?s`: nothing is ever written, and still each call looks at a bounded part."""
    dataset = fan(40_000)
    itself = PlanStep(TriplePattern(S, term(PREDICATES[0]), S), "out", 1.0)
    backward = PlanStep(TriplePattern(S, term(PREDICATES[0]), S), "in", 1.0)
    known = PlanStep(TriplePattern(END, term(PREDICATES[1]), X), "out", 1.0)
    monkeypatch.setattr(plan_runner, "FUEL", plan_layout.FUEL_OF_CHUNK)
    monkeypatch.setattr(plan_runner, "CHUNKS_PER_CALL", 8)
    kernel = plan_runner.run_plan
    for steps in ([itself], [backward], [SCAN, known]):
        calls: list[int] = []
        monkeypatch.setattr(plan_runner, "run_plan", lambda *args, calls=calls: calls.append(1) or kernel(*args))
        assert rows_of(dataset, Limits(), None, *steps).length <= 1  # one of them leads to itself
        assert len(calls) >= 40_000 // (8 * plan_layout.FUEL_OF_CHUNK)
        assert len(calls) < 200


def test_rows_wanted_end_the_run_early() -> None:
    found = rows_of(fan(3000), Limits(), 10)
    assert 10 <= found.length < 3000 * 3000


def test_no_seed_no_row() -> None:
    dataset = fan(3)
    seeds = BindingTable((S,), (np.empty(0, np.int64),), 0)
    found = run(lower([SCAN], (S,), dataset), seeds, dataset, Limits())
    assert (found.length, found.variables) == (0, (S, END))


@pytest.mark.parametrize("is_united", [False, True])
def test_a_directory_of_many_rows_needs_many_spans(monkeypatch: pytest.MonkeyPatch, is_united: bool) -> None:
    """More than 2**15 predicates: wide codes, and more spans than there is room for at first, from all ends."""
    n = 2**15 + 7
    wanted = {2 * i + 6 for i in range(n)}
    quads = [(0, VERTICES[0], predicate, LITERALS[0]) for predicate in sorted(wanted)]
    batches = (batch_of(quads), batch_of(quads[-3:])) if is_united else (batch_of(quads),)
    window = StreamWindow("777", 100, 100, False)
    held = BatchSet.of(batches, disjoint=not is_united)
    dataset = Dataset(DatasetClause(windows=(window,)), BatchSet.of((), True), {window: held}, resolve)
    for subject, object_ in ((S, END), (term(VERTICES[0]), END), (S, term(LITERALS[0]))):
        shrink_buffers(monkeypatch, 512, 4096, 4096, 2)
        step = PlanStep(TriplePattern(subject, P, object_, DEFAULT), "out", 1.0)
        found = run(lower([step], (), dataset), BindingTable.unit(), dataset, Limits())
        assert found.length == n
        assert set(found.column(P).tolist()) == wanted
        assert plan_runner._OWN.workspace.spans.shape[1] >= n


def test_threads_have_buffers_of_their_own() -> None:
    dataset = fan(60)
    failed: list[object] = []

    def work() -> None:
        for _ in range(30):
            found = rows_of(dataset, Limits())
            rows = set(zip(*(column.tolist() for column in found.columns), strict=True))
            if len(rows) != 3600 or found.length != 3600:
                failed.append(found.length)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
