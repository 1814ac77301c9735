"""Prepared queries: the answer for a row of terms is that of the query with these terms written in its place."""

from __future__ import annotations

import io
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wukongs
from tests.differential.test_query_group import NODES, TERMS, graphs, queries, variables_in
from tests.fuzz import fuzzed
from wukongs.csparql.parser import parse_query
from wukongs.csparql.rules import rewrite
from wukongs.csparql.terms import Term, Variable
from wukongs.live.reading import ask
from wukongs.query.execution.bindings import bind
from wukongs.query.execution.prepared import bindable
from wukongs.query.limits import Limits
from wukongs.query.output.results import Result
from wukongs.query.plans.plan_memo import PlanMemo

Row = tuple[str | None, ...]


def alone(engine: wukongs.Engine, text: str, row: dict[str, str]) -> Result:
    """Answer a query with terms in the place of its variables, planned for these alone."""
    query = bind(rewrite(parse_query(text)), {Variable(name): Term(term) for name, term in row.items()})
    return ask(engine._core, query, PlanMemo(), Limits(), "alone")[0]


def is_cut(text: str) -> bool:
    """Whether the answer depends on the order in which rows are found."""
    return "LIMIT" in text or "OFFSET" in text or "GROUP_CONCAT" in text


def is_cut_inside(text: str) -> bool:
    """Tell whether a subquery may keep one row or another, so that the number of rows may differ as well."""
    return is_cut(text) and text.count("SELECT") > 1


@pytest.mark.slow
@settings(fuzzed(150))
@given(queries(), graphs(), st.data())
def test_each_row_as_alone(text: str, data: str, draw: st.DataObject) -> None:
    known = [name for name in variables_in(text) if name in bindable(rewrite(parse_query(text)))]
    names = draw.draw(st.lists(st.sampled_from(known), min_size=1, max_size=2, unique=True)) if known else []
    terms = st.sampled_from([*TERMS, "<http://e/nowhere>"])
    row = st.tuples(*[st.sampled_from(NODES) if draw.draw(st.booleans()) else terms for _ in names])
    table = draw.draw(st.lists(row, min_size=1, max_size=6)) if names else []
    rows = [dict(zip(names, one, strict=True)) for one in table]
    with wukongs.Engine() as engine:
        engine.load(io.BytesIO(data.encode()), format="nq")
        prepared = engine.prepare(text)
        expected: list[list[Row]] = [alone(engine, text, one).texts() for one in rows]
        for one, answer in zip(rows, expected, strict=True):
            if not is_cut(text):
                assert Counter(prepared(one).texts()) == Counter(answer), (text, data, one)
            if not is_cut_inside(text):
                assert len(prepared(**one)) == len(answer)
        if not rows:
            return
        found = prepared.many(rows)
        assert found.column_names == ["argument", *prepared(rows[0]).vars]
        by_number: dict[int, list[Row]] = defaultdict(list)
        for number, *cells in zip(*(column.to_pylist() for column in found.columns), strict=True):
            by_number[number].append(tuple(cells))
        assert list(by_number) == sorted(by_number)
        for number, (one, answer) in enumerate(zip(rows, expected, strict=True)):
            if not is_cut_inside(text):
                assert len(by_number[number]) == len(answer), (text, data, one)
            if not is_cut(text):
                assert Counter(by_number[number]) == Counter(answer), (text, data, one)
        parts = list(prepared.batches(rows, rows=2))
        assert sum(part.num_rows for part in parts) == found.num_rows
        numbers = [number for part in parts for number in part.column("argument").to_pylist()]
        assert numbers == found.column("argument").to_pylist()


@pytest.mark.slow
@settings(fuzzed(60))
@given(st.data(), st.sampled_from([6, 10, 62]))
def test_while_the_graph_changes(draw: st.DataObject, hash_bits: int) -> None:
    """Few bits let terms clash, so that the ids of terms change as others come. With 6 there are 64 ids, for 44 terms
    that the data may have and five that a query is given."""
    names = st.sampled_from([f"<http://e/{number}>" for number in range(40)])
    triples = st.lists(st.tuples(names, st.sampled_from(["<http://e/p>", "<http://e/q>"]), names), max_size=8)
    texts = [
        "SELECT ?y { ?x <http://e/p> ?y }",
        "SELECT ?x ?z { ?x <http://e/p> ?y . ?y <http://e/q> ?z }",
        "SELECT ?y { <http://e/1> <http://e/p> ?y . ?y <http://e/q> ?x }",
        "SELECT ?x ?y { ?x ?r ?y FILTER(?y != <http://e/2>) }",
        "SELECT ?y { GRAPH ?g { ?x <http://e/p> ?y } }",
        "SELECT ?y { GRAPH ?x { ?z <http://e/p> ?y } }",
        "SELECT ?y ?z { ?y ?x ?z }",
    ]
    with wukongs.Engine(settings=wukongs.Settings(hash_bits=hash_bits)) as engine:
        prepared = [engine.prepare(text) for text in texts]
        for _ in range(draw.draw(st.integers(1, 6))):
            verb, rows = draw.draw(st.sampled_from(["INSERT", "DELETE"])), draw.draw(triples)
            block = " ".join(f"{s} {p} {o} ." for s, p, o in rows)
            graph = draw.draw(st.sampled_from(["%s", "GRAPH <http://e/g> { %s }"])) % block
            engine.update(f"{verb} DATA {{ {graph} }}")
            for one, text in zip(prepared, texts, strict=True):
                given = draw.draw(st.lists(names, min_size=1, max_size=5))
                answers = [Counter(alone(engine, text, {"x": x}).texts()) for x in given]
                assert Counter(one(x=given[0]).texts()) == answers[0], (text, given)
                found = one.many([{"x": x} for x in given])
                rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
                for number, answer in enumerate(answers):
                    assert Counter(row[1:] for row in rows if row[0] == number) == answer, (text, given, number)
