"""load: formats, graphs, blank nodes, what is malformed; and graph, graph_names and dump."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
import rdflib
from rdflib.compare import isomorphic

import wukongs
from tests.engine_helpers import EX, node, rows, subjects

QUADS = "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
NT = f"{node('a')} {node('p')} {node('o')} .\n"
NQ = f"{node('a')} {node('p')} {node('o')} {node('g')} .\n"


def quads(engine: wukongs.Engine) -> list[str]:
    """All that is stored, `g s p o` with an empty g for the default graph."""
    return [" ".join(row) for row in rows(engine.query(QUADS))]


@pytest.mark.parametrize(
    ("name", "text", "stored"),
    [
        ("x.nt", NT, " a p o"),
        ("x.nq", NQ, "g a p o"),
        ("x.ttl", f"@prefix : <{EX}> . :a :p :o .", " a p o"),
        ("x.trig", f"@prefix : <{EX}> . :g {{ :a :p :o }}", "g a p o"),
        ("x.n3", f"@prefix : <{EX}> . :a :p :o .", " a p o"),
        (
            "x.rdf",
            '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:ex="http://ex/">'
            '<rdf:Description rdf:about="http://ex/a"><ex:p rdf:resource="http://ex/o"/></rdf:Description></rdf:RDF>',
            " a p o",
        ),
        ("x.jsonld", '{"@id": "http://ex/a", "http://ex/p": {"@id": "http://ex/o"}}', " a p o"),
    ],
)
def test_formats_by_the_name_of_the_file_and_by_name(
    engine: wukongs.Engine, tmp_path: Path, name: str, text: str, stored: str
) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    sn = engine.load(tmp_path / name)
    assert quads(engine) == [stored]
    assert engine.query("ASK {}").snapshot == sn == engine.stats()["sn"]
    engine.update("CLEAR ALL")
    engine.load(str(tmp_path / f"{name}.gz"))
    assert quads(engine) == [stored]
    engine.update("CLEAR ALL")
    engine.load(io.BytesIO(text.encode()), format=name.partition(".")[2])
    assert quads(engine) == [stored]


def test_a_graph_takes_what_has_none_of_its_own(engine: wukongs.Engine) -> None:
    engine.load(io.BytesIO((NT + NQ.replace("/a", "/b")).encode()), graph=EX + "into", format="nq")
    assert quads(engine) == ["g b p o", "into a p o"]
    assert engine.graph_names() == [EX + "g", EX + "into"]


def test_relative_iris_are_resolved_against_the_base(engine: wukongs.Engine) -> None:
    engine.load(io.BytesIO(b"<a> <p> <../o> ."), base=EX + "deep/", format="ttl")
    assert quads(engine) == [" deep/a deep/p o"]


def test_a_blank_node_label_means_one_node_within_a_file(engine: wukongs.Engine) -> None:
    data = f"_:x {node('p')} {node('a')} .\n_:x {node('q')} {node('b')} .\n".encode()
    engine.load(io.BytesIO(data), format="nt")
    engine.load(io.BytesIO(data), format="nt")
    joined = f"SELECT ?a ?b {{ ?x {node('p')} ?a . ?x {node('q')} ?b }}"
    assert rows(engine.query(joined)) == [("a", "b")] * 2
    assert rows(engine.query("SELECT (COUNT(DISTINCT ?x) AS ?n) { ?x ?p ?o }")) == [("2",)]


def test_malformed_lines_are_told_with_their_places(engine: wukongs.Engine) -> None:
    told: list[tuple[int, int]] = []
    data = f"{NT}{node('x')} {node('p')}\n{NT.replace('/a', '/b')}no triple\n".encode()
    engine.load(io.BytesIO(data), format="nt", on_malformed=lambda file, line: told.append((line.line, line.column)))
    assert [line for line, _ in told] == [2, 4]
    assert subjects(engine) == ["a", "b"]


def test_what_is_there_already_is_stored_once(engine: wukongs.Engine) -> None:
    first = engine.load(io.BytesIO(NT.encode()), format="nt")
    assert engine.load(io.BytesIO((NT * 3).encode()), format="nt") == first + 1
    assert rows(engine.query("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }")) == [("1",)]


@pytest.mark.faces("embedded", "durable", "connect")
def test_an_empty_file_is_no_new_snapshot(engine: wukongs.Engine) -> None:
    before = engine.load(io.BytesIO(NT.encode()), format="nt")
    assert engine.load(io.BytesIO(b""), format="nt") == before


def test_graph_and_dump_give_what_is_stored(engine: wukongs.Engine, tmp_path: Path) -> None:
    text = f'@prefix : <{EX}> . :a :p :o, "text"@en, 5 . :g {{ :b :p _:x . _:x :q 1.50 }}'
    engine.load(io.BytesIO(text.encode()), format="trig")
    default, named = engine.graph(), engine.graph(EX + "g")
    a, p = rdflib.URIRef(EX + "a"), rdflib.URIRef(EX + "p")
    objects = rdflib.URIRef(EX + "o"), rdflib.Literal("text", "en"), rdflib.Literal(5)
    assert set(default) == {(a, p, term) for term in objects}
    assert len(named) == 2
    assert len(engine.graph(EX + "none")) == 0
    for name, graph in ((None, default), (EX + "g", named)):
        assert engine.dump(tmp_path / "out.nt", graph=name) == len(graph)
        read = rdflib.Graph().parse(tmp_path / "out.nt")
        assert isomorphic(read, graph)


# --- the dataset clause -----------------------------------------------------------------------------------------------

SPREAD = f"@prefix : <{EX}> . :d :p :o . :g {{ :g1 :p :o }} :h {{ :h1 :p :o }}"


@pytest.mark.parametrize(
    ("clause", "where", "found"),
    [
        ("", "{ ?s ?p ?o }", ["d"]),
        ("", "{ GRAPH ?g { ?s ?p ?o } }", ["g1", "h1"]),
        ("", "{ GRAPH <http://ex/g> { ?s ?p ?o } }", ["g1"]),
        ("", "{ GRAPH <http://ex/none> { ?s ?p ?o } }", []),
        ("FROM <http://ex/g>", "{ ?s ?p ?o }", ["g1"]),
        ("FROM <http://ex/g>", "{ GRAPH ?g { ?s ?p ?o } }", []),
        ("FROM <http://ex/g> FROM <http://ex/h>", "{ ?s ?p ?o }", ["g1", "h1"]),
        ("FROM <urn:x-wukongs:default> FROM <http://ex/h>", "{ ?s ?p ?o }", ["d", "h1"]),
        ("FROM NAMED <http://ex/g>", "{ ?s ?p ?o }", []),
        ("FROM NAMED <http://ex/g>", "{ GRAPH ?g { ?s ?p ?o } }", ["g1"]),
        (
            "FROM <http://ex/h> FROM NAMED <http://ex/g>",
            "{ { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }",
            ["g1", "h1"],
        ),
        ("FROM <http://ex/none>", "{ ?s ?p ?o }", []),
    ],
)
def test_the_dataset_clause_is_exact(engine: wukongs.Engine, clause: str, where: str, found: list[str]) -> None:
    engine.load(io.BytesIO(SPREAD.encode()), format="trig")
    assert [row[0] for row in rows(engine.query(f"SELECT ?s {clause} WHERE {where}"))] == found


def test_a_triple_in_two_graphs_that_are_merged_counts_once(engine: wukongs.Engine) -> None:
    engine.load(io.BytesIO(f"@prefix : <{EX}> . :g {{ :a :p :o }} :h {{ :a :p :o }}".encode()), format="trig")
    assert rows(engine.query(f"SELECT ?s FROM <{EX}g> FROM <{EX}h> {{ ?s ?p ?o }}")) == [("a",)]
    assert rows(engine.query("SELECT ?s { GRAPH ?g { ?s ?p ?o } }")) == [("a",), ("a",)]
