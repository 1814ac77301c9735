"""Language tags on every face: shown with their usual case in each form of an answer, compared without it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pyarrow
import rdflib

import wukongs

P, Q = "http://e/p", "http://e/q"
DATA = f"""
<http://e/a> <{P}> "colour"@en-GB .
<http://e/b> <{P}> "colour"@EN-gb .
<http://e/c> <{Q}> "顏色"@ZH-HANT-tw .
<http://e/d> <{Q}> "plain" , "hi"@en .
"""
COLOUR, HANT = '"colour"@en-GB', '"顏色"@zh-Hant-TW'


def test_every_way_out_shows_the_usual_case(engine: wukongs.Engine, tmp_path: Path) -> None:
    engine.update(f"INSERT DATA {{ {DATA} }}")
    result = engine.query(f"SELECT ?o {{ ?s <{P}>|<{Q}> ?o }}")
    assert sorted(text for (text,) in result.texts() if text) == sorted([COLOUR] * 2 + [HANT, '"hi"@en', '"plain"'])
    assert {term.language for (term,) in result if isinstance(term, rdflib.Literal)} == {
        "en-GB",
        "zh-Hant-TW",
        "en",
        None,
    }
    assert result.arrow()["o"].to_pylist().count(COLOUR) == 2
    assert result.arrow(dictionary=True)["o"].to_pylist().count(HANT) == 1
    assert COLOUR in result.arrow(typed=True)["o"].to_pylist()
    assert COLOUR in result.terms(result.arrow(ids=True)["o"]).to_pylist()
    assert COLOUR in pyarrow.RecordBatchReader.from_batches(*result.batches()).read_all()["o"].to_pylist()
    bindings = json.loads(result.serialize("json"))["results"]["bindings"]
    assert [one["o"].get("xml:lang") for one in bindings].count("en-GB") == 2
    xml = ElementTree.fromstring(result.serialize("xml"))
    tags = [one.get("{http://www.w3.org/XML/1998/namespace}lang") for one in xml.iter() if one.tag.endswith("literal")]
    assert sorted(map(str, tags)) == ["None", "en", "en-GB", "en-GB", "zh-Hant-TW"]
    assert COLOUR in result.serialize("tsv")
    assert "colour" in result.serialize("csv")
    assert "@en-GB" in result.serialize("table")
    graph = engine.query(f"CONSTRUCT WHERE {{ ?s <{P}> ?o }}")
    assert COLOUR in graph.serialize("nt")
    assert COLOUR in graph.serialize("ttl")
    assert {text[2] for text in graph.triples()} == {COLOUR}
    assert {o.language for o in graph.graph().objects()} == {"en-GB"}  # type: ignore[attr-defined]
    assert {o.language for o in engine.graph().objects(None, rdflib.URIRef(P))} == {"en-GB"}  # type: ignore[attr-defined]
    if hasattr(engine, "dump"):
        engine.dump(tmp_path / "all.nt")
        assert (tmp_path / "all.nt").read_text("utf-8").count(COLOUR) == 2
    many = engine.query(f"SELECT ?o {{ VALUES ?x {{ {' '.join(map(str, range(500)))} }} ?s <{P}> ?o }}")
    assert many.serialize("json").count('"xml:lang": "en-GB"') == 1000
    assert {text for (text,) in many.texts()} == {COLOUR}


def test_terms_are_one_whatever_their_case(engine: wukongs.Engine) -> None:
    engine.update(f"INSERT DATA {{ {DATA} }}")

    def rows(pattern: str) -> int:
        return len(engine.query(f"SELECT * {{ {pattern} }}"))

    assert rows(f'?s <{P}> "colour"@EN-GB') == 2
    assert rows(f'?s <{P}> "colour"@en-gb') == 2
    assert rows(f"?a <{P}> ?o . ?b <{P}> ?o") == 4
    assert (
        rows(f'?s <{P}> ?o FILTER(?o = "colour"@eN-Gb && sameTerm(?o, "colour"@EN-GB) && ?o IN ("colour"@en-gb))') == 2
    )
    assert rows(f'?s <{P}> ?o FILTER(LANG(?o) = "en-GB")') == 2
    assert rows(f'?s <{P}> ?o FILTER(LANGMATCHES(LANG(?o), "EN"))') == 2
    assert rows(f'?s <{P}> ?o FILTER(LANGMATCHES(LANG(?o), "en-gb"))') == 2
    assert rows(f'?s <{P}> ?o FILTER(?o = STRLANG("colour", "EN-gB"))') == 2
    assert len(engine.query(f"SELECT DISTINCT ?o {{ ?s <{P}> ?o }}")) == 1
    assert len(engine.query(f"SELECT ?o (COUNT(*) AS ?n) {{ ?s <{P}> ?o }} GROUP BY ?o")) == 1
    found = engine.query('SELECT (LANG("x"@ZH-hant) AS ?a) (STRLANG("x", "DE-ch") AS ?b) ("x"@FR-be AS ?c) {}')
    assert found.texts() == [('"zh-Hant"', '"x"@de-CH', '"x"@fr-BE')]
    assert (
        len(engine.query(f"SELECT ?s ?l {{ ?s <{P}>|<{Q}> ?o BIND(LANG(?o) AS ?l) FILTER(?l = 'zh-Hant-TW') }}")) == 1
    )
