"""The tables of spec_cases/, through the Engine and through pyoxigraph.

pyoxigraph shares no code with us; a case where it answers otherwise is marked, with the reason why it is not followed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

import wukongs
from tests.differential.spec_cases import PREFIXES, Case, UpdateCase
from tests.differential.spec_cases.expressions import EXPRESSIONS
from tests.differential.spec_cases.forms import FORMS
from tests.differential.spec_cases.groups import GROUPS
from tests.differential.spec_cases.patterns import PATTERNS
from tests.differential.spec_cases.syntax import RIGHT_QUERIES, RIGHT_UPDATES, WRONG_QUERIES, WRONG_UPDATES
from tests.differential.spec_cases.updates import UPDATES
from tests.oracles.compare import Cell, cell, same_rows
from tests.oracles.rdf import Term, from_oxigraph, from_rdflib, iri

ox = pytest.importorskip("pyoxigraph")

QUERIES: Sequence[Case] = (*PATTERNS, *GROUPS, *FORMS)
_UNBOUND = "urn:unbound"
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
Row = tuple[Term | None, ...]
Quad = tuple[Term, ...]


def named(cases: Iterable[Case | UpdateCase]) -> list[object]:
    return [pytest.param(case, id=case.name) for case in cases]


def quads(text: str) -> set[Quad]:
    """Read TriG; a fourth term is the name of the graph."""
    found = set()
    for quad in ox.parse((PREFIXES + text).encode(), format=ox.RdfFormat.TRIG):
        graph = () if isinstance(quad.graph_name, ox.DefaultGraph) else (from_oxigraph(quad.graph_name),)
        found.add((*map(from_oxigraph, (quad.subject, quad.predicate, quad.object)), *graph))
    return found


def rows_of(text: str) -> list[Row]:
    """Read Turtle lists of lists: the rows of an answer."""
    triples = quads(f"PREFIX u: <{_UNBOUND}> :rows :are ( {text} ) .")
    objects = {(s, p.value): o for s, p, o in triples}

    def items(at: Term) -> list[Term]:
        found = []
        while at != iri(_RDF + "nil"):
            found.append(objects[at, _RDF + "first"])
            at = objects[at, _RDF + "rest"]
        return found

    rows = map(items, items(objects[iri("http://e/rows"), "http://e/are"]))
    return [tuple(None if term == iri(_UNBOUND) else term for term in row) for row in rows]


def cells_of(rows: Iterable[Row]) -> list[tuple[Cell, ...]]:
    return [tuple(cell(term, calculated=True) for term in row) for row in rows]


def engine_of(data: str) -> wukongs.Engine:
    engine = wukongs.Engine()
    engine.load(io.BytesIO((PREFIXES + data).encode()), format="trig")
    return engine


def store_of(data: str) -> Any:
    store = ox.Store()
    store.load((PREFIXES + data).encode(), format=ox.RdfFormat.TRIG)
    return store


def fault_in_rows(case: Case, found: Iterable[Row]) -> str:
    assert isinstance(case.answer, str)
    ours, expected = cells_of(found), cells_of(rows_of(case.answer))
    ordered = re.search(r"ORDER BY[^}]*$", case.query) is not None
    same = ours == expected if ordered else same_rows(ours, expected)
    return "" if same else f"{ours} instead of {expected}"


def same_quads(left: Iterable[Quad], right: Iterable[Quad]) -> bool:
    """Whether two datasets are equal up to the labels of blank nodes: as rows, the default graph's short."""
    return same_rows(*(cells_of((*quad, None)[:4] for quad in each) for each in (left, right)))


def triples_of(result: Any) -> set[Quad]:
    return {(from_oxigraph(t.subject), from_oxigraph(t.predicate), from_oxigraph(t.object)) for t in result}


@pytest.mark.nojit
@pytest.mark.parametrize("case", named(QUERIES))
def test_query(case: Case) -> None:
    with engine_of(case.data) as engine:
        result = engine.query(PREFIXES + case.query)
        if result.kind == "ask":
            assert result.boolean is case.answer
        elif result.kind == "select":
            rows = [tuple(None if term is None else from_rdflib(term) for term in row) for row in result]
            assert fault_in_rows(case, rows) == ""
        else:
            assert isinstance(case.answer, str)
            made: set[Quad] = {tuple(map(from_rdflib, triple)) for triple in result.graph()}
            assert same_quads(made, quads(case.answer)), made
    assert is_answer_of_pyoxigraph(case) is (not case.pyoxigraph), case.pyoxigraph


def is_answer_of_pyoxigraph(case: Case) -> bool:
    try:
        found = store_of(case.data).query(PREFIXES + case.query)
    except SyntaxError:
        return False
    if isinstance(found, ox.QueryBoolean):
        return bool(found) is case.answer
    if isinstance(found, ox.QuerySolutions):
        rows = [tuple(None if term is None else from_oxigraph(term) for term in row) for row in found]
        return fault_in_rows(case, rows) == ""
    assert isinstance(case.answer, str)
    return same_quads(triples_of(found), quads(case.answer))


@pytest.fixture(scope="module")
def engine() -> Iterable[wukongs.Engine]:
    with wukongs.Engine() as made:
        yield made


@pytest.mark.nojit
@pytest.mark.parametrize(("expression", "value"), EXPRESSIONS)
def test_expression(engine: wukongs.Engine, expression: str, value: str) -> None:
    ((found,),) = engine.query(PREFIXES + f"BASE <http://e/d/f> SELECT ({expression} AS ?x) {{}}")
    assert cells_of([(None if found is None else from_rdflib(found),)]) == cells_of(rows_of(f"({value})"))


@pytest.mark.nojit
@pytest.mark.parametrize("case", named(UPDATES))
def test_update(case: UpdateCase) -> None:
    with engine_of(case.before) as engine:
        engine.update(PREFIXES + case.update)
        found: set[Quad] = {tuple(map(from_rdflib, triple)) for triple in engine.graph()}
        for name in engine.graph_names():
            found |= {(*map(from_rdflib, triple), iri(name)) for triple in engine.graph(name)}
    assert same_quads(found, quads(case.after)), found
    assert is_result_of_pyoxigraph(case) is (not case.pyoxigraph), case.pyoxigraph


def is_result_of_pyoxigraph(case: UpdateCase) -> bool:
    store = store_of(case.before)
    try:
        store.update(PREFIXES + case.update)
    except SyntaxError:
        return False
    return same_quads(quads_of(store), quads(case.after))


def quads_of(store: Any) -> set[Quad]:
    found = set()
    for quad in store:
        graph = () if isinstance(quad.graph_name, ox.DefaultGraph) else (from_oxigraph(quad.graph_name),)
        found.add((*map(from_oxigraph, (quad.subject, quad.predicate, quad.object)), *graph))
    return found


@pytest.mark.parametrize("text", RIGHT_QUERIES)
def test_right_query(text: str) -> None:
    wukongs.parse_query(PREFIXES + text)


@pytest.mark.parametrize("text", WRONG_QUERIES)
def test_wrong_query(text: str) -> None:
    with pytest.raises(wukongs.QuerySyntaxError):
        wukongs.parse_query(PREFIXES + text)


@pytest.mark.parametrize("text", RIGHT_UPDATES)
def test_right_update(text: str) -> None:
    wukongs.parse_update(PREFIXES + text)


@pytest.mark.parametrize("text", WRONG_UPDATES)
def test_wrong_update(text: str) -> None:
    with pytest.raises(wukongs.QuerySyntaxError):
        wukongs.parse_update(PREFIXES + text)
