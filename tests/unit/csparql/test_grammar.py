"""What the grammar of queries forbids and allows (SPARQL 1.1, section 19), one text each."""

from __future__ import annotations

import pytest

from wukongs.csparql.parser import parse_query
from wukongs.errors import QuerySyntaxError

WRONG = [
    "SELECT (1 AS ?X) { SELECT (2 AS ?X) {} }",
    "SELECT * { { ?s ?p ?Y } BIND(1 AS ?Y) }",
    "SELECT * { ?s ?p ?o OPTIONAL { ?s ?p ?Y } BIND(1 AS ?Y) }",
    "SELECT ((?a+?b) AS ?x) { ?a ?p ?b } GROUP BY (?a+?b)",
    "SELECT ?a ?p { ?a ?p ?b } GROUP BY ?a",
    "SELECT (COUNT(?a) AS ?n) ?p { ?a ?p ?b }",
    "SELECT (SUM(COUNT(?a)) AS ?n) { ?a ?p ?b }",
    "SELECT ?x * {}",
    "SELECT { ?s ?p ?o }",
    "SELECT * { ?s ?p ?o } ORDER BY",
    "SELECT * { ?s ?p ?o } LIMIT -1",
    "SELECT * { VALUES ?x 1 }",
    "SELECT * { ?s ?p ?o FILTER }",
    "SELECT * { ?s ?p ?o . . }",
    "SELECT * { ; ?p ?o }",
    "SELECT * { ?s ?p }",
    "SELECT * { _:a ?p ?o OPTIONAL { _:a ?q ?z } }",
    "SELECT * { _:a ?p ?o { _:a ?q ?z } }",
    "SELECT * { { _:a ?p ?o } UNION { _:a ?q ?z } }",
    "SELECT * { _:a ?p ?o GRAPH ?g { } _:a ?q ?z }",
    "SELECT * { _:a ?p ?o MINUS { _:a ?q ?z } }",
    "SELECT * { _:a ?p ?o BIND(1 AS ?x) _:a ?q ?z }",
    "SELECT * { _:a ?p ?o VALUES ?x {1} _:a ?q ?z }",
    "SELECT * { _:a ?p ?o { SELECT * { _:a ?q ?z } } }",
    "CONSTRUCT { ?s ?p ?o FILTER(?o) } { ?s ?p ?o }",
    "CONSTRUCT WHERE { ?s ?p ?o FILTER(?o) }",
    "CONSTRUCT WHERE { GRAPH ?g { ?s ?p ?o } }",
    "CONSTRUCT { GRAPH ?g {?s ?p ?o} } { ?s ?p ?o }",
    "CONSTRUCT { ?s ?p/?q ?o } { }",
    "ASK { ?s ?p ?o } GROUP ?s",
    "SELECT ?s { ?s ?p ?o } HAVING ?s",
    "SELECT (?x) {}",
    "SELECT (?x AS y) {}",
    "SELECT (1 AS ?x) (2 AS ?x) {}",
    "SELECT * FROM <a> FROM NAMED { }",
    "DESCRIBE",
    "SELECT * { ?s ?p ?o } VALUES",
    "SELECT * { BIND(1 AS ?x) BIND(2 AS ?x) }",
    "SELECT * { { SELECT * { } } VALUES }",
    "SELECT * { SELECT * { ?s ?p ?o } ?s ?p ?o }",
    "SELECT * { ?s ?p ?o EXISTS { } }",
    "SELECT * { FILTER(EXISTS) }",
    "PREFIX a: <b> PREFIX SELECT * {}",
    "SELECT * { ?s ?p ?o } LIMIT 1 LIMIT 2",
    "SELECT * { GRAPH _:a { } }",
    "SELECT * { ?s _:p ?o }",
    "SELECT * { ?s 'p' ?o }",
    "SELECT DISTINCT REDUCED * {}",
    "SELECT * { ?s ?p ?o } GROUP BY ?s",
    "SELECT (GROUP_CONCAT(?x, ?y) AS ?z) {}",
    "SELECT (COUNT(*, ?x) AS ?z) {}",
    "SELECT (SUM(*) AS ?z) {}",
    "SELECT * { BIND(COUNT(?x) AS ?y) }",
    "SELECT * { FILTER(COUNT(?x) > 1) }",
]
RIGHT = [
    "SELECT (1 AS ?X) { SELECT (2 AS ?Y) {} }",
    "SELECT * { { BIND(1 AS ?Y) } BIND(2 AS ?Z) }",
    "SELECT * { ?s ?p ?o { BIND(1 AS ?o) } }",
    "SELECT * { _:a ?p ?o FILTER(?o) _:a ?q ?z }",
    "SELECT (COUNT(DISTINCT *) AS ?n) {}",
    "SELECT * { () ?p () . (1 [?q ?r]) ?s [] . [?x ?y] }",
    "SELECT REDUCED ?x { ?x ?y ?z } ORDER BY ASC(?x) DESC(?y) STR(?z) (?x + 1) LIMIT 0 OFFSET 0",
    "SELECT ?x { ?x ?y ?z } OFFSET 2 LIMIT 1",
    "CONSTRUCT { } WHERE { }",
    "CONSTRUCT WHERE { }",
    "CONSTRUCT { _:a ?p [] . (1 2) ?q _:a } { ?s ?p ?q }",
    "DESCRIBE ?x <y> { ?x ?p ?o } VALUES ?x { 1 }",
    "ASK FROM <a> FROM NAMED <b> { }",
    "SELECT (EXISTS { ?s ?p ?o } AS ?e) (NOT EXISTS { } AS ?f) {}",
    "SELECT * { FILTER(1 IN ()) FILTER(1 NOT IN (1, 2)) FILTER(NOT EXISTS { } || EXISTS { }) }",
    "SELECT * { { } UNION { } UNION { SELECT * { } } OPTIONAL { { } } MINUS { } }",
    "BASE <http://a/> BASE <b/> PREFIX : <c#> PREFIX : <d#> SELECT * { :x a <> }",
    "SELECT ?a (?a + 1 AS ?b) (?b * 2 AS ?c) { ?a ?p 1 }",
    "SELECT(1 AS?x)WHERE{?s?p?o}",
    "select*where{?s a?t.filter exists{?s?p?o}}",
    "SELECT * { VALUES (?x ?y) { (UNDEF UNDEF) (1 'a'@en) ('b'^^<t> -1.5e3) } }",
]


@pytest.mark.parametrize("text", WRONG)
def test_wrong(text: str) -> None:
    with pytest.raises(QuerySyntaxError):
        parse_query(text)


@pytest.mark.parametrize("text", RIGHT)
def test_right(text: str) -> None:
    assert parse_query(text).form == next(f for f in ("select", "ask", "construct", "describe") if f in text.lower())
