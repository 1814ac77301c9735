"""LOAD: where documents may lie, what is read of them, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import wukongs
from tests.engine_helpers import rows
from tests.faces import Face

QUADS = "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
TURTLE = "@prefix : <http://ex/> . :a :p 1 . <x> :p 2 .\n"


def quads(engine: wukongs.Engine) -> list[str]:
    return [" ".join(row) for row in rows(engine.query(QUADS))]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "a file.ttl"
    found.write_text(TURTLE)
    return found


def test_a_file_by_its_iri(engine: wukongs.Engine, file: Path) -> None:
    assert engine.update(f"LOAD <{file.as_uri()}>") == 1
    assert quads(engine) == [" a p 1", f" {file.parent.as_uri()}/x p 2"]


def test_a_file_relative_to_the_base(engine: wukongs.Engine, file: Path) -> None:
    engine.update("LOAD <a%20file.ttl> INTO GRAPH <http://ex/g>", base=f"{file.parent.as_uri()}/requests.ru")
    engine.update(f"BASE <{file.parent.as_uri()}/> LOAD <a%20file.ttl> INTO GRAPH <http://ex/h>")
    assert [quad.split()[:2] for quad in quads(engine)] == [
        ["g", "a"],
        ["g", f"{file.parent.as_uri()}/x"],
        ["h", "a"],
        ["h", f"{file.parent.as_uri()}/x"],
    ]


def test_a_path_is_relative_to_the_folder_of_the_process(
    engine: wukongs.Engine, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    engine.update("LOAD <a%20file.ttl>")
    assert quads(engine)[0] == " a p 1"


def test_later_operations_see_it(engine: wukongs.Engine, file: Path) -> None:
    engine.update(
        f"PREFIX : <http://ex/> LOAD <{file.as_uri()}> INTO GRAPH :tmp ; "
        "INSERT { ?s :q ?o } WHERE { GRAPH :tmp { ?s :p ?o FILTER (?o < 2) } } ; DROP GRAPH :tmp"
    )
    assert quads(engine) == [" a q 1"]


def test_a_graph_of_their_own_wins(engine: wukongs.Engine, tmp_path: Path) -> None:
    (tmp_path / "x.nq").write_text(
        "<http://ex/a> <http://ex/p> _:b <http://ex/own> .\n<http://ex/c> <http://ex/p> _:b .\n"
    )
    engine.update(f"LOAD <{(tmp_path / 'x.nq').as_uri()}> INTO GRAPH <http://ex/g>")
    assert [quad.split()[:2] for quad in quads(engine)] == [["g", "c"], ["own", "a"]]
    assert rows(engine.query("SELECT (COUNT(DISTINCT ?o) AS ?n) { GRAPH ?g { ?s ?p ?o } }")) == [("1",)]


def test_blank_nodes_are_new_with_each_load(engine: wukongs.Engine, tmp_path: Path) -> None:
    (tmp_path / "x.nt.gz").write_bytes(gzip.compress(b"_:a <http://ex/p> _:a .\n"))
    text = f"LOAD <{(tmp_path / 'x.nt.gz').as_uri()}>"
    engine.update(f"{text} ; {text}")
    engine.update(text)
    assert len(rows(engine.query("SELECT ?s { ?s <http://ex/p> ?s }"))) == 3


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            "http://ex/x.ttl",
            "http://ex/x.ttl: LOAD reads files of this machine, and the setting load_from allows nothing else. Allow",
        ),
        ("urn:x:y", "urn:x:y: LOAD reads files of this machine, and the setting load_from allows nothing else. Allow"),
        ("file://host/x.ttl", "file://host/x.ttl: LOAD of a file on the host 'host': only files of this machine"),
        ("file:///nowhere/x.ttl", "/nowhere/x.ttl: cannot read the file: No such file or directory"),
        ("file:///nowhere/x", "/nowhere/x: cannot read the file: No such file or directory"),
        ("file:///dev", "/dev: cannot read the file: Is a directory"),
        ("file:///dev/null", "/dev/null: no RDF format given, and the name has no extension"),
    ],
)
def test_what_is_refused(engine: wukongs.Engine, document: str, message: str) -> None:
    engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
    with pytest.raises(wukongs.DataError) as caught:
        engine.update(f"CLEAR ALL ; LOAD <{document}>")
    assert str(caught.value).startswith(message)
    assert (quads(engine), engine.stats()["sn"]) == ([" a p 1"], 1)
    engine.update(f"LOAD SILENT <{document}> ; INSERT DATA {{ <http://ex/b> <http://ex/p> 2 }}")
    assert quads(engine) == [" a p 1", " b p 2"]


@pytest.mark.parametrize("name", ["x.nt", "x.ttl"])
def test_a_malformed_document_is_named_with_its_line(engine: wukongs.Engine, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("<http://ex/a> <http://ex/p> <http://ex/b> .\nno triple\n")
    text = f"<{(tmp_path / name).as_uri()}>"
    with pytest.raises(wukongs.DataError) as caught:
        engine.update(f"LOAD {text}")
    assert (caught.value.file, caught.value.line) == (str(tmp_path / name), 2)
    assert quads(engine) == []
    engine.update(f"LOAD SILENT {text}")
    assert quads(engine) == []


@pytest.mark.faces("durable")
def test_it_survives(face: Face, file: Path) -> None:
    engine = face.open()
    engine.update(f"LOAD <{file.as_uri()}>")
    expected = quads(engine)
    assert quads(face.reopen(engine)) == expected
    assert len(expected) == 2
