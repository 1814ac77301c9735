"""The W3C's SPARQL tests, each run through the Engine as its manifest says.

Terms compare by text, numbers by datatype and value (the suite writes `6` and `6.0E0` for one xsd:float).
Tests that may fail are listed in w3c_known.md with the reason; a listed test that passes is a failure here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pyoxigraph
import pytest

import wukongs
from tests.oracles.compare import Cell, cell, same_graph, same_rows
from tests.oracles.rdf import Term, Triple, from_rdflib
from tests.oracles.triple_terms import spread_graph
from tests.oracles.w3c import SUITE, Rows, W3cTest, all_tests, csv_rows, expected_answer, graph_of, read_result

KNOWN_FILE = Path(__file__).with_name("w3c_known.md")
FORMATS = (("json", "srj"), ("xml", "srx"))
_ROW = re.compile(r"^\| `([^`]+)` \| (.+) \|$", re.MULTILINE)

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not all_tests(), reason=f"the W3C tests are not beside the project ({SUITE})"),
]


def known_failures() -> dict[str, str]:
    """The tests that may fail, with the reason."""
    return dict(_ROW.findall(KNOWN_FILE.read_text(encoding="utf-8")))


def cases_of(*kinds: str) -> list[object]:
    """The tests of some kinds (names, or their beginnings) as parameters."""
    found = [test for test in all_tests() if test.kind.startswith(kinds)]
    return [pytest.param(test, id=test.short_id) for test in found]


def held(test: W3cTest, fault: str | None) -> None:
    """Fail on a fault, unless the test is listed: then fail if there is none."""
    reason = known_failures().get(test.short_id)
    if reason is not None:
        assert fault is not None, f"{test.short_id} passes: take it out of {KNOWN_FILE.name} ({reason})"
    elif fault is not None:
        pytest.fail(f"{test.short_id} ({test.text}): {fault}", pytrace=False)


@pytest.mark.parametrize("test", cases_of("PositiveSyntaxTest"))
def test_right_syntax(test: W3cTest) -> None:
    fault = None
    try:
        wukongs.parse_query(test.source(), test.base)
    except wukongs.WukongsError as error:
        fault = str(error)
    held(test, fault)


@pytest.mark.parametrize("test", cases_of("NegativeSyntaxTest"))
def test_wrong_syntax(test: W3cTest) -> None:
    """A wrong query is a syntax error: to be refused as unsupported is not enough."""
    fault: str | None = "a wrong query was taken"
    try:
        wukongs.parse_query(test.source(), test.base)
    except wukongs.QuerySyntaxError:
        fault = None
    except wukongs.WukongsError as error:
        fault = str(error)
    held(test, fault)


@pytest.mark.nojit
@pytest.mark.parametrize("test", cases_of("QueryEvaluationTest"))
def test_evaluation(test: W3cTest) -> None:
    try:
        with engine_of(test) as engine:
            fault = answer_fault(test, engine.query(test.source(), base=test.base))
    except wukongs.WukongsError as error:
        fault = str(error)
    held(test, fault)


@pytest.mark.nojit
@pytest.mark.parametrize("test", cases_of("CSVResultFormatTest"))
def test_csv(test: W3cTest) -> None:
    assert isinstance(test.result, str)
    with engine_of(test) as engine:
        ours = engine.query(test.source(), base=test.base).serialize("csv")
    content = ours if isinstance(ours, bytes) else ours.encode("utf-8")
    (header, rows), (wanted_header, wanted) = csv_rows(content), csv_rows((SUITE / test.result).read_bytes())
    fault = None if header == wanted_header and same_rows(rows, wanted) else f"{rows} instead of {wanted}"
    held(test, fault)


@pytest.mark.parametrize("test", cases_of("PositiveUpdateSyntaxTest"))
def test_right_update_syntax(test: W3cTest) -> None:
    fault = None
    try:
        wukongs.parse_update(test.source(), test.base)
    except wukongs.WukongsError as error:
        fault = str(error)
    held(test, fault)


@pytest.mark.parametrize("test", cases_of("NegativeUpdateSyntaxTest"))
def test_wrong_update_syntax(test: W3cTest) -> None:
    fault: str | None = "a wrong update was taken"
    try:
        wukongs.parse_update(test.source(), test.base)
    except wukongs.QuerySyntaxError:
        fault = None
    except wukongs.WukongsError as error:
        fault = str(error)
    held(test, fault)


@pytest.mark.nojit
@pytest.mark.parametrize("test", cases_of("UpdateEvaluationTest"))
def test_update(test: W3cTest) -> None:
    fault = None
    try:
        with engine_of(test) as engine:
            before = engine.stats()["sn"]
            assert engine.update(test.source(), base=test.base) == engine.stats()["sn"] == before + 1
            fault = graphs_fault(test, engine)
    except wukongs.WukongsError as error:
        fault = str(error)
    held(test, fault)


def graphs_fault(test: W3cTest, engine: wukongs.Engine) -> str | None:
    """Say which graph is not as it should be after an update; an empty one is the same as none."""
    expected: dict[str | None, set[Triple]] = {name: graph_of(path) for name, path in test.result_graphs.items()}
    expected[None] = {triple for path in test.result or () for triple in graph_of(path)}
    for name in {*expected, *engine.graph_names()}:
        made: set[Triple] = {(from_rdflib(s), from_rdflib(p), from_rdflib(o)) for s, p, o in engine.graph(name)}
        if not same_graph(made, expected.get(name, set())):
            return f"graph {name}: {made} instead of {expected.get(name)}"
    return None


def test_known_failures_are_tests() -> None:
    """Every line of the list names a test that exists."""
    assert known_failures().keys() <= {test.short_id for test in all_tests()}


def engine_of(test: W3cTest) -> wukongs.Engine:
    """An engine with the data of a test: the default graph merged of its files, named graphs under their names."""
    engine = wukongs.Engine()
    for path in test.data:
        engine.load(str(SUITE / path), base=f"http://w3c.example/{path}")
    for name, path in test.graphs.items():
        engine.load(str(SUITE / path), graph=name, base=f"http://w3c.example/{path}")
    return engine


def answer_fault(test: W3cTest, result: wukongs.Result) -> str | None:
    """Say what is wrong with an answer, None if nothing is."""
    assert isinstance(test.result, str)
    expected = expected_answer(test.result)
    if isinstance(expected, bool):
        return None if result.boolean is expected else f"{result.boolean} instead of {expected}"
    if isinstance(expected, Rows):
        return rows_fault(test, result, expected)
    made = graph_made(test, result)
    return None if same_graph(made, expected) else f"{made} instead of {expected}"


def rows_fault(test: W3cTest, result: wukongs.Result, expected: Rows) -> str | None:
    if set(result.vars) != set(expected.variables) and (expected.variables or expected.rows):
        return f"variables {result.vars} instead of {expected.variables}"
    ours = [tuple(cell(term, True) for term in row) for row in rows_made(test, result, expected.variables)]
    theirs = [tuple(cell(term, True) for term in row) for row in expected.rows]
    if "reduced" in test.category:
        ours, theirs = sorted(set(ours)), sorted(set(theirs))  # REDUCED may keep any number of equal rows
    if not same_rows(ours, theirs):
        return f"{ours} instead of {theirs}"
    if re.search(r"ORDER\s+BY", test.source(), re.IGNORECASE) and not same_order(ours, theirs):
        return f"in another order: {ours} instead of {theirs}"
    return None


def rows_made(test: W3cTest, result: wukongs.Result, variables: tuple[str, ...]) -> Iterable[tuple[Term | None, ...]]:
    """The rows of an answer, with the columns in an order: of rdflib's terms, or, as rdflib has no terms for RDF 1.2,
    as our JSON and XML are read by pyoxigraph."""
    if test.suite != "12":
        places = [result.vars.index(name) for name in variables]
        return [tuple(None if row[at] is None else from_rdflib(row[at]) for at in places) for row in result]
    read = [read_result(as_bytes(result.serialize(name)), kind, variables) for name, kind in FORMATS]
    assert isinstance(read[0], Rows)
    assert read[0] == read[1]
    return read[0].rows


def graph_made(test: W3cTest, result: wukongs.Result) -> set[Triple]:
    if test.suite != "12":
        return {(from_rdflib(s), from_rdflib(p), from_rdflib(o)) for s, p, o in result.graph()}
    return spread_graph(pyoxigraph.parse(as_bytes(result.serialize("nt")), format=pyoxigraph.RdfFormat.N_TRIPLES))


def as_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8")


def same_order(ours: list[tuple[Cell, ...]], theirs: list[tuple[Cell, ...]]) -> bool:
    """Whether rows are equal one by one, blank nodes up to a renaming."""
    renaming: dict[str, str] = {}
    for mine, other in zip(ours, theirs, strict=True):
        for found, wanted in zip(mine, other, strict=True):
            if found[0] == "bnode" == wanted[0]:
                if renaming.setdefault(found[1], wanted[1]) != wanted[1]:
                    return False
            elif found != wanted:
                return False
    return True
