"""The oracle of rules against pyoxigraph, which runs each rule as a CONSTRUCT query, again and again."""

from __future__ import annotations

from itertools import chain
from random import Random

import pyoxigraph
import pytest

from tests.fuzz import SEED, scaled
from tests.oracles.rules import Body, Pattern, Program, Rule, Tree, Triple, Unstratified, text_of
from tests.rule_programs import GRAPH, NODES, PREDICATES, fitting, random_rules, random_triple

SEEDS = range(SEED or 0, (SEED or 0) + scaled(150))
X, Y, Z = "?x", "?y", "?z"
p, q, r = PREDICATES
n0, n1, n2 = NODES[:3]


def program_of(random: Random) -> Program:
    rules = [(random.choice(["", "", "", GRAPH]), rule) for rule in random_rules(random)]
    return Program(tuple(fitting([], rules)))


def explicit_of(random: Random) -> dict[str, set[Triple]]:
    return {
        "": {random_triple(random) for _ in range(random.randint(4, 32))},
        GRAPH: {random_triple(random) for _ in range(random.randrange(10))},
    }


def by_queries(program: Program, explicit: dict[str, set[Triple]]) -> dict[str, set[Triple]]:
    """The closure, by CONSTRUCT queries over pyoxigraph's store in the order of the levels."""
    store = pyoxigraph.Store()
    graph_of = {"": pyoxigraph.DefaultGraph(), GRAPH: pyoxigraph.NamedNode(GRAPH[1:-1])}
    for graph, triples in explicit.items():
        lines = "".join(f"{' '.join(triple)} .\n" for triple in sorted(triples))
        store.load(lines, format=pyoxigraph.RdfFormat.N_TRIPLES, to_graph=graph_of[graph])
    for level in program._levels:
        size = -1
        while size != len(store):
            size = len(store)
            for unit in level:
                alone = Rule(unit.rule.name, (unit.head,), (unit.body,), unit.rule.group)
                found = store.query(
                    alone.construct(), default_graph=[graph_of[unit.into]], named_graphs=[graph_of[GRAPH]]
                )
                store.extend(pyoxigraph.Quad(*triple, graph_of[unit.into]) for triple in list(found))
    return {
        graph: {
            (str(quad.subject), str(quad.predicate), str(quad.object))
            for quad in store.quads_for_pattern(None, None, None, name)
        }
        for graph, name in graph_of.items()
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_have_the_closure_that_queries_find(seed: int) -> None:
    random = Random(seed)
    program = program_of(random)
    explicit = explicit_of(random)
    closure = program.closure(explicit)
    text = text_of(rule for _, rule in program.rules)
    assert {graph: closure.all(graph) for graph in ("", GRAPH)} == by_queries(program, explicit), text
    for graph in ("", GRAPH):
        assert closure.all(graph) == explicit[graph] | closure.only_inferred(graph)
        assert not explicit[graph] & closure.only_inferred(graph)
        for triple in closure.all(graph):
            tree = closure.derivation(graph, triple)
            assert tree is not None
            assert program.holds(closure, tree), (text, tree)


def test_random_programs_differ_in_what_they_conclude() -> None:
    kinds = {"nothing": 0, "something": 0, "much": 0}
    for seed in range(200):
        random = Random(seed)
        closure = program_of(random).closure(explicit_of(random))
        count = len(list(chain.from_iterable(closure.inferred.values())))
        kinds["nothing" if count == 0 else "something" if count <= 10 else "much"] += 1
    assert all(count >= 15 for count in kinds.values()), kinds


def test_some_random_programs_are_refused() -> None:
    refused = 0
    for seed in range(200):
        rules = [("", rule) for rule in random_rules(Random(seed))]
        if len(fitting([], rules)) < len(rules):
            refused += 1
            with pytest.raises(Unstratified):
                Program(tuple(rules))
    assert 10 <= refused <= 170


TRANSITIVE = Rule("t", (Pattern(X, p, Z),), (Body((Pattern(X, p, Y), Pattern(Y, p, Z))),))


def test_a_derivation_is_checked() -> None:
    explicit = {"": {(n0, p, n1), (n1, p, n2), (n2, p, n0)}}
    program = Program.of([TRANSITIVE])
    closure = program.closure(explicit)
    assert len(closure.all()) == 9
    first, second = Tree("", (n0, p, n1)), Tree("", (n1, p, n2))
    good = Tree("", (n0, p, n2), "t", (first, second))
    assert program.holds(closure, good)
    for wrong in (
        Tree("", (n0, p, n2)),
        Tree("", (n0, p, n2), "t", (first,)),
        Tree("", (n0, p, n2), "another", (first, second)),
        Tree(GRAPH, (n0, p, n2), "t", (first, second)),
        Tree("", (n0, p, n2), "t", (Tree("", (n0, p, n0)), Tree("", (n0, p, n2)))),
        Tree("", (n0, p, n2), "t", (Tree("", (n0, p, n0), "t", (good, Tree("", (n2, p, n0)))), good)),
    ):
        assert not program.holds(closure, wrong), wrong
    assert program.is_derivable_at_once(closure, "", (n0, p, n2))
    assert not program.is_derivable_at_once(closure, "", (n0, q, n2))
    assert closure.derivation("", (n0, q, n2)) is None


def test_the_text_of_a_rule() -> None:
    assert text_of([TRANSITIVE]) == f"RULE t: CONSTRUCT {{ ?x {p} ?z . }} WHERE {{ ?x {p} ?y . ?y {p} ?z . }}\n"
