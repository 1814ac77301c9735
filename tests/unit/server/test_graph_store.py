"""SPARQL 1.1 Graph Store Protocol at /store: one graph, the default graph, all graphs."""

from __future__ import annotations

import gzip
import io
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyoxigraph
import pytest

import wukongs
from tests.unit.server.asking import QUERY, UPDATE, Answer, Client, served
from tests.unit.server.conftest import FILLED
from wukongs.errors import CompactedError
from wukongs.server.face import Bounds
from wukongs.server.graph_store import SNAPSHOTS_TRIED, _dataset_chunks, _graphs_at
from wukongs.server.media import N_QUADS as AS_N_QUADS

pytestmark = pytest.mark.slow

G, G1, NOWHERE = "http://ex/dir/g", "http://ex/g1", "http://ex/nowhere"
TURTLE, N_TRIPLES, TRIG, N_QUADS = "text/turtle", "application/n-triples", "application/trig", "application/n-quads"
RDF_XML, JSON_LD, NOTATION3 = "application/rdf+xml", "application/ld+json", "text/n3"
FORMATS = {
    TURTLE: pyoxigraph.RdfFormat.TURTLE,
    N_TRIPLES: pyoxigraph.RdfFormat.N_TRIPLES,
    RDF_XML: pyoxigraph.RdfFormat.RDF_XML,
    JSON_LD: pyoxigraph.RdfFormat.JSON_LD,
    TRIG: pyoxigraph.RdfFormat.TRIG,
    N_QUADS: pyoxigraph.RdfFormat.N_QUADS,
}
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
BODIES = {
    TURTLE: "<a> <http://ex/p> <#c> .",
    N_TRIPLES: "<http://ex/dir/a> <http://ex/p> <http://ex/dir/g#c> .\n",
    RDF_XML: f'<rdf:RDF xmlns:rdf="{RDF}" xmlns:x="http://ex/"><rdf:Description rdf:about="a"><x:p rdf:resource="#c"/>'
    "</rdf:Description></rdf:RDF>",
    JSON_LD: '{"@id": "a", "http://ex/p": {"@id": "#c"}}',
    NOTATION3: "<a> <http://ex/p> <#c> .",
}
"""The same triple, with relative IRIs where the format has them."""
QUADS = {
    TRIG: "<http://ex/a> <http://ex/p> 1 . <http://ex/q1> { <http://ex/b> <http://ex/p> 2 }",
    N_QUADS: '<http://ex/a> <http://ex/p> "1" .\n<http://ex/b> <http://ex/p> "2" <http://ex/q1> .\n',
}
TRIPLE = "<http://ex/dir/a> <http://ex/p> <http://ex/dir/g#c>"


def triples(client: Client, graph: str = G) -> list[str]:
    """The triples of a graph, as N-Triples, sorted; none of one that is not there."""
    answer = client.store("GET", graph, accept=N_TRIPLES)
    assert answer.status in (200, 404), answer.text
    return sorted(answer.text.splitlines()) if answer.status == 200 else []


def quads(client: Client) -> list[str]:
    """All quads, as N-Quads, sorted."""
    return sorted(client.store("GET", accept=N_QUADS).text.splitlines())


# --- GET and HEAD -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("graph", "expected"), [("", "default"), (G1, "one")])
@pytest.mark.parametrize("kind", FORMATS)
def test_a_graph_in_each_format(filled: Client, graph: str, expected: str, kind: str) -> None:
    answer = filled.store("GET", graph, accept=kind)
    assert (answer.status, answer.kind, answer.snapshot) == (200, kind, 1)
    (found,) = pyoxigraph.parse(answer.body, FORMATS[kind])
    assert found.object.value == f"http://ex/{expected}"
    assert found.graph_name == pyoxigraph.DefaultGraph()


def test_turtle_is_the_default_format(filled: Client) -> None:
    for accept in (None, "*/*"):
        answer = filled.store("GET", G1, accept=accept)
        assert answer.headers["Content-Type"] == "text/turtle; charset=utf-8"
        assert "Accept" in answer.headers["Vary"]


def test_a_format_that_is_not_there(filled: Client) -> None:
    answer = filled.store("GET", G1, accept="text/csv")
    assert answer.status == 406
    assert TURTLE in answer.text
    answer = filled.store("GET", accept=TURTLE)
    assert answer.status == 406
    assert TRIG in answer.text
    assert N_QUADS in answer.text


@pytest.mark.parametrize("graph", ["", G1, None])
def test_head_is_a_get_without_its_body(filled: Client, graph: str | None) -> None:
    head, get = filled.store("HEAD", graph), filled.store("GET", graph)
    assert (head.status, head.body) == (200, b"")
    assert (head.kind, head.snapshot, head.headers["Vary"]) == (get.kind, get.snapshot, get.headers["Vary"])
    assert get.body


def test_a_graph_that_is_not_there(filled: Client) -> None:
    get, head = (filled.store(method, NOWHERE) for method in ("GET", "HEAD"))
    assert (get.status, head.status, head.body) == (404, 404, b"")
    assert f"<{NOWHERE}>" in get.text
    assert filled.store("GET", NOWHERE, accept=JSON_LD).json["status"] == 404


def test_an_empty_default_graph_is_there(client: Client) -> None:
    answer = client.store("GET", "")
    assert (answer.status, answer.body) == (200, b"")
    assert client.store("DELETE", "").status == 204


@pytest.mark.parametrize("graph", ["http://ex/ü#%20x?a=b&c=d+e", "urn:x:y", "tag:a,2020:b'c", "http://ex/日本"])
def test_a_graph_with_any_name(client: Client, graph: str) -> None:
    assert client.store("PUT", graph, "<http://ex/a> <http://ex/p> 1 .").status == 201
    assert (client.store("GET", graph).status, len(triples(client, graph))) == (200, 1)
    assert quads(client)[0].endswith(f" <{graph}> .")
    assert client.store("DELETE", graph).status == 204
    assert quads(client) == []


@pytest.mark.parametrize(
    "fields",
    [
        "graph=",
        "graph=relative",
        "graph=/relative",
        "graph=http://ex/a%20b",
        "graph=http://ex/%3Ca%3E/b",
        "graph=http://ex/%7Ba%7D",
        "graph=http://ex/a%0Ab",
        "graph=%FF",
        "graph=_:b",
        "graph=http://ex/a&graph=http://ex/b",
        "graph=http://ex/a&default",
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "POST", "DELETE"])
def test_a_graph_that_cannot_be(filled: Client, fields: str, method: str) -> None:
    body = "<http://ex/x> <http://ex/p> 1 ." if method in ("PUT", "POST") else None
    before = quads(filled)
    answer = filled.ask(method, f"/store?{fields}", body=body, content_type=TURTLE if body else None)
    assert answer.status == 400
    assert quads(filled) == before


def test_which_methods_there_are(filled: Client) -> None:
    for method in ("PATCH", "OPTIONS", "TRACE"):
        answer = filled.store(method, G1)
        assert answer.status == 405
        allowed = {one.strip() for one in answer.headers["Allow"].split(",")}
        assert allowed == {"GET", "HEAD", "PUT", "POST", "DELETE"}
    for method, body in (("PUT", BODIES[TURTLE]), ("DELETE", None)):
        answer = filled.store(method, None, body)
        assert answer.status == 400
        assert "?graph=IRI or ?default" in answer.text
    assert len(quads(filled)) == 4


# --- PUT --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BODIES)
def test_put_makes_a_graph_and_replaces_it(filled: Client, kind: str) -> None:
    assert filled.store("PUT", G, "<http://ex/old> <http://ex/p> 1 , [] .").status == 201
    answer = filled.store("PUT", G, BODIES[kind], kind)
    assert (answer.status, answer.body, answer.snapshot) == (204, b"", 3)
    assert triples(filled) == [f"{TRIPLE} ."]
    assert len(quads(filled)) == 5


def test_put_replaces_the_default_graph(filled: Client) -> None:
    assert filled.store("PUT", "", "<http://ex/a> <http://ex/p> 1 .").status == 204
    assert len(triples(filled, "")) == 1
    assert "http://ex/a" in triples(filled, "")[0]
    assert len(quads(filled)) == 4


def test_put_is_one_snapshot(filled: Client) -> None:
    """Readers see the graph as it was or as it has come, never without its triples."""
    lines = "".join(f"<http://ex/s{n}> <http://ex/p> <http://ex/o> .\n" for n in range(2000))
    filled.store("PUT", G, lines)
    is_over = threading.Event()
    seen: Counter[tuple[int, int]] = Counter()

    def read() -> None:
        is_last = False
        while not is_last:
            is_last = is_over.is_set()
            answer = filled.store("GET", G, accept=N_TRIPLES)
            seen[answer.status, answer.text.count("\n")] += 1

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    snapshots = [filled.store("PUT", G, lines).snapshot for _ in range(10)]
    is_over.set()
    for reader in readers:
        reader.join()
    assert snapshots == list(range(3, 13))
    assert set(seen) == {(200, 2000)}


def test_an_empty_graph_counts_as_none(filled: Client) -> None:
    assert filled.store("PUT", G, "").status == 201
    assert filled.store("GET", G).status == 404
    assert filled.store("PUT", G1, "").status == 204
    assert filled.store("GET", G1).status == 404


@pytest.mark.parametrize("kind", QUADS)
def test_quads_are_not_put_in_one_graph(filled: Client, kind: str) -> None:
    before = quads(filled)
    for graph in ("", G1, G):
        answer = filled.store("PUT", graph, QUADS[kind], kind)
        assert answer.status == 415
        assert "expected one of text/turtle" in answer.text
    assert quads(filled) == before


# --- POST -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BODIES)
def test_post_adds_to_a_graph(filled: Client, kind: str) -> None:
    answer = filled.store("POST", G, BODIES[kind], kind)
    assert (answer.status, answer.body, answer.snapshot) == (201, b"", 2)
    assert filled.store("POST", G, BODIES[kind], kind).status == 204
    assert triples(filled) == [f"{TRIPLE} ."]
    assert filled.store("POST", G, "<http://ex/more> <http://ex/p> 1 .").status == 204
    assert len(triples(filled)) == 2


def test_post_adds_to_the_default_graph(filled: Client) -> None:
    assert filled.store("POST", "", "<http://ex/a> <http://ex/p> 1 .").status == 204
    assert len(triples(filled, "")) == 2


@pytest.mark.parametrize("kind", BODIES)
def test_post_of_triples_without_a_graph_makes_a_new_one(filled: Client, kind: str) -> None:
    answers = [filled.store("POST", None, BODIES[kind], kind) for _ in range(2)]
    assert [answer.status for answer in answers] == [201, 201]
    places = [answer.headers["Location"] for answer in answers]
    assert places[0] != places[1]
    for place in places:
        assert place.startswith(f"{filled.address}/store?graph=")
        there = filled.ask("GET", place.removeprefix(filled.address), accept=N_TRIPLES)
        assert (there.status, there.text.count("\n")) == (200, 1)
        assert filled.ask("DELETE", place.removeprefix(filled.address)).status == 204
    assert len(quads(filled)) == 4


def test_relative_iris_of_a_new_graph_belong_to_it(client: Client) -> None:
    """RFC 3986 resolves relative paths by hierarchical IRIs only: the base had better be the Location."""
    client.store("POST", None, "<a> <http://ex/p> 1 .")
    assert not quads(client)[0].startswith("<urn:a>")


@pytest.mark.parametrize("kind", QUADS)
def test_post_of_quads_goes_where_they_say(filled: Client, kind: str) -> None:
    answer = filled.store("POST", None, QUADS[kind], kind)
    assert (answer.status, answer.snapshot) == (204, 2)
    assert "Location" not in answer.headers
    assert (len(triples(filled, "")), len(triples(filled, "http://ex/q1")), len(quads(filled))) == (2, 1, 6)


NAMED_LD = '{"@id": "http://ex/q1", "@graph": [{"@id": "http://ex/b", "http://ex/p": 2}]}'


@pytest.mark.parametrize("graph", ["", G1, G])
@pytest.mark.parametrize(("kind", "body"), [*QUADS.items(), (JSON_LD, NAMED_LD)], ids=[*QUADS, JSON_LD])
def test_post_to_one_graph_leaves_the_others(filled: Client, graph: str, kind: str, body: str) -> None:
    before = {line for line in quads(filled) if not line.endswith(f" <{graph}> ." if graph else "default> .")}
    answer = filled.store("POST", graph, body, kind)
    after = {line for line in quads(filled) if not line.endswith(f" <{graph}> .")}
    assert {line for line in after if "<http://ex/q1>" in line} == set(), answer.status
    assert before <= after


def test_post_of_named_graphs_in_json_ld_makes_the_graph_that_it_tells(client: Client) -> None:
    answer = client.store("POST", None, NAMED_LD, JSON_LD)
    if "Location" in answer.headers:
        place = answer.headers["Location"].removeprefix(client.address)
        assert client.ask("GET", place).status == 200


# --- DELETE -----------------------------------------------------------------------------------------------------------


def test_delete(filled: Client) -> None:
    answer = filled.store("DELETE", G1)
    assert (answer.status, answer.body, answer.snapshot) == (204, b"", 2)
    assert filled.store("GET", G1).status == 404
    answer = filled.store("DELETE", G1)
    assert answer.status == 404
    assert f"<{G1}>" in answer.text
    assert filled.store("DELETE", "").status == 204
    assert (triples(filled, ""), len(quads(filled))) == ([], 2)


# --- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_relative_iris_are_resolved_by_the_graph(client: Client, method: str) -> None:
    assert client.store(method, "http://ex/dir/g?v=1", "<> <#p> <a> , <../b> , </c> , <?q> .").status == 201
    (head,) = {line.split()[0] for line in triples(client, "http://ex/dir/g?v=1")}
    objects = {line.split()[2] for line in triples(client, "http://ex/dir/g?v=1")}
    assert head == "<http://ex/dir/g?v=1>"
    assert objects == {"<http://ex/dir/a>", "<http://ex/b>", "<http://ex/c>", "<http://ex/dir/g?q>"}


@pytest.mark.parametrize("method", ["PUT", "POST"])
@pytest.mark.parametrize("kind", [TURTLE, RDF_XML, JSON_LD, NOTATION3])
def test_relative_iris_in_the_default_graph_are_resolved_by_the_address(client: Client, method: str, kind: str) -> None:
    assert client.store(method, "", BODIES[kind], kind).status == 204
    assert triples(client, "") == [f"<{client.address}/a> <http://ex/p> <{client.address}/store#c> ."]


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_base_in_the_body_wins(client: Client, method: str) -> None:
    assert client.store(method, G, "@base <http://other/> . @prefix x: <x#> . <a> x:p [] .").status == 201
    assert triples(client)[0].startswith("<http://other/a> <http://other/x#p> _:")


BAD = {
    TURTLE: "<a> <b> <c> .\n<a> <b> .\n",
    N_TRIPLES: "<http://ex/a> <http://ex/b> <http://ex/c> .\n<http://ex/a> <b\n",
    RDF_XML: f'<rdf:RDF xmlns:rdf="{RDF}">\n<rdf:oops\n</rdf:RDF>',
    JSON_LD: '{"@id": "a",\n"http://ex/p": [}',
    NOTATION3: "<a> <b> <c> .\n<a> <b> .\n",
    TRIG: "<a> <b> <c> .\n<g> { <a> <b> }\n",
    N_QUADS: "<http://ex/a> <http://ex/b> <http://ex/c> <http://ex/g> .\n<http://ex/a> <b\n",
}


def bad(
    client: Client, method: str, graph: str | None, kind: str, body: str | bytes, accept: str | None = None
) -> Answer:
    """Send what is malformed; check that nothing has changed and that no file of the server is named."""
    before = quads(client)
    answer = client.store(method, graph, body, kind, accept=accept)
    assert answer.status == 400, answer.text
    assert quads(client) == before
    told = answer.text
    assert not re.search(r"/tmp|/var|wukongs-|file:|based", told), told
    assert "the body" in told
    return answer


SENT = [("PUT", ""), ("PUT", G1), ("PUT", G), ("POST", ""), ("POST", G1), ("POST", None)]


@pytest.mark.parametrize(
    ("method", "graph", "kind"),
    [(*sent, kind) for sent in SENT for kind in BAD if sent == ("POST", None) or kind not in QUADS],
)
def test_a_malformed_body_changes_nothing(filled: Client, method: str, graph: str | None, kind: str) -> None:
    told = bad(filled, method, graph, kind, BAD[kind]).text
    assert re.search("line [23]", told), told


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_malformed_body_is_told_as_json(filled: Client, method: str) -> None:
    told = bad(filled, method, G1, TURTLE, BAD[TURTLE], accept="application/json").json
    assert (told["title"], told["status"], told["line"], told["file"]) == ("DataError", 400, 2, "the body")


def test_the_line_is_told_in_rdf_xml(filled: Client) -> None:
    assert re.search("line [23]", bad(filled, "PUT", G1, RDF_XML, BAD[RDF_XML]).text)


@pytest.mark.parametrize("kind", [RDF_XML, JSON_LD])
@pytest.mark.parametrize(("method", "graph"), [one for one in SENT if one[0] == "PUT" or one[1] is not None])
def test_a_document_that_is_cut_off_replaces_nothing(filled: Client, method: str, graph: str, kind: str) -> None:
    """Without Content-Length the connection does not say that there should be more."""
    whole = BODIES[kind]
    cut = whole.removesuffix("</rdf:RDF>" if kind == RDF_XML else "}")
    assert cut != whole
    told = bad(filled, method, graph, kind, cut).text
    assert kind != RDF_XML or "cut off: 1 elements are open" in told
    assert filled.store(method, graph, whole, kind).status in (201, 204)


def test_no_name_of_a_file_is_told(filled: Client) -> None:
    assert "body.jsonld" not in bad(filled, "PUT", G1, JSON_LD, BAD[JSON_LD]).text


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_the_column_in_the_first_line_is_that_of_the_body(filled: Client, method: str) -> None:
    assert "line 1, column 9:" in bad(filled, method, G1, TURTLE, "<a> <b> .").text


@pytest.mark.parametrize("kind", [TURTLE, N_TRIPLES, RDF_XML, JSON_LD])
@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_body_that_is_no_utf8(filled: Client, method: str, kind: str) -> None:
    body = BODIES[kind].encode().replace(b"#c", b"#\xe4")
    bad(filled, method, G1, kind, body)


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_body_in_another_charset_is_refused(client: Client, method: str) -> None:
    body = '<http://ex/a> <http://ex/p> "Ã¤" .'.encode("latin-1")
    assert client.store(method, G, body, f"{TURTLE}; charset=ISO-8859-1").status == 415
    assert triples(client) == []


def test_a_type_may_have_parameters_capitals_and_other_names(client: Client) -> None:
    for kind in ("text/turtle; charset=utf-8", "Text/Turtle;charset=UTF-8", "application/x-turtle", "text/plain"):
        body = BODIES[N_TRIPLES]
        assert client.store("PUT", G, body, kind).status in (201, 204)
        assert triples(client) == [f"{TRIPLE} ."]


@pytest.mark.parametrize("kind", ["image/png", "application/sparql-update", "nonsense", None])
@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_body_of_another_type_is_refused(filled: Client, method: str, kind: str | None) -> None:
    answer = filled.store(method, G1, BODIES[TURTLE], kind)
    assert answer.status == 415
    assert TURTLE in answer.text
    assert JSON_LD in answer.text


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_byte_order_mark_is_passed_over(client: Client, method: str) -> None:
    assert client.store(method, G, "\ufeff" + BODIES[TURTLE]).status == 201


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_packed_body(client: Client, method: str) -> None:
    headers = {"Content-Encoding": "gzip"}
    lines = "".join(f"<http://ex/s{n}> <http://ex/p> <http://ex/o> .\n" for n in range(20_000)).encode()
    assert client.store(method, G, gzip.compress(lines), N_TRIPLES, headers=headers).status == 201
    assert len(triples(client)) == 20_000
    for body in (gzip.compress(lines)[:-9], gzip.compress(lines)[:1000], lines, b""):
        answer = client.store(method, "http://ex/other", body, N_TRIPLES, headers=headers)
        assert answer.status == 400
        assert "gzip" in answer.text
    assert client.store(method, "http://ex/other", lines, N_TRIPLES, headers={"Content-Encoding": "zstd"}).status == 415
    assert len(quads(client)) == 20_000


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_body_packed_in_several_parts_is_read_to_its_end(client: Client, method: str) -> None:
    parts = (f"<http://ex/s{n}> <http://ex/p> <http://ex/o> .\n".encode() for n in range(3))
    body = b"".join(map(gzip.compress, parts))
    assert client.store(method, G, body, N_TRIPLES, headers={"Content-Encoding": "gzip"}).status == 201
    assert len(triples(client)) == 3


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_body_that_is_too_long(engine: wukongs.Engine, method: str) -> None:
    engine.update(FILLED)
    with served(engine, Bounds(document_bytes_max=1000)) as client:
        before = quads(client)
        body = BODIES[TURTLE].encode() + b" " * 1000
        for sent in (body, iter([body[:500], body[500:]]), body + b" " * 5_000_000):
            answer = client.store(method, G1, sent)
            assert answer.status == 413
            assert "1000 bytes" in answer.text
        packed = gzip.compress(body + b" " * 10_000_000)
        assert client.store(method, G1, packed, headers={"Content-Encoding": "gzip"}).status == 413
        assert quads(client) == before


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_connection_that_breaks_changes_nothing(filled: Client, method: str) -> None:
    """All lines that have come are whole; only the length that was told is not reached."""
    before = quads(filled)
    head = f"{method} /store?graph={G1} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {N_TRIPLES}\r\n"
    for length, body in (
        ("Content-Length: 1000", BODIES[N_TRIPLES]),
        ("Transfer-Encoding: chunked", f"{len(BODIES[N_TRIPLES]):x}\r\n{BODIES[N_TRIPLES]}\r\n"),
    ):
        with socket.create_connection((filled.host, filled.port), timeout=30) as connection:
            connection.sendall(f"{head}{length}\r\n\r\n{body}".encode())
            connection.shutdown(socket.SHUT_WR)
            assert not connection.recv(1000).startswith(b"HTTP/1.1 2")
    assert quads(filled) == before
    assert filled.get("ASK {}").snapshot == 1


def test_blank_nodes_of_a_body_are_new(client: Client) -> None:
    for _ in range(2):
        client.store("POST", G, "_:b <http://ex/p> _:b .")
    nodes = {line.split()[0] for line in triples(client)}
    assert len(nodes) == 2
    client.store("POST", G, "\n".join(triples(client)), N_TRIPLES)
    assert len(triples(client)) == 4


# --- all graphs -------------------------------------------------------------------------------------------------------

ODD = """@prefix : <http://ex/> .
:d :p " .\\n", "a .\\n<x:x> <y:y> <z:z> .\\n", "\\"} .\\r\\n" , "ä😀\\u0001\\t"@de-AT, _:b1 , "1"^^:dt, "\\\\ .\\\\n" .
_:b1 :q _:b1 , :d .
:g1 { _:b1 :p " .\\n" , "{ } . #", "} :x { ", 041, 1.50, 1e3, true, "" . }
<urn:x:g2> { :a :p _:b1 ; :q [ :r ( 1 2 ) ] }
_:gb { :a :p :b . _:gb :p _:b1 }
<http://ex/ü#%20x?a=b> { :a :p "x" }
"""


def same(one: Iterable[pyoxigraph.Quad], other: Iterable[pyoxigraph.Quad]) -> bool:
    """Whether two datasets are the same but for the labels of blank nodes."""
    left, right = pyoxigraph.Dataset(one), pyoxigraph.Dataset(other)
    for dataset in (left, right):
        dataset.canonicalize(pyoxigraph.CanonicalizationAlgorithm.RDFC_1_0)
    return left == right


@pytest.mark.parametrize("kind", QUADS)
def test_all_graphs_come_back_as_they_are(client: Client, engine: wukongs.Engine, kind: str) -> None:
    assert client.store("POST", None, ODD, TRIG).status == 204
    answer = client.store("GET", accept=kind)
    assert (answer.status, answer.kind, answer.snapshot) == (200, kind, 1)
    found, expected = list(pyoxigraph.parse(answer.body, FORMATS[kind])), list(pyoxigraph.parse(ODD, FORMATS[TRIG]))
    assert len(found) == len(expected)
    assert same(found, (folded(quad) for quad in expected))
    with wukongs.Engine() as other, served(other) as copy:
        assert copy.store("POST", None, answer.body, kind).status == 204
        assert same(pyoxigraph.parse(copy.store("GET", accept=N_QUADS).body, FORMATS[N_QUADS]), found)


def folded(quad: pyoxigraph.Quad) -> pyoxigraph.Quad:
    """Return a quad with its language in lower case, as the store keeps it."""
    if not isinstance(quad.object, pyoxigraph.Literal) or quad.object.language is None:
        return quad
    literal = pyoxigraph.Literal(quad.object.value, language=quad.object.language.lower())
    return pyoxigraph.Quad(quad.subject, quad.predicate, literal, quad.graph_name)


@pytest.mark.parametrize("kind", QUADS)
def test_many_and_long_graphs_come_whole(client: Client, engine: wukongs.Engine, kind: str) -> None:
    lines = [f'<http://ex/s{n}> <http://ex/p> "{n} .\\n" <http://ex/g{n % 3}> .' for n in range(30_000)]
    lines += [f'<http://ex/s{n}> <http://ex/p> "{n}" <http://ex/few{n}> .' for n in range(200)]
    lines += [f'<http://ex/s{n}> <http://ex/p> "{n}" .' for n in range(20_000)]
    engine.load(io.BytesIO("\n".join(lines).encode()), format="nq", strict=True)
    answer = client.store("GET", accept=kind, headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    body = gzip.decompress(answer.body)
    assert sorted(f"{quad} ." for quad in pyoxigraph.parse(body, FORMATS[kind])) == sorted(lines)


def test_all_of_an_empty_store(client: Client) -> None:
    for kind in QUADS:
        answer = client.store("GET", accept=kind)
        assert (answer.status, answer.kind, answer.body, answer.snapshot) == (200, kind, b"", 0)


def test_trig_is_the_default_for_all_graphs(filled: Client) -> None:
    assert filled.store("GET").kind == filled.store("GET", accept="*/*").kind == TRIG
    assert filled.store("GET", accept=f"{TRIG};q=0.1, {N_QUADS};q=0.2").kind == N_QUADS


def test_all_graphs_are_those_of_one_snapshot(engine: wukongs.Engine) -> None:
    """A graph goes before the first byte is told, as it may while others write."""
    sn = engine.update(FILLED)
    at, graphs = _graphs_at(engine, None)
    engine.update("DROP GRAPH <http://ex/g1>")
    assert (at, b"".join(_dataset_chunks(graphs, AS_N_QUADS)).count(b"\n")) == (sn, 4)


@pytest.mark.parametrize("gone_max", [2, SNAPSHOTS_TRIED])
def test_all_graphs_are_read_at_another_snapshot_if_one_is_gone(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch, gone_max: int
) -> None:
    """It is merged away after the first graph was read: what was read of it is not told."""
    engine.update(FILLED)
    query, read = engine.query, list[int]()

    def asked(text: str, bindings: Any = None, at: int | None = None, **options: Any) -> Any:
        if at is not None and "?s" in text:
            read.append(at)
            if len(read) % 2 == 0 and len(read) <= 2 * gone_max:
                engine.update("INSERT DATA { <http://ex/more> <http://ex/p> 1 }")
                raise CompactedError(f"SN {at} is gone")
        return query(text, bindings, at=at, **options)

    monkeypatch.setattr(engine, "query", asked)
    if gone_max == SNAPSHOTS_TRIED:
        with pytest.raises(CompactedError):
            _graphs_at(engine, None)
        return
    at, graphs = _graphs_at(engine, None)
    assert at == read[-1] > read[0]
    assert b"".join(_dataset_chunks(graphs, AS_N_QUADS)).count(b"\n") == 5


# --- grammars and names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["PUT", "POST"])
@pytest.mark.parametrize("term", ['"a"', "<http://ex/o>"])
@pytest.mark.parametrize("other", ["<http://ex/other>", "_:other"])
def test_n_triples_names_no_graph(filled: Client, method: str, term: str, other: str) -> None:
    """RDF 1.1 N-Triples, 2: a triple has three terms. Neither the graph that is asked nor the other one changes."""
    before = sorted(filled.store("GET", accept=N_QUADS).text.splitlines())
    body = f"<http://ex/s> <http://ex/p> {term} .\n<http://ex/s> <http://ex/p> {term} {other} .\n"
    for graph in (G, G1, ""):
        answer = filled.store(method, graph, body=body, content_type=N_TRIPLES)
        told = f"the body, line 2, column {30 + len(term)}: expected '.' after three terms"
        assert (answer.status, told in answer.text) == (400, True), answer.text
    assert sorted(filled.store("GET", accept=N_QUADS).text.splitlines()) == before


def test_a_graph_with_a_blank_name_is_read_and_written(client: Client, engine: wukongs.Engine) -> None:
    """RDF 1.1 Concepts, 4: a graph's name may be a blank node. It opens under the label that answers have."""
    body = '<http://ex/s> <http://ex/p> "1" _:g .\n'
    assert client.store("POST", body=body, content_type=N_QUADS).status == 204
    (name,) = engine.graph_names()
    assert client.store("GET", name, accept=N_TRIPLES).text == '<http://ex/s> <http://ex/p> "1" .\n'
    assert name in client.store("GET", accept=TRIG).text
    assert client.store("POST", name, body="<http://ex/a> <http://ex/p> 2 .", content_type=TURTLE).status == 204
    assert len(triples(client, name)) == 2
    assert client.store("PUT", name, body="<http://ex/b> <http://ex/p> 3 .", content_type=TURTLE).status == 204
    assert len(triples(client, name)) == 1
    assert engine.graph_names() == [name]
    assert client.store("DELETE", name).status == 204
    assert client.store("GET", name).status == 404
    assert engine.graph_names() == []


@pytest.mark.parametrize(
    ("kind", "head", "bad"),
    [
        (TURTLE, "<http://ex/a> <http://ex/p>\n", '"{}" .'),
        (NOTATION3, "<http://ex/a> <http://ex/p>\n", '"{}" .'),
        (TRIG, "<http://ex/a> <http://ex/p> 1 .\n", "# {}"),
        (N_TRIPLES, "<http://ex/a> <http://ex/p> <http://ex/o> .\n", "# {}"),
        (N_QUADS, "<http://ex/a> <http://ex/p> <http://ex/o> .\n", "<http://ex/a> <http://ex/p> <http://ex/{}> _:g ."),
        (JSON_LD, '{"@id": "http://ex/a",\n', '"http://ex/p": "{}"}'),
        (RDF_XML, f'<rdf:RDF xmlns:rdf="{RDF}">\n', "<!-- {} --></rdf:RDF>"),
    ],
)
def test_a_byte_that_is_not_utf8_is_named(
    client: Client, engine: wukongs.Engine, kind: str, head: str, bad: str
) -> None:
    body = head.encode() + bad.replace("{}", "caf\xe9", 1).encode("latin-1")
    for graph in [None] if kind in QUADS else [None, G, ""]:
        for method in ["POST"] if graph is None else ["POST", "PUT"]:
            answer = client.store(method, graph, body=body, content_type=kind)
            assert answer.status == 400
            assert "the body, line 2" in answer.text
            assert "this is not valid UTF-8: byte 0xE9" in answer.text
    assert engine.stats()["stored_triples"] == 0


@pytest.mark.parametrize("kind", [QUERY, UPDATE])
def test_a_request_that_is_not_utf8_is_refused(client: Client, kind: str) -> None:
    text = b"SELECT *\n{ ?s ?p 'caf\xe9' }" if kind == QUERY else b"INSERT DATA\n{ <a:s> <a:p> 'caf\xe9' }"
    answer = client.ask("POST", "/sparql", body=text, content_type=kind)
    assert (answer.status, "the body, line 2: this is not valid UTF-8: byte 0xE9" in answer.text) == (400, True)
