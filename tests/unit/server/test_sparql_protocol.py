"""SPARQL 1.1 Protocol at /sparql: what the suite of the W3C asks for, case by case, and what we offer beside it."""

from __future__ import annotations

import contextlib
import csv
import gzip
import http.client
import io
import json
from collections.abc import Callable
from xml.etree import ElementTree

import pyarrow as pa
import pyoxigraph
import pytest

import wukongs
from tests.inside import core_of
from tests.unit.server.asking import FORM, JSON, QUERY, UPDATE, XML, Answer, Client, served
from wukongs.server.face import Bounds

G1, G2, G3 = "http://ex/g1", "http://ex/g2", "http://ex/g3"
SUBJECTS, NAMED = "SELECT ?s { ?s ?p ?o }", "SELECT ?s { GRAPH ?g { ?s ?p ?o } }"
BOTH = "SELECT ?s ?t { ?s ?p ?o GRAPH ?g { ?t ?q ?r } }"
TRIPLE = "<http://ex/d> <http://ex/in> <http://ex/default> .\n"
ARROW = "application/vnd.apache.arrow.stream"
WAYS: dict[str, Callable[..., Answer]] = {
    "get": lambda client, text, *fields, **more: client.get(text, *fields, **more),
    "form": lambda client, text, *fields, **more: client.form(("query", text), *fields, **more),
    "direct": lambda client, text, *fields, **more: client.direct(text, *fields, **more),
}
"""The three ways to send a query."""
UPDATES: dict[str, Callable[..., Answer]] = {
    "form": lambda client, text, *fields: client.form(("update", text), *fields),
    "direct": lambda client, text, *fields: client.update(text, *fields),
}
in_each_way = pytest.mark.parametrize("way", WAYS)
in_both_ways = pytest.mark.parametrize("way", UPDATES)


def default(*graphs: str) -> list[tuple[str, str]]:
    return [("default-graph-uri", graph) for graph in graphs]


def named(*graphs: str) -> list[tuple[str, str]]:
    return [("named-graph-uri", graph) for graph in graphs]


def using(*graphs: str) -> list[tuple[str, str]]:
    return [("using-graph-uri", graph) for graph in graphs]


def using_named(*graphs: str) -> list[tuple[str, str]]:
    return [("using-named-graph-uri", graph) for graph in graphs]


# --- queries ----------------------------------------------------------------------------------------------------------


@in_each_way
def test_a_query_is_answered(filled: Client, way: str) -> None:
    answer = WAYS[way](filled, SUBJECTS)
    assert (answer.status, answer.kind, answer.values) == (200, JSON, ["d"])


@in_each_way
def test_a_query_with_any_characters_comes_through(client: Client, way: str) -> None:
    text = "SELECT (CONCAT('ä€😀', ' a+b & c=d;e%20f#g?', \"\\t\\n\") AS ?x) {}"
    assert WAYS[way](client, text).values == ["ä€😀 a+b & c=d;e%20f#g?\t\n"]


def test_a_plus_in_an_address_is_a_blank(filled: Client) -> None:
    assert filled.ask("GET", "/sparql?query=ASK+%7B%3Fs+%3Fp+%3Fo%7D").boolean is True


def test_a_type_may_have_parameters_and_capitals(filled: Client) -> None:
    for kind in (QUERY, "Application/SPARQL-Query", f"{QUERY}; charset=UTF-8", f'{QUERY};charset="utf-8"'):
        assert filled.direct(SUBJECTS, kind=kind).values == ["d"]
    form = f"{FORM}; charset=UTF-8"
    assert filled.ask("POST", "/sparql", body="query=ASK%20%7B%7D", content_type=form).boolean is True


def test_a_body_may_come_in_chunks_without_a_length(filled: Client) -> None:
    answer = filled.ask("POST", "/sparql", body=iter([b"SELECT ?s ", b"{ ?s ?p ?o }"]), content_type=QUERY)
    assert answer.values == ["d"]


def test_unknown_parameters_are_passed_over(filled: Client) -> None:
    assert filled.get(SUBJECTS, ("results", "json"), ("debug", "on"), ("debug", "off")).values == ["d"]


def test_an_address_with_a_slash_at_its_end_leads_here(filled: Client) -> None:
    answer = filled.ask("GET", "/sparql/", {"query": "ASK {}"})
    assert answer.status in (200, 307, 308)
    if answer.status != 200:
        assert answer.headers["Location"].startswith(f"{filled.address}/sparql?query=")


# --- datasets of queries ----------------------------------------------------------------------------------------------


@in_each_way
def test_one_default_graph(filled: Client, way: str) -> None:
    assert WAYS[way](filled, SUBJECTS, *default(G1)).values == ["a"]


@in_each_way
def test_several_default_graphs_are_merged(filled: Client, way: str) -> None:
    assert WAYS[way](filled, SUBJECTS, *default(G1, G2)).values == ["a", "b"]


@in_each_way
def test_named_graphs(filled: Client, way: str) -> None:
    assert WAYS[way](filled, NAMED, *named(G1)).values == ["a"]
    assert WAYS[way](filled, NAMED, *named(G1, G3)).values == ["a", "c"]


@in_each_way
def test_a_full_dataset(filled: Client, way: str) -> None:
    assert WAYS[way](filled, BOTH, *default(G3), *named(G1, G2)).values == ["a", "b", "c", "c"]


@in_each_way
def test_a_dataset_with_default_graphs_only_has_no_named_ones(filled: Client, way: str) -> None:
    assert WAYS[way](filled, NAMED, *default(G1)).values == []


@in_each_way
def test_a_dataset_with_named_graphs_only_has_an_empty_default_graph(filled: Client, way: str) -> None:
    assert WAYS[way](filled, SUBJECTS, *named(G1)).values == []


@in_each_way
def test_the_dataset_of_the_protocol_wins_over_the_one_of_the_query(filled: Client, way: str) -> None:
    text = f"SELECT ?s FROM <{G1}> FROM NAMED <{G1}> {{ ?s ?p ?o }}"
    assert WAYS[way](filled, text, *default(G2)).values == ["b"]
    assert WAYS[way](filled, text, *named(G2)).values == []
    text = f"SELECT ?s FROM <{G1}> FROM NAMED <{G1}> {{ GRAPH ?g {{ ?s ?p ?o }} }}"
    assert WAYS[way](filled, text, *named(G2)).values == ["b"]
    assert WAYS[way](filled, text, *default(G2)).values == []
    assert WAYS[way](filled, text).values == ["a"]


@in_each_way
@pytest.mark.parametrize("kind", ["plan", "analyze"])
def test_a_plan_is_over_the_dataset_of_the_protocol(filled: Client, way: str, kind: str) -> None:
    text = "SELECT ?s FROM <http://ex/nowhere> { ?s ?p <http://ex/one> GRAPH ?g { ?t ?q ?r } }"
    told = WAYS[way](filled, text, *default(G1), *named(G2), ("explain", kind)).text
    assert told.startswith(f"SELECT\nfrom <{G1}>\nfrom named <{G2}>\n"), told
    assert ("Project ?s  [1 rows, " in told) is (kind == "analyze"), told


def test_a_graph_that_is_not_there_is_empty(filled: Client) -> None:
    assert filled.get(SUBJECTS, *default("http://ex/nowhere")).values == []


def test_a_name_that_is_no_iri_is_refused(filled: Client) -> None:
    answer = filled.get(SUBJECTS, *default("http://ex/a b"))
    assert answer.status == 400
    assert "expected an IRI" in answer.text


# --- forms of queries and their formats -------------------------------------------------------------------------------


def subjects_of_xml(body: bytes) -> list[str]:
    space = {"": "http://www.w3.org/2005/sparql-results#"}
    return [one.text or "" for one in ElementTree.fromstring(body).iterfind(".//binding/uri", space)]


def subjects_of_tsv(body: bytes) -> list[str]:
    head, *lines = body.decode().splitlines()
    assert head == "?s"
    return [line[1:-1] for line in lines]


ROW_READERS: dict[str, Callable[[bytes], list[str]]] = {
    JSON: lambda body: [row["s"]["value"] for row in json.loads(body)["results"]["bindings"]],
    XML: subjects_of_xml,
    "text/csv": lambda body: [row["s"] for row in csv.DictReader(io.StringIO(body.decode()))],
    "text/tab-separated-values": subjects_of_tsv,
    ARROW: lambda body: [text[1:-1] for text in pa.ipc.open_stream(body).read_all()["s"].to_pylist()],
    "text/plain": lambda body: [word for word in body.decode().split() if "http" in word or ":d" in word],
}


@in_each_way
@pytest.mark.parametrize("kind", ROW_READERS)
def test_rows_in_each_format(filled: Client, way: str, kind: str) -> None:
    answer = WAYS[way](filled, SUBJECTS, accept=kind)
    assert (answer.status, answer.kind) == (200, kind)
    found = ROW_READERS[kind](answer.body)
    assert len(found) == 1
    assert "http://ex/d" in found[0]


@pytest.mark.parametrize(
    ("kind", "true", "false"),
    [
        (JSON, b'"boolean": true', b'"boolean": false'),
        (XML, b"<boolean>true</boolean>", b"<boolean>false</boolean>"),
        ("text/csv", b"true", b"false"),
        ("text/tab-separated-values", b"true", b"false"),
        ("text/plain", b"true", b"false"),
    ],
)
def test_an_ask_in_each_format(filled: Client, kind: str, true: bytes, false: bytes) -> None:
    for text, expected in (("ASK { ?s ?p ?o }", true), ("ASK { ?s ?p 1 }", false)):
        answer = filled.get(text, accept=kind)
        assert (answer.status, answer.kind) == (200, kind)
        assert expected in answer.body


GRAPH_FORMATS = {
    "text/turtle": pyoxigraph.RdfFormat.TURTLE,
    "application/n-triples": pyoxigraph.RdfFormat.N_TRIPLES,
    "application/rdf+xml": pyoxigraph.RdfFormat.RDF_XML,
    "application/ld+json": pyoxigraph.RdfFormat.JSON_LD,
    "application/trig": pyoxigraph.RdfFormat.TRIG,
    "application/n-quads": pyoxigraph.RdfFormat.N_QUADS,
}


@in_each_way
@pytest.mark.parametrize("kind", GRAPH_FORMATS)
@pytest.mark.parametrize(
    "text", ["CONSTRUCT WHERE { ?s ?p ?o }", "DESCRIBE <http://ex/d>"], ids=["construct", "describe"]
)
def test_graphs_in_each_format(filled: Client, way: str, kind: str, text: str) -> None:
    answer = WAYS[way](filled, text, accept=kind)
    assert (answer.status, answer.kind) == (200, kind)
    assert [f"{quad.triple} .\n" for quad in pyoxigraph.parse(answer.body, GRAPH_FORMATS[kind])] == [TRIPLE]


@pytest.mark.parametrize("text", ["SELECT * { ?s ?p 1 }", "CONSTRUCT WHERE { ?s ?p 1 }"], ids=["rows", "graph"])
def test_an_empty_answer_is_well_formed_in_each_format(filled: Client, text: str) -> None:
    kinds = GRAPH_FORMATS if text.startswith("C") else ROW_READERS
    for kind in kinds:
        answer = filled.get(text, accept=kind)
        assert (answer.status, answer.kind) == (200, kind)
        if kind in GRAPH_FORMATS:
            assert list(pyoxigraph.parse(answer.body, GRAPH_FORMATS[kind])) == []
    assert filled.get("SELECT * { ?s ?p 1 }").values == []


def test_what_is_answered_by_default(filled: Client) -> None:
    """Without Accept, or with one that takes all: JSON, which all clients read, and Turtle."""
    for accept in (None, "", "*/*"):
        assert filled.get(SUBJECTS, accept=accept).kind == JSON
        assert filled.get("ASK {}", accept=accept).kind == JSON
        assert filled.get("CONSTRUCT WHERE { ?s ?p ?o }", accept=accept).kind == "text/turtle"
        assert filled.get("DESCRIBE <http://ex/d>", accept=accept).kind == "text/turtle"


ACCEPTED: list[tuple[str, str | None, str | None]] = [
    (f"{XML};q=0.2, text/csv;q=0.9", "text/csv", None),
    (f"text/csv ; q=0.5 , {XML} ; q=0.7", XML, None),
    ("application/*", JSON, "application/n-triples"),
    ("application/*;q=0.5, text/tab-separated-values", "text/tab-separated-values", "application/n-triples"),
    ("text/*", "text/csv", "text/turtle"),
    ("image/png, */*;q=0.1", JSON, "text/turtle"),
    (f"text/turtle, {JSON}", JSON, "text/turtle"),
    ("application/rdf+xml, text/turtle;q=0.9", None, "application/rdf+xml"),
    (f"TEXT/CSV;Q=1, {JSON};q=0.9", "text/csv", None),
    (f"{JSON};q=0, text/csv;q=0.001", "text/csv", None),
    (f"{JSON};charset=utf-8", JSON, None),
    (f"nonsense, ;;;, q=1, {XML};q=much, text/csv", "text/csv", None),
    ("application/json", JSON, "application/ld+json"),
    ("application/xml", XML, "application/rdf+xml"),
    ("text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8", XML, "application/rdf+xml"),
    (f"{JSON};q=0, */*", XML, "text/turtle"),
    ("text/turtle;q=0.1, */*;q=0.5", JSON, "application/n-triples"),
    ("image/png", None, None),
    ("*/*;q=0", None, None),
    (f"{JSON};q=0", None, None),
]
"""Accept headers, and the types of rows and of graphs that they choose (None: none of them)."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "accept", "expected"),
    [
        (what, accept, expected)
        for accept, *both in ACCEPTED
        for what, expected in zip(("rows", "graph"), both, strict=True)
    ],
)
def test_accept_decides_on_the_format(filled: Client, what: str, accept: str, expected: str | None) -> None:
    answer = filled.get(SUBJECTS if what == "rows" else "CONSTRUCT WHERE { ?s ?p ?o }", accept=accept)
    if expected is None:
        assert answer.status == 406, answer.kind
    else:
        assert (answer.status, answer.kind) == (200, expected)
        assert "Accept" in answer.headers["Vary"]


@pytest.mark.parametrize("accept", ["image/png", "text/turtle"])
def test_a_406_tells_what_there_is(filled: Client, accept: str) -> None:
    answer = filled.get(SUBJECTS, accept=accept)
    assert (answer.status, answer.kind) == (406, "text/plain")
    assert accept in answer.text
    assert all(kind in answer.text for kind in ROW_READERS)


def test_a_406_tells_each_type_once(filled: Client) -> None:
    offered = filled.get(SUBJECTS, accept="image/png").text.partition("expected one of ")[2].strip().split(", ")
    assert sorted(set(offered)) == sorted(offered)


def test_an_update_needs_no_format(client: Client) -> None:
    answer = client.form(("update", "INSERT DATA { <http://ex/a> <http://ex/p> 1 }"), accept="image/png")
    assert answer.status == 204


@in_each_way
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("json", JSON),
        ("xml", XML),
        ("csv", "text/csv"),
        ("tsv", "text/tab-separated-values"),
        ("arrow", ARROW),
        ("table", "text/plain"),
        (XML, XML),
        ("text/csv", "text/csv"),
    ],
)
def test_a_format_by_name_wins_over_accept(filled: Client, way: str, name: str, kind: str) -> None:
    for parameter in ("format", "output"):
        answer = WAYS[way](filled, SUBJECTS, (parameter, name), accept="image/png")
        assert (answer.status, answer.kind) == (200, kind)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ttl", "text/turtle"),
        ("nt", "application/n-triples"),
        ("rdf", "application/rdf+xml"),
        ("jsonld", "application/ld+json"),
        ("trig", "application/trig"),
        ("nq", "application/n-quads"),
        ("arrow", ARROW),
        ("text/turtle", "text/turtle"),
    ],
)
def test_a_format_of_graphs_by_name(filled: Client, name: str, kind: str) -> None:
    answer = filled.get("CONSTRUCT WHERE { ?s ?p ?o }", ("format", name), accept="image/png")
    assert (answer.status, answer.kind) == (200, kind)


def test_a_format_that_does_not_fit_or_is_not_known_is_passed_over(filled: Client) -> None:
    assert filled.get(SUBJECTS, ("format", "ttl")).kind == JSON
    assert filled.get(SUBJECTS, ("format", "nonsense"), accept=XML).kind == XML
    assert filled.get("CONSTRUCT WHERE { ?s ?p ?o }", ("format", "csv")).kind == "text/turtle"


def test_of_several_formats_the_first_one_that_is_known_counts(filled: Client) -> None:
    """SPARQLWrapper sends each parameter twice: the name of the format, and its type."""
    tsv = "text/tab-separated-values"
    for first, second in (("tsv", tsv), (tsv, "tsv"), ("nonsense", tsv)):
        answer = filled.get(SUBJECTS, ("format", first), ("format", second))
        assert (answer.status, answer.kind) == (200, tsv)


@pytest.mark.slow
def test_long_answers_are_whole_in_each_format(client: Client, engine: wukongs.Engine) -> None:
    lines = b"".join(b'<http://ex/s%d> <http://ex/p> "v%d" .\n' % (n, n) for n in range(50_000))
    engine.load(io.BytesIO(lines), format="nt")
    expected = {f"http://ex/s{n}" for n in range(50_000)}
    for kind in (JSON, XML, "text/csv", "text/tab-separated-values", ARROW):
        answer = client.get(SUBJECTS, accept=kind)
        found = ROW_READERS[kind](answer.body)
        assert (len(found), set(found)) == (50_000, expected)
    for kind, form in GRAPH_FORMATS.items():
        body = client.get("CONSTRUCT WHERE { ?s ?p ?o }", accept=kind).body
        assert {quad.subject.value for quad in pyoxigraph.parse(body, form)} == expected


# --- updates ----------------------------------------------------------------------------------------------------------


@in_both_ways
def test_an_update_is_applied(client: Client, way: str) -> None:
    answer = UPDATES[way](client, "INSERT DATA { <http://ex/ä> <http://ex/p> '+&=;' }")
    assert (answer.status, answer.body, answer.snapshot) == (204, b"", 1)
    assert client.get("SELECT * { ?s ?p ?o }").values == ["+&=;", "p", "ä"]


COPY = "INSERT { GRAPH <http://ex/new> { ?s <http://ex/is> 1 } } WHERE { ?s ?p ?o }"
COPY_NAMED = "INSERT { GRAPH <http://ex/new> { ?s <http://ex/is> 1 } } WHERE { GRAPH ?g { ?s ?p ?o } }"


def copied(client: Client) -> list[str]:
    return client.get(SUBJECTS, *default("http://ex/new")).values


@in_both_ways
@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        (COPY, [], ["d"]),
        (COPY, using(G1), ["a"]),
        (COPY, using(G1, G2), ["a", "b"]),
        (COPY_NAMED, [], ["a", "b", "c"]),
        (COPY_NAMED, using_named(G1), ["a"]),
        (COPY_NAMED, using_named(G1, G3), ["a", "c"]),
        (COPY, using_named(G1), []),
        (COPY_NAMED, using(G1), []),
        (COPY_NAMED.replace("WHERE {", "WHERE { ?d ?e ?f"), using(G1) + using_named(G2, G3), ["b", "c"]),
        (COPY, default(G1) + named(G1), ["d"]),
    ],
)
def test_the_dataset_of_an_update(
    filled: Client, way: str, text: str, fields: list[tuple[str, str]], expected: list[str]
) -> None:
    assert UPDATES[way](filled, text, *fields).status == 204
    assert copied(filled) == expected


@in_both_ways
def test_each_operation_of_an_update_has_the_dataset(client: Client, way: str) -> None:
    """As in the suite: data of the same request is seen through the dataset, and DATA goes where it says."""
    text = f"""PREFIX : <http://ex/> DROP ALL ;
        INSERT DATA {{ :d :in :default GRAPH <{G1}> {{ :a :in :one }} GRAPH <{G2}> {{ :b :in :two }} }} ; {COPY} ;
        DELETE {{ GRAPH <{G1}> {{ ?s ?p ?o }} }} WHERE {{ ?s ?p ?o }}"""
    assert UPDATES[way](client, text, *using(G1, G2)).status == 204
    assert copied(client) == ["a", "b"]
    assert client.get(SUBJECTS).values == ["d"]
    assert client.get(NAMED, *named(G1, G2)).values == ["b"]


@in_both_ways
@pytest.mark.parametrize("fields", [using(G2), using_named(G2), using(G1) + using_named(G2)])
@pytest.mark.parametrize("clause", [f"USING <{G1}>", f"USING NAMED <{G1}>", f"WITH <{G1}>"])
def test_two_datasets_of_an_update_are_a_conflict(
    filled: Client, way: str, fields: list[tuple[str, str]], clause: str
) -> None:
    insert = "INSERT { GRAPH <http://ex/new> { ?s ?p 1 } }"
    text = f"{clause} {insert} WHERE {{ ?s ?p ?o }}" if "WITH" in clause else f"{insert} {clause} WHERE {{ ?s ?p ?o }}"
    answer = UPDATES[way](filled, f"INSERT DATA {{ <http://ex/x> <http://ex/p> 1 }} ; {text}", *fields)
    assert 400 <= answer.status < 500
    assert "USING" in answer.text
    assert (copied(filled), filled.get(SUBJECTS).values) == ([], ["d"])
    assert UPDATES[way](filled, text).status == 204


@in_both_ways
def test_an_update_that_fails_changes_nothing(filled: Client, way: str) -> None:
    answer = UPDATES[way](filled, "INSERT DATA { <http://ex/x> <http://ex/p> 1 } ; DROP GRAPH <http://ex/nowhere>")
    assert answer.status == 409
    assert filled.get(SUBJECTS).values == ["d"]


# --- bad requests -----------------------------------------------------------------------------------------------------


def query_twice(client: Client) -> list[Answer]:
    twice = ("query", "ASK {}"), ("query", "SELECT * {}")
    return [client.ask("GET", "/sparql", twice), client.form(*twice)]


def update_twice(client: Client) -> list[Answer]:
    return [client.form(("update", "CLEAR NAMED"), ("update", "CLEAR DEFAULT"))]


def query_and_update(client: Client) -> list[Answer]:
    both = ("query", "ASK {}"), ("update", "CLEAR ALL")
    return [client.form(*both), client.ask("GET", "/sparql", both)]


def neither(client: Client) -> list[Answer]:
    return [client.form(("text", "ASK {}")), client.form()]


def update_by_get(client: Client) -> list[Answer]:
    return [
        client.ask("GET", "/sparql", {"update": "CLEAR ALL"}),
        client.ask("HEAD", "/sparql", {"update": "CLEAR ALL"}),
    ]


def no_type(client: Client) -> list[Answer]:
    bodies = "query=ASK%20%7B%7D", "ASK {}", "update=CLEAR%20ALL", "CLEAR ALL", ""
    return [client.ask("POST", "/sparql", body=body) for body in bodies]


def query_in_the_address_of_a_post(client: Client) -> list[Answer]:
    return [client.ask("POST", "/sparql", {"query": "ASK {}"}), client.ask("POST", "/sparql", {"update": "CLEAR ALL"})]


def wrong_type(client: Client) -> list[Answer]:
    kinds = (
        "text/plain",
        "application/json",
        "multipart/form-data; boundary=x",
        "nonsense",
        "application/sparql-query+x",
    )
    return [client.direct(text, kind=kind) for kind in kinds for text in ("ASK {}", "CLEAR ALL")]


def type_of_the_other(client: Client) -> list[Answer]:
    return [client.direct("ASK {}", kind=UPDATE), client.direct("CLEAR ALL", kind=QUERY)]


def other_charset(client: Client) -> list[Answer]:
    texts = ("ASK {}", QUERY), ("CLEAR ALL", UPDATE), ("query=ASK%20%7B%7D", FORM), ("update=CLEAR%20ALL", FORM)
    return [
        client.ask("POST", "/sparql", body=text.encode(charset), content_type=f"{kind}; charset={charset}")
        for text, kind in texts
        for charset in ("UTF-16", "utf-32", "ISO-8859-1")
    ]


def no_utf8(client: Client) -> list[Answer]:
    bodies = (
        ("ASK {}".encode("utf-16"), QUERY),
        ("CLEAR ALL".encode("utf-16"), UPDATE),
        (b"ASK { ?s ?p '\xe4' }", QUERY),
    )
    more = (b"query=ASK{?s+?p+'%E4'}", FORM), (b"update=INSERT+DATA{<a:a>+<a:b>+'%E4'}", FORM), (b"query=\xff", FORM)
    found = [client.ask("POST", "/sparql", body=body, content_type=kind) for body, kind in bodies + more]
    return [*found, client.ask("GET", "/sparql?query=ASK%7B%3Fs%20%3Fp%20'%E4'%7D")]


def no_utf8_beside_it(client: Client) -> list[Answer]:
    get = client.ask("GET", "/sparql?query=ASK%7B%7D&default-graph-uri=http://ex/%E4")
    return [get, client.ask("POST", "/sparql?using-graph-uri=%E4", body="CLEAR ALL", content_type=UPDATE)]


def syntax(client: Client) -> list[Answer]:
    return [
        *(
            send(client, text)
            for send in WAYS.values()
            for text in ("ASK {", "", "nonsense", "SELECT ?x { ?x ex:p 1 }")
        ),
        *(send(client, text) for send in UPDATES.values() for text in ("CLEAR XYZ", "CLEAR ALL ; nonsense")),
    ]


BAD = [
    query_twice,
    update_twice,
    query_and_update,
    neither,
    update_by_get,
    no_type,
    query_in_the_address_of_a_post,
    wrong_type,
    type_of_the_other,
    other_charset,
    no_utf8,
    no_utf8_beside_it,
    syntax,
]
UNSUPPORTED = {"no_type", "query_in_the_address_of_a_post", "wrong_type", "other_charset"}


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.__name__)
def test_a_bad_request_is_refused_and_changes_nothing(filled: Client, case: Callable[[Client], list[Answer]]) -> None:
    expected = 415 if case.__name__ in UNSUPPORTED else 400
    for answer in case(filled):
        assert (answer.status, answer.kind) == (expected, "text/plain"), answer.text
        assert answer.headers["Content-Length"] != "0"
        assert "Wukongs-Snapshot" not in answer.headers
    assert (filled.get(SUBJECTS).values, filled.get(NAMED).values) == (["d"], ["a", "b", "c"])
    assert filled.get("ASK {}").snapshot == 1


def test_an_empty_update_is_one(filled: Client) -> None:
    """By the grammar an update may have no operation; a query may not be empty."""
    assert filled.update("").status == filled.form(("update", "")).status == 204


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_another_method_is_told_which_there_are(filled: Client, method: str) -> None:
    answer = filled.ask(method, "/sparql", {"query": "ASK {}"})
    assert answer.status == 405
    assert {one.strip() for one in answer.headers["Allow"].split(",")} == {"GET", "HEAD", "POST"}


def test_a_path_that_is_not_there(client: Client) -> None:
    answer = client.ask("GET", "/nowhere")
    assert answer.status == 404
    assert "/sparql" in answer.text


def test_a_connection_goes_on_after_requests_that_were_refused(filled: Client) -> None:
    connection = http.client.HTTPConnection(filled.host, filled.port, timeout=30)
    connection.connect()
    connection.auto_open = 0  # it is not to be opened again
    try:
        for body, kind, status in [
            ("x" * 100_000, "text/plain", 415),
            ("ASK {", QUERY, 400),
            ("query=%ff", FORM, 400),
            ("ASK {}", QUERY, 200),
        ]:
            connection.request("POST", "/sparql", body, {"Content-Type": kind})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
    finally:
        connection.close()


# --- errors -----------------------------------------------------------------------------------------------------------


@in_each_way
def test_an_error_as_text_shows_the_place(client: Client, way: str) -> None:
    answer = WAYS[way](client, "SELECT ?s {\n  ?s ?p }", accept=f"{XML}, */*;q=0.1")
    assert (answer.status, answer.headers["Content-Type"]) == (400, "text/plain; charset=utf-8")
    told, line, mark = answer.text.splitlines()
    assert told.startswith("QuerySyntaxError: query, line 2, column 9: expected an object")
    assert line.index("}") == mark.index("^")


@in_each_way
@pytest.mark.parametrize("accept", [JSON, "application/json", f"{JSON}, application/problem+json;q=0.9"])
def test_an_error_as_json_names_line_and_column(client: Client, way: str, accept: str) -> None:
    answer = WAYS[way](client, "SELECT ?s {\n  ?s ?p }", accept=accept)
    assert (answer.status, answer.kind) == (400, "application/problem+json")
    told = answer.json
    assert (told["title"], told["status"], told["line"], told["column"]) == ("QuerySyntaxError", 400, 2, 9)
    assert "line 2, column 9" in told["detail"]
    assert told["expected"].startswith("an object")
    assert told["found"] == "'}'"
    assert told["excerpt"].startswith("2 |")


def test_an_error_of_an_update_as_json(client: Client) -> None:
    answer = client.form(("update", "INSERT DATA {\n\n <a:a> }"), accept="application/json")
    assert (answer.status, answer.json["title"], answer.json["line"]) == (400, "QuerySyntaxError", 3)


def test_what_is_known_but_not_supported_is_told_by_name(client: Client) -> None:
    answer = client.get("SELECT * { ?s ?p ?o } AGGREGATE { (?n, COUNT, {?s}) }", accept="application/json")
    assert (answer.status, answer.json["title"]) == (400, "UnsupportedFeatureError")
    assert "AGGREGATE" in answer.json["feature"]
    assert (answer.json["line"], answer.json["column"]) == (1, 23)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("PUT", "/sparql", 405),
        ("GET", "/sparql?query=ASK{}&query=x", 400),
        ("POST", "/sparql", 415),
    ],
)
def test_refusals_come_as_json_as_well(client: Client, method: str, path: str, status: int) -> None:
    answer = client.ask(method, path, accept="application/json")
    assert (answer.status, answer.kind) == (status, "application/problem+json")
    assert answer.json["status"] == status
    assert answer.json["detail"]


# --- bases, HEAD, the service -----------------------------------------------------------------------------------------


def test_relative_iris_are_resolved_by_the_address(client: Client) -> None:
    assert client.update("INSERT DATA { <s> <#p> <> . </r> <?x=y> <../up> }").status == 204
    here = f"{client.address}/sparql"
    expected = [f"{client.address}/r", f"{client.address}/s", f"{client.address}/up", here, f"{here}#p", f"{here}?x=y"]
    assert client.get("SELECT * { ?s ?p ?o }").values == sorted(expected)
    for send in WAYS.values():
        assert send(client, "ASK { <s> <#p> <> }").boolean is True
        assert send(client, "BASE <http://ex/> ASK { <s> <#p> <> }").boolean is False


def test_the_parameters_of_an_address_are_no_part_of_the_base(client: Client) -> None:
    client.update("INSERT DATA { <> <p> 1 }", ("x", "y"))
    assert client.get("SELECT ?s { ?s ?p ?o }").values == [f"{client.address}/sparql"]


def test_base_in_an_update(client: Client) -> None:
    """As in the suite: BASE counts for what follows it."""
    client.update("BASE <http://ex/> INSERT DATA { GRAPH <g> { <s> <p> <test> } }")
    assert client.get("SELECT * { GRAPH ?g { ?s ?p ?o } }").values == ["g", "p", "s", "test"]


def test_head_is_a_get_without_its_body(filled: Client) -> None:
    for accept, text in ((JSON, SUBJECTS), ("text/csv", SUBJECTS), ("text/turtle", "CONSTRUCT WHERE { ?s ?p ?o }")):
        head, get = (filled.ask(method, "/sparql", {"query": text}, accept=accept) for method in ("HEAD", "GET"))
        assert (head.status, head.body) == (200, b"")
        assert (head.kind, head.snapshot, head.headers["Vary"]) == (get.kind, get.snapshot, get.headers["Vary"])
    assert filled.ask("HEAD", "/sparql", {"query": "ASK {"}).status == 400
    assert filled.ask("HEAD", "/sparql").status == 200


@pytest.mark.parametrize("kind", ["text/turtle", "application/n-triples", "application/rdf+xml", "application/ld+json"])
def test_the_service_describes_itself(filled: Client, kind: str) -> None:
    answer = filled.ask("GET", "/sparql", accept=kind)
    assert (answer.status, answer.kind) == (200, kind)
    sd = "http://www.w3.org/ns/sparql-service-description#"
    told = {(quad.predicate.value, quad.object.value) for quad in pyoxigraph.parse(answer.body, GRAPH_FORMATS[kind])}
    assert {(f"{sd}endpoint", f"{filled.address}/sparql"), (f"{sd}name", G1), (f"{sd}name", G3)} <= told
    assert (f"{sd}supportedLanguage", f"{sd}SPARQL11Update") in told
    assert (f"{sd}resultFormat", "http://www.w3.org/ns/formats/SPARQL_Results_JSON") in told


# --- snapshots and time -----------------------------------------------------------------------------------------------


def test_each_answer_says_which_snapshot_it_is_of(
    client: Client, engine: wukongs.Engine, later: contextlib.ExitStack
) -> None:
    """Those that nobody holds are merged away."""
    assert client.get("ASK {}").snapshot == 0
    for n in range(3):
        assert client.update(f"INSERT DATA {{ <http://ex/s{n}> <http://ex/p> {n} }}").snapshot == n + 1
        with (core := core_of(engine)).lock:
            later.enter_context(core.arrangement.open(n + 1, "a test", expires=False))
    for send in WAYS.values():
        assert send(client, SUBJECTS).snapshot == 3
        older = send(client, SUBJECTS, ("at", "2"))
        assert (older.snapshot, older.values) == (2, ["s0", "s1"])
    first = client.get("CONSTRUCT WHERE { ?s ?p ?o }", ("at", "1"))
    assert (first.status, first.snapshot, first.text.count("\n")) == (200, 1, 1)
    assert client.get(SUBJECTS, ("at", "0")).values == []


def test_a_snapshot_that_is_not_there(client: Client) -> None:
    answer = client.get(SUBJECTS, ("at", "7"))
    assert (answer.status, answer.kind) == (410, "text/plain")
    assert "from 0 to 0" in answer.text
    assert 400 <= client.get(SUBJECTS, ("at", "-1")).status < 500


@pytest.mark.parametrize("at", ["x", "1.5", "", "1e3"])
def test_a_snapshot_that_is_no_number(client: Client, at: str) -> None:
    answer = client.get(SUBJECTS, ("at", at))
    assert answer.status == 400
    assert "parameter at" in answer.text


def with_pairs(engine: wukongs.Engine) -> str:
    """Fill the engine, and return the pattern of a query that takes for ever."""
    engine.load(io.BytesIO(b"".join(b'<s:%d> <p:p> "%d" .\n' % (n, n) for n in range(2000))), format="nt")
    return "?a ?b ?c . ?d ?e ?f . ?g ?h ?i FILTER (CONCAT(?c, ?f) = CONCAT(?i, 'x'))"


@in_each_way
def test_a_query_ends_at_its_timeout(client: Client, engine: wukongs.Engine, way: str) -> None:
    answer = WAYS[way](client, f"SELECT * {{ {with_pairs(engine)} }}", ("timeout", "0.2"), accept=JSON)
    assert (answer.status, answer.kind) == (503, "application/problem+json")
    assert (answer.json["title"], answer.headers["Retry-After"]) == ("QueryTimeout", "1")
    assert "0.2" in answer.json["detail"]
    assert WAYS[way](client, "ASK {}", ("timeout", "5")).boolean is True


@in_both_ways
def test_an_update_ends_at_its_timeout(client: Client, engine: wukongs.Engine, way: str) -> None:
    text = f"INSERT {{ ?a ?b ?i }} WHERE {{ {with_pairs(engine)} }}"
    answer = UPDATES[way](client, text, ("timeout", "0.2"))
    assert answer.status == 503
    assert client.get("ASK {}").snapshot == 1


def test_a_timeout_is_bounded_by_that_of_the_server(engine: wukongs.Engine) -> None:
    with served(engine, Bounds(timeout_max_s=0.2)) as client:
        text = f"SELECT * {{ {with_pairs(engine)} }}"
        for fields in ([], [("timeout", "1000")]):
            answer = client.get(text, *fields)
            assert answer.status == 503
            assert "0.2" in answer.text


@pytest.mark.parametrize("timeout", ["x", "-1", "0", "nan", "inf", ""])
def test_a_timeout_that_is_none(client: Client, timeout: str) -> None:
    for send in (*WAYS.values(), *UPDATES.values()):
        answer = send(client, "CLEAR ALL" if send in UPDATES.values() else "ASK {}", ("timeout", timeout))
        assert answer.status == 400
        assert "parameter timeout" in answer.text


# --- gzip -------------------------------------------------------------------------------------------------------------


def test_a_long_answer_is_packed_for_those_who_take_gzip(client: Client, engine: wukongs.Engine) -> None:
    engine.load(io.BytesIO(b"".join(b"<http://ex/s%d> <p:p> <o:o> .\n" % n for n in range(20_000))), format="nt")
    plain = client.get(SUBJECTS)
    packed = client.get(SUBJECTS, **{"Accept-Encoding": "gzip, deflate"})
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["Vary"]
    assert len(packed.body) < len(plain.body) / 4
    assert gzip.decompress(packed.body) == plain.body
    assert client.get(SUBJECTS, **{"Accept-Encoding": "identity"}).body == plain.body


def test_a_short_answer_goes_in_one_piece(filled: Client) -> None:
    answer = filled.get(SUBJECTS, **{"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in answer.headers
    assert int(answer.headers["Content-Length"]) == len(answer.body)


def test_nothing_is_packed_for_those_who_refuse_gzip(client: Client, engine: wukongs.Engine) -> None:
    engine.load(io.BytesIO(b"".join(b"<http://ex/s%d> <p:p> <o:o> .\n" % n for n in range(2000))), format="nt")
    assert "Content-Encoding" not in client.get(SUBJECTS, **{"Accept-Encoding": "gzip;q=0, identity"}).headers


def packed(client: Client, body: bytes, kind: str, encoding: str = "gzip") -> Answer:
    return client.ask("POST", "/sparql", body=body, content_type=kind, headers={"Content-Encoding": encoding})


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZIP"])
def test_a_body_may_be_packed(filled: Client, encoding: str) -> None:
    assert packed(filled, gzip.compress(SUBJECTS.encode()), QUERY, encoding).values == ["d"]
    assert packed(filled, gzip.compress(b"query=ASK%20%7B%7D"), FORM, encoding).boolean is True
    assert packed(filled, gzip.compress(b"INSERT DATA { <a:a> <a:b> 1 }"), UPDATE, encoding).status == 204
    assert filled.get("ASK { <a:a> <a:b> 1 }").boolean is True


UPDATE_TEXT = b"CLEAR ALL ; INSERT DATA { <http://ex/x> <http://ex/p> 1 }"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (gzip.compress(UPDATE_TEXT)[:-3], "in the middle"),
        (gzip.compress(UPDATE_TEXT)[:30], "in the middle"),
        (b"", "in the middle"),
        (UPDATE_TEXT, "no gzip"),
        (gzip.compress(UPDATE_TEXT)[:-8] + b"\0" * 8, "no gzip"),
    ],
    ids=["truncated", "truncated early", "empty", "plain", "wrong sum"],
)
def test_a_body_that_is_badly_packed_is_refused(filled: Client, body: bytes, told: str) -> None:
    answer = packed(filled, body, UPDATE)
    assert answer.status == 400
    assert told in answer.text
    assert filled.get(SUBJECTS).values == ["d"]


def test_a_body_packed_in_several_parts_is_read_to_its_end(filled: Client) -> None:
    first, second = UPDATE_TEXT.split(b" ; ")
    assert packed(filled, gzip.compress(first) + gzip.compress(b" ; " + second), UPDATE).status == 204
    assert filled.get(SUBJECTS).values == ["x"]


def test_a_packed_body_with_something_behind_it_is_refused(filled: Client) -> None:
    assert packed(filled, gzip.compress(UPDATE_TEXT) + b"and more", UPDATE).status == 400


def test_another_encoding_is_refused(filled: Client) -> None:
    answer = packed(filled, b"ASK {}", QUERY, "br")
    assert (answer.status, answer.headers["Accept-Encoding"]) == (415, "gzip")


def test_a_body_that_is_too_long_is_refused_packed_or_not(engine: wukongs.Engine) -> None:
    with served(engine, Bounds(body_bytes_max=1000)) as client:
        fits, long = (b"ASK {}".ljust(length) for length in (1000, 1001))
        bomb = gzip.compress(b"ASK {}" + b" " * 10_000_000)
        assert client.ask("POST", "/sparql", body=fits, content_type=QUERY).boolean is True
        assert packed(client, gzip.compress(fits), QUERY).boolean is True
        for answer in (
            client.ask("POST", "/sparql", body=long, content_type=QUERY),
            client.ask("POST", "/sparql", body=iter([long[:600], long[600:]]), content_type=QUERY),
            client.ask("POST", "/sparql", body=long, content_type="text/plain"),
            packed(client, gzip.compress(long), QUERY),
            packed(client, bomb[:900], QUERY),
            client.form(("query", long.decode())),
        ):
            assert answer.status == 413, answer.text
            assert "1000 bytes" in answer.text
        assert client.get("ASK {}").boolean is True


def test_a_body_that_is_much_too_long_is_told_so(engine: wukongs.Engine) -> None:
    """The answer comes before all is sent, so it has to come without a reset of the connection."""
    with served(engine, Bounds(body_bytes_max=1000)) as client:
        answer = client.ask("POST", "/sparql", body=b"ASK {}".ljust(20_000_000), content_type=QUERY)
        assert answer.status == 413


def test_a_plan_is_of_the_graph_as_it_is_now(filled: Client) -> None:
    answer = filled.get("ASK {}", ("explain", "plan"), ("at", "0"))
    assert (answer.status, "explain and at: expected one of the two" in answer.text) == (400, True)


def test_likely_mistakes_are_told_beside_the_answer(filled: Client) -> None:
    answer = filled.get("SELECT ?nme { ?x ?p ?name }")
    assert (answer.status, len(answer.json["results"]["bindings"])) == (200, 1)
    assert answer.headers["Wukongs-Warning"] == "?nme is selected, but nothing binds it: did you mean ?name?"
    assert "Wukongs-Warning" not in filled.get("SELECT ?name { ?x ?p ?name }").headers
    unbound = " ".join(f"?unbound{number}" for number in range(500))
    told = filled.get(f"SELECT {unbound} {{ ?x ?p ?o }}").headers["Wukongs-Warning"]
    assert (len(told) < 2100, told.endswith("... (and more)")) == (True, True)  # proxies refuse long headers
    assert filled.get("SELECT ?ñ { ?x ?p ?o }").headers["Wukongs-Warning"].startswith("?\\xf1 is selected")
    control = filled.get("ASK { ?x <http://ex/\x7f> ?o }", ("default-graph-uri", "http://ex/\x7f"))
    assert (control.status, "<http://ex/\\x7f>" in control.headers["Wukongs-Warning"]) == (200, True)
    graph = ("default-graph-uri", "http://ex/nothing")
    beside = filled.get("SELECT ?name { ?x ?p ?name }", graph).headers["Wukongs-Warning"]
    assert beside.startswith("there is no graph <http://ex/nothing> so far")
