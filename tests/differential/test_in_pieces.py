"""Random queries that are evaluated in pieces, by temporary files: against the plain evaluator, and against the answer
of the same engine without."""

from __future__ import annotations

import io
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wukongs
from tests import strategies as make
from tests.differential.scenario import compare_one_shot
from tests.differential.test_one_shot import Data, engine_with, named
from tests.fuzz import fuzzed
from tests.fuzzing.answers import of_engine, same, shown
from tests.fuzzing.graphs import nquads, random_data
from tests.fuzzing.queries import random_query, text_of
from tests.oracles.query_ast import Query
from tests.oracles.sparql_oracle import Dataset
from tests.oracles.values import Undefined
from tests.spilling import in_small_pieces

pytestmark = pytest.mark.nojit
_VARIES = ("RAND(", "UUID(", "BNODE(", "NOW(", "LIMIT", "OFFSET")
"""Answers of these may differ from one execution to the next, or by the order in which rows arrive."""


@fuzzed(30)
@given(make.quads(), st.lists(make.queries(), min_size=6, max_size=12), st.integers(1, 4), st.sampled_from((1, 2000)))
def test_answers_are_those_of_the_plain_evaluator(data: Data, queries: list[Query], rows: int, work_bytes: int) -> None:
    with engine_with(data) as engine:
        dataset, pieces = Dataset(data[None], named(data)), 0
        for query in queries:
            with in_small_pieces(rows, work_bytes) as forced:
                result = engine.query(query.text())
            pieces += forced.count
            compare_one_shot(result, dataset, query, query.text())
        assert pieces
        del result
        assert engine.stats()["process"]["memory"]["reserved_bytes"] == 0


def disagreement(seed: str) -> str | None:
    """Ask random queries, with subqueries, aggregates and paths, both ways; describe the first that differs."""
    rng = random.Random(seed)
    data, count = random_data(rng), 0
    with wukongs.Engine() as engine:
        engine.load(io.BytesIO(nquads(data)), format="nq")
        for _ in range(30):
            text = text_of(random_query(rng, data))
            if any(word in text for word in _VARIES):
                continue
            expected = of_engine(engine.query(text))
            with in_small_pieces(rng.randint(1, 4), rng.choice((1, 2000))) as forced:
                found = of_engine(engine.query(text))
            count += forced.count
            try:
                is_same = same(found, expected, "REDUCED" in text)
            except Undefined:  # many new blank nodes that look alike
                continue
            if not is_same:
                return f"seed {seed}\n{text}\n{nquads(data).decode()}in pieces {shown(found)}\nelse {shown(expected)}"
    return None if count else f"seed {seed}: nothing was evaluated in pieces"


@pytest.mark.parametrize("number", range(4))
def test_answers_are_those_of_the_usual_way(number: int) -> None:
    failed = disagreement(f"in pieces {number}")
    assert failed is None, failed


@pytest.mark.slow
def test_answers_of_fresh_seeds_are_those_of_the_usual_way() -> None:
    for _ in range(150):
        failed = disagreement(f"in pieces {random.SystemRandom().randrange(1 << 40)}")
        assert failed is None, failed
