"""Queries as a whole: what the grammar forbids and allows, broken texts, and what we do not support.

One text each. The parts of a query have files of their own, test_parser_*.py.
"""

from __future__ import annotations

import random

import pytest

from wukongs.csparql.algebra import Service
from wukongs.csparql.parser import parse_query
from wukongs.csparql.parser_update import parse_update
from wukongs.csparql.rules import rewrite
from wukongs.csparql.tokens import tokenize
from wukongs.csparql.updates import Modify
from wukongs.csparql.walk import parts_of
from wukongs.errors import QuerySyntaxError, UnsupportedFeatureError

# --- the grammar of queries (SPARQL 1.1, section 19) ------------------------------------------------------------------

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


# --- broken texts end in a named error with a place inside of the text, never in anything else ------------------------

WHOLE = [
    """REGISTER QUERY q-1 COMPUTED EVERY 2s AS BASE <http://b/> PREFIX : <x#> # comment
SELECT DISTINCT ?x (COUNT(DISTINCT ?y) + 1 AS ?n) (GROUP_CONCAT(?z; SEPARATOR=', ') AS ?all)
FROM <g> FROM NAMED :h FROM STREAM :s [RANGE 10s STEP 1 s] FROM NAMED STREAM <t> [RANGE 5 MIN TUMBLING]
WHERE { ?x a :T ; :p ?y, [ :q 'a\\n"b'@en ] . (1 -2.5 true) :r _:b
  GRAPH ?g { ?y ?p "1"^^<int> FILTER(?g != :x && !BOUND(?q) || ?y IN (1, 2e3)) OPTIONAL { ?y :q ?z } }
  { ?x :p 1 } UNION { BIND(IF(?x = -1, ?y / 2, COALESCE(?z, 3)) AS ?w) } FILTER(isIRI(?x))
} GROUP BY ?x (STR(?y) AS ?k) HAVING (SUM(?y) > 3) ORDER BY DESC(?n) ?x LIMIT 10 OFFSET 5""",
    "CONSTRUCT { ?s <p> [ <q> ?o ] } WHERE { ?s ?p ?o . GRAPH <g> {} } ORDER BY (?s) LIMIT 3",
    "ASK { ?s <p>/<q>* ?o MINUS { << ?s ?p ?o >> a ?x } VALUES ?x { 1 } FILTER NOT EXISTS { ?s ?p '''x''' } }",
    "ASK { <<( ?s ?p 1 )>> <p> ?o ~ _:r {| <q> 'x'@en--ltr |} BIND(<<(?s ?p 'a')>> AS ?t) SERVICE <s> {} }",
]


def check(text: str) -> None:
    """Parse a text; if it is refused, its place must be inside of the text."""
    error = error_of(text)
    if error is not None:
        lines = (text + "\n").splitlines(keepends=True)
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(lines[error.line - 1]) + 1


def error_of(text: str) -> QuerySyntaxError | UnsupportedFeatureError | None:
    try:
        parse_query(text)
    except (QuerySyntaxError, UnsupportedFeatureError) as error:
        return error
    return None


def test_the_whole_texts() -> None:
    assert error_of(WHOLE[0]) is None
    assert error_of(WHOLE[1]) is None
    assert error_of(WHOLE[2]) is None
    assert error_of(WHOLE[3]) is None


@pytest.mark.parametrize("seed", range(60))
def test_mutated_texts(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        text = rng.choice(WHOLE)
        for _ in range(rng.randint(1, 3)):
            start = rng.randrange(len(text))
            end = min(len(text), start + rng.choice((0, 1, 1, 5)))
            text = (
                text[:start]
                + rng.choice(("", "", " ", "{", "}", "(", ")", "'", '"', "<", ".", "\\", "é", "0"))
                + text[end:]
            )
        check(text)


@pytest.mark.parametrize("whole", WHOLE)
def test_texts_without_some_token(whole: str) -> None:
    tokens = tokenize(whole)
    for index, token in enumerate(tokens):
        check(whole[: token.start] + whole[token.end :])
        check(whole[: token.start])
        check(whole[: token.end] + " " + tokens[(index * 7) % len(tokens)].text + " " + whole[token.end :])


# --- what SPARQL knows and we do not support is refused by name and place ---------------------------------------------

SHORT_FORM = "a blank node inside of a triple term in the short form of CONSTRUCT"


@pytest.mark.parametrize(
    ("text", "feature", "column"),
    [
        ("ASK { FILTER <f>(DISTINCT ?x) }", "DISTINCT in a call of <f>", 18),
        ("CONSTRUCT WHERE { ?s ?p <<( _:b ?q ?r )>> }", SHORT_FORM, 25),
    ],
)
def test_refused_by_name_and_place(text: str, feature: str, column: int) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        parse_query(text)
    assert (caught.value.feature, caught.value.line, caught.value.column) == (feature, 1, column)
    assert str(caught.value).startswith(f"query, line 1, column {column}: {feature} is not supported yet")


LIVE = "REGISTER QUERY q AS SELECT ?s FROM STREAM <x> [RANGE 1s STEP 1s]"


@pytest.mark.parametrize(
    ("text", "feature", "column"),
    [
        (f"{LIVE} {{ SERVICE <s> {{ ?s ?p ?o }} }}", "SERVICE in a continuous query or an update", len(LIVE) + 4),
        (f"{LIVE} {{ FILTER EXISTS {{ SERVICE <s> {{}} }} }}", "SERVICE in a continuous query", len(LIVE) + 20),
        (f"{LIVE} {{ ?s ?p ?e SERVICE SILENT ?e {{}} }}", "SERVICE in a continuous query", len(LIVE) + 13),
    ],
)
def test_service_where_it_is_grammar_and_no_plan(text: str, feature: str, column: int) -> None:
    query = parse_query(text)
    with pytest.raises(UnsupportedFeatureError) as caught:
        rewrite(query)
    assert caught.value.feature.startswith(feature)
    assert (caught.value.line, caught.value.column) == (1, column)


def test_service_keeps_its_text_and_the_prefixes_around_it() -> None:
    text = "PREFIX : <http://ex/> SELECT * { SERVICE SILENT <s> { ?a :p ?b . SERVICE ?c { ?d ?e _:f } } { SELECT ?a {"
    query = rewrite(parse_query(text + " SERVICE <t> { ?a ?a ?g } } } }"))
    first, second = (part for part in parts_of(query.pattern) if isinstance(part, Service))
    assert (first.text, first.is_silent) == ("{ ?a :p ?b . SERVICE ?c { ?d ?e _:f } }", True)
    assert (first.prologue, first.names) == ("PREFIX : <http://ex/>\n", tuple("abcde"))
    assert (second.names, str(second.variables[0]), second.is_silent) == (("a", "g"), "?a", False)


def test_service_with_a_variable() -> None:
    query = rewrite(
        parse_query("SELECT * { ?s <p> ?e SERVICE ?e { ?a ?b ?c SERVICE ?d {} } SERVICE SILENT ?d { ?e ?f 1 } }")
    )
    first, second = (part for part in parts_of(query.pattern) if isinstance(part, Service))
    assert (str(first.endpoint), first.names, first.is_silent) == ("?e", tuple("abcd"), False)
    assert (str(second.endpoint), second.names, second.is_silent) == ("?d", tuple("ef"), True)


def test_service_brings_its_variables_into_scope() -> None:
    assert parse_query("SELECT * { SERVICE ?s { ?a ?b ?c } ?d ?e ?f }").variables == tuple("sabcdef")


def test_service_in_an_update() -> None:
    (operation,) = parse_update("INSERT { ?s ?p ?o } WHERE { SERVICE <s> { ?s ?p ?o } }").operations
    assert isinstance(operation, Modify)
    with pytest.raises(UnsupportedFeatureError, match="SERVICE"):
        rewrite(operation.where)
