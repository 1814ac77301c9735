"""Live views on clusters: the sum of a reader's reports is the answer of the text asked once, at every SN."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from rdflib import URIRef

import wukongs
from tests.clusters import PATIENT, cluster, cut_off, start_again
from tests.faces import served_node
from tests.fuzz import first_and_slow, slow
from tests.unit.cluster.wires import EX, WAIT_S, Fault, until, wired
from tests.unit.incremental.queries import GRAPHS, RULE, QueryMaker, quads_text, random_triples, random_update
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.reads.requests import CHANGED, RUN
from wukongs.csparql.parser import parse_query
from wukongs.csparql.rules import rewrite
from wukongs.errors import CompactedError, DataError, NodeUnavailable, StreamError, WukongsError
from wukongs.incremental.leaves import DeltaJoin
from wukongs.live.reading import ids_of, terms_of
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.answer import answer
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
AC = Counter({(repr(URIRef(EX + "a")), repr(URIRef(EX + "c"))): 1})


TEXTS = (
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
        for row, weight in report.changes():
            self.rows[texts_of(row)] += weight
        assert all(weight >= 0 for weight in self.rows.values()), self.rows
        self.rows = +self.rows

    def read(self, view: Any) -> Sum:
        for report in view.results(0.0, progress=True):
            self.take(report)
        return self


def asked(engine: wukongs.Engine, text: str) -> Counter[Row]:
    """Return the answer of an engine of one process, evaluated from scratch, with the choices of LIMIT and GROUP_CONCAT
    that views make."""
    core, query, limits = engine._core, rewrite(parse_query(text, None)), Limits()
    terms = terms_of(core)
    with core.lock:
        stored = core.arrangement.trace.read(core.sn)
    name_graphs(query.dataset, terms)
    dataset = Dataset(query.dataset, stored, {}, ConstantIds(ids_of(core), core.reserved))
    found = answer(query, dataset, terms, limits, PlanMemo(), "asked", in_order=True)
    result = Result(query.form, query.variables, found.columns, terms, core.sn, found.boolean, found.length)
    if found.boolean is not None:
        return Counter({(): 1}) if found.boolean else Counter()
    return Counter(map(texts_of, result))


def texts_of(row: Any) -> Row:
    return tuple(None if term is None else repr(term) for term in row)


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
    followed, texts = list[tuple[str, Any, Sum]](), [*TEXTS]
    while len(followed) < views:
        text = texts.pop() if texts else QueryMaker(rng, **kinds).query()
        name = f"v{seed}x{len(followed)}"
        try:
            followed.append((text, rng.choice(engines).register(f"REGISTER QUERY {name} AS {text}"), Sum()))
        except wukongs.QuerySyntaxError:  # a variable that BIND would bind again
            continue
    for step in range(steps):
        for _ in range(rng.choice((1, 1, 3))):
            update = random_update(rng, graphs, of_graphs=kinds.get("of_graphs", False))
            engine.update(update)
            rng.choice(engines).update(update)
        rng.choice(engines).settle(60)
        for text, view, kept in followed:
            before = Counter(kept.rows)
            kept.read(view)
            changed += kept.rows != before
            expected = asked(engine, text)
            assert kept.rows == expected, (
                f"seed {seed}, step {step}: {text}\n{view.explain()}\nmissing {expected - kept.rows}\nextra "
                f"{kept.rows - expected}\n{view.why()}"
            )
            assert view.stats()["errors"] == 0
    for _, view, kept in followed:
        assert kept.resets == 1, view.why()
        view.close()
    return changed


@pytest.mark.parametrize(("count", "replicas"), [(3, 1), slow(1, 1), slow(3, 2)])
def test_views_follow_their_text(count: int, replicas: int, monkeypatch: pytest.MonkeyPatch) -> None:
    explored, right = list[bool](), DeltaJoin._explored

    def count_rows(self: DeltaJoin, *given: Any) -> BindingTable:
        found = right(self, *given)
        explored.append(found.length > 0)
        return found

    monkeypatch.setattr(DeltaJoin, "_explored", count_rows)
    with cluster(count, replicas, silence_pulses_max=PATIENT) as nodes, wukongs.Engine() as engine:
        assert follow(nodes, engine, 1, 15, 8) >= 8
    assert any(explored) is (count > 1), "changes were joined with what other nodes hold"


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
        assert known.why() == view.why()
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


def test_what_views_on_clusters_lack_is_refused_by_name() -> None:
    select = "REGISTER QUERY v {} AS SELECT * WHERE {{ ?a <http://ex/p> ?b }}"
    made = "REGISTER QUERY v AS CONSTRUCT { ?a <http://ex/q> ?b } WHERE { ?a <http://ex/p> ?b }"
    with cluster(1, silence_pulses_max=PATIENT) as nodes:
        engine = nodes[0].engine
        with pytest.raises(StreamError, match="view v: bindings are for live views of engines of one process"):
            engine.register(select.format(""), bindings=[{"a": "<http://ex/a>"}])
        with pytest.raises(StreamError, match="view v: periods"):
            engine.register(select.format("COMPUTED EVERY 1s"))
        with pytest.raises(StreamError, match="view v: periods"):
            engine.register(select.format(""), every_ms=1000)
        engine.stream("http://ex/s", batch_ms=1000)
        with pytest.raises(StreamError, match="a live view on a cluster makes no stream"):
            engine.register(made, into="http://ex/s", every_ms=1000)
        view = engine.register(select.format(""))
        with pytest.raises(StreamError, match=r"why\(row\) is for engines of one process"):
            view.why({"a": "<http://ex/a>"})
        with pytest.raises(StreamError, match="view v: periods"):
            view.replace(select.format("COMPUTED EVERY 1s"))


HOPS = f"REGISTER QUERY v AS SELECT ?a ?c WHERE {{ ?a <{EX}p> ?b . ?b <{EX}p> ?c }}"
PATHS = f"REGISTER QUERY v AS SELECT ?a ?c WHERE {{ ?a <{EX}p>+ ?c }}"


def edges(*pairs: str) -> str:
    """Return an update: `ab` inserts an edge from a to b, `-ab` deletes it."""
    parts = [("DELETE" if pair.startswith("-") else "INSERT", pair.lstrip("-")) for pair in pairs]
    return " ; ".join(f"{word} DATA {{ <{EX}{a}> <{EX}p> <{EX}{b}> }}" for word, (a, b) in parts)


def waits(view: Any) -> bool:
    return "waits for other nodes" in view.why()


def same_as(view: Any, kept: Sum, node: ClusterNode) -> None:
    """Check what a reader has kept against the answer of the view's text."""
    node.engine.settle(WAIT_S)
    kept.read(view)
    assert kept.sn == node.store.core.sn
    assert kept.rows == Counter(map(texts_of, node.engine.query(view.source.text.partition(" AS ")[2])))


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
@pytest.mark.parametrize("outcome", [NodeUnavailable("node 1: the connection was lost"), CompactedError("it is gone")])
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
def test_readers_begin_with_a_reset_after_a_restart(tmp_path: Path, snapshot: bool) -> None:
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
            kept.take(report)
        assert kept.resets == first + 1
        same_as(view, kept, nodes[1])
        [paused] = [one for one in nodes[1].engine.queries() if one.name == "w"]
        assert "is paused" in paused.why()
        paused.resume()
        same_as(paused, Sum(), nodes[1])


@pytest.mark.slow
def test_a_view_moves_when_its_node_is_lost() -> None:
    with cluster(3, 2) as nodes:
        kept, view = Sum(), nodes[2].engine.register(HOPS, snapshot=False)
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
        start_again(nodes, 2, replica_count=2)
        nodes[2].engine.update(edges("de", "-bc"))
        same_as(view, kept, home)
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
