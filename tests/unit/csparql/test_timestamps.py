"""timestamp() in the algebra: which patterns it reads, where, and which calls are refused with their place."""

from __future__ import annotations

import pytest

from wukongs.csparql.algebra import (
    DEFAULT,
    Extend,
    Filter,
    Join,
    LeftJoin,
    Minus,
    Node,
    Timestamp,
    TriplePattern,
    Union,
)
from wukongs.csparql.parser import parse_query
from wukongs.csparql.parser_update import parse_update
from wukongs.csparql.rules import rewrite
from wukongs.csparql.scope import certain_variables, possible_variables
from wukongs.csparql.terms import Variable, iri
from wukongs.errors import QuerySyntaxError

STREAM = "FROM STREAM <s> [RANGE 1s STEP 1s]"
NAMED = "FROM NAMED STREAM <s> [RANGE 1s STEP 1s] FROM <g>"
SUBJECT, OBJECT = Variable("s"), Variable("o")
P, Q = (TriplePattern(SUBJECT, iri(name), OBJECT) for name in "pq")


def body(where: str, clause: str = STREAM, select: str = "*") -> Node:
    return parse_query(f"SELECT {select} {clause} {{ {where} }}").pattern.pattern  # type: ignore[union-attr]


def stamps(node: Node) -> list[Timestamp]:
    """The Timestamp nodes of a pattern, from the outermost."""
    match node:
        case Join() | LeftJoin() | Union() | Minus():
            return stamps(node.left) + stamps(node.right)
        case Timestamp():
            return [node, *stamps(node.pattern)]
        case Filter() | Extend():
            return stamps(node.pattern)
        case _:
            return []


def test_the_patterns_that_bind_the_variable_in_windows() -> None:
    (found,) = stamps(body("?s <p> ?o . ?o <q> ?x . ?x <r> ?y FILTER(timestamp(?o) > 5)"))
    assert [pattern.predicate for pattern in found.patterns] == [iri("p"), iri("q")]
    (found,) = stamps(body("?s <p> ?o . GRAPH <s> { ?s <q> ?o } FILTER(TIMESTAMP(?s) > 5)", NAMED))
    assert [pattern.graph for pattern in found.patterns] == [iri("s")]


def test_what_only_some_solutions_rest_on_is_noted_where_they_come_from() -> None:
    outer, left, right = stamps(body("{ ?s <p> ?o } UNION { ?s <q> ?o } FILTER(timestamp(?s) > 5)"))
    assert (outer.patterns, outer.times) == ((), (left.variable, right.variable))
    assert (left.patterns, right.patterns) == ((P,), (Q,))
    outer, right = stamps(body("?s <p> ?o OPTIONAL { ?s <q> ?o } FILTER(timestamp(?s) > 5)"))
    assert (outer.patterns, outer.times) == ((P,), (right.variable,))
    assert right.patterns == (Q,)


def test_the_condition_of_an_optional_reads_its_own_side_first() -> None:
    (found,) = stamps(body("?s <p> ?o OPTIONAL { ?s <q> ?x FILTER(timestamp(?s) > 5) }"))
    assert [pattern.predicate for pattern in found.patterns] == [iri("q")]
    (found,) = stamps(body("?s <p> ?o OPTIONAL { ?s <q> ?x FILTER(timestamp(?o) > 5) }"))
    assert [pattern.predicate for pattern in found.patterns] == [iri("p")]


def test_three_arguments_name_a_tuple_of_any_window() -> None:
    prefix = "PREFIX f: <http://larkc.eu/csparql/sparql/jena/ext#> "
    query = parse_query(f"{prefix}SELECT (f:timestamp(?s, <p>, ?o) AS ?t) {STREAM} {{ ?s ?x ?o }}")
    (found,) = stamps(query.pattern.pattern)  # type: ignore[union-attr]
    assert (found.patterns, found.everywhere) == ((TriplePattern(SUBJECT, iri("p"), OBJECT, DEFAULT),), True)


def test_it_is_a_function_like_others() -> None:
    for text in (
        "SELECT (MAX(timestamp(?s)) AS ?t) {c} {{ ?s ?p ?o }}",
        "SELECT ?s {c} {{ ?s ?p ?o }} ORDER BY DESC(timestamp(?s)) timestamp(?o)",
        "SELECT ?t {c} {{ ?s ?p ?o }} GROUP BY (timestamp(?s) + 1 AS ?t)",
        "SELECT ?s {c} {{ ?s ?p ?o }} GROUP BY ?s HAVING (MIN(timestamp(?o)) > 3)",
        "ASK {c} {{ ?s ?p ?o BIND(timestamp(?s) AS ?t) FILTER(?t IN (timestamp(?o), 5)) }}",
        "CONSTRUCT {{ ?s <at> ?t }} {c} {{ ?s ?p ?o BIND(timestamp(?p) AS ?t) }}",
    ):
        assert "Timestamp(" in repr(rewrite(parse_query(text.format(c=STREAM))).pattern)


def test_filters_that_do_not_ask_for_the_time_go_below() -> None:
    query = rewrite(parse_query(f"SELECT * {STREAM} {{ ?s ?p ?o FILTER(timestamp(?s) > 5) FILTER(?o = 1) }}"))
    outer = query.pattern.pattern  # type: ignore[union-attr]
    assert isinstance(outer, Filter)
    assert isinstance(outer.pattern, Timestamp)
    assert isinstance(outer.pattern.pattern, Filter)
    hidden = outer.pattern.variable
    assert hidden in possible_variables(outer.pattern)
    assert hidden not in certain_variables(outer.pattern)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "SELECT * { ?s ?p ?o FILTER(timestamp(?s) > 5) }",
            "column 28: expected a window for timestamp() to read, such as FROM STREAM <s> [RANGE 10s STEP 1s]",
        ),
        (
            f"ASK {STREAM} {{ ?s ?p ?o FILTER(timestamp(?x) > 5) }}",
            "column 58: expected a variable in timestamp() that a triple pattern of this group binds in a window, not",
        ),
        (
            f"ASK {NAMED} {{ ?s ?p ?o FILTER(timestamp(?s) > 5) }}",
            "expected a variable in timestamp() that a triple pattern of this group binds in a window, not",
        ),
        (
            f"SELECT (timestamp(?s) AS ?t) {STREAM} {{ ?s ?p ?o }} GROUP BY ?s",
            "column 9: expected an aggregate around timestamp(?s), such as MAX(timestamp(?s)): each row here is",
        ),
        (
            f"SELECT ?s {STREAM} {{ ?s ?p ?o }} GROUP BY ?s HAVING (MAX(timestamp(?o)) > timestamp(?p))",
            "column 100: expected an aggregate around timestamp(?p), such as MAX(timestamp(?p)): each row here is",
        ),
        (
            f"SELECT ?s {STREAM} {{ ?s ?p ?o }} GROUP BY ?s HAVING (COUNT(*) > 1) ORDER BY timestamp(?s)",
            "column 102: expected an aggregate around timestamp(?s), such as MAX(timestamp(?s)): each row here is",
        ),
        (
            f"SELECT ?s {STREAM} {{ ?s ?p ?o }} GROUP BY ?s HAVING (timestamp(MAX(?o + 1)) > 5)",
            "expected a variable in timestamp(), not an aggregate, found 'timestamp'",
        ),
        (
            f"ASK {STREAM} {{ ?s ?p ?o FILTER(timestamp(?s, ?p) > 5) }}",
            "column 58: expected timestamp(?x), or timestamp of three variables, IRIs or literals, found 'timestamp'",
        ),
        (
            f"ASK {STREAM} {{ ?s ?p ?o FILTER(timestamp(STR(?s)) > 5) }}",
            "column 58: expected timestamp(?x), or timestamp of three variables, IRIs or literals, found 'timestamp'",
        ),
        (
            f"ASK {STREAM} {{ ?s ?p ?o FILTER NOT EXISTS {{ ?s ?q ?z FILTER(timestamp(?s) > 5) }} }}",
            "column 87: expected no timestamp() inside of EXISTS, found 'timestamp'",
        ),
        (f"ASK {STREAM} {{ ?s ?p ?o FILTER(timestamp(<s>) > 5) }}", "expected a variable in timestamp(?x), found"),
        (
            f"ASK {STREAM} {{ ?s ?p ?o FILTER(<http://larkc.eu/csparql/sparql/jena/ext#timestamp>(?x) > 5) }}",
            "column 58: expected a variable in timestamp() that a triple pattern of this group binds",
        ),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(text)
    assert message in str(caught.value)


def test_an_update_has_no_window() -> None:
    with pytest.raises(QuerySyntaxError, match=r"column 45: expected a window for timestamp\(\) to read"):
        parse_update("INSERT { ?s <at> ?t } WHERE { ?s ?p ?o BIND(timestamp(?s) AS ?t) }")
