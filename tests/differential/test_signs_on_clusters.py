"""Streams with retractions="event_time" on clusters, while nodes begin anew, come and go, and updates and loads come in
between: the stored graph is that of a plain model and of an embedded engine, and all replicas have the same entries.

The model is right while all tuples come within history_ms: since the last update or load that has named a triple, the
newest tuple of the triple counts, in whatever order tuples have come."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import wukongs
from tests.clusters import PATIENT, READY_S, added_node, cluster, cut_off, start_again
from tests.engine_helpers import A, B, node
from tests.faults.test_nodes_come_back import in_time
from tests.fuzz import first_and_rare, first_and_slow
from tests.unit.cluster.test_fetching_ahead import held
from tests.unit.cluster.wires import until
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.collecting import Wanted
from wukongs.protocol.records import Role
from wukongs.settings import Settings

TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
PREDICATES = (node("p"), node("q"), TYPE)
OPTIONS: dict[str, Any] = {"batch_ms": 100, "on_late": "count", "retractions": "event_time"}
WAIT_S = 60.0
Triple = tuple[str, str, str]


class Story:
    """The nodes of a cluster, and an engine that is told the same. The model, and that engine, are right if history_ms
    is long: else it hangs on how far the clock is by then whether a late tuple still counts."""

    def __init__(self, nodes: list[ClusterNode], seed: int, history_ms: int, **options: Any) -> None:
        self.nodes, self.rng, self.now_ms = nodes, random.Random(seed), 10_000
        self.is_long = self.is_modelled = history_ms > 10_000
        self.twin = wukongs.Engine(settings=nodes[0].store.core.settings)
        self.options = {**OPTIONS, "history_ms": history_ms, **options}
        self.named: dict[Triple, bool] = {}
        """The triples that updates or loads have named last, and whether they are there then."""
        self.come: dict[Triple, tuple[int, bool]] = {}
        """The time and the sign of the newest tuple of each triple since then."""
        for name in (A, B):
            nodes[0].engine.stream(name, **self.options)
            self.twin.stream(name, **self.options)

    @property
    def running(self) -> list[ClusterNode]:
        there = [one for one in self.nodes if not one.store.core.is_closed]
        synced = there[0].host.node.control.with_role(Role.IN)
        return [one for one in there if one.me.node in synced]

    def any_node(self) -> ClusterNode:
        return self.rng.choice(self.running)

    def settle(self) -> None:
        in_time(lambda: self.any_node().engine.settle(WAIT_S))
        self.twin.settle(WAIT_S)

    def triple(self) -> Triple:
        rng = self.rng
        return node(f"s{rng.randint(0, 5)}"), rng.choice(PREDICATES), node(f"o{rng.randint(0, 2)}")

    def push(self) -> None:
        """Some tuples of one call: on time, late, and much too late if entries are kept for a short time."""
        self.settle()
        rng, name = self.rng, self.rng.choice((A, B))
        self.now_ms += rng.choice([0, 30, 120])
        behind = [0, 0, 1, 60, 200, 700, 2500]
        found = [
            (self.triple(), self.now_ms - rng.choice(behind) - rng.randint(0, 40), rng.random() < 0.6)
            for _ in range(rng.randint(1, 6))
        ]
        found = [one for place, one in enumerate(found) if all(one[1] != other[1] for other in found[:place])]
        subjects, predicates, objects = map(list, zip(*(triple for triple, _, _ in found), strict=True))
        columns = {"subject": subjects, "predicate": predicates, "object": objects}
        table = pa.table(
            {
                **columns,
                "timestamp_ms": [time_ms for _, time_ms, _ in found],
                "op": ["+" if comes else "-" for _, _, comes in found],
            }
        )
        in_time(lambda: self.any_node().engine.declared(name).push_arrow(table))
        self.twin.declared(name).push_arrow(table)
        for triple, time_ms, comes in found:
            newest = self.come.get(triple)
            if newest is None or (time_ms, not comes) > (newest[0], not newest[1]):
                self.come[triple] = time_ms, comes
            if newest is not None and time_ms == newest[0] and comes != newest[1]:
                self.is_modelled = self.is_long = False  # what counts hangs on the streams and the order of arrival

    def advance(self) -> None:
        for name in (A, B):
            in_time(lambda name=name: self.any_node().engine.declared(name).advance(self.now_ms))  # type: ignore[misc]
            self.twin.declared(name).advance(self.now_ms)
        self.settle()

    def change(self) -> None:
        """Update or load, when all that was pushed is stored."""
        self.now_ms += 200
        self.advance()
        triples, comes = [self.triple() for _ in range(self.rng.randint(1, 4))], self.rng.random() < 0.5
        lines = "".join(f"{' '.join(triple)} .\n" for triple in triples)
        what = self.rng.choice(["update", "update", "load", "clear"])
        if what == "load":
            comes = True
            in_time(lambda: self.any_node().engine.load(io.BytesIO(lines.encode()), format="nt"))
            self.twin.load(io.BytesIO(lines.encode()), format="nt")
        elif what == "clear" and self.rng.random() < 0.3:
            is_empty = not any(map(self.is_there, {*self.named, *self.come}))
            self.update("CLEAR DEFAULT")
            if not is_empty:  # there is no such graph
                self.named, self.come = {}, {}
            return
        else:
            self.update(f"{'INSERT' if comes else 'DELETE'} DATA {{ {lines} }}")
        for triple in triples:
            # What is deleted and is not there is not named: its entry stays.
            if comes or self.is_there(triple):
                self.named[triple] = comes
                self.come.pop(triple, None)

    def update(self, text: str) -> None:
        in_time(lambda: self.any_node().engine.update(text))
        self.twin.update(text)

    def is_there(self, triple: Triple) -> bool:
        return self.come[triple][1] if triple in self.come else self.named.get(triple, False)

    def go_on(self, count: int) -> None:
        for _ in range(count):
            self.rng.choice([self.push, self.push, self.push, self.advance, self.change])()

    def check(self) -> None:
        """Compare what each node answers, by either half of a triple, and what replicas hold."""
        self.now_ms += 200
        self.advance()
        query = "SELECT ?s ?p ?o { ?s ?p ?o }"
        nodes = self.running
        expected = sorted(in_time(lambda: self.any_node().engine.query(query).texts()))
        if self.is_long:
            assert expected == sorted(self.twin.query(query).texts())
        if self.is_modelled:
            triples = {*self.named, *self.come}
            assert expected == sorted(triple for triple in triples if self.is_there(triple))
        for one in nodes:
            assert sorted(in_time(lambda one=one: one.engine.query(query).texts())) == expected, one.me  # type: ignore[misc]
        halves = [
            (subject, predicate, name)
            for predicate in PREDICATES
            for name in (node(f"o{number}") for number in range(3))
            for (subject,) in in_time(
                lambda p=predicate, o=name: self.any_node().engine.query(f"SELECT ?s {{ ?s {p} {o} }}").texts()  # type: ignore[misc]
            )
        ]
        assert sorted(halves) == expected
        control = nodes[0].host.node.control
        self.check_replicas([one for one in nodes if control.holds(one.me.node)])

    def check_replicas(self, nodes: list[ClusterNode]) -> None:
        entries = [_entries(one, self.now_ms - self.options["history_ms"]) for one in nodes]
        for one, own in zip(nodes, entries, strict=True):
            shard_map, split_ids = one.store.shard_map, one.store.split_ids
            mine = shard_map.shards(one.me.node)
            wanted = Wanted(one.me.node, shard_map, split_ids, mine, mine)
            assert held(one, wanted) == set[tuple[int, ...]]().union(*(held(other, wanted) for other in nodes))
            there = _wanted(own, wanted)
            for other in entries:
                assert _wanted(other, wanted).items() <= there.items(), one.me


def _entries(one: ClusterNode, after_ms: int) -> dict[tuple[int, ...], int]:
    """Return the entries of a node by their triples, but for those that may be forgotten."""
    with one.store.core.lock:
        event_times = one.store.core.event_times
        assert event_times is not None
        columns = event_times.entries().T.tolist()
    return {tuple(row[:4]): row[4] for row in columns if row[4] >= 2 * after_ms}


def _has(one: ClusterNode, after_ms: int, entries: dict[tuple[int, ...], int]) -> bool:
    return _entries(one, after_ms) == entries


def _wanted(entries: dict[tuple[int, ...], int], wanted: Wanted) -> dict[tuple[int, ...], int]:
    keys = np.array(list(entries), np.int64).reshape(-1, 4)
    is_wanted = wanted.of_rows(keys[:, 0], keys[:, 2], keys[:, 1])
    return {key: entry for (key, entry), goes in zip(entries.items(), is_wanted.tolist(), strict=True) if goes}


@contextmanager
def story(nodes: list[ClusterNode], seed: int, history_ms: int, **options: Any) -> Iterator[Story]:
    found = Story(nodes, seed, history_ms, **options)
    with found.twin:
        yield found


@pytest.mark.parametrize("seed", first_and_slow(range(4)))
def test_any_order_of_arrival_gives_what_the_order_of_time_gives(seed: int) -> None:
    late = ("drop", "open")[seed % 2]
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes, story(nodes, seed, 60_000, late=late) as of:
        of.go_on(25)
        of.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_and_rare(range(4)))
def test_what_is_older_than_entries_are_kept_is_dropped_on_all_nodes(seed: int) -> None:
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes, story(nodes, seed, 300) as of:
        for _ in range(4):
            of.go_on(15)
            of.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_and_rare(range(3)))
@pytest.mark.parametrize("history_ms", [60_000, 300])
def test_nodes_begin_anew_and_take_over_the_entries(seed: int, history_ms: int) -> None:
    with cluster(3, 2) as nodes, story(nodes, seed, history_ms) as of:
        for number in (2, 0, 1):
            of.go_on(8)
            nodes[number].close()
            of.go_on(4)
            start_again(nodes, number, replica_count=2)
            of.check()
        of.go_on(8)
        of.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_and_rare(range(3)))
def test_nodes_come_and_go_while_entries_are_held(seed: int) -> None:
    with cluster(3, 2) as nodes, story(nodes, seed, 60_000) as of:
        of.go_on(12)
        with added_node(nodes, 2) as new:
            assert nodes[0].engine.add_node("tcp://127.0.0.1:1", new.address) == 3
            of.go_on(4)
            nodes[1].engine.drain(0, [3], WAIT_S)
            new.wait_until_ready(READY_S)
            of.go_on(8)
            of.check()
            nodes[0].close()
            of.go_on(8)
            in_time(lambda: nodes[1].engine.remove_node(0, timeout_s=WAIT_S))
            of.check()
            of.go_on(8)
            of.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_and_rare(range(3)))
@pytest.mark.parametrize("history_ms", [60_000, 300])
def test_folders_have_the_entries(seed: int, history_ms: int, tmp_path: Path) -> None:
    settings = Settings(checkpoint_bytes=1 << 14)
    with ExitStack() as stack:
        of: Story | None = None
        before = list[dict[tuple[int, ...], int]]()
        for life in range(4):
            with cluster(3, 2, settings, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
                if of is None:
                    of = stack.enter_context(story(nodes, seed, history_ms))
                of.nodes = nodes
                for one, entries in zip(nodes, before, strict=False):
                    until(partial(_has, one, of.now_ms - history_ms, entries))
                of.go_on(6)
                if life % 2:
                    of.any_node().engine.checkpoint()
                of.go_on(6)
                of.check()
                of.push()
                of.settle()
                before = [_entries(one, of.now_ms - history_ms) for one in nodes]
                if life < 2:
                    cut_off(nodes)
