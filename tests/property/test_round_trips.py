"""Nasty terms through every syntax, push and results: what comes back is what went in, to the letter."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyoxigraph as ox
import pytest
import rdflib
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.oracles.ntriples import XSD
from wukongs import Engine
from wukongs.store.rdf_files import read_rdf
from wukongs.store.term_registry import TermRegistry

STREAM = "http://example.org/stream"
SELECT = "SELECT ?s ?o WHERE { ?s ?p ?o }"
RESULTS = {
    "json": ox.QueryResultsFormat.JSON,
    "xml": ox.QueryResultsFormat.XML,
    "tsv": ox.QueryResultsFormat.TSV,
}

SYNTAXES = {
    "nt": ox.RdfFormat.N_TRIPLES,
    "nq": ox.RdfFormat.N_QUADS,
    "ttl": ox.RdfFormat.TURTLE,
    "trig": ox.RdfFormat.TRIG,
    "n3": ox.RdfFormat.N3,
    "rdf": ox.RdfFormat.RDF_XML,
    "jsonld": ox.RdfFormat.JSON_LD,
}
P = "http://example.org/p"
_characters = st.one_of(
    st.characters(exclude_categories=("Cs",)),
    st.sampled_from("\"'\\\n\r\t\b\f\x00\x01\x7f\u0085\u2028\ufeff\U0010ffff<>@^"),
)
_lexicals = st.one_of(
    st.text(_characters, max_size=12),
    st.sampled_from(
        ["", "007", "+5", "1.50", "1e05", "1.0E0", "-0", "INF", "TRUE", "2014-08-11T11:00:00.120Z", "a\\u0041"]
    ),
)
_datatypes = st.sampled_from(["", XSD + "string", XSD + "integer", XSD + "double", XSD + "dateTime", "urn:x:ü#t"])
_iris = st.lists(st.sampled_from([*"abéß😀~!$&'()*+,;=:@/?", "%2F"]), max_size=8).map(
    lambda parts: "http://example.org/" + "".join(parts)
)
_languages = st.sampled_from(["en", "de-AT", "EN-us", "zh-Hant-x-a"])
SHOWN = {"en": "en", "de-AT": "de-AT", "EN-us": "en-US", "zh-Hant-x-a": "zh-Hant-x-a"}
"""The tags with the case that RFC 5646, 2.1.1 recommends."""
Objects = list[tuple[str, str, str]]
"""(kind, text, datatype or language)"""
_objects = st.lists(
    st.one_of(
        st.tuples(st.just("literal"), _lexicals, _datatypes),
        st.tuples(st.just("language"), _lexicals, _languages),
        st.tuples(st.just("iri"), _iris, st.just("")),
    ),
    min_size=1,
    max_size=8,
    unique=True,
)


def term_of(kind: str, text: str, more: str) -> ox.NamedNode | ox.Literal:
    if kind == "iri":
        return ox.NamedNode(text)
    if kind == "language":
        return ox.Literal(text, language=more)
    return ox.Literal(text, datatype=ox.NamedNode(more)) if more else ox.Literal(text)


def canonical_of(kind: str, text: str, more: str) -> str:
    if kind == "iri":
        return f"<{text}>"
    if kind == "language":
        return f'"{text}"@{more.lower()}'
    return f'"{text}"^^<{more}>' if more and more != XSD + "string" else f'"{text}"'


def in_xml(text: str) -> bool:
    """Tell whether XML 1.0 can say a text and give it back: most control characters it cannot, CR it turns into LF."""
    allowed = all((c >= " " and c not in "\x7f\u0085\u2028\ufffe\uffff") or c in "\t\n" for c in text)
    return allowed and text == text.strip()


@pytest.mark.parametrize("name", list(SYNTAXES))
@fuzzed(40)
@given(_objects)
def test_terms_come_back_from_every_syntax(name: str, objects: Objects) -> None:
    kept = [item for item in objects if name != "rdf" or in_xml(item[1])]
    triples = [ox.Quad(ox.NamedNode(f"urn:s:{i}"), ox.NamedNode(P), term_of(*item)) for i, item in enumerate(kept)]
    data = ox.serialize(triples, format=SYNTAXES[name])
    assert data is not None
    registry = TermRegistry()
    found = {}
    zst = pa.compress(data, codec="zstd", asbytes=True)
    for source in (io.BytesIO(data), io.BytesIO(gzip.compress(data)), io.BytesIO(zst)):
        found.clear()
        for encoded in read_rdf(source, name, on_malformed=None):
            confirmed, _ = registry.confirm(encoded)
            subjects, texts = registry.texts(confirmed.subjects), registry.texts(confirmed.objects)
            found.update(zip(subjects, texts, strict=True))
        assert found == {f"<urn:s:{i}>": canonical_of(*item) for i, item in enumerate(kept)}


@fuzzed(15)
@given(_objects)
def test_terms_come_back_from_a_query(objects: Objects) -> None:
    lines = b"".join(
        ox.serialize(
            [ox.Quad(ox.NamedNode(f"urn:s:{i}"), ox.NamedNode(P), term_of(*item))], format=ox.RdfFormat.N_QUADS
        )
        or b""
        for i, item in enumerate(objects)
    )
    expected = {f"urn:s:{i}": item for i, item in enumerate(objects)}
    with Engine() as engine:
        engine.load(io.BytesIO(lines), format="nq")
        answer = json.loads(engine.query("SELECT ?s ?o WHERE { ?s ?p ?o }").serialize("json"))
    for row in answer["results"]["bindings"]:
        kind, text, more = expected.pop(row["s"]["value"])
        assert row["o"]["value"] == text
        assert row["o"].get("xml:lang", "") == (SHOWN[more] if kind == "language" else "")
        datatype = row["o"].get("datatype", XSD + "string" if kind == "literal" else "")
        assert datatype == ((more or XSD + "string") if kind == "literal" else "")
    assert expected == {}


def rdflib_term_of(kind: str, text: str, more: str) -> rdflib.term.Node:
    if kind == "iri":
        return rdflib.URIRef(text)
    if kind == "language":
        return rdflib.Literal(text, lang=more)
    return rdflib.Literal(text, datatype=rdflib.URIRef(more) if more else None, normalize=False)


def line_term_of(kind: str, text: str, more: str) -> str:
    return str(term_of(kind, text, more))


def expected_of(objects: Objects) -> dict[str, str]:
    return {f"urn:s:{i}": canonical_of(*item) for i, item in enumerate(objects)}


def canonical_of_term(term: ox.NamedNode | ox.Literal) -> str:
    if isinstance(term, ox.NamedNode):
        return canonical_of("iri", term.value, "")
    if term.language:
        return canonical_of("language", term.value, term.language)
    return canonical_of("literal", term.value, term.datatype.value)


def check_results(engine: Engine, objects: Objects) -> None:
    """Every form of a result, read by another library, has these objects."""
    expected = expected_of(objects)
    result = engine.query(SELECT)
    for name, their_format in RESULTS.items():
        if name == "xml" and not all(in_xml(item[1]) for item in objects):
            continue
        rows = ox.parse_query_results(result.serialize(name).encode(), format=their_format)
        assert {row["s"].value: canonical_of_term(row["o"]) for row in rows} == expected, name
    rows = list(csv.reader(io.StringIO(result.serialize("csv"), newline="")))
    assert dict(rows[1:]) == {f"urn:s:{i}": item[1] for i, item in enumerate(objects)}
    graph = engine.query("CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }")
    for name, syntax in (("nt", ox.RdfFormat.N_TRIPLES), ("ttl", ox.RdfFormat.TURTLE)):
        triples = ox.parse(graph.serialize(name).encode(), format=syntax)
        assert {quad.subject.value: canonical_of_term(quad.object) for quad in triples} == expected, name


@pytest.mark.parametrize("way", ["rdflib", "lines", "arrow"])
@fuzzed(15)
@given(_objects)
def test_what_is_pushed_comes_back_from_results_and_a_dump(way: str, objects: Objects) -> None:
    make = rdflib_term_of if way == "rdflib" else line_term_of
    rows = [(f"<urn:s:{i}>", f"<{P}>", make(*item), 50) for i, item in enumerate(objects)]
    with Engine() as engine, tempfile.TemporaryDirectory() as folder:
        stream = engine.stream(STREAM)
        if way == "arrow":
            names = ("subject", "predicate", "object", "timestamp_ms")
            stream.push_arrow(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))))
        else:
            stream.push(rows)
        stream.close()
        engine.settle()
        check_results(engine, objects)
        path = Path(folder) / "all.nt"
        assert engine.dump(path) == len(objects)
        with Engine() as other:
            other.load(path)
            check_results(other, objects)
