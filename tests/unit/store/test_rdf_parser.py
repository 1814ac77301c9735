"""store/rdf_parser.py: valid RDF/XML and JSON-LD that the library reads otherwise, in pieces of any size."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest

from wukongs.errors import DataError
from wukongs.store.json_ld_text import Contexts
from wukongs.store.rdf_parser import parse_quads, parse_to_nquads

XSD = "http://www.w3.org/2001/XMLSchema#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
HEAD = (
    '<?xml version="1.0"?><!-- <a xml:base="no"> --><!DOCTYPE rdf:RDF [<!ENTITY none ""> <!ENTITY rdf "'
    + RDF
    + '">]>\n'
    f'<rdf:RDF xmlns="http://e/" xmlns:rdf="{RDF}" '
)
BASE = "http://b/doc"


class Slow:
    """A file that gives at most `size` bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._file, self._size = io.BytesIO(data), size

    def read(self, size: int = -1) -> bytes:
        return self._file.read(self._size if size < 0 else min(size, self._size))


def terms(text: str, format: str, base: str | None = BASE, contexts: Contexts | None = None) -> list[str]:
    """Return objects, with subjects that are no blank nodes before them; the same in pieces of any size."""
    found = []
    for size in (1, 3, 17, 1 << 20):
        file: io.BytesIO = Slow(text.encode(), size)  # type: ignore[assignment]
        lines = b"".join(parse_to_nquads(file, format, base, contexts or Contexts())).decode()
        found.append(re.findall(r"^(?:<([^>]*)>|_:\S+) <[^>]*> (.*) \.$", lines, re.MULTILINE))
    assert all(one == found[0] for one in found)
    return [f"{subject} {value}".strip() for subject, value in found[0]]


def xml(root: str, body: str) -> str:
    return f"{HEAD}{root}>{body}</rdf:RDF>"


def test_an_empty_language_takes_back_the_inherited_one() -> None:
    """RDF/XML 1.1, 2.7: "The value can be an empty string, which removes a language that is in scope."""
    body = '<t>x</t><t xml:lang="en">y</t><t xml:lang="">z</t><t xml:lang=\'&none;\'>e</t><t>w</t>'
    found = terms(xml('xml:lang="de"', f'<rdf:Description rdf:about="http://e/a">{body}</rdf:Description>'), "rdf")
    assert found == ['http://e/a "x"@de', 'http://e/a "y"@en', 'http://e/a "z"', 'http://e/a "e"', 'http://e/a "w"@de']


def test_bases_are_relative_to_the_one_in_scope() -> None:
    """RDF/XML 1.1, 2.14 and 5.3; XML Base, 4.2: an element's base is resolved against that of its parent."""
    inner = '<u><rdf:Description rdf:about="g" xml:base="../m"/></u><t rdf:resource="y"/>'
    body = (
        f'<rdf:Description rdf:about="f" xml:base="k/l">{inner}</rdf:Description>'
        '<rdf:Description rdf:about="f"><t rdf:resource=""/><t rdf:resource="#i" xml:base="http://o/p"/></rdf:Description>'
    )
    assert terms(xml('xml:base="sub/"', body), "rdf") == [
        "http://b/sub/k/f <http://b/sub/g>",
        "http://b/sub/k/f <http://b/sub/k/y>",
        "http://b/sub/f <http://b/sub/>",
        "http://b/sub/f <http://o/p#i>",
    ]
    empty = '<rdf:Description rdf:about="foo"><p rdf:resource=""/></rdf:Description>'
    assert terms(xml('xml:base=""', empty), "rdf") == ["http://b/foo <http://b/doc>"]
    with pytest.raises(SyntaxError, match="No scheme found"):
        terms(xml('xml:base="a"', empty), "rdf", None)


def test_comments_instructions_and_cdata_do_not_end_a_text() -> None:
    """XML 1.0, 2.5 to 2.7: they are no part of the character data, and CDATA is."""
    texts = ["a<!-- b -->c", "a<![CDATA[<b xml:lang='' xml:base=''>&]]>c", "<![CDATA[a]]><![CDATA[b]]>", "a<?b c?>d"]
    body = "".join(f"<t>{text}</t>" for text in texts)
    assert terms(xml("", f'<rdf:Description rdf:about="http://e/a">{body}</rdf:Description>'), "rdf") == [
        'http://e/a "ac"',
        "http://e/a \"a<b xml:lang='' xml:base=''>&c\"",
        'http://e/a "ab"',
        'http://e/a "ad"',
    ]


def test_an_xml_literal_stays_as_it_is() -> None:
    literal = '<q xml:lang="" xml:base="x"><r/></q>'
    body = (
        f'<rdf:Description rdf:about="f"><t rdf:parseType="Literal">{literal}</t><t xml:lang="">k</t></rdf:Description>'
    )
    first, second = terms(xml('xml:base="y"', body), "rdf")
    assert r"<q xml:lang=\"\" xml:base=\"x\"" in first
    assert second == 'http://b/f "k"'


def test_a_literal_of_langstring_has_the_language_in_scope() -> None:
    """RDF 1.1 Concepts, 3.3: a literal has this datatype if and only if it has a language (decision 0108)."""
    tag = f'rdf:datatype="{RDF}langString"'
    body = f'<t {tag} xml:lang="en">D</t><t {tag}>E</t><t rdf:datatype="&rdf;langString" xml:lang="fr"/>'
    text = xml('xml:lang="de"', f'<rdf:Description rdf:about="http://e/a">{body}</rdf:Description>')
    assert terms(text, "rdf") == ['http://e/a "D"@en', 'http://e/a "E"@de', 'http://e/a ""@fr']
    with pytest.raises(ValueError, match="a literal of rdf:langString without xml:lang"):
        terms(text.replace('xml:lang="de"', ""), "rdf")


@pytest.mark.parametrize(
    ("number", "digits"),
    [
        ("99999999999999999999", "99999999999999999999"),
        ("123456789012345678901", "123456789012345678901"),
        ("-999999999999999999999", "-999999999999999999999"),
        ("1e20", "100000000000000000000"),
        ("1.5E+20", "150000000000000000000"),
        ("100000000000000000000.0", "100000000000000000000"),
        ("1.0", "1"),
    ],
)
def test_integers_below_10_to_the_21_stay_integers(number: str, digits: str) -> None:
    """JSON-LD 1.1 API, 8.6: xsd:double if it has a fraction "or an absolute value greater or equal to 10^21"."""
    typed = f'{{"@value":{number},"@type":"http://e/d"}}'
    text = f'{{"@id":"http://e/a","http://e/p":[{number},{typed},"{number}"]}}'
    assert terms(text, "jsonld") == [
        f'http://e/a "{digits}"^^<{XSD}integer>',
        f'http://e/a "{digits}"^^<http://e/d>',
        f'http://e/a "{number}"',
    ]
    (one, two, _) = parse_quads(io.BytesIO(text.encode()), "jsonld", None)
    assert (one.object.value, two.object.value) == (digits, digits)  # type: ignore[union-attr]


@pytest.mark.parametrize("number", ["1e21", "1000000000000000000000", "123456789012345678901.5", "1.5"])
def test_other_numbers_are_doubles(number: str) -> None:
    (found,) = terms(f'{{"@id":"http://e/a","http://e/p":{number}}}', "jsonld")
    assert found.endswith(f"^^<{XSD}double>")


def test_large_integers_that_are_to_be_doubles_or_json() -> None:
    """JSON-LD 1.1 API, 8.6 (a native number with the type xsd:double); RFC 8785, 3.2.2.3 (numbers of JSON)."""
    number = "123456789012345678901"
    double = f'{{"@value":{number},"@type":"{XSD}double"}}'
    text = f'{{"@id":"http://e/a","http://e/p":[{double},{{"@value":["é",{number}],"@type":"@json"}}]}}'
    assert terms(text, "jsonld") == [
        f'http://e/a "1.23456789012345678901E20"^^<{XSD}double>',
        rf'http://e/a "[\"é\",123456789012345680000]"^^<{RDF}JSON>',
    ]


@pytest.fixture
def contexts(tmp_path: Path) -> Contexts:
    files = {
        "http://x/c": '{"@context":["d",{"b":"http://e/b","x":{"@id":"http://e/x","@context":"d"}}]}',
        "http://x/d": '{"@context":{"@version":1.1,"@protected":true,"d":"http://e/d"}}',
        "https://schema.org": '{"@context":{"@vocab":"http://schema.org/"}}',
        "http://x/self": '{"@context":{"@import":"self"}}',
        "http://x/none": '{"a":1}',
    }
    for place, text in enumerate(files.values()):
        (tmp_path / f"{place}.jsonld").write_text(text)
    return Contexts.from_mapping({iri: tmp_path / f"{place}.jsonld" for place, iri in enumerate(files)})


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ('{"@context":"http://x/c","@id":"http://e/a","b":"1","d":"2"}', ["1", "2"]),
        ('{"@context":["http://x/d",{"é":"http://e/é"}],"@id":"http://e/a","é":"1","d":"2"}', ["1", "2"]),
        ('{"@context":{"@import":"http://x/d","k":"http://e/k"},"@id":"http://e/a","k":"1","d":"2"}', ["1", "2"]),
        ('[{"@context":"https://schema.org/","@id":"http://e/a","name":"1"},{"@id":"http://e/b"}]', ["1"]),
        ('{"@context":"c","@id":"http://e/a","b":"1"}', ["1"]),
        ('{"@id":"http://e/a","b":"@context","@context":{"b":"http://e/b"}}', ["@context"]),
        (
            '{"@context":null,"@id":"http://e/a","http://e/p":"\\\\\\"@context\\": \\"http://x/no"}',
            ['\\\\\\"@context\\": \\"http://x/no'],
        ),
    ],
)
def test_contexts_come_from_files(contexts: Contexts, document: str, found: list[str]) -> None:
    assert terms(document, "jsonld", "http://x/y", contexts) == [f'http://e/a "{one}"' for one in found]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            '{"@context":\n["http://x/nope"]}',
            r"line 1: the @context <http://x/nope> is a remote document, and nothing is ",
        ),
        (
            '{"a":1,\n"@context":"http://x/self"}',
            "line 2: the @context <http://x/self> leads to itself, by http://x/self",
        ),
        (
            '{"@context":"http://x/none"}',
            r"4\.jsonld, line 1: expected a JSON object with the key @context, found none",
        ),
    ],
)
def test_contexts_that_are_not_at_hand_are_named(contexts: Contexts, document: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        terms(document, "jsonld", None, contexts)


def test_a_broken_context_is_the_parsers_to_name() -> None:
    with pytest.raises(SyntaxError, match="Trailing commas"):
        terms('{"@context":{"a":"http://e/a",},"a":1}', "jsonld")


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("[" + '{"@context":"http://x/d","@id":"http://e/a","d":"1"},\n' * 5000 + "{}]", "jsonld"),
        ('{"@id":"http://e/a","http://e/p":"' + '\\"' * 400_000 + '"}', "jsonld"),
        (
            xml("", '<rdf:Description rdf:about="http://e/a"><t>' + "xml:base=" * 200_000 + "</t></rdf:Description>"),
            "rdf",
        ),
        (
            xml("", '<rdf:Description rdf:about="http://e/a"><t>' + "a<!-- -->" * 50_000 + "</t></rdf:Description>"),
            "rdf",
        ),
    ],
    ids=["contexts", "escapes", "marks", "comments"],
)
def test_the_work_grows_with_the_text_only(contexts: Contexts, text: str, format: str) -> None:
    began = time.process_time()
    file: io.BytesIO = Slow(text.encode(), 1 << 16)  # type: ignore[assignment]
    assert b"".join(parse_to_nquads(file, format, BASE, contexts))
    assert time.process_time() - began < 10.0
