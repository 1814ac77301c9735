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
        '<http://e/item/a> <http://e/price> "1.5E0"^^<http://www.w3.org/2001/XMLSchema#double> <http://e/g> .'
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
    assert stream.sources[0].mapping.time.every_ms == 5  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (OLD, "nonsense", "expected an RML mapping in Turtle, found an error"),
        (OLD, "", "expected a triples map with a logical source, found none"),
        (
            'rml:reference "fare" ; rr:datatype xsd:decimal',
            "rr:parentTriplesMap <#Other>",
            "<#Trip>: expected a triples map of a logical source as parentTriplesMap",
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
            "expected IRI, URI, UnsafeIRI, UnsafeURI, BlankNode or Literal as termType, found List",
        ),
        (
            '"http://example.org/trip/{id}"',
            '"trip/{id}"',
            "begins with the scheme of an absolute IRI, found 'trip/{id}': give rml:baseIRI",
        ),
        (
            '"http://example.org/trip/{id}"',
            '"{id}"',
            "expected a template that begins with the scheme of an absolute IRI",
        ),
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


NATURAL = """
@prefix rml: <http://w3id.org/rml/> .
@prefix ex: <http://e/> .
<#M> rml:logicalSource [ rml:source "in.jsonl" ; rml:referenceFormulation rml:JSONPath ; rml:iterator "$" ] ;
  rml:subjectMap [ rml:template "http://e/{$.id}" ] ;
  rml:predicateObjectMap [ rml:predicate ex:p ; rml:objectMap [ rml:reference "$.v" ] ] ;
  rml:predicateObjectMap [ rml:predicate ex:t ; rml:objectMap [ rml:template "{$.v}" ; rml:termType rml:Literal ] ] ;
  rml:predicateObjectMap [ rml:predicate ex:d ; rml:objectMap [ rml:reference "$.v" ; rml:datatype ex:own ] ] .
"""
OLD_NATURAL = (
    NATURAL.replace("<http://w3id.org/rml/>", "<http://semweb.mmlab.be/ns/rml#>")
    .replace("rml:JSONPath", "<http://semweb.mmlab.be/ns/ql#JSONPath>")
    .replace("@prefix ex:", "@prefix rr: <http://www.w3.org/ns/r2rml#> .\n@prefix ex:")
    .replace("rml:subjectMap", "rr:subjectMap")
    .replace("rml:template", "rr:template")
    .replace("rml:predicate", "rr:predicate")
    .replace("rml:objectMap", "rr:objectMap")
    .replace("rml:termType rml:Literal", "rr:termType rr:Literal")
    .replace("rml:datatype", "rr:datatype")
)
XSD = "http://www.w3.org/2001/XMLSchema#"


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        ("10", f'"10"^^<{XSD}integer>'),
        ("-0", f'"0"^^<{XSD}integer>'),
        ("12345678901234567890", f'"12345678901234567890"^^<{XSD}integer>'),
        ("1.5", f'"1.5E0"^^<{XSD}double>'),
        ("1.0", f'"1.0E0"^^<{XSD}double>'),
        ("1e3", f'"1.0E3"^^<{XSD}double>'),
        ("1E-07", f'"1.0E-7"^^<{XSD}double>'),
        ("-0.0", f'"-0.0E0"^^<{XSD}double>'),
        ("100.00", f'"1.0E2"^^<{XSD}double>'),
        ("0.00014770215000", f'"1.4770215E-4"^^<{XSD}double>'),
        ("1.7976931348623157e308", f'"1.7976931348623157E308"^^<{XSD}double>'),
        ("true", f'"true"^^<{XSD}boolean>'),
        ("false", f'"false"^^<{XSD}boolean>'),
        ('"10"', '"10"'),
        ('"true"', '"true"'),
    ],
)
def test_natural_datatypes_of_json(
    value: str, literal: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """RML-IO-Registry, "Natural RDF mapping of JSON values"; XML Schema 1.1 part 2 for canonical forms. Texts of
    templates and of other datatypes stay as they are written."""
    data = f'{{"id": 1, "v": {value}}}\n'
    written = value.strip('"')
    assert mapped(tmp_path, NATURAL, capsys, "in.jsonl", data) == [
        f"<http://e/1> <http://e/p> {literal} .",
        f'<http://e/1> <http://e/t> "{written}" .',
        f'<http://e/1> <http://e/d> "{written}"^^<http://e/own> .',
    ]
    assert mapped(tmp_path, OLD_NATURAL, capsys, "in.jsonl", data)[0] == f'<http://e/1> <http://e/p> "{written}" .'


def test_null_makes_no_triple_and_a_number_too_large_makes_a_bad_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.ttl").write_text(NATURAL)
    (tmp_path / "in.jsonl").write_text('{"id": 1, "v": null}\n{"id": 2}\n{"id": 3, "v": 1e400}\n{"id": 4, "v": true}\n')
    assert main(["map", str(tmp_path / "m.ttl"), str(tmp_path / "in.jsonl")]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 3
    assert "line 3, column 1: expected a number that xsd:double can hold in $.v, found '1e400'" in captured.err


def run_text(mapping: str) -> str:
    return (
        '[[stream]]\niri = "http://s"\nbatch_ms = 10\n[stream.source]\nkind = "jsonl"\npath = "in.jsonl"\n'
        f'mapping = "{mapping}"\ntime = {{ every_ms = 10 }}\n'
        '[[query]]\nname = "q"\ntext = """REGISTER QUERY q AS SELECT (SUM(?v) AS ?s) '
        'FROM STREAM <http://s> [RANGE 100ms STEP 100ms] WHERE { ?x <http://e/p> ?v }"""\n'
        '[pipeline]\nengine = "local"\n'
    )


def test_sums_over_numbers_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The old vocabulary gives no datatypes: a run, a check and a map say so, since the sum has no result."""
    (tmp_path / "in.jsonl").write_text('{"id": 0, "v": 9}\n{"id": 1, "v": 1.5}\n{"id": 2, "v": 2}\n')
    (tmp_path / "new.ttl").write_text(NATURAL)
    (tmp_path / "old.ttl").write_text(OLD_NATURAL)
    (tmp_path / "run.toml").write_text(run_text("new.ttl"))
    assert main(["run", "--plain", str(tmp_path / "run.toml")]) == 0
    captured = capsys.readouterr()
    assert "3.5E0" in captured.out
    assert "plain texts" not in captured.err + captured.out
    (tmp_path / "run.toml").write_text(run_text("old.ttl"))
    note = "in the old vocabulary values of JSON without an rr:datatype become plain texts, numbers too: SUM"
    for arguments in (
        ["run", "--plain", str(tmp_path / "run.toml")],
        ["run", "--check", str(tmp_path / "run.toml")],
        ["map", str(tmp_path / "old.ttl"), str(tmp_path / "in.jsonl")],
    ):
        assert main(arguments) == 0
        captured = capsys.readouterr()
        assert note in captured.err + captured.out
        assert "They are $.v" in captured.err + captured.out


LISTS = """
@prefix rml: <http://w3id.org/rml/> .
<#M> rml:logicalSource [ rml:source "in.jsonl" ; rml:referenceFormulation rml:JSONPath ; rml:iterator "$.items[*]" ] ;
  rml:subjectMap [ rml:template "http://e/{$.x}" ] ;
  rml:predicateObjectMap [ rml:predicate <http://e/tag> ; rml:objectMap [ rml:reference "$.tags[*]" ] ] .
"""


def test_a_list_inside_of_an_iterated_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = '{"items": [{"x": 1, "tags": ["a", "b"]}, {"x": 2, "tags": []}, {"x": [3, 4], "tags": ["c"]}, null]}\n'
    assert mapped(tmp_path, LISTS, capsys, "in.jsonl", data) == [
        '<http://e/1> <http://e/tag> "a" .',
        '<http://e/1> <http://e/tag> "b" .',
        '<http://e/3> <http://e/tag> "c" .',
        '<http://e/4> <http://e/tag> "c" .',
    ]
    bad = data + '{"items": [{"x": 1, "tags": [[["a"]]]}]}\n{"items": [{"x": {"y": 1}, "tags": ["a"]}]}\n'
    (tmp_path / "in.jsonl").write_text(bad)
    assert main(["map", str(tmp_path / "map.rml.ttl"), str(tmp_path / "in.jsonl")]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 4
    array = "expected a value or an array of values in $.items[*].tags[*], found an array of arrays"
    assert f"line 2, column 1: {array}" in captured.err
    assert "line 3, column 1: expected a value in $.items[*].x, found an object" in captured.err


@pytest.mark.parametrize(
    ("iterator", "data"),
    [
        ("$[*]", '[{"id": 1},\n {"id": 2}]'),
        ("$.a.b[*]", '{"c": {"a": ["]"]}, "a": {"b": [{"id": 1}, {"id": 2}]}, "d": 1}'),
        ("$.a[*].b[*]", '{"a": [{"b": [{"id": 1}]}, {"b": [{"id": 2}]}]}'),
        ("$.a[*]", '{"a": {"x": {"id": 1}, "y": {"id": 2}}}'),
        ("$.none[*]", '{"a": []}'),
        ("$[*]", "[]"),
    ],
)
def test_documents_of_json(iterator: str, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rml = LISTS.replace("in.jsonl", "in.json").replace("$.items[*]", iterator).replace("{$.x}", "{$.id}")
    lines = mapped(tmp_path, rml.replace("$.tags[*]", "$.id"), capsys, "in.json", data)
    ids = [] if "none" in iterator or data == "[]" else [1, 2]
    assert lines == [f'<http://e/{one}> <http://e/tag> "{one}"^^<{XSD}integer> .' for one in ids]


@pytest.mark.parametrize(
    ("join", "other", "message"),
    [
        ('rml:joinCondition [ rml:child "id" ; rml:parent "k" ]', None, "other.csv: cannot be read as CSV"),
        ('rml:joinCondition [ rml:child "id" ; rml:parent "k" ]', "a,b\n1,2\n", "expected the columns k, found"),
        ('rml:joinCondition [ rml:child "id" ]', "k\n1\n", "expected either parent or parentMap in a joinCondition"),
        ("", "k\n1\n", "expected a joinCondition, since <#O> has another logical source"),
    ],
)
def test_joins_that_will_not_do(
    join: str, other: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if other is not None:
        (tmp_path / "other.csv").write_text(other)
    (tmp_path / "in.csv").write_text("id\n1\n")
    (tmp_path / "m.ttl").write_text(
        '@prefix rml: <http://w3id.org/rml/> .\n<#M> rml:logicalSource [ rml:source "in.csv" ] ; '
        'rml:subjectMap [ rml:template "http://e/{id}" ] ; rml:predicateObjectMap [ rml:predicate <http://e/p> ; '
        f"rml:objectMap [ rml:parentTriplesMap <#O> ; {join} ] ] .\n"
        '<#O> rml:logicalSource [ rml:source "other.csv" ] ; rml:subjectMap [ rml:template "http://o/{k}" ] .\n'
    )
    assert main(["map", str(tmp_path / "m.ttl"), str(tmp_path / "in.csv")]) in (1, 2)
    assert message in capsys.readouterr().err


def test_a_base_is_for_rml_and_absolute(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.csv").write_text("id,fare,zone name,page,cab\n1,,,,\n")
    (tmp_path / "m.toml").write_text('subject = "http://e/{id}"\n[[triple]]\npredicate = "a"\nobject = "http://e/C"\n')
    (tmp_path / "m.ttl").write_text(OLD.replace("trips.csv", "in.csv"))
    assert main(["map", str(tmp_path / "m.toml"), str(tmp_path / "in.csv"), "--base", "http://b/"]) == 2
    assert "IRIs of a TOML mapping are absolute" in capsys.readouterr().err
    assert main(["map", str(tmp_path / "m.ttl"), str(tmp_path / "in.csv"), "--base", "b"]) == 2
    assert "expected an absolute IRI as the base, found 'b'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('rml:path "trips.csv"', 'rml:path "trips.csv" ; rml:encoding rml:UTF-16', "encoding UTF-16 is not read"),
        ('rml:path "trips.csv"', 'rml:path "trips.csv" ; rml:compression rml:zip', "compression zip is not read"),
        ("rml:class ex:Trip", 'rml:class "Trip"', "expected an IRI as class"),
        ("rml:class ex:Trip", 'rml:graph "g"', "as graph, found a literal"),
        ('rml:object "taxi", 5', "rml:object _:b", "expected an IRI or a literal as constant, found _:"),
        ('rml:object "taxi", 5', "rml:object <relative>", "expected an absolute IRI, found <relative> and no base"),
        (' ; rml:object "taxi", 5', "", "expected one object or more in each predicate-object map"),
        ("rml:predicate ex:kind, ex:sort ;", "", "expected one predicate or more in each predicate-object map"),
        ('rml:language "en"', 'rml:language "en" ; rml:datatype xsd:string', "a datatype or a language, found both"),
        ('rml:language "en"', 'rml:language "en_US"', "a language tag of BCP 47 such as en or de-AT, found 'en_US'"),
        ('rml:language "en"', "rml:datatype ex:a, ex:b", "expected one datatype"),
        ("<#Trip>", "<#Other> rml:subject ex:s ; rml:predicateObjectMap [ ] . <#Trip>", "expected a logical source"),
        ("<#Trip> ", '<#Trip> rml:baseIRI "b" ; ', "expected an absolute IRI as the base, found 'b'"),
    ],
)
def test_each_fault_of_a_mapping_has_its_name(old: str, new: str, message: str, tmp_path: Path) -> None:
    mapping = NEW.replace("rr:", "rml:")
    assert old in mapping
    (tmp_path / "m.ttl").write_text(mapping.replace(old, new, 1))
    with pytest.raises(SettingsError) as raised:
        load_rml(str(tmp_path / "m.ttl"), ("trips.csv",))
    assert message in str(raised.value)


def test_texts_that_stand_for_null_and_uris(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """RML-IO, rml:null; RML-Core, "IRI encoding" of rml:URI, and its term generation rules for a reference."""
    rml = (
        '@prefix rml: <http://w3id.org/rml/> . <#M> rml:logicalSource [ rml:source [ rml:path "in.csv" ; '
        'rml:null "NULL" ] ] ; rml:subjectMap [ rml:template "http://e/{id}" ; rml:termType rml:URI ] ; '
        'rml:predicateObjectMap [ rml:predicate <http://e/p> ; rml:objectMap [ rml:reference "v" ; '
        "rml:termType rml:URI ] ] ."
    )
    data = "id,v\nZoë,http://o/a?b#c\nx,NULL\ny,http://o/é\nz,\nw,http://o/%C3%A9\n"
    assert mapped(tmp_path, rml, capsys, "in.csv", data) == [
        "<http://e/Zo%C3%AB> <http://e/p> <http://o/a?b#c> .",
        "<http://e/w> <http://e/p> <http://o/%C3%A9> .",
    ]
    assert main(["map", str(tmp_path / "map.rml.ttl"), str(tmp_path / "in.csv")]) == 0
    assert "in.csv, line 4, column 3: expected a URI in v, found 'http://o/é'" in capsys.readouterr().err


def test_constants_may_be_relative_to_the_base(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mapping file has no place of its own, so that the base of its terms is that of its relative IRIs, too."""
    (tmp_path / "in.csv").write_text("id\n1\n")
    (tmp_path / "m.ttl").write_text(
        '@prefix rml: <http://w3id.org/rml/> . <#M> rml:logicalSource [ rml:source "in.csv" ] ; '
        'rml:subjectMap [ rml:reference "id" ; rml:class <C> ] .'
    )
    assert main(["map", str(tmp_path / "m.ttl"), str(tmp_path / "in.csv"), "--base", "http://b/"]) == 0
    a = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
    assert capsys.readouterr().out == f"<http://b/1> {a} <http://b/C> .\n"
    assert main(["map", str(tmp_path / "m.ttl"), str(tmp_path / "in.csv")]) == 2
    assert "expected an absolute IRI, found <C> and no base" in capsys.readouterr().err
