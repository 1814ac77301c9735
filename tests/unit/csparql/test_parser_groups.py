"""Group graph patterns in the algebra: which patterns merge, where filters stand, how GRAPH blocks are anchored."""

from __future__ import annotations

import pytest

from tests.unit.csparql.algebra_text import algebra_of
from tests.unit.csparql.counted_triples import CountedTriples
from wukongs.csparql.explain import explain
from wukongs.csparql.parser import parse_query
from wukongs.errors import QuerySyntaxError

A, B, C = "?a <A> ?b", "?b <B> ?c", "?c <C> ?d"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", "[]"),
        (f"{{ {A} . {B} }}", "[A B]"),
        (f"{{ {A} {{ {B} }} }}", "[A B]"),
        (f"{{ {{}} {A} {{}} }}", "[A]"),
        (f"{{ {A} FILTER(?a) {B} }}", "filter(?a, [A B])"),
        (f"{{ FILTER(?a) {A} . FILTER(?b) }}", "filter((?a && ?b), [A])"),
        (f"{{ {A} {{ {B} FILTER(?c) }} }}", "([A] * filter(?c, [B]))"),
        (f"{{ {A} OPTIONAL {{ {B} }} }}", "([A] ? [B])"),
        (f"{{ OPTIONAL {{ {B} }} {A} }}", "(([] ? [B]) * [A])"),
        (f"{{ {A} OPTIONAL {{ {B} FILTER(?a) FILTER(?c) }} }}", "([A] ? [B] if (?a && ?c))"),
        (f"{{ {A} OPTIONAL {{ {{ {B} FILTER(?a) }} }} }}", "([A] ? filter(?a, [B]))"),
        (f"{{ {A} OPTIONAL {{ {B} }} FILTER(?c) OPTIONAL {{ {C} }} }}", "filter(?c, (([A] ? [B]) ? [C]))"),
        (f"{{ {A} OPTIONAL {{ {B} }} {C} . ?d <D> ?e }}", "(([A] ? [B]) * [C D])"),
        (f"{{ {{ {A} }} UNION {{ {B} }} }}", "([A] | [B])"),
        (f"{{ {{ {A} }} UNION {{ {B} }} UNION {{}} {C} }}", "((([A] | [B]) | []) * [C])"),
        (f"{{ {A} BIND(?a AS ?z) {C} }}", "(extend(?z=?a, [A]) * [C])"),
    ],
)
def test_translation(text: str, expected: str) -> None:
    assert algebra_of(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{{ {A} GRAPH <g> {{ {B} }} {C} }}", "[A B@<g> C]"),
        (f"{{ GRAPH ?g {{ {A} . {B} }} GRAPH <h> {{ {C} }} }}", "[A@?g B@?g C@<h>]"),
        ("{ GRAPH ?g {} }", "names(?g)"),
        ("{ GRAPH <g> {} }", "names(<g>)"),
        (f"{{ GRAPH ?g {{ {A} FILTER(?a) }} {B} }}", "(filter(?a, [A@?g]) * [B])"),
        (f"{{ GRAPH ?g {{ {A} OPTIONAL {{ {B} }} }} }}", "([A@?g] ? [B@?g])"),
        (f"{{ GRAPH ?g {{ OPTIONAL {{ {B} }} }} }}", "(names(?g) ? [B@?g])"),
        (f"{{ GRAPH <g> {{ OPTIONAL {{ {B} }} {A} }} }}", "((names(<g>) ? [B@<g>]) * [A@<g>])"),
        (f"{{ GRAPH ?g {{ {{ {A} }} UNION {{}} }} }}", "([A@?g] | names(?g))"),
        (f"{{ GRAPH ?g {{ {{ OPTIONAL {{ {A} }} }} {B} }} }}", "((names(?g) ? [A@?g]) * [B@?g])"),
        (f"{{ GRAPH ?g {{ GRAPH <h> {{ {A} }} }} }}", "(names(?g) * [A@<h>])"),
        (f"{{ GRAPH ?g {{ {A} GRAPH ?h {{ {B} }} {C} }} }}", "[A@?g B@?h C@?g]"),
        (f"{{ GRAPH ?g {{ BIND(1 AS ?z) {A} }} }}", "(extend(?z=1, names(?g)) * [A@?g])"),
        (f"{{ GRAPH ?g {{ {A} FILTER(?g) }} }}", "extend(?g=hidden1, filter(?g, [A@hidden1]))"),
        ("{ GRAPH ?g { FILTER(BOUND(?g)) } }", "extend(?g=hidden1, filter(BOUND(?g), names(hidden1)))"),
        ("{ GRAPH ?g { ?g <A> ?b FILTER(?g) } }", "filter(SAMETERM(?g, hidden1), filter(?g, [A@hidden1]))"),
        (
            f"{{ GRAPH ?g {{ {A} OPTIONAL {{ ?b <B> ?g }} FILTER(?g) }} }}",
            "(filter(?g, ([A@hidden1] ? [B@hidden1])) * extend(?g=hidden1, names(hidden1)))",
        ),
        (f"{{ GRAPH ?g {{ {A} MINUS {{ {B} }} }} }}", "extend(?g=hidden1, ([A@hidden1] - [B@hidden1]))"),
        (
            f"{{ GRAPH ?g {{ {A} FILTER EXISTS {{ {B} }} }} }}",
            "extend(?g=hidden1, filter(EXISTS {[B@hidden1]}, [A@hidden1]))",
        ),
        (
            f"{{ GRAPH ?g {{ SELECT ?a {{ {A} }} }} }}",
            "extend(?g=hidden1, project(?a hidden1, [A@hidden1]))",
        ),
        (
            f"{{ GRAPH ?g {{ SELECT ?a {{ {A} }} LIMIT 1 }} }}",
            "extend(?g=hidden1, each(hidden1, slice(project(?a hidden1, [A@hidden1]))))",
        ),
        (f"{{ GRAPH ?g {{ GRAPH ?h {{ {A} }} }} }}", "(names(?g) * [A@?h])"),
        (f"{{ GRAPH ?g {{ {A} }} FILTER(?g) }}", "filter(?g, [A@?g])"),
    ],
)
def test_graph_blocks(text: str, expected: str) -> None:
    assert algebra_of(text) == expected


def test_labels_survive_a_block_that_is_read_twice() -> None:
    parse_query("ASK { GRAPH ?g { _:a <p> ?x . _:a <q> ?y FILTER(?g = ?x) } }")


def test_star_names_variables_in_the_order_of_the_text() -> None:
    query = parse_query("SELECT * { ?c <p> ?a OPTIONAL { GRAPH ?g { ?b <p> ?c } } BIND(?q AS ?z) FILTER(?f) }")
    assert query.variables == ("c", "a", "g", "b", "z")


def test_long_unions_are_not_deep() -> None:
    query = parse_query("ASK { " + " UNION ".join("{ ?a <A> ?b }" for _ in range(3000)) + " }")
    assert explain(query, CountedTriples({})).count("scan") == 3000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{ ?s ?p ?o", "column 15: expected '}' to close the group, found the end of the query"),
        ("{ GRAPH { } }", "column 13: expected an IRI or a variable after GRAPH, found '{'"),
        ("{ GRAPH 'g' { } }", "column 13: expected an IRI or a variable after GRAPH, found ''g''"),
        ("{ OPTIONAL ?s }", "column 16: expected '{', found '?s'"),
        ("{ {} UNION ?s }", "column 16: expected '{', found '?s'"),
        (
            "{ . }",
            "column 7: expected a triple pattern, FILTER, OPTIONAL, UNION, MINUS, GRAPH, BIND, VALUES, a group",
        ),
        (
            "{ ?s ?p ?o BIND(1 AS ?o) }",
            "column 26: expected a variable after AS that the group has not used before, found",
        ),
        ("{ BIND ?x }", "column 12: expected '(' after BIND, found '?x'"),
        ("{ } }", "column 9: expected the end of the query, found '}'"),
        ("?s ?p ?o", "column 5: expected FROM, WHERE or '{', found '?s'"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(f"ASK {text}")
    assert message in str(caught.value)
