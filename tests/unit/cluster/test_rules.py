"""Rules over the stored graph of a cluster: what each node reads at each SN is what plain sets say."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

import wukongs
from tests.clusters import PATIENT, cluster, cut_off, start_again
from tests.fuzz import SEED, scaled
from tests.oracles.rules import Closure, Program, Rule, Tree, Triple, text_of
from tests.rule_programs import GRAPH, NODES, PREDICATES, fitting, random_rules, random_triple
from tests.unit.cluster.wires import EX, until, wired
from wukongs import errors
from wukongs.cluster import following
from wukongs.cluster.changes import STAGE
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.reads.requests import RUN
from wukongs.cluster.times import unpacked
from wukongs.outcomes import Asked, asking
from wukongs.rules import propagation
from wukongs.settings import Settings

GRAPHS = ["", GRAPH]
KINDS = ["all", "inferred", "explicit"]
PREFIX = f"PREFIX : <{EX}>\n"
PART_OF = PREFIX + "RULE part-of: CONSTRUCT { ?x :partOf ?z } WHERE { ?x :partOf ?y . ?y :partOf ?z }"
COPY = PREFIX + "RULE copy: CONSTRUCT { ?x :q ?y } WHERE { ?x :p ?y }"
Views = dict[tuple[str, str], list[tuple[str | None, ...]]]
SETTLE_S = 60.0
WHY_MAX = 2


def block(graph: str, triples: Sequence[Triple]) -> str:
    lines = "".join(f"{' '.join(triple)} .\n" for triple in triples)
    return f"GRAPH {graph} {{ {lines} }}" if graph else lines


def dataset_of(kind: str, graph: str) -> str:
    if kind == "all":
        return f"FROM {graph or '<urn:x-wukongs:default>'}"
    return f"FROM <urn:x-wukongs:{kind}{':' + graph[1:-1] if graph else ''}>"


def views(engine: Any, at: int | None = None) -> Views:
    return {
        (kind, graph): sorted(engine.query(f"SELECT ?s ?p ?o {dataset_of(kind, graph)} {{ ?s ?p ?o }}", at=at).texts())
        for graph in GRAPHS
        for kind in KINDS
    }


class Story:
    """A random story: rules come and go, and explicit triples, by whichever node is asked."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.explicit: dict[str, set[Triple]] = {graph: set() for graph in GRAPHS}
        self.installed: list[tuple[str, Rule]] = []
        self.count = 0

    def closure(self) -> Closure:
        return Program(tuple(self.installed)).closure(self.explicit)

    def expected(self) -> Views:
        closure = self.closure()
        found: Views = {}
        for graph in GRAPHS:
            parts = closure.all(graph), closure.only_inferred(graph), self.explicit[graph]
            found |= {(kind, graph): sorted(part) for kind, part in zip(KINDS, parts, strict=True)}
        return found

    def go_on(self, engine: Any) -> None:
        """Do one thing at a node."""
        self.count += 1
        random, graph = self.random, self.random.choice(["", "", GRAPH])
        kind = random.choice(["insert", "insert", "delete", "meet", "where", "load", "load", "clear", "rules", "drop"])
        if self.count == 1 or (kind == "drop" and not self.installed):
            kind = "rules"
        getattr(self, f"_{kind}")(engine, graph)

    def _some(self, least: int = 1) -> list[Triple]:
        return [random_triple(self.random) for _ in range(self.random.randint(least, 6))]

    def _insert(self, engine: Any, graph: str) -> None:
        triples = self._some()
        engine.update(f"INSERT DATA {{ {block(graph, triples)} }}")
        self.explicit[graph].update(triples)

    def _load(self, engine: Any, graph: str) -> None:
        triples = self._some(0)
        engine.load(io.BytesIO(block("", triples).encode()), graph[1:-1] or None, format="nt")
        self.explicit[graph].update(triples)

    def _delete(self, engine: Any, graph: str) -> None:
        known = sorted(self.explicit[graph])
        gone = self.random.sample(known, min(len(known), 3))
        engine.update(f"DELETE DATA {{ {block(graph, gone)} }}")
        self.explicit[graph].difference_update(gone)

    def _meet(self, engine: Any, graph: str) -> None:
        """Delete triples that are inferred, which does nothing, or state them."""
        known = sorted(self.closure().only_inferred(graph))
        some = block(graph, met := self.random.sample(known, min(len(known), 3)))
        if self.random.random() < 0.5:
            engine.update(f"DELETE DATA {{ {some} }}")
        else:
            engine.update(f"INSERT DATA {{ {some} }}")
            self.explicit[graph].update(met)

    def _where(self, engine: Any, _: str) -> None:
        node, predicate = self.random.choice(NODES), self.random.choice(PREDICATES)
        engine.update(f"DELETE WHERE {{ {node} {predicate} ?o }}")
        self.explicit[""] = {one for one in self.explicit[""] if one[:2] != (node, predicate)}

    def _clear(self, engine: Any, graph: str) -> None:
        triples = self._some()
        what = f"GRAPH {graph}" if graph else "DEFAULT"
        engine.update(f"CLEAR SILENT {what} ; INSERT DATA {{ {block(graph, triples)} }}")
        self.explicit[graph] = set(triples)

    def _rules(self, engine: Any, graph: str) -> None:
        drawn = [(graph, rule) for rule in random_rules(self.random, f"r{self.count}-")]
        come = fitting(self.installed, drawn)
        if come:
            engine.add_rules(text_of(rule for _, rule in come), into=graph[1:-1] or None)
            self.installed += come

    def _drop(self, engine: Any, _: str) -> None:
        names = sorted(self.random.sample([rule.name for _, rule in self.installed], 1))
        engine.drop_rules(*names)
        self.installed = [(into, rule) for into, rule in self.installed if rule.name not in names]


def tree_of(found: Any) -> Tree:
    graph = "" if found.graph is None else f"<{found.graph}>"
    return Tree(graph, found.triple, found.rule, tuple(map(tree_of, found.parts)))


def look(engines: Sequence[Any], story: Story) -> None:
    """Each node reads what plain sets say, at the same SN."""
    expected = story.expected()
    for engine in engines:
        engine.settle(SETTLE_S)
    for number, engine in enumerate(engines):
        found = views(engine)
        for key, rows in expected.items():
            said = text_of(rule for _, rule in story.installed)
            assert found[key] == rows, f"node {number}, step {story.count}, {key}:\n{said}"
        assert list(engine.graph_names()) == ([GRAPH[1:-1]] if expected["all", GRAPH] else [])
        for graph in GRAPHS:
            name = f"urn:x-wukongs:inferred{':' + graph[1:-1] if graph else ''}"
            rows = engine.query(f"ASK {{ GRAPH <{name}> {{}} }}")
            assert rows.boolean == bool(expected["inferred", graph])
            for triple in expected["inferred", graph][:WHY_MAX]:
                derivation = engine.why(triple, graph[1:-1] or None)
                assert Program(tuple(story.installed)).holds(story.closure(), tree_of(derivation)), derivation
        assert sorted(one.name for one in engine.rules()) == sorted(rule.name for _, rule in story.installed)


def hold(nodes: Sequence[ClusterNode]) -> int:
    """Keep the newest snapshot from being merged away, and return its SN."""
    sn = max(node.store.core.sn for node in nodes)
    for node in nodes:
        node.store.wait_for(unpacked(sn), SETTLE_S)
        with node.store.core.lock:
            node.store.core.arrangement.open(sn, "a test", expires=False)
    return sn


@pytest.mark.parametrize("seed", range(SEED or 0, (SEED or 0) + scaled(6)))
def test_all_nodes_read_what_follows(seed: int) -> None:
    story = Story(seed)
    node_count, replica_count = [(2, 1), (3, 1), (3, 2), (2, 2)][seed % 4]
    past: list[tuple[int, Views]] = []
    with wired(node_count, replica_count) as wires:
        engines = [node.engine for node in wires.nodes]
        for _ in range(10):
            story.go_on(story.random.choice(engines))
            look(engines, story)
            past.append((hold(wires.nodes), story.expected()))
        for sn, expected in past:
            for engine in engines:
                assert views(engine, sn) == expected, f"SN {sn} has changed"


@pytest.mark.parametrize("has_checkpoints", [False, True])
def test_nodes_with_data_folders_go_on_with_what_follows(tmp_path: Path, has_checkpoints: bool) -> None:
    story = Story(7)
    for life in range(3):
        with cluster(2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
            engines = [node.engine for node in nodes]
            look(engines, story)
            for at in range(5):
                story.go_on(engines[at % 2])
                if has_checkpoints and at == 2:
                    engines[0].checkpoint()
            look(engines, story)
            if life < 2:
                cut_off(nodes)


@pytest.mark.slow
def test_a_node_that_begins_anew_takes_over_what_follows() -> None:
    story = Story(11)
    with cluster(3, 2) as nodes:
        for number in range(3):
            for _ in range(4):
                story.go_on(nodes[number].engine)
            nodes[number].close()
            others = [node for node in nodes if node is not nodes[number]]
            story.go_on(others[0].engine)
            look([node.engine for node in others], story)
            start_again(nodes, number, replica_count=2)
            look([node.engine for node in nodes], story)


def test_a_backup_has_the_rules_and_what_follows(tmp_path: Path) -> None:
    story = Story(3)
    with wired(3, 2) as wires:
        for node in wires.nodes * 3:
            story.go_on(node.engine)
        wires.nodes[0].engine.backup(tmp_path / "backup")
    with wukongs.Engine(tmp_path / "backup") as engine:
        look([engine], story)
        story.go_on(engine)
        look([engine], story)
    with wired(2) as wires:
        wires.nodes[1].engine.restore(tmp_path / "backup")
        look([node.engine for node in wires.nodes], story)


def update(engine: Any, text: str) -> int:
    return engine.update(PREFIX + text)  # type: ignore[no-any-return]


def pairs(engine: Any, predicate: str) -> list[str]:
    rows = engine.query(f"{PREFIX}SELECT ?s ?o {{ ?s :{predicate} ?o }}").texts()
    return sorted(" ".join(str(cell).strip("<>").removeprefix(EX) for cell in row) for row in rows)


def test_a_rule_that_takes_too_much_is_paused_on_all_nodes_at_one_sn() -> None:
    growing = PREFIX + 'RULE growing: CONSTRUCT { ?x :n ?m } WHERE { ?x :n ?n BIND (CONCAT(?n, "x") AS ?m) }'
    with wired(3, 2, settings=Settings(rules_rows_max=50)) as wires:
        engines = [node.engine for node in wires.nodes]
        engines[0].add_rules(growing + "\n" + COPY)
        sn = update(engines[1], 'INSERT DATA { :a :n "x" . :a :p :b }')
        for engine in engines:
            engine.settle(SETTLE_S)
            assert pairs(engine, "n") == ['a "x"']
            assert pairs(engine, "q") == ["a b"], "the other rule goes on"
            [rule] = [one for one in engine.rules() if one.is_paused]
            assert rule.name == "growing"
            assert "rules_rows_max = 50" in str(rule.error)
            assert engine.stats()["rules"] == {"growing": {"is_paused": True}, "copy": {"is_paused": False}}
            assert engine.query("ASK {}").snapshot == sn
        with pytest.raises(errors.RuleError, match="growing"):
            engines[2].resume_rules("growing")
        update(engines[2], 'DELETE DATA { :a :n "x" }')
        engines[0].resume_rules("growing")
        until(lambda: not any(one.is_paused for one in engines[1].rules()))


def test_a_rule_that_takes_too_much_is_not_added() -> None:
    growing = PREFIX + 'RULE growing: CONSTRUCT { ?x :n ?m } WHERE { ?x :n ?n BIND (CONCAT(?n, "x") AS ?m) }'
    with wired(2, settings=Settings(rules_rows_max=50)) as wires:
        engine, other = (node.engine for node in wires.nodes)
        update(engine, 'INSERT DATA { :a :n "x" }')
        with pytest.raises(errors.RuleError, match="rule growing"):
            other.add_rules(growing)
        assert other.rules() == []
        engine.add_rules(COPY)
        with pytest.raises(errors.RuleError, match="no other rule has"):
            other.add_rules(COPY)
        with pytest.raises(errors.RuleError, match="did you mean copy"):
            other.drop_rules("cop")


@pytest.mark.parametrize("nodes", [1, 3])
def test_bodies_have_whatever_queries_have(nodes: int) -> None:
    rules = (
        PREFIX
        + """RULE alone: CONSTRUCT { ?x :alone ?y } WHERE { ?x :p ?y MINUS { ?y :p ?z } }
        RULE known: CONSTRUCT { ?x :known ?z } WHERE { ?x :p ?y OPTIONAL { ?y :n ?o } BIND(COALESCE(?o, :none) AS ?z) }
        RULE far: CONSTRUCT { ?x :far ?z } WHERE { ?x a :Start . ?x :p+ ?z FILTER EXISTS { ?z :n ?o } }
        RULE counted: CONSTRUCT { ?x :count ?n } WHERE { SELECT ?x (COUNT(*) AS ?n) { ?x :far ?z } GROUP BY ?x }"""
    )
    with wired(nodes, 1) as wires:
        engines = [node.engine for node in wires.nodes]
        engines[0].add_rules(rules)

        def inferred(update: str) -> list[str]:
            engines[-1].update(f"{PREFIX} {update}")
            found = views(engines[0])["inferred", ""]
            return sorted(" ".join(str(part).strip("<>").removeprefix(EX) for part in row) for row in found)

        assert inferred("INSERT DATA { :a :p :b ; a :Start . :b :p :c }") == [
            "a known none",
            "b alone c",
            "b known none",
        ]
        one, two = (f'"{count}"^^<http://www.w3.org/2001/XMLSchema#integer' for count in (1, 2))
        assert inferred("INSERT DATA { :c :p :d ; :n :e . :d :n :f }") == [
            f"a count {two}",
            "a far c",
            "a far d",
            "a known none",
            "b known e",
            "c alone d",
            "c known f",
        ]
        assert inferred("DELETE DATA { :c :p :d }")[:2] == [f"a count {one}", "a far c"]
        assert "b alone c" in inferred("DELETE DATA { :a :p :b }")
        assert not any("far" in one for one in inferred("DELETE DATA { :c :n :e }"))


def test_changes_at_two_nodes_at_the_same_time_are_all_followed() -> None:
    """Each voids what the other is evaluating."""
    with wired(2) as wires:
        engines = [node.engine for node in wires.nodes]
        engines[0].add_rules(PART_OF)

        def work(number: int) -> None:
            for at in range(6):
                here, there = 2 * at + number, 2 * at + number + 1
                update(engines[number], f"INSERT DATA {{ :n{here} :partOf :n{there} }}")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for engine in engines:
            engine.settle(SETTLE_S)
            assert len(pairs(engine, "partOf")) == 12 * 13 // 2


def test_where_each_node_holds_the_whole_graph_no_ranks_outlive_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order in which one node has derived is worth nothing once another one has changed the graph."""
    monkeypatch.setattr(propagation, "RANKLESS_MIN", 0)
    monkeypatch.setattr(propagation, "RANKLESS_FACTOR", 0)
    rules = f"""{PREFIX}
        RULE first: CONSTRUCT {{ :start :reaches ?x }} WHERE {{ :start :to ?x }}
        RULE next: CONSTRUCT {{ :start :reaches ?y }} WHERE {{ :start :reaches ?x . ?x :to ?y }}"""
    with wired(2, 2) as wires:
        engine, other = (node.engine for node in wires.nodes)
        engine.add_rules(rules)
        update(engine, "INSERT DATA { :start :to :x, :z . :x :to :y . :y :to :w . :z :to :y, :q . :q :to :p }")
        update(engine, "DELETE DATA { :q :to :p }")
        update(other, "DELETE DATA { :start :to :x }")
        update(engine, "DELETE DATA { :z :to :y }")
        for one in (engine, other):
            one.settle(SETTLE_S)
            assert pairs(one, "reaches") == ["start q", "start z"]


def test_a_load_that_begins_before_rules_are_there_does_not_slip_in_behind_them() -> None:
    """A node that has not heard of the rules when it stages a load."""
    with wired(2) as wires:
        engine, other = (node.engine for node in wires.nodes)
        is_over = []

        def before(_: int, packet: Any) -> None:
            if packet.kind == STAGE and packet.fields.get("is_last") and not is_over:
                is_over.append(True)
                other.add_rules(COPY)

        wires.before = before
        with pytest.raises(errors.StreamError, match="rules were added meanwhile"):
            engine.load(io.BytesIO(f"<{EX}a> <{EX}p> <{EX}b> .\n".encode()), format="nt")
        assert pairs(other, "p") == []
        engine.load(io.BytesIO(f"<{EX}a> <{EX}p> <{EX}b> .\n".encode()), format="nt")
        assert pairs(other, "q") == ["a b"]


def test_a_change_that_is_asked_again_counts_once() -> None:
    with wired(2) as wires:
        engine, other = (node.engine for node in wires.nodes)
        engine.add_rules(COPY)
        with asking(Asked("client", 2, ())):
            first = update(engine, "INSERT DATA { :a :p :b }")
        update(other, "DELETE DATA { :a :p :b }")
        with asking(Asked("client", 2, ())):
            assert update(other, "INSERT DATA { :a :p :b }") == first
        assert pairs(engine, "q") == []


def test_streams_whose_tuples_are_timing_go_on_as_without_rules() -> None:
    with wired(2) as wires:
        engine, other = (node.engine for node in wires.nodes)
        other.add_rules(COPY)
        timing = engine.stream(EX + "timing", batch_ms=100, timing=True)
        query = other.register(f"""REGISTER QUERY q AS {PREFIX}SELECT ?o
            FROM STREAM <{EX}timing> [RANGE 1s STEP 1s] FROM NAMED <urn:x-wukongs:default>
            WHERE {{ ?s :p ?x . GRAPH <urn:x-wukongs:default> {{ ?x :q ?o }} }}""")
        update(engine, "INSERT DATA { :x :p :y }")
        timing.push([(f"<{EX}w>", f"<{EX}p>", f"<{EX}x>", 950)])
        timing.advance(2000)
        engine.settle(SETTLE_S)
        assert next(iter(query.results(SETTLE_S))).texts() == [(f"<{EX}y>",)]
        assert pairs(engine, "q") == ["x y"]


def test_a_change_that_cannot_be_derived_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other node does not answer while this one derives."""
    monkeypatch.setattr(following, "CHANGE_S", 0.1)
    with wired(2) as wires:
        engine, other = (node.engine for node in wires.nodes)
        engine.add_rules(PART_OF)
        chain = " . ".join(f":n{at} :partOf :n{at + 1}" for at in range(8))
        update(engine, f"INSERT DATA {{ {chain} }}")
        before = pairs(other, "partOf")
        assert len(before) == 8 * 9 // 2
        lost = wires.lose(RUN, 1)
        with pytest.raises(errors.NodeUnavailable):
            update(engine, "DELETE DATA { :n3 :partOf :n4 }")
        with pytest.raises(errors.NodeUnavailable):
            engine.drop_rules("part-of")
        lost.count = 0
        for node in wires.nodes:
            assert pairs(node.engine, "partOf") == before
            assert len(node.store.staging) == 0
        update(engine, "DELETE DATA { :n3 :partOf :n4 }")
        assert len(pairs(other, "partOf")) == 3 * 4 // 2 + 4 * 5 // 2


def test_views_are_not_written_under_rules() -> None:
    with wired(2) as wires:
        engine, other = (node.engine for node in wires.nodes)
        engine.add_rules(COPY)
        line = f"<{EX}a> <{EX}p> <{EX}b> <urn:x-wukongs:inferred> .\n"
        with pytest.raises(errors.DataError, match="cannot be written"):
            other.load(io.BytesIO(line.encode()), format="nq")
        assert len(engine.query("SELECT * FROM <urn:x-wukongs:inferred> { ?s ?p ?o }")) == 0


def test_rules_that_come_with_one_that_cannot_be_registered_are_not_added() -> None:
    """The one over windows reads a stream that nobody has declared. A client has numbered the call."""
    standing = f"RULE hot: CONSTRUCT {{ ?x a :Hot }} FROM STREAM <{EX}none> [RANGE 1s STEP 1s] WHERE {{ ?x :p ?y }}"
    with wired(2) as wires:
        engine, other = (node.engine for node in wires.nodes)
        update(engine, "INSERT DATA { :a :p :b }")
        with asking(Asked("client", 1, (1,))), pytest.raises(errors.StreamError, match="unknown stream"):
            engine.add_rules(f"{COPY}\n{standing}")
        assert engine.rules() == []
        assert pairs(engine, "q") == []
        until(lambda: not other.rules())


def test_a_change_of_rules_that_is_asked_again_counts_once() -> None:
    with wired(2) as wires:
        engine, other = (node.engine for node in wires.nodes)
        engine.add_rules(COPY)
        with asking(Asked("client", 1, (1,))):
            engine.drop_rules("copy")
        until(lambda: not other.rules())
        other.add_rules(COPY)
        with asking(Asked("client", 1, (1,))):
            other.drop_rules("copy")
        assert [rule.name for rule in other.rules()] == ["copy"]
        until(lambda: [rule.name for rule in engine.rules()] == ["copy"])


def test_a_node_that_is_behind_takes_a_name_that_another_one_has_dropped() -> None:
    with wired(3) as wires:
        leader = wires.nodes[0].host.node.log.leader
        behind, other = (number for number in range(3) if number != leader)
        wires.nodes[other].engine.add_rules(COPY)
        wires.deaf.add(behind)
        wires.nodes[other].engine.drop_rules("copy")
        engine = wires.nodes[behind].engine
        assert engine.rules()
        hears = threading.Timer(0.2, wires.deaf.clear)
        hears.start()
        assert engine.add_rules(COPY) == ("copy",)
        hears.join()


def test_views_are_read_by_firings_and_exports() -> None:
    """Neither node holds all of what they ask for."""
    with wired(2) as wires:
        engine, other = (node.engine for node in wires.nodes)
        engine.add_rules(COPY)
        update(engine, "INSERT DATA { " + " . ".join(f":x{at} :p :y{at}" for at in range(12)) + " }")
        stream = engine.stream(EX + "t", batch_ms=100, timing=True)
        queries = {}
        for view, predicate, count in (("inferred", "q", 12), ("inferred", "p", 0), ("explicit", "p", 12)):
            queries[view, predicate, count] = other.register(
                f"""REGISTER QUERY {view}-{predicate} AS {PREFIX}SELECT ?x ?o
                FROM NAMED STREAM <{EX}t> [RANGE 1s STEP 1s] FROM <urn:x-wukongs:{view}>
                WHERE {{ GRAPH <{EX}t> {{ ?s :see ?x }} ?x :{predicate} ?o }}"""
            )
        stream.push([(f"<{EX}w>", f"<{EX}see>", f"<{EX}x{at}>", 900 + at) for at in range(12)])
        stream.advance(2000)
        engine.settle(SETTLE_S)
        for (view, predicate, count), query in queries.items():
            assert len(next(iter(query.results(SETTLE_S))).texts()) == count, (view, predicate)
        both = "FROM NAMED <urn:x-wukongs:inferred> FROM NAMED <urn:x-wukongs:explicit>"
        named = other.query(f"SELECT ?g ?x {both} {{ GRAPH ?g {{ ?x ?p ?y }} }}").texts()
        assert sorted({row[0] for row in named}) == ["<urn:x-wukongs:explicit>", "<urn:x-wukongs:inferred>"]
        assert len(named) == 24
        for node in (engine, other):
            assert len(node.graph("urn:x-wukongs:inferred")) == len(node.graph("urn:x-wukongs:explicit")) == 12
            assert node.stats()["inferred_triples"] == 12
            assert node.stats()["stored_triples"] == 24


@pytest.mark.slow
def test_shards_that_go_to_another_node_have_what_follows() -> None:
    """The node that has given them up still derives, though it holds nothing."""
    story = Story(2)
    with cluster(3, silence_pulses_max=PATIENT, spare_count=1) as nodes:
        engines = [node.engine for node in nodes]
        for at in range(6):
            story.go_on(engines[at % 2])
        engines[0].drain(1, timeout_s=SETTLE_S)
        look(engines, story)
        for at in range(6):
            story.go_on(engines[at % 3])
        look(engines, story)
