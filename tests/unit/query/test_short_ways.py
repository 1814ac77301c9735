"""Short ways to the same answers: ranks without decoding, ORDER BY cut by LIMIT, DISTINCT that stops early."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest

import wukongs
from wukongs.csparql.algebra import Call
from wukongs.csparql.terms import XSD, Term, Variable, literal
from wukongs.query.binding_table import BindingTable
from wukongs.query.expressions.expressions import holds
from wukongs.query.operators.operators import distinct, project
from wukongs.query.operators.ordering import first_distinct, order_by, ranks_of, ranks_of_ids
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.query.terms.values import value_of
from wukongs.store.term_registry import TermRegistry

pytestmark = pytest.mark.nojit

X, Y = Variable("x"), Variable("y")


def typed(name: str, *lexicals: str) -> list[str]:
    return [literal(lexical, XSD + name).text for lexical in lexicals]


def space() -> QueryTerms:
    registry = TermRegistry()
    return QueryTerms(registry, registry.snapshot_reader())


TIMES = ("2010-02-01T00:00:00Z", "2010-02-01T01:00:00+01:00", "2010-02-01T00:00:00", "2010-02-01T00:00:00.5Z")
ALIKE = {
    "integers": typed("integer", "3", "-7", "0", "12") + typed("int", "3", "5"),
    "large integers": typed("integer", str(2**53), str(2**53 + 1), "5"),
    "doubles": typed("double", "1.5", "-0.0", "0.0", "1.50", "1e3", "1000.0", "40.059137592080845"),
    "infinite doubles": typed("double", "INF", "-INF", "NaN", "1.0"),
    "decimals": typed("decimal", "0.1", "0.10", "3", "-2.5"),
    "numbers": typed("integer", "1", "2") + typed("double", "1.0", "1.5") + typed("decimal", "1.0"),
    "date-times": typed("dateTime", *TIMES, "2010-02-01T00:00:00.000001Z", "1950-01-01T00:00:00.123456Z"),
    "dates": typed("date", "2010-02-01", "2010-02-01Z", "2010-02-01+14:00", "2009-12-31"),
    "times of two kinds": typed("dateTime", TIMES[0]) + typed("date", "2010-02-01Z", "2012-01-01"),
    "IRIs": ["<http://e/a>", "<http://e/a/b>", "<http://e/a!>", "<>"],
    "strings": ['"b"', '""', '"a"', '"a longer string, which no id can hold"', '"\N{LATIN SMALL LETTER E WITH ACUTE}"'],
    "strings with languages": ['"a"', '"a"@en', '"a"@de', '"b"'],
    "all": ["<http://e/a>", '"a"', "_:b", *typed("boolean", "true"), *typed("integer", "1")],
}


@pytest.mark.parametrize("texts", ALIKE.values(), ids=ALIKE)
@pytest.mark.parametrize("with_unbound", [False, True])
def test_ranks_of_ids_are_those_of_their_values(texts: list[str], with_unbound: bool) -> None:
    terms = space()
    ids = terms.ids(texts)
    expected = ranks_of([value_of(text) for text in texts])
    if with_unbound:
        ids, expected = np.append(ids, -1), ranks_of([*map(value_of, texts), None])
    found = ranks_of_ids(ids, terms).tolist()
    for one in range(len(ids)):
        for other in range(len(ids)):
            assert (found[one] < found[other]) == (expected[one] < expected[other]), (one, other)


@pytest.mark.parametrize("seed", range(5))
def test_the_first_rows_of_an_order_are_the_same_when_only_these_are_wanted(seed: int) -> None:
    rng, terms = random.Random(seed), space()
    numbers = terms.ids(typed("integer", *(str(rng.randrange(6)) for _ in range(60))))
    names = terms.ids([f"<http://e/{rng.randrange(9)}>" for _ in range(60)])
    table = BindingTable((X, Y), (numbers, names), 60)
    third = np.array([rng.randrange(3) for _ in range(60)])
    for conditions in ([(X, False)], [(X, True), (Y, False)], [(Y, True), (X, True)]):
        ties = (names, third)
        whole = order_by(table, conditions, terms, ties=ties)
        for wanted in (0, 1, 7, 59, 60, 100):
            found = order_by(table, conditions, terms, wanted, ties)
            for column, expected in zip(found.columns, whole.columns, strict=True):
                assert column[:wanted].tolist() == expected[:wanted].tolist()


@pytest.mark.parametrize("seed", range(5))
def test_the_first_distinct_rows_are_those_of_the_whole_order(seed: int) -> None:
    rng, terms = random.Random(seed), space()
    numbers = terms.ids(typed("integer", *(str(rng.randrange(6)) for _ in range(60))))
    names = terms.ids([f"<http://e/{rng.randrange(9)}>" for _ in range(60)])
    table, ties = BindingTable((X, Y), (numbers, names), 60), (names, numbers)
    for shown in ([X], [Y], [X, Y]):
        for conditions in ([(X, False)], [(Y, True)], [(X, True), (Y, False)]):
            whole = distinct(project(order_by(table, conditions, terms, ties=ties), shown))
            for wanted in (0, 1, 4, 9, 100):
                found = first_distinct(table, shown, conditions, terms, wanted, ties)
                for column, expected in zip(found.columns, whole.columns, strict=True):
                    assert column[:wanted].tolist() == expected[:wanted].tolist()


def test_date_times_compare_as_the_scalar_evaluator_compares_them() -> None:
    terms = space()
    texts = typed("dateTime", *TIMES, "2010-02-01T00:00:00.000001Z", "none") + typed("date", "2010-02-01Z")
    table = BindingTable((X,), (np.append(terms.ids(texts), -1),), len(texts) + 1)
    constant = Term(texts[0])
    for op in ("=", "!=", "<", ">", "<=", ">="):
        for left, right in ((X, constant), (constant, X)):
            expected = [
                holds(
                    Call("&&", (Call(op, (left, right)), Call("BOUND", (X,)))),
                    table.take(np.array([row])),
                    _Decoding(terms),
                )[0]
                for row in range(table.length)
            ]
            assert holds(Call(op, (left, right)), table, terms).tolist() == expected, (op, left)


class _Decoding(QueryTerms):
    """The same terms, but nothing is read off their ids."""

    inlines = False

    def __init__(self, terms: QueryTerms) -> None:
        super().__init__(terms._registry, terms._reader, terms.moment)
        self._computed = terms._computed


def test_distinct_and_limit_give_as_many_distinct_rows_as_there_are() -> None:
    lines = "".join(f"<http://e/{s}> <http://e/p> <http://e/{s % 3}> .\n" for s in range(3000))
    with wukongs.Engine() as engine:
        engine.load(io.BytesIO(lines.encode()), format="nt")
        for limit, count in ((0, 0), (1, 1), (2, 2), (3, 3), (4, 3)):
            text = f"SELECT DISTINCT ?o {{ ?s <http://e/p> ?o }} LIMIT {limit}"
            rows = list(engine.query(text))
            assert len(rows) == len(set(rows)) == count
            ordered = list(engine.query(f"SELECT DISTINCT ?o {{ ?s <http://e/p> ?o }} ORDER BY ?o LIMIT {limit}"))
            assert [str(row[0])[-1] for row in ordered] == list("012")[:count]
        assert len(engine.query("SELECT DISTINCT ?s { ?s <http://e/p> ?o } OFFSET 10 LIMIT 2980")) == 2980
        assert len(engine.query("SELECT ?s { ?s <http://e/p> ?o } LIMIT 7")) == 7
        assert engine.query("ASK { ?s <http://e/p> ?o . ?o <http://e/p> ?x }").boolean
        assert not engine.query("ASK { ?s <http://e/p> <http://e/77> }").boolean
