"""Live views on clusters: the sum of a reader's reports is the answer of the text asked once, at every SN."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from rdflib import URIRef

import wukongs
from tests.clusters import PATIENT, cluster
from tests.unit.cluster.wires import EX
from tests.unit.incremental.queries import GRAPHS, QueryMaker, quads_text, random_triples, random_update
from wukongs.csparql.parser import parse_query
from wukongs.csparql.rules import rewrite
from wukongs.errors import StreamError
from wukongs.incremental.leaves import DeltaJoin
from wukongs.incremental.versions import Change
from wukongs.incremental.zset import ZSet
from wukongs.live.reading import ids_of, terms_of
from wukongs.query.execution.answer import answer
from wukongs.query.limits import Limits
from wukongs.query.output.results import Result
from wukongs.query.output.view_report import ViewReport
from wukongs.query.plans.dataset import Dataset, name_graphs
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.terms.query_terms import ConstantIds

PREFIX = f"PREFIX : <{EX}>\n"
Row = tuple[str | None, ...]
AC = Counter({(repr(URIRef(EX + "a")), repr(URIRef(EX + "c"))): 1})


class Sum:
    """What a reader keeps of a view's reports: their sum, and the SN up to which it has them."""

    def __init__(self) -> None:
        self.rows, self.sn, self.resets = Counter[Row](), -1, 0

    def take(self, report: ViewReport) -> None:
        if report.is_reset:
            self.rows, self.resets = Counter(), self.resets + 1
        else:
            assert report.after == self.sn, (report.after, self.sn)
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
    followed = list[tuple[str, Any, Sum]]()
    while len(followed) < views:
        text, name = QueryMaker(rng, **kinds).query(), f"v{seed}x{len(followed)}"
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


@pytest.mark.parametrize(("count", "replicas"), [(1, 1), (3, 1), (3, 2)])
def test_views_follow_their_text(count: int, replicas: int, monkeypatch: pytest.MonkeyPatch) -> None:
    explored, right = list[bool](), DeltaJoin._explored

    def count_rows(self: DeltaJoin, change: Change) -> ZSet:
        found = right(self, change)
        explored.append(len(found) > 0)
        return found

    monkeypatch.setattr(DeltaJoin, "_explored", count_rows)
    with cluster(count, replicas, silence_pulses_max=PATIENT) as nodes, wukongs.Engine() as engine:
        assert follow(nodes, engine, 1, 10, 4) >= 8
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
