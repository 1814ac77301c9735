"""Engine.query's bindings: terms in the place of variables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import wukongs
from tests.property.test_plan import DEFAULT_ID, VERTICES, resolve, term
from tests.quads import batch_of, spread
from wukongs.csparql.algebra import Bgp, Extend, Project
from wukongs.csparql.parser import parse_query
from wukongs.csparql.terms import Term, Variable, iri
from wukongs.query.execution.bindings import bind
from wukongs.query.execution.executor import Executor
from wukongs.query.limits import Limits
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.terms.moment import Moment
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import Int64Array, UInt8Array

A, B = iri("http://ex/a"), iri("http://ex/b")


def test_a_bound_variable_is_a_constant_that_is_still_reported() -> None:
    query = bind(parse_query("SELECT ?s ?o { ?s ?p ?o }", None), {Variable("s"): A})
    assert isinstance(query.pattern, Project)
    inner = query.pattern.pattern
    assert isinstance(inner, Extend)
    assert (inner.variable, inner.expression) == (Variable("s"), A)
    assert isinstance(inner.pattern, Bgp)
    assert inner.pattern.patterns[0].subject == A
    assert query.variables == ("s", "o")


def test_no_bindings_change_nothing() -> None:
    query = parse_query("SELECT ?s { ?s ?p ?o FILTER(?o = ?s) } ORDER BY ?s LIMIT 3", None)
    assert bind(query, {}) == query


class NumberedTerms:
    """A TermSpace in which <n> has the id n."""

    moment = Moment(0, b"a term space of the tests")
    inlines = False

    def gather(self, ids: Int64Array) -> tuple[UInt8Array, Int64Array]:
        parts = [text.encode() for text in self.texts(ids)]
        return np.frombuffer(bytearray(b"".join(parts)), np.uint8), np.cumsum([0, *map(len, parts)])

    def ids(self, texts: Sequence[str]) -> Int64Array:
        return np.array([resolve(Term(text)) for text in texts], np.int64)

    def texts(self, ids: Int64Array) -> list[str]:
        return [f"<{number}>" for number in ids.tolist()]


def rows_of(text: str, bindings: dict[str, Term]) -> list[tuple[int, ...]]:
    """Run a query over <1> <p> <2>, <2> <p> <3> of the plan test's vertices."""
    quads = [(DEFAULT_ID, VERTICES[i], spread(500), VERTICES[i + 1]) for i in range(2)]
    query = bind(parse_query(text, None), {Variable(name): term for name, term in bindings.items()})
    dataset = Dataset(query.dataset, BatchSet.of((batch_of(quads),), True), {}, resolve)

    table = Executor(dataset, NumberedTerms(), Limits(), PlanMemo()).run(query.pattern)
    columns = [table.column(Variable(name)).tolist() for name in query.variables]
    return sorted(zip(*columns, strict=True))


def test_rows_are_those_that_have_the_value() -> None:
    first, second = VERTICES[0], VERTICES[1]
    text = "SELECT ?s ?o { ?s ?p ?o }"
    assert rows_of(text, {}) == sorted([(first, second), (second, VERTICES[2])])
    assert rows_of(text, {"s": term(first)}) == [(first, second)]
    assert rows_of(text, {"s": term(VERTICES[4])}) == []
    assert rows_of("SELECT ?s ?o { ?s ?p ?o FILTER(sameTerm(?s, ?x)) }", {"x": term(second)}) == [(second, VERTICES[2])]


def test_a_binding_reaches_below_groups_and_orders() -> None:
    second = VERTICES[1]
    text = "SELECT ?s ?o { ?s ?p ?o } GROUP BY ?s ?o ORDER BY ?s"
    assert rows_of(text, {"s": term(second)}) == [(second, VERTICES[2])]


def test_a_binding_reaches_below_distinct_rows_that_limit_orders() -> None:
    text = "SELECT DISTINCT ?p (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?p ORDER BY ?n ?p"
    with wukongs.Engine() as engine:
        engine.update(f"INSERT DATA {{ {A.text} <http://ex/p> 1 , 2 ; <http://ex/q> 1 }}")
        answers = [[*engine.query(f"{text} {tail}", bindings={"n": 5})] for tail in ("", "LIMIT 9", "LIMIT 9 OFFSET 0")]
        assert [len(rows) for rows in answers] == [2, 2, 2], "the WHERE clause has no ?n"
        assert answers[0] == answers[1] == answers[2]


def test_a_variable_that_the_query_defines_itself_must_come_out_as_given() -> None:
    first, second = VERTICES[0], VERTICES[1]
    text = "SELECT ?s ?x { ?s ?p ?o BIND(?o AS ?x) }"
    assert rows_of(text, {"x": term(second)}) == [(first, second)]
    assert rows_of(text, {"x": term(VERTICES[4])}) == []
    assert rows_of("SELECT (?o AS ?x) { ?s ?p ?o }", {"x": term(second)}) == [(second,)]
