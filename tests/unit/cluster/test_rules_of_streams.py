"""Rules over a cluster whose streams store tuples: at each SN each node reads what plain sets say.

What is explicit at an SN is read from the nodes, and also known by the test itself: of loads and updates, and of
tuples by the ends of their stream batches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.clusters import PATIENT, cluster, cut_off, start_again
from tests.fuzz import SEED, first_and_rare, scaled
from tests.oracles.rules import Program, Triple
from tests.rule_programs import GRAPH, random_triple
from tests.unit.cluster.test_rules import COPY, GRAPHS, KINDS, PART_OF, SETTLE_S, Story, Views, pairs, update, views
from tests.unit.cluster.wires import EX, wired
from wukongs import errors
from wukongs.cluster import stream_following
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.stream_following import TO_STORE
from wukongs.cluster.times import packed, tick_at
from wukongs.errors import CompactedError
from wukongs.protocol.records import Change, Nothing, Record, Sn
from wukongs.settings import Settings

BATCH_MS = 100
BEGIN_MS = 1_000_000


def end_of(time_ms: int) -> int:
    return -(-time_ms // BATCH_MS) * BATCH_MS


def sn_at(time_ms: int) -> int:
    return packed(Sn(tick_at(time_ms), 0))


def table(rows: Sequence[tuple[Triple, int, str]]) -> pa.Table:
    columns = list(zip(*((*triple, time, op) for triple, time, op in rows), strict=True))
    return pa.table(
        dict(zip(("subject", "predicate", "object", "timestamp_ms", "op"), map(list, columns), strict=True))
    )


class StreamStory(Story):
    """A story in which streams bring and retract triples as well, late ones too, come and go."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.time_ms = BEGIN_MS
        self.streams: dict[str, tuple[Any, str]] = {}
        """By name: the stream, and the graph into which it stores."""
        self.declared = 0
        self.ticks: list[tuple[int, dict[str, set[Triple]]]] = []
        """What is explicit at the ends of the stream batches of the last action."""
        self.counts = True
        """Whether all streams count for the ticks: else some come by records, in no order with the others."""

    def go_on(self, engine: Any) -> None:
        self.ticks = []
        self.count += 1
        kinds = ["push"] * 8 + ["declare", "late", "over"]
        kinds += ["insert", "delete", "meet", "where", "load", "clear", "rules", "rules", "drop"]
        kind = self.random.choice(kinds)
        if not self.streams:
            kind = "declare"
        if kind == "drop" and not self.installed:
            kind = "rules"
        getattr(self, f"_{kind}")(engine, self.random.choice(["", "", GRAPH]))

    def again(self, engines: Sequence[Any]) -> None:
        """Find the streams again in another life of the nodes."""
        self.streams = {
            name: (self.random.choice(engines).declared(name), graph) for name, (_, graph) in self.streams.items()
        }

    def _declare(self, engine: Any, graph: str) -> None:
        self.declared += 1
        name = f"{EX}stream{self.declared}"
        stream = engine.stream(name, batch_ms=BATCH_MS, into=graph[1:-1] or None)
        self.streams[name] = stream, graph
        stream.advance(self.time_ms)

    def _over(self, engine: Any, _: str) -> None:
        """A stream ends, or is dropped."""
        name = self.random.choice(sorted(self.streams))
        stream, _ = self.streams.pop(name)
        if self.random.random() < 0.5:
            stream.close()
        else:
            engine.drop_stream(name)

    def _late(self, engine: Any, graph: str) -> None:
        """A stream comes whose tuples are of the past."""
        self.declared += 1
        name = f"{EX}stream{self.declared}"
        stream = engine.stream(name, batch_ms=BATCH_MS, into=graph[1:-1] or None)
        self.streams[name] = stream, graph
        rows = self._rows(graph, self.time_ms - 10 * BATCH_MS, self.time_ms)
        stream.push_arrow(table(rows))
        stream.advance(self.time_ms)
        for triple, _, op in rows:
            self._take(graph, triple, op)

    def _push(self, engine: Any, _: str) -> None:
        first, self.time_ms = self.time_ms, self.time_ms + self.random.choice([1, 1, 2, 4]) * BATCH_MS
        rows = []
        for place, (_, (stream, graph)) in enumerate(sorted(self.streams.items())):
            if self.random.random() < 0.8:
                found = self._rows(graph, first, self.time_ms)
                stream.push_arrow(table(found))
                rows += [(end_of(time), time, place, graph, triple, op) for triple, time, op in found]
            if self.random.random() < 0.3:
                stream.advance(self.random.randrange(first, self.time_ms + 1))
        for stream, _ in self.random.sample(sorted(self.streams.values(), key=id), len(self.streams)):
            stream.advance(self.time_ms)
        rows.sort(key=lambda row: row[:3])
        for end_ms in range(end_of(first) + BATCH_MS, self.time_ms + 1, BATCH_MS):
            for end, _, _, graph, triple, op in rows:
                if end == end_ms:
                    self._take(graph, triple, op)
            if not self.counts:
                continue
            self.ticks.append((end_ms, {graph: set(found) for graph, found in self.explicit.items()}))

    def _rows(self, graph: str, after_ms: int, to_ms: int) -> list[tuple[Triple, int, str]]:
        """Tuples, and retractions of what is explicit, in order."""
        random = self.random
        found: list[tuple[Triple, int, str]] = []
        for time_ms in sorted(random.randrange(after_ms + 1, to_ms + 1) for _ in range(random.randint(1, 6))):
            known = sorted(self.explicit[graph])
            if known and self.counts and random.random() < 0.25:
                found.append((random.choice(known), time_ms, "-"))
            else:
                found.append((random_triple(random), time_ms, "+"))
        return found

    def _take(self, graph: str, triple: Triple, op: str) -> None:
        if op == "+":
            self.explicit[graph].add(triple)
        else:
            self.explicit[graph].discard(triple)


class Watcher:
    """Reads each new SN at each node."""

    def __init__(self, story: StreamStory) -> None:
        self.story, self.seen, self.read = story, -1, 0
        self.program = Program(())

    def look(self, nodes: Sequence[ClusterNode]) -> None:
        story = self.story
        engines = [node.engine for node in nodes]
        for engine in engines:
            engine.settle(SETTLE_S)
        before, now = self.program, Program(tuple(story.installed))
        self.program = now
        newest = max(engine.query("ASK {}").snapshot for engine in engines)
        sns = {newest}
        for node in nodes:
            with node.store.core.lock:
                sns.update(entry.lower for entry in node.store.core.arrangement.trace.entries())
        for sn in sorted(sn for sn in sns if self.seen < sn <= newest):
            found = self._at(engines, sn)
            if found is None:
                continue
            explicit = {graph: found["explicit", graph] for graph in GRAPHS}
            known = [_views(explicit, now), _views(explicit, before)]
            assert found == known[0] or (found == known[1] and sn < newest), f"step {story.count}, SN {sn}"
            self.read += 1
        self.seen = newest
        streams = nodes[0].host.node.control.live_streams
        story.counts = all(one.counts is not None or one.began is None for one in streams)
        expected = _views({graph: sorted(found) for graph, found in story.explicit.items()}, now)
        for number, engine in enumerate(engines):
            assert views(engine) == expected, f"node {number}, step {story.count}"
        for end_ms, ticked in story.ticks:
            found = self._at(engines, sn_at(end_ms))
            if found is not None:
                assert found == _views({graph: sorted(some) for graph, some in ticked.items()}, now), end_ms

    def _at(self, engines: Sequence[Any], sn: int) -> Views | None:
        """What all nodes read at an SN; None if it was merged away."""
        try:
            found = [views(engine, sn) for engine in engines]
        except CompactedError:
            return None
        assert all(one == found[0] for one in found), f"nodes read different things at SN {sn}"
        return found[0]


def _views(explicit: dict[str, Any], program: Program) -> Views:
    closure = program.closure(explicit)
    found: Views = {}
    for graph in GRAPHS:
        parts = closure.all(graph), closure.only_inferred(graph), explicit[graph]
        found |= {(kind, graph): sorted(part) for kind, part in zip(KINDS, parts, strict=True)}
    return found


@pytest.mark.parametrize("seed", range(SEED or 0, (SEED or 0) + scaled(9)))
def test_what_streams_store_is_followed_at_each_sn(seed: int) -> None:
    story = StreamStory(seed)
    node_count, replica_count = [(1, 1), (2, 1), (3, 1), (3, 2)][seed % 4]
    watcher = Watcher(story)
    with wired(node_count, replica_count) as wires:
        for _ in range(14):
            story.go_on(story.random.choice(wires.nodes).engine)
            watcher.look(wires.nodes)
    assert watcher.read > 10


@pytest.mark.slow
@pytest.mark.parametrize("has_checkpoints", first_and_rare([True, False]))
def test_nodes_with_data_folders_go_on_with_what_streams_store(tmp_path: Path, has_checkpoints: bool) -> None:
    """The power fails with stream batches that nobody has seen yet."""
    story = StreamStory(5 + has_checkpoints)
    watcher = Watcher(story)
    for life in range(4):
        with cluster(2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
            engines = [node.engine for node in nodes]
            story.again(engines)
            watcher.look(nodes)
            for at in range(6):
                story.go_on(engines[at % 2])
                if at < 5:
                    watcher.look(nodes)
                if has_checkpoints and at == 3:
                    engines[0].checkpoint()
            if life < 3:
                cut_off(nodes)


@pytest.mark.rare
@pytest.mark.slow
def test_nodes_that_begin_anew_take_over_what_streams_store() -> None:
    """Each node is away for a while, the leader too."""
    story = StreamStory(11)
    watcher = Watcher(story)
    with cluster(3, 2) as nodes:
        for number in range(3):
            for _ in range(4):
                story.go_on(nodes[number].engine)
                watcher.look(nodes)
            nodes[number].close()
            others = [node for node in nodes if node is not nodes[number]]
            story.again([node.engine for node in others])
            for node in others:
                story.go_on(node.engine)
                watcher.look(others)
            start_again(nodes, number, replica_count=2)
            story.again([node.engine for node in nodes])
            watcher.look(nodes)


class Rush:
    """Streams that go on by themselves, updates at all nodes, and readers, at the same time."""

    def __init__(self, seed: int, nodes: Sequence[ClusterNode]) -> None:
        self.random, self.nodes = Random(seed), nodes
        self.is_over = threading.Event()
        self.explicit: dict[str, set[Triple]] = {graph: set() for graph in GRAPHS}
        self.errors: list[BaseException] = []
        self.read = 0

    def run(self, *works: Any) -> None:
        threads = [threading.Thread(target=self._guarded, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:
            self.errors.append(error)
            self.is_over.set()

    def read_at(self, node: ClusterNode, program: Program) -> None:
        """All that follows is there, whenever somebody reads."""
        while not self.is_over.is_set():
            sn = node.engine.query("ASK {}").snapshot
            try:
                found = views(node.engine, sn)
            except (CompactedError, errors.NodeUnavailable, errors.StreamError):
                continue
            assert found == _views({graph: found["explicit", graph] for graph in GRAPHS}, program), sn
            self.read += 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_and_rare(range(scaled(3))))
def test_nobody_reads_a_tuple_without_what_follows_while_all_goes_on(seed: int) -> None:
    story = StreamStory(seed)
    with wired(3, 2 - seed % 2) as wires:
        nodes = wires.nodes
        rush = Rush(seed, nodes)
        streams = [nodes[at].engine.stream(f"{EX}s{at}", batch_ms=BATCH_MS) for at in range(2)]
        for stream in streams:
            stream.advance(BEGIN_MS)
        nodes[0].engine.settle(SETTLE_S)
        while not story.installed:
            story._rules(nodes[2].engine, "")
        program = Program(tuple(story.installed))

        def push() -> None:
            random = Random(seed)
            for at in range(30):
                first = BEGIN_MS + at * BATCH_MS
                for stream in streams:
                    times = sorted(random.randrange(first + 1, first + BATCH_MS + 1) for _ in range(3))
                    some = [(random_triple(random), time, "+") for time in times]
                    stream.push_arrow(table(some))
                    rush.explicit[""].update(triple for triple, _, _ in some)
                for stream in streams:
                    stream.advance(first + BATCH_MS)
            rush.is_over.set()

        def change(node: ClusterNode, place: int) -> Any:
            def work() -> None:
                for at in range(6):
                    triple = f"<{EX}at{place}> <{EX}p> <{EX}to{at}>"
                    node.engine.update(f"INSERT DATA {{ {triple} }}")
                    rush.explicit[""].add(tuple(triple.split()))  # type: ignore[arg-type]

            return work

        rush.run(
            push,
            *(change(node, at) for at, node in enumerate(nodes)),
            *((lambda node=node: rush.read_at(node, program)) for node in nodes),
        )
        for node in nodes:
            node.engine.settle(SETTLE_S)
        for node in nodes:
            assert views(node.engine) == _views(
                {graph: sorted(found) for graph, found in rush.explicit.items()}, program
            )
        assert rush.read > 3


def views_of_one(engine: Any) -> Views:
    """Read all views of one snapshot, and of another one if it is merged away meanwhile: nobody holds it."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        try:
            return views(engine, engine.query("ASK {}").snapshot)
        except CompactedError:
            assert time.monotonic() < deadline


def test_rules_come_and_go_while_streams_go_on() -> None:
    """Adding them waits for no pause of the streams."""
    with wired(2) as wires:
        engine, other = (node.engine for node in wires.nodes)
        stream = engine.stream(EX + "s", batch_ms=BATCH_MS)
        stream.advance(BEGIN_MS)
        is_over, count = threading.Event(), [0]

        def push() -> None:
            while not is_over.is_set():
                at = count[0]
                stream.push([(f"<{EX}a{at}>", f"<{EX}p>", f"<{EX}b{at}>", BEGIN_MS + at * BATCH_MS + 50)])
                stream.advance(BEGIN_MS + (at + 1) * BATCH_MS)
                count[0] += 1

        thread = threading.Thread(target=push)
        thread.start()
        try:
            for _ in range(3):
                other.add_rules(COPY)
                found = views_of_one(other)
                explicit, inferred = ([row[::2] for row in found[kind, ""]] for kind in ("explicit", "inferred"))
                assert explicit == inferred
                assert len(inferred) <= count[0] + 1, "one is being pushed"
                while count[0] < 10 or not pairs(other, "q"):
                    thread.join(0.01)
                    assert thread.is_alive()
                engine.drop_rules("copy")
                assert pairs(engine, "q") == []
            other.add_rules(COPY)
        finally:
            is_over.set()
            thread.join()
        for one in (engine, other):
            one.settle(SETTLE_S)
            expected = sorted(f"a{at} b{at}" for at in range(count[0]))
            assert pairs(one, "p") == pairs(one, "q") == expected


def test_firings_over_stored_data_see_what_follows_from_their_tick() -> None:
    with wired(3, 2) as wires:
        engine, other, third = (node.engine for node in wires.nodes)
        other.add_rules(PART_OF)
        stream = engine.stream(EX + "s", batch_ms=BATCH_MS)
        query = third.register(f"""REGISTER QUERY q AS SELECT ?x ?z
            FROM STREAM <{EX}s> [RANGE 100ms STEP 100ms] FROM <urn:x-wukongs:default>
            WHERE {{ GRAPH <{EX}s> {{ ?x <{EX}partOf> ?y }} ?y <{EX}partOf> ?z }}""")
        stream.advance(BEGIN_MS)
        for at in range(5):
            time_ms = BEGIN_MS + at * BATCH_MS
            stream.push([(f"<{EX}n{at + 1}>", f"<{EX}partOf>", f"<{EX}n{at}>", time_ms + 50)])
            stream.advance(time_ms + BATCH_MS)
        engine.settle(SETTLE_S)
        windows = iter(query.results(SETTLE_S))
        for at in range(5):
            window = next(windows)
            while window.end_ms < BEGIN_MS + (at + 1) * BATCH_MS:
                window = next(windows)
            expected = sorted((f"<{EX}n{at + 1}>", f"<{EX}n{below}>") for below in range(at))
            assert sorted(window.texts()) == expected, window.end_ms


def test_late_tuples_that_are_stored_are_followed() -> None:
    with wired(2) as wires:
        engine, other = (node.engine for node in wires.nodes)
        stream = engine.stream(EX + "s", batch_ms=BATCH_MS, on_late="count")
        other.add_rules(COPY)
        stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}b>", BEGIN_MS)])
        stream.advance(BEGIN_MS + 1000)
        stream.push([(f"<{EX}c>", f"<{EX}p>", f"<{EX}d>", BEGIN_MS + 50)])
        for one in (engine, other):
            one.settle(SETTLE_S)
            assert pairs(one, "q") == ["a b", "c d"]


def test_the_leader_asks_again_for_what_it_did_not_get(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile nobody sees the tuples, whichever node leads."""
    monkeypatch.setattr(stream_following, "RETRY_S", 0.001)
    with wired(2) as wires:
        engine = wires.nodes[0].engine
        engine.add_rules(COPY)
        lost = [wires.lose(TO_STORE, number) for number in range(2)]
        stream = engine.stream(EX + "s", batch_ms=BATCH_MS)
        stream.push([(f"<{EX}a{at}>", f"<{EX}p>", f"<{EX}b>", BEGIN_MS) for at in range(20)])
        stream.advance(BEGIN_MS + 1000)
        for node in wires.nodes:
            node.host.wait_until(
                lambda state: state.control.streams[EX + "s"].began is not None, SETTLE_S, "the stream to begin"
            )
        with pytest.raises(errors.StreamError, match="or what follows by rules"):
            engine.settle(1.0)
        assert pairs(engine, "p") == []
        for fault in lost:
            fault.count = 0
        for node in wires.nodes:
            node.engine.settle(SETTLE_S)
            assert len(pairs(node.engine, "p")) == len(pairs(node.engine, "q")) == 20


def test_a_node_ends_while_it_waits_to_see_what_it_has_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, ended = threading.Event(), list[str]()

    def step(following: stream_following.StreamFollowing) -> None:
        waits.set()
        try:
            following._store.wait_for(Sn(1 << 50, 0), 600)
        except errors.WukongsError as error:
            ended.append(str(error))
            raise

    monkeypatch.setattr(stream_following.StreamFollowing, "_step", step)
    with wired(1) as wires:
        engine = wires.nodes[0].engine
        engine.add_rules(COPY)
        stream = engine.stream(EX + "s", batch_ms=BATCH_MS)
        stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}b>", BEGIN_MS)])
        stream.advance(BEGIN_MS + 1000)
        assert waits.wait(SETTLE_S)
    assert len(ended) == 1
    assert "closed" in ended[0]


def test_without_rules_nothing_is_asked_or_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    with wired(2) as wires:
        engine, other = (node.engine for node in wires.nodes)
        stream = engine.stream(EX + "s", batch_ms=BATCH_MS)
        stream.advance(BEGIN_MS)
        engine.settle(SETTLE_S)
        wires.kinds()
        recorded: list[Record] = []
        store = wires.nodes[0].store
        apply = store.apply

        def noted(index: int, record: Record, sn: Sn | None) -> None:
            recorded.append(record)
            apply(index, record, sn)

        monkeypatch.setattr(store, "apply", noted)
        for at in range(3):
            stream.push([(f"<{EX}a{at}>", f"<{EX}p>", f"<{EX}b>", BEGIN_MS + at * BATCH_MS + 1)])
            stream.advance(BEGIN_MS + (at + 1) * BATCH_MS)
        other.settle(SETTLE_S)
        update(other, "INSERT DATA { :x :p :y }")
        # A node that comes to lead says so by a record of Nothing.
        assert [type(record) for record in recorded if not isinstance(record, Nothing)] == [Change]
        assert not {TO_STORE, "hold"} & {kind for kind, _ in wires.kinds()}


def test_rules_that_are_not_added_leave_streams_as_they_were() -> None:
    """Changes have stored for a moment what they brought."""
    growing = 'RULE growing: CONSTRUCT { ?x ?p ?m } WHERE { ?x ?p ?n BIND (CONCAT(STR(?n), "x") AS ?m) }'
    with wired(2, settings=Settings(rules_rows_max=50)) as wires:
        engine, other = (node.engine for node in wires.nodes)
        stream = engine.stream(EX + "s", batch_ms=BATCH_MS)
        for at in range(3):
            stream.push([(f"<{EX}a{at}>", f"<{EX}p>", f"<{EX}b>", BEGIN_MS + at * BATCH_MS + 1)])
            stream.advance(BEGIN_MS + (at + 1) * BATCH_MS)
            other.settle(SETTLE_S)
            with pytest.raises(errors.RuleError, match="growing"):
                other.add_rules(growing)
            assert wires.nodes[1].host.node.control.rules == ""
            assert pairs(other, "p") == [f"a{before} b" for before in range(at + 1)]
        assert other.rules() == []


def test_what_changes_have_stored_does_not_come_again_when_rules_are_gone() -> None:
    """A late stream is followed before it is shown."""
    with wired(2) as wires:
        engine, other = (node.engine for node in wires.nodes)
        first = engine.stream(EX + "first", batch_ms=BATCH_MS)
        first.advance(BEGIN_MS)
        other.add_rules(COPY)
        late = other.stream(EX + "late", batch_ms=BATCH_MS)
        late.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}b>", BEGIN_MS - 500)])
        late.advance(BEGIN_MS)
        engine.settle(SETTLE_S)
        assert pairs(engine, "q") == ["a b"]
        update(engine, "DELETE DATA { :a :p :b }")
        engine.drop_rules("copy")
        for stream in (first, late):
            stream.push([(f"<{EX}c>", f"<{EX}p>", f"<{EX}d>", BEGIN_MS + 50)])
            stream.advance(BEGIN_MS + 100)
        for one in (engine, other):
            one.settle(SETTLE_S)
            assert pairs(one, "p") == ["c d"]


def test_a_change_that_takes_long_is_not_overtaken_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams bring something all the time; the leader lets it come."""
    with wired(2) as wires:
        leader = wires.nodes[0].host.node.log.leader
        assert leader is not None
        engine, node = wires.nodes[leader].engine, wires.nodes[1 - leader]
        stream = engine.stream(EX + "s", batch_ms=BATCH_MS)
        stream.advance(BEGIN_MS)
        engine.add_rules(COPY)
        is_over, tries = threading.Event(), []
        change = node.backend.following.change

        def slow(*asked: Any) -> Any:
            tries.append(asked)
            is_over.wait(0.3)
            return change(*asked)

        monkeypatch.setattr(node.backend.following, "change", slow)

        def push() -> None:
            at = 0
            while not is_over.wait(0.001):
                stream.push([(f"<{EX}a{at}>", f"<{EX}p>", f"<{EX}b>", BEGIN_MS + at * BATCH_MS + 1)])
                at += 1
                stream.advance(BEGIN_MS + at * BATCH_MS)

        thread = threading.Thread(target=push)
        thread.start()
        try:
            update(node.engine, "INSERT DATA { :x :p :y }")
        finally:
            is_over.set()
            thread.join()
        assert len(tries) < 5
        engine.settle(SETTLE_S)
        assert "x y" in pairs(engine, "q")


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_and_rare(range(scaled(2))))
def test_streams_go_on_when_the_leader_dies(seed: int) -> None:
    """In the middle of what it follows, with changes and readers at the others."""
    random, story = Random(seed), StreamStory(seed)
    with cluster(3, 2) as nodes:
        leader = nodes[0].host.node.log.leader
        assert leader is not None
        others = [node for node in nodes if node.me.node != leader]
        rush = Rush(seed, nodes)
        streams = [node.engine.stream(f"{EX}s{at}", batch_ms=BATCH_MS) for at, node in enumerate(others)]
        for stream in streams:
            stream.advance(BEGIN_MS)
        others[0].engine.settle(SETTLE_S)
        while not story.installed:
            story._rules(others[1].engine, "")
        program = Program(tuple(story.installed))

        def until_done(work: Any) -> None:
            """Say it until somebody takes it. What was taken before it was answered is known, or comes too late."""
            deadline = time.monotonic() + SETTLE_S
            while time.monotonic() < deadline:
                try:
                    work()
                    return
                except errors.WukongsError as error:
                    if "stands at" in str(error):
                        return
                time.sleep(0.02)
            raise AssertionError("nobody has taken it")

        def push() -> None:
            for at in range(30):
                for stream in streams:
                    some = [(random_triple(random), BEGIN_MS + at * BATCH_MS + place + 1, "+") for place in range(3)]
                    until_done(lambda stream=stream, some=some: stream.push_arrow(table(some)))
                    rush.explicit[""].update(triple for triple, _, _ in some)
                for stream in streams:
                    until_done(lambda stream=stream, at=at: stream.advance(BEGIN_MS + (at + 1) * BATCH_MS))
                if at == 10:
                    nodes[leader].close()
            rush.is_over.set()

        def change(node: ClusterNode) -> Any:
            triples = [f"<{EX}at{node.me.node}> <{EX}p> <{EX}to{at}>" for at in range(5)]
            rush.explicit[""].update(tuple(triple.split()) for triple in triples)  # type: ignore[misc]

            def work() -> None:
                for triple in triples:
                    until_done(lambda triple=triple: node.engine.update(f"INSERT DATA {{ {triple} }}"))

            return work

        readers = [(lambda node=node: rush.read_at(node, program)) for node in others]
        rush.run(push, *map(change, others), *readers)
        expected = _views({graph: sorted(found) for graph, found in rush.explicit.items()}, program)
        for node in others:
            node.engine.settle(SETTLE_S)
            assert views(node.engine) == expected
        start_again(nodes, leader, replica_count=2)
        for node in nodes:
            node.engine.settle(SETTLE_S)
            assert views(node.engine) == expected


@pytest.mark.rare
@pytest.mark.slow
def test_spares_take_over_what_streams_store() -> None:
    story = StreamStory(17)
    watcher = Watcher(story)
    with cluster(4, 2, spare_count=1) as nodes:
        for round_ in range(3):
            holding = [node for node in nodes if not node.host.node.is_spare]
            for at in range(5):
                story.go_on(holding[at % 3].engine)
                watcher.look(holding)
            drained = story.random.choice(holding)
            holding.remove(drained)
            story.again([node.engine for node in holding])
            holding[0].engine.drain(drained.me.node, timeout_s=60)
            watcher.look([node for node in nodes if not node.host.node.is_spare])
            if round_ < 2:
                drained.close()
                start_again(nodes, drained.me.node, replica_count=2, spare_count=1, wait_s=0)
                while not holding[0].host.node.control.is_spare(drained.me.node):
                    holding[0].host.wait_until(lambda node: True, 1.0, "")
            story.again([node.engine for node in holding])
