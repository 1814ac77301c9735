"""RML mapping files: what they make of records, in both vocabularies, and each feature that is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from wukongs.adapters.mapping.rml import load_rml
from wukongs.adapters.run_config import load_run_config
from wukongs.cli import main
from wukongs.errors import SettingsError

OLD = """
@prefix rml: <http://semweb.mmlab.be/ns/rml#> .
@prefix rr: <http://www.w3.org/ns/r2rml#> .
@prefix ql: <http://semweb.mmlab.be/ns/ql#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix ex: <http://example.org/> .

<#Trip> rml:logicalSource [ rml:source "trips.csv" ; rml:referenceFormulation ql:CSV ] ;
  rr:subjectMap [ rr:template "http://example.org/trip/{id}" ; rr:class ex:Trip ] ;
  rr:predicateObjectMap [ rr:predicate ex:fare ; rr:objectMap [ rml:reference "fare" ; rr:datatype xsd:decimal ] ] ;
  rr:predicateObjectMap [ rr:predicate ex:zone ; rr:objectMap [ rr:template "http://example.org/zone/{zone name}" ] ] ;
  rr:predicateObjectMap [ rr:predicate ex:name ; rr:objectMap [ rml:reference "zone name" ; rr:language "en" ] ] ;
  rr:predicateObjectMap [ rr:predicate ex:page ; rr:objectMap [ rml:reference "page" ; rr:termType rr:IRI ] ] ;
  rr:predicateObjectMap [ rr:predicate ex:cab ; rr:objectMap [ rml:reference "cab" ; rr:termType rr:BlankNode ] ] ;
  rr:predicateObjectMap [ rr:predicate ex:text ;
    rr:objectMap [ rr:template "{id} \\\\{{fare}\\\\}" ; rr:termType rr:Literal ] ] ;
  rr:predicateObjectMap [ rr:predicate ex:kind, ex:sort ; rr:object "taxi", 5 ] .
"""
NEW = (
    OLD.replace("http://semweb.mmlab.be/ns/rml#", "http://w3id.org/rml/")
    .replace("http://www.w3.org/ns/r2rml#", "http://w3id.org/rml/")
    .replace('rml:source "trips.csv"', 'rml:source [ a rml:RelativePathSource ; rml:path "trips.csv" ]')
)
DATA = 'id,fare,zone name,page,cab\n1,3.5,A b,http://x/y,c 7\n2,,"C",,\n'
EXPECTED = """
<http://example.org/trip/1> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://example.org/Trip> .
<http://example.org/trip/1> <http://example.org/fare> "3.5"^^<http://www.w3.org/2001/XMLSchema#decimal> .
<http://example.org/trip/1> <http://example.org/zone> <http://example.org/zone/A%20b> .
<http://example.org/trip/1> <http://example.org/name> "A b"@en .
<http://example.org/trip/1> <http://example.org/page> <http://x/y> .
<http://example.org/trip/1> <http://example.org/cab> _:c_207 .
<http://example.org/trip/1> <http://example.org/text> "1 {3.5}" .
<http://example.org/trip/1> <http://example.org/kind> "taxi" .
<http://example.org/trip/1> <http://example.org/kind> "5"^^<http://www.w3.org/2001/XMLSchema#integer> .
<http://example.org/trip/1> <http://example.org/sort> "taxi" .
<http://example.org/trip/1> <http://example.org/sort> "5"^^<http://www.w3.org/2001/XMLSchema#integer> .
<http://example.org/trip/2> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://example.org/Trip> .
<http://example.org/trip/2> <http://example.org/zone> <http://example.org/zone/C> .
<http://example.org/trip/2> <http://example.org/name> "C"@en .
<http://example.org/trip/2> <http://example.org/kind> "taxi" .
<http://example.org/trip/2> <http://example.org/kind> "5"^^<http://www.w3.org/2001/XMLSchema#integer> .
<http://example.org/trip/2> <http://example.org/sort> "taxi" .
<http://example.org/trip/2> <http://example.org/sort> "5"^^<http://www.w3.org/2001/XMLSchema#integer> .
"""


def mapped(
    folder: Path, rml: str, capsys: pytest.CaptureFixture[str], name: str = "trips.csv", data: str = DATA
) -> list[str]:
    (folder / "map.rml.ttl").write_text(rml)
    (folder / name).write_text(data)
    assert main(["map", str(folder / "map.rml.ttl"), str(folder / name)]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("rml", [OLD, NEW])
def test_both_vocabularies(rml: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(mapped(tmp_path, rml, capsys)) == sorted(EXPECTED.strip().splitlines())


def test_json_with_an_iterator_and_graphs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rml = """
@prefix rml: <http://w3id.org/rml/> .
<#Item> rml:logicalSource [ rml:source "orders.jsonl" ; rml:referenceFormulation rml:JSONPath ;
    rml:iterator "$.items[*]" ] ;
  rml:subjectMap [ rml:template "http://e/item/{sku}" ; rml:graph <http://e/g> ] ;
  rml:predicateObjectMap [ rml:predicate <http://e/price> ; rml:objectMap [ rml:reference "$.price.eur" ] ] .
"""
    data = '{"items": [{"sku": "a", "price": {"eur": 1.50}}, {"sku": "b", "price": {}}]}\n'
    assert mapped(tmp_path, rml, capsys, "orders.jsonl", data) == [
        '<http://e/item/a> <http://e/price> "1.50" <http://e/g> .'
    ]


def test_the_logical_source_chooses_triples_maps(tmp_path: Path) -> None:
    (tmp_path / "m.ttl").write_text(OLD + OLD.replace("<#Trip>", "<#Other>").replace("trips.csv", "other.csv"))
    assert len(load_rml(str(tmp_path / "m.ttl"), ("x/trips.csv.gz",)).triples) == 11
    with pytest.raises(SettingsError, match=r"a logical source called third\.csv, found other\.csv, trips\.csv"):
        load_rml(str(tmp_path / "m.ttl"), ("third.csv",))


def test_a_run_file_says_the_time(tmp_path: Path) -> None:
    (tmp_path / "m.rml").write_text(OLD)
    (tmp_path / "trips.csv").write_text(DATA)
    source = 'kind = "csv"\npath = "trips.csv"\nmapping = "m.rml"\n'
    (tmp_path / "run.toml").write_text(f'[[stream]]\niri = "http://e/s"\n[stream.source]\n{source}')
    with pytest.raises(
        SettingsError, match=r"time: expected when a record happens, here or as \[time\] of the mapping"
    ):
        load_run_config(tmp_path / "run.toml")
    (tmp_path / "run.toml").write_text(
        f'[[stream]]\niri = "http://e/s"\n[stream.source]\n{source}time = {{ every_ms = 5 }}\n'
    )
    (stream,) = load_run_config(tmp_path / "run.toml").streams
    assert stream.source.mapping.time.every_ms == 5  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (OLD, "nonsense", "expected an RML mapping in Turtle, found an error"),
        (OLD, "", "expected a triples map with a logical source, found none"),
        (
            'rml:reference "fare" ; rr:datatype xsd:decimal',
            "rr:parentTriplesMap <#Other>",
            "<#Trip>: parentTriplesMap is not read",
        ),
        ('rml:reference "fare" ;', '<http://fn/call> "x" ;', "<#Trip>: <http://fn/call> is not read"),
        ("ql:CSV", "ql:XPath", "<#Trip>: XPath is not read: expected CSV or JSONPath"),
        ('rml:source "trips.csv" ;', 'rml:source "trips.csv" ; rml:query "SELECT" ;', "<#Trip>: query is not read"),
        ('"trips.csv"', "[ a ex:Database ]", "<#Trip>: expected the name of a file as the logical source"),
        ('rr:language "en"', 'rr:language "en" ; rml:reference "id"', "<#Trip>: expected one reference, found 2"),
        (
            'rml:reference "zone name" ; rr:language',
            'rr:template "{id}" ; rr:termType rr:IRI ; rr:language',
            "a literal",
        ),
        (
            "rr:termType rr:BlankNode",
            "rr:termType rr:List",
            "expected IRI, BlankNode or Literal as termType, found List",
        ),
        ('"http://example.org/trip/{id}"', '"trip/{id}"', "<#Trip>: expected an absolute IRI, found 'trip/{id}'"),
        ('"http://example.org/trip/{id}"', '"{id}"', "expected a template that begins with the scheme of an IRI"),
        ('"http://example.org/trip/{id}"', '"http://e/{id"', "expected a template, found a single brace"),
        ('rr:template "http://example.org/trip/{id}"', 'rr:constant "x"', "as subject, found a literal"),
        (
            'rr:subjectMap [ rr:template "http://example.org/trip/{id}" ; rr:class ex:Trip ] ;',
            "",
            "one subject map, found 0",
        ),
        (
            "rr:predicate ex:fare",
            'rr:predicateMap [ rml:reference "id" ; rr:termType rr:Literal ]',
            "an IRI as predicate",
        ),
    ],
)
def test_what_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in OLD
    (tmp_path / "m.ttl").write_text(OLD.replace(old, new, 1))
    with pytest.raises(SettingsError) as raised:
        load_rml(str(tmp_path / "m.ttl"), ("trips.csv",))
    assert message in str(raised.value)
    assert str(tmp_path / "m.ttl") in str(raised.value)
