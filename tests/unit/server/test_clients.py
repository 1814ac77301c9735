"""Clients of others, as they are: curl, SPARQLWrapper, and the stores of rdflib."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from xml.dom.minidom import Document

import pytest
import SPARQLWrapper as wrapper
from rdflib import BNode, Dataset, Graph, Literal, URIRef
from rdflib.graph import DATASET_DEFAULT_GRAPH_ID
from rdflib.namespace import RDF, XSD
from rdflib.plugins.stores.sparqlstore import SPARQLStore, SPARQLUpdateStore
from SPARQLWrapper.SPARQLExceptions import QueryBadFormed

from tests.unit.server.asking import Client

EX = "http://ex/"
A, B, P, G1 = URIRef(EX + "a"), URIRef(EX + "b"), URIRef(EX + "p"), URIRef(EX + "g1")
IN = URIRef(EX + "in")
SUBJECTS, TRIPLES = "SELECT ?s { ?s ?p ?o }", "CONSTRUCT WHERE { ?s ?p ?o }"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Sending Accept header:RuntimeWarning"),
]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


# --- curl -------------------------------------------------------------------------------------------------------------


class Curl:
    """Runs curl; the status is that of the last answer."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address, self.folder = address, folder

    def __call__(self, path: str, *options: str, body: bytes | None = None) -> tuple[int, str]:
        command = ["curl", "-sS", "--max-time", "60", "-w", "\n%{http_code}", *options, self.address + path]
        ran = subprocess.run(command, input=body, capture_output=True, cwd=self.folder, timeout=90)
        assert ran.returncode == 0, ran.stderr.decode()
        text, _, status = ran.stdout.decode().rpartition("\n")
        return int(status), text

    def file(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name


@pytest.fixture
def curl(filled: Client, tmp_path: Path) -> Iterator[Curl]:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed here")
    return Curl(filled.address, tmp_path)


def test_curl_sends_a_query_in_each_way(curl: Curl) -> None:
    file = curl.file("query.rq", SUBJECTS)
    for options in (
        ("-G", "--data-urlencode", f"query={SUBJECTS}"),
        ("--data-urlencode", f"query={SUBJECTS}"),
        ("--data-urlencode", f"query@{file}"),
        ("-H", "Content-Type: application/sparql-query", "--data-binary", f"@{file}"),
        ("-H", "Content-Type: application/sparql-query", "-H", "Transfer-Encoding: chunked", "-d", SUBJECTS),
        ("--compressed", "--data-urlencode", f"query={SUBJECTS}"),
        ("--http1.0", "--data-urlencode", f"query={SUBJECTS}"),
    ):
        status, text = curl("/sparql", *options)
        assert status == 200, text
        assert json.loads(text)["results"]["bindings"] == [{"s": {"type": "uri", "value": "http://ex/d"}}]
    status, text = curl("/sparql/", "-L", "-G", "--data-urlencode", f"query={SUBJECTS}")
    assert (status, "http://ex/d" in text) == (200, True)


def test_curl_gets_the_format_that_it_asks_for(curl: Curl) -> None:
    assert curl("/sparql", "-H", "Accept: text/csv", "-d", f"query={SUBJECTS}") == (200, "s\r\nhttp://ex/d\r\n")
    assert curl("/sparql", "-d", f"query={SUBJECTS}&format=tsv") == (200, "?s\n<http://ex/d>\n")
    status, head = curl("/sparql", "-I", "-G", "--data-urlencode", f"query={TRIPLES}")
    assert status == 200
    assert "content-type: text/turtle" in head.lower()
    assert "wukongs-snapshot: 1" in head.lower()


def test_curl_sends_updates(curl: Curl, filled: Client) -> None:
    text = "INSERT DATA { <http://ex/x> <http://ex/p> 'a+b & c' }"
    assert curl("/sparql", "--data-urlencode", f"update={text}") == (204, "")
    file = curl.file("update.ru", "DELETE DATA { <http://ex/d> <http://ex/in> <http://ex/default> }")
    assert curl("/sparql", "-H", "Content-Type: application/sparql-update", "--data-binary", f"@{file}") == (204, "")
    assert filled.get("SELECT ?o { ?s ?p ?o }").values == ["a+b & c"]


def test_curl_tells_what_is_wrong(curl: Curl) -> None:
    status, text = curl("/sparql", "--data-urlencode", "query=SELECT ?s { ?s ?p }")
    assert status == 400
    assert "line 1, column 19" in text
    assert "^" in text


def test_curl_keeps_graphs(curl: Curl) -> None:
    file = curl.file("graph.ttl", "<a> <p> 1 , 2 .")
    place = "/store?graph=http://ex/dir/g"
    turtle, lines = ("-H", "Content-Type: text/turtle"), ("-H", "Accept: application/n-triples")
    assert curl(place, *turtle, "-T", file) == (201, "")
    assert curl(place, *turtle, "-T", file) == (204, "")
    assert curl(place, *turtle, "-T", "-", body=b"<a> <p> 3 .") == (204, "")
    assert curl(place, *turtle, "--data-binary", f"@{file}") == (204, "")
    status, text = curl(place, *lines)
    assert (status, text.count("<http://ex/dir/a> <http://ex/dir/p> ")) == (200, 3)
    assert curl(place, "-X", "DELETE") == (204, "")
    assert curl(place)[0] == 404
    assert curl("/store?default", *lines) == (200, "<http://ex/d> <http://ex/in> <http://ex/default> .\n")
    status, head = curl("/store", *turtle, "-d", "<> a <x:x> .", "-D", "-")
    assert status == 201
    assert "/store?graph=urn:uuid:" in head


def test_curl_sends_a_long_document(curl: Curl, filled: Client) -> None:
    """It waits for 100 Continue before the body."""
    text = "".join(f"<http://ex/s{n}> <http://ex/p> <http://ex/o> .\n" for n in range(60_000))
    file = curl.file("long.nt", text)
    kind = ("-H", "Content-Type: application/n-triples")
    assert len(text) > 2_000_000
    for options in ((), ("-H", "Expect: 100-continue"), ("-H", "Transfer-Encoding: chunked")):
        assert curl("/store?graph=http://ex/long", *kind, *options, "-T", file)[0] in (201, 204)
        assert filled.get("SELECT (COUNT(*) AS ?n) { GRAPH <http://ex/long> { ?s ?p ?o } }").values == ["60000"]
    shown = curl("/store?graph=http://ex/long", "--compressed", "-H", "Accept: application/n-triples")[1]
    assert sorted(shown.splitlines()) == sorted(text.splitlines())


def test_curl_asks_with_a_query_that_is_too_long_for_an_address(curl: Curl) -> None:
    values = " ".join(f"<http://ex/v{n}>" for n in range(20_000))
    file = curl.file("long.rq", f"SELECT ?s {{ VALUES ?s {{ {values} <http://ex/d> }} ?s ?p ?o }}")
    assert curl("/sparql", "--data-urlencode", f"query@{file}", "-H", "Accept: text/csv")[1] == "s\r\nhttp://ex/d\r\n"


# --- SPARQLWrapper ----------------------------------------------------------------------------------------------------

METHODS = [(wrapper.GET, wrapper.URLENCODED), (wrapper.POST, wrapper.URLENCODED), (wrapper.POST, wrapper.POSTDIRECTLY)]
in_each_way = pytest.mark.parametrize(("method", "how"), METHODS, ids=["get", "form", "direct"])


def wrapped(client: Client, text: str, method: str, how: str, kind: str | None = None) -> Any:
    """Return what SPARQLWrapper makes of the answer."""
    asked = wrapper.SPARQLWrapper(f"{client.address}/sparql")
    if kind is not None:
        asked.setReturnFormat(kind)
    asked.setMethod(method)
    asked.setRequestMethod(how)
    asked.setQuery(text)
    return asked.queryAndConvert()


@in_each_way
def test_sparqlwrapper_reads_json(filled: Client, method: str, how: str) -> None:
    found = wrapped(filled, SUBJECTS, method, how, wrapper.JSON)
    assert found["results"]["bindings"] == [{"s": {"type": "uri", "value": "http://ex/d"}}]
    assert wrapped(filled, "ASK { ?s ?p ?o }", method, how, wrapper.JSON)["boolean"] is True
    assert wrapped(filled, "ASK { ?s ?p 1 }", method, how, wrapper.JSON)["boolean"] is False


@in_each_way
def test_sparqlwrapper_reads_xml(filled: Client, method: str, how: str) -> None:
    for kind in (wrapper.XML, None):
        found = wrapped(filled, SUBJECTS, method, how, kind)
        assert isinstance(found, Document)
        assert [one.firstChild.data for one in found.getElementsByTagName("uri")] == ["http://ex/d"]
        found = wrapped(filled, "ASK { ?s ?p ?o }", method, how, kind)
        assert [one.firstChild.data for one in found.getElementsByTagName("boolean")] == ["true"]


@in_each_way
def test_sparqlwrapper_reads_csv(filled: Client, method: str, how: str) -> None:
    assert wrapped(filled, SUBJECTS, method, how, wrapper.CSV) == b"s\r\nhttp://ex/d\r\n"


@in_each_way
def test_sparqlwrapper_reads_tsv(filled: Client, method: str, how: str) -> None:
    assert wrapped(filled, SUBJECTS, method, how, wrapper.TSV) == b"?s\n<http://ex/d>\n"


@in_each_way
@pytest.mark.parametrize("text", [TRIPLES, "DESCRIBE <http://ex/d>"], ids=["construct", "describe"])
@pytest.mark.parametrize(
    "kind",
    [
        None,
        wrapper.XML,
        wrapper.RDF,
        wrapper.TURTLE,
        wrapper.N3,
        wrapper.RDFXML,
        wrapper.JSONLD,
    ],
)
def test_sparqlwrapper_reads_graphs(filled: Client, method: str, how: str, text: str, kind: str | None) -> None:
    found = wrapped(filled, text, method, how, kind)
    graph = Graph().parse(data=found, format="turtle") if isinstance(found, bytes) else found
    assert list(graph.triples((None, None, None))) == [(URIRef(EX + "d"), IN, URIRef(EX + "default"))]


@pytest.mark.parametrize("how", [wrapper.URLENCODED, wrapper.POSTDIRECTLY])
def test_sparqlwrapper_sends_updates(filled: Client, how: str) -> None:
    for text in ("INSERT DATA { <http://ex/x> <http://ex/p> 'ä' }", "DELETE WHERE { ?s <http://ex/in> ?o }"):
        asked = wrapper.SPARQLWrapper(f"{filled.address}/sparql")
        asked.setMethod(wrapper.POST)
        asked.setRequestMethod(how)
        asked.setQuery(text)
        assert asked.isSparqlUpdateRequest()
        assert asked.query().response.status == 204
    assert filled.get("SELECT ?s ?o { ?s ?p ?o }").values == ["x", "ä"]


@in_each_way
def test_sparqlwrapper_names_graphs(filled: Client, method: str, how: str) -> None:
    asked = wrapper.SPARQLWrapper(f"{filled.address}/sparql", returnFormat=wrapper.JSON, defaultGraph="http://ex/g1")
    asked.setMethod(method)
    asked.setRequestMethod(how)
    asked.addParameter("named-graph-uri", "http://ex/g2")
    asked.setQuery("SELECT ?s ?t { ?s ?p ?o GRAPH ?g { ?t ?q ?r } }")
    found = asked.queryAndConvert()
    assert found["results"]["bindings"] == [
        {"s": {"type": "uri", "value": "http://ex/a"}, "t": {"type": "uri", "value": "http://ex/b"}}
    ]


@in_each_way
def test_sparqlwrapper_tells_what_is_wrong(filled: Client, method: str, how: str) -> None:
    with pytest.raises(QueryBadFormed, match="line 1, column 19"):
        wrapped(filled, "SELECT ?s { ?s ?p }", method, how)


# --- the stores of rdflib ---------------------------------------------------------------------------------------------

ODD = [
    Literal("ä€😀"),
    Literal("a \"quoted\" 'text'\n\twith \\ back\\nslashes\r"),
    Literal("Wort", lang="de"),
    Literal(41),
    Literal("1.50", datatype=XSD.decimal),
    Literal(True),
    Literal("x", datatype=URIRef(EX + "type")),
    Literal(" .\n"),
    URIRef(EX + "ü?a=b&c#d"),
]


@pytest.fixture(params=["GET", "POST", "POST_FORM"])
def method(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def of_store(client: Client, graph: URIRef | None = None, **options: Any) -> Graph:
    store = SPARQLStore(f"{client.address}/sparql", **options)
    return Graph(store) if graph is None else Graph(store, identifier=graph)


@pytest.mark.parametrize("kind", ["xml", "json", "csv", "tsv"])
def test_sparqlstore_reads(filled: Client, method: str, kind: str) -> None:
    for name, graph in (("d", None), ("a", G1)):
        found = of_store(filled, graph, method=method, returnFormat=kind)
        assert [str(row[0]) for row in found.query("SELECT ?s { ?s ?p ?o }")] == [EX + name]
        assert [str(s) for s, _, _ in found] == [EX + name]
        assert [str(s) for s in found.subjects(IN, None)] == [EX + name]
        assert (len(found), (URIRef(EX + name), IN, None) in found, (P, None, None) in found) == (1, True, False)


@pytest.mark.parametrize("kind", ["xml", "json"])
def test_sparqlstore_asks(filled: Client, method: str, kind: str) -> None:
    found = of_store(filled, method=method, returnFormat=kind)
    assert found.query("ASK { ?s ?p ?o }").askAnswer is True
    assert found.query("ASK { ?s ?p 1 }").askAnswer is False


def test_sparqlstore_constructs(filled: Client, method: str) -> None:
    found = of_store(filled, method=method)
    expected = [(URIRef(EX + "d"), IN, URIRef(EX + "default"))]
    assert list(found.query(TRIPLES)) == list(found.query("DESCRIBE <http://ex/d>")) == expected


def test_sparqlstore_binds_variables_and_prefixes(filled: Client, method: str) -> None:
    found = of_store(filled, method=method)
    bound = found.query("SELECT ?o { ?s ?p ?o }", initBindings={"s": URIRef(EX + "d")}, initNs={"x": EX})
    assert [str(row.o) for row in bound] == [EX + "default"]
    assert list(found.query("SELECT ?o { ?s x:none ?o }", initNs={"x": EX})) == []


def test_sparqlstore_lists_named_graphs(filled: Client, method: str) -> None:
    store = SPARQLStore(f"{filled.address}/sparql", method=method)
    assert sorted(map(str, store.contexts())) == [EX + "g1", EX + "g2", EX + "g3"]
    assert [str(name) for name in store.contexts((A, IN, URIRef(EX + "one")))] == [EX + "g1"]


@pytest.fixture
def updated(filled: Client, method: str) -> SPARQLUpdateStore:
    address = f"{filled.address}/sparql"
    return SPARQLUpdateStore(address, address, method=method)


@pytest.mark.parametrize("name", [DATASET_DEFAULT_GRAPH_ID, URIRef(EX + "new")], ids=["default", "named"])
def test_updatestore_adds_and_removes(filled: Client, updated: SPARQLUpdateStore, name: URIRef) -> None:
    filled.update("CLEAR DEFAULT")
    graph = Graph(updated, identifier=name)
    for term in ODD:
        graph.add((A, P, term))
    assert (set(graph.objects(A, P)), len(graph)) == (set(ODD), len(ODD))
    assert all((A, P, term) in graph for term in ODD)
    for term in ODD[1:]:
        graph.remove((A, P, term))
    assert list(graph) == [(A, P, ODD[0])]
    graph.add((B, RDF.type, P))
    graph.set((A, P, Literal("other")))
    assert set(graph) == {(B, RDF.type, P), (A, P, Literal("other"))}
    graph.remove((A, None, None))
    assert set(graph) == {(B, RDF.type, P)}
    graph.remove((None, None, None))
    assert len(graph) == 0


def test_updatestore_adds_many_at_once(filled: Client, updated: SPARQLUpdateStore) -> None:
    one, two = (Graph(updated, identifier=URIRef(EX + name)) for name in ("new1", "new2"))
    updated.addN((A, P, Literal(n), one if n % 2 else two) for n in range(1000))
    assert (len(one), len(two)) == (500, 500)
    assert filled.get("ASK {}").snapshot == 2


def test_updatestore_updates(filled: Client, updated: SPARQLUpdateStore) -> None:
    graph = Graph(updated, identifier=DATASET_DEFAULT_GRAPH_ID)
    updated.update("INSERT { ?s <http://ex/p> ?x } WHERE { ?s ?p ?o }", initBindings={"x": Literal("ä")})
    assert list(graph.objects(None, P)) == [Literal("ä")]
    named = Graph(updated, identifier=G1)
    named.update("DELETE { ?s ?p ?o } INSERT { ?s ?p 1 } WHERE { ?s ?p ?o }")
    assert list(named) == [(A, IN, Literal(1))]
    assert filled.get("SELECT ?s { GRAPH ?g { ?s ?p ?o } }").values == ["a", "b", "c"]


def test_updatestore_keeps_a_dataset(filled: Client, updated: SPARQLUpdateStore) -> None:
    dataset = Dataset(store=updated)
    graph = dataset.graph(URIRef(EX + "new"))
    graph.add((A, P, B))
    names = {str(one.identifier) for one in dataset.graphs()}
    assert {EX + "g1", EX + "g2", EX + "g3", EX + "new"} <= names
    assert filled.store("GET", EX + "new").status == 200
    dataset.remove_graph(graph)
    assert filled.store("GET", EX + "new").status == 404
    assert filled.get("SELECT ?s { GRAPH ?g { ?s ?p ?o } }").values == ["a", "b", "c"]


def test_updatestore_commits_all_at_once(filled: Client, method: str) -> None:
    address = f"{filled.address}/sparql"
    store = SPARQLUpdateStore(address, address, method=method, autocommit=False, dirty_reads=True)
    graph = Graph(store, identifier=URIRef(EX + "new"))
    for n in range(5):
        graph.add((A, P, Literal(n)))
    assert len(graph) == 0
    store.commit()
    assert len(graph) == 5
    graph.remove((A, None, None))
    store.rollback()
    assert (len(graph), filled.get("ASK {}").snapshot) == (5, 2)


def test_updatestore_refuses_blank_nodes_and_tells_errors(updated: SPARQLUpdateStore) -> None:
    with pytest.raises(Exception, match="BNodes"):
        Graph(updated, identifier=G1).add((BNode(), P, B))
    with pytest.raises(HTTPError, match="400"):
        updated.update("INSERT DATA { nonsense }")
