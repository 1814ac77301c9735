"""Filters between the steps of a plan: wherever they are put, the answers are those of the definition.

The small graphs of random tests never make it worth while to stop between two steps, so what that costs is set to less
than nothing here: each filter is asked as soon as its variables are bound.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wukongs
from tests import strategies as make
from tests.differential.scenario import compare_one_shot
from tests.differential.test_one_shot import Data, engine_with, named
from tests.fuzz import fuzzed
from tests.oracles import query_ast as ast
from tests.oracles.query_ast import Query
from tests.oracles.sparql_oracle import Dataset
from wukongs.csparql import filter_placement

pytestmark = pytest.mark.nojit


@pytest.fixture(autouse=True)
def _stops_cost_nothing() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filter_placement, "SPLIT_ROWS", -1e12)
        yield


@st.composite
def filtered_queries(draw: st.DrawFn) -> Query:
    """Chains of up to five triple patterns with filters, at times with an OPTIONAL that has filters of its own."""
    label = iter(range(10))

    def patterns() -> ast.Bgp:
        parts = [draw(make.bgps(f"q{next(label)}")).triples for _ in range(draw(st.integers(1, 2)))]
        return ast.Bgp(tuple(triple for part in parts for triple in part))

    def filters() -> list[ast.Filter]:
        equal = st.builds(
            ast.Compare, st.just("="), st.sampled_from(make.VARS), st.sampled_from([*make.SUBJECTS, *make.PREDICATES])
        )
        condition = st.one_of(make.conditions(), equal)
        return [ast.Filter(draw(condition)) for _ in range(draw(st.integers(0, 3)))]

    elements: list[object] = [patterns(), *filters()]
    if draw(st.booleans()):
        elements.append(ast.Optional(ast.Group((patterns(), *filters()))))
    if draw(st.booleans()):
        elements += filters()
    return draw(make.plain(ast.Group(tuple(elements))))  # type: ignore[arg-type]


@pytest.mark.slow
@fuzzed(20)
@given(make.quads(), st.lists(filtered_queries(), min_size=4, max_size=10))
def test_answers_are_those_of_the_definition(data: Data, queries: list[Query]) -> None:
    with engine_with(data) as engine:
        for query in queries:
            compare_one_shot(engine.query(query.text()), Dataset(data[None], named(data)), query, query.text())


@fuzzed(10)
@given(make.quads(), st.lists(make.queries(), min_size=4, max_size=8))
def test_answers_of_all_kinds_of_queries(data: Data, queries: list[Query]) -> None:
    with engine_with(data) as engine:
        for query in queries:
            compare_one_shot(engine.query(query.text()), Dataset(data[None], named(data)), query, query.text())


def test_filters_do_come_between_steps() -> None:
    with wukongs.Engine() as engine:
        text = engine.explain(
            "SELECT * { ?a <urn:p> ?b . ?b <urn:q> ?c . ?c <urn:r> ?d FILTER(?b > 1) FILTER(?d < ?a) }"
        )
    lines = [line.split()[0] for line in text.splitlines()[3:]]
    assert lines in (["1", "filter", "2", "3", "filter"], ["1", "2", "filter", "3", "filter"])
