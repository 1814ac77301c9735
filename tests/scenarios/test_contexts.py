"""Contexts of JSON-LD from files: nothing is fetched, on any face."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import wukongs
from tests.engine_helpers import rows
from tests.faces import Face

IRI = "https://uri.etsi.org/ngsi-ld/v1/ngsi-ld-core-context.jsonld"
CONTEXT = '{"@context": {"@version": 1.1, "id": "@id", "speed": "http://ex/speed"}}'
MESSAGE = f'{{"@context": "{IRI}", "id": "http://ex/car", "speed": 123456789012345678901}}'


def test_a_context_of_a_load(engine: wukongs.Engine, tmp_path: Path) -> None:
    (tmp_path / "core.jsonld").write_text(CONTEXT)
    (tmp_path / "message.jsonld").write_text(MESSAGE)
    with pytest.raises(wukongs.DataError, match=f"the @context <{IRI}> is a remote document, and nothing is fetched"):
        engine.load(tmp_path / "message.jsonld")
    engine.load(tmp_path / "message.jsonld", contexts={IRI: tmp_path / "core.jsonld"})
    engine.load(
        io.BytesIO(MESSAGE.replace("car", "bus").encode()),
        format="jsonld",
        base="http://ex/",
        contexts={IRI: tmp_path / "core.jsonld"},
    )
    assert rows(engine.query("SELECT ?s ?v { ?s <http://ex/speed> ?v } ORDER BY ?s")) == [
        ("bus", "123456789012345678901"),
        ("car", "123456789012345678901"),
    ]


def test_contexts_of_the_settings(face: Face, tmp_path: Path) -> None:
    (tmp_path / "core.jsonld").write_text(CONTEXT)
    (tmp_path / "message.jsonld").write_text(MESSAGE)
    contexts = {IRI: str(tmp_path / "core.jsonld")}
    with face.open(settings=wukongs.Settings(contexts=contexts)) as engine:  # type: ignore[arg-type]
        engine.load(tmp_path / "message.jsonld")
        engine.update(f"LOAD <{(tmp_path / 'message.jsonld').as_uri()}> INTO GRAPH <http://ex/g>")
        assert rows(engine.query("SELECT ?s { GRAPH <http://ex/g> { ?s ?p ?v } }")) == [("car",)]
        assert rows(engine.query("SELECT ?s { ?s ?p ?v }")) == [("car",)]
