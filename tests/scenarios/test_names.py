"""Every list of names round-trips: each name that an engine lists opens with every call that takes such a name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faces import Face
from wukongs.errors import StreamError

QUADS = """<http://e/s> <http://e/p> <http://e/o> _:g .
<http://e/s> <http://e/p> "1" <http://e/g> .
<http://e/s> <http://e/p> "2" <http://e/\\u00e9?a=1&b=%20#f> .
<http://e/s> <http://e/p> "3" .
"""
TRIG = "_:g.h { <http://e/s> <http://e/p> 4 } [] { <http://e/s> <http://e/p> 5 }"
EACH = "SELECT ?o { GRAPH ?g { ?s ?p ?o } }"
QUERY_NAMES = ("q", "<http://e/q?a=1#b>", "e:q.3", "<é/>")
STREAMS = ("http://e/s?a=1&b=%20#f", "http://e/é/", "urn:x:y", "relative")


def _load(face: Face, engine: Any) -> None:
    face.folder.mkdir(exist_ok=True)
    for name, text in (("a.nq", QUADS), ("b.trig", TRIG)):
        path = face.folder / name
        path.write_text(text, encoding="utf-8")
        engine.load(path)


def _dumped(engine: Any, folder: Path, graph: str | None) -> list[str]:
    path = folder / "dump.nt"
    count = engine.dump(path, graph)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == count
    return lines


def test_names_of_graphs(face: Face, engine: Any) -> None:
    """RDF 1.1 Concepts, 4: the name of a graph is an IRI or a blank node."""
    _load(face, engine)
    names = engine.graph_names()
    listed = [row[0] for row in engine.query("SELECT ?g { GRAPH ?g {} }").texts()]
    assert sorted(listed) == sorted(name if name.startswith("_:") else f"<{name}>" for name in names)
    assert (len(names), sum(name.startswith("_:") for name in names)) == (5, 3)
    objects = dict(engine.query("SELECT ?g ?o { GRAPH ?g { ?s ?p ?o } }").texts())
    for name in names:
        term = name if name.startswith("_:") else f"<{name}>"
        expected = [(objects[term],)]
        for given in {name, term}:
            assert len(engine.graph(given)) == 1
            assert [line.split(" ", 2)[2] for line in _dumped(engine, face.folder, given)] == [f"{objects[term]} ."]
            assert engine.query("SELECT ?o { ?s ?p ?o }", default_graphs=[given]).texts() == expected
            assert engine.query(EACH, named_graphs=[given]).texts() == expected
            assert not [one for one in engine.warnings(EACH, named_graphs=[given]) if "graph" in one]
        assert engine.query(EACH, {"g": term}).texts() == expected
        assert engine.prepare(EACH)(g=term).texts() == expected
        assert engine.query(f"SELECT ?o {{ GRAPH <{name}> {{ ?s ?p ?o }} }}").texts() == expected
        assert engine.query(f"SELECT ?o FROM <{name}> {{ ?s ?p ?o }}").texts() == expected


def test_graphs_are_written_by_the_names_that_are_listed(face: Face, engine: Any) -> None:
    _load(face, engine)
    more = face.folder / "more.nt"
    more.write_text("<http://e/more> <http://e/p> <http://e/o> .\n")
    names = engine.graph_names()
    for name in names:
        engine.load(more, graph=name)
        assert len(engine.graph(name)) == 2
        engine.update(f"INSERT DATA {{ GRAPH <{name}> {{ <http://e/new> <http://e/p> 1 }} }}")
        engine.update("DELETE WHERE { <http://e/more> ?p ?o }", default_graphs=[name])
    assert engine.graph_names() == names
    for at, name in enumerate(names):
        engine.update(f"DROP GRAPH <{name}>")
        assert engine.graph_names() == names[at + 1 :]
    assert engine.query(EACH).texts() == []


@pytest.mark.parametrize("request_", ["CLEAR NAMED", "DROP ALL", "DELETE WHERE { GRAPH ?g { ?s ?p ?o } }"])
def test_an_update_of_all_graphs_reaches_those_with_blank_names(face: Face, engine: Any, request_: str) -> None:
    """SPARQL 1.1 Update, 3.1.3 and 3.2.2: NAMED and ALL are all graphs of the store."""
    _load(face, engine)
    engine.update(request_)
    assert engine.graph_names() == []


def test_a_stream_stores_in_a_graph_that_is_listed(face: Face, engine: Any) -> None:
    _load(face, engine)
    for name in engine.graph_names():
        stream = engine.stream(f"http://e/{name[-3:]}", batch_ms=100, into=name)
        stream.push([("<http://e/a>", "<http://e/p>", '"streamed"', 5)])
        stream.advance(1000)
        engine.settle(20)
        assert len(engine.graph(name)) == 2
        stream.close()


def test_names_of_streams_queries_and_rules(engine: Any) -> None:
    for iri in STREAMS:
        engine.stream(iri, batch_ms=100)
    assert sorted(engine.streams()) == sorted(STREAMS)
    for at, iri in enumerate(engine.streams()):
        stream = engine.declared(iri)
        assert stream.iri == iri
        stream.push([("<http://e/a>", "<http://e/p>", "<http://e/b>", 5)])
        engine.push_many({iri: None}, 100)
        query = engine.register(
            f"PREFIX e: <http://e/> REGISTER QUERY {QUERY_NAMES[at]} AS SELECT ?s "
            f"FROM STREAM <{iri}> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }}"
        )
        (found,) = engine.queries()
        assert found.name == query.name
        assert found.name in engine.stats()["queries"]
        found.close()
        assert engine.queries() == []
        assert engine.stats()["streams"][iri]["tuples"] == 1
        engine.drop_stream(iri)
        with pytest.raises(StreamError, match="unknown stream"):
            engine.declared(iri)
    assert list(engine.streams()) == []


RULES = """
PREFIX : <http://e/>
RULE up-1.a: CONSTRUCT { ?x :up ?y } WHERE { ?y :down ?x }
RULE over: CONSTRUCT { ?x :over ?z } WHERE { ?x :up ?y . ?y :up ?z }
"""


def test_names_of_rules(engine: Any) -> None:
    engine.add_rules(RULES, into="http://e/g?a=%20#b")
    found = engine.rules()
    assert len(found) == 2
    for rule in found:
        assert rule.into == "http://e/g?a=%20#b"
        engine.resume_rules(rule.name)
        engine.update(f"INSERT DATA {{ GRAPH <{rule.into}> {{ <http://e/a> <http://e/p> 1 }} }}")
        assert len(engine.graph(rule.into)) == 1
        engine.drop_rules(rule.name)
        assert rule.name not in [one.name for one in engine.rules()]
