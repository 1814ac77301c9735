"""Terms as the parser reads them: canonical form, lexical forms to the letter, escapes, prefixes, bases."""

from __future__ import annotations

import pytest

from wukongs.csparql.algebra import Bgp, Project, TriplePattern
from wukongs.csparql.parser import parse_query
from wukongs.csparql.terms import RDF, XSD, Term, Variable, iri, literal
from wukongs.errors import QuerySyntaxError


def object_of(
    text: str, prologue: str = "PREFIX ex: <http://e/> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>"
) -> Term:
    """Parse a query with one pattern and return its object."""
    query = parse_query(f"{prologue} ASK {{ ?s <p> {text} }}")
    assert isinstance(query.pattern, Bgp)
    (pattern,) = query.pattern.patterns
    assert isinstance(pattern, TriplePattern)
    assert isinstance(pattern.object, Term)
    return pattern.object


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<http://a/ü>", "<http://a/ü>"),
        (r"<http://a/\u00FC\U0001F600>", "<http://a/ü\U0001f600>"),
        ("<Tweet_Stream>", "<Tweet_Stream>"),
        ("ex:a", "<http://e/a>"),
        ("ex:", "<http://e/>"),
        (r"ex:a\-b\.c\%20", "<http://e/a-b.c%20>"),
        ("ex:a%2Fb", "<http://e/a%2Fb>"),
        ("'a'", '"a"'),
        ('"a\'b"', '"a\'b"'),
        (r'"a\"b\t\n\\\u00e9\U0001F600"', '"a"b\t\n\\é\U0001f600"'),
        ('"""two\nlines "quoted" """', '"two\nlines "quoted" "'),
        (r"'''it's \''''", "\"it's '\""),
        ('"a"@EN-gb', '"a"@en-gb'),
        ('"01"^^xsd:integer', f'"01"^^<{XSD}integer>'),
        ('"a"^^xsd:string', '"a"'),
        ('"a"^^<t>', '"a"^^<t>'),
        ("007", f'"007"^^<{XSD}integer>'),
        ("-5", f'"-5"^^<{XSD}integer>'),
        ("+5", f'"+5"^^<{XSD}integer>'),
        ("1.50", f'"1.50"^^<{XSD}decimal>'),
        ("-.5", f'"-.5"^^<{XSD}decimal>'),
        ("1E05", f'"1E05"^^<{XSD}double>'),
        ("true", f'"true"^^<{XSD}boolean>'),
        ("FALSE", f'"false"^^<{XSD}boolean>'),
        ("()", f"<{RDF}nil>"),
    ],
)
def test_canonical_form(text: str, expected: str) -> None:
    assert object_of(text) == Term(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a"@abcdefghi', "a language tag whose parts have at most 8 letters, found '@abcdefghi'"),
        ('"a"@en-abcdefghi', "a language tag whose parts have at most 8 letters"),
        (f'"a"^^<{RDF}langString>', "a language tag in place of the datatype"),
        (f'"a"^^<{RDF}dirLangStrin\\u0067>', "a language tag in place of the datatype"),
    ],
)
def test_literals_that_no_document_could_hold(text: str, expected: str) -> None:
    """RFC 5646, 2.1; RDF 1.1 Concepts, 3.3. What a query may insert, a dump may hold and a load may read."""
    with pytest.raises(QuerySyntaxError) as caught:
        object_of(text)
    assert expected in str(caught.value)


STORED_BLANK = "_:s0123456789abcdefxg"


def test_a_blank_node_names_a_graph_under_the_label_of_answers() -> None:
    query = parse_query(f"ASK FROM NAMED <{STORED_BLANK}> {{ GRAPH <{STORED_BLANK}> {{ <{STORED_BLANK}> ?p ?o }} }}")
    assert isinstance(query.pattern, Bgp)
    (pattern,) = query.pattern.patterns
    assert isinstance(pattern, TriplePattern)
    assert isinstance(pattern.graph, Term)
    assert pattern.graph == Term(STORED_BLANK)
    assert pattern.subject == Term(f"<{STORED_BLANK}>"), "elsewhere it is a relative IRI"
    assert (pattern.graph.name, iri(STORED_BLANK), iri("_:g").text) == (STORED_BLANK, pattern.graph, "<_:g>")


def test_literal_helper_agrees() -> None:
    assert object_of('"x"@En') == literal("x", language="EN")
    assert object_of("ex:a") == iri("http://e/a")


@pytest.mark.parametrize(
    ("prologue", "text", "expected"),
    [
        ("BASE <http://b/c/d>", "<e>", "<http://b/c/e>"),
        ("BASE <http://b/c/d>", "<#e>", "<http://b/c/d#e>"),
        ("BASE <http://b/c/d> PREFIX p: <../x#>", "p:y", "<http://b/x#y>"),
        ("PREFIX p: <x#> BASE <http://b/>", "p:y", "<x#y>"),
        ("BASE <http://b/c/> BASE <d/>", "<e>", "<http://b/c/d/e>"),
        ("PREFIX p: <a> PREFIX p: <b>", "p:y", "<by>"),
        ("prefix : <http://e/>", ":y", "<http://e/y>"),
    ],
)
def test_base_and_prefixes(prologue: str, text: str, expected: str) -> None:
    assert object_of(text, prologue) == Term(expected)


def test_base_given_from_outside() -> None:
    query = parse_query("SELECT * FROM <g> { ?s <p> 1 }", base="http://b/c")
    assert query.dataset.default_graphs == ("http://b/g",)
    assert query.pattern == Project(
        Bgp((TriplePattern(Variable("s"), iri("http://b/p"), literal("1", XSD + "integer")),)), (Variable("s"),)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "ASK { ?s <p> no:a }",
            "column 14: expected a prefix that the query declares, found 'no:a'; add PREFIX no: <...> at the start",
        ),
        ("ASK { ?s <p> 'a'^^5 }", "column 19: expected a datatype IRI after ^^, found '5'"),
        (r"ASK { ?s <p> 'a\qb' }", r"column 16: expected an escape such as \n, \" or \u00E9 in the string, found '\q'"),
        (r"ASK { ?s <p> 'a\uD83Cb' }", r"expected an escape such as \n, \" or \u00E9 in the string, found '\uD83C'"),
        (
            r"ASK { ?s <p> <a\u0020b> }",
            r"column 16: expected an escape for a character that an IRI may hold, found '\u0020'",
        ),
        ("BASE <a> ASK {}", "column 6: expected an absolute IRI such as <http://example.org/> after BASE, found '<a>'"),
        ("BASE ex:a ASK {}", "column 6: expected an IRI in angle brackets after BASE, found 'ex:a'"),
        (
            "PREFIX ex:a <b> ASK {}",
            "column 8: expected a prefix that ends in a colon, such as ex:, after PREFIX, found",
        ),
        ("PREFIX ex: b ASK {}", "column 12: expected an IRI in angle brackets after PREFIX ex:, found 'b'"),
    ],
)
def test_refused_terms(text: str, message: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(text)
    assert message in str(caught.value)
