"""The oracles against each other, before they judge anything: three evaluators and hand-made stream histories."""

from __future__ import annotations

import pytest
from hypothesis import assume, given

from tests import strategies as make
from tests.fuzz import fuzzed
from tests.oracles.judge import NoVerdict, judge
from tests.oracles.paths import Var
from tests.oracles.query_ast import Arithmetic, Bgp, Column, Compare, Filter, Group, Query
from tests.oracles.rdf import Term, Triple, iri, literal
from tests.oracles.sparql_oracle import Dataset, TooBig
from tests.oracles.stream_oracle import DatasetClause, OracleStream, StreamOracle, Window
from tests.oracles.values import XSD, ExpressionError, Undefined, compare

A, B = "http://example.org/A", "http://example.org/B"
P, Q = iri("http://example.org/p"), iri("http://example.org/q")


def triple(name: str, predicate: Term = P) -> Triple:
    return iri(f"http://example.org/{name}"), predicate, iri("http://example.org/o")


@fuzzed(150)
@given(make.quads(), make.queries())
def test_three_evaluators_agree(data: dict[Term | None, set[Triple]], query: Query) -> None:
    dataset = Dataset(data[None], {name: triples for name, triples in data.items() if name is not None})
    try:
        judge(dataset, query)
    except (NoVerdict, TooBig, Undefined):
        assume(False)


def test_one_date_less_another_has_no_meaning_whatever_pyoxigraph_says() -> None:
    moment = literal("2021-03-04T05:06:07Z", XSD + "dateTime")
    a = Var("a")
    less = Column(Var("v"), Arithmetic("-", a, a))
    query = Query("select", Group((Bgp(((Var("s"), P, a),)),)), (Column(a), less))
    verdict = judge(Dataset({(iri(A), P, moment)}, {}), query, ask_rdflib=False)  # which subtracts them too
    assert verdict.fault([(moment, None)]) == ""


def test_an_iri_has_no_order_to_itself_whatever_pyoxigraph_says() -> None:
    """17.3: a type error. 17.3.1 would allow more comparisons."""
    a = Var("a")
    query = Query("select", Group((Bgp(((Var("s"), P, a),)), Filter(Compare("<=", a, a)))), (Column(a),))
    one = literal("1", XSD + "integer")
    verdict = judge(Dataset({(iri(A), P, iri(B)), (iri(A), P, one)}, {}), query)
    assert verdict.fault([(one,)]) == ""
    assert verdict.fault([(one,), (iri(B),)]) != ""


def history() -> StreamOracle:
    oracle = StreamOracle()
    oracle.stream(OracleStream(A, 100, frozenset({Q.value})))
    oracle.stream(OracleStream(B, 500))
    return oracle


def test_a_window_is_open_to_the_left_and_closed_to_the_right() -> None:
    oracle = history()
    oracle.register("q", DatasetClause(windows=(Window(A, 200, 100),)))
    oracle.push(A, [(triple("at100"), 100), (triple("at101"), 101), (triple("at300"), 300), (triple("at301"), 301)])
    assert oracle.firings("q") == [100, 200, 300]
    assert oracle.dataset("q", 300).default == {triple("at101"), triple("at300")}


def test_each_window_closes_at_its_own_multiple() -> None:
    oracle = history()
    oracle.register("q", DatasetClause(windows=(Window(A, 100, 100), Window(B, 500, 1000, named=True))))
    oracle.push(B, [(triple("b"), 1000), (triple("late"), 1100)])
    oracle.push(A, [(triple("a"), 1200), (triple("after"), 1201)])
    oracle.advance(B, 1500)
    dataset = oracle.dataset("q", 1200)
    assert (dataset.default, dataset.named[iri(B)]) == ({triple("a")}, {triple("b")})


def test_streams_hold_each_other_only_once_they_have_started() -> None:
    oracle = history()
    oracle.push(A, [(triple("a"), 950)])
    assert oracle.stable_ms() == 999
    oracle.push(B, [(triple("b"), 1300)])
    oracle.advance(A, 2000)
    assert oracle.stable_ms() == 1499


def test_timing_tuples_are_never_stored_and_loads_show_from_the_next_firing_on() -> None:
    oracle = history()
    oracle.push(A, [(triple("stays"), 50), (triple("goes", Q), 60), (triple("next"), 150)])
    oracle.load(None, {triple("loaded")})
    assert oracle.stored(100)[None] == {triple("stays")}
    assert oracle.stored(200)[None] == {triple("stays"), triple("next"), triple("loaded")}
    assert oracle.one_shot(DatasetClause()).default == {triple("stays"), triple("loaded")}


def test_first_firing_lies_after_the_registration() -> None:
    oracle = history()
    oracle.push(A, [(triple("a"), 1000)])
    oracle.advance(A, 1000)
    oracle.register("q", DatasetClause(windows=(Window(A, 300, 200),)))
    oracle.register("r", DatasetClause(windows=(Window(B, 500, 500),)))
    oracle.advance(B, 1700)
    oracle.advance(A, 2000)
    assert oracle.first("q") == (1200, 1200)
    assert oracle.first("r") == (2000, 2000)  # B's first sign of life
    assert oracle.fault_of_firings("q", [1200, 1400, 1600, 1800, 2000]) == ""
    assert "expected" in oracle.fault_of_firings("q", [1400])
    assert "every multiple" in oracle.fault_of_firings("q", [1200, 1200, 1400])


def test_a_push_that_goes_back_adds_nothing() -> None:
    oracle = history()
    with pytest.raises(ValueError, match="decrease"):
        oracle.push(A, [(triple("a"), 200), (triple("b"), 100)])
    assert oracle.streams[A].tuples == []


def test_literals_that_no_operator_compares_depend_on_the_reading() -> None:
    one, text = literal("1", XSD + "integer"), literal("one")
    assert compare("!=", one, text, strict=False) is True
    with pytest.raises(ExpressionError):
        compare("!=", one, text, strict=True)
    assert compare("=", one, literal("1.0", XSD + "decimal"), strict=True) is True
