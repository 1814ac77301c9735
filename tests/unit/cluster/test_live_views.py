"""Live views on clusters: the sum of a reader's reports is the answer of the text asked once, at every SN."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import wukongs
from tests.clusters import PATIENT, cluster, cut_off, start_again
from tests.faces import served_node
from tests.fuzz import first_and_slow, slow
from tests.unit.cluster.wires import EX, WAIT_S, Fault, until, wired
from tests.unit.incremental.queries import (
    GRAPHS,
    RULE,
    VARIABLES,
    QueryMaker,
    quads_text,
    random_triples,
    random_update,
)
from tests.unit.incremental.test_arguments_follow import TERMS
from wukongs.cluster.boot import EVENT_TIMES, LEASES
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.distant_query import OF_QUERY
from wukongs.cluster.node_store import HELD_ENTRIES_MAX
from wukongs.cluster.reads.requests import CHANGED, RUN, TEXTS
from wukongs.csparql.parser import parse_query
from wukongs.csparql.rules import rewrite
from wukongs.csparql.scope import mentioned_variables
from wukongs.csparql.terms import XSD, Variable
from wukongs.errors import (
    CompactedError,
    DataError,
    NodeUnavailable,
    OutcomeUnknown,
    SettingsError,
    StreamError,
    UnsupportedFeatureError,
    WukongsError,
)
from wukongs.incremental.versions import Evaluation
from wukongs.incremental.view import View
from wukongs.live.reading import ids_of, terms_of
from wukongs.protocol.events import Submitted
from wukongs.protocol.records import MoveQuery
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.answer import answer
from wukongs.query.execution.argument_rows import BoundQuery
from wukongs.query.execution.bindings import where_clause
from wukongs.query.limits import Limits
from wukongs.query.output.results import Result
from wukongs.query.output.view_report import ViewReport
from wukongs.query.plans.dataset import Dataset, name_graphs
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.terms.query_terms import ConstantIds
from wukongs.remote.query import RemoteView
from wukongs.settings import Settings
from wukongs.wire.assignment import SHARD_BITS
from wukongs.wire.packets import Packet

PREFIX = f"PREFIX : <{EX}>\n"
Row = tuple[str | None, ...]
AC = Counter({(f"<{EX}a>", f"<{EX}c>"): 1})


FIXED = (
    'SELECT ?a ?c WHERE { ?a <http://ex/p0> ?b . ?b <http://ex/p1> ?c FILTER(STR(?a) > "http://ex/n1") }',
    "SELECT ?a ?b FROM <http://ex/g0> FROM <http://ex/g1> WHERE { ?a <http://ex/p0> ?b }",
    "SELECT ?a ?b FROM <urn:x-wukongs:explicit> FROM <http://ex/g1> WHERE { ?a <http://ex/p1> ?b }",
    "SELECT ?g (COUNT(*) AS ?n) WHERE { GRAPH ?g { ?a ?p ?b } } GROUP BY ?g",
    "SELECT ?g WHERE { GRAPH ?g { } }",
    "ASK { ?a <http://ex/p0> ?b . ?b <http://ex/p1> ?a }",
    "CONSTRUCT { ?c <http://ex/p2> ?a } WHERE { ?a <http://ex/p0> ?b . ?b <http://ex/p1> ?c }",
)


class Sum:
    """What a reader keeps of a view's reports: their sum, and the SN up to which it has them."""

    def __init__(self) -> None:
        self.rows, self.sn, self.resets = Counter[Row](), -1, 0

    def take(self, report: ViewReport) -> None:
        if report.is_reset:
            self.rows, self.resets = Counter(), self.resets + 1
        else:  # without a snapshot, the first one begins wherever the view stood
            assert self.sn in (-1, report.after), (report.after, self.sn)
        self.sn = report.snapshot
        for row, weight in zip(rows_of(report), report.weights.tolist(), strict=True):
            self.rows[row] += weight
        assert all(weight >= 0 for weight in self.rows.values()), self.rows
        self.rows = +self.rows

    def read(self, view: Any) -> Sum:
        for report in view.results(0.0, progress=True):
            self.take(report)
        return self


def asked(engine: wukongs.Engine, text: str, bound: Mapping[int, Mapping[str, str]] | None = None) -> Counter[Row]:
    """Return the answer of an engine of one process, evaluated from scratch, with the choices of LIMIT and GROUP_CONCAT
    that views make. bound: arguments by their numbers; the text is asked once for each."""
    if bound is None:
        return asked_once(engine, text)
    return Counter(
        (f'"{number}"^^<{XSD}integer>', *row)
        for number, terms in bound.items()
        for row in asked_once(engine, text, terms).elements()
    )


def asked_once(engine: wukongs.Engine, text: str, given: Mapping[str, str] | None = None) -> Counter[Row]:
    core, query, limits = engine._core, rewrite(parse_query(text, None)), Limits()
    terms = terms_of(core)
    with core.lock:
        stored = core.arrangement.trace.read(core.sn)
    name_graphs(query.dataset, terms)
    dataset = Dataset(query.dataset, stored, {}, ConstantIds(ids_of(core), core.reserved))
    row = None
    if given is not None:
        one = BoundQuery(query, tuple(map(Variable, given)))
        query, row = one.query, one.given(tuple(given.values()), terms)
    found = answer(query, dataset, terms, limits, PlanMemo(), "asked", in_order=True, given=row)
    result = Result(query.form, query.variables, found.columns, terms, core.sn, found.boolean, found.length)
    if found.boolean is not None:
        return Counter({(): 1}) if found.boolean else Counter()
    return Counter(rows_of(result))


def rows_of(result: Any) -> list[Row]:
    """Return the rows as N-Triples texts: rdflib has no triple terms."""
    return [*result.texts()] if result.width else [()] * len(result)


def follow(nodes: list[Any], engine: wukongs.Engine, seed: int, views: int, steps: int, **kinds: bool) -> int:
    """Follow views at all nodes over random changes, asked of all nodes; return how many rows changed. engine: the
    oracle, in the same state as the cluster."""
    rng, changed = Random(seed), 0
    engines = [node.engine for node in nodes]
    graphs = {graph: set(random_triples(rng, 14 if not graph else 6)) for graph in GRAPHS}
    stored = " ".join(quads_text(graph, sorted(triples)) for graph, triples in graphs.items())
    for one in (engine, engines[0]):
        one.update(f"INSERT DATA {{ {stored} }}")
        if kinds.get("of_graphs") and not one.rules():
            one.add_rules(RULE)
    has_arguments = kinds.pop("of_arguments", False)
    followed, texts = list[FollowedView](), [] if has_arguments else [*FIXED]
    while len(followed) < views:
        text = texts.pop() if texts else QueryMaker(rng, **kinds).query()
        try:
            bound = first_rows(rng, text) if has_arguments else None
            if bound == {}:
                continue
            table = None if bound is None else [*bound.values()]
            registering = f"REGISTER QUERY v{seed}x{len(followed)} AS {text}"
            followed.append(FollowedView(text, rng.choice(engines).register(registering, bindings=table), bound))
        except wukongs.QuerySyntaxError:  # a variable that BIND would bind again
            continue
    for step in range(steps):
        for _ in range(rng.choice((1, 1, 3))):
            update = random_update(rng, graphs, of_graphs=kinds.get("of_graphs", False))
            engine.update(update)
            rng.choice(engines).update(update)
        for one in followed if has_arguments else ():
            one.bind_and_unbind(rng, engines)
        rng.choice(engines).settle(60)
        for one in followed:
            view, kept = one.view, one.kept
            before = Counter(kept.rows)
            kept.read(view)
            changed += kept.rows != before
            expected = asked(engine, one.text, one.bound)
            assert kept.rows == expected, (
                f"seed {seed}, step {step}: {one.text} {one.bound}\n{view.explain()}\nmissing {expected - kept.rows}\n"
                f"extra {kept.rows - expected}\n{view.why()}"
            )
            assert view.stats()["errors"] == 0
    for one in followed:
        assert one.kept.resets == 1, one.view.why()
        one.view.close()
    return changed


@dataclass
class FollowedView:
    """bound: arguments by their numbers, None: it has none; kept: what its reader keeps."""

    text: str
    view: Any
    bound: dict[int, dict[str, str]] | None
    kept: Sum = field(default_factory=Sum)
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.names = tuple(self.bound[0]) if self.bound else ()

    def bind_and_unbind(self, rng: Random, engines: list[Any], terms: Sequence[str] = TERMS) -> None:
        """Change the arguments, at any node. terms: they are some of these."""
        assert self.bound is not None
        [view] = [one for one in rng.choice(engines).queries() if one.name == self.view.name]
        if rng.random() < 0.5:
            rows = random_rows(rng, self.names, terms)
            self.bound.update(zip(view.bind(rows).tolist(), rows, strict=True))
        if self.bound and rng.random() < 0.4:
            numbers = rng.sample(sorted(self.bound), rng.randint(1, len(self.bound)))
            assert sorted(view.unbind(numbers).tolist()) == sorted(numbers)
            for number in numbers:
                del self.bound[number]


def first_rows(rng: Random, text: str) -> dict[int, dict[str, str]]:
    """Return arguments for one or two variables of a query, by their numbers; none for a text that has no variables, or
    is none that may have arguments."""
    query = parse_query(text, None)
    known = {variable.name for variable in mentioned_variables(where_clause(query))}
    given = [name for variable in (*VARIABLES, "?g") if (name := variable[1:]) in known]
    if not given or query.form != "select":
        return {}
    names = rng.sample(given, min(len(given), rng.choice((1, 1, 2))))
    return dict(enumerate(random_rows(rng, names)))


def random_rows(rng: Random, names: Collection[str], terms: Sequence[str] = TERMS) -> list[dict[str, str]]:
    return [{name: rng.choice(terms) for name in names} for _ in range(rng.randint(1, 4))]


@pytest.mark.parametrize(("count", "replicas"), [(3, 1), slow(1, 1), slow(3, 2)])
def test_views_follow_their_text_for_each_argument(count: int, replicas: int) -> None:
    with cluster(count, replicas, silence_pulses_max=PATIENT) as nodes, wukongs.Engine() as engine:
        assert follow(nodes, engine, 3, 12, 8, of_arguments=True) >= 4


@pytest.mark.parametrize(("count", "replicas"), [(3, 1), slow(1, 1), slow(3, 2)])
def test_views_follow_their_text(count: int, replicas: int, monkeypatch: pytest.MonkeyPatch) -> None:
    explored, right = list[bool](), Evaluation.run_versions

    def count_rows(self: Evaluation, node: Any, stored: Any, *given: Any) -> BindingTable:
        found = right(self, node, stored, *given)
        explored.append(found.length > 0 and self.is_divided(stored))
        return found

    monkeypatch.setattr(Evaluation, "run_versions", count_rows)
    with cluster(count, replicas, silence_pulses_max=PATIENT) as nodes, wukongs.Engine() as engine:
        assert follow(nodes, engine, 1, 12, 8) >= 8
    assert any(explored) is (count > 1), "changes were joined with what other nodes hold"


INTEGER_1 = f'"1"^^<{XSD}integer>'
COUNTED = "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }"
OF_GRAPHS = (
    "SELECT ?g WHERE { GRAPH ?g { } }",
    f"ASK {{ GRAPH <{EX}h1> {{ }} }}",
    f"SELECT ?g ?n WHERE {{ GRAPH ?g {{ {COUNTED} }} }}",
    "SELECT ?g ?s WHERE { GRAPH ?g { SELECT ?s WHERE { ?s ?p ?o } ORDER BY ?s LIMIT 2 } }",
    f"SELECT ?g ?n WHERE {{ GRAPH ?g {{ SELECT (COUNT(*) AS ?n) {{ ?s ?p ?o GRAPH <{EX}k> {{ ?o ?q ?z }} }} }} }}",
    f"SELECT ?g ?n FROM NAMED <{EX}h0> FROM NAMED <{EX}none> WHERE {{ GRAPH ?g {{ {COUNTED} }} }}",
    f"SELECT ?s ?g ?there WHERE {{ ?s <{EX}in> ?g OPTIONAL {{ GRAPH ?g {{ }} BIND(1 AS ?there) }} }}",
    f"SELECT ?s ?g WHERE {{ ?s <{EX}in> ?g MINUS {{ GRAPH ?g {{ }} }} }}",
    f"SELECT ?s ?g WHERE {{ ?s <{EX}in> ?g . GRAPH ?g {{ }} }}",
)


OF_GIVEN_GRAPHS = (
    ("SELECT * WHERE { GRAPH ?g { } }", ("g",)),
    (f"SELECT * WHERE {{ GRAPH ?g {{ {COUNTED} }} }}", ("g",)),
    (f"SELECT * WHERE {{ GRAPH ?g {{ {COUNTED} }} }}", ("n",)),
    (f"SELECT * FROM NAMED <{EX}h0> FROM NAMED <{EX}none> WHERE {{ GRAPH ?g {{ {COUNTED} }} }}", ("g",)),
    ("SELECT * WHERE { GRAPH ?g { SELECT ?s ?o WHERE { ?s ?p ?o } ORDER BY ?o ?s LIMIT 2 } }", ("s",)),
    ("SELECT * WHERE { GRAPH ?g { SELECT ?s ?o WHERE { ?s ?p ?o } ORDER BY ?o ?s LIMIT 2 } }", ("g", "s")),
    (
        "SELECT * WHERE { GRAPH ?g { SELECT ?o (COUNT(*) AS ?n) "
        f"{{ ?s ?p ?o GRAPH <{EX}k> {{ ?o ?q ?z }} }} GROUP BY ?o }} }}",
        ("o",),
    ),
    (
        "SELECT * WHERE { GRAPH ?g { ?s ?p ?o { SELECT (COUNT(*) AS ?n) { GRAPH ?h { ?x ?q ?y } } } } }",
        ("g",),
    ),
    (f"SELECT * WHERE {{ ?s <{EX}in> ?g OPTIONAL {{ GRAPH ?g {{ {COUNTED} }} }} }}", ("g",)),
    (f"SELECT * WHERE {{ ?s <{EX}in> ?g OPTIONAL {{ GRAPH ?g {{ {COUNTED} }} }} }}", ("s",)),
    (f"SELECT * WHERE {{ ?s <{EX}in> ?g MINUS {{ GRAPH ?g {{ }} }} }}", ("g",)),
    (f"SELECT * WHERE {{ GRAPH ?g {{ ?s (<{EX}p>?/<{EX}q>*)* ?o }} }}", ("s",)),
    (f"SELECT * WHERE {{ GRAPH ?g {{ ?s (<{EX}p>?/<{EX}q>*)+ ?o }} }}", ("s", "g")),
    (f"SELECT * WHERE {{ ?s (<{EX}in>*/<{EX}q>?)+ ?o }}", ("s",)),
    (f"SELECT * WHERE {{ GRAPH ?g {{ ?s <{EX}p>* ?o }} GRAPH ?g {{ }} }}", ("o",)),
)


@pytest.mark.parametrize(("count", "replicas"), [(3, 1), slow(3, 2), slow(1, 1)])
@pytest.mark.parametrize("seed", first_and_slow(range(4)))
@pytest.mark.parametrize("has_arguments", [False, True])
def test_graphs_that_come_and_go_at_any_node_are_followed(
    count: int, replicas: int, seed: int, has_arguments: bool
) -> None:
    """Most graphs have a triple or two, so a graph goes at one node while another one has some of it, or not."""
    chance, here = Random(f"{seed} {count} {replicas}"), set[tuple[str, str, str]]()
    texts = OF_GIVEN_GRAPHS if has_arguments else [(text, None) for text in OF_GRAPHS]
    terms = (*(f"<{EX}{name}>" for name in ("h0", "h1", "h2", "k", "none", "n1", "n2", "o1", "o2")), INTEGER_1)
    changed = 0
    with cluster(count, replicas, silence_pulses_max=PATIENT) as nodes, wukongs.Engine() as engine:
        engines, followed = [node.engine for node in nodes], list[FollowedView]()
        for at, (text, names) in enumerate(texts):
            bound = None if names is None else dict(enumerate(random_rows(chance, names, terms)))
            table = None if bound is None else [*bound.values()]
            view = chance.choice(engines).register(f"REGISTER QUERY v{at} AS {text}", bindings=table)
            followed.append(FollowedView(text, view, bound))
        for step in range(20):
            update = " ; ".join(change_of_graphs(chance, here) for _ in range(chance.choice((1, 2, 4))))
            engine.update(update)
            chance.choice(engines).update(update)
            for one in followed if has_arguments else ():
                one.bind_and_unbind(chance, engines, terms)
            nodes[0].engine.settle(WAIT_S)
            for one in followed:
                before = Counter(one.kept.rows)
                expected = asked(engine, one.text, one.bound)
                assert one.kept.read(one.view).rows == expected, (step, one.text, one.bound, update, before)
                changed += one.kept.rows != before
        for one in followed:
            assert one.kept.resets == 1
    assert changed > 20


def change_of_graphs(chance: Random, here: set[tuple[str, str, str]]) -> str:
    """Return an operation that inserts or deletes a triple. here: what is stored, as graph, subject and the rest."""
    subject, number = f"<{EX}n{chance.randrange(9)}>", chance.randrange(4)
    triple = chance.choice(
        (
            (f"<{EX}h{number}>", subject, f"<{EX}p> <{EX}o{number}>"),
            (f"<{EX}k>", f"<{EX}o{number}>", f"<{EX}q> {number}"),
            ("", subject, f"<{EX}in> <{EX}h{number}>"),
        )
    )
    word = "INSERT"
    if here and chance.random() < 0.5:
        triple, word = chance.choice(sorted(here)), "DELETE"
    (here.add if word == "INSERT" else here.discard)(triple)
    graph, subject, rest = triple
    quad = f"GRAPH {graph} {{ {subject} {rest} }}" if graph else f"{subject} {rest}"
    return f"{word} DATA {{ {quad} }}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["", "of_graphs", "of_paths"])
def test_views_follow_their_text_for_many_seeds(kind: str) -> None:
    with cluster(3, 1, silence_pulses_max=PATIENT) as nodes, wukongs.Engine() as engine:
        for seed in range(50, 60):
            follow(nodes, engine, seed, 20, 5, **({kind: True} if kind else {}))
            for one in (engine, nodes[0].engine):
                one.update("CLEAR ALL")


def test_a_view_is_called_at_each_node() -> None:
    text = f"{PREFIX} REGISTER QUERY v AS SELECT ?a ?c WHERE {{ ?a :p ?b . ?b :p ?c }}"
    with cluster(3, 1, silence_pulses_max=PATIENT) as nodes:
        here, there = nodes[0].engine, nodes[1].engine
        view = here.register(text)
        kept = Sum()
        there.update(f"{PREFIX} INSERT DATA {{ :a :p :b . :b :p :c }}")
        there.settle(60)
        assert kept.read(view).rows == AC
        [known] = there.queries()
        assert (known.name, known.node, known.is_view) == ("v", 0, True)
        assert "delta join" in known.explain()
        assert known.stats()["sn"] == view.sn
        assert there.stats()["views"]["v"]["node"] == 0
        assert known.why() == view.why()
        row = {"a": f"<{EX}a>"}
        assert str(known.why(row)) == str(view.why(row))
        assert [*map(str, known.why([f"<{EX}a>", f"<{EX}c>"]).parts)] == [*map(str, view.why(row).parts)]
        assert len(view.why(row).parts) == 2
        with pytest.raises(DataError, match="view v has no row with"):
            known.why({"a": f"<{EX}b>"})
        with pytest.raises(StreamError, match="runs at node 0"):
            next(known.results(0.0))
        known.pause()
        there.update(f"{PREFIX} DELETE DATA {{ :a :p :b }}")
        assert view.is_paused
        assert "is paused" in known.why()
        known.resume()
        there.settle(60)
        assert kept.read(view).rows == Counter()
        assert kept.resets == 2
        known.replace(text.replace("?b :p ?c", "?b :q ?c"))
        until(lambda: view.source.text != text)
        there.update(f"{PREFIX} INSERT DATA {{ :a :p :b . :b :q :c }}")
        there.settle(60)
        assert kept.read(view).rows == AC
        assert kept.resets == 3
        with pytest.raises(StreamError, match="v is registered already"):
            there.register(text)
        known.close()
        assert view.is_closed
        there.settle(60)
        there.register(text).close()


HOPS = f"REGISTER QUERY v AS SELECT ?a ?c WHERE {{ ?a <{EX}p> ?b . ?b <{EX}p> ?c }}"
PATHS = f"REGISTER QUERY v AS SELECT ?a ?c WHERE {{ ?a <{EX}p>+ ?c }}"


def edges(*pairs: str) -> str:
    """Return an update: `ab` inserts an edge from a to b, `-ab` deletes it."""
    parts = [("DELETE" if pair.startswith("-") else "INSERT", pair.lstrip("-")) for pair in pairs]
    return " ; ".join(f"{word} DATA {{ <{EX}{a}> <{EX}p> <{EX}{b}> }}" for word, (a, b) in parts)


def counted(name: str, method: Any, calls: Counter[str]) -> Any:
    def called(*given: Any) -> Any:
        calls[name] += 1
        return method(*given)

    return called


def waits(view: Any) -> bool:
    return "waits for other nodes" in view.why()


def same_as(view: Any, kept: Sum, node: ClusterNode) -> None:
    """Check what a reader has kept against the answer of the view's text."""
    node.engine.settle(WAIT_S)
    kept.read(view)
    assert kept.sn == node.store.core.sn
    assert kept.rows == Counter(rows_of(node.engine.query(view.source.text.partition(" AS ")[2])))


@pytest.mark.parametrize("text", first_and_slow([HOPS, PATHS]))
def test_a_view_waits_for_a_node_that_does_not_say_what_has_changed(text: str) -> None:
    with wired(3) as wires:
        node = wires.nodes[0]
        view, kept = node.engine.register(text), Sum()
        node.engine.update(edges("ab", "bc", "cd"))
        same_as(view, kept, node)
        fault = wires.lose(CHANGED, 1)
        node.engine.update(edges("de", "-ab"))
        node.engine.update(edges("ea", "ab"))
        until(lambda: waits(view))
        fault.count = 0
        same_as(view, kept, node)
        assert kept.resets == 1, "the operators had not moved"


@pytest.mark.parametrize("text", first_and_slow([HOPS, PATHS]))
@pytest.mark.parametrize(
    "outcome", first_and_slow([NodeUnavailable("node 1: the connection was lost"), CompactedError("it is gone")])
)
def test_a_view_begins_again_after_a_look_up_that_was_lost(text: str, outcome: WukongsError) -> None:
    with wired(3) as wires:
        node = wires.nodes[0]
        names = "abcdefghijklmnopqrstuvwxyz"
        node.engine.update(edges(*("".join(pair) for pair in pairwise(names))))
        view, kept = node.engine.register(text), Sum()
        same_as(view, kept, node)
        fault = wires.refuse(RUN, 1, outcome)
        pairs = [f"{name}{names[-1 - at]}" for at, name in enumerate(names)]
        wires.nodes[1].engine.update(edges(*pairs, "-bc"))  # it asks itself for nothing
        until(lambda: waits(view))
        fault.count = 0
        node.engine.update(edges("-cd"))
        same_as(view, kept, node)
        assert kept.resets == 2
        node.engine.update(edges("cd", "-de"))
        same_as(view, kept, node)
        assert kept.resets == 2
        assert view.stats()["errors"] == 0, "readers get no error"


def test_a_view_begins_again_where_a_node_has_forgotten_its_snapshot() -> None:
    with wired(3) as wires:
        node = wires.nodes[0]
        view, kept = node.engine.register(HOPS), Sum()
        same_as(view, kept, node)
        wires.refuse(CHANGED, 2, CompactedError("it is gone"), count=1)
        node.engine.update(edges("ab", "bc"))
        same_as(view, kept, node)
        assert kept.resets == 2


def test_a_long_change_is_the_difference_of_two_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.cluster.reads.owner.CHANGED_MAX", 2)
    with wired(3) as wires:
        node = wires.nodes[0]
        view, kept = node.engine.register(HOPS), Sum()
        node.engine.update(edges("ab", "bc", "cd", "de", "ef"))
        same_as(view, kept, node)
        node.engine.update(edges("-ab", "-bc", "-cd", "fg", "ga", "ac"))
        same_as(view, kept, node)
        assert kept.resets == 1
        moved = Counter[str]()
        for name in ("advance", "advance_anew"):
            monkeypatch.setattr(View, name, counted(name, getattr(View, name), moved))
        others = " . ".join(f"<{EX}{at}> <{EX}q> <{EX}o>" for at in range(20))
        node.engine.update(f"INSERT DATA {{ {others} }} ; {edges('gh')}")
        same_as(view, kept, node)
        assert moved == {"advance": 1}, "what no view reads does not count"


def test_answers_about_other_subjects_are_refused() -> None:
    with wired(2) as wires:
        node = wires.nodes[0]
        view, kept = node.engine.register(HOPS), Sum()
        same_as(view, kept, node)
        nothing = np.empty(0, np.int64)
        shards = node.store._mine
        own = np.array([int(np.flatnonzero(shards)[0]) << (63 - SHARD_BITS)], np.int64)
        for columns, rows in (([own] * 4, 1), ([nothing, own, own, own], 1), ([own, own, own, -own], 1)):
            fields = {"rows": rows, "inserted": 1}
            answer = Packet(CHANGED, fields, {f"c{at}": column for at, column in enumerate(columns)})
            fault = Fault(CHANGED, 1, answer)
            wires.faults.append(fault)
            node.engine.update(edges("ab", "bc"))
            until(lambda: "node 1 does not answer what it was asked" in view.why())
            fault.count = 0
            same_as(view, kept, node)
            node.engine.update(edges("-ab"))
            same_as(view, kept, node)
        with pytest.raises(DataError, match=r"read.changed: after = -1"):
            wires.deliver(0, 1, Packet(CHANGED, {"after": -1, "sn": 1, "timeout_s": 1}, {"shards": shards}))
        with pytest.raises(DataError, match="array shards: expected bool"):
            wires.deliver(0, 1, Packet(CHANGED, {"after": 0, "sn": 1, "timeout_s": 1}, {"shards": own}))


@pytest.mark.parametrize("snapshot", first_and_slow([False, True]))
def test_readers_go_on_after_a_restart_where_their_position_can_be_read(tmp_path: Path, snapshot: bool) -> None:
    with cluster(3, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        kept, view = Sum(), nodes[1].engine.register(HOPS, snapshot=snapshot)
        for report in view.results(0.0, group="g"):
            kept.take(report)
        nodes[0].engine.update(edges("ab", "bc"))
        nodes[0].engine.settle(WAIT_S)
        for report in view.results(0.0, group="g"):
            kept.take(report)
        assert len(kept.rows) == 1
        paused = nodes[1].engine.register(HOPS.replace("QUERY v", "QUERY w"))
        paused.pause()
        nodes[0].engine.update(edges("cd", "-ab"))
        cut_off(nodes)
    with cluster(3, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        nodes[0].engine.settle(WAIT_S)
        assert nodes[0].engine.update(edges("de")) > 0
        assert sorted((one.name, getattr(one, "node", 0)) for one in nodes[0].engine.queries()) == [("v", 1), ("w", 1)]
        view = nodes[1].engine.register(HOPS, snapshot=snapshot)
        assert view is nodes[1].store.query("v")
        nodes[0].engine.settle(WAIT_S)
        first = kept.resets
        for report in view.results(0.0, group="g", progress=True):
            if report.is_reset or report.snapshot > kept.sn:  # else it was not acknowledged before
                kept.take(report)
        assert kept.resets == first
        same_as(view, kept, nodes[1])
        [paused] = [one for one in nodes[1].engine.queries() if one.name == "w"]
        assert "is paused" in paused.why()
        paused.resume()
        same_as(paused, Sum(), nodes[1])


def names_of(result: Any) -> Counter[Row]:
    """Return the rows of a view with arguments: the number, and the names of the terms."""
    return Counter((str(int(row[0])), *(str(term).rpartition("/")[2] for term in row[1:])) for row in result)


def given(*names: str) -> list[dict[str, str]]:
    return [{"a": f"<{EX}{name}>"} for name in names]


@pytest.mark.parametrize("together_bytes", [1 << 16, 1])
def test_arguments_are_there_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together_bytes: int
) -> None:
    monkeypatch.setattr("wukongs.live.views.logged_arguments.TOGETHER_BYTES_MIN", together_bytes)
    with cluster(3, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        nodes[0].engine.update(edges("ab", "bc", "cd", "de"))
        view = nodes[1].engine.register(HOPS, bindings=given("a", "x"))
        [beside] = nodes[2].engine.queries()
        assert beside.bind(given("b", "c", "b")).tolist() == [2, 3, 4]
        assert view.unbind(given("b")).tolist() == [2]
        for _ in range(together_bytes == 1 and 20):
            [number] = view.bind(given("d")).tolist()
            assert beside.unbind([number]).tolist() == [number]
        last = 5 if together_bytes > 1 else 25
        with pytest.raises(DataError, match="no argument has the number 2"):
            beside.unbind([2])
        with pytest.raises(SettingsError, match="registered with the columns 'a', found 'c'"):
            beside.bind([{"c": "<http://ex/a>"}])
        assert view.stats()["arguments"] == beside.stats()["arguments"] == 4
        nodes[0].engine.settle(WAIT_S)
        content = names_of(view.content())
        assert content == Counter([("0", "a", "c"), ("3", "c", "e"), ("4", "b", "d")])
        bound = nodes[0].host.node.control.queries["v"].bound
        assert len(bound) == 2 if together_bytes > 1 else len(bound) < 10, "many changes are one text"
        cut_off(nodes)
    with cluster(3, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        nodes[0].engine.settle(WAIT_S)
        view = nodes[1].engine.register(HOPS, bindings=given("a", "x"))
        assert view is nodes[1].store.query("v")
        assert names_of(view.content()) == content
        assert view.bind(given("d")).tolist() == [last], "a number is never used again"
        nodes[0].engine.update(edges("ef"))
        nodes[0].engine.settle(WAIT_S)
        assert names_of(view.content()) == content + Counter([(str(last), "d", "f")])
        with pytest.raises(StreamError, match="v is registered already"):
            nodes[1].engine.register(HOPS, bindings=given("b"))


@pytest.mark.parametrize("node", [0, 1])
def test_arguments_that_are_bound_at_one_time_have_numbers_of_their_own(node: int) -> None:
    with cluster(2, 1, silence_pulses_max=PATIENT) as nodes, ThreadPoolExecutor(4) as threads:
        nodes[0].engine.update(edges("ab", "bc"))
        view = nodes[0].engine.register(HOPS, bindings=[{"a": "<http://ex/a>"}])
        [called] = nodes[node].engine.queries()
        found = list(threads.map(lambda _: called.bind(given("a", "b")).tolist(), range(8)))
        assert sorted(number for numbers in found for number in numbers) == list(range(1, 17))
        nodes[0].engine.settle(WAIT_S)
        assert len(view.content()) == 9


def test_arguments_whose_answer_is_lost_may_be_bound() -> None:
    with wired(2) as wires:
        view = wires.nodes[0].engine.register(HOPS, bindings=given("a"))
        [beside] = wires.nodes[1].engine.queries()
        wires.lose(OF_QUERY, 0, is_done=True, count=1)
        with pytest.raises(OutcomeUnknown, match=r"bind: node 0: the connection was lost\. It may still be done"):
            beside.bind(given("b"))
        assert view.stats()["arguments"] == 2


@pytest.mark.parametrize("node", [0, 1])
def test_another_text_of_a_view_is_checked_at_each_node(node: int) -> None:
    with wired(2) as wires:
        wires.nodes[0].engine.stream(f"{EX}s", batch_ms=1000)
        view = wires.nodes[0].engine.register(HOPS, bindings=given("a"))
        [called] = wires.nodes[node].engine.queries()
        for stream in ("s", "t"):
            window = f"FROM STREAM <{EX}{stream}> [RANGE 1s STEP 1s] WHERE"
            with pytest.raises(StreamError, match="view v: the other text has a window"):
                called.replace(HOPS.replace("WHERE", window))
        with pytest.raises(UnsupportedFeatureError, match="RAND"):
            called.replace(HOPS.replace("}", "FILTER(RAND() < 1) }"))
        with pytest.raises(SettingsError, match="'a' is no variable"):
            called.replace(HOPS.replace("?a", "?d"))
        assert view.source.text == HOPS
        assert wires.nodes[1].host.node.control.queries["v"].changes == 0


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [None, given("a", "c")])
def test_named_readers_go_on_where_they_were_when_a_view_moves(arguments: list[dict[str, str]] | None) -> None:
    """One reader has acknowledged all that it got, one has got a report and not acknowledged it, one has lost its first
    report, and one has only begun; each gets reports from its position on, and what it may have kept is no part of a
    report that leads further."""
    with cluster(3, 2) as nodes:
        view: Any = nodes[2].engine.register(HOPS, bindings=arguments, snapshot=False)
        kept = {name: Sum() for name in ("begun", "done", "open", "behind")}

        def change(*pairs: str) -> None:
            nodes[0].engine.update(edges(*pairs))
            nodes[0].engine.settle(WAIT_S)

        for name in kept:  # all begin at the same position
            assert list(view.results(0.0, group=name)) == []
        kept["begun"].sn = view.sn
        change("ab", "bc")
        for name, each in kept.items():
            for report in view.results(0.2, group=name) if name != "begun" else ():
                each.take(report)
        change("cd")
        for report in view.results(0.2, group="done"):
            kept["done"].take(report)
        for report in view.results(0.2, group="open"):
            kept["open"].take(report)
            break  # it is given back: the next reader gets it again
        for _ in view.results(0.2, group="behind"):
            break
        change("de")
        if arguments is not None:
            view.bind(given("b"))
            nodes[0].engine.settle(WAIT_S)
        positions = {name: each.sn for name, each in kept.items()}
        until(lambda: {*positions.values()} <= {*nodes[0].store._stands} & {*nodes[1].store._stands})
        nodes[2].close()
        nodes[0].engine.update(edges("ef", "-ab"))
        until(lambda: any(node.store.query("v") is not None for node in nodes[:2]))
        home = next(node for node in nodes[:2] if node.store.query("v") is not None)
        view = home.engine.register(HOPS, bindings=arguments, snapshot=False)
        home.engine.settle(WAIT_S)
        content = Counter(rows_of(view.content()))
        for name, each in kept.items():
            resets = each.resets
            for report in view.results(0.5, group=name, progress=True):
                if report.snapshot > each.sn:  # the reader skips what it has
                    each.take(report)
            assert each.resets == resets, name
            assert each.rows == content, name
        new = Sum()
        for report in view.results(0.5, group="new"):
            new.take(report)
        assert (new.resets, new.rows) == (1, content)
        assert view.stats()["resets_for_lag"] == 0
        view.close()
        until(lambda: not any(node.store._stands for node in nodes[:2]))


def test_a_paused_view_holds_nothing_for_its_readers() -> None:
    with wired(2) as wires:
        node = wires.nodes[0]
        view = node.engine.register(HOPS, snapshot=False)
        assert list(view.results(0.0, group="g")) == []
        node.engine.update(edges("ab", "bc"))
        node.engine.settle(WAIT_S)
        until(lambda: all(one.store._stands for one in wires.nodes))
        view.pause()
        assert len(list(view.results(0.0, group="g"))) == 1
        assert node.store.views.stands() == []
        until(lambda: not any(one.store._stands for one in wires.nodes))
        view.resume()
        [report] = view.results(0.0, group="g")
        assert report.is_reset


def test_a_view_that_moves_hands_out_nothing_more_where_it_was() -> None:
    """What it has not handed out by then comes from the other node: else its readers had reports of which the log says
    nothing, and the next one would lead across what they have kept."""
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        view, kept = nodes[2].engine.register(HOPS, snapshot=False), Sum()
        for number, pairs in enumerate((["ab", "bc"], ["cd"], ["de"], ["ef"])):
            if number < 2:
                for report in view.results(0.0, group="g"):
                    kept.take(report)
            nodes[0].engine.update(edges(*pairs))
            nodes[0].engine.settle(WAIT_S)
        nodes[1].host.submit(Submitted(MoveQuery("v", (0,), (2,))), WAIT_S)
        until(lambda: view.is_closed and nodes[0].store.query("v") is not None)
        assert list(view.results(0.0, group="g")) == []
        [moved] = [one for one in nodes[0].engine.queries() if one.name == "v"]
        resets = kept.resets
        for report in moved.results(0.2, group="g"):
            if report.snapshot > kept.sn:  # the reader skips what it has
                kept.take(report)
        assert (kept.resets, kept.rows) == (resets, Counter(rows_of(moved.content())))


@pytest.mark.slow
def test_a_view_moves_when_its_node_is_lost() -> None:
    with cluster(3, 2) as nodes:
        kept, view = Sum(), nodes[2].engine.register(HOPS, snapshot=False)
        each = nodes[2].engine.register(HOPS.replace("QUERY v", "QUERY w"), bindings=given("a"))
        assert each.bind(given("c", "d")).tolist() == [1, 2]
        assert each.unbind([1]).tolist() == [1]
        nodes[0].engine.update(edges("ab", "bc"))
        nodes[0].engine.settle(WAIT_S)
        kept.read(view)
        assert (len(kept.rows), kept.resets) == (1, 0)
        nodes[2].close()
        nodes[0].engine.update(edges("cd", "-ab"))
        until(lambda: any(node.store.query("v") is not None for node in nodes[:2]))
        home = next(node for node in nodes[:2] if node.store.query("v") is not None)
        view = home.engine.register(HOPS, snapshot=False)
        same_as(view, kept, home)
        assert kept.resets == 1
        until(lambda: any(node.store.query("w") is not None for node in nodes[:2]))
        [each] = [one for one in home.engine.queries() if one.name == "w"]
        assert each.stats()["arguments"] == 2
        assert each.bind(given("b")).tolist() == [3]
        start_again(nodes, 2, replica_count=2)
        nodes[2].engine.update(edges("de", "-bc"))
        same_as(view, kept, home)
        each.close()
        view.close()
        until(lambda: nodes[2].engine.queries() == [])


def test_a_client_of_any_node_reads_a_view() -> None:
    with cluster(2, 1, silence_pulses_max=PATIENT) as nodes, ExitStack() as stack:
        addresses = tuple(stack.enter_context(served_node(node, Settings())) for node in nodes)
        for node in nodes:
            node.backend.ingest_addresses = addresses
        first, second = (stack.enter_context(wukongs.connect(address)) for address in addresses)
        view: Any = first.register(HOPS)
        [beside] = second.queries()
        same: Any = stack.enter_context(wukongs.connect(addresses[1])).register(HOPS)
        assert [type(one) for one in (view, beside, same)] == [RemoteView] * 3
        second.update(edges("ab", "bc"))
        second.settle(WAIT_S)
        for one in (view, beside, same):
            kept = Sum()
            for report in one.results(timeout_s=0.3):
                kept.take(report)
            assert len(kept.rows) == 1
            assert len(one.content()) == 1
        with pytest.raises(StreamError, match="v is registered already"):
            first.register(HOPS, keep=True)
        assert "delta join" in beside.explain()
        beside.pause()
        assert "is paused" in view.why()
        beside.close()
        until(lambda: first.queries() == [])


@pytest.mark.slow
def test_a_backup_has_the_views(tmp_path: Path) -> None:
    with cluster(1, silence_pulses_max=PATIENT) as nodes:
        engine = nodes[0].engine
        engine.update(edges("ab", "bc"))
        engine.register(HOPS, keep=True)
        engine.register(HOPS.replace("QUERY v", "QUERY w")).pause()
        engine.stream(f"{EX}made", batch_ms=100, into=f"{EX}g")
        made = f"REGISTER QUERY m AS CONSTRUCT {{ ?a <{EX}q> ?b }} WHERE {{ ?a <{EX}p> ?b }}"
        engine.register(made, into=f"{EX}made", every_ms=100)
        engine.backup(tmp_path / "backup")
    with wukongs.restore(tmp_path / "backup", tmp_path / "restored") as restored:
        restored.register(f"REGISTER QUERY b AS SELECT ?a WHERE {{ ?a <{EX}p> ?b }}", bindings=[{"b": f"<{EX}c>"}])
        assert [one.name for one in restored.queries()] == ["v", "w", "m", "b"]
        assert len(restored.register(HOPS, keep=True).content()) == 1
    with cluster(1, silence_pulses_max=PATIENT) as nodes:
        engine = nodes[0].engine
        engine.restore(tmp_path / "restored")
        assert [one.name for one in engine.queries()] == ["b", "m", "v", "w"]
        assert engine.register(made, into=f"{EX}made", every_ms=100).stats()["into"] == f"{EX}made"
        [bound] = [one for one in engine.queries() if one.name == "b"]
        assert bound.bind([{"b": f"<{EX}b>"}]).tolist() == [1]
        engine.backup(tmp_path / "again")
        assert len(engine.register(HOPS, keep=True).content()) == 1
        assert "is paused" in engine.queries()[3].why()
    with wukongs.restore(tmp_path / "again", tmp_path / "restored again") as restored:
        assert {one.name: one.stats()["arguments"] for one in restored.queries()} == {"b": 2, "m": 0, "v": 0, "w": 0}


def test_a_change_costs_one_message_to_each_other_node() -> None:
    with wired(3) as wires:
        node = wires.nodes[0]
        views = [
            node.engine.register(f"REGISTER QUERY v{at} AS SELECT ?o WHERE {{ <{EX}n{at}> <{EX}p{at}> ?o }}")
            for at in range(4)
        ]
        node.engine.settle(WAIT_S)
        wires.asked.clear()
        wires.nodes[1].engine.update(f"INSERT DATA {{ <{EX}n2> <{EX}p2> <{EX}o> . <{EX}o> <{EX}q> 1 }}")
        until(lambda: views[2].stats()["reports"] == 1)
        asked = Counter((packet.kind, to) for who, to, packet in wires.asked if who == 0 and packet.kind[:5] == "read.")
        assert asked == {(CHANGED, 1): 1, (CHANGED, 2): 1}


def test_a_report_has_its_texts_before_its_reader_gets_it() -> None:
    with wired(3) as wires:
        node = wires.nodes[0]
        view, kept = node.engine.register(f"REGISTER QUERY v AS SELECT ?a ?c WHERE {{ ?a <{EX}p> ?c }}"), Sum()
        kept.read(view)
        names = "abcdefghijklm"
        wires.nodes[1].engine.update(edges(*("".join(pair) for pair in pairwise(names))))
        until(lambda: view.stats()["reports"])
        expected = Counter((f"<{EX}{a}>", f"<{EX}{c}>") for a, c in pairwise(names))
        wires.cut = {1, 2}
        assert kept.read(view).rows == expected, "the other nodes are gone by now"
        wires.cut = set()
        fresh, beside = Sum(), view.new_cursor(needs_reset=True)
        report = view.next_report(beside, None)
        wires.cut = {1, 2}
        assert report is not None
        fresh.take(report)
        assert fresh.rows == expected
        wires.cut = set()


def test_on_result_gets_what_a_reader_does_once_the_other_nodes_answer() -> None:
    with wired(3) as wires:
        node, kept = wires.nodes[0], Sum()
        names = "abcdefghijklm"
        node.engine.update(edges(*("".join(pair) for pair in pairwise(names))))
        faults = [wires.lose(kind, to) for kind in (RUN, TEXTS) for to in (1, 2)]
        node.engine.register(HOPS, kept.take)
        until(lambda: sum(fault.count < 1 << 30 for fault in faults) > 0)
        assert kept.resets == 0
        for fault in faults:
            fault.count = 0
        until(lambda: len(kept.rows) == len(names) - 2)
        wires.nodes[1].engine.update(edges("-ab", "-lm"))
        until(lambda: len(kept.rows) == len(names) - 4)
        assert kept.resets == 1


@pytest.mark.slow
def test_views_stand_at_many_snapshots() -> None:
    """A period that lasts keeps its SN on all nodes, though there are older ones, and many newer ones."""
    with wired(3) as wires:
        node = wires.nodes[0]
        node.engine.update(edges("ab", "bc"))
        followed = list[tuple[Any, Sum]]()
        for number in range(3):
            view = node.engine.register(HOPS.replace("QUERY v", f"QUERY v{number}"), every_ms=10**9)
            followed.append((view, Sum().read(view)))
            node.engine.update(edges(f"{number}a", f"c{number}"))
            until(lambda view=view: all(view.sn in one.store._stands for one in wires.nodes))  # type: ignore[misc]
        for number in range(HELD_ENTRIES_MAX + 10):
            wires.nodes[1].engine.update(edges(f"{'' if number % 2 else '-'}cd"))
        for one in wires.nodes:
            one.store.core.arrangement.trace.merge_further(1 << 20)
        with node.store.core.lock:
            node.store.views._end_periods(node.store.views.next_period_ms() or 0, node.store.views._snapshots)
            node.store.views._news.notify_all()
        for view, kept in followed:
            until(lambda view=view: view.stats()["reports"] == 1)  # type: ignore[misc]
            assert kept.read(view).rows == Counter(rows_of(view.content()))
            assert kept.resets == 1, view.why()
        for view, _ in followed:
            view.close()
        until(lambda: not any(one.store._stands for one in wires.nodes))


@pytest.mark.slow
def test_views_go_on_at_a_node_that_is_drained_and_beside_it() -> None:
    with cluster(4, 2, spare_count=1, silence_pulses_max=PATIENT) as nodes:
        nodes[0].engine.update(edges("ab", "bc", "cd"))
        followed = [
            (node, node.engine.register(HOPS.replace("QUERY v", f"QUERY v{node.me.node}")), Sum()) for node in nodes[:2]
        ]
        for update in (edges("de", "-ab"), "", edges("ef", "ab"), edges("-ef", "fg", "ga")):
            if update:
                nodes[2].engine.update(update)
            else:
                nodes[1].engine.drain(0, [3], timeout_s=WAIT_S)
            for node, view, kept in followed:
                same_as(view, kept, node)
                assert kept.resets == 1


def test_a_node_of_an_earlier_release_has_no_views() -> None:
    with wired(2) as wires:
        engine = wires.nodes[0].engine
        wires.nodes[0]._knows = {**wires.nodes[0]._knows, 1: frozenset([EVENT_TIMES, LEASES])}
        with pytest.raises(StreamError, match="so it is a live view, and node 1 is of an earl"):
            engine.register(HOPS)
        assert engine.queries() == []


def test_a_view_may_be_registered_while_nodes_are_still_introducing_themselves() -> None:
    """At the start of a cluster, a node without an introduction looks like one of an earlier release."""
    with cluster(2, silence_pulses_max=PATIENT) as nodes:
        until(lambda: all(nodes[0]._knows_of(number) is not None for number in range(2)))
        known, nodes[0]._knows = nodes[0]._knows, {0: nodes[0]._knows[0]}
        timer = threading.Timer(0.3, setattr, (nodes[0], "_knows", known))
        timer.start()
        nodes[0].engine.register(HOPS)
        timer.join()
