"""Terms keep their lexical form to the letter on every way in and out."""

from __future__ import annotations

import pickle
from typing import Any

import pyoxigraph
import pytest
import rdflib
from hypothesis import example, given
from hypothesis import strategies as st
from rdflib import BNode, Literal, URIRef

from wukongs.csparql.terms import XSD
from wukongs.errors import DataError
from wukongs.query.terms.rdf_terms import (
    canonical_of,
    from_ntriples,
    from_python,
    split_literal,
    terms_of,
    to_ntriples,
    to_rdflib,
)

characters = st.characters(exclude_categories=["Cs"])
lexical_forms = st.text(characters, max_size=12) | st.sampled_from(['"', '"@en', '"^^<x>', "\\", "\\n", "01", " 1", ""])
iris = st.builds(lambda tail: f"<http://ex/{tail}>", st.text("abcé/?=:\U0001f600", max_size=8))
languages = st.sampled_from(["en", "de-at", "zh-hant", "sl-rozaj-1994"])
datatypes = st.sampled_from([f"{XSD}integer", f"{XSD}dateTime", f"{XSD}boolean", "http://ex/type"])
canonical_terms = (
    iris
    | st.from_regex(r"_:s[0-9a-f]{16}x[a-z0-9]{1,6}", fullmatch=True)
    | lexical_forms.map(lambda lexical: f'"{lexical}"')
    | st.builds(lambda lexical, language: f'"{lexical}"@{language}', lexical_forms, languages)
    | st.builds(lambda lexical, datatype: f'"{lexical}"^^<{datatype}>', lexical_forms, datatypes)
)


@given(canonical_terms)
@example('""@en"')
@example('"a"@en"^^<http://ex/type>')
def test_ntriples_and_back_is_the_same_term(canonical: str) -> None:
    assert from_ntriples(to_ntriples(canonical)) == canonical


@given(canonical_terms)
def test_rdflib_and_back_is_the_same_term(canonical: str) -> None:
    assert canonical_of(to_rdflib(canonical)) == canonical
    assert from_python(to_rdflib(canonical)) == to_ntriples(canonical)


@given(canonical_terms)
def test_pyoxigraph_reads_our_ntriples_as_the_same_term(canonical: str) -> None:
    line = f"<http://ex/s> <http://ex/p> {to_ntriples(canonical)} ."
    (triple,) = pyoxigraph.parse(line, format=pyoxigraph.RdfFormat.N_TRIPLES)
    read = triple.object
    if canonical.startswith("<"):
        assert read == pyoxigraph.NamedNode(canonical[1:-1])
    elif canonical.startswith("_:"):
        assert isinstance(read, pyoxigraph.BlankNode)
    else:
        assert isinstance(read, pyoxigraph.Literal)
        lexical, datatype, language = split_literal(canonical)
        assert (read.value, read.language) == (lexical, language)
        if language is None:
            assert read.datatype.value == (datatype or f"{XSD}string")


@pytest.mark.parametrize("lexical", ["01", "+1", " 1 ", "1.0", "1.00", "1E0", "abc", ""])
@pytest.mark.parametrize("datatype", ["integer", "decimal", "double", "boolean", "dateTime"])
def test_lexical_forms_are_not_normalised(lexical: str, datatype: str) -> None:
    canonical = f'"{lexical}"^^<{XSD}{datatype}>'
    term = to_rdflib(canonical)
    assert str(term) == lexical
    assert canonical_of(term) == canonical


@pytest.mark.parametrize(
    ("ntriples", "canonical"),
    [
        (f'"a"^^<{XSD}string>', '"a"'),
        ('"a"@EN-us', '"a"@en-us'),
        (r'"\u00e9\U0001F600\t\"\\"', '"é\U0001f600\t"\\"'),
        (r"<http://ex/\u00e9>", "<http://ex/é>"),
        ('"01"^^<http://ex/d>', '"01"^^<http://ex/d>'),
        (r'"\"@EN"', '""@EN"'),
        (r'"\\u0041"', r'"\u0041"'),
    ],
)
def test_ntriples_become_canonical(ntriples: str, canonical: str) -> None:
    assert from_ntriples(ntriples) == canonical
    assert canonical_of(ntriples) == canonical
    assert from_python(ntriples) == ntriples


@pytest.mark.parametrize(
    ("term", "canonical"),
    [
        (URIRef("http://ex/a"), "<http://ex/a>"),
        (BNode("b1"), "_:b1"),
        (Literal("x"), '"x"'),
        (Literal("x", datatype=rdflib.XSD.string), '"x"'),
        (Literal("x", lang="EN"), '"x"@en'),
        (Literal(5), f'"5"^^<{XSD}integer>'),
        (Literal("005", datatype=rdflib.XSD.integer, normalize=False), f'"005"^^<{XSD}integer>'),
    ],
)
def test_rdflib_terms_become_canonical(term: object, canonical: str) -> None:
    assert canonical_of(term) == canonical


def test_a_blank_node_keeps_its_label() -> None:
    assert to_rdflib("_:s0123456789abcdefxb1") == BNode("s0123456789abcdefxb1")


def test_an_iri_that_ntriples_cannot_write_is_escaped() -> None:
    assert from_python(URIRef("http://ex/a b")) == r"<http://ex/a\u0020b>"


@pytest.mark.parametrize(
    "text", ["hello", "http://ex/a", "<a b>", '"a', '"a"b"', '"a"@', "_:", '"a"^^x', "<a> ", "", "5"]
)
def test_a_string_that_is_no_ntriples_is_refused(text: str) -> None:
    expected = (
        'expected a term as N-Triples writes it, such as <http://ex/a>, "text", "text"@en or _:b, '
        f"found the string {text!r}"
    )
    for function in (from_python, canonical_of, from_ntriples):
        with pytest.raises(DataError) as caught:
            function(text)
        assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("term", "found"),
    [([5], "[5] of type list"), (None, "None of type NoneType"), (rdflib.Variable("x"), "of type Variable")],
)
def test_other_objects_are_refused(term: object, found: str) -> None:
    with pytest.raises(DataError, match=r"expected an N-Triples string, an int, .* pyoxigraph \(NamedNode") as it:
        from_python(term)
    assert str(it.value).endswith(found)


def test_text_that_utf8_cannot_hold_is_refused() -> None:
    with pytest.raises(DataError, match="expected text that UTF-8 can hold, found a lone surrogate in"):
        from_python(Literal("a\ud800"))
    with pytest.raises(DataError, match="found the string '\"a\\\\ud800\"'"):
        from_python('"a\ud800"')


@pytest.mark.parametrize("escape", [r"\uD800", r"\UFFFFFFFF", r"\U00110000"])
def test_an_escape_that_stands_for_no_character_is_refused(escape: str) -> None:
    with pytest.raises(DataError) as caught:
        from_ntriples(f'"a{escape}"')
    assert str(caught.value) == f"expected an escape that stands for a Unicode character, found {escape}"


def test_a_blank_node_label_that_ntriples_cannot_write_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        from_python(BNode("a b"))
    assert str(caught.value) == "expected a blank node label that N-Triples can write, found 'a b'"


def test_terms_made_without_rdflibs_constructors_are_as_these_make_them() -> None:
    texts = [
        "<http://ex/a>",
        "<>",
        "_:b1",
        '""',
        '"a \\"b\\" \n\x00"',
        '"a"@en',
        f'"01"^^<{XSD}integer>',
        '"x"^^<http://ex/d>',
    ]
    expected: list[Any] = [
        URIRef("http://ex/a"),
        URIRef(""),
        BNode("b1"),
        Literal(""),
        Literal('a \\"b\\" \n\x00'),
        Literal("a", lang="en"),
        Literal("01", datatype=rdflib.XSD.integer, normalize=False),
        Literal("x", datatype=URIRef("http://ex/d")),
    ]
    for made, wanted in zip(terms_of(texts), expected, strict=True):
        assert type(made) is type(wanted)
        assert made == wanted
        assert hash(made) == hash(wanted)
        assert pickle.loads(pickle.dumps(made)) == pickle.loads(pickle.dumps(wanted))
        assert made.n3() == wanted.n3()
        if isinstance(wanted, Literal):
            names = ("value", "language", "datatype", "ill_typed")
            assert [getattr(made, name) for name in names] == [getattr(wanted, name) for name in names]
