"""Views with arguments against the same text asked once for each, at every SN: random graphs, changes, queries, and
arguments that are bound and unbound between them. Rules that are broken once are caught by it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import wukongs
from tests.unit.incremental import followed
from tests.unit.incremental.followed import Followed
from tests.unit.incremental.queries import (
    GRAPHS,
    NODES,
    VARIABLES,
    QueryMaker,
    quads_text,
    random_triples,
    random_update,
)
from wukongs.csparql.algebra import Call, Join, Values
from wukongs.csparql.parser import parse_query
from wukongs.csparql.scope import mentioned_variables
from wukongs.csparql.terms import XSD
from wukongs.incremental import cuts, lifted
from wukongs.incremental.arguments import with_arguments
from wukongs.incremental.cuts import Cut
from wukongs.incremental.graphs import EachGraph
from wukongs.incremental.leaves import names_of
from wukongs.incremental.lifted import Lifted
from wukongs.incremental.operators import EachArgument, operators_of
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.zset import ZSet
from wukongs.query.execution.argument_rows import NUMBER
from wukongs.query.execution.bindings import where_clause

VIEWS, STEPS, SEEDS = 15, 7, range(12)
TERMS = (*NODES, *NODES, *GRAPHS[1:], '"a"', '"b"@en', f'"1"^^<{XSD}integer>', "<http://ex/unknown>")
NAMES = {
    *("delta join", "explored", "kept", "linear", "union", "join", "flag", "reduce", "distinct", "exists"),
    *("delta join (named graphs)", "delta join (merged graphs)"),
}
"""Operators that a run has to have moved, beside groups of each argument."""


def registered(rng: random.Random, engine: wukongs.Engine, *, of_limits: bool, of_paths: bool) -> Followed | None:
    """Return a view of a random query with arguments for one or two of its variables; None for a text that is none.
    of_limits: it has a LIMIT; of_paths: it has paths."""
    text = limited(rng) if of_limits else QueryMaker(rng, of_paths=of_paths).query()
    try:
        known = {variable.name for variable in mentioned_variables(where_clause(parse_query(text, None)))}
        given = [name for variable in (*VARIABLES, "?g") if (name := variable[1:]) in known]
        if not given:
            return None
        view = Followed(engine, text, rng.sample(given, min(len(given), rng.choice((1, 1, 2)))))
    except wukongs.QuerySyntaxError:  # a variable that BIND would bind again
        return None
    view.bind(random_rows(rng, view))
    return view


def limited(rng: random.Random) -> str:
    """Return a query with a LIMIT above many rows of each argument."""
    parts = [
        "?a ?p ?b .",
        "?c <http://ex/p1> ?d .",
        "OPTIONAL { ?b <http://ex/p1> ?d }",
        "{ ?a ?q ?c } UNION { ?c ?q ?a }",
    ]
    body = " ".join(rng.sample(parts, rng.randint(1, 3)))
    keys = " ".join(rng.choice(("", "DESC")) + f"({name})" for name in rng.sample(VARIABLES, rng.randint(0, 2)))
    shown = " ".join(rng.sample(VARIABLES, rng.randint(1, 4)))
    order = f"ORDER BY {keys}" if keys else ""
    limit = f"LIMIT {rng.randint(1, 4)} OFFSET {rng.randint(0, 2)}"
    return f"SELECT {rng.choice(('', '', 'DISTINCT'))} {shown} {{ {body} }} {order} {limit}"


def random_rows(rng: random.Random, view: Followed) -> list[tuple[str, ...]]:
    return [tuple(rng.choice(TERMS) for _ in view.given) for _ in range(rng.randint(1, 4))]


def random_graphs(rng: random.Random) -> tuple[dict[str, set[Any]], str]:
    """Return triples by graph, and the update that inserts them."""
    graphs = {graph: set(random_triples(rng, 14 if not graph else 6, of_terms=True)) for graph in GRAPHS}
    stored = " ".join(quads_text(graph, sorted(triples)) for graph, triples in graphs.items())
    return graphs, f"INSERT DATA {{ {stored} }}"


def follow(seed: int, moved: Counter[str] | None = None, *, of_limits: bool = False, of_paths: bool = False) -> int:
    """Follow views; return how many reports were not empty. moved: counts their operators; of_limits: all of them have
    a LIMIT; of_paths: mostly of paths. Raises AssertionError."""
    rng, reports = random.Random(f"arguments {seed}"), 0
    graphs, stored = random_graphs(rng)
    with patch.object(cuts, "MARGIN_OF_EACH", seed % 3), wukongs.Engine() as engine:
        engine.update(stored)
        views = list[Followed]()
        while len(views) < VIEWS:
            if (view := registered(rng, engine, of_limits=of_limits, of_paths=of_paths)) is not None:
                views.append(view)
        for step in range(STEPS):
            for _ in range(rng.choice((0, 1, 1, 3))):
                engine.update(random_update(rng, graphs, of_terms=True))
            for view in views:
                if rng.random() < 0.4:
                    view.bind(random_rows(rng, view))
                if view.rows and rng.random() < 0.4:
                    view.unbind(rng.sample(sorted(view.rows), rng.randint(1, len(view.rows))))
                report = view.advance()
                place = f"seed {seed}, step {step}: {view.text} for {view.given} in {view.rows}"
                assert 0 not in report.values(), place
                reports += bool(report)
                if moved is not None and report:
                    moved.update(operator.kind for _, operator in operators_of(view.view.top))
                asked, content = view.asked(), view.content
                missing, extra = asked - content, content - asked
                assert missing == extra == Counter(), (
                    f"{place}\n{view.view.explain()}\nmissing {missing}\nextra {extra}"
                )
        for view in views:
            view.close()
    return reports


def test_views_follow_their_text_for_each_argument() -> None:
    moved = Counter[str]()
    assert follow(2, moved) > 10
    assert moved["delta join"] > 20
    assert moved["each argument"] > 0, moved


def test_limits_follow_their_text_for_each_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking, longer, right = list[int](), list[int](), Cut._lacking

    def count(self: Cut, *given: Any) -> Any:
        found = right(self, *given)
        lacking.append(len(found))
        longer.append(len(self._longer))
        return found

    monkeypatch.setattr(Cut, "_lacking", count)
    assert sum(follow(seed, of_limits=True) for seed in range(2)) > 20
    assert max(longer) > 1, "some arguments have rows that are not kept in order"
    assert max(lacking) > 0, "and those of some were looked for again"


def test_a_change_orders_the_first_rows_of_its_argument_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ordered, right = list[int](), Cut._in_order

    def count(self: Cut, rows: ZSet, *given: Any) -> ZSet:
        ordered.append(len(rows))
        return right(self, rows, *given)

    monkeypatch.setattr(Cut, "_in_order", count)
    with wukongs.Engine() as engine:
        triples = " ".join(f"<http://ex/n{at % 3}> <http://ex/p0> {at} ." for at in range(3000))
        engine.update(f"INSERT DATA {{ {triples} }}")
        view = Followed(engine, "SELECT ?x ?v { ?x <http://ex/p0> ?v } ORDER BY ?v LIMIT 2", ["x"])
        view.bind([(f"<http://ex/n{at}>",) for at in range(3)])
        view.advance()
        for text in (
            "DELETE DATA { <http://ex/n1> <http://ex/p0> 1 }",
            "INSERT DATA { <http://ex/n1> <http://ex/p0> 2 }",
        ):
            engine.update(text)
            ordered.clear()
            assert len(view.advance()) == 2
            assert sum(ordered) <= 2 + 2 * cuts.MARGIN_OF_EACH + 1, ordered
            assert view.content == view.asked()
        view.close()


def test_paths_follow_their_text_for_each_argument() -> None:
    moved = Counter[str]()
    assert follow(1, moved, of_paths=True) > 10
    assert moved["search"] + moved["iterate"] > 0, moved


NULLABLE = (
    "(P*/Q*)*",
    "(P*/Q?)+",
    "(P?|Q*)+",
    "(^(P?/Q?))?",
    "(P?/Q?){2,3}",
    "((P?/Q*)|Q)+",
    "(P{0,1}/Q{0,2}/P?){0,2}",
    "(P?/" + "/".join(["Q?"] * 11) + ")?",
)
"""Paths of several parts that all may have no length; that of the last has too many links for its walks to be kept."""


def follow_nullable(path: str, seed: int = 0, given: tuple[str, ...] = ("s",), block: str = "{}") -> int:
    """Follow a path from arguments; return how many reports were not empty. block: around it."""
    rng, reports = random.Random(f"nullable {seed}"), 0
    graphs, stored = random_graphs(rng)
    made = path.replace("P", "<http://ex/p0>").replace("Q", "<http://ex/p1>")
    with wukongs.Engine() as engine:
        engine.update(stored)
        view = Followed(engine, f"SELECT * {{ {block.format(f'?s {made} ?o')} }}", given)
        for step in range(4):
            engine.update(random_update(rng, graphs))
            view.bind([tuple(rng.choice((*NODES, "<http://ex/unknown>")) for _ in given) for _ in range(2)])
            if len(view.rows) > 5:
                view.unbind(rng.sample(sorted(view.rows), 2))
            reports += bool(view.advance())
            place = f"seed {seed}, step {step}: {view.text} for {view.given} in {view.rows}"
            assert view.asked() == view.content, f"{place}\n{view.view.explain()}"
        view.close()
    return reports


@pytest.mark.parametrize("path", NULLABLE)
def test_nullable_paths_of_several_parts_follow_their_arguments(path: str) -> None:
    assert follow_nullable(path) > 0
    assert follow_nullable(path, 1, ("o",)) > 0
    follow_nullable(path, 2, ("s", "o"))
    assert follow_nullable(path, 3, block="GRAPH ?g {{ {} }}") > 0


def test_nullable_paths_lead_from_arguments_that_the_graph_does_not_know_as_they_do_from_constants() -> None:
    with wukongs.Engine() as engine:
        views = [
            Followed(engine, f"SELECT * {{ ?s {path} ?o }}", ["s"])
            for path in ("(<http://ex/p>*/<http://ex/q>*)+", "(<http://ex/p>*/<http://ex/q>*)*")
        ]
        lengths = list[list[int]]()
        for view in views:
            view.bind([("<http://ex/n0>",)])
        for change in ("INSERT DATA { <http://ex/n1> <http://ex/r> <http://ex/n0> }", "CLEAR ALL"):
            lengths.append([sum(view.content.values()) for view in views if view.advance() or True])
            engine.update(change)
        lengths.append([sum(view.content.values()) for view in views if view.advance() or True])
        assert lengths == [[0, 1], [1, 1], [0, 1]], lengths
        assert all(view.content == view.asked() for view in views)
        for view in views:
            view.close()


@pytest.mark.slow
def test_views_follow_their_text_for_each_argument_and_many_seeds() -> None:
    moved = Counter[str]()
    for seed in range(1000, 1030):
        follow(seed, moved)
        follow(seed, of_limits=True)
        follow(seed, of_paths=True)
    assert {*moved} >= {*NAMES, "groups", "each argument"}, moved


@pytest.mark.parametrize(
    ("text", "given", "kind"),
    [
        ("SELECT * { GRAPH ?g { ?s ?p ?o } }", "s", "delta join (named graphs)"),
        ("SELECT * { GRAPH ?g { ?s ?p ?o } }", "g", "delta join (named graphs)"),
        ("SELECT * { GRAPH ?g { ?s ?p ?o } GRAPH ?g {} }", "o", "graph names"),
        ("SELECT * FROM <http://ex/g0> FROM <http://ex/g1> { ?s ?p ?o }", "o", "delta join (merged graphs)"),
        (
            "SELECT * FROM <http://ex/g0> FROM <http://ex/g1> FROM NAMED <http://ex/g0> FROM NAMED <http://ex/g1> "
            "{ ?s ?p ?o GRAPH ?g { ?o ?q ?t } }",
            "s",
            "delta join (named and merged graphs)",
        ),
    ],
)
def test_several_graphs_follow_for_each_argument_and_nothing_is_kept(text: str, given: str, kind: str) -> None:
    graphs = [f"<http://ex/g{number}>" for number in range(2)]
    nodes = [f"<http://ex/n{number}>" for number in range(3)]
    with wukongs.Engine() as engine:
        for graph in graphs:
            engine.update(f"INSERT DATA {{ GRAPH {graph} {{ {nodes[0]} <http://ex/p> {nodes[1]} }} }}")
        view = Followed(engine, text, [given])
        kinds = {operator.kind for _, operator in operators_of(view.view.top)}
        assert kind in kinds, kinds
        assert view.view.kept_bytes == 0, view.view.explain(analyze=True)
        view.bind([(term,) for term in (*nodes, *graphs, nodes[0])])
        reports = [view.advance()]
        assert view.asked() == view.content
        for change in (
            f"INSERT DATA {{ GRAPH {graphs[0]} {{ {nodes[1]} <http://ex/p> {nodes[2]} , {nodes[1]} }} }}",
            f"DELETE DATA {{ GRAPH {graphs[1]} {{ {nodes[0]} <http://ex/p> {nodes[1]} }} }}",
            f"DELETE DATA {{ GRAPH {graphs[0]} {{ {nodes[0]} <http://ex/p> {nodes[1]} }} }}",
        ):
            engine.update(change)
            view.unbind([min(view.rows)])
            view.bind([(nodes[1],)])
            reports.append(view.advance())
            assert view.asked() == view.content, change
        assert sum(map(bool, reports)) > 1, reports
        assert view.view.kept_bytes == 0
        view.close()


COUNT = "{ SELECT (COUNT(*) AS ?n) { ?s ?p ?o } }"
EACH_GRAPH = [
    ("SELECT * { GRAPH ?g {} }", ["g"]),
    (f"SELECT * {{ GRAPH ?g {COUNT} }}", ["g"]),
    (f"SELECT * {{ GRAPH ?g {COUNT} }}", ["n"]),
    (f"SELECT * FROM NAMED {GRAPHS[1]} FROM NAMED {GRAPHS[2]} {{ GRAPH ?g {COUNT} }}", ["g"]),
    ("SELECT * { GRAPH ?g { { SELECT ?s ?o { ?s ?p ?o } ORDER BY ?o LIMIT 2 } } }", ["s"]),
    ("SELECT * { GRAPH ?g { { SELECT ?s ?o { ?s ?p ?o } ORDER BY ?o LIMIT 2 } } }", ["g", "s"]),
    ("SELECT * { GRAPH ?g { ?s ?p ?o { SELECT (COUNT(*) AS ?n) { GRAPH ?h { ?x ?q ?y } } } } }", ["s"]),
    ("SELECT * { GRAPH ?g { ?s ?p ?o { SELECT (COUNT(*) AS ?n) { GRAPH ?h { ?x ?q ?y } } } } }", ["g"]),
    (f"SELECT * {{ GRAPH ?g {COUNT} ?x ?p ?n }}", ["g"]),
]
"""Texts over each graph, with the variables that arguments give."""


def follow_graphs(text: str, given: list[str], seed: int = 0) -> int:
    """Follow a part that is evaluated graph by graph; return how many reports were not empty."""
    rng, reports = random.Random(f"each graph {seed}"), 0
    graphs, stored = random_graphs(rng)
    terms = [*GRAPHS[1:], *NODES[:3], f'"2"^^<{XSD}integer>', "<http://ex/unknown>"]
    with wukongs.Engine() as engine:
        engine.update(stored)
        view = Followed(engine, text, given)
        for step in range(STEPS):
            engine.update(random_update(rng, graphs))
            if step % 3:
                view.bind([tuple(rng.choice(terms) for _ in given) for _ in range(rng.randint(1, 4))])
            if len(view.rows) > 4:
                view.unbind(rng.sample(sorted(view.rows), 2))
            reports += bool(view.advance())
            assert view.asked() == view.content, f"seed {seed}, step {step}: {text} for {given}"
        view.close()
    return reports


@pytest.mark.parametrize(("text", "given"), EACH_GRAPH)
def test_parts_of_each_graph_follow_their_arguments(text: str, given: list[str]) -> None:
    assert sum(follow_graphs(text, given, seed) for seed in range(3)) > 0


# --- mutants ----------------------------------------------------------------------------------------------------------


def arguments_without_rows_have_no_group(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EachArgument, "_empty", lambda self, arguments, chosen: ZSet.empty())


def filled_groups_keep_that_of_no_rows(patch: pytest.MonkeyPatch) -> None:
    right = EachArgument._empty
    patch.setattr(
        EachArgument,
        "_empty",
        lambda self, rows, chosen: right(self, rows, chosen & (rows.weights > 0)),
    )


def unbound_arguments_stay(patch: pytest.MonkeyPatch) -> None:
    right = with_arguments

    def bound_only(change: Change, before: Any, after: Any, arguments: ZSet) -> Change:
        return right(change, before, after, arguments.take(np.flatnonzero(arguments.weights > 0)))

    patch.setattr(followed, "with_arguments", bound_only)


def every_part_is_the_same_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lifted, "_is_closed", lambda self, node: True)


def limit_cuts_the_rows_of_all_arguments(patch: pytest.MonkeyPatch) -> None:
    right = Evaluation.run_over
    patch.setattr(Evaluation, "run_over", lambda self, *given, number=None, **rest: right(self, *given, **rest))


MUTANTS = (
    arguments_without_rows_have_no_group,
    filled_groups_keep_that_of_no_rows,
    unbound_arguments_stay,
    every_part_is_the_same_for_all,
    limit_cuts_the_rows_of_all_arguments,
)


def nothing_is_looked_for_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cut, "_lacking", lambda self, first, changed: np.empty(0, np.int64))


def rows_behind_the_last_one_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cuts, "_last_places", lambda keys, is_known: np.full(len(keys), len(keys)))


def the_last_one_is_that_of_all_arguments(patch: pytest.MonkeyPatch) -> None:
    right = cuts._last_places
    patch.setattr(cuts, "_last_places", lambda keys, is_known: right(np.zeros_like(keys), is_known))


def arguments_lead_nowhere_by_no_length(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lifted, "_of_no_length", lambda self, node: Join(self.arguments, Values((), ())))


def walks_back_count_beside_those_of_no_length(patch: pytest.MonkeyPatch) -> None:
    always = Call("BOUND", (NUMBER,))
    patch.setattr(lifted, "Call", lambda op, arguments: always if op == "!" else Call(op, arguments))


def new_arguments_have_no_rows_of_graphs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EachGraph, "_of_bound", lambda self, arguments, names, change: ZSet.empty(names_of(self.node)))


def rows_of_new_arguments_count_twice(patch: pytest.MonkeyPatch) -> None:
    right = EachGraph._of_bound
    patch.setattr(EachGraph, "_of_bound", lambda self, bound, names, change: right(self, bound, names[:0], change))


def graphs_are_those_of_one_argument(patch: pytest.MonkeyPatch) -> None:
    right = EachGraph._given

    def first(self: EachGraph, *given: Any) -> Any:
        found, number = right(self, *given)
        return found.take(np.arange(min(found.length, 1))), number

    patch.setattr(EachGraph, "_given", first)


def every_node_is_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lifted, "reaches_outside", lambda path, *given: True)


@pytest.mark.parametrize(
    "mutate",
    [new_arguments_have_no_rows_of_graphs, rows_of_new_arguments_count_twice, graphs_are_those_of_one_argument],
)
def test_a_broken_rule_of_each_graph_is_caught(
    monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError, match=r"seed|Counter|fewer"):
        sum(follow_graphs(*EACH_GRAPH[1], seed) for seed in range(4))


def test_a_broken_rule_of_nullable_paths_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    every_node_is_known(monkeypatch)
    with pytest.raises(AssertionError, match=r"seed|Counter"):
        sum(follow_nullable("(P*/Q?)+", seed) for seed in range(8))


@pytest.mark.slow
@pytest.mark.parametrize("mutate", [arguments_lead_nowhere_by_no_length, walks_back_count_beside_those_of_no_length])
def test_a_broken_rule_of_paths_is_caught(
    monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError, match=r"seed|Counter"):
        sum(follow(seed, of_paths=True) for seed in range(40))


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutate",
    [nothing_is_looked_for_again, rows_behind_the_last_one_count, the_last_one_is_that_of_all_arguments],
)
def test_a_broken_rule_of_limits_is_caught(
    monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError, match=r"seed|Counter"):
        sum(follow(seed, of_limits=True) for seed in range(60))


@pytest.mark.slow
@pytest.mark.parametrize("mutate", MUTANTS)
def test_a_broken_rule_is_caught(monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None]) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError, match=r"seed|Counter"):
        sum(map(follow, SEEDS))
