"""Compiled plans against nested loops and against the plan runner, over windows that change between the firings."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.property.test_plan import Case, Maker, resolve
from wukongs.csparql.algebra import Bgp, Query
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import possible_variables
from wukongs.query.limits import Limits
from wukongs.query.plans import compiled, plan_runner
from wukongs.query.plans.compiled import CompiledQueries, CompiledQuery, Windows, Workspace
from wukongs.query.plans.compiled_plans import CompiledPlans
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.store.window_table import WindowTable

Rows = list[tuple[int, ...]]


def compile_case(case: Case, table: WindowTable, workspace: Workspace) -> CompiledQuery | None:
    """Compile the patterns of a case; None if they bind no variable."""
    bgp = Bgp(tuple(case.patterns))
    variables = tuple(sorted(possible_variables(bgp) | set(case.seed_variables), key=lambda variable: variable.name))
    if not variables:
        return None
    numbers = {window: table.add() for window in case.dataset.windows}
    query = CompiledQuery(
        case.dataset.clause,
        variables,
        FilteredBgp(bgp),
        case.seed_variables,
        Windows(table, table.add(), numbers),
        resolve,
        PlanMemo(),
        workspace,
    )
    tell(query, case)
    if case.seed_variables:
        query.start_from(case.table().columns)
    return query


def tell(query: CompiledQuery, case: Case) -> None:
    """Say which batches the windows of a query have."""
    query.windows.table.set(query.windows.stored, case.dataset.stored)
    for window, batches in case.dataset.windows.items():
        query.windows.table.set(query.windows.numbers[window], batches)


def rows_of(columns: compiled.Columns) -> Rows:
    return list(zip(*(column.tolist() for column in columns), strict=True))


def as_the_runner_does(query: CompiledQuery, case: Case) -> Rows:
    """Return the rows of the same plan, run over the dataset; in their order."""
    seeds = case.table()
    route = query.memo.route(query.wanted, seeds.variables, seeds.length, case.dataset)
    found = plan_runner.run(route.segments[0].lowered, seeds, case.dataset, Limits())
    return rows_of(found.columns_of(query.variables))


def expected_rows(query: CompiledQuery, case: Case) -> Counter[tuple[int, ...]] | None:
    solutions = case.model.solutions(case.patterns, case.seeds)
    return solutions and Counter(tuple(solution[v] for v in query.variables) for solution in solutions)


def check(seed: int, size: int, cells: int) -> int:
    """Run a case compiled, and again when its windows have changed; return how many rows there were."""
    total = 0
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(compiled, "OUT_CELLS", cells)
        table, workspace = WindowTable(), Workspace()
        case, later = Maker(seed, size).case(), Maker(seed + 1, 2 * size).case()
        query = compile_case(case, table, workspace)
        if query is None:
            return 0
        for at, now in enumerate((case, later)):
            if at == 1:
                if (
                    set(later.dataset.windows) != set(case.dataset.windows)
                    or later.dataset.clause != case.dataset.clause
                ):
                    break
                now.patterns, now.seeds, now.seed_variables = case.patterns, case.seeds, case.seed_variables
                tell(query, now)
            expected = expected_rows(query, now)
            if expected is None:
                break
            found = query.run(Limits)
            if found is None:
                continue  # constants that no plan can look up alone
            rows = rows_of(found)
            assert Counter(rows) == Counter(expected)
            if not query.is_void:
                assert rows == as_the_runner_does(query, now)
            total += len(rows)
    return total


@given(st.integers(0, 2**32), st.sampled_from([10, 90, 150]), st.sampled_from([16, 40, 1 << 16]))
@fuzzed(300)
def test_compiled_plans_match_as_nested_loops_do(seed: int, size: int, cells: int) -> None:
    check(seed, size, cells)


@pytest.mark.nojit
def test_a_few_compiled_plans_match_as_nested_loops_do() -> None:
    solved = sum(check(seed, 60, 40) > 0 for seed in range(40))
    assert solved > 10, "most cases have no solution: they prove little"


def plans_of(case: Case, table: WindowTable, workspace: Workspace) -> tuple[CompiledPlans, FilteredBgp]:
    """Return the compiled plans of a query with the patterns of a case, and these."""
    wanted = FilteredBgp(Bgp(tuple(case.patterns)))
    windows = Windows(table, table.add(), {window: table.add() for window in case.dataset.windows})
    query = Query("ask", wanted.bgp, (), (), case.dataset.clause)
    return CompiledPlans(query, windows, resolve, PlanMemo(), workspace), wanted


def check_plans(seed: int, size: int, cells: int) -> int:
    """Run the plan that is found for a case from its seeds, and then from fewer; return how many rows there were."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(compiled, "OUT_CELLS", cells)
        table = WindowTable()
        case = Maker(seed, size).case()
        plans, wanted = plans_of(case, table, Workspace())
        table.set(plans.windows.stored, case.dataset.stored)
        for window, batches in case.dataset.windows.items():
            table.set(plans.windows.numbers[window], batches)
        total, seeds = 0, case.table()
        for some in (seeds, seeds.take(np.arange(seeds.length // 2)), seeds):
            if some.length == 0:
                continue
            route = plans.route(wanted, some.variables, some.length)
            assert plans.route(wanted, some.variables, some.length) is route
            (segment,) = route.segments
            limits = Limits(bytes_max=1 << 30)
            found = plans.run(segment.lowered, some, limits)
            expected = plan_runner.run(segment.lowered, some, case.dataset, Limits())
            assert found.variables == expected.variables
            assert found.length == expected.length
            assert rows_of(found.columns) == rows_of(expected.columns)
            assert limits.held >= found.size_bytes
            first = plans.run(segment.lowered, some, limits, rows_wanted=1)
            assert first.length >= min(1, expected.length)
            assert rows_of(first.columns) == rows_of(expected.columns)[: first.length]
            total += found.length
        return total


@given(st.integers(0, 2**32), st.sampled_from([10, 90, 150]), st.sampled_from([16, 40, 1 << 16]))
@fuzzed(200)
def test_plans_from_any_rows_are_those_of_the_runner(seed: int, size: int, cells: int) -> None:
    check_plans(seed, size, cells)


@pytest.mark.nojit
def test_a_few_plans_from_some_rows_are_those_of_the_runner() -> None:
    assert sum(check_plans(seed, 60, 40) > 0 for seed in range(20)) > 5


def check_many(first: int, count: int, cells: int) -> int:
    """Run many cases over one table in one call; return how many rows there were."""
    total = 0
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(compiled, "OUT_CELLS", cells)
        table, workspace = WindowTable(), Workspace()
        cases = [Maker(seed, 40).case() for seed in range(first, first + count)]
        paired = [(query, case) for case in cases if (query := compile_case(case, table, workspace)) is not None]
        together = CompiledQueries([query for query, _ in paired], workspace)
        for _ in range(2):
            answers = together.run(Limits)
            for number, (query, case) in enumerate(paired):
                expected = expected_rows(query, case)
                found = answers.columns(number)
                if expected is None or found is None:
                    continue
                assert Counter(rows_of(found)) == Counter(expected)
                total += len(found[0])
    return total


@given(st.integers(0, 2**32), st.sampled_from([16, 200, 1 << 16]))
@fuzzed(25)
def test_many_in_one_call_match_as_nested_loops_do(first: int, cells: int) -> None:
    check_many(first, 12, cells)


@pytest.mark.nojit
def test_a_few_in_one_call_match_as_nested_loops_do() -> None:
    assert check_many(0, 20, 60) > 10
    assert CompiledQueries([], Workspace()).run(Limits).offsets.tolist() == np.zeros(1).tolist()
