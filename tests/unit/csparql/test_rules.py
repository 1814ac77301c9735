"""Each rewrite: where it applies, and where it must not. That answers stay the same is in test_translation.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.csparql.algebra_text import algebra_text
from tests.unit.csparql.counted_triples import CountedTriples
from wukongs.csparql.algebra import Exists, Extend, Group, Node, OrderBy
from wukongs.csparql.explain import explain
from wukongs.csparql.parser import parse_query
from wukongs.csparql.rules import RULES, lift_filters, merge_bgps, push_filters, rewrite, sink_joins, split_filters
from wukongs.csparql.scope import exists_patterns, node_expressions
from wukongs.csparql.walk import parts_of

A, B, C = "?a <A> ?b", "?b <B> ?c", "?c <C> ?d"


def after(rule: Callable[[Node], Node], group: str) -> str:
    return algebra_text(rule(parse_query(f"ASK {group}").pattern))


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (f"{{ {A} {{ {{ {B} }} UNION {{ {C} }} }} {C} }}", "([A C] * ([B] | [C]))"),
        (f"{{ {{ {{ {A} }} UNION {{ {B} }} }} {B} . {C} }}", "(([A] | [B]) * [B C])"),
        (f"{{ OPTIONAL {{ {A} {{ {B} {{ {{}} UNION {{}} }} }} {C} }} }}", "([] ? ([A B C] * ([] | [])))"),
    ],
)
def test_merge_bgps(group: str, expected: str) -> None:
    assert after(merge_bgps, group) == expected


def test_a_filter_makes_no_product_of_what_a_path_links() -> None:
    """It waits for the path where it would have to be asked of triple patterns that share no variable."""
    linked = "?a <A> ?b . ?b <P>* ?c . ?c <C> ?d"
    for condition, expected in {
        "?a < ?b": "(filter((?a < ?b), [A C]) * ",
        "?a < ?d": "filter((?a < ?d), ([A C] * ",
        "?a < ?nobody": "filter((?a < ?nobody), ([A C] * ",
        "EXISTS { ?a <X> ?x }": "filter(EXISTS",
    }.items():
        assert after(push_filters, f"{{ {linked} FILTER({condition}) }}").startswith(expected), condition


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (f"{{ {A} {{ {B} FILTER(?c) }} }}", "filter(?c, ([A] * [B]))"),
        (f"{{ {A} {{ {B} FILTER(?a) }} }}", "([A] * filter(?a, [B]))"),
        (f"{{ {A} {{ {B} FILTER(?c && ?z) }} }}", "([A] * filter((?c && ?z), [B]))"),
        (
            f"{{ GRAPH <g> {{ {A} FILTER(?a) }} GRAPH <h> {{ {B} FILTER(?b) }} }}",
            "filter(?a, filter(?b, ([A@<g>] * [B@<h>])))",
        ),
        (f"{{ {{ {{ {A} }} UNION {{ {B} }} }} {{ {C} FILTER(?c) }} }}", "(([A] | [B]) * filter(?c, [C]))"),
        (f"{{ {A} OPTIONAL {{ {B} {{ {C} FILTER(?d) }} }} }}", "([A] ? filter(?d, ([B] * [C])))"),
    ],
)
def test_lift_filters(group: str, expected: str) -> None:
    assert after(lift_filters, group) == expected


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (f"{{ {A} FILTER(?a && ?b && ?c) }}", "filter(?c, filter(?b, filter(?a, [A])))"),
        (f"{{ {A} FILTER(?a || ?b && ?c) }}", "filter((?a || (?b && ?c)), [A])"),
        (f"{{ {A} OPTIONAL {{ {B} FILTER(?a && ?b) }} }}", "([A] ? [B] if (?a && ?b))"),
    ],
)
def test_split_filters(group: str, expected: str) -> None:
    assert after(split_filters, group) == expected


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (f"{{ {A} OPTIONAL {{ {B} }} FILTER(?b) }}", "(filter(?b, [A]) ? [B])"),
        (f"{{ {A} OPTIONAL {{ {B} }} FILTER(?c) }}", "filter(?c, ([A] ? [B]))"),
        (f"{{ {A} OPTIONAL {{ {B} }} FILTER(!BOUND(?c)) }}", "filter(!BOUND(?c), ([A] ? [B]))"),
        (f"{{ {{ {A} }} UNION {{ {B} }} FILTER(?c) }}", "(filter(?c, [A]) | filter(?c, [B]))"),
        (f"{{ {A} {{ {{ {B} }} UNION {{ {C} }} }} FILTER(?a) }}", "(filter(?a, [A]) * ([B] | [C]))"),
        (f"{{ {A} {{ {{ {B} }} UNION {{ {C} }} }} FILTER(?c) }}", "([A] * (filter(?c, [B]) | filter(?c, [C])))"),
        (f"{{ {A} {{ {{ {B} }} UNION {{ {C} }} }} FILTER(?d) }}", "filter(?d, ([A] * ([B] | [C])))"),
        (f"{{ {A} BIND(1 AS ?z) FILTER(?a) }}", "extend(?z=1, filter(?a, [A]))"),
        (f"{{ {A} BIND(1 AS ?z) FILTER(?z) }}", "filter(?z, extend(?z=1, [A]))"),
        (f"{{ {A} OPTIONAL {{ {B} }} FILTER(1 = 1) }}", "filter((1 = 1), ([A] ? [B]))"),
        (f"{{ {A} MINUS {{ {B} }} FILTER(?b) }}", "(filter(?b, [A]) - [B])"),
        (f"{{ {{ SELECT DISTINCT ?b {{ {A} }} }} FILTER(?b) }}", "distinct(project(?b, filter(?b, [A])))"),
        (f"{{ {{ SELECT ?b {{ {A} }} LIMIT 1 }} FILTER(?b) }}", "filter(?b, slice(project(?b, [A])))"),
        (f"{{ {{ SELECT ?b {{ {A} }} GROUP BY ?b }} FILTER(?b) }}", "project(?b, filter(?b, group(?b, [A])))"),
        (
            f"{{ {A} {{ {{ {C} }} UNION {{ {C} }} }} FILTER EXISTS {{ ?b <D> ?e }} }}",
            "(filter(EXISTS {[D]}, [A]) * ([C] | [C]))",
        ),
        (
            f"{{ {A} {{ {{ {C} }} UNION {{ {C} }} }} FILTER EXISTS {{ ?b <D> ?c }} }}",
            "filter(EXISTS {[D]}, ([A] * ([C] | [C])))",
        ),
    ],
)
def test_push_filters(group: str, expected: str) -> None:
    assert after(push_filters, group) == expected


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (f"{{ {A} OPTIONAL {{ {B} }} ?a <D> ?e }}", "(([A] * [D]) ? [B])"),
        (f"{{ {A} OPTIONAL {{ {B} }} {C} }}", "(([A] ? [B]) * [C])"),
        (f"{{ {A} OPTIONAL {{ {B} FILTER(?e) }} ?a <D> ?e }}", "(([A] ? [B] if ?e) * [D])"),
        (f"{{ {A} OPTIONAL {{ {B} }} OPTIONAL {{ ?a <D> ?e }} ?a <E> ?f }}", "((([A] * [E]) ? [B]) ? [D])"),
        (f"{{ OPTIONAL {{ {B} }} {A} }}", "(([] ? [B]) * [A])"),
    ],
)
def test_sink_joins(group: str, expected: str) -> None:
    assert after(sink_joins, group) == expected


def test_all_rules_together() -> None:
    query = parse_query(
        f"SELECT ?a {{ {A} OPTIONAL {{ ?b <D> ?e }} GRAPH <g> {{ {B} FILTER(?b && ?c) }} GRAPH ?g {{ {C} }} "
        "FILTER(?e) } LIMIT 1"
    )
    text = explain(rewrite(query), CountedTriples({}))
    assert [line.strip() for line in text.splitlines() if "  out  " not in line] == [
        "SELECT",
        "Slice offset 0 limit 1",
        "Project ?a",
        "Filter ?e",
        "LeftJoin",
        "Bgp of 3",
        "filter ?b",
        "filter ?c",
        "Bgp of 1 from ?b",
    ]


def test_rules_go_into_exists_and_subqueries() -> None:
    query = parse_query(f"ASK {{ FILTER EXISTS {{ {A} {{ {B} FILTER(?c) }} }} {{ SELECT ?a {{ {A} {{ {B} }} }} }} }}")
    shown = algebra_text(rewrite(query).pattern)
    assert shown == "project(?a, filter(EXISTS {filter(?c, [A B])}, [A B]))"


def test_exists_of_groups_and_orders_is_bound_below_them() -> None:
    inner = "{ SELECT ?s (COUNT(EXISTS { ?s ?p ?o }) AS ?n) { ?s ?p ?o } GROUP BY ?s }"
    again = "SUM(IF(EXISTS { ?s ?p ?o }, 1, 0) + IF(EXISTS { ?s ?p ?o }, 2, 0))"
    query = parse_query(f"SELECT ?s ({again} AS ?m) {{ {inner} }} GROUP BY ?s ORDER BY (EXISTS {{ ?s ?p ?m }})")
    found = [one for one in parts_of(rewrite(query).pattern) if isinstance(one, Extend | Group | OrderBy)]
    made = [one.variable.name for one in found if isinstance(one, Extend) and isinstance(one.expression, Exists)]
    assert len(set(made)) == len(made) == 3
    others = [one for one in found if not isinstance(one, Extend)]
    assert not any(exists_patterns(one) for node in others for one in node_expressions(node))
    assert rewrite(rewrite(query)) == rewrite(query)


def test_rules_leave_nothing_to_do() -> None:
    """Applying all rules a second time changes nothing."""
    query = rewrite(parse_query(f"SELECT * {{ {A} OPTIONAL {{ {B} }} {{ {C} FILTER(?c) }} FILTER(?a && ?b) }}"))
    assert rewrite(query) == query
    assert len(RULES) == 7


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"SELECT DISTINCT ?a {{ {A} }} ORDER BY DESC(?a) LIMIT 3", "slice(orderby(distinct(project(?a, [A]))))"),
        (f"SELECT DISTINCT ?a {{ {A} }} ORDER BY ?b LIMIT 3", "slice(distinct(project(?a, orderby([A]))))"),
        (f"SELECT DISTINCT ?a {{ {A} }} ORDER BY RAND() LIMIT 3", "slice(distinct(project(?a, orderby([A]))))"),
        (f"SELECT DISTINCT ?a {{ {A} }} ORDER BY ?a", "distinct(project(?a, orderby([A])))"),
    ],
)
def test_distinct_rows_are_ordered_below_a_limit(text: str, expected: str) -> None:
    assert algebra_text(rewrite(parse_query(text)).pattern) == expected
