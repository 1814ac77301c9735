"""Deep queries end in an answer or a named error, at stated limits, and every walk over the algebra goes that deep."""

from __future__ import annotations

import sys

import pytest

from tests.unit.csparql.counted_triples import CountedTriples
from wukongs.csparql import parser_update
from wukongs.csparql.algebra import Query
from wukongs.csparql.explain import explain
from wukongs.csparql.nesting import (
    BRACKETS_MAX,
    DEPTH_MAX,
    PATTERNS_MAX,
    RECURSION_LIMIT,
    TOKENS_MAX,
    UPDATE_CHARACTERS_MAX,
    algebra_depth,
)
from wukongs.csparql.parser import parse_query
from wukongs.csparql.parser_update import parse_update
from wukongs.csparql.rules import rewrite
from wukongs.csparql.updates import InsertData
from wukongs.errors import QuerySyntaxError

WRAPPED = {  # (before, opening, inside, closing, after), and how many brackets one opening adds
    "parentheses": ("ASK { FILTER(", "(", "1", ")", ") }", 1),
    "braces": ("ASK {", "{", "?s ?p ?o", "}", "}", 1),
    "blank nodes": ("ASK { ?s ?p ", "[ ?p ", "1", "]", " }", 1),
    "lists": ("ASK { ?s ?p ", "(", "1", ")", " }", 1),
    "optionals": ("ASK { ?s ?p ?o ", "OPTIONAL { ?s ?p ?o ", "", "}", " }", 1),
    "graphs": ("ASK {", "GRAPH <g> {", "?s ?p ?o", "}", "}", 1),
    "graphs of a variable": ("ASK {", "GRAPH ?g {", "?s ?p ?o", "}", "}", 1),
    "calls": ("ASK { FILTER(", "STR(", "1", ")", ") }", 1),
    "negations": ("ASK { FILTER(", "!", "?x", "", ") }", 1),
    "signs": ("ASK { FILTER(", "- ", "?x", "", ") }", 1),
}
CHAINS = {  # (before, what is repeated, between, after)
    "optionals": ("ASK { ?s ?p ?o ", "OPTIONAL {{ ?s ?p ?o{0} }}", " ", " }"),
    "binds": ("ASK { ?s ?p ?o ", "BIND(?o AS ?o{0})", " ", " }"),
    "groups": ("ASK {", "{{ ?s ?p ?o FILTER(?o != {0}) }}", " ", "}"),
    "sums": ("ASK { FILTER(", "?o{0}", " + ", ") }"),
    "products": ("ASK { FILTER(", "?o{0}", " / ", ") }"),
    "sums in an aggregate": ("SELECT (SUM(", "?o{0}", " + ", ") AS ?sum) {}"),
    "projections": ("SELECT ", "(?o AS ?o{0})", " ", " { ?s ?p ?o }"),
}
FLAT = {
    "unions": ("ASK { ", "{{ ?s ?p {0} }}", " UNION ", " }"),
    "conjunctions": ("ASK { ?s ?p ?o FILTER(", "?o != {0}", " && ", ") }"),
    "disjunctions": ("ASK { ?s ?p ?o FILTER(", "?o = {0}", " || ", ") }"),
    "filters": ("ASK { ?s ?p ?o ", "FILTER(?o != {0})", " ", " }"),
    "a list of IN": ("ASK { ?s ?p ?o FILTER(?o IN (", "{0}", ", ", ")) }"),
    "graphs": ("SELECT * ", "FROM <http://ex/{0}>", " ", " { ?s ?p ?o }"),
    "order": ("SELECT * { ?s ?p ?o } ORDER BY ", "?o{0}", " ", ""),
}


def wrapped(name: str, depth: int) -> str:
    before, opening, inside, closing, after, _ = WRAPPED[name]
    return before + opening * depth + inside + closing * depth + after


def repeated(parts: tuple[str, str, str, str], count: int) -> str:
    before, pattern, between, after = parts
    return before + between.join(pattern.format(number) for number in range(count)) + after


def walked(text: str) -> Query:
    """Parse a query and do with it what is done to every query."""
    query = rewrite(parse_query(text))
    assert explain(query, CountedTriples({}))
    assert hash(query) == hash(query)
    return query


@pytest.mark.parametrize("name", WRAPPED)
def test_nesting_below_the_limit_works(name: str) -> None:
    walked(wrapped(name, BRACKETS_MAX - 6))


def test_exists_in_exists_is_not_read_twice_at_each_level() -> None:
    walked("ASK {" + "?s ?p ?o FILTER EXISTS { " * 100 + "?s ?p ?o" + " }" * 100 + "}")


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("depth", [BRACKETS_MAX + 1, 10_000])
def test_nesting_above_the_limit_is_a_named_error(name: str, depth: int) -> None:
    with pytest.raises(QuerySyntaxError, match=r"nested less deeply \(at most 256 brackets\)") as caught:
        parse_query(wrapped(name, depth))
    assert caught.value.line == 1
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "groups" else []) for name in CHAINS]
)
def test_chains_below_the_limit_work(name: str) -> None:
    query = walked(repeated(CHAINS[name], DEPTH_MAX - 10))
    assert algebra_depth(query.pattern) <= DEPTH_MAX


@pytest.mark.parametrize("name", CHAINS)
def test_chains_above_the_limit_are_named_errors(name: str) -> None:
    for count in (DEPTH_MAX + 1, 5_000):
        with pytest.raises(QuerySyntaxError, match=r"at most 500|nested less deeply"):
            parse_query(repeated(CHAINS[name], count))


@pytest.mark.parametrize("name", FLAT)
def test_long_lists_are_not_deep(name: str) -> None:
    query = walked(repeated(FLAT[name], 3_000))
    assert algebra_depth(query.pattern) < 40


def test_chains_in_chains_cannot_hide() -> None:
    binds = [" ".join(f"BIND(1 AS ?b{level}x{number})" for number in range(100)) for level in range(6)]
    text = "ASK { ?s ?p ?o " + "OPTIONAL { ?s ?p ?o " * 6 + "".join(f"{chain} }}" for chain in binds) + " }"
    with pytest.raises(QuerySyntaxError, match=r"at most 500 levels of algebra .*, found 6\d\d"):
        parse_query(text)


def test_more_tokens_than_a_query_may_have_is_a_named_error() -> None:
    text = "ASK { VALUES ?x { " + "1 " * TOKENS_MAX + "} }"
    with pytest.raises(QuerySyntaxError, match=r"expected at most 300000 tokens in a query \(.*\), found 300008"):
        parse_query(text)


def test_more_patterns_than_can_be_planned_are_a_named_error() -> None:
    fits = "ASK { " + "?s ?p ?o . " * PATTERNS_MAX
    walked(fits + "}")
    with pytest.raises(QuerySyntaxError, match="at most 1000 triple patterns side by side, found 1001"):
        parse_query(fits + "?s ?p ?o }")
    parse_query("CONSTRUCT { " + "?s ?p ?o . " * 2 * PATTERNS_MAX + "} {}")
    parse_update("INSERT DATA { " + "<s> <p> <o> . " * 2 * PATTERNS_MAX + "}")


def test_updates_have_the_same_limits() -> None:
    with pytest.raises(QuerySyntaxError, match="nested less deeply"):
        parse_update("DELETE WHERE { ?s ?p " + "[ ?p " * 300 + "1" + "]" * 300 + "}")
    for count, fits in ((400, True), (600, False)):
        text = "DELETE {} WHERE { ?s ?p ?o FILTER(" + " + ".join(["?o"] * count) + ") }"
        if fits:
            parse_update(text)
        else:
            with pytest.raises(QuerySyntaxError, match="at most 500 levels"):
                parse_update(text)


def test_an_update_has_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    assert UPDATE_CHARACTERS_MAX == 1 << 28
    monkeypatch.setattr(parser_update, "UPDATE_CHARACTERS_MAX", 40)
    fits = "CLEAR GRAPH <http://example.org/graph>  "
    assert len(parse_update(fits).operations) == 1
    message = r"line 1, column 41: expected at most 40 characters in an update \(load a file of data\), found 41"
    with pytest.raises(QuerySyntaxError, match=message):
        parse_update(fits + ";")


def test_data_are_not_bound_by_the_tokens_of_a_query() -> None:
    (operation,) = parse_update("INSERT DATA { " + "<s> <p> 1, 2 . " * (TOKENS_MAX // 6 + 1) + "}").operations
    assert isinstance(operation, InsertData)
    assert sum(len(columns.objects) for columns in operation.columns) > TOKENS_MAX // 3


def test_depth_counts_expressions_and_patterns() -> None:
    assert algebra_depth(parse_query("ASK {}").pattern) == 1
    assert algebra_depth(parse_query("ASK { ?s ?p ?o }").pattern) == 1
    assert algebra_depth(parse_query("ASK { ?s ?p ?o FILTER(!(!?o)) }").pattern) == 3


def test_parsing_leaves_the_recursion_limit_alone() -> None:
    """It is raised at import, since all threads share it."""
    before = sys.getrecursionlimit()
    parse_query(wrapped("parentheses", BRACKETS_MAX - 6))
    assert sys.getrecursionlimit() == before >= RECURSION_LIMIT
