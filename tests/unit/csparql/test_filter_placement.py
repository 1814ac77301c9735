"""Where the filters of a plan go, and which become constants."""

from __future__ import annotations

import pytest

from wukongs.csparql.algebra import Bgp, Exists, Filter, Project, TriplePattern
from wukongs.csparql.filter_placement import pinned, place_filters
from wukongs.csparql.parser import parse_query
from wukongs.csparql.plan import FilteredBgp, PlanStep
from wukongs.csparql.rules import rewrite
from wukongs.csparql.terms import Variable, iri

NOTHING: frozenset[Variable] = frozenset()
A, B, C, D = map(Variable, "abcd")


def wanted(group: str) -> FilteredBgp:
    node = rewrite(parse_query(f"SELECT * {{ {group} }}")).pattern
    assert isinstance(node, Project)
    found = FilteredBgp.of(node.pattern)
    assert found is not None
    return found


def placed(group: str, *rows: float, bound: frozenset[Variable] = NOTHING, bound_rows: float = 1.0) -> list[int]:
    """Place the filters of a group whose patterns are matched in their order; return how many stand at each place."""
    found = wanted(group)
    steps = [PlanStep(pattern, "out", count) for pattern, count in zip(found.bgp.patterns, rows, strict=True)]
    plan = place_filters(steps, found.filters, bound, bound_rows)
    return [len(plan.filters), *(len(step.filters) for step in plan.steps)]


CHAIN = "?a <p> ?b . ?b <q> ?c . ?c <r> ?d"


def test_a_filter_that_spares_rows_comes_early() -> None:
    assert placed(f"{CHAIN} FILTER(?b > 1)", 1000, 10_000, 100_000) == [0, 1, 0, 0]
    assert placed(f"{CHAIN} FILTER(?c > ?a)", 1000, 10_000, 100_000) == [0, 0, 1, 0]
    assert placed(f"{CHAIN} FILTER(?b > 1) FILTER(?d > 1)", 1000, 10_000, 100_000) == [0, 1, 0, 1]


def test_what_kind_a_subject_is_of_spares_rows_or_not() -> None:
    """A subject is an IRI as a rule, and never a literal."""
    rows = 100, 100, 100
    assert placed(f"{CHAIN} FILTER(isIRI(?b))", *rows) == [0, 0, 0, 1]
    for rare in ("isLITERAL(?b)", "!isIRI(?b)", "isBLANK(?b) || isNUMERIC(?b)", "isIRI(?a) && isBLANK(?b)"):
        assert placed(f"{CHAIN} FILTER({rare})", *rows)[1] == 1, rare
    assert placed(f"{CHAIN} FILTER(isIRI(?d))", *rows) == [0, 0, 0, 1]


def test_a_filter_that_spares_nothing_comes_last() -> None:
    assert placed(f"{CHAIN} FILTER(?b > 1)", 3, 5, 9) == [0, 0, 0, 1], "fewer rows than what a stop costs"
    assert placed(f"{CHAIN} FILTER(?b > 1)", 100_000, 100, 1) == [0, 0, 0, 1], "the patterns leave few rows to ask"


def test_a_filter_is_asked_of_the_rows_to_start_from() -> None:
    assert placed(f"{CHAIN} FILTER(?a > 1)", 1e4, 1e5, 1e6, bound=frozenset((A,)), bound_rows=1000) == [1, 0, 0, 0]


def test_a_filter_with_random_values_stays_behind_the_last_step() -> None:
    assert placed(f"{CHAIN} FILTER(?b > RAND())", 1000, 10_000, 100_000) == [0, 0, 0, 1]


def test_exists_waits_for_all_the_variables_that_its_pattern_shares() -> None:
    found = wanted(CHAIN)
    condition = Exists(Bgp((TriplePattern(B, iri("s"), D), TriplePattern(D, iri("t"), Variable("e")))))
    steps = [PlanStep(pattern, "out", 10.0 ** (3 + at)) for at, pattern in enumerate(found.bgp.patterns)]
    assert [len(step.filters) for step in place_filters(steps, [condition], NOTHING, 1.0).steps] == [0, 0, 1]


def test_estimates_after_a_filter_are_smaller() -> None:
    found = wanted(f"{CHAIN} FILTER(?b = 1)")
    steps = [PlanStep(pattern, "out", 1e5) for pattern in found.bgp.patterns]
    assert [step.estimated_rows for step in place_filters(steps, found.filters, NOTHING, 1.0).steps] == [1e5, 1e4, 1e4]


@pytest.mark.parametrize(
    "condition",
    ["?b = <x>", "<x> = ?b", '?b = "x"', '?b = "x"@en', "sameTerm(?b, 5)", "sameTerm(?b, <x>)"],
)
def test_equality_with_a_term_becomes_a_constant(condition: str) -> None:
    rest, constants = pinned(wanted(f"{CHAIN} FILTER({condition}) FILTER(?b != ?d)"), NOTHING)
    assert list(constants) == [B]
    assert all(B not in pattern.variables() for pattern in rest.bgp.patterns)
    assert len(rest.filters) == 1


@pytest.mark.parametrize(
    "condition", ["?b = 5", '?b = "x"^^<dt>', "?b != <x>", "?b = ?c", "?b = <x> || ?c = <y>", "!(?b = <x>)"]
)
def test_equality_of_values_and_other_conditions_stay_filters(condition: str) -> None:
    group = wanted(f"{CHAIN} FILTER({condition})")
    assert pinned(group, NOTHING) == (group, {})


def test_what_is_not_pinned() -> None:
    group = wanted(f"{CHAIN} FILTER(?b = <x>)")
    assert pinned(group, frozenset((B,))) == (group, {}), "bound before"
    graph = wanted("GRAPH ?g { ?a <p> ?b } FILTER(?g = <x>)")
    assert pinned(graph, NOTHING) == (graph, {}), "GRAPH <x> may read another graph than GRAPH ?g does"
    rest, constants = pinned(wanted(f"{CHAIN} FILTER(?b = <x>) FILTER(?b = <y>)"), NOTHING)
    assert (constants, len(rest.filters)) == ({B: constants[B]}, 1), "the second stays a filter"


def test_filters_alone() -> None:
    assert FilteredBgp.of(Filter(A, Filter(B, Bgp(())))) == FilteredBgp(Bgp(()), (B, A))
