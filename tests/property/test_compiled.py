"""Compiled plans against nested loops and against the plan runner, over windows that change between the firings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.property.test_plan import Case, Maker, resolve
from wukongs.csparql.algebra import Bgp, Project, Query
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import possible_variables
from wukongs.csparql.terms import Variable
from wukongs.query.execution.argument_rows import NUMBER
from wukongs.query.limits import Limits
from wukongs.query.plans import compiled, plan_runner
from wukongs.query.plans.compiled import Windows, Workspace
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.programs.arena import Arena
from wukongs.query.programs.program import Program, run_together
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.term_registry import TermRegistry
from wukongs.store.window_table import WindowTable

Rows = list[tuple[int, ...]]
REGISTRY = TermRegistry()


@dataclass(slots=True)
class Compiled:
    """The program of a case. number: the column of the numbers of its seeds, if it has some."""

    program: Program
    wanted: FilteredBgp
    variables: tuple[Variable, ...]
    seeds: tuple[Variable, ...]

    def tell(self, case: Case) -> None:
        """Say which batches the windows have."""
        windows = self.program.windows
        windows.table.set(windows.stored, case.dataset.stored)
        for window, batches in case.dataset.windows.items():
            windows.table.set(windows.numbers[window], batches)

    def run(self, case: Case) -> Rows | None:
        """Return the rows from the seeds of a case, None if the executor has to find them."""
        rows = None
        if self.seeds:
            table = case.table()
            rows = np.stack((np.arange(table.length), *table.columns), axis=1)
        found = self.program.run(REGISTRY.snapshot_reader(), no_terms, Limits, rows)
        return found and rows_of(found.columns[bool(self.seeds) :])


def no_terms() -> QueryTerms:
    raise AssertionError("triple patterns need no terms")


def compile_case(case: Case, table: WindowTable, workspace: Workspace, arena: Arena) -> Compiled | None:
    """Compile the patterns of a case; None if they bind no variable."""
    bgp, seeds = Bgp(tuple(case.patterns)), case.seed_variables
    variables = tuple(sorted(possible_variables(bgp) | set(seeds), key=lambda variable: variable.name))
    if not variables:
        return None
    windows = Windows(table, table.add(), {window: table.add() for window in case.dataset.windows})
    names = tuple(variable.name for variable in variables)
    query = Query("select", Project(bgp, variables), names, (), case.dataset.clause)
    arguments = (NUMBER, *seeds) if seeds else ()
    program = Program(query, windows, resolve, PlanMemo(), workspace, arena, REGISTRY, arguments)
    found = Compiled(program, FilteredBgp(bgp), variables, seeds)
    found.tell(case)
    return found


def rows_of(columns: compiled.Columns) -> Rows:
    return list(zip(*(column.tolist() for column in columns), strict=True))


def as_the_runner_does(query: Compiled, case: Case) -> Rows:
    """Return the rows of the same plan, run over the dataset; in their order."""
    seeds = case.table()
    route = query.program.plans.route(query.wanted, seeds.variables, seeds.length, case.dataset)
    found = plan_runner.run(route.segments[0].lowered, seeds, case.dataset, Limits())
    return rows_of(found.columns_of(query.variables))


def expected_rows(query: Compiled, case: Case) -> Counter[tuple[int, ...]] | None:
    solutions = case.model.solutions(case.patterns, case.seeds)
    return solutions and Counter(tuple(solution[v] for v in query.variables) for solution in solutions)


def check(seed: int, size: int, cells: int) -> int:
    """Run a case compiled, and again when its windows have changed; return how many rows there were."""
    total = 0
    table, workspace, arena = WindowTable(), Workspace(), Arena(cells)
    case, later = Maker(seed, size).case(), Maker(seed + 1, 2 * size).case()
    query = compile_case(case, table, workspace, arena)
    if query is None:
        return 0
    for at, now in enumerate((case, later)):
        if at == 1:
            if set(later.dataset.windows) != set(case.dataset.windows) or later.dataset.clause != case.dataset.clause:
                break
            now.patterns, now.seeds, now.seed_variables = case.patterns, case.seeds, case.seed_variables
            query.tell(now)
        expected = expected_rows(query, now)
        if expected is None:
            break
        rows = query.run(now)
        if rows is None:
            continue  # a small arena, or constants that no plan can look up alone
        assert Counter(rows) == Counter(expected)
        if not query.seeds:
            assert rows == as_the_runner_does(query, now)
        total += len(rows)
    return total


@given(st.integers(0, 2**32), st.sampled_from([10, 90, 150]), st.sampled_from([60, 600, 1 << 16]))
@fuzzed(300)
def test_compiled_plans_match_as_nested_loops_do(seed: int, size: int, cells: int) -> None:
    check(seed, size, cells)


@pytest.mark.nojit
def test_a_few_compiled_plans_match_as_nested_loops_do() -> None:
    solved = sum(check(seed, 60, 4000) > 0 for seed in range(40))
    assert solved > 10, "most cases have no solution: they prove little"


def check_many(first: int, count: int, cells: int) -> tuple[int, int]:
    """Run many cases over one table in one call; return how many rows there were, and how many cases had some."""
    total = solved = 0
    table, workspace, arena = WindowTable(), Workspace(), Arena(cells)
    cases = [case for seed in range(first, first + count) if not (case := Maker(seed, 40).case()).seed_variables]
    paired = [(found, case) for case in cases if (found := compile_case(case, table, workspace, arena)) is not None]
    for query, case in paired:
        query.run(case)
    found = run_together([query.program for query, _ in paired], REGISTRY.snapshot_reader()) if paired else []
    for (query, case), rows in zip(paired, found, strict=True):
        expected = expected_rows(query, case)
        if expected is None or rows is None:
            continue
        result = query.program.result(rows, no_terms)
        assert Counter(rows_of(result.columns)) == Counter(expected)
        assert result.count == len(expected)
        total += result.count
        solved += result.count > 0
    return total, solved


@given(st.integers(0, 2**32), st.sampled_from([60, 300, 1 << 16]))
@fuzzed(25)
def test_many_in_one_call_match_as_nested_loops_do(first: int, cells: int) -> None:
    check_many(first, 24, cells)


@pytest.mark.nojit
@pytest.mark.parametrize("cells", [120, 4000])
def test_a_few_in_one_call_match_as_nested_loops_do(cells: int) -> None:
    """Also in an arena that is full several times in one call."""
    total, solved = check_many(0, 60, cells)
    assert total > 10 < solved
