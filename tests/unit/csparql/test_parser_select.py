"""Query forms, projection, grouping and the other solution modifiers."""

from __future__ import annotations

import pytest

from wukongs.csparql.algebra import (
    Aggregate,
    Bgp,
    Call,
    Distinct,
    Extend,
    Filter,
    Group,
    OrderBy,
    Project,
    Query,
    Slice,
    TriplePattern,
)
from wukongs.csparql.parser import parse_query
from wukongs.csparql.terms import XSD, Variable, iri, literal
from wukongs.errors import QuerySyntaxError

S, P, OBJ, N, M = (Variable(name) for name in "sponm")
AGG1, AGG2 = Variable(".agg1"), Variable(".agg2")
SPO = Bgp((TriplePattern(S, P, OBJ),))
ONE = literal("1", XSD + "integer")


def pattern_of(head: str, tail: str = "") -> object:
    return parse_query(f"{head} {{ ?s ?p ?o }} {tail}").pattern


def test_plain_select() -> None:
    assert parse_query("SELECT ?o ?s ?o { ?s ?p ?o }") == Query(
        "select", Project(SPO, (OBJ, S)), ("o", "s"), (), parse_query("ASK {}").dataset
    )


def test_order_of_the_modifiers() -> None:
    node = pattern_of("SELECT DISTINCT ?s (?o + 1 AS ?n)", "ORDER BY DESC(?n) ?s (?o) ASC(?p) LIMIT 5 OFFSET 2")
    extended = Extend(SPO, N, Call("+", (OBJ, ONE)))
    ordered = OrderBy(extended, ((N, True), (S, False), (OBJ, False), (P, False)))
    assert node == Slice(Distinct(Project(ordered, (S, N))), 2, 5)


def test_offset_before_limit_and_alone() -> None:
    assert pattern_of("SELECT *", "OFFSET 3 LIMIT 0") == Slice(Project(SPO, (S, P, OBJ)), 3, 0)


def test_limits_are_integers_of_any_size() -> None:
    """More rows than there can be are all rows: a number is not refused, nor read in quadratic time."""
    found = pattern_of("SELECT *", f"LIMIT {'9' * 100_000} OFFSET {'0' * 100_000}7")
    assert found == Slice(Project(SPO, (S, P, OBJ)), 7, 10**15)
    assert pattern_of("SELECT *", "OFFSET 3") == Slice(Project(SPO, (S, P, OBJ)), 3, None)
    assert pattern_of("SELECT REDUCED *", "OFFSET 0") == Project(SPO, (S, P, OBJ))


def test_select_expressions_see_earlier_ones() -> None:
    node = pattern_of("SELECT (?o AS ?n) (?n AS ?m)")
    assert node == Project(Extend(Extend(SPO, N, OBJ), M, N), (N, M))


def test_group_by_and_having() -> None:
    node = pattern_of("SELECT ?s (COUNT(*) AS ?n)", "GROUP BY ?s HAVING (COUNT(*) > 1) (MAX(?o) < 1)")
    group = Group(SPO, (S,), ((AGG1, Aggregate("COUNT", None)), (AGG2, Aggregate("MAX", OBJ))))
    having = Filter(Call("<", (AGG2, ONE)), Filter(Call(">", (AGG1, ONE)), group))
    assert node == Project(Extend(having, N, AGG1), (S, N))


def test_having_alone_groups_nothing() -> None:
    """Without GROUP BY and aggregates the step that groups is left out (18.2.4.1), and HAVING filters."""
    condition = Call("=", (S, ONE))
    assert pattern_of("SELECT ?s", "HAVING (?s = 1)") == Project(Filter(condition, SPO), (S,))


def test_group_keys_that_are_expressions() -> None:
    node = pattern_of("SELECT ?n (SAMPLE(?o) AS ?m)", "GROUP BY (?o + 1 AS ?n) STR(?p) (?s)")
    keyed = Extend(SPO, N, Call("+", (OBJ, ONE)))
    keyed = Extend(keyed, Variable(".key1"), Call("STR", (P,)))
    keyed = Extend(keyed, Variable(".key2"), S)
    group = Group(keyed, (N, Variable(".key1"), Variable(".key2")), ((AGG1, Aggregate("SAMPLE", OBJ)),))
    assert node == Project(Extend(group, M, AGG1), (N, M))


def test_aggregate_without_group_by_is_one_group() -> None:
    node = pattern_of("SELECT (COUNT(?s) / COUNT(?o) AS ?n)")
    group = Group(SPO, (), ((AGG1, Aggregate("COUNT", S)), (AGG2, Aggregate("COUNT", OBJ))))
    assert node == Project(Extend(group, N, Call("/", (AGG1, AGG2))), (N,))


def test_order_by_an_aggregate_and_by_an_ungrouped_variable() -> None:
    node = pattern_of("SELECT ?s", "GROUP BY ?s ORDER BY COUNT(?p) DESC(?o) ?s")
    group = Group(SPO, (S,), ((AGG1, Aggregate("COUNT", P)), (AGG2, Aggregate("SAMPLE", OBJ))))
    assert node == Project(OrderBy(group, ((AGG1, False), (AGG2, True), (S, False))), (S,))


def test_an_aggregate_may_take_the_name_of_what_it_hides() -> None:
    node = pattern_of("SELECT (SUM(?o) AS ?o)")
    assert node == Project(Extend(Group(SPO, (), ((AGG1, Aggregate("SUM", OBJ)),)), OBJ, AGG1), (OBJ,))


def test_ask() -> None:
    query = parse_query("ASK WHERE { ?s ?p ?o }")
    assert (query.form, query.pattern, query.variables, query.template) == ("ask", SPO, (), ())


def test_construct() -> None:
    query = parse_query("CONSTRUCT { ?s <q> _:a . _:a <q> ?o } WHERE { ?s ?p ?o . _:a ?p ?o } LIMIT 1")
    blank, other = Variable(".blank1"), Variable(".blank2")
    assert query.form == "construct"
    assert query.template == (TriplePattern(S, iri("q"), blank), TriplePattern(blank, iri("q"), OBJ))
    assert query.pattern == Slice(Bgp((TriplePattern(S, P, OBJ), TriplePattern(other, P, OBJ))), 0, 1)


def test_short_construct() -> None:
    query = parse_query("CONSTRUCT WHERE { ?s ?p ?o }")
    assert (query.template, query.pattern) == ((TriplePattern(S, P, OBJ),), SPO)
    assert parse_query("CONSTRUCT {} WHERE {}").template == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT {}", "column 8: expected '*', a variable or (expression AS ?variable) after SELECT, found '{'"),
        ("SELECT ?s COUNT(?o) {}", "column 11: expected FROM, WHERE or '{', found 'COUNT'"),
        (
            "SELECT ?o { ?s ?p ?o } GROUP BY ?s",
            "column 8: expected a variable of GROUP BY, or one inside of an aggregate, found the ungrouped '?o'",
        ),
        ("SELECT ?s (COUNT(?o) AS ?n) { ?s ?p ?o }", "column 8: expected a variable of GROUP BY, or one inside of an"),
        (
            "SELECT (?o + COUNT(?s) AS ?n) { ?s ?p ?o }",
            "column 9: expected a variable of GROUP BY, or one inside of an",
        ),
        ("SELECT ((?o) AS ?n) { ?s ?p ?o } GROUP BY (?o)", "column 10: expected a variable of GROUP BY, or one inside"),
        (
            "SELECT * { ?s ?p ?o } GROUP BY ?s",
            "column 8: expected variables and aggregates in a query that groups, since",
        ),
        ("SELECT (1 AS ?n) (2 AS ?n) {}", "column 24: expected a variable after AS that is not in use yet, found '?n'"),
        ("SELECT (1 AS ?s) { ?s ?p ?o }", "column 14: expected a variable after AS that is not in use yet, found '?s'"),
        (
            "SELECT (1 AS ?n) {} GROUP BY (2 AS ?n)",
            "column 14: expected a variable after AS that is not in use yet, found",
        ),
        (
            "SELECT ?n { ?n ?p ?o } GROUP BY (2 AS ?n)",
            "column 39: expected a variable after AS that the query has not used",
        ),
        ("SELECT * {} LIMIT -1", "column 19: expected a whole number of rows, 0 or more, after LIMIT, found '-'"),
        ("SELECT * {} OFFSET 1.5", "column 20: expected a whole number of rows, 0 or more, after OFFSET, found '1.5'"),
        ("SELECT * {} LIMIT 1 LIMIT 2", "column 21: expected only one LIMIT, found 'LIMIT'"),
        ("SELECT * {} ORDER BY", "column 21: expected a variable, ASC(...), DESC(...) or an expression in parentheses"),
        ("SELECT * {} ORDER ?s", "column 19: expected BY after ORDER, found '?s'"),
        ("SELECT * {} ORDER BY DESC ?s", "column 27: expected '(' after DESC, found '?s'"),
        (
            "SELECT ?s {} GROUP BY",
            "column 22: expected a variable, a function or (expression AS ?variable) after GROUP BY",
        ),
        ("SELECT ?s {} GROUP BY ?s HAVING ?s", "column 33: expected an expression in parentheses or a function after"),
        ("SELECT * {} LIMIT 1 garbage", "column 21: expected the end of the query, found 'garbage'"),
        ("SELECT * {} ORDER BY ?s LIMIT 1 ORDER BY ?s", "column 33: expected the end of the query, found 'ORDER'"),
        ("CONSTRUCT {} {} ;", "column 17: expected the end of the query, found ';'"),
        ("CONSTRUCT { ?s ?p ?o FILTER(?s) } WHERE {}", "column 22: expected triples only, then '}', found 'FILTER'"),
        ("CONSTRUCT WHERE { GRAPH <g> { ?s ?p ?o } }", "column 19: expected triples only, then '}', found 'GRAPH'"),
        ("CONSTRUCT ?s", "column 11: expected the template { ... } or WHERE after CONSTRUCT, found '?s'"),
        (
            "",
            "line 1, column 1: expected SELECT, ASK, CONSTRUCT or DESCRIBE (or PREFIX, BASE or REGISTER QUERY",
        ),
        (
            "FIND ?x",
            "column 1: expected SELECT, ASK, CONSTRUCT or DESCRIBE (or PREFIX, BASE or REGISTER QUERY",
        ),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(text)
    assert message in str(caught.value)


def test_an_alias_of_select_is_unbound_in_having() -> None:
    """HAVING filters before SELECT binds (18.2.4.1): the name stands for a value of the group, and there is none."""
    node = pattern_of("SELECT (COUNT(?o) AS ?n)", "HAVING (?n > 1)")
    group = Group(SPO, (), ((AGG1, Aggregate("COUNT", OBJ)),))
    assert node == Project(Extend(Filter(Call(">", (N, ONE)), group), N, AGG1), (N,))


def test_errors_name_their_source() -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query("ASK {", source="traffic.rq")
    error = caught.value
    assert str(error) == (
        "traffic.rq, line 1, column 6: expected '}' to close the group, found the end of the query; "
        "the '{' of line 1, column 5 is not closed"
    )
    assert (error.line, error.column, error.expected, error.found) == (
        1,
        6,
        "'}' to close the group",
        "the end of the query",
    )
