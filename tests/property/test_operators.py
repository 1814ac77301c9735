"""The columnar operators against the oracle's loops: bags with unbound values and repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.oracles import operators as oracle
from tests.oracles.operators import Solution
from tests.term_spaces import ListTermSpace
from wukongs.csparql.algebra import Aggregate, Call, Expression
from wukongs.csparql.terms import Term, Variable
from wukongs.query import rows_kernels as kernels
from wukongs.query.binding_table import BindingTable
from wukongs.query.expressions.expressions import evaluate
from wukongs.query.operators import aggregates, operators

TERMS = ["<a>", "<b>", '"x"']
NAMES = "pqrst"

Rows = list[Solution]


def same_bag(one: Sequence[Solution], other: Sequence[Solution]) -> bool:
    return Counter(map(frozen, one)) == Counter(map(frozen, other))


def frozen(solution: Solution) -> frozenset[tuple[str, str]]:
    return frozenset(solution.items())


@st.composite
def bags(draw: st.DrawFn, names: str) -> tuple[str, Rows]:
    """Some variables in some order, and rows in which each may be unbound."""
    chosen = draw(st.permutations(names).flatmap(lambda order: st.integers(0, len(order)).map(lambda n: order[:n])))
    bound = {name: draw(st.sampled_from([0, 0, 1])) for name in chosen}
    solution = st.fixed_dictionaries(
        {name: st.sampled_from(TERMS if bound[name] else [*TERMS, None]) for name in chosen}
    )
    rows = draw(st.lists(solution, max_size=9))
    return "".join(chosen), [{name: term for name, term in row.items() if term is not None} for row in rows]


def table_of(space: ListTermSpace, bag: tuple[str, Rows]) -> BindingTable:
    names, rows = bag
    return space.table(list(names), [[row.get(name) for name in names] for row in rows])


LEFT, RIGHT = bags(NAMES[:4]), bags(NAMES[1:])


@given(LEFT, RIGHT)
@fuzzed(300)
def test_join(left: tuple[str, Rows], right: tuple[str, Rows]) -> None:
    space = ListTermSpace()
    joined = operators.join(table_of(space, left), table_of(space, right))
    assert set(joined.variables) == {Variable(name) for name in left[0] + right[0]}
    assert same_bag(space.solutions(joined), oracle.join(left[1], right[1]))


def is_equal(one: str, other: str) -> oracle.Condition:
    """`?one = ?other` for terms of which only one is a string: an error where one is unbound."""
    return lambda solution: solution[one] == solution[other] if one in solution and other in solution else None


CONDITIONS: list[tuple[Expression | None, oracle.Condition]] = [
    (None, lambda solution: True),
    (Call("=", (Variable("p"), Variable("t"))), is_equal("p", "t")),
    (Call("BOUND", (Variable("q"),)), lambda solution: "q" in solution),
    (Call("!", (Call("BOUND", (Variable("s"),)),)), lambda solution: "s" not in solution),
    (Term('"false"^^<http://www.w3.org/2001/XMLSchema#boolean>'), lambda solution: False),
]


@given(LEFT, RIGHT, st.sampled_from(CONDITIONS))
@fuzzed(300)
def test_left_join(
    left: tuple[str, Rows], right: tuple[str, Rows], condition: tuple[Expression | None, oracle.Condition]
) -> None:
    space = ListTermSpace()
    joined = operators.left_join(table_of(space, left), table_of(space, right), condition[0], space)
    expected = oracle.left_join(left[1], right[1], condition[1])
    assert same_bag(space.solutions(joined), expected)
    # In order of left rows: a left row's merges extend it, so each is found when left is walked once.
    places = iter(left[1])
    current: Solution | None = None
    for solution in space.solutions(joined):
        while current is None or not oracle.compatible(current, solution) or not current.items() <= solution.items():
            current = next(places)


@given(LEFT, RIGHT)
def test_union(left: tuple[str, Rows], right: tuple[str, Rows]) -> None:
    space = ListTermSpace()
    table = operators.union(table_of(space, left), table_of(space, right))
    assert space.solutions(table) == oracle.union(left[1], right[1])


@given(LEFT, st.sampled_from(CONDITIONS[1:]))
def test_filter(bag: tuple[str, Rows], condition: tuple[Expression, oracle.Condition]) -> None:
    space = ListTermSpace()
    table = operators.filter_rows(condition[0], table_of(space, bag), space)
    assert space.solutions(table) == oracle.filtered(condition[1], bag[1])


@given(LEFT, st.integers(0, 6), st.none() | st.integers(0, 6))
@fuzzed(200)
def test_distinct_project_and_slice(bag: tuple[str, Rows], offset: int, limit: int | None) -> None:
    space = ListTermSpace()
    table = table_of(space, bag)
    assert space.solutions(operators.distinct(table)) == oracle.distinct(bag[1])
    projected = operators.project(table, [Variable("q"), Variable("t")])
    assert projected.variables == (Variable("q"), Variable("t"))
    assert space.solutions(projected) == oracle.project(bag[1], ["q", "t"])
    assert space.solutions(operators.slice_rows(table, offset, limit)) == oracle.slice_rows(bag[1], offset, limit)


@given(LEFT)
def test_extend(bag: tuple[str, Rows]) -> None:
    space = ListTermSpace()
    table = table_of(space, bag)
    table = operators.with_column(table, Variable("new"), evaluate(Call("STR", (Variable("p"),)), table, space))

    def text(solution: Solution) -> str | None:
        return f'"{solution["p"][1:-1]}"' if "p" in solution else None

    assert space.solutions(table) == oracle.extend(bag[1], "new", text)


COUNTS = [(None, False), (None, True), ("q", False), ("q", True), ("t", True)]


@pytest.mark.parametrize("keys", ["", "p", "pr"])
@given(bag=LEFT)
def test_group_and_count(keys: str, bag: tuple[str, Rows]) -> None:
    space = ListTermSpace()
    counts = [
        (Variable(f"n{place}"), Aggregate("COUNT", None if name is None else Variable(name), is_distinct))
        for place, (name, is_distinct) in enumerate(COUNTS)
    ]
    table = aggregates.group(table_of(space, bag), [Variable(key) for key in keys], counts, space)
    expected = [
        key
        | {
            f"n{place}": f'"{oracle.count(members, name, is_distinct)}"^^<http://www.w3.org/2001/XMLSchema#integer>'
            for place, (name, is_distinct) in enumerate(COUNTS)
        }
        for key, members in oracle.group(bag[1], keys)
    ]
    assert space.solutions(table) == expected


KEYS = st.lists(st.tuples(st.sampled_from([-1, 0, 1, 2**62, 2**63 - 2]), st.integers(-1, 2)), max_size=12)


def matrix(rows: Sequence[tuple[int, int]]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.array(rows, np.int64).reshape(len(rows), 2).T.copy()


@pytest.mark.nojit
@given(KEYS, KEYS)
def test_kernels_against_loops(hashed: list[tuple[int, int]], lookup: list[tuple[int, int]]) -> None:
    order = list(dict.fromkeys(hashed))
    pairs = [(i, j) for i, one in enumerate(lookup) for j, other in enumerate(hashed) if one == other]
    runs: tuple[Callable[[Any], Any], ...] = (lambda kernel: kernel, lambda kernel: getattr(kernel, "py_func", kernel))
    for run in runs:
        numbers, firsts, slots = run(kernels.number_rows)(matrix(hashed))
        assert numbers.tolist() == [order.index(row) for row in hashed]
        assert firsts.tolist() == [hashed.index(row) for row in order]
        found = run(kernels.find_rows)(matrix(hashed), firsts, slots, matrix(lookup))
        assert found.tolist() == [order.index(row) if row in order else -1 for row in lookup]
        offsets, members = run(kernels.group_members)(numbers, len(firsts))
        assert [members[offsets[g] : offsets[g + 1]].tolist() for g in range(len(order))] == [
            [place for place, row in enumerate(hashed) if row == content] for content in order
        ]
        count = run(kernels.count_pairs)(offsets, found)
        assert count == len(pairs)
        left, right = run(kernels.fill_pairs)(offsets, members, found, count)
        assert list(zip(left.tolist(), right.tolist(), strict=True)) == pairs
