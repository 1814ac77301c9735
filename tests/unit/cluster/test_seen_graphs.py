"""A cluster as it is for a token with some graphs: its graphs are divided among nodes, and the others are not there."""

from __future__ import annotations

import io

import pytest

import wukongs
from tests.clusters import PATIENT, QUICK_PULSE_S, cluster
from tests.engine_helpers import A as S
from tests.engine_helpers import at
from tests.unit.cluster.wires import until
from wukongs.cluster.node_payloads import Registration, read_registration
from wukongs.errors import AccessError
from wukongs.live.query_source import QuerySource
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI

GRAPHS = ("http://ex/g0", "http://ex/g1", "http://ex/g2")
QUADS = [(f"<http://ex/s{n}>", f"<http://ex/p{n % 3}>", f"<http://ex/s{n % 7}>", n % 4) for n in range(80)]
QUERIES = [
    "SELECT * { ?s ?p ?o }",
    "SELECT * { GRAPH ?g { ?s ?p ?o } }",
    "SELECT * { GRAPH ?g {} }",
    "SELECT * { GRAPH ?g { ?s <http://ex/p1> ?o . ?o ?p ?x } }",
    "SELECT * { GRAPH ?g { ?s (<http://ex/p0>|<http://ex/p1>)+ ?o } }",
    "SELECT * { GRAPH ?g { <http://ex/s1> <http://ex/p1>* ?o } }",
    "SELECT * { GRAPH <http://ex/g1> { ?s ?p ?o } }",
    "SELECT * { GRAPH <http://ex/g2> { ?s ?p ?o } }",
    "SELECT (COUNT(*) AS ?n) FROM <http://ex/g0> FROM <http://ex/g2> { ?s ?p ?o }",
    "SELECT ?s { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } FILTER NOT EXISTS { GRAPH ?h { ?o ?q ?s } } }",
    "SELECT ?g (COUNT(*) AS ?n) { GRAPH ?g { ?s ?p ?o } } GROUP BY ?g",
    "DESCRIBE <http://ex/s1> <http://ex/s2>",
]


def lines(numbers: set[int]) -> io.BytesIO:
    names = ("", *(f"<{graph}>" for graph in GRAPHS))
    return io.BytesIO("".join(f"{s} {p} {o} {names[g]} .\n" for s, p, o, g in QUADS if g in numbers).encode())


@pytest.mark.parametrize("seen", [{1, 2}, {0, 3}, set()])
def test_each_node_answers_as_an_engine_with_these_graphs(seen: set[int]) -> None:
    only = [(DEFAULT_GRAPH_IRI, *GRAPHS)[number] for number in seen]
    with cluster(3, 1, None, PATIENT, QUICK_PULSE_S) as nodes, wukongs.Engine() as alone:
        nodes[0].engine.load(lines({0, 1, 2, 3}), format="nq")
        alone.load(lines(seen), format="nq")
        views = [node.engine._seeing(only) for node in nodes]
        for view in views:
            assert view.graph_names() == alone.graph_names()
            for text in QUERIES:
                assert sorted(map(str, view.query(text).texts())) == sorted(map(str, alone.query(text).texts())), text
        for text in ("DELETE { GRAPH ?g { ?s ?p ?o } } WHERE { GRAPH ?g { ?s ?p <http://ex/s1> } }", "CLEAR NAMED"):
            views[1].update(text)
            alone.update(text)
            asked = "SELECT * { GRAPH ?g { ?s ?p ?o } }"
            assert sorted(map(str, views[2].query(asked).texts())) == sorted(map(str, alone.query(asked).texts()))
        counts = nodes[0].engine.query("SELECT ?g (COUNT(*) AS ?n) { GRAPH ?g { ?s ?p ?o } } GROUP BY ?g").texts()
        assert sorted(name for name, _ in counts) == [f"<{one}>" for one in GRAPHS if one not in only]
        hidden = next(one for one in GRAPHS if one not in only)
        with pytest.raises(AccessError):
            views[2].update(f"INSERT {{ GRAPH ?g {{ ?g ?g ?g }} }} WHERE {{ VALUES ?g {{ <{hidden}> }} }}")
        with pytest.raises(AccessError):
            views[2].load(lines({0, 1, 2, 3}), format="nq")


def test_a_query_keeps_its_graphs_at_whichever_node() -> None:
    text = f"REGISTER QUERY q AS SELECT ?s ?o FROM STREAM <{S}> [RANGE 1s STEP 1s] FROM NAMED <http://ex/g0> "
    text += "FROM NAMED <http://ex/g1> { ?s ?p ?x . GRAPH ?g { ?a ?b ?o } }"
    with cluster(3, 1, None, PATIENT, QUICK_PULSE_S) as nodes:
        stream = nodes[0].engine.stream(S, batch_ms=1000, timing=True)
        nodes[1].engine.load(
            io.BytesIO(b"<a:a> <a:b> <a:0> <http://ex/g0> .\n<a:a> <a:b> <a:1> <http://ex/g1> ."), format="nq"
        )
        only = ["http://ex/g0", S]
        query = nodes[1].engine._seeing(only).register(text)
        for node in nodes:
            until(lambda node=node: [one.name for one in node.engine._seeing(only).queries()] == ["q"])
            assert node.engine._seeing(["http://ex/g0"]).queries() == []
        stream.push([at("a", 100)])
        stream.advance(1000)
        assert [row[1] for row in next(iter(query.results(timeout_s=60))).texts()] == ["<a:0>"]


def test_the_graphs_of_a_query_are_in_its_record() -> None:
    for only in (None, (), ("http://ex/g",)):
        found = Registration(QuerySource("text", only=only), 5)
        assert read_registration(found.payload(), "q") == found
    assert "only" not in Registration(QuerySource("text"), 5).payload()  # as releases without roles have it
