"""Random rules over a graph that moves, against plain sets (tests/oracles/rules.py).

Explicit triples come and go by updates, apply, loads and a stream with retractions, in the default graph and in a named
one; rules come and go; the engine ends and begins. After each step all that is stored, all that is inferred and all
that is explicit are what the oracle says, each triple once, and earlier snapshots read as they did.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import wukongs
from tests.fuzz import fuzzed
from tests.oracles.rules import Closure, Program, Rule, Tree, Triple, Unstratified, text_of
from tests.rule_programs import (
    EX,
    GRAPH,
    NODES,
    PREDICATES,
    a,
    fitting,
    random_rules,
    random_triple,
)
from wukongs import CompactedError, errors
from wukongs.rules import fact_search, propagation

GRAPHS = ["", GRAPH]
STREAMS = {"": f"{EX}stream", GRAPH: f"{EX}into-graph"}
BATCH_MS = 100
SETTLE_S = 60.0
PAST_MAX = 4
KINDS = ["all", "inferred", "explicit"]
SEEDS = st.integers(0, 2**32 - 1)
ONE_GRAPH = st.sampled_from(["", "", "", GRAPH])
TRIPLES = SEEDS.map(lambda seed: random_triple(Random(seed)))
Views = dict[str, list[tuple[str | None, ...]]]


def lines(triples: list[Triple]) -> str:
    return "".join(f"{' '.join(triple)} .\n" for triple in triples)


def block(graph: str, triples: list[Triple]) -> str:
    """What stands in INSERT DATA { ... }."""
    return f"GRAPH {graph} {{ {lines(triples)} }}" if graph else lines(triples)


def dataset_of(kind: str, graph: str) -> str:
    """The dataset clause by which all, inferred or explicit triples of a graph are read."""
    if kind == "all":
        return f"FROM {graph or '<urn:x-wukongs:default>'}"
    return f"FROM <urn:x-wukongs:{kind}{':' + graph[1:-1] if graph else ''}>"


class RulesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.patch = pytest.MonkeyPatch()
        self.explicit: dict[str, set[Triple]] = {graph: set() for graph in GRAPHS}
        self.installed: list[tuple[str, Rule]] = []
        self.time_ms = 0
        self.added = 0
        self.past: list[tuple[int, Views]] = []
        self.looks = 0

    @initialize(
        is_durable=st.booleans(),
        at_once=st.booleans(),
        seed=SEEDS,
        has_ranks=st.booleans(),
        way=st.sampled_from(["facts", "facts", "columns", "both"]),
        forgets_all=st.booleans(),
    )
    def begin(
        self,
        is_durable: bool,
        at_once: bool,
        seed: int,
        has_ranks: bool = False,
        way: str = "facts",
        forgets_all: bool = False,
    ) -> None:
        """has_ranks: recursive strata get ranks at the first deletion, which else much larger ones need. way: whether
        plain rules are followed fact by fact, in columns, or one after the other, since there is little room.
        forgets_all: a change of rules never derives all anew."""
        if forgets_all:
            self.patch.setattr(propagation, "FORGOTTEN_SHARE_MAX", 1.0)
        self.is_durable = is_durable
        if has_ranks:
            self.patch.setattr(propagation, "RANKLESS_MIN", 0)
            self.patch.setattr(propagation, "RANKLESS_FACTOR", 0)
        if way != "facts":
            self.patch.setattr(propagation, "FACTS_MAX", -1 if way == "columns" else 4)
            self.patch.setattr(fact_search, "_ROOM", 8)
        self._open()
        random = Random(seed)
        triples = [random_triple(random) for _ in range(random.randrange(20))]
        if at_once:
            self.add_rules(seed, "")
        self.load("", triples)
        if not at_once:
            self.add_rules(seed, "")

    def _open(self) -> None:
        settings = wukongs.Settings(sync_interval_ms=1000)
        self.engine: Any = wukongs.Engine(self.folder / "data" if self.is_durable else None, settings=settings)
        self.streams = {
            graph: self.engine.stream(iri, batch_ms=BATCH_MS, into=graph[1:-1] or None)
            for graph, iri in STREAMS.items()
        }
        for stream in self.streams.values():
            stream.advance(self.time_ms)

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.engine.close()
        self.patch.undo()
        shutil.rmtree(self.folder)

    # --- explicit triples ---------------------------------------------------------------------------------------------

    @rule(graph=ONE_GRAPH, triples=st.lists(TRIPLES, min_size=1, max_size=3))
    def insert(self, graph: str, triples: list[Triple]) -> None:
        self.engine.update(f"INSERT DATA {{ {block(graph, triples)} }}")
        self.explicit[graph].update(triples)
        self._look()

    @rule(graph=ONE_GRAPH, data=st.data(), count=st.integers(1, 4))
    def delete_explicit(self, graph: str, data: st.DataObject, count: int) -> None:
        known = sorted(self.explicit[graph])
        if known:
            gone = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=count))
            self.engine.update(f"DELETE DATA {{ {block(graph, gone)} }}")
            self.explicit[graph].difference_update(gone)
            self._look()

    @rule(graph=ONE_GRAPH, data=st.data(), way=st.sampled_from(["delete", "insert", "both", "insert and delete"]))
    def meet_inferred(self, graph: str, data: st.DataObject, way: str) -> None:
        """Delete, insert, or insert and then delete triples that are inferred."""
        known = sorted(self._closure().only_inferred(graph))
        if not known:
            return
        found = block(graph, some := data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3)))
        deletes, inserts = f"DELETE DATA {{ {found} }}", f"INSERT DATA {{ {found} }}"
        texts = {"delete": [deletes], "insert": [inserts], "both": [deletes, inserts]}
        self.engine.update(";\n".join(texts.get(way, [inserts, deletes])))
        if way in ("insert", "both"):
            self.explicit[graph].update(some)
        self._look()

    @rule(predicate=st.sampled_from(PREDICATES), node=st.sampled_from(NODES))
    def delete_where(self, predicate: str, node: str) -> None:
        """The pattern matches inferred triples, too; those stay as long as they are derivable."""
        self.engine.update(f"DELETE WHERE {{ {node} {predicate} ?o }}")
        self.explicit[""] = {one for one in self.explicit[""] if one[:2] != (node, predicate)}
        self._look()

    @rule(predicate=st.sampled_from(PREDICATES))
    def insert_where(self, predicate: str) -> None:
        """What is inserted is made of inferred triples, too, and is explicit from then on."""
        found = {(one[2], predicate, one[0]) for one in self._closure().all() if one[1] == predicate}
        self.engine.update(f"INSERT {{ ?o {predicate} ?s }} WHERE {{ ?s {predicate} ?o FILTER (isIRI(?o)) }}")
        self.explicit[""] |= {one for one in found if one[0].startswith("<")}
        self._look()

    @rule(graph=ONE_GRAPH, come=st.lists(TRIPLES, max_size=4), data=st.data())
    def apply(self, graph: str, come: list[Triple], data: st.DataObject) -> None:
        known = sorted(self.explicit[graph] | self._closure().only_inferred(graph))
        gone = data.draw(st.lists(st.sampled_from(known), max_size=4)) if known else []
        self.engine.apply(inserts=self._table(graph, come), deletes=self._table(graph, gone))
        self.explicit[graph] = (self.explicit[graph] - set(gone)) | set(come)
        self._look()

    def _table(self, graph: str, triples: list[Triple], **more: Any) -> pa.Table:
        names = ("subject", "predicate", "object")
        columns = {name: pa.array([one[at] for one in triples], pa.string()) for at, name in enumerate(names)}
        if graph and not more:
            columns["graph"] = pa.array([graph] * len(triples), pa.string())
        return pa.table({**columns, **more})

    @rule(graph=ONE_GRAPH, triples=st.lists(TRIPLES, max_size=10))
    def load(self, graph: str, triples: list[Triple]) -> None:
        self.engine.load(io.BytesIO(lines(triples).encode()), graph[1:-1] or None, format="nt")
        self.explicit[graph].update(triples)
        self._look()

    @rule(what=st.sampled_from(["DEFAULT", f"GRAPH {GRAPH}", "NAMED", "ALL"]), how=st.sampled_from(["CLEAR", "DROP"]))
    def clear(self, what: str, how: str) -> None:
        self.engine.update(f"{how} SILENT {what}")
        for graph in GRAPHS:
            if what == "ALL" or (what == "DEFAULT") == (graph == ""):
                self.explicit[graph].clear()
        self._look()

    @rule(graph=ONE_GRAPH, come=st.lists(TRIPLES, max_size=4), data=st.data(), ticks=st.integers(1, 3))
    def push(self, graph: str, come: list[Triple], data: st.DataObject, ticks: int) -> None:
        """Push tuples and retractions, of explicit and of inferred triples, and let one or more ticks pass."""
        known = sorted(self.explicit[graph] | self._closure().only_inferred(graph))
        gone = data.draw(st.lists(st.sampled_from(known), max_size=4)) if known else []
        signed = data.draw(st.permutations([*(("+", one) for one in come), *(("-", one) for one in gone)]))
        # Their last sign counts where they join together: all are in one stream batch.
        times = pa.array([self.time_ms + 1 + at for at in range(len(signed))], pa.int64())
        table = self._table(
            graph,
            [one for _, one in signed],
            timestamp_ms=times,
            op=pa.array([sign for sign, _ in signed], pa.string()),
        )
        if signed:
            self.streams[graph].push_arrow(table)
        for sign, one in signed:
            (self.explicit[graph].add if sign == "+" else self.explicit[graph].discard)(one)
        self.time_ms += ticks * BATCH_MS
        for stream in self.streams.values():
            stream.advance(self.time_ms)
        self._look()

    # --- rules --------------------------------------------------------------------------------------------------------

    @rule(seed=SEEDS, into=ONE_GRAPH)
    def add_rules(self, seed: int, into: str) -> None:
        self.added += 1
        drawn = [(into, one) for one in random_rules(Random(seed), f"r{self.added}-")]
        come = fitting(self.installed, drawn)
        if come:
            found = self.engine.add_rules(text_of(one for _, one in come), into=into[1:-1] or None)
            assert tuple(found) == tuple(one.name for _, one in come)
            self.installed += come
        if come or self.added > 1:
            self._look()

    @precondition(lambda self: self.installed)
    @rule(seed=SEEDS, into=ONE_GRAPH)
    def add_unstratified(self, seed: int, into: str) -> None:
        """What is cyclic through NOT EXISTS or an aggregate, with what is installed, changes nothing."""
        drawn = [(into, one) for one in random_rules(Random(seed), "cyclic-")]
        try:
            Program((*self.installed, *drawn))
        except Unstratified:
            try:
                self.engine.add_rules(text_of(one for _, one in drawn), into=into[1:-1] or None)
            except errors.RuleError:
                self._look()
            else:
                raise AssertionError(f"not refused: {text_of(one for _, one in drawn)}") from None

    @precondition(lambda self: self.installed)
    @rule(data=st.data())
    def drop_rules(self, data: st.DataObject) -> None:
        names = data.draw(st.sets(st.sampled_from([one.name for _, one in self.installed]), min_size=1, max_size=3))
        self.engine.drop_rules(*sorted(names))
        self.installed = [(into, one) for into, one in self.installed if one.name not in names]
        self._look()

    # --- lives --------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.is_durable)
    @rule(checkpoints=st.booleans())
    def restart(self, checkpoints: bool) -> None:
        if checkpoints:
            self.engine.checkpoint()
        self.engine.close()
        self.past.clear()
        self._open()
        self._look()

    # --- looks --------------------------------------------------------------------------------------------------------

    def _closure(self) -> Any:
        return Program(tuple(self.installed)).closure(self.explicit)

    def _views(self, sn: int | None = None) -> Views:
        return {
            f"{kind} {graph}": sorted(
                self.engine.query(f"SELECT ?s ?p ?o {dataset_of(kind, graph)} {{ ?s ?p ?o }}", at=sn).texts()
            )
            for kind in KINDS
            for graph in GRAPHS
        }

    def _look(self) -> None:
        self.engine.settle(SETTLE_S)
        closure = self._closure()
        expected = {}
        for graph in GRAPHS:
            parts = {
                "all": closure.all(graph),
                "inferred": closure.only_inferred(graph),
                "explicit": self.explicit[graph],
            }
            expected |= {f"{kind} {graph}": sorted(parts[kind]) for kind in KINDS}
        found = self._views()
        if found != expected:
            raise AssertionError(_difference(found, expected, self.installed))
        if self.installed or hasattr(self.engine, "rules"):
            assert sorted((one.name, one.into) for one in self.engine.rules()) == sorted(
                ((one.name, into[1:-1] or None) for into, one in self.installed), key=lambda pair: pair[0]
            )
            assert not any(one.is_paused for one in self.engine.rules())
        assert sorted(self.engine.query("SELECT ?s ?p ?o ?g { GRAPH ?g { ?s ?p ?o } }").texts()) == [
            (*triple, GRAPH) for triple in expected[f"all {GRAPH}"]
        ]
        assert list(self.engine.graph_names()) == ([GRAPH[1:-1]] if closure.all(GRAPH) else [])
        self._ask_why(closure)
        self._look_back()
        self.past.append((self.engine.query("ASK {}").snapshot, found))

    def _ask_why(self, closure: Closure) -> None:
        """Each derivation that the engine gives is one: that of a triple of each graph, of another one at each look."""
        program = Program(tuple(self.installed))
        self.looks += 1
        for graph in GRAPHS:
            if known := sorted(closure.only_inferred(graph)):
                found = self.engine.why(known[7 * self.looks % len(known)], graph[1:-1] or None)
                assert found is not None, (self.looks, known)
                assert program.holds(closure, tree_of(found)), f"{found}"
        assert self.engine.why((NODES[0], a("never"), NODES[1])) is None

    def _look_back(self) -> None:
        """Earlier snapshots, as long as they are held, read as they did."""
        kept = []
        for sn, views in self.past[-PAST_MAX:]:
            try:
                assert self._views(sn) == views, f"snapshot {sn} has changed"
            except CompactedError:
                continue
            kept.append((sn, views))
        self.past = kept


def tree_of(found: Any) -> Tree:
    graph = "" if found.graph is None else f"<{found.graph}>"
    return Tree(graph, found.triple, found.rule, tuple(map(tree_of, found.parts)), found.more)


def _difference(found: Views, expected: Views, installed: list[tuple[str, Rule]]) -> str:
    said = [f"{into or 'default'}: {one.text()}" for into, one in installed]
    for view, rows in expected.items():
        if found[view] != rows:
            missing, more = set(rows) - set(found[view]), set(found[view]) - set(rows)
            twice = len(found[view]) - len(set(found[view]))
            said.append(f"{view}: missing {sorted(missing)}, too many {sorted(more)}, {twice} twice")
    return "\n".join(said)


def test_inferences_follow_a_graph_that_moves() -> None:
    run_state_machine_as_test(RulesMachine, settings=fuzzed(10, steps=8))


@pytest.mark.slow
def test_inferences_follow_a_graph_that_moves_long() -> None:
    run_state_machine_as_test(RulesMachine, settings=fuzzed(60, steps=25))


def test_what_differs_is_told() -> None:
    machine = RulesMachine()
    try:
        machine.begin(is_durable=False, at_once=True, seed=7)
        machine.explicit[""].add((NODES[0], a("never"), NODES[1]))
        with pytest.raises(AssertionError, match=r"(?s)RULE r1-.*all : missing .*/never>"):
            machine._look()
    finally:
        machine.teardown()
