"""Triples blocks: lists, blank nodes, collections; what ends a block."""

from __future__ import annotations

import pytest

from wukongs.csparql.algebra import Bgp, TriplePattern
from wukongs.csparql.parser import parse_query
from wukongs.csparql.terms import RDF_FIRST, RDF_NIL, RDF_REST, RDF_TYPE, Variable, iri
from wukongs.errors import QuerySyntaxError

S, X, Y = Variable("s"), Variable("x"), Variable("y")
P, Q, OBJ = iri("p"), iri("q"), iri("o")
B1, B2, B3 = Variable(".blank1"), Variable(".blank2"), Variable(".blank3")


def patterns(text: str) -> list[tuple[object, object, object]]:
    pattern = parse_query(f"ASK {{ {text} }}").pattern
    assert isinstance(pattern, Bgp)
    return [(triple.subject, triple.predicate, triple.object) for triple in pattern.patterns]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("?s <p> ?x", [(S, P, X)]),
        ("?s <p> ?x .", [(S, P, X)]),
        ("?s a <o>", [(S, RDF_TYPE, OBJ)]),
        ("?s ?x <o>. <o> <p> ?y.", [(S, X, OBJ), (OBJ, P, Y)]),
        ("?s <p> ?x, ?y", [(S, P, X), (S, P, Y)]),
        ("?s <p> ?x ; <q> ?y", [(S, P, X), (S, Q, Y)]),
        ("?s <p> ?x ;; <q> ?y ; .", [(S, P, X), (S, Q, Y)]),
        ("?s <p> ?x, <o>; a ?y", [(S, P, X), (S, P, OBJ), (S, RDF_TYPE, Y)]),
        ("[] <p> []", [(B1, P, B2)]),
        ("_:a <p> _:b . _:b <q> _:a", [(B1, P, B2), (B2, Q, B1)]),
        ("[ <p> ?x ]", [(B1, P, X)]),
        ("[ <p> ?x; <q> ?y ] a <o>", [(B1, P, X), (B1, Q, Y), (B1, RDF_TYPE, OBJ)]),
        ("?s <p> [ <q> [ <p> ?x ] ] .", [(B2, P, X), (B1, Q, B2), (S, P, B1)]),
        ("() <p> ?x", [(RDF_NIL, P, X)]),
        ("(?x) <p> ()", [(B1, RDF_FIRST, X), (B1, RDF_REST, RDF_NIL), (B1, P, RDF_NIL)]),
        ("( ?x )", [(B1, RDF_FIRST, X), (B1, RDF_REST, RDF_NIL)]),
        (
            "?s <p> (?x (?y))",
            [
                (B1, RDF_FIRST, X),
                (B1, RDF_REST, B2),
                (B3, RDF_FIRST, Y),
                (B3, RDF_REST, RDF_NIL),
                (B2, RDF_FIRST, B3),
                (B2, RDF_REST, RDF_NIL),
                (S, P, B1),
            ],
        ),
        ("?s <p> ?x FILTER(true) _:a <p> ?x", None),
    ],
)
def test_patterns(text: str, expected: list[tuple[object, object, object]] | None) -> None:
    if expected is not None:
        assert patterns(text) == expected
    else:
        parse_query(f"ASK {{ _:a <q> ?y . {text} }}")  # a label reaches over a FILTER


def test_blank_nodes_are_hidden_variables() -> None:
    query = parse_query("SELECT * { _:a <p> [] . ?s <p> _:a }")
    assert query.variables == ("s",)
    assert B1.is_blank


def test_variables_of_a_pattern() -> None:
    pattern = TriplePattern(S, X, S, Y)
    assert pattern.variables() == (S, X, Y)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("?s ?p ?o ?s ?p ?o", "column 16: expected '.', ';' or ',' before what follows the triple, found '?s'"),
        ("?s ?p", "column 13: expected an object: an IRI, a literal, a variable or a blank node, found '}'"),
        ("?s ?p ?o, }", "expected an object: an IRI, a literal, a variable or a blank node, found '}'"),
        ("?s _:p ?o", "column 10: expected a predicate: an IRI, a variable, 'a' or a property path, found '_:p'"),
        ("?s A ?o", "column 10: expected a predicate: an IRI, a variable, 'a' or a property path, found 'A'"),
        ("?s 'p' ?o", "column 10: expected a predicate: an IRI, a variable, 'a' or a property path, found ''p''"),
        ("[]", "column 10: expected a predicate: an IRI, a variable, 'a' or a property path, found '}'"),
        ("()", "column 10: expected a predicate: an IRI, a variable, 'a' or a property path, found '}'"),
        (
            "?s ?p ?o . . ",
            "column 18: expected a triple pattern, FILTER, OPTIONAL, UNION, MINUS, GRAPH, BIND, ",
        ),
        ("?s ?p [ ?q ?r", "column 21: expected ';', ',' or ']', found '}'"),
        ("?s ?p ( ?q", "column 18: expected an object: an IRI, a literal, a variable or a blank node, found '}'"),
        (
            "_:a ?p ?o OPTIONAL { _:a ?p ?o }",
            "column 28: expected a blank node label that is new to this basic graph pattern, "
            "found '_:a', which is used in another one; a variable can be shared",
        ),
        ("_:a ?p ?o GRAPH <g> { ?s ?p ?o } _:a ?p ?o", "expected a blank node label that is new to this basic graph"),
        ("{ _:a ?p ?o } UNION { _:a ?p ?o }", "expected a blank node label that is new to this basic graph"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(f"ASK {{ {text} }}")
    assert message in str(caught.value)
