"""Warnings of variables that a query asks for and that nothing binds."""

from __future__ import annotations

import pytest

from wukongs.csparql.parser import parse_query
from wukongs.csparql.warnings import unbound


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT ?x ?nme { ?x ?p ?name }", ["?nme is selected, but nothing binds it: did you mean ?name?"]),
        (
            "SELECT ?x { ?x ?p ?age FILTER(?aeg > 1) }",
            ["?aeg is in a condition, but nothing binds it: did you mean ?age?"],
        ),
        ("SELECT ?x { ?x ?p ?o OPTIONAL { ?x ?q ?r FILTER(?zz) } }", ["?zz is in a condition, but nothing binds it"]),
        ("SELECT ?x { ?x ?p ?o } ORDER BY ?zz", ["?zz is in ORDER BY, but nothing binds it"]),
        ("SELECT (COUNT(?zz) AS ?n) { ?x ?p ?o }", ["?zz is in an aggregate, but nothing binds it"]),
        ("SELECT (1 AS ?n) { ?x ?p ?o } GROUP BY ?zz", ["?zz is in GROUP BY, but nothing binds it"]),
        ("SELECT ?y { ?x ?p ?o BIND(?zz + 1 AS ?y) }", ["?zz is in an expression, but nothing binds it"]),
        ("SELECT (?zz + 1 AS ?y) { ?x ?p ?o }", ["?zz is in an expression, but nothing binds it"]),
        ("CONSTRUCT { ?x ?p ?zz } WHERE { ?x ?p ?o }", ["?zz is in the template of CONSTRUCT, but nothing binds it"]),
        ("DESCRIBE ?zz { ?x ?p ?o }", ["?zz is described, but nothing binds it"]),
        (
            "ASK { ?x ?p ?o FILTER EXISTS { ?o ?q ?r FILTER(?x != ?zz) } }",
            ["?zz is in a condition, but nothing binds it"],
        ),
        (
            "SELECT ?x { ?x ?p ?o { SELECT ?o ?zz { ?o ?q ?r FILTER(?yy) } } }",
            ["?yy is in a condition, but nothing binds it", "?zz is selected, but nothing binds it"],
        ),
        (
            "SELECT ?x { { ?x ?p ?o } UNION { ?y ?p ?o FILTER(!BOUND(?x)) } }",
            ["?x is in a condition, but nothing binds it there"],
        ),
    ],
)
def test_what_nothing_binds_is_told(text: str, told: list[str]) -> None:
    assert sorted(unbound(parse_query(text))) == told


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * { ?x ?p ?o }",
        "SELECT ?g ?x (COUNT(*) AS ?n) { GRAPH ?g { ?x ?p ?o } } GROUP BY ?g ?x ORDER BY ?n",
        "SELECT ?x ?v { ?x ?p [ ?q ?o ] VALUES ?v { 1 } BIND(?v AS ?w) FILTER(?w > 0) }",
        "SELECT ?x { ?x ?p ?o FILTER NOT EXISTS { ?o ?q ?x FILTER(?p = ?q) } }",
        "SELECT ?x ?d { ?x <http://ex/p>+ ?y . OPTIONAL { ?y ?q ?d } FILTER(!BOUND(?d)) }",
        "CONSTRUCT { ?x ?p [] . _:b ?p ?o } WHERE { ?x ?p ?o }",
        "CONSTRUCT WHERE { ?x ?p ?o }",
        "DESCRIBE <http://ex/a>",
        "SELECT ?n { { SELECT (COUNT(?x) AS ?n) { ?x ?p ?o } GROUP BY ?p HAVING (COUNT(?x) > 1) } }",
        "SELECT ?x { ?x ?p ?o MINUS { ?x ?q ?z FILTER(?z > 1) } }",
    ],
)
def test_others_are_not(text: str) -> None:
    assert unbound(parse_query(text)) == ()
