"""The ideas of the RML suites, with inputs of our own: each test below says which of their tests it is about.

The suites are RML-Core's for JSON, as of August 2026 (76 tests, vocabulary of 2024), and the classic ones for CSV and
JSON (39 and 41 tests, old vocabulary). IDEAS runs in each dialect whose suite has the idea. TESTS lists all names; each
has an idea, or is in OTHERWISE with the reason, as in docs/run-file.md. Where an expected output of the suite
contradicts its own mapping (RMLTC0030 and RMLTC0031 did), the text of RML-Core counts.

Sources: RML-Core (https://w3id.org/rml/core/spec), RML-IO-Registry, R2RML (sections 7 to 11).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from wukongs.cli import main

XSD = "http://www.w3.org/2001/XMLSchema#"
TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
PREFIXES = """
@prefix ex: <http://e/> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
"""
MODERN = "@prefix rml: <http://w3id.org/rml/> .\n"
OLD = """
@prefix rml: <http://semweb.mmlab.be/ns/rml#> .
@prefix rr: <http://www.w3.org/ns/r2rml#> .
@prefix ql: <http://semweb.mmlab.be/ns/ql#> .
"""
OF_OLD_RML = ("logicalSource", "source", "referenceFormulation", "iterator", "reference")

Record = dict[str, object]
Files = dict[str, list[Record]]


@dataclass(frozen=True)
class Dialect:
    """How a mapping and its data are written. name: of the suite's tests: RMLTC0001a-JSON."""

    is_modern: bool
    is_json: bool

    @property
    def kind(self) -> str:
        return "JSON" if self.is_json else "CSV"

    def mapping(self, text: str) -> str:
        """Return a mapping in this dialect. text: in the vocabulary of 2024, with <file> as a logical source of that
        name and {{name}} or "=name" as a reference."""
        formulation = "JSONPath" if self.is_json else "CSV"

        def source(match: re.Match[str]) -> str:
            file = match[1]
            iterator = f' ; rml:iterator "$.{file}[*]"' if self.is_json else ""
            path = f"{file}.{'json' if self.is_json else 'csv'}"
            where = f'[ a rml:RelativePathSource ; rml:path "{path}" ]' if self.is_modern else f'"{path}"'
            kind = f"rml:{formulation}" if self.is_modern else f"ql:{formulation}"
            return f"rml:logicalSource [ rml:source {where} ; rml:referenceFormulation {kind}{iterator} ]"

        text = re.sub(r"<<(\w+)>>", source, text)
        text = re.sub(r'"=([^"]+)"', lambda match: f'"{self._reference(match[1])}"', text)
        text = re.sub(r"\{\{([^{}]+)\}\}", lambda match: "{" + self._reference(match[1]) + "}", text)
        if self.is_modern:
            return MODERN + PREFIXES + text
        words = re.compile(r"rml:(?!(?:" + "|".join(OF_OLD_RML) + r")\b)(\w+)")
        return OLD + PREFIXES + words.sub(r"rr:\1", text)

    def _reference(self, name: str) -> str:
        if not self.is_json:
            return name
        return f"$.{name}" if re.fullmatch(r"\w+", name) else f"$['{name}']"

    def write(self, folder: Path, files: Files) -> list[str]:
        written = []
        for name, records in files.items():
            path = folder / f"{name}.{'json' if self.is_json else 'csv'}"
            if self.is_json:
                path.write_text(json.dumps({name: records}, indent=2, ensure_ascii=False))
            else:
                keys = list(dict.fromkeys(key for record in records for key in record)) or ["ID", "Name"]
                lines = [",".join(str(record.get(key, "")) for key in keys) for record in records]
                path.write_text("\n".join([",".join(keys), *lines]) + "\n")
            written.append(str(path))
        return written

    def line(self, text: str) -> str:
        """Return an expected line. "10"#integer is a number of JSON, which only the vocabulary of 2024 types."""
        is_typed = self.is_modern and self.is_json
        return re.sub(r'"#(\w+)', lambda match: f'"^^<{XSD}{match[1]}>' if is_typed else '"', text) + " ."


CSV, JSON, JSON_2024 = Dialect(False, False), Dialect(False, True), Dialect(True, True)


@dataclass(frozen=True)
class Idea:
    """tests: the names in the suites, without the format; files: records by file; mapping: as Dialect.mapping has it;
    lines: what comes out; error: what a refusal says; bad: what the report of a bad record says, each of them; base: of
    the command."""

    tests: str
    files: Files
    mapping: str
    lines: tuple[str, ...] = ()
    error: str = ""
    bad: tuple[str, ...] = ()
    base: str = "http://b/"
    dialects: tuple[Dialect, ...] = (CSV, JSON, JSON_2024)
    of_csv: dict[str, str] = field(default_factory=dict)


PEOPLE: Files = {"people": [{"ID": 10, "Name": "Venus", "Last": "Wil son"}, {"ID": 20, "Name": "Ana", "Last": "B"}]}
ONE: Files = {"people": [{"ID": 10, "Name": "Venus", "Last": "Wil son"}]}
SUBJECT = 'rml:subjectMap [ rml:template "http://e/p/{{ID}}" ]'
NAME = 'rml:predicateObjectMap [ rml:predicate ex:name ; rml:objectMap [ rml:reference "=Name" ] ]'
SPORTS: Files = {
    "people": [{"ID": 10, "Sport": 100, "Name": "Venus"}, {"ID": 20, "Sport": 300, "Name": "Ana"}],
    "sports": [{"ID": 100, "Name": "Tennis"}, {"ID": 200, "Name": "Golf"}],
}
OF_SPORTS = (
    '<#S> <<sports>> ; rml:subjectMap [ rml:template "http://e/s/{{ID}}" ; %s ] ; '
    'rml:predicateObjectMap [ rml:predicate ex:label ; rml:objectMap [ rml:reference "=Name" ] ] . '
)
PLAYS = (
    "<#P> <<people>> ; " + SUBJECT + " ; rml:predicateObjectMap [ rml:predicate ex:plays ; rml:objectMap [ "
    "rml:parentTriplesMap <#S> ; rml:joinCondition [ %s ] ] ] . " + OF_SPORTS % "rml:class ex:Sport"
)
OF_SPORT_LINES = (
    f"<http://e/s/100> {TYPE} <http://e/Sport>",
    '<http://e/s/100> <http://e/label> "Tennis"',
    f"<http://e/s/200> {TYPE} <http://e/Sport>",
    '<http://e/s/200> <http://e/label> "Golf"',
)
TENNIS = ("<http://e/p/10> <http://e/plays> <http://e/s/100>", *OF_SPORT_LINES)
EVERYONE = ("<http://e/p/20> <http://e/plays> <http://e/s/100>", *TENNIS)


def of_subject(subject: str, more: str = NAME) -> str:
    return f"<#P> <<people>> ; rml:subjectMap [ {subject} ] ; {more} ."


def of_object(object_map: str, subject: str = 'rml:template "http://e/p/{{ID}}"') -> str:
    return of_subject(subject, f"rml:predicateObjectMap [ rml:predicate ex:x ; rml:objectMap [ {object_map} ] ]")


IDEAS = [
    Idea("0000", {"people": []}, of_subject('rml:template "http://e/p/{{ID}}" ; rml:class ex:C')),
    Idea(
        "0001a",
        PEOPLE,
        of_subject('rml:template "http://e/{{Name}}"'),
        ('<http://e/Venus> <http://e/name> "Venus"', '<http://e/Ana> <http://e/name> "Ana"'),
    ),
    Idea(
        "0001b 0002b 0012a",
        PEOPLE,
        of_subject('rml:template "stu dent{{ID}}{{Name}}" ; rml:termType rml:BlankNode'),
        ('_:stu_20dent10Venus <http://e/name> "Venus"', '_:stu_20dent20Ana <http://e/name> "Ana"'),
    ),
    Idea(
        "0002a 0007a 0007c 0007d",
        ONE,
        of_subject(
            'rml:template "http://e/{{ID}}/{{Last}}" ; rml:class ex:Person , ex:Student',
            'rml:predicateObjectMap [ rml:predicate ex:id ; rml:objectMap [ rml:reference "=ID" ] ] , '
            "[ rml:predicate <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> ; rml:object ex:Human ]",
        ),
        (
            f"<http://e/10/Wil%20son> {TYPE} <http://e/Person>",
            f"<http://e/10/Wil%20son> {TYPE} <http://e/Student>",
            f"<http://e/10/Wil%20son> {TYPE} <http://e/Human>",
            '<http://e/10/Wil%20son> <http://e/id> "10"#integer',
        ),
    ),
    Idea("0002c", ONE, of_object('rml:reference "=IDs"'), error="expected a column 'IDs'", dialects=(CSV,)),
    Idea("0002e", {}, of_subject('rml:template "http://e/{{ID}}"'), error="people"),
    Idea(
        "0002g",
        ONE,
        of_object('rml:reference "$.x]"'),
        error="expected a JSON path of names",
        dialects=(JSON, JSON_2024),
    ),
    Idea(
        "0003c",
        ONE,
        of_object('rml:template "{{ID}}: {{Name}} \\"{{Last}}\\"" ; rml:termType rml:Literal'),
        (r'<http://e/p/10> <http://e/x> "10: Venus \"Wil son\""',),
    ),
    Idea(
        "0004a",
        ONE,
        of_subject('rml:template "http://e/{{Name}}" ; rml:class ex:Student')
        + ' <#Q> <<people>> ; rml:subjectMap [ rml:template "http://e/last/{{Last}}" ; rml:class ex:Last ] .',
        (
            f"<http://e/Venus> {TYPE} <http://e/Student>",
            '<http://e/Venus> <http://e/name> "Venus"',
            f"<http://e/last/Wil%20son> {TYPE} <http://e/Last>",
        ),
    ),
    Idea("0004b", ONE, of_subject('rml:template "{{Name}}" ; rml:termType rml:Literal'), error="found a literal"),
    Idea(
        "0005a",
        {"people": [{"f": "Bob", "l": "Smith", "due": "30.0E0"}, {"f": "Bob", "l": "Smith", "due": "30.0E0"}]},
        of_subject(
            'rml:template "http://e/{{f}};{{l}}" ; rml:class ex:Person',
            'rml:predicateObjectMap [ rml:predicate ex:owes ; rml:objectMap [ rml:reference "=due" ] ]',
        ),
        (f"<http://e/Bob;Smith> {TYPE} <http://e/Person>", '<http://e/Bob;Smith> <http://e/owes> "30.0E0"'),
    ),
    Idea(
        "0006a",
        ONE,
        of_subject(
            "rml:constant ex:Bad ; rml:graphMap [ rml:constant ex:g ]",
            'rml:predicateObjectMap [ rml:predicateMap [ rml:constant ex:d ] ; rml:objectMap [ rml:constant "no" ] ]',
        ),
        ('<http://e/Bad> <http://e/d> "no" <http://e/g>',),
    ),
    Idea(
        "0007b 0007e 0007f",
        ONE,
        of_subject('rml:template "http://e/{{Name}}" ; rml:class ex:C ; rml:graph ex:g'),
        (f"<http://e/Venus> {TYPE} <http://e/C> <http://e/g>", '<http://e/Venus> <http://e/name> "Venus" <http://e/g>'),
    ),
    Idea(
        "0007g",
        ONE,
        of_subject('rml:template "http://e/{{Name}}" ; rml:class ex:C ; rml:graph rml:defaultGraph'),
        (f"<http://e/Venus> {TYPE} <http://e/C>", '<http://e/Venus> <http://e/name> "Venus"'),
    ),
    Idea(
        "0007h",
        ONE,
        of_subject(
            'rml:template "http://e/{{ID}}" ; rml:graphMap [ rml:reference "=Name" ; rml:termType rml:Literal ]'
        ),
        error="as graph, found a literal",
    ),
    Idea(
        "0008a",
        ONE,
        of_subject(
            'rml:template "http://e/{{ID}}" ; rml:graphMap [ rml:template "http://e/g/{{Last}}" ]',
            'rml:predicateObjectMap [ rml:predicate ex:id ; rml:objectMap [ rml:reference "=ID" ] ]',
        ),
        ('<http://e/10> <http://e/id> "10"#integer <http://e/g/Wil%20son>',),
    ),
    Idea(
        "0008b",
        ONE,
        of_object("rml:parentTriplesMap <#Q>")
        + ' <#Q> <<people>> ; rml:subjectMap [ rml:template "http://e/l/{{Last}}" ; rml:class ex:Last ] .',
        (
            "<http://e/p/10> <http://e/x> <http://e/l/Wil%20son>",
            f"<http://e/l/Wil%20son> {TYPE} <http://e/Last>",
        ),
    ),
    Idea(
        "0008c",
        ONE,
        of_subject(
            'rml:template "http://e/{{ID}}"',
            'rml:predicateObjectMap [ rml:predicate ex:a, ex:b ; rml:objectMap [ rml:reference "=Name" ] ]',
        ),
        ('<http://e/10> <http://e/a> "Venus"', '<http://e/10> <http://e/b> "Venus"'),
    ),
    Idea("0009a", SPORTS, PLAYS % 'rml:child "=Sport" ; rml:parent "=ID"', TENNIS),
    Idea(
        "0009b",
        SPORTS,
        '<#P> <<people>> ; rml:subjectMap [ rml:template "http://e/p/{{ID}}" ; rml:graph ex:gp ] ; '
        "rml:predicateObjectMap [ rml:predicate ex:plays ; rml:graph ex:gs ; rml:objectMap [ "
        'rml:parentTriplesMap <#S> ; rml:joinCondition [ rml:child "=Sport" ; rml:parent "=ID" ] ] ] . '
        + OF_SPORTS
        % "rml:graph ex:g",
        (
            "<http://e/p/10> <http://e/plays> <http://e/s/100> <http://e/gp>",
            "<http://e/p/10> <http://e/plays> <http://e/s/100> <http://e/gs>",
            '<http://e/s/100> <http://e/label> "Tennis" <http://e/g>',
            '<http://e/s/200> <http://e/label> "Golf" <http://e/g>',
        ),
    ),
    Idea(
        "0010a 0010b",
        {"people": [{"Country Code": 1, "Name": "Saint Martin (French part)"}]},
        of_subject('rml:template "http://e/{{Country Code}}/{{Name}}"'),
        ('<http://e/1/Saint%20Martin%20%28French%20part%29> <http://e/name> "Saint Martin (French part)"',),
    ),
    Idea(
        "0010c",
        {"people": [{"ID": 1, "ISO 3166": "BO"}]},
        of_object(r'rml:template "\\{\\{\\{ {{ISO 3166}} \\\\ \\}\\}\\}" ; rml:termType rml:Literal'),
        (r'<http://e/p/1> <http://e/x> "{{{ BO \\ }}}"',),
    ),
    Idea(
        "0011b",
        {
            "people": [{"ID": 10, "Name": "Venus"}],
            "links": [{"Person": 10, "Sport": 110}, {"Person": 10, "Sport": 111}],
        },
        of_subject('rml:template "http://e/p/{{ID}}"')
        + ' <#L> <<links>> ; rml:subjectMap [ rml:template "http://e/p/{{Person}}" ] ; '
        'rml:predicateObjectMap [ rml:predicate ex:plays ; rml:objectMap [ rml:template "http://e/s/{{Sport}}" ] ] .',
        (
            '<http://e/p/10> <http://e/name> "Venus"',
            "<http://e/p/10> <http://e/plays> <http://e/s/110>",
            "<http://e/p/10> <http://e/plays> <http://e/s/111>",
        ),
    ),
    Idea(
        "0012b",
        {"people": [{"ID": 1, "Name": "Ana"}], "lives": [{"ID": 1, "City": "Oslo"}]},
        of_subject('rml:template "{{ID}}" ; rml:termType rml:BlankNode')
        + ' <#L> <<lives>> ; rml:subjectMap [ rml:template "{{ID}}" ; rml:termType rml:BlankNode ] ; '
        'rml:predicateObjectMap [ rml:predicate ex:city ; rml:objectMap [ rml:reference "=City" ] ] .',
        ('_:1 <http://e/name> "Ana"', '_:1 <http://e/city> "Oslo"'),
    ),
    Idea("0012c", ONE, f"<#P> <<people>> ; {NAME} .", error="expected one subject map, found 0"),
    Idea("0012d", ONE, f"<#P> <<people>> ; {SUBJECT}, [ rml:constant ex:s ] ; {NAME} .", error="found 2"),
    Idea(
        "0012e",
        PEOPLE,
        of_subject("rml:termType rml:BlankNode"),
        ('_:0 <http://e/name> "Venus"', '_:1 <http://e/name> "Ana"'),
        dialects=(JSON_2024,),
    ),
    Idea(
        "0013a",
        {"people": [{"ID": 1, "Name": None}, {"ID": 2, "Name": "Ana"}, {"ID": 3}]},
        of_subject('rml:template "http://e/{{ID}}"'),
        ('<http://e/2> <http://e/name> "Ana"',),
        dialects=(JSON, JSON_2024),
    ),
    Idea(
        "0015a",
        ONE,
        of_object('rml:reference "=Name" ; rml:language "en"')
        + ' <#Q> <<people>> ; rml:subjectMap [ rml:template "http://e/p/{{ID}}" ] ; rml:predicateObjectMap [ '
        'rml:predicate ex:x ; rml:objectMap [ rml:reference "=Last" ; rml:language "es-419" ] ] .',
        ('<http://e/p/10> <http://e/x> "Venus"@en', '<http://e/p/10> <http://e/x> "Wil son"@es-419'),
    ),
    Idea("0015b", ONE, of_object('rml:reference "=Name" ; rml:language "a-english"'), error="a language tag of BCP 47"),
    Idea(
        "0015b",
        ONE,
        of_object('rml:reference "=Name" ; rml:language "english"'),
        error="a language tag of BCP 47",
        dialects=(CSV, JSON),
    ),
    Idea(
        "0019a",
        {"people": [{"Name": "http://o/Jo"}, {"Name": "Carlos"}]},
        of_subject('rml:reference "=Name"'),
        ('<http://o/Jo> <http://e/name> "http://o/Jo"', '<http://b/Carlos> <http://e/name> "Carlos"'),
    ),
    Idea(
        "0019b 0020b",
        {"people": [{"Name": "http://o/Jo"}, {"Name": "Juan Daniel"}, {"Name": "path/../Danny"}]},
        of_subject('rml:reference "=Name"'),
        ('<http://o/Jo> <http://e/name> "http://o/Jo"', '<http://b/path/../Danny> <http://e/name> "path/../Danny"'),
        bad=("expected an IRI in .*, found 'Juan Daniel'",),
    ),
    Idea(
        "0020a",
        {"people": [{"Name": "http://o/Al"}, {"Name": "Bob/Charles"}, {"Name": "Emily Smith"}]},
        of_subject('rml:template "{{Name}}" ; rml:termType rml:IRI'),
        (
            '<http://b/http%3A%2F%2Fo%2FAl> <http://e/name> "http://o/Al"',
            '<http://b/Bob%2FCharles> <http://e/name> "Bob/Charles"',
            '<http://b/Emily%20Smith> <http://e/name> "Emily Smith"',
        ),
    ),
    Idea(
        "0021a",
        {"people": [{"ID": 10, "Sport": "Golf"}, {"ID": 20, "Sport": "Golf"}, {"ID": 30, "Sport": "Chess"}]},
        of_object('rml:parentTriplesMap <#P> ; rml:joinCondition [ rml:child "=Sport" ; rml:parent "=Sport" ]'),
        tuple(
            f"<http://e/p/{one}> <http://e/x> <http://e/p/{other}>"
            for one, other in ((10, 10), (10, 20), (20, 10), (20, 20), (30, 30))
        ),
        dialects=(JSON_2024,),
    ),
    Idea(
        "0022a 0022d",
        ONE,
        of_object('rml:reference "=ID" ; rml:datatype xsd:positiveInteger')
        + ' <#Q> <<people>> ; rml:subjectMap [ rml:template "http://e/p/{{ID}}" ] ; rml:predicateObjectMap [ '
        'rml:predicate ex:y ; rml:objectMap [ rml:reference "=ID" ; rml:datatypeMap [ rml:constant xsd:double ] ] ] .',
        (
            f'<http://e/p/10> <http://e/x> "10"^^<{XSD}positiveInteger>',
            f'<http://e/p/10> <http://e/y> "10"^^<{XSD}double>',
        ),
        dialects=(JSON_2024,),
    ),
    Idea(
        "0022b 0022c",
        {"people": [{"ID": 1, "t": "int"}, {"ID": 2, "t": "color"}]},
        of_object('rml:reference "=ID" ; rml:datatypeMap [ rml:template "datatype#{{t}}" ]')
        + ' <#Q> <<people>> ; rml:subjectMap [ rml:template "http://e/p/{{ID}}" ] ; rml:predicateObjectMap [ '
        f'rml:predicate ex:y ; rml:objectMap [ rml:reference "=ID" ; rml:datatypeMap [ rml:template "{XSD}{{{{t}}}}" '
        "] ] ] .",
        (
            '<http://e/p/1> <http://e/x> "1"^^<http://b/datatype#int>',
            '<http://e/p/2> <http://e/x> "2"^^<http://b/datatype#color>',
            f'<http://e/p/1> <http://e/y> "1"^^<{XSD}int>',
            f'<http://e/p/2> <http://e/y> "2"^^<{XSD}color>',
        ),
        dialects=(JSON_2024,),
    ),
    Idea(
        "0022e",
        {"people": [{"ID": 1, "t": XSD + "string"}, {"ID": 2, "t": XSD + "int"}, {"ID": 3, "t": "a b"}]},
        of_object('rml:reference "=ID" ; rml:datatypeMap [ rml:reference "=t" ; rml:termType rml:IRI ]'),
        ('<http://e/p/1> <http://e/x> "1"', f'<http://e/p/2> <http://e/x> "2"^^<{XSD}int>'),
        bad=("expected an IRI in .*, found 'a b'",),
        dialects=(JSON_2024,),
    ),
    *(
        Idea(f"0023{letter}", ONE, of_subject(f'rml:template "http://e/{text}"'), error=error, dialects=(JSON_2024,))
        for letter, text, error in (
            ("b", "{ID", "a single brace"),
            ("c", "ID}", "a single brace"),
            ("d", r"{Name\\}", "a single brace"),
            ("e", r"{\\{Name\\}}", "expected a JSON path of names"),
        )
    ),
    Idea("0023b", ONE, of_subject('rml:template "http://e/{}"'), error="a reference in {}", dialects=(JSON_2024,)),
    Idea("0023d", ONE, of_subject(r'rml:template "http://e/a\\b{{ID}}"'), error="behind a backslash"),
    Idea(
        "0023f",
        {"people": [{"{Name}": "Venus"}]},
        of_subject("rml:template \"http://e/{$['\\\\{Name\\\\}']}\" ; rml:class ex:C", ""),
        (f"<http://e/Venus> {TYPE} <http://e/C>",),
        dialects=(JSON_2024,),
    ),
    Idea(
        "0024a",
        ONE,
        of_subject('rml:constant "School" ; rml:termType rml:BlankNode'),
        error="found a literal",
        dialects=(JSON_2024,),
    ),
    Idea(
        "0025a",
        {"people": [{"ID": 1, "due": [30, 40, 50]}]},
        of_object('rml:reference "$.due[*]"'),
        tuple(f'<http://e/p/1> <http://e/x> "{due}"#integer' for due in (30, 40, 50)),
        dialects=(JSON_2024,),
    ),
    Idea(
        "0025c",
        {"people": [{"names": ["Bob", "Smith"], "due": [30, 40]}]},
        of_object('rml:reference "$.due[*]"', 'rml:template "http://e/p/{$.names[*]}"'),
        tuple(f'<http://e/p/{name}> <http://e/x> "{due}"#integer' for name in ("Bob", "Smith") for due in (30, 40)),
        dialects=(JSON_2024,),
    ),
    Idea(
        "0026a 0026b 0026c 0026d",
        ONE,
        '<#P> <<people>> ; rml:baseIRI <http://own/> ; rml:subjectMap [ rml:template "{{Name}}" ; rml:class ex:C ] . '
        '<#Q> <<people>> ; rml:subjectMap [ rml:template "{{Last}}" ; rml:class ex:C ] . '
        '<#R> <<people>> ; rml:subjectMap [ rml:template "http://e/{{ID}}" ; rml:class ex:C ] .',
        (
            f"<http://own/Venus> {TYPE} <http://e/C>",
            f"<http://b/Wil%20son> {TYPE} <http://e/C>",
            f"<http://e/10> {TYPE} <http://e/C>",
        ),
        dialects=(JSON_2024,),
    ),
    Idea(
        "0027a",
        {"people": [{"Name": "Zoë Bob/Al"}]},
        of_subject('rml:template "http://e/{{Name}}" ; rml:termType rml:URI ; rml:class ex:C', ""),
        (f"<http://e/Zo%C3%AB%20Bob%2FAl> {TYPE} <http://e/C>",),
        dialects=(JSON_2024,),
    ),
    Idea(
        "0027b",
        {"people": [{"Name": "Bob/Al"}, {"Name": "Zoë"}]},
        of_subject('rml:template "http://e/{{Name}}" ; rml:termType rml:UnsafeIRI ; rml:class ex:C', ""),
        (f"<http://e/Bob/Al> {TYPE} <http://e/C>", f"<http://e/Zoë> {TYPE} <http://e/C>"),
        dialects=(JSON_2024,),
    ),
    Idea(
        "0027c",
        {"people": [{"Name": "Zoë K"}]},
        of_subject('rml:template "http://e/{{Name}}" ; rml:termType rml:IRI ; rml:class ex:C', ""),
        (f"<http://e/Zoë%20K> {TYPE} <http://e/C>",),
        dialects=(JSON_2024,),
    ),
    Idea(
        "0028a 0028c",
        ONE,
        of_subject(
            'rml:template "http://e/{{ID}}"',
            'rml:predicateObjectMap [ rml:predicate ex:x ; rml:object true, "train"@en, 1.0 ]',
        ),
        (
            f'<http://e/10> <http://e/x> "true"^^<{XSD}boolean>',
            '<http://e/10> <http://e/x> "train"@en',
            f'<http://e/10> <http://e/x> "1.0"^^<{XSD}decimal>',
        ),
        dialects=(JSON_2024,),
    ),
    Idea(
        "0028b",
        ONE,
        '<#P> <<people>> ; rml:subjectMap [ rml:template "http://e/{{ID}}" ; rml:class ex:C ; rml:graph ex:g ] ; '
        'rml:predicateObjectMap [ rml:predicate ex:n ; rml:objectMap [ rml:reference "=Name" ] ; '
        "rml:graph rml:defaultGraph ] .",
        (
            f"<http://e/10> {TYPE} <http://e/C> <http://e/g>",
            '<http://e/10> <http://e/n> "Venus" <http://e/g>',
            '<http://e/10> <http://e/n> "Venus"',
        ),
    ),
    Idea(
        "0029a",
        PEOPLE,
        f"<#P> <<people>> ; rml:subject ex:s ; {NAME} .",
        ('<http://e/s> <http://e/name> "Venus"', '<http://e/s> <http://e/name> "Ana"'),
        dialects=(JSON_2024,),
    ),
    *(
        Idea(f"0030{letter}", SPORTS, PLAYS % sides, found, dialects=(JSON_2024,))
        for letter, sides, found in (
            ("a", 'rml:childMap [ rml:reference "=Sport" ] ; rml:parentMap [ rml:reference "=ID" ]', TENNIS),
            ("b", 'rml:childMap [ rml:template "x{{Sport}}" ] ; rml:parentMap [ rml:template "x{{ID}}" ]', TENNIS),
            (
                "c",
                'rml:childMap [ rml:reference "=Sport" ] ; rml:parentMap [ rml:constant "100" ]',
                ("<http://e/p/10> <http://e/plays> <http://e/s/200>", *TENNIS),
            ),
            (
                "d",
                'rml:childMap [ rml:template "http://o/{{Sport}}" ] ; rml:parentMap [ rml:constant <http://o/100> ]',
                ("<http://e/p/10> <http://e/plays> <http://e/s/200>", *TENNIS),
            ),
            ("e", 'rml:childMap [ rml:constant "100" ] ; rml:parentMap [ rml:reference "=ID" ]', EVERYONE),
            ("f", 'rml:childMap [ rml:constant "x100" ] ; rml:parentMap [ rml:template "x{{ID}}" ]', EVERYONE),
        )
    ),
    Idea(
        "0031a",
        ONE,
        of_object('rml:reference "=Name" ; rml:languageMap [ rml:constant "en" ]'),
        ('<http://e/p/10> <http://e/x> "Venus"@en',),
        dialects=(JSON_2024,),
    ),
    Idea(
        "0031b 0031c",
        {"people": [{"ID": 1, "w": "lift", "l": "en", "r": "GB"}, {"ID": 2, "w": "x", "l": "a_b", "r": "US"}]},
        of_object('rml:reference "=w" ; rml:languageMap [ rml:template "{{l}}-{{r}}" ]')
        + ' <#Q> <<people>> ; rml:subjectMap [ rml:template "http://e/p/{{ID}}" ] ; rml:predicateObjectMap [ '
        'rml:predicate ex:y ; rml:objectMap [ rml:reference "=w" ; rml:languageMap [ rml:reference "=l" ] ] ] .',
        ('<http://e/p/1> <http://e/x> "lift"@en-GB', '<http://e/p/1> <http://e/y> "lift"@en'),
        bad=("expected a language tag in .*, found 'a_b-US'",),
        dialects=(JSON_2024,),
    ),
]
OTHERWISE = {
    "RMLTC0002c-JSON": "a key that is not there is no value (RML-IO-Registry, generation of null values)",
    "RMLTC0023a-JSON": "a key that is not there is no value (RML-IO-Registry, generation of null values)",
    "RMLTC0025b-JSON": "an array is its elements, as in the example of RML-Core, Reference",
    "RMLTC0027b-JSON": "an IRI with a space is none (RFC 3987): the record is set aside, the others are mapped",
}
"""Tests that expect something else, and why."""


def names(text: str, kind: str) -> set[str]:
    found = set()
    for word in text.split():
        number, _, letters = word.partition(":")
        found |= {f"RMLTC{number}{letter}-{kind}" for letter in letters or [""]}
    return found


ALL_OLD = "0000 0001:ab 0002:abce 0003:c 0004:ab 0005:a 0006:a 0007:abcdefgh 0008:abc 0009:ab 0010:abc 0011:b 0012:abcd"
ALL_OLD += " 0015:ab 0019:ab 0020:ab"
ALL_2024 = "0000 0001:ab 0002:abeg 0003:c 0004:ab 0005:a 0006:a 0007:abcdefgh 0008:abc 0009:ab 0010:abc 0011:b"
ALL_2024 += " 0012:abcde 0013:a 0015:ab 0019:ab 0020:a 0021:a 0022:abcde 0023:abcdef 0024:a 0025:abc 0026:abcd 0027:abc"
ALL_2024 += " 0028:abc 0029:a 0030:abcdef 0031:abc"
TESTS = {
    CSV: names(ALL_OLD, "CSV"),
    JSON: names(ALL_OLD + " 0002:g 0013:a", "JSON"),
    JSON_2024: names(ALL_2024, "JSON"),
}
RUNS = [
    pytest.param(idea, dialect, id=f"{idea.tests}-{'2024' if dialect.is_modern else 'old'}-{dialect.kind}-{number}")
    for number, idea in enumerate(IDEAS)
    for dialect in idea.dialects
]
Mapped = tuple[int, list[str], str]


def mapped(folder: Path, idea: Idea, dialect: Dialect, capsys: pytest.CaptureFixture[str]) -> Mapped:
    (folder / "map.rml.ttl").write_text(dialect.mapping(idea.mapping))
    data = dialect.write(folder, idea.files) or [str(folder / f"people.{dialect.kind.lower()}")]
    status = main(["map", str(folder / "map.rml.ttl"), *data, "--base", idea.base])
    captured = capsys.readouterr()
    return status, captured.out.splitlines(), captured.err


def plain_blanks(lines: list[str]) -> list[str]:
    """Return lines whose fresh blank nodes are numbered as they come."""
    labels: dict[str, str] = {}
    for line in lines:
        for label in re.findall(r"_:n\d+x\w+", line):
            labels.setdefault(label, f"_:{len(labels)}")
    return [re.sub(r"_:n\d+x\w+", lambda match: labels[match[0]], line) for line in lines]


@pytest.mark.parametrize(("idea", "dialect"), RUNS)
def test_the_idea_of_a_suite(idea: Idea, dialect: Dialect, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, errors = mapped(tmp_path, idea, dialect, capsys)
    if idea.error:
        assert status in (1, 2)
        assert not lines
        assert idea.error in errors
        return
    expected = {dialect.line(line) for line in idea.lines}
    assert set(plain_blanks(lines)) == expected
    assert status == (1 if idea.bad and not expected else 0)
    reports = [line for line in errors.splitlines() if ", line " in line]
    assert len(reports) == len(idea.bad)
    for report, wanted in zip(reports, idea.bad, strict=True):
        assert re.search(wanted, report), report


def covered() -> Iterator[tuple[Dialect, str]]:
    for idea in IDEAS:
        for dialect in idea.dialects:
            for test in idea.tests.split():
                yield dialect, f"RMLTC{test}-{dialect.kind}"


@pytest.mark.parametrize(("dialect", "count"), [(CSV, 39), (JSON, 41), (JSON_2024, 76)])
def test_each_test_of_the_suites_has_its_idea(dialect: Dialect, count: int) -> None:
    tests = TESTS[dialect]
    assert len(tests) == count
    of_dialect = {test for one, test in covered() if one == dialect}
    assert tests - of_dialect <= set(OTHERWISE)


def test_pages_name_what_differs() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "run-file.md").read_text()
    for test in OTHERWISE:
        assert test.removesuffix("-JSON").removesuffix("-CSV") in page, test
