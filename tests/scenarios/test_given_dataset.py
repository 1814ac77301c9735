"""The dataset of a query or an update that is given beside its text: it takes the place of FROM, or of USING."""

from __future__ import annotations

import pytest

import wukongs
from tests.engine_helpers import rows

DATA = """INSERT DATA {
    <http://ex/d> <http://ex/p> 0 .
    GRAPH <http://ex/g> { <http://ex/a> <http://ex/p> 1 }
    GRAPH <http://ex/h> { <http://ex/b> <http://ex/p> 2 }
    GRAPH <http://ex/i> { <http://ex/c> <http://ex/p> 3 } }"""
ALL = "SELECT ?s { ?s ?p ?o } ORDER BY ?o"
NAMED = "SELECT ?g ?s { GRAPH ?g { ?s ?p ?o } } ORDER BY ?o"
G, H, LAST = "http://ex/g", "http://ex/h", "http://ex/i"


def test_the_dataset_of_a_query(engine: wukongs.Engine) -> None:
    engine.update(DATA)
    assert rows(engine.query(ALL)) == [("d",)]
    assert rows(engine.query(ALL, default_graphs=[G, H])) == [("a",), ("b",)]
    assert rows(engine.query(ALL, default_graphs=[f"<{H}>"], named_graphs=[G])) == [("b",)]
    assert rows(engine.query(NAMED, default_graphs=[G])) == []
    assert rows(engine.query(NAMED, named_graphs=[G, LAST])) == [("g", "a"), ("i", "c")]
    assert rows(engine.query(ALL, named_graphs=[G])) == [], "there is a dataset, whose default graph is empty"
    assert rows(engine.query(ALL)) == [("d",)], "the same text, without a dataset again"


def test_it_takes_the_place_of_the_querys_own(engine: wukongs.Engine) -> None:
    engine.update(DATA)
    where = "{ { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
    text = f"SELECT ?s FROM <{LAST}> FROM NAMED <{LAST}> {where} ORDER BY ?o"
    assert rows(engine.query(text)) == [("c",), ("c",)]
    assert rows(engine.query(text, default_graphs=[G])) == [("a",)]
    assert rows(engine.query(text, default_graphs=[G], bindings={"s": "<http://ex/a>"})) == [("a",)]


def test_a_plan_is_over_it(engine: wukongs.Engine) -> None:
    engine.update(DATA)
    assert f"from <{G}>\nfrom named <{H}>\n" in engine.explain(ALL, default_graphs=[G], named_graphs=[H])
    assert "[2 rows, " in engine.explain(NAMED, analyze=True, named_graphs=[G, H])


def test_the_dataset_of_an_update(engine: wukongs.Engine) -> None:
    engine.update(DATA)
    copy = "INSERT { GRAPH <http://ex/n> { ?s ?p ?o } } WHERE { ?s ?p ?o }"
    engine.update(
        f"{copy} ; INSERT DATA {{ GRAPH <http://ex/n> {{ <http://ex/e> <http://ex/p> 4 }} }}", default_graphs=[G]
    )
    assert rows(engine.query(ALL, default_graphs=["http://ex/n"])) == [("a",), ("e",)]
    engine.update("DELETE { GRAPH ?g { ?s ?p ?o } } WHERE { GRAPH ?g { ?s ?p ?o } }", named_graphs=[H, LAST])
    assert rows(engine.query(NAMED)) == [("g", "a"), ("n", "a"), ("n", "e")]


@pytest.mark.parametrize(
    "text",
    [
        f"INSERT {{ ?s ?p 9 }} USING <{G}> WHERE {{ ?s ?p ?o }}",
        f"WITH <{G}> INSERT {{ ?s ?p 9 }} WHERE {{ ?s ?p ?o }}",
        f"INSERT DATA {{ <{G}> <{G}> 9 }} ; DELETE {{ ?s ?p ?o }} USING NAMED <{G}> WHERE {{ ?s ?p ?o }}",
    ],
)
def test_two_datasets_of_one_update_are_refused(engine: wukongs.Engine, text: str) -> None:
    engine.update(DATA)
    with pytest.raises(wukongs.UpdateError, match="says USING or WITH itself: expected one of the two"):
        engine.update(text, default_graphs=[H])
    assert rows(engine.query(ALL)) == [("d",)]


def test_a_name_that_is_no_iri_is_refused(engine: wukongs.Engine) -> None:
    with pytest.raises(wukongs.DataError, match="expected an IRI"):
        engine.query(ALL, default_graphs=["a b"])


def test_windows_are_not_replaced(engine: wukongs.Engine) -> None:
    text = "SELECT ?s FROM STREAM <http://ex/st> [RANGE 1s STEP 1s] { ?s ?p ?o }"
    with pytest.raises(wukongs.StreamError):
        engine.query(text, default_graphs=[G])


def test_warnings_are_of_the_given_dataset(engine: wukongs.Engine) -> None:
    engine.update("INSERT DATA { GRAPH <http://ex/graph> { <http://ex/s> <http://ex/knows> <http://ex/o> } }")
    own = "SELECT * FROM <http://ex/nothing> { ?s <http://ex/knows> ?o }"
    assert engine.warnings(own)[0].startswith("there is no graph <http://ex/nothing> so far")
    assert engine.warnings(own, default_graphs=["http://ex/graph"]) == ()
    told = ("there is no graph <http://ex/grpah> so far: did you mean <http://ex/graph>?",)
    plain = "SELECT * { ?s <http://ex/knows> ?o }"
    assert engine.warnings(plain) == ()
    assert engine.warnings(plain, default_graphs=["http://ex/grpah"]) == told
    assert engine.warnings(plain, named_graphs=["http://ex/grpah"]) == told
