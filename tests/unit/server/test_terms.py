"""One table of terms through every way in: load, push, push_arrow and lines over HTTP give what pyoxigraph reads."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyoxigraph
import pytest

import wukongs
from tests.unit.server.asking import Client
from wukongs.store.canonical import to_ntriples

XSD = "http://www.w3.org/2001/XMLSchema#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
TERMS = [
    '"a"', '""', '"a\\tb\\nc\\"d\\\\"', '"\\u00e9"', '"\\U0001F600"', '"😀"', '"\\u0000"', '"a\u2028b"',
    "\"\\b\\f\\r\\'\"",
    '"x"@en', '"x"@en-GB', '"x"@ar--rtl', '"x" @en', '"x"\t@en', '"x"@en-x-abcdefgh',
    "<http://e/\\u00e9>", "<http://e/é>", "<http://e/\\u0053>", "<http://e/\\U0001F600>", "<urn:x>", "<http://e/a%20b>",
    f'"1"^^<{XSD}integer>', f'"01"^^<{XSD}integer>', f'"1"^^<{XSD}string>', f'"1" ^^\t<{XSD}integer>', '"1"^^<http://e/\\u00e9>',
    "_:b", "_:b.c-d", "_:0", "_:é·",
    f'"x"^^<{RDF}langString>', f'"x"^^<{RDF}dirLangString>', f'"x"^^<{RDF}lang\\u0053tring>',
    '"x"@toolonglanguage', '"x"@en-toolongsubtag', '"x"@', '"x"@ en', '"x"@en--up', '"x"@en-',
    "<http://e/<bad>>", "<rel>", "<http://e/a b>", "<http://e/\\u0020>", '"unterminated',
    '"bad\\q"', '"\\uD800"', '"x"^^<rel>',
    "_:", "_:-a", "_:a:b", "_::a", "_:a:", "'x'", "x",
]  # fmt: skip
STREAM = "http://e/stream"
WINDOW = f"REGISTER QUERY q AS SELECT ?o FROM STREAM <{STREAM}> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }}"
ROW = ("<http://e/s>", "<http://e/p>")


def _expected(term: str) -> pyoxigraph.NamedNode | pyoxigraph.BlankNode | pyoxigraph.Literal | None:
    """Return the term as pyoxigraph reads it, a blank node without its label; None: it is none."""
    try:
        (quad,) = pyoxigraph.parse(f"<http://e/s> <http://e/p> {term} .", format=pyoxigraph.RdfFormat.N_TRIPLES)
    except SyntaxError:
        return None
    return pyoxigraph.BlankNode("b") if isinstance(quad.object, pyoxigraph.BlankNode) else quad.object


def _in_window(push: Callable[[Any], object]) -> Any:
    """Return the object in a window of what is pushed to an engine's stream; None if it is refused."""
    with wukongs.Engine() as engine:
        stream = engine.stream(STREAM, batch_ms=1000, timing=True)
        query = engine.register(WINDOW)
        try:
            push(stream)
        except wukongs.DataError:
            return None
        stream.advance(1000)
        engine.settle()
        ((text,),) = next(iter(query.results(timeout_s=0))).texts()
        return _expected(to_ntriples(text))


def _loaded(term: str, format: str) -> Any:
    with wukongs.Engine() as engine:
        try:
            engine.load(io.BytesIO(f"<http://e/s> <http://e/p> {term} .\n".encode()), format=format, strict=True)
        except wukongs.DataError:
            return None
        return _expected(to_ntriples(engine.query("SELECT ?o { ?s ?p ?o }").texts()[0][0]))


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_the_same_through_every_way(term: str) -> None:
    expected = _expected(term)
    table = {"subject": [ROW[0]], "predicate": [ROW[1]], "object": [term], "timestamp_ms": [500]}
    found = {
        "nt": _loaded(term, "nt"),
        "nq": _loaded(term, "nq"),
        "push": _in_window(lambda stream: stream.push([(*ROW, term, 500)])),
        "push_arrow": _in_window(lambda stream: stream.push_arrow(pa.table(table))),
    }
    assert found == dict.fromkeys(found, expected)


def test_lines_over_http_have_the_same_terms(client: Client, engine: wukongs.Engine) -> None:
    engine.stream(STREAM, batch_ms=1000)
    path = "/streams/http%3A%2F%2Fe%2Fstream"
    for at, term in enumerate(TERMS):
        line = f"<http://e/s> <http://e/n{at}> {term} . 500\n"
        answer = client.ask("POST", path, body=line.encode(), content_type="application/n-triples")
        assert answer.status == (400 if _expected(term) is None else 200), (term, answer.text)
        if answer.status == 400:
            assert "the body, line 1, column" in answer.text
    client.ask("POST", path, {"advance_ms": "2000"})
    engine.settle(10)
    for at, term in enumerate(TERMS):
        found = engine.query(f"SELECT ?o {{ ?s <http://e/n{at}> ?o }}").texts()
        assert [_expected(to_ntriples(text)) for (text,) in found] == [
            one for one in [_expected(term)] if one is not None
        ]


@pytest.mark.parametrize("graph", ["_:g", "<http://e/\\u00e9>", "<http://e/g>"])
def test_lines_over_http_may_name_any_graph(client: Client, engine: wukongs.Engine, graph: str) -> None:
    engine.stream(STREAM, batch_ms=1000)
    line = f'<http://e/s> <http://e/p> 1{graph} .\n<http://e/s> <http://e/p> "1" {graph} . 500\n'
    path = "/streams/http%3A%2F%2Fe%2Fstream"
    assert client.ask("POST", path, body=line, content_type="application/n-quads").status == 400, "1 is no term here"
    line = line.partition("\n")[2]
    answer = client.ask("POST", path, {"advance_ms": "2000"}, body=line.encode(), content_type="application/n-quads")
    assert answer.json == {"pushed": 1}
    engine.settle(10)
    (name,) = engine.graph_names()
    assert name.startswith("_:") if graph.startswith("_") else f"<{name}>" == graph.replace("\\u00e9", "é")
    assert len(engine.graph(name)) == 1


TRIPLE_TERM = "<<( <http://e/s> <http://e/p> <http://e/o> )>>"


def test_a_triple_term_is_loaded_and_refused_by_streams() -> None:
    """docs/api.md, terms and values: `load` takes triple terms, streams do not."""
    assert str(_loaded(TRIPLE_TERM, "nt")) == "<http://e/s> <http://e/p> <http://e/o>"
    assert _in_window(lambda stream: stream.push([(*ROW, TRIPLE_TERM, 500)])) is None
