"""Each graph in each format, by the graph store and by CONSTRUCT: it reads back as it was, or 406 says why not."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from pathlib import Path
from xml.parsers import expat

import pyoxigraph
import pytest

import wukongs
from tests.unit.server.asking import Client, served
from wukongs.server.media import JSON_LD, RDF_XML, converted
from wukongs.server.rdf_xml import NotWritable

RDF, XSD = "http://www.w3.org/1999/02/22-rdf-syntax-ns#", "http://www.w3.org/2001/XMLSchema#"
A, P = "<http://e/a>", "<http://e/p>"
_NUMBERS = (("01", "integer"), ("1.0", "decimal"), ("1E0", "double"), ("1", "boolean"), ("1.", "decimal"))
GRAPHS = {
    "plain": f'{A} {P} "x" .',
    "line ends": rf'{A} {P} "a\r\nb\tc\r" .',
    "quotes": f"{A} {P} " + r""""\"\"\"''\'\\" .""",
    "spaces": f'{A} {P} "  x  " .',
    "signs of XML": f'{A} {P} "<&>]]>" .',
    "control": rf'{A} {P} "\u0001" .',
    "nul": rf'{A} {P} "\u0000" .',
    "not a character": rf'{A} {P} "\uFFFE" .',
    "astral": f'{A} {P} "😀" .',
    "direction": f'{A} {P} "x"@ar--rtl .',
    "triple term": f'{A} {P} <<( <http://e/s> {P} "o"@en )>> .',
    "nested triple term": f"{A} {P} <<( _:b {P} <<( _:b {P} {A} )>> )>> .",
    "blank nodes": f"_:a {P} _:b . _:b {P} _:a .",
    "predicate without a name": f'{A} <http://e/1> "x" .',
    "predicate that ends in a slash": f'{A} <http://e/p/> "x" .',
    "predicate with a sign": f'{A} <http://e/?a=1&b> "x" .',
    "predicate with an accent": f'{A} <http://e/é> "x" .',
    "predicate beyond U+FFFF": f'{A} <http://e/😀> "x" .',
    "urn": "<urn:a> <urn:p> <urn:o> .",
    "query": f"<http://e/a?x=1&y=2#f> {P} <http://e/%20(x)> .",
    "apostrophe": f"{A} {P} <http://e/o'x> .",
    "numbers": " ".join(f'{A} {P} "{lexical}"^^<{XSD}{name}> .' for lexical, name in _NUMBERS),
    "no number": f'{A} {P} "1e0x"^^<{XSD}double> . {A} {P} "TRUE"^^<{XSD}boolean> .',
    "type": f"{A} <{RDF}type> <http://e/C> .",
    "type without a name": f"{A} <{RDF}type> <http://e/1> .",
    "type of syntax": f"{A} <{RDF}type> <{RDF}Description> . {A} <{RDF}type> <{RDF}li> .",
    "list": f'{A} {P} _:l . _:l <{RDF}first> "1" . _:l <{RDF}rest> <{RDF}nil> .',
    "list in itself": f'_:l <{RDF}first> "1" . _:l <{RDF}rest> _:l .',
    "JSON": rf'{A} {P} "{{ \"a\": 1 }}"^^<{RDF}JSON> .',
    "XML literal": f'{A} {P} "<b>x</b>"^^<{RDF}XMLLiteral> .',
    "member": f'{A} <{RDF}_1> "x" .',
    "rdf:li": f'{A} <{RDF}li> "x" .',
    "rdf:Description": f'{A} <{RDF}Description> "x" .',
    "rdf:bagID": f'{A} <{RDF}bagID> "x" .',
    "odd local names": "<http://e/a.> <http://e/p.> <http://e/-x> .",
}
FORMATS = {
    "text/turtle": pyoxigraph.RdfFormat.TURTLE,
    "application/n-triples": pyoxigraph.RdfFormat.N_TRIPLES,
    "application/rdf+xml": pyoxigraph.RdfFormat.RDF_XML,
    "application/ld+json": pyoxigraph.RdfFormat.JSON_LD,
    "application/trig": pyoxigraph.RdfFormat.TRIG,
    "application/n-quads": pyoxigraph.RdfFormat.N_QUADS,
}
_NO_XML_NAME = "it does not end in a name of XML"
REFUSED = {
    ("control", "application/rdf+xml"): "the character U+0001",
    ("nul", "application/rdf+xml"): "the character U+0000",
    ("not a character", "application/rdf+xml"): "the character U+FFFE",
    ("predicate without a name", "application/rdf+xml"): _NO_XML_NAME,
    ("predicate that ends in a slash", "application/rdf+xml"): _NO_XML_NAME,
    ("predicate beyond U+FFFF", "application/rdf+xml"): _NO_XML_NAME,
    ("rdf:li", "application/rdf+xml"): "rdf:li is syntax there",
    ("rdf:Description", "application/rdf+xml"): "rdf:Description is syntax there",
    ("rdf:bagID", "application/rdf+xml"): "rdf:bagID is syntax there",
    ("triple term", "application/ld+json"): "JSON-LD 1.1 cannot hold a triple term",
    ("nested triple term", "application/ld+json"): "JSON-LD 1.1 cannot hold a triple term",
}
"""What a format cannot hold: RDF/XML 1.1, 5.1 and 6.1.4; XML 1.0, 2.2; JSON-LD 1.1, which is older than RDF 1.2."""


def canonical(quads: Iterable[pyoxigraph.Quad]) -> list[str]:
    found = pyoxigraph.Dataset(pyoxigraph.Quad(one.subject, one.predicate, one.object) for one in quads)
    found.canonicalize(pyoxigraph.CanonicalizationAlgorithm.UNSTABLE)
    return sorted(set(map(str, found)))


def parsed(data: bytes, format: pyoxigraph.RdfFormat) -> list[str]:
    if format == pyoxigraph.RdfFormat.RDF_XML:  # the library takes more than is well-formed
        expat.ParserCreate(namespace_separator=" ").Parse(data, True)
    return canonical(pyoxigraph.parse(data, format, base_iri="http://base/"))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["application/rdf+xml", "application/ld+json"])
@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_converted_reads_back(name: str, kind: str) -> None:
    data = GRAPHS[name].encode()
    media = RDF_XML if kind == "application/rdf+xml" else JSON_LD
    if (name, kind) in REFUSED:
        with pytest.raises(NotWritable, match=re.escape(REFUSED[name, kind])):
            converted(data, media)
        return
    assert parsed(converted(data, media), FORMATS[kind]) == parsed(data, pyoxigraph.RdfFormat.TURTLE)


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_no_format_of_a_graph_fails(client: Client, name: str) -> None:
    graph, data = "http://e/g", GRAPHS[name].encode()
    assert client.store("PUT", graph, data, "text/turtle").status == 201
    query = "CONSTRUCT { ?s ?p ?o } WHERE { GRAPH <http://e/g> { ?s ?p ?o } }"
    for kind, format in FORMATS.items():
        for answer in (client.store("GET", graph, accept=kind), client.get(query, accept=kind)):
            if (name, kind) in REFUSED:
                assert (answer.status, REFUSED[name, kind] in answer.text) == (406, True), answer.text
                continue
            assert answer.status == 200, answer.text
            assert parsed(answer.body, format) == parsed(data, pyoxigraph.RdfFormat.TURTLE), kind


def test_terms_that_the_library_would_not_read_are_written(client: Client, engine: wukongs.Engine) -> None:
    engine.load(io.BytesIO("<http://e/a\x7f> <http://e/p> <x:\u00a0> .\n".encode()), format="nt", strict=True)
    for kind in FORMATS:
        assert client.store("GET", "", accept=kind).status == 200, kind


def test_contexts_of_json_ld_are_those_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "c.jsonld").write_text('{"@context": {"@version": 1.1, "p": "http://e/p"}}')
    settings = wukongs.Settings(contexts={"http://e/c": str(tmp_path / "c.jsonld")})  # type: ignore[arg-type]
    kind = "application/ld+json"
    with wukongs.Engine(settings=settings) as engine, served(engine) as client:
        for method in ("PUT", "POST"):
            body = f'{{"@context": "http://e/c", "@id": "http://e/{method}", "p": 123456789012345678901}}'
            assert client.store(method, "http://e/g", body, kind).status in (201, 204)
            answer = client.store(method, "http://e/g", body.replace("e/c", "e/d"), kind)
            assert (answer.status, "the @context <http://e/d> is a remote document" in answer.text) == (400, True)
        found = client.store("GET", "http://e/g", accept="application/n-triples").text
        assert sorted(found.splitlines()) == [
            f'<http://e/{one}> <http://e/p> "123456789012345678901"^^<{XSD}integer> .' for one in ("POST", "PUT")
        ]
