"""Compiled plans: which queries have one, what a large answer meets, and when a plan is looked at again."""

from __future__ import annotations

import numpy as np
import pytest

from tests.quads import batch_of, spread
from wukongs.csparql.parser import parse_query
from wukongs.csparql.rules import rewrite
from wukongs.csparql.terms import XSD, Term
from wukongs.errors import BudgetExceeded, QueryTimeout
from wukongs.query.limits import Limits
from wukongs.query.plans import compiled
from wukongs.query.plans.compiled import CompiledPatterns, Windows, Workspace
from wukongs.query.plans.compiled_plans import CompiledPlans
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.store.batch import build_batch
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, NO_MATCH, WINDOW_GRAPH
from wukongs.store.term_ids import term_id
from wukongs.store.window_table import WindowTable

STORED = 900
IDS = {
    f"<{DEFAULT_GRAPH_IRI}>": spread(STORED),
    "<urn:s>": spread(1),
    "<urn:p>": spread(2),
    "<urn:q>": spread(3),
    "<urn:a>": spread(4),
}
FROM = f"FROM <{DEFAULT_GRAPH_IRI}> FROM NAMED STREAM <urn:s> [RANGE 1s STEP 1s]"


def resolve(term: Term) -> int:
    return IDS.get(term.text, NO_MATCH)


def compile_text(text: str, table: WindowTable) -> CompiledPatterns | None:
    query = rewrite(parse_query(f"REGISTER QUERY t AS {text}"))
    numbers = {window: table.add() for window in query.dataset.windows}
    windows = Windows(table, table.add(), numbers)
    return CompiledPatterns.of(query, windows, resolve, PlanMemo(), Workspace())


def select(where: str, variables: str = "*") -> str:
    return f"SELECT {variables} {FROM} WHERE {{ {where} }}"


def compiled_over(where: str, stored: BatchSet, window: BatchSet, variables: str = "*") -> CompiledPatterns:
    found = compile_text(select(where, variables), WindowTable())
    assert found is not None, where
    found.windows.table.set(found.windows.stored, stored)
    (number,) = found.windows.numbers.values()
    found.windows.table.set(number, window)
    return found


def edges(graph: int, predicate: str, pairs: list[tuple[int, int]]) -> BatchSet:
    return BatchSet.of((batch_of([(graph, spread(s), IDS[predicate], spread(o)) for s, o in pairs]),), True)


def rows(found: compiled.Columns | None) -> list[tuple[int, ...]]:
    assert found is not None
    return sorted(zip(*(column.tolist() for column in found), strict=True))


def run(query: CompiledPatterns) -> list[tuple[int, ...]]:
    return rows(query.bindings(query.variables, Limits))


@pytest.mark.nojit
def test_stored_patterns_and_windows_are_joined() -> None:
    query = compiled_over(
        "<urn:a> <urn:p> ?b . GRAPH <urn:s> { ?b <urn:q> ?c }",
        edges(spread(STORED), "<urn:p>", [(4, 10), (4, 11), (5, 12)]),
        edges(WINDOW_GRAPH, "<urn:q>", [(10, 20), (11, 21), (11, 22), (12, 23)]),
        "?c ?b",
    )
    expected = [(spread(c), spread(b)) for b, c in [(10, 20), (11, 21), (11, 22)]]
    assert run(query) == sorted(expected)
    (number,) = query.windows.numbers.values()
    query.windows.table.set(number, edges(WINDOW_GRAPH, "<urn:q>", [(10, 30)]))
    assert run(query) == [(spread(30), spread(10))]
    query.windows.table.set(number, BatchSet.of((), True))
    assert run(query) == []


@pytest.mark.parametrize(
    "text",
    [
        select("?a <urn:p> ?b FILTER(?b + 1 > 1)"),
        select("?a <urn:p> ?b FILTER(?b > 1 || ?b < 0)"),
        select("?a <urn:p> ?b FILTER(?a = <urn:a>)"),
        select("?a <urn:p> ?b FILTER(?b > 'a')"),
        select("?a <urn:p> ?b FILTER(?b > ?c)"),
        select("?a <urn:p> ?b FILTER(?b > 1 && BOUND(?a))"),
        select("?a <urn:p> ?b OPTIONAL { ?b <urn:q> ?c }"),
        select("?a <urn:p>+ ?b"),
        select("{ ?a <urn:p> ?b } UNION { ?a <urn:q> ?b }"),
        select("?a <urn:p> ?b", "DISTINCT ?a"),
        select("?a <urn:p> ?b", "?a ?c"),
        select("?a <urn:p> ?b", "(COUNT(*) AS ?n)"),
        select("?a <urn:p> ?b") + " ORDER BY ?a LIMIT 3",
        f"CONSTRUCT {{ ?a <urn:p> ?b }} {FROM} WHERE {{ ?a <urn:p> ?b }}",
        f"ASK {FROM} WHERE {{ ?a <urn:p> ?b }}",
    ],
)
def test_all_else_is_more_than_patterns(text: str) -> None:
    assert compile_text(text, WindowTable()) is None


def test_a_plan_that_is_too_long_has_no_rows_here() -> None:
    where = " . ".join(f"?v{at} <urn:p> ?v{at + 1}" for at in range(20))
    query = compiled_over(where, edges(spread(STORED), "<urn:p>", [(1, 2)]), BatchSet.of((), True))
    assert query.bindings(query.variables, Limits) is None


def test_a_constant_that_no_data_can_have_has_no_match() -> None:
    query = compiled_over("<urn:unknown> <urn:p> ?b", edges(spread(STORED), "<urn:p>", [(1, 2)]), BatchSet.of((), True))
    assert run(query) == []


def test_plans_are_looked_at_when_a_size_has_changed_by_a_factor() -> None:
    query = compiled_over("?a <urn:p> ?b", edges(spread(STORED), "<urn:p>", [(1, 2)] * 3), BatchSet.of((), True))
    looked: list[int] = []
    route = query.memo.route
    query.memo.route = lambda *args: looked.append(1) or route(*args)  # type: ignore[method-assign,func-returns-value]
    for count, expected in ((4, 1), (5, 1), (8, 1), (20, 2), (30, 2), (9, 3)):
        pairs = [(1, at) for at in range(count)]
        query.windows.table.set(query.windows.stored, edges(spread(STORED), "<urn:p>", pairs))
        assert len(run(query)) == count
        assert len(looked) == expected, count


def valued(lexicals: dict[int, str], datatype: str = "integer") -> BatchSet:
    """A triple s p o for each number of a subject and lexical form of its object."""
    ids = {at: term_id(f'"{lexical}"^^<{XSD}{datatype}>') for at, lexical in lexicals.items()}
    return BatchSet.of((batch_of([(spread(STORED), spread(s), IDS["<urn:p>"], o) for s, o in ids.items()]),), True)


@pytest.mark.nojit
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("?b > 5", [2, 3]),
        ("5 >= ?b", [0, 1]),
        ("?b != 7 && ?b < 100", [0, 1, 3]),
        ("?b > 1 && ?a != <urn:a>", [1, 2, 3]),
        ("?b > 1.5e0", [1, 2, 3]),
        ("?b = ?b", [0, 1, 2, 3]),
        ("?b > 1) FILTER(?b < 8", [1, 2]),
        ("1 = 1 && ?b > 9", None),
    ],
)
def test_filters_that_ids_decide_are_conditions(condition: str, expected: list[int] | None) -> None:
    stored = valued({0: "1", 1: "5", 2: "7", 3: "10"})
    found = compile_text(select(f"?a <urn:p> ?b FILTER({condition})", "?a"), WindowTable())
    if expected is None:
        assert found is None
        return
    query = compiled_over(f"?a <urn:p> ?b FILTER({condition})", stored, BatchSet.of((), True), "?a")
    assert run(query) == sorted((spread(at),) for at in expected)


def test_a_row_of_which_ids_do_not_tell_is_left_to_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    query = compiled_over("?a <urn:p> ?b FILTER(?b > 5)", valued({1: "5", 2: "7"}), BatchSet.of((), True))
    assert len(run(query)) == 1
    query.windows.table.set(query.windows.stored, valued({1: "5", 2: "no number"}, "string"))
    assert query.bindings(query.variables, Limits) is None
    query.windows.table.set(query.windows.stored, valued({1: "5", 2: "7"}))
    assert len(run(query)) == 1
    monkeypatch.setattr(compiled, "OUT_CELLS", 4)
    query = compiled_over("?a <urn:p> ?b FILTER(?b > 5)", valued(dict.fromkeys(range(4), "7")), BatchSet.of((), True))
    assert query.bindings(query.variables, Limits) is None, "the limits count the rows before the filter"


def many(count: int) -> BatchSet:
    """`count` triples s p o, each o another; none of these has a triple of its own but the last."""
    subjects = np.arange(2, 2 * count + 2, 2, dtype=np.int64)
    objects = subjects + 4 * count
    predicates = np.full(count, IDS["<urn:p>"])
    subjects, predicates = np.append(subjects, objects[-1]), np.append(predicates, IDS["<urn:q>"])
    graphs = np.full(count + 1, spread(STORED), np.int64)
    return BatchSet.of((build_batch(graphs, subjects, predicates, np.append(objects, 2)),), True)


def test_a_large_answer_comes_in_pieces_under_its_limits() -> None:
    query = compiled_over("?a <urn:p> ?b", many(100_000), BatchSet.of((), True))
    for _ in range(2):
        found = query.bindings(query.variables, Limits)
        assert found is not None
        assert found[0].tolist() == list(range(2, 200_002, 2))
        assert found[1].tolist() == list(range(400_002, 600_002, 2))
    with pytest.raises(BudgetExceeded, match="rows_max = 50000"):
        query.bindings(query.variables, lambda: Limits(rows_max=50_000))
    with pytest.raises(BudgetExceeded, match="query_bytes_max"):
        query.bindings(query.variables, lambda: Limits(bytes_max=1 << 20))
    with pytest.raises(QueryTimeout):
        query.bindings(query.variables, lambda: Limits(deadline_s=0.0, timeout_s=1.0))
    assert len(query.bindings(query.variables, Limits)[0]) == 100_000  # type: ignore[index]


def test_a_long_search_pauses_to_look_at_its_limits() -> None:
    query = compiled_over("?a <urn:p> ?a", many(600_000), BatchSet.of((), True))
    asked: list[Limits] = []
    assert rows(query.bindings(query.variables, lambda: asked.append(Limits()) or asked[-1])) == []  # type: ignore[func-returns-value]
    assert len(asked) == 1
    with pytest.raises(QueryTimeout):
        query.bindings(query.variables, lambda: Limits(deadline_s=0.0, timeout_s=1.0))


def test_more_than_a_workspace_holds_is_run_over_a_dataset() -> None:
    key = [(spread(STORED), spread(1), spread(100 + at), spread(2)) for at in range(300)]
    query = compiled_over("?a <urn:p> ?b . ?a ?p ?c", BatchSet.of((batch_of(key),), True), BatchSet.of((), True))
    assert run(query) == []
    first = (spread(STORED), spread(1), IDS["<urn:p>"], spread(2))
    query.windows.table.set(query.windows.stored, BatchSet.of((batch_of([first, *key]),), True))
    assert len(run(query)) == 301, "a key with the values of 301 predicates: more spans than there is room for"
    parts = [batch_of([first]), *(batch_of([quad]) for quad in key * 4)]
    query.windows.table.set(query.windows.stored, BatchSet.of(tuple(parts), False))
    assert len(run(query)) == 301, "1,201 batches: more parts than there is room for"
    query.windows.table.set(query.windows.stored, BatchSet.of((batch_of([first]),), True))
    assert len(run(query)) == 1


@pytest.mark.parametrize(
    ("text", "is_for"),
    [
        (select("?a <urn:p> ?b OPTIONAL { ?b <urn:q> ?c } FILTER NOT EXISTS { ?a <urn:q> ?b }"), True),
        (select("GRAPH ?g { ?a <urn:p> ?b }"), True),
        (select("?a <urn:p>+ ?b"), True),
        (select("?a <urn:p> ?b FILTER NOT EXISTS { ?a <urn:q>* ?b }"), True),
        (select("GRAPH <urn:s> { ?a <urn:p>+ ?b }"), True),
        (select("?a <urn:p> ?b FILTER NOT EXISTS { GRAPH ?g { ?a <urn:q>* ?b } }"), True),
        (f"DESCRIBE ?a {FROM} WHERE {{ ?a <urn:p> ?b }}", False),
    ],
)
def test_queries_that_read_graphs_as_they_are_are_compiled(text: str, is_for: bool) -> None:
    assert CompiledPlans.is_for(rewrite(parse_query(f"REGISTER QUERY t AS {text}"))) == is_for
