"""Random one-shot queries over random graphs: the Engine against rdflib, pyoxigraph and the plain evaluator."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wukongs
from tests import strategies as make
from tests.differential.scenario import compare_one_shot
from tests.fuzz import fuzzed
from tests.oracles.query_ast import Query
from tests.oracles.rdf import Term, Triple, nquad
from tests.oracles.sparql_oracle import Dataset
from tests.oracles.stream_oracle import DatasetClause

pytestmark = pytest.mark.nojit

Data = dict[Term | None, set[Triple]]


def nquads(data: Data) -> bytes:
    return "".join(nquad(triple, graph) for graph, triples in data.items() for triple in sorted(triples)).encode()


def engine_with(data: Data) -> wukongs.Engine:
    engine = wukongs.Engine()
    engine.load(io.BytesIO(nquads(data)), format="nq")
    return engine


def named(data: Data) -> dict[Term, set[Triple]]:
    return {name: triples for name, triples in data.items() if name is not None}


@fuzzed(25)
@given(make.quads(), st.lists(make.queries(), min_size=6, max_size=12))
def test_answers_without_dataset_clause(data: Data, queries: list[Query]) -> None:
    with engine_with(data) as engine:
        for query in queries:
            dataset = Dataset(data[None], named(data))
            compare_one_shot(engine.query(query.text()), dataset, query, query.text())
            if query.limit is not None or query.offset:
                whole = replace(query, limit=None, offset=0)
                compare_one_shot(engine.query(whole.text()), dataset, whole, whole.text())


@fuzzed(15)
@given(make.quads(), st.lists(st.tuples(st.integers(0, 4), make.queries()), min_size=6, max_size=12))
def test_answers_with_dataset_clause(data: Data, asked: list[tuple[int, Query]]) -> None:
    """FROM and FROM NAMED give the exact dataset: a graph in both default graphs counts its triples once."""
    g0, g1 = make.GRAPHS
    clauses = [
        DatasetClause((g0,)),
        DatasetClause((g0, g1)),
        DatasetClause((None, g0), (g1,)),
        DatasetClause((), (g0, g1)),
        DatasetClause((g1,), (g0, g1)),
    ]
    with engine_with(data) as engine:
        for number, query in asked:
            clause = clauses[number]
            default = set().union(*(data.get(graph, set()) for graph in clause.graphs))
            dataset = Dataset(default, {name: data.get(name, set()) for name in clause.named_graphs})
            text = query.text(clause.text())
            compare_one_shot(engine.query(text), dataset, query, text)


@fuzzed(15)
@given(st.lists(make.quads(), min_size=2, max_size=5), st.lists(make.queries(), min_size=2, max_size=4))
def test_answers_after_several_loads(loads: list[Data], queries: list[Query]) -> None:
    """Many small batches, overlapping: a graph stays a set, and an earlier snapshot keeps its answer."""
    merged: Data = {None: set()}
    with wukongs.Engine() as engine:
        for data in loads:
            # One load would make blank nodes of its own: leave them out, the scenarios have them.
            data = {graph: {t for t in triples if not _has_blank(t)} for graph, triples in data.items()}
            engine.load(io.BytesIO(nquads(data)), format="nq")
            for graph, triples in data.items():
                merged.setdefault(graph, set()).update(triples)
            dataset = Dataset(merged[None], {name: triples for name, triples in named(merged).items() if triples})
            for query in queries:
                compare_one_shot(engine.query(query.text()), dataset, query, query.text())


def _has_blank(triple: Triple) -> bool:
    return any(term.kind == "bnode" for term in triple)
