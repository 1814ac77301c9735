"""Rules as plain lists and others, the order in which they are followed, and the circles that are refused."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.unit.csparql.evaluator import Dataset, evaluate
from tests.unit.csparql.random_queries import random_dataset, random_query
from wukongs.csparql.algebra import DEFAULT, Bgp, Call, Extend, Filter, Group, Node, TriplePattern
from wukongs.csparql.parser_rules import parse_rules
from wukongs.csparql.terms import Term, Variable, iri
from wukongs.csparql.walk import join_all
from wukongs.errors import RuleError, WukongsError
from wukongs.rules.program import BRANCHES_MAX, Program, Rule, reads_of, rules_of, warnings_of
from wukongs.rules.sources import SHIPPED, read_rules

GOLDEN = Path(__file__).parent / "shipped_strata.txt"
X, Y, Z = Variable("x"), Variable("y"), Variable("z")
KINDS = ("pattern", "pattern", "filter", "union", "graph", "group", "values", "bind", "exists", "optional", "minus")


def rules(text: str, into: Term | None = None) -> list[Rule]:
    return [rule for parsed in parse_rules(text) for rule in rules_of(parsed, into)]


def written(pattern: str, head: str = "?x <h> ?y") -> str:
    return f"RULE r: CONSTRUCT {{ {head} }} WHERE {{ {pattern} }}"


def body(pattern: str, head: str = "?x <h> ?y") -> list[Rule]:
    return rules(written(pattern, head))


def triple(subject: Term | Variable, name: str, object_: Term | Variable) -> TriplePattern:
    return TriplePattern(subject, iri(name), object_)


def strata(text: str, into: Term | None = None) -> list[tuple[list[str], bool]]:
    found = Program.of(rules(text, into)).strata
    return [([rule.name for rule in stratum.rules], stratum.is_recursive) for stratum in found]


# --- plain rules ------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_rule() -> None:
    [rule] = body(
        "?x <p> ?y . GRAPH <g> { ?y <q> ?z } VALUES ?y { <a> <b> } BIND(?z + 1 AS ?w) FILTER(?w > 2 && ?z < 9) "
        "FILTER NOT EXISTS { ?x <r> ?v FILTER(?v != ?w) }",
        "?x <h> ?w",
    )
    assert rule.name == "r"
    assert rule.head == triple(X, "h", Variable("w"))
    assert rule.patterns == (triple(X, "p", Y), TriplePattern(Y, iri("q"), Z, iri("g")))
    assert [table.rows for table in rule.tables] == [((iri("a"),), (iri("b"),))]
    assert [variable for variable, _ in rule.binds] == [Variable("w")]
    assert [condition.op for condition in rule.conditions if isinstance(condition, Call)] == [">", "<"]
    [absent] = rule.absent
    assert absent.negated
    assert isinstance(absent.pattern, Filter)
    assert absent.pattern.pattern == Bgp((triple(X, "r", Variable("v")),))
    assert rule.aggregation is None
    assert rule.into is None


def test_each_triple_of_the_template_is_a_rule_and_each_branch() -> None:
    found = body("{ ?x <p> ?y } UNION { ?y <q> ?x } UNION { ?x <r> ?y } ?x a <T>", "?x <h> ?y . ?y <i> ?x . ?x <h> ?y")
    assert [(str(rule.head.predicate), str(rule.patterns[0].predicate)) for rule in found] == [
        ("<h>", "<p>"),
        ("<i>", "<p>"),
        ("<h>", "<q>"),
        ("<i>", "<q>"),
        ("<h>", "<r>"),
        ("<i>", "<r>"),
    ]
    assert {rule.name for rule in found} == {"r"}
    assert all(len(rule.patterns) == 2 for rule in found)


def test_paths_that_are_joins_and_unions_are_plain_rules() -> None:
    assert [len(rule.patterns) for rule in body("?x <p>/^<q> ?y")] == [2]
    assert [len(rule.patterns) for rule in body("?x <p>|<q> ?y")] == [1, 1]


def test_a_union_that_is_absent_is_two_absent_patterns() -> None:
    [rule] = body("?x <p> ?y FILTER NOT EXISTS { { ?x <q> ?y } UNION { ?y <q> ?x } }")
    assert [absent.pattern for absent in rule.absent] == [Bgp((triple(X, "q", Y),)), Bgp((triple(Y, "q", X),))]


def test_an_aggregate() -> None:
    [rule] = rules(
        "RULE r: CONSTRUCT { ?x <n> ?n } WHERE { SELECT ?x (COUNT(DISTINCT ?y) * 2 AS ?n) WHERE "
        "{ ?x <p> ?y FILTER(?y != <a>) FILTER NOT EXISTS { ?y <q> ?x } } GROUP BY ?x HAVING(COUNT(?y) > 2) }"
    )
    found = rule.aggregation
    assert found is not None
    assert found.keys == (X,)
    assert [(aggregate.name, aggregate.distinct) for _, aggregate in found.aggregates] == [
        ("COUNT", True),
        ("COUNT", False),
    ]
    [(variable, expression)] = found.binds
    assert variable == Variable("n")
    assert expression == Call("*", (found.aggregates[0][0], Term('"2"^^<http://www.w3.org/2001/XMLSchema#integer>')))
    [condition] = found.conditions
    assert isinstance(condition, Call)
    assert condition.arguments[0] == found.aggregates[1][0]
    assert (len(rule.patterns), len(rule.conditions), len(rule.absent)) == (1, 1, 1)


def test_into_goes_to_the_rules() -> None:
    [rule] = rules("RULE r: CONSTRUCT { ?x <h> ?y } WHERE { ?x <p> ?y }", iri("g"))
    assert rule.into == iri("g")
    assert (rule.head.graph, rule.patterns[0].graph) == (DEFAULT, DEFAULT)


@pytest.mark.parametrize(
    ("pattern", "expected", "found", "at"),
    [
        ("?x <p> ?z", "variables in the template", "?y", "?y }"),
        ("{ ?x <p> ?y } UNION { ?x <q> ?z }", "variables in the template", "?y", "?y } WHERE"),
        ("?x <p> ?z FILTER NOT EXISTS { ?x <q> ?y }", "variables in the template", "?y", "?y } WHERE"),
        ("?x <p> ?y FILTER(?z > 1)", "variables in FILTER that its group binds", "?z", "?z > 1"),
        ("?x <p> ?y FILTER(COALESCE(?z, 1) > 1)", "variables in FILTER that its group binds", "?z", "?z, 1"),
        ("{ ?x <p> ?y FILTER(?z > 1) } ?x <q> ?z", "variables in FILTER that its group binds", "?z", "?z > 1"),
        ("{ ?x <p> ?y FILTER NOT EXISTS { ?x <r> ?z } } ?x <q> ?z", "variables in FILTER", "?z", "?z } }"),
        ("?x <p> ?y FILTER NOT EXISTS { FILTER(?y > 1) }", "a triple pattern in NOT EXISTS", "none", "EXISTS"),
        ("?x <p> ?y OPTIONAL { ?y <q> ?v } FILTER NOT EXISTS { GRAPH <g> {} }", "a block of GRAPH", "another", "GRAPH"),
        ("?x <p> ?y OPTIONAL { GRAPH <g> { BIND(1 AS ?z) } }", "a block of GRAPH that begins", "another", "GRAPH"),
        ("?x <p>+ ?y OPTIONAL { GRAPH <urn:x-wukongs:x> { ?x <q> ?y } }", "a graph of your own", "wukongs:x", "GRAPH"),
        ("VALUES (?x ?y) { (1 2) } FILTER NOT EXISTS { VALUES ?x { 1 } }", "a triple pattern outside", "none", "r:"),
        ("?x <p> ?y FILTER NOT EXISTS { ?x <r> ?z FILTER(?v > 1) }", "variables in FILTER", "?v", "?v > 1"),
        ("BIND(?y AS ?z) ?x <p> ?y", "variables in BIND that its group binds", "?y", "?y AS"),
        ("?x <p> ?y BIND(?y AS ?z) ?z <q> ?y", "a variable after AS that stands nowhere else", "?z", "?z) ?z"),
        ("GRAPH <g> { BIND(1 AS ?z) ?x <p> ?y }", "a block of GRAPH that begins with triples", "another", "GRAPH"),
        ("GRAPH <urn:x-wukongs:inferred> { ?x <p> ?y }", "a graph of your own", "<urn:x-wukongs:inferred>", "GRAPH"),
        ("VALUES (?x ?y) { (1 2) }", "a triple pattern outside of NOT EXISTS", "none", "r:"),
        ("", "a triple pattern outside of NOT EXISTS", "none", "r:"),
    ],
)
def test_a_body_that_is_no_list_is_refused(pattern: str, expected: str, found: str, at: str) -> None:
    with pytest.raises(RuleError) as caught:
        body(pattern)
    error = caught.value
    assert expected in error.expected
    assert found in error.found
    assert error.line == 1
    assert written(pattern)[error.column - 1 :].startswith(at)
    assert error.suggestion


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("SELECT ?x WHERE { ?x <p> ?y }", "SELECT ... GROUP BY ?key"),
        ("SELECT (COUNT(*) AS ?y) WHERE { ?x <p> ?z }", "SELECT ... GROUP BY ?key"),
        ("SELECT ?x (COUNT(?v) AS ?y) WHERE { ?x <p> ?z } GROUP BY ?x", "variables in SELECT that its group binds"),
        ("SELECT ?x (COUNT(?z) AS ?y) WHERE { ?x <p> ?z } GROUP BY ?x HAVING(?z > 1)", "keys and aggregates only"),
        ("SELECT ?y (COUNT(?z) AS ?n) WHERE { ?y <p> ?z } GROUP BY ?y", "variables in the template"),
    ],
)
def test_a_group_that_is_none_is_refused(select: str, expected: str) -> None:
    with pytest.raises(RuleError, match="line 1, column") as caught:
        body(select)
    assert expected in caught.value.expected


@pytest.mark.parametrize(
    ("pattern", "patterns", "strict"),
    [
        ("?x <p> ?y OPTIONAL { ?y <q> ?z }", 1, ["OPTIONAL { ?y <q> ?z }"]),
        ("?x <p> ?y MINUS { ?y <q> ?z }", 1, ["MINUS { ?y <q> ?z }"]),
        ("?x <p> ?y FILTER EXISTS { ?y <q> ?z }", 1, ["EXISTS { ?y <q> ?z }"]),
        ("?x <p> ?y FILTER(?y > 1 || NOT EXISTS { ?x <q> ?y })", 1, ["NOT EXISTS { ?x <q> ?y }"]),
        ("?x <p> ?y BIND(NOT EXISTS { ?x <q> ?y } AS ?z)", 1, ["NOT EXISTS { ?x <q> ?y }"]),
        ("?x <p> ?y FILTER NOT EXISTS { ?x <q> ?y BIND(1 AS ?z) }", 1, ["NOT EXISTS { ?x <q> ?y }"]),
        (
            "?x <p> ?y FILTER NOT EXISTS { ?x <q> ?y FILTER NOT EXISTS { ?y <r> ?x } }",
            1,
            ["NOT EXISTS { ?x <q> ?y }", "NOT EXISTS { ?y <r> ?x }"],
        ),
        ("?x <p>+ ?y", 0, ["a path of ?from <p> ?to"]),
        ("?x <p> ?z . ?z <q>* ?y", 1, ["a path of ?from <q> ?to"]),
        ("?x <p> ?y . <a> <q>* ?z", 1, ["a path of ?from <q> ?to"]),
        ("?x <q>* ?y", 0, ["a path of ?from <q> ?to", "a path of ?from ? ?to"]),
        ("GRAPH <g> { ?x <p> ?z } ?z <q>* ?y", 1, ["a path of ?from <q> ?to", "a path of ?from ? ?to"]),
        ("?x <p> ?y OPTIONAL { ?y (<q>/<r>)? ?z }", 1, ["OPTIONAL { ?from <q> ?to }", "OPTIONAL { ?from <r> ?to }"]),
    ],
)
def test_a_body_that_is_no_list_stays_whole(pattern: str, patterns: int, strict: list[str]) -> None:
    [rule] = body(pattern)
    assert rule.where is not None
    assert (rule.tables, rule.binds, rule.conditions, rule.absent) == ((), (), (), ())
    assert len(rule.patterns) == patterns
    found = [(is_strict, words) for _, is_strict, words in reads_of(rule)]
    assert [words for is_strict, words in found if is_strict] == strict
    assert sum(not is_strict for is_strict, _ in found) == patterns


def test_branches_that_are_lists_are_lists() -> None:
    found = body("{ ?x <p> ?y OPTIONAL { ?y <q> ?z } } UNION { ?x <q> ?y FILTER(?y > 1) } UNION { ?x <r> ?y }")
    assert [rule.where is None for rule in found] == [False, True, True]


def test_a_union_below_a_group_is_no_list() -> None:
    [rule] = body("SELECT ?x (COUNT(*) AS ?y) WHERE { { ?x <p> ?z } UNION { ?x <q> ?z } } GROUP BY ?x")
    assert isinstance(rule.where, Extend)
    assert [(is_strict, words) for _, is_strict, words in reads_of(rule)] == [
        (True, "a group of ?x <p> ?z"),
        (True, "a group of ?x <q> ?z"),
    ]


def test_a_body_that_is_no_list_names_the_graph_that_it_reads() -> None:
    [rule] = rules("RULE r: CONSTRUCT { ?x <h> ?y } WHERE { ?x <p>+ ?y MINUS { ?y <q> ?z } }", iri("g"))
    assert rule.graphs() == {iri("g")}
    assert all(pattern.graph == iri("g") for pattern, _, _ in reads_of(rule))


def test_branches_multiply_up_to_a_bound() -> None:
    union = "{ ?x <p> ?y } UNION { ?x <q> ?y } "
    assert len(body(union * 6)) == BRANCHES_MAX
    with pytest.raises(
        RuleError, match="at most 64 choices of UNION branches in a rule, found 128; write several rules"
    ):
        body(union * 7)


def test_rules_that_conclude_nothing_new_are_told() -> None:
    text = (
        "RULE a: CONSTRUCT { ?x <p> ?y . ?x <q> ?y } WHERE { ?x <p> ?y } "
        "RULE b: CONSTRUCT { ?x <p> ?y } WHERE { ?x <q> ?y VALUES ?x { } } "
        "RULE c: CONSTRUCT { ?x <p> ?y } WHERE { GRAPH <g> { ?x <p> ?y } }"
    )
    assert warnings_of(rules(text)) == [
        "rule a concludes nothing new: ?x <p> ?y is one of its patterns",
        "rule b concludes nothing: its VALUES has no row",
    ]


# --- plain rules mean what their query means --------------------------------------------------------------------------


def of_query(text: str, dataset: Dataset) -> set[tuple[str, str, str]]:
    """Evaluate the CONSTRUCT query of a rule as the algebra says."""
    [parsed] = parse_rules(text)
    return made(parsed.query.pattern, parsed.query.template, dataset)


def of_rules(found: Iterable[Rule], dataset: Dataset) -> set[tuple[str, str, str]]:
    """Evaluate plain rules, each by the order of its parts that `Rule` states."""
    triples = set()
    for rule in found:
        if rule.where is not None:
            triples |= made(rule.where, (rule.head,), dataset)
            continue
        node: Node = join_all([Bgp(rule.patterns), *rule.tables])
        for variable, expression in rule.binds:
            node = Extend(node, variable, expression)
        for condition in (*rule.conditions, *rule.absent):
            node = Filter(condition, node)
        if rule.aggregation is not None:
            node = Group(node, rule.aggregation.keys, rule.aggregation.aggregates)
            for condition in rule.aggregation.conditions:
                node = Filter(condition, node)
            for variable, expression in rule.aggregation.binds:
                node = Extend(node, variable, expression)
        triples |= made(node, (rule.head,), dataset)
    return triples


def made(node: Node, template: Iterable[TriplePattern], dataset: Dataset) -> set[tuple[str, str, str]]:
    triples = set()
    for row in evaluate(node, dataset):
        for head in template:
            parts = [row.get(one.name) if isinstance(one, Variable) else one.text for one in head_parts(head)]
            if None not in parts:
                triples.add(tuple(parts))
    return triples  # type: ignore[return-value]


def head_parts(head: TriplePattern) -> tuple[Term | Variable, ...]:
    return head.subject, head.predicate, head.object


def test_random_rules_conclude_what_their_queries_construct() -> None:
    rng = random.Random(19)
    accepted = fruitful = grouped = lists = 0
    for _ in range(4000):
        group = random_query(rng, KINDS).partition("*")[2]
        if rng.random() < 0.3:
            group = f"{{ SELECT ?a (COUNT(DISTINCT ?c) AS ?b) {group} GROUP BY ?a HAVING(COUNT(*) != 2) }}"
        text = f"RULE r: CONSTRUCT {{ ?a <http://e/h> ?b }} WHERE {group}"
        try:
            found = rules(text)
        except WukongsError:
            continue
        accepted += 1
        for _ in range(3):
            dataset = random_dataset(rng)
            wanted = of_query(text, dataset)
            assert of_rules(found, dataset) == wanted, text
            fruitful += bool(wanted)
            grouped += bool(wanted) and found[0].aggregation is not None
            lists += bool(wanted) and found[0].where is None
    assert accepted > 200
    assert lists > 50
    assert fruitful > 150
    assert grouped > 20


# --- strata -----------------------------------------------------------------------------------------------------------

FAMILY = """
RULE start: CONSTRUCT { ?x <ancestor> ?y } WHERE { ?x <parent> ?y }
RULE root: CONSTRUCT { ?x a <Root> } WHERE { ?y <ancestor> ?x FILTER NOT EXISTS { ?x <parent> ?z } }
RULE go-on: CONSTRUCT { ?x <ancestor> ?z } WHERE { ?x <ancestor> ?y . ?y <parent> ?z }
RULE roots: CONSTRUCT { ?y <roots> ?n } WHERE
  { SELECT ?y (COUNT(?x) AS ?n) WHERE { ?y <ancestor> ?x . ?x a <Root> } GROUP BY ?y }
"""


def test_strata_come_in_the_order_in_which_they_read() -> None:
    assert strata(FAMILY) == [(["start"], False), (["go-on"], True), (["root"], False), (["roots"], False)]


def test_rules_that_feed_each_other_are_one_stratum() -> None:
    text = (
        "RULE a: CONSTRUCT { ?x <p> ?y } WHERE { ?x <q> ?y } RULE b: CONSTRUCT { ?x <q> ?y } WHERE { ?x <r> ?y } "
        "RULE c: CONSTRUCT { ?x <r> ?y } WHERE { ?y <p> ?x } RULE d: CONSTRUCT { ?x <s> ?y } WHERE { ?x <p> ?y }"
    )
    assert strata(text) == [(["a", "b", "c"], True), (["d"], False)]


@pytest.mark.parametrize(
    ("head", "pattern", "feeds"),
    [
        ("?x <p> ?y", "?x <p> ?y", True),
        ("?x <p> ?y", "?x <q> ?y", False),
        ("?x ?y ?x", "?x <q> ?y", True),
        ("?x <p> ?y", "?x ?z ?y", True),
        ("?x a <A>", "?x a <A> . ?y <b> ?x", True),
        ("?x a <A>", "?x a <B> . ?y <b> ?x", False),
        ("?x a ?y", "?x a <B> . ?y <b> ?x", True),
        ("?x a <A>", "?x a ?y", True),
        ("<a> <p> ?y", "<b> <p> ?y", False),
        ("?x <p> ?y", "GRAPH <g> { ?x <p> ?y }", False),
    ],
)
def test_which_conclusions_feed_which_patterns(head: str, pattern: str, feeds: bool) -> None:
    [(names, is_recursive)] = strata(
        f"RULE r: CONSTRUCT {{ {head} }} WHERE {{ ?x <other> ?y . {pattern} }}".replace(". GRAPH", " GRAPH")
    )
    assert names == ["r"]
    assert is_recursive is feeds


def test_a_graph_that_is_named_is_the_one_into_which_a_rule_concludes() -> None:
    text = "RULE r: CONSTRUCT { ?x <p> ?y } WHERE { GRAPH <g> { ?y <p> ?x } }"
    assert strata(text, iri("g")) == [(["r"], True)]
    assert strata(text, iri("h")) == [(["r"], False)]
    [other] = rules("RULE s: CONSTRUCT { ?x <p> ?y } WHERE { ?x <q> ?y }", iri("g"))
    [reader] = rules(text)
    assert [[rule.name for rule in one.rules] for one in Program.of([reader, other]).strata] == [["s"], ["r"]]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "RULE a: CONSTRUCT { ?x <p> ?y } WHERE { ?x <q> ?y FILTER NOT EXISTS { ?y <p> ?z } }",
            "a feeds a by NOT EXISTS { ?y <p> ?z }",
        ),
        (
            "RULE win: CONSTRUCT { ?x a <Won> } WHERE { ?x <to> ?y FILTER NOT EXISTS { ?y a <Safe> } } "
            "RULE safe: CONSTRUCT { ?x a <Safe> } WHERE { ?x <to> ?y . ?y a <Kept> } "
            "RULE kept: CONSTRUCT { ?x a <Kept> } WHERE { ?x <by> ?y . ?y a <Won> }",
            "safe feeds win by NOT EXISTS { ?y <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <Safe> }, which feeds "
            "kept by ?y <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <Won>, which feeds safe by "
            "?y <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <Kept>",
        ),
        (
            "RULE count: CONSTRUCT { ?x <n> ?n } WHERE { SELECT ?x (COUNT(?y) AS ?n) WHERE { ?x <p> ?y } GROUP BY ?x } "
            "RULE back: CONSTRUCT { ?x <p> [] } WHERE { ?x <n> ?n }".replace("[]", "?n"),
            "back feeds count by a group of ?x <p> ?y, which feeds back by ?x <n> ?n",
        ),
        (
            "RULE a: CONSTRUCT { ?x <p> ?y } WHERE { ?x <q> ?y OPTIONAL { ?y <p> ?z } }",
            "a feeds a by OPTIONAL { ?y <p> ?z }",
        ),
        ("RULE a: CONSTRUCT { ?x <p> ?y } WHERE { ?x <q> ?y MINUS { ?y <p> ?z } }", "a feeds a by MINUS { ?y <p> ?z }"),
        (
            "RULE a: CONSTRUCT { ?x <p> ?y } WHERE { ?x <q> ?y FILTER EXISTS { ?y <p> ?z } }",
            "a feeds a by EXISTS { ?y <p> ?z }",
        ),
        ("RULE a: CONSTRUCT { ?x <p> ?y } WHERE { ?x <p>+ ?y }", "a feeds a by a path of ?from <p> ?to"),
        (
            "RULE a: CONSTRUCT { ?x <h> ?y } WHERE { ?x <p>* ?y }",
            "a feeds a by a path of ?from ? ?to",
        ),
    ],
)
def test_a_circle_through_what_is_absent_or_counted_is_named(text: str, found: str) -> None:
    with pytest.raises(RuleError) as caught:
        Program.of(rules(text))
    assert caught.value.found == found
    assert "without a circle through NOT EXISTS, EXISTS, OPTIONAL" in str(caught.value)


def test_no_rules_have_no_strata() -> None:
    assert Program.of([]).strata == ()


def test_a_long_chain_of_rules_needs_no_recursion() -> None:
    text = "".join(f"RULE r{n}: CONSTRUCT {{ ?x <p{n + 1}> ?y }} WHERE {{ ?x <p{n}> ?y }} " for n in range(3000))
    found = strata(text)
    assert [names for names, _ in found] == [[f"r{n}"] for n in range(3000)]
    assert len(strata(text + "RULE back: CONSTRUCT { ?x <p0> ?y } WHERE { ?x <p3000> ?y }")) == 1


def test_each_stratum_reads_only_itself_and_those_before() -> None:
    """The order of random rules holds against a plain search for what reaches what."""
    rng = random.Random(7)
    for _ in range(200):
        edges = [(rng.randrange(6), rng.randrange(6)) for _ in range(rng.randint(1, 9))]
        text = " ".join(
            f"RULE r{n}: CONSTRUCT {{ ?x <p{b}> ?y }} WHERE {{ ?x <p{a}> ?y }}" for n, (a, b) in enumerate(edges)
        )
        reaches = {(n, m) for n, (_, b) in enumerate(edges) for m, (a, _) in enumerate(edges) if a == b}
        for k in range(len(edges)):
            reaches |= {(i, j) for i in range(len(edges)) for j in range(len(edges)) if {(i, k), (k, j)} <= reaches}
        found = strata(text)
        place = {int(name[1:]): number for number, (names, _) in enumerate(found) for name in names}
        assert sorted(place) == list(range(len(edges)))
        for i in place:
            for j in place:
                if (i, j) in reaches:
                    assert place[i] <= place[j]
                assert (place[i] == place[j] and i != j) <= ({(i, j), (j, i)} <= reaches)
            assert found[place[i]][1] == ((i, i) in reaches)


def test_the_strata_of_the_shipped_sets(request: pytest.FixtureRequest) -> None:
    lines = []
    for name in SHIPPED:
        program = Program.of(rule for parsed in read_rules(name) for rule in rules_of(parsed))
        lines.append(f"{name}: {len(program.rules)} rules")
        for stratum in program.strata:
            lines.append("  recursive:" if stratum.is_recursive else "  once:")
            lines += [
                f"    {rule.name}: {len(rule.patterns)} patterns, {len(rule.conditions)} conditions"
                for rule in stratum.rules
            ]
        assert not warnings_of(program.rules)
    shown = "\n".join(lines) + "\n"
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(shown)
    assert shown == GOLDEN.read_text()
