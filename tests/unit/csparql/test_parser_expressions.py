"""Expressions: precedence, operators, functions, aggregates."""

from __future__ import annotations

import pytest

from wukongs.csparql.algebra import Aggregate, Call, Expression, Extend, Filter, Group, Project
from wukongs.csparql.explain import format_expression
from wukongs.csparql.functions import ALIASES, FUNCTIONS, PER_ROW, calls_any, depends_on_moment
from wukongs.csparql.parser import parse_query
from wukongs.csparql.terms import Variable
from wukongs.errors import QuerySyntaxError


def parsed(text: str) -> str:
    """Return a filter's expression with all its parentheses; integers without their datatype."""
    pattern = parse_query(f"ASK {{ FILTER ({text}) }}").pattern
    assert isinstance(pattern, Filter)
    return format_expression(pattern.condition).replace("^^<http://www.w3.org/2001/XMLSchema#integer>", "")


def projected(text: str) -> tuple[Expression, dict[Variable, Aggregate]]:
    """Return what SELECT reports for an expression over one group of all rows, and the aggregates of the group."""
    node = parse_query(f"SELECT ({text} AS ?reported) {{ ?x ?y ?z }}").pattern
    assert isinstance(node, Project)
    assert isinstance(node.pattern, Extend)
    assert isinstance(node.pattern.pattern, Group)
    return node.pattern.expression, dict(node.pattern.pattern.aggregates)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("?a || ?b && ?c", "(?a || (?b && ?c))"),
        ("(?a || ?b) && ?c", "((?a || ?b) && ?c)"),
        ("?a && ?b && ?c", "((?a && ?b) && ?c)"),
        ("?a = ?b && ?c != ?d", "((?a = ?b) && (?c != ?d))"),
        ("?a + ?b * ?c", "(?a + (?b * ?c))"),
        ("?a - ?b - ?c", "((?a - ?b) - ?c)"),
        ("?a / ?b * ?c", "((?a / ?b) * ?c)"),
        ("?a < ?b + 1", '(?a < (?b + "1"))'),
        ("!?a = ?b", "(!?a = ?b)"),
        ("! (?a = ?b)", "!(?a = ?b)"),
        ("-?a + ?b", "(-?a + ?b)"),
        ("+?a", "--?a"),
        ("-1", '"-1"'),
        ("- 1", '-"1"'),
        ("?a -1", '(?a - "1")'),
        ("?a-1", '(?a - "1")'),
        ("2 * -3", '("2" * "-3")'),
        ("?a IN (1, ?b)", '(?a IN ("1", ?b))'),
        ("?a NOT IN (1)", '(?a NOT IN ("1"))'),
        ("?a in ()", "(?a IN ())"),
        ("bound(?x)", "BOUND(?x)"),
        ("isURI(?x) || ISIRI(?y)", "(ISIRI(?x) || ISIRI(?y))"),
        ("sameTerm(?x, <a>)", "SAMETERM(?x, <a>)"),
        ("IF(?a, ?b, ?c)", "IF(?a, ?b, ?c)"),
        ("COALESCE(?a, 1)", 'COALESCE(?a, "1")'),
        ("COALESCE()", "COALESCE()"),
        ("str(lang(?x)) = 'en'", '(STR(LANG(?x)) = "en")'),
        ("datatype(?x) = <t>", "(DATATYPE(?x) = <t>)"),
        ("isBlank(?x) && isLiteral(?x) && isNumeric(?x)", "((ISBLANK(?x) && ISLITERAL(?x)) && ISNUMERIC(?x))"),
        ("?a<<http://e/>", "(?a < <http://e/>)"),
        ("regex(?a, 'b')", 'REGEX(?a, "b")'),
        ("Substr(?a, 1, 2) = 'x'", '(SUBSTR(?a, "1", "2") = "x")'),
        ("concat()", "CONCAT()"),
        ("uri(?a) = iri('b')", '(IRI(?a) = IRI("b"))'),
        ("now() > rand()", "(NOW() > RAND())"),
        ("bnode() = bnode(?a)", "(BNODE() = BNODE(?a))"),
        ("<f>(?a, 1)", '<f>(?a, "1")'),
        ("<f>()", "<f>()"),
    ],
)
def test_structure(text: str, expected: str) -> None:
    assert parsed(text) == expected


def test_a_long_chain_is_not_deep() -> None:
    assert parsed(" || ".join(f"?v{number}" for number in range(5000))).count("||") == 4999


def test_too_deep_is_a_named_error() -> None:
    with pytest.raises(QuerySyntaxError, match="expected a query that is nested less deeply"):
        parsed("(" * 5000 + "1" + ")" * 5000)


@pytest.mark.parametrize(
    ("text", "aggregate"),
    [
        ("COUNT(*)", Aggregate("COUNT", None)),
        ("count(distinct *)", Aggregate("COUNT", None, True)),
        ("SUM(DISTINCT ?x)", Aggregate("SUM", Variable("x"), True)),
        ("MIN(?x)", Aggregate("MIN", Variable("x"))),
        ("MAX(?x)", Aggregate("MAX", Variable("x"))),
        ("AVG(?x)", Aggregate("AVG", Variable("x"))),
        ("SAMPLE(?x)", Aggregate("SAMPLE", Variable("x"))),
        ("GROUP_CONCAT(?x)", Aggregate("GROUP_CONCAT", Variable("x"), False, " ")),
        ("GROUP_CONCAT(DISTINCT ?x; separator = ', ')", Aggregate("GROUP_CONCAT", Variable("x"), True, ", ")),
    ],
)
def test_aggregates_leave_a_variable(text: str, aggregate: Aggregate) -> None:
    expression, aggregates = projected(text)
    assert expression == Variable(".agg1")
    assert aggregates == {Variable(".agg1"): aggregate}


def test_equal_aggregates_share_their_variable() -> None:
    expression, aggregates = projected("SUM(?x) / SUM(?x) + COUNT(?x)")
    assert format_expression(expression) == "((?.agg1 / ?.agg1) + ?.agg2)"
    assert [aggregate.name for aggregate in aggregates.values()] == ["SUM", "COUNT"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FILTER ?x", "column 14: expected an expression in parentheses or a function after FILTER, found '?x'"),
        ("FILTER (?x", "column 18: expected ')' or an operator, found '}'"),
        ("FILTER (?x +)", "column 19: expected an expression, found ')'"),
        ("FILTER (_:x)", "column 15: expected an expression, found '_:x'"),
        ("FILTER (STR(?x, ?y))", "column 15: expected 1 argument for STR, found 2"),
        ("FILTER (sameTerm(?x))", "column 15: expected 2 arguments for SAMETERM, found 1"),
        ("FILTER regex(?x)", "column 14: expected 2 or 3 arguments for REGEX, found 1"),
        ("FILTER regex(?x, 1, 2, 3)", "column 14: expected 2 or 3 arguments for REGEX, found 4"),
        ("FILTER (bnode(1, 2))", "column 15: expected 0 or 1 argument for BNODE, found 2"),
        ("FILTER (now(1) = 1)", "column 15: expected 0 arguments for NOW, found 1"),
        ("FILTER (sha224(?x) = 1)", "column 15: expected an expression, found 'sha224'"),
        ("FILTER (BOUND(1))", "column 21: expected a variable in BOUND(...), found '1'"),
        (
            "FILTER (COUNT(?x) > 1)",
            "column 15: expected no aggregate here (only in SELECT, HAVING and ORDER BY, and not",
        ),
        ("FILTER <a>", "column 18: expected '(' after the name of a function, found '}'"),
        ("FILTER (?x IN ?y)", "column 21: expected '(' and a list of expressions, found '?y'"),
        ("FILTER (?a = ?b = ?c)", "column 23: expected ')' or an operator, found '='"),
    ],
)
def test_refused_expressions(text: str, message: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(f"ASK {{ {text} }}")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT (SUM(COUNT(?x)) AS ?n) {}", "column 13: expected no aggregate here"),
        ("SELECT (SUM(?x, ?y) AS ?n) {}", "column 15: expected ')' after the argument of SUM, found ','"),
        ("SELECT (SUM(*) AS ?n) {}", "column 13: expected an expression, found '*'"),
        ("SELECT (GROUP_CONCAT(?x; ',') AS ?n) {}", "column 26: expected SEPARATOR after ';', found '',''"),
        ("SELECT (?x + 1) {}", "column 15: expected AS and a variable after the expression, found ')'"),
    ],
)
def test_refused_aggregates(text: str, message: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(text)
    assert message in str(caught.value)


def test_iri_knows_the_base_where_it_stands() -> None:
    pattern = parse_query("BASE <http://e/a> ASK { FILTER (IRI('b') = ?x) }").pattern
    assert isinstance(pattern, Filter)
    assert format_expression(pattern.condition) == '(IRI("b", <http://e/a>) = ?x)'


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_is_also_a_constraint(name: str) -> None:
    arguments = ", ".join("?x" for _ in range(FUNCTIONS[name][0]))
    pattern = parse_query(f"ASK {{ FILTER {name.lower()}({arguments}) }}").pattern
    assert isinstance(pattern, Filter)
    assert isinstance(pattern.condition, Call)
    assert pattern.condition.op == ALIASES.get(name, name)


def test_functions_with_other_values_each_time_are_found_anywhere() -> None:
    assert depends_on_moment(parse_query("SELECT * { ?s ?p ?o FILTER(1 = IF(?o, ABS(RAND()), 2)) }").pattern)
    assert depends_on_moment(parse_query("SELECT (MAX(NOW()) AS ?t) { }").pattern)
    assert not depends_on_moment(parse_query("SELECT * { ?s <now> 'RAND()' FILTER(ABS(?o) = 1) }").pattern)
    (filtered,) = [parse_query("ASK { FILTER(1 IN (2, BNODE())) }").pattern]
    assert isinstance(filtered, Filter)
    assert calls_any(filtered.condition, PER_ROW)
    assert not calls_any(filtered.condition, frozenset(("NOW",)))
