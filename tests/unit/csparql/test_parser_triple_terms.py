"""Triple terms, reified triples and annotations (SPARQL 1.2): what they become, and what the grammar forbids.

The W3C's syntax tests are in tests/differential/test_w3c.py.
"""

from __future__ import annotations

import pytest

from tests.unit.csparql.counted_triples import CountedTriples
from wukongs.csparql import explain, rewrite
from wukongs.csparql.algebra import DEFAULT, Bgp, Call, Extend, Filter, Join, Node, Project, TripleParts, TriplePattern
from wukongs.csparql.parser import parse_query
from wukongs.csparql.parser_update import parse_update
from wukongs.csparql.terms import RDF_REIFIES, Term, Variable, iri, triple_term
from wukongs.csparql.updates import DeleteData, InsertData, Modify
from wukongs.csparql.walk import join_operands
from wukongs.errors import QuerySyntaxError

S, P, OBJECT, X, Y = (Variable(name) for name in "spoxy")
T1, B1 = Variable("triple.t1"), Variable(".blank1")
A, B, C = iri("a"), iri("b"), iri("c")
ABC = triple_term("<a>", "<b>", "<c>")


def pattern_of(text: str) -> Node:
    return parse_query(f"ASK {{ {text} }}").pattern


def test_a_triple_term_without_variables_is_a_term() -> None:
    assert pattern_of("?s ?p <<( <a> <b> <c> )>>") == Bgp((TriplePattern(S, P, ABC),))
    assert Term("(<a> <b> <c>)") == ABC
    nested = triple_term("<a>", "<b>", triple_term("<a>", "<b>", '"x"@en--rtl').text)
    assert pattern_of("?s ?p <<( <a> <b> <<(<a> <b> 'x'@EN--rtl)>> )>>") == Bgp((TriplePattern(S, P, nested),))


def test_a_triple_term_with_variables_is_tied_to_its_parts() -> None:
    made = pattern_of("?s <p> <<( ?s <b> ?o )>>")
    assert made == Join(Bgp((TriplePattern(S, iri("p"), T1),)), TripleParts(T1, S, B, OBJECT))
    nested = pattern_of("?s <p> <<( ?s <b> <<( ?x <b> ?o )>> )>>")
    t2 = Variable("triple.t2")
    assert set(join_operands(nested)) == {
        Bgp((TriplePattern(S, iri("p"), t2),)),
        TripleParts(T1, X, B, OBJECT),
        TripleParts(t2, S, B, T1),
    }


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("<< <a> <b> <c> >> <p> ?x", "[] <reifies> <<( <a> <b> <c> )>> ; <p> ?x"),
        ("<< <a> <b> <c> >>", "[] <reifies> <<( <a> <b> <c> )>>"),
        ("<< <a> <b> <c> ~ ?y >> <p> ?x", "?y <reifies> <<( <a> <b> <c> )>> ; <p> ?x"),
        ("?x <p> << <a> <b> <c> ~ <y> >>", "<y> <reifies> <<( <a> <b> <c> )>> . ?x <p> <y>"),
        ("<a> <b> <c> ~ <y>", "<a> <b> <c> . <y> <reifies> <<( <a> <b> <c> )>>"),
        ("<a> <b> <c> ~", "<a> <b> <c> . [] <reifies> <<( <a> <b> <c> )>>"),
        ("<a> <b> <c> {| <p> ?x ; <q> ?y |}", "<a> <b> <c> . [] <reifies> <<( <a> <b> <c> )>> ; <p> ?x ; <q> ?y"),
        ("<a> <b> <c> ~ ?y {| <p> ?x |}", "<a> <b> <c> . ?y <reifies> <<( <a> <b> <c> )>> ; <p> ?x"),
        (
            "<a> <b> <c> ~ ?y {| <p> ?x |} {| <q> ?x |}",
            "<a> <b> <c> . ?y <reifies> <<( <a> <b> <c> )>> ; <p> ?x . [] <reifies> <<( <a> <b> <c> )>> ; <q> ?x",
        ),
        (
            "<a> <b> <c> ~ ?y ~ ?x {| <p> 1 |}",
            "<a> <b> <c> . ?y <reifies> <<( <a> <b> <c> )>> . ?x <reifies> <<( <a> <b> <c> )>> ; <p> 1",
        ),
        ("<<<a><b><c>>> <p> 1", "[] <reifies> <<(<a><b><c>)>> ; <p> 1"),
        ("?s <p> <<(<a> a <c>)>>", "?s <p> <<( <a> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <c> )>>"),
    ],
)
def test_short_forms(text: str, plain: str) -> None:
    assert pattern_of(text) == pattern_of(plain.replace("<reifies>", RDF_REIFIES.text))


ANNOTATED = "SELECT * { %s <p> ?o {| <conf> %s |} FILTER(?o != <o>) FILTER(?o != ?s || ?c != ?nobody) }"


def annotated(count: int) -> CountedTriples:
    """So many triples; each has a reifier with one of ten confidences."""
    triples = []
    for i in range(count):
        parts = f"<s{i}>", "<p>", f"<o{i}>"
        triples += [parts, (f"_:r{i}", RDF_REIFIES.text, f"({' '.join(parts)})"), (f"_:r{i}", "<conf>", f"<c{i % 10}>")]
    return CountedTriples({DEFAULT: triples})


@pytest.mark.parametrize(
    ("subject", "confidence", "first", "last"),
    [
        ("<s7>", "?c", "<s7> <p> ?o", "?.blank1 <conf> ?c"),  # one triple: its term is put together
        ("?s", "<c7>", "?.blank1 <conf> <c7>", "?s <p> ?o"),  # ten reifiers: their terms are pulled apart
    ],
)
def test_an_annotation_is_joined_from_the_side_that_has_fewer(
    subject: str, confidence: str, first: str, last: str
) -> None:
    query = rewrite(parse_query(ANNOTATED % (subject, confidence)))
    lines = [line for line in explain(query, annotated(100)).splitlines() if "  ~" in line]
    assert len(lines) == 4
    assert first in lines[0]
    assert last in lines[-1]
    at = next(at for at, line in enumerate(lines) if "Triple ?triple.t1 = <<(" in line)
    assert at == (1 if first.startswith("<s7>") else 2)
    assert all(float(line.rsplit("~", 1)[1].split()[0]) <= 10 for line in lines), "no product"


def test_variables_inside_are_in_scope() -> None:
    assert parse_query("SELECT * { <<(?s ?p ?o)>> ?x ?y }").variables == ("s", "p", "o", "x", "y")
    with pytest.raises(QuerySyntaxError, match="a variable after AS that the group has not used before"):
        parse_query("SELECT * { <x> <p> <<(?s ?p ?o)>> BIND(1 AS ?s) }")


def test_comparisons_with_iris_are_still_that() -> None:
    """`<<` opens a triple only where no IRI begins with its second character."""
    for text in ("?x<<http://a>", "?x <<a>", "?x<<a>&&?y"):
        query = parse_query(f"ASK {{ ?s ?x ?y FILTER({text}) }}")
        assert isinstance(query.pattern, Filter)
    assert pattern_of("<<?s ?p ?o>> ?x ?y") == pattern_of("<<?s?p?o>>?x?y")
    assert pattern_of("?x ?y <<(?s ?p ?o)>>") == pattern_of("?x ?y<<(?s?p?o)>>")


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("?s ?p <<( <a> <b>/<c> <d> )>>", 24, "an object in the triple term"),
        ("?s ?p <<( <a> <b> (1) )>>", 25, "an object in the triple term"),
        ("?s ?p <<( <a> <b> [ <p> 1 ] )>>", 27, "'[]': a blank node inside of a triple has no properties"),
        ("?s ?p <<( << <a> <b> <c> >> <b> <c> )>>", 17, "a subject in the triple term"),
        ("?s ?p <<( <a> _:b <c> )>>", 21, "a predicate: an IRI, a variable or 'a'"),
        ("?s ?p <<( <a> <b> <c> >>", 29, "')>>' to close the triple term"),
        ("<< <a> <b> <c> ~ 5 >>", 24, "'~' and a reifier, or '>>' to close the reified triple"),
        ("<<( <a> <b> <c> )>> .", 27, "a predicate: an IRI, a variable, 'a' or a property path"),
        ("?s <p>* ?o {| <q> 1 |}", 18, "no reifier or annotation behind a property path, which is no triple"),
        ("?s (<p>) ?o ~ ?x", 19, "no reifier or annotation behind a property path, which is no triple"),
        ("?s ?p ?o {| |}", 19, "a predicate"),
        ("?s ?p 'a'@ar--up", 16, "a base direction, --ltr or --rtl, behind the language tag"),
        ("BIND(<< ?s ?p ?o >> AS ?t)", 12, "an expression"),
        ("BIND(<<( [] <p> ?o )>> AS ?t)", 16, "an IRI or a variable as the subject of a triple term"),
        ("VALUES ?t { <<( _:a <p> 1 )>> }", 23, "an IRI as the subject of a triple term in VALUES"),
        ("VALUES ?t { <<( <a> <p> ?x )>> }", 31, "an object in VALUES: an IRI, a literal or a triple term"),
    ],
)
def test_what_the_grammar_forbids(text: str, column: int, expected: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(f"ASK {{ {text} }}")
    assert (caught.value.line, caught.value.column) == (1, column)
    assert caught.value.expected.startswith(expected)


def test_expressions_and_values() -> None:
    made = pattern_of("BIND(<<( ?s a <<( <a> <b> ?o )>> )>> AS ?x)")
    inner = Call("TRIPLE", (A, B, OBJECT))
    rdf_type = iri("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
    assert made == Extend(Bgp(()), X, Call("TRIPLE", (S, rdf_type, inner)))
    values = pattern_of("VALUES ?x { <<( <a> <b> <<( <a> <b> <c> )>> )>> UNDEF }")
    assert values.rows == ((triple_term("<a>", "<b>", ABC.text),), (None,))  # type: ignore[union-attr]


def test_templates_put_triple_terms_together() -> None:
    query = parse_query("CONSTRUCT { <x> <y> <<( ?s <b> <<( <a> <b> ?o )>> )>> } { ?s ?p ?o }")
    (quad,) = query.template
    assert isinstance(query.pattern, Extend)
    assert query.pattern.variable in (quad.object, Variable("triple.t1"), Variable("triple.t2"))
    parts = {Call("TRIPLE", (S, B, Call("TRIPLE", (A, B, OBJECT)))), Call("TRIPLE", (A, B, OBJECT))}
    assert {query.pattern.expression, query.pattern.pattern.expression} == parts  # type: ignore[union-attr]


def test_a_blank_node_inside_of_a_template_is_one_with_those_outside() -> None:
    query = parse_query("CONSTRUCT { _:l <p> <<( _:l <b> ?o )>> } { ?s ?p ?o }")
    (quad,) = query.template
    blank = quad.subject
    assert isinstance(blank, Variable)
    assert not blank.is_blank
    assert isinstance(query.pattern, Extend)
    assert query.pattern.expression == Call("TRIPLE", (blank, B, OBJECT))
    assert query.pattern.pattern == Extend(Bgp((TriplePattern(S, P, OBJECT),)), blank, Call("BNODE", ()))


def test_updates() -> None:
    (data,) = parse_update("INSERT DATA { <a> <b> <c> ~ <x> }").operations
    assert data == InsertData((TriplePattern(A, B, C), TriplePattern(iri("x"), RDF_REIFIES, ABC)))
    (data,) = parse_update("DELETE DATA { <x> <y> <<( <a> <b> <c> )>> }").operations
    assert data == DeleteData((TriplePattern(iri("x"), iri("y"), ABC),))
    (made,) = parse_update("INSERT DATA { <x> <y> <<( _:a <b> <c> )>> }").operations
    assert isinstance(made, Modify)
    assert isinstance(made.where.pattern, Project)
    for text in ("DELETE DATA { << <a> <b> <c> >> <p> 1 }", "DELETE { ?s ?p ?o ~ } WHERE { ?s ?p ?o }"):
        with pytest.raises(QuerySyntaxError, match="no blank node in what is deleted"):
            parse_update(text)
