"""A node that is started anew fetches most of what it lacks before it joins: others go on writing meanwhile."""

from __future__ import annotations

import io
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.clusters import READY_S, cluster, start_again
from tests.fuzz import first_and_slow
from wukongs.cluster import joining
from wukongs.cluster.checkpoints import STAY
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.collecting import Wanted
from wukongs.cluster.installing import entries_of, net
from wukongs.cluster.node_disk import Recorded
from wukongs.cluster.resuming import can_go_on
from wukongs.errors import CompactedError
from wukongs.protocol.control import apply, genesis, is_news
from wukongs.protocol.membership import Stay, next_role
from wukongs.protocol.messages import Incarnation
from wukongs.protocol.progress import Progress
from wukongs.protocol.records import Entry, Membership, Role, Voter
from wukongs.protocol.state import Kept
from wukongs.store.batch import build_batch
from wukongs.store.dtypes import Int64Array
from wukongs.store.quads import Quads
from wukongs.store.tombstones import Difference
from wukongs.store.trace import Trace
from wukongs.wire.packets import Handler, Packet

EX = "http://ex/"
GRAPH = EX + "graph"
ALL = "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
BACK = 2
"""The node that is started anew."""
WAIT_S = 30.0


class Written:
    """Changes at node 0, and what is stored by them: (graph or None, subject, object) by the ends of their IRIs."""

    def __init__(self, nodes: list[ClusterNode], seed: int = 0) -> None:
        self.nodes, self.draws = nodes, random.Random(seed)
        self.quads: set[tuple[str | None, str, str]] = set()
        self.at_ms = 1000
        self.stream = nodes[0].engine.stream(EX + "s", batch_ms=100)
        self.count = 0
        self._lock = threading.Lock()

    def load(self, count: int, graph: str | None = None) -> None:
        rows = [(graph, f"l{self.count}-{row}", f"o{row % 5}") for row in range(count)]
        text = "".join(f"<{EX}{subject}> <{EX}p> <{EX}{obj}> .\n" for _, subject, obj in rows)
        self.nodes[0].engine.load(io.BytesIO(text.encode()), graph=graph, format="nt")
        self.quads |= set(rows)
        self.count += 1

    def insert(self, subject: str, obj: str) -> None:
        self.nodes[0].engine.update(f"INSERT DATA {{ <{EX}{subject}> <{EX}p> <{EX}{obj}> }}")
        self.quads.add((None, subject, obj))
        self.count += 1

    def delete(self, subject: str) -> None:
        self.nodes[0].engine.update(f"DELETE WHERE {{ <{EX}{subject}> ?p ?o }}")
        self.quads = {one for one in self.quads if one[0] is not None or one[1] != subject}
        self.count += 1

    def clear(self) -> None:
        self.nodes[0].engine.update(f"CLEAR GRAPH <{GRAPH}>")
        self.quads = {one for one in self.quads if one[0] is None}
        self.count += 1

    def push(self) -> None:
        self.at_ms += 60
        self.stream.push([(f"<{EX}t{self.at_ms}>", f"<{EX}p>", f"<{EX}o1>", self.at_ms)])
        self.quads.add((None, f"t{self.at_ms}", "o1"))
        self.count += 1

    def change(self) -> None:
        """Change something. From any thread."""
        with self._lock:
            known = sorted(subject for graph, subject, _ in self.quads if graph is None)
            new = f"n{self.count}"
            ways: list[Callable[[], object]] = [
                lambda: self.load(self.draws.randint(1, 20), self.draws.choice([None, GRAPH])),
                lambda: self.insert(self.draws.choice([new, *known[:5]]), self.draws.choice([new, "o1"])),
                lambda: self.delete(self.draws.choice(known[:5])),
                lambda: self.delete(self.draws.choice(known)),
                self.push,
                self.clear,
            ]
            self.draws.choices(ways, [2, 3, 3, 2, 2, 1])[0]()

    def check(self) -> None:
        """Compare what each node answers, and what the node that is back holds with what the others hold."""
        self.at_ms += 1000
        self.stream.advance(self.at_ms)
        for node in self.nodes:
            node.engine.settle(WAIT_S)
            answered = {
                (None if graph is None else str(graph), *(str(one).removeprefix(EX) for one in (subject, obj)))
                for graph, subject, _, obj in node.engine.query(ALL)
            }
            assert answered == self.quads, node.me.node
        store = self.nodes[BACK].store
        mine = store.shard_map.shards(BACK)
        wanted = Wanted(BACK, store.shard_map, store.split_ids, mine, mine)
        others = set[tuple[int, ...]]().union(*(held(node, wanted) for node in self.nodes if node.me.node != BACK))
        assert held(self.nodes[BACK], wanted) == others
        agreed = set[str]().union(*(agreed_to(node, wanted) for node in self.nodes if node.me.node != BACK))
        assert agreed_to(self.nodes[BACK], wanted) == agreed
        ids = np.array(sorted({one for row in others for one in row}))
        assert len(ids) == 0 or store.terms.persistent.contains(ids).all(), "a term without its text"


def held(node: ClusterNode, wanted: Wanted) -> set[tuple[int, ...]]:
    """Return the quads that a node has stored of the shards of another."""
    trace, found = node.store.core.arrangement.trace, set[tuple[int, ...]]()
    read = trace.read(trace.upper)
    for graph in read.graphs.tolist():
        for subjects, predicate, objects in read.triples(graph):
            rows = wanted.of_rows(subjects, np.full(len(subjects), predicate), objects)
            pairs = zip(subjects[rows].tolist(), objects[rows].tolist(), strict=True)
            found |= {(graph, subject, predicate, obj) for subject, obj in pairs}
    return found


def agreed_to(node: ClusterNode, wanted: Wanted) -> set[str]:
    """Return the terms that a node has agreed to of the shards of another."""
    claims = node.store.claims
    return set(claims.agreed(0, len(claims), wanted.mine).texts())


def is_out(nodes: list[ClusterNode]) -> bool:
    return nodes[0].host.node.control.members[BACK].role is Role.OUT


def before(node: ClusterNode, kind: str, happens: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let something happen before each answer of a kind."""
    answer: Handler = node.network._handlers[kind]

    def answering(packet: Packet) -> Packet:
        happens()
        return answer(packet)

    monkeypatch.setitem(node.network._handlers, kind, answering)  # type: ignore[arg-type]


@pytest.mark.slow
def test_others_write_while_a_node_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster(3, 2) as nodes:
        written = Written(nodes)
        written.load(200)
        nodes[BACK].close()
        written.insert("alone", "o1")
        is_asked, may_go_on = threading.Event(), threading.Event()

        def hold() -> None:
            is_asked.set()
            assert may_go_on.wait(WAIT_S)

        for node in nodes[:BACK]:
            before(node, "state", hold, monkeypatch)
        back = start_again(nodes, BACK, replica_count=2, wait_s=0)
        try:
            assert is_asked.wait(WAIT_S)
            for number in range(10):
                written.insert(f"new{number}", f"o-new{number}")
                written.push()
            written.load(20, GRAPH)
            written.delete("new3")
            assert written.count == 24
            assert is_out(nodes)
            assert not back.host.is_installed
        finally:
            may_go_on.set()
        back.wait_until_ready(READY_S)
        written.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_and_slow(range(3)))
def test_a_node_has_what_has_changed_while_it_fetched(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "LITTLE_ROWS", 0)
    monkeypatch.setattr(joining, "ROUNDS_MAX", 4)
    with cluster(3, 2) as nodes:
        written = Written(nodes, seed)
        written.load(100)
        written.load(10, GRAPH)
        nodes[BACK].close()
        written.insert("alone", "o1")
        changed = []

        def change() -> None:
            if is_out(nodes):
                written.change()
                changed.append(written.count)
                for node in nodes[:BACK]:
                    with node.store.core.lock:
                        node.store.core.arrangement.trace.merge_all()

        for node in nodes[:BACK]:
            before(node, "state", change, monkeypatch)
        start_again(nodes, BACK, replica_count=2)
        assert len(changed) > 20
        written.check()
        written.change()
        written.check()


@pytest.mark.slow
def test_a_node_that_came_back_by_differences_gives_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "LITTLE_ROWS", 0)
    monkeypatch.setattr(joining, "ROUNDS_MAX", 3)
    with cluster(3, 2) as nodes:
        written = Written(nodes)
        written.load(50)
        nodes[BACK].close()
        written.insert("alone", "o1")
        before(nodes[1], "state", lambda: written.change() if is_out(nodes) else None, monkeypatch)
        start_again(nodes, BACK, replica_count=2)
        trace = nodes[BACK].store.core.arrangement.trace
        deadline = time.monotonic() + WAIT_S
        while trace.entries()[0].upper <= 0:  # the others' readers go on, and then it merges
            assert time.monotonic() < deadline
            written.insert("moves", f"o{time.monotonic_ns()}")
            with nodes[BACK].store.core.lock:
                trace.merge_all()
        assert trace.entries()[0].lower < 0
        nodes[1].close()
        written.insert("alone", "o2")
        start_again(nodes, 1, replica_count=2)
        written.check()


@pytest.mark.slow
def test_a_node_asks_for_everything_if_a_donor_has_forgotten_what_it_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster(3, 2) as nodes:
        written = Written(nodes)
        written.load(100)
        nodes[BACK].close()
        written.insert("alone", "o1")
        forgot = []

        def forget() -> None:
            if not forgot:
                forgot.append(nodes[1]._donor._leases)
                nodes[1]._donor._let_go(lambda *_: True)

        before(nodes[1], "halt", forget, monkeypatch)
        start_again(nodes, BACK, replica_count=2)
        assert forgot
        assert not any(handle.owner.startswith("node 2") for handle in nodes[1].store.core.arrangement.trace.handles())
        written.delete("l0-3")
        written.check()


def test_the_changes_of_a_quad_add_up() -> None:
    draws = random.Random(7)
    for _ in range(50):
        seen = {(1, draws.randrange(3), draws.randrange(2), draws.randrange(3)) for _ in range(8)}
        first, come, gone = set(seen), [], []
        for _ in range(draws.randrange(30)):
            quad = (1, draws.randrange(3), draws.randrange(2), draws.randrange(3))
            (gone if quad in seen else come).append(quad)
            seen ^= {quad}
        found = [
            Counter(zip(*(one.tolist() for one in quads), strict=True)) for quads in net(columns(come), columns(gone))
        ]
        assert found == [Counter(seen - first), Counter(first - seen)]


def columns(rows: list[tuple[int, int, int, int]]) -> Quads:
    found: Int64Array = np.array(rows, np.int64).reshape(-1, 4)
    return found[:, 0], found[:, 1], found[:, 2], found[:, 3]


@pytest.mark.slow
def test_what_was_fetched_is_read_at_its_sn_and_not_before() -> None:
    def difference(come: list[int], gone: list[int]) -> Difference:
        batches = [build_batch(*columns([(1, one, 5, 6) for one in rows])) for rows in (come, gone)]
        return Difference(batches[0], batches[1] if gone else None)

    trace = Trace("stored")
    trace.restore(
        entries_of([difference([1, 2], []), difference([], []), difference([3], [1]), difference([], [2])], 9), 10
    )
    assert trace.read(9).count == 1
    assert len(trace) == 1
    for sn in range(9):
        with pytest.raises(CompactedError):
            trace.read(sn)
    trace.seal(10, difference([4], []).additions)
    trace.merge_all()
    assert [entry.upper for entry in trace.entries()] == [11]
    assert trace.read(10).count == 2


def test_a_node_that_fetches_says_that_its_earlier_disk_is_lost_and_joins_later() -> None:
    control, me = genesis(3, 2, 6), Incarnation(2, 7, 1)
    lost = next_role(control, Progress(), Stay(), me, {}, is_fetching=True)
    assert lost == Membership(2, 7, Role.OUT)
    control = apply(control, Entry(1, lost))
    assert control.role_of(Voter(2, 7)) is control.role_of(Voter(2, 0)) is Role.OUT
    assert control.members[2].disk == 7
    assert next_role(control, Progress(), Stay(), me, {}, is_fetching=True) is None
    assert not is_news(control, Membership(1, 7, Role.OUT)), "nobody else holds all that node 1 held"
    joins = next_role(control, Progress(), Stay(), me, {})
    assert joins == Membership(2, 7, Role.JOINING)
    control = apply(control, Entry(1, joins))
    assert not is_news(control, lost)
    assert is_news(control, Membership(2, 7, Role.OUT, control.members[2].since))


def test_a_node_is_waited_for_once_a_restart_finds_what_it_has_taken_over() -> None:
    control, me = genesis(3, 2, 6), Incarnation(2, 7, 1)
    for record in (Membership(2, 7, Role.OUT), Membership(2, 7, Role.JOINING)):
        control = apply(control, Entry(1, record))
    since = control.members[2].since
    assert next_role(control, Progress(), Stay(since, is_installed=True, is_safe=False), me, {}) is None
    waits = next_role(control, Progress(), Stay(since, is_installed=True), me, {})
    assert waits == Membership(2, 7, Role.HOLDING, since)
    known = Recorded(Kept(), control.index, {STAY: since}, control)
    assert can_go_on(known, me.voter)
    assert not can_go_on(known, Voter(2, 6)), "it was taken out"
    anew = replace(control, members={**control.members, 2: replace(control.members[2], since=since + 1)})
    assert not can_go_on(replace(known, control=anew), me.voter), "it is to take over anew what others hold"
