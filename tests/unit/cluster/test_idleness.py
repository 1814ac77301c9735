"""Idle streams and late tuples on a cluster: the writer decides, and the other nodes see what it closes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from tests.clusters import PATIENT, cluster
from tests.engine_helpers import EX, at, names, register_text, subjects, windows
from tests.unit.cluster.test_pipelines import S, Writer, fed_cluster
from tests.unit.cluster.wires import STREAM, Fault, encoded, wired
from wukongs.cluster.changes import STAGE
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.feeding import FEED
from wukongs.cluster.pushing import PUSH
from wukongs.cluster.writing import StreamWriter, writer_of
from wukongs.errors import BudgetExceeded, DataError, NodeUnavailable, StreamError
from wukongs.wire.link import IngestLink
from wukongs.wire.packets import Packet

LONG_S = 60.0


def soon(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def no_longer_idle() -> Iterator[None]:
    """Let no stream become idle: a short idle_timeout_ms may pass between two lines of a test on a busy machine."""
    with patch.object(StreamWriter, "let_idle", lambda *_: None):
        yield


def of_stream(node: ClusterNode, name: str) -> dict[str, object]:
    found: dict[str, object] = node.engine.stats()["streams"][EX + name]
    return found


def test_idle_streams_follow_the_one_that_is_not_idle_and_not_each_other() -> None:
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        engine = nodes[0].engine
        streams = {name: engine.stream(EX + name, batch_ms=100, idle_timeout_ms=50) for name in "abcde"}
        busy = engine.stream(EX + "busy", batch_ms=100)
        busy.advance(100)
        written = {writer_of(nodes[0].host.node, EX + name) for name in streams}
        assert len(written) > 1  # they do not know of each other by themselves
        for place, stream in enumerate(streams.values()):
            stream.push([at("s", 150 + 100 * place)])
        query = engine.register(
            f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{EX}a> [RANGE 100ms STEP 100ms] "
            f"FROM STREAM <{EX}e> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
        )
        busy.advance(2000)
        soon(lambda: all(of_stream(node, name)["closed_ms"] == 2000 for node in nodes for name in streams))
        soon(lambda: all(node.store.stream(EX + name).is_idle for node in nodes for name in streams))
        engine.settle(LONG_S)
        found = windows(query)
        assert max(found) == 2000
        assert {end for end, rows in found.items() if rows} <= {200, 600}

        with no_longer_idle():
            streams["a"].push([at("t", 2050)])
            assert not any(node.store.stream(EX + "a").is_idle for node in nodes)
        busy.advance(3000)
        soon(lambda: all(of_stream(node, "a")["closed_ms"] == 3000 for node in nodes))


def test_late_tuples_are_found_by_the_writer_and_given_where_they_were_pushed(tmp_path: Path) -> None:
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        engine, path = nodes[0].engine, tmp_path / "late.nq"
        engine.stream(EX + "s", batch_ms=100, timing=[EX + "ga"], on_late=path, into=EX + "g")
        for place, node in enumerate(nodes):
            stream = node.backend.declared(EX + "s")
            assert stream.push([at(f"x{place}", 1000 + place), at(f"late{place}", 10), at("gone", 20, "ga")]) == 1
            found = node.engine.query(f"SELECT ?s FROM <{EX}g> {{ ?s ?p ?o }}")
            assert f"late{place}" in names(found)
            assert stream.push([at("none", 5, "ga")]) == 0
        assert of_stream(nodes[1], "s") | {"late": 9, "dropped": 6, "tuples": 3} == of_stream(nodes[1], "s")
        lines = path.read_text("utf-8").splitlines()
        assert [line.split()[-2] for line in lines] == ["10", "20", "5"] * 3


def test_a_function_is_called_at_the_node_of_the_declaration_only() -> None:
    with cluster(2, silence_pulses_max=PATIENT) as nodes:
        given: list[int] = []
        first = nodes[0].engine.stream(EX + "s", batch_ms=100, on_late=lambda table: given.append(table.num_rows))
        first.push([at("a", 100), at("late", 50)])
        assert nodes[1].backend.declared(EX + "s").push([at("late", 60), at("late2", 61)]) == 0
        assert given == [1]
        assert subjects(nodes[1].engine) == ["late", "late2"]


def test_the_next_writer_knows_up_to_where_the_stream_was_idle() -> None:
    with wired(2) as wires:
        engine = wires.nodes[0].engine
        engine.stream(STREAM, batch_ms=100, idle_timeout_ms=20)
        engine.stream(EX + "busy", batch_ms=100).advance(1000)
        soon(lambda: all(node.store.stream(STREAM).idle_ms == 1000 for node in wires.nodes))
        node, _ = wires.writer()
        other = next(one for one in wires.nodes if one is not node)
        following = StreamWriter(STREAM, other.host, other.store, other.intake, other.network)  # type: ignore[arg-type]
        with no_longer_idle():
            assert following.push(encoded(("late", 1000), ("a", 1250)), LONG_S).tolist() == [0]
            with pytest.raises(
                StreamError, match="timestamp 1200 ms at tuple 1 of the call, but the stream already stands"
            ):
                following.push(encoded(("late", 900), ("b", 1200)), LONG_S)


def test_a_call_with_late_tuples_that_was_cut_off_and_is_said_again_counts_once() -> None:
    with wired(2) as wires:
        wires.nodes[0].engine.stream(STREAM, batch_ms=100, on_late="count")
        _, writer = wires.writer()
        call = encoded(("a", 150), ("late", 50), ("b", 150))
        wires.lose(FEED, 1, count=1 << 20)
        with pytest.raises(NodeUnavailable):
            writer.push(call, 0.3)
        wires.faults.clear()
        assert writer.push(call, LONG_S).tolist() == [1]
        assert [one.store.stream(STREAM).late_count for one in wires.nodes] == [1, 1]
        assert writer.push(encoded(("late2", 60)), LONG_S).tolist() == [0]
        assert [one.store.stream(STREAM).late_count for one in wires.nodes] == [2, 2]


def test_a_push_whose_late_tuples_cannot_be_stored_says_what_was_taken() -> None:
    with wired(2) as wires:
        stream = wires.nodes[0].engine.stream(STREAM, batch_ms=100, on_late="count")
        wires.refuse(STAGE, 1, BudgetExceeded("too much is staged"))
        with pytest.raises(NodeUnavailable, match="that are on time were taken; 1 late ones may not be in the stored"):
            stream.push([at("a", 150), at("late", 50)])
        wires.faults.clear()
        stream.close()
        wires.nodes[0].engine.settle(LONG_S)
        assert subjects(wires.nodes[0].engine) == ["a"]


def test_numbers_of_late_tuples_that_are_none_are_refused() -> None:
    with wired(2) as wires:
        wires.nodes[0].engine.stream(STREAM, batch_ms=100, on_late="count")
        node, _ = wires.writer()
        other = next(one for one in wires.nodes if one is not node)
        for late in ([1, 1], [-1, 0], [0, 7]):
            answer = Packet(PUSH, {"answers": [{"late_count": 2}]}, {"late": np.array(late)})
            wires.faults.append(Fault(PUSH, node.me.node, answer))
            with pytest.raises(DataError, match="expected the ascending numbers of late tuples, of 3, found others"):
                other.backend.declared(STREAM).push([at(name, 100) for name in "abc"])
            wires.faults.clear()


def test_a_stream_that_a_pipeline_feeds_too_is_idle_beside_it_and_ends_with_it() -> None:
    with fed_cluster(2) as (nodes, addresses):
        engine = nodes[0].engine
        stream = engine.stream(S, batch_ms=100, idle_timeout_ms=50)
        query = engine.register(register_text("RANGE 100ms STEP 100ms", stream=S))
        with IngestLink(addresses) as link:
            one = Writer(link, "one")
            one.send(3, ("a", "b"))
            one.close(3)
            stream.push([at("x", 310)])
            found: dict[int, list[str]] = {}
            soon(lambda: found.update(windows(query)) or 300 in found)
            time.sleep(0.2)
            found |= windows(query)
            assert max(found) == 300
            one.send(5, ("c", "d"))
            one.close(5)
            soon(lambda: nodes[1].store.stream(S).closed_ms == 500)
            one.finish()
        engine.settle(LONG_S)
        found |= windows(query)
        assert {end: rows for end, rows in found.items() if rows} == {300: ["a"], 400: ["x"], 500: ["c"]}


def test_a_stream_of_pipelines_alone_ends_with_them_although_it_was_idle() -> None:
    with fed_cluster(2) as (nodes, addresses):
        engine = nodes[0].engine
        engine.stream(S, batch_ms=100, idle_timeout_ms=20)
        engine.stream(EX + "busy", batch_ms=100).advance(200)
        soon(lambda: nodes[0].store.stream(S).idle_ms == 200)
        with IngestLink(addresses) as link:
            one = Writer(link, "one")
            one.send(5, ("a", "b"))
            one.close(5)
            one.finish()
        soon(lambda: all(node.store.stream(S).is_ended for node in nodes))


# --- idle_advance = "wall" (docs/decisions/0113) ----------------------------------------------------------------------

WALL = {"batch_ms": 100, "idle_timeout_ms": 20, "idle_advance": "wall"}


class Wall:
    """One wall clock for all nodes, which stands still but for what a test moves it on."""

    def __init__(self, nodes: list[ClusterNode], ms: int) -> None:
        self.ms = ms
        for node in nodes:
            node.store.core.wall_ms = lambda: self.ms


def closed(nodes: list[ClusterNode], name: str) -> list[object]:
    return [node.store.stream(EX + name).closed_ms for node in nodes]


def test_idle_streams_follow_the_wall_clock_of_their_writers() -> None:
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        engine, wall = nodes[0].engine, Wall(nodes, 10_050)
        with no_longer_idle():
            streams = {name: engine.stream(EX + name, timing=True, **WALL) for name in "abc"}
            plain = engine.stream(EX + "plain", batch_ms=100, idle_timeout_ms=20)
            assert len({writer_of(nodes[0].host.node, EX + name) for name in streams}) > 1
            streams["a"].push([at("s", 9_150)])
            plain.push([at("p", 9_150)])
            query = engine.register(
                f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{EX}a> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }}"
            )
        soon(lambda: all(closed(nodes, name) == [10_000] * 3 for name in (*streams, "plain")))
        wall.ms = 12_010
        soon(lambda: all(closed(nodes, name) == [12_000] * 3 for name in (*streams, "plain")))
        engine.settle(LONG_S)
        assert windows(query) == {10_000: ["s"], 11_000: [], 12_000: []}
        assert subjects(engine) == ["p"]  # the clock of the stored graph goes by them
        assert streams["a"].push([at("late", 12_000), at("b", 12_001)]) == 1
        assert of_stream(nodes[1], "a")["late"] == 1


def test_a_wall_clock_less_lateness_ms() -> None:
    with cluster(2, silence_pulses_max=PATIENT) as nodes:
        wall = Wall(nodes, 20_000)
        stream = nodes[0].engine.stream(EX + "s", **WALL, lateness_ms=250)
        soon(lambda: closed(nodes, "s") == [19_700] * 2)
        assert stream.push([at("a", 19_701), at("late", 19_700)]) == 1
        wall.ms = 20_050
        soon(lambda: closed(nodes, "s") == [19_800] * 2)


def test_streams_of_another_day_stay_and_each_node_says_so() -> None:
    day_ms = 86_400_000
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        wall = Wall(nodes, 5 * day_ms)
        with no_longer_idle():
            stream = nodes[0].engine.stream(EX + "s", timing=True, **WALL)
            query = nodes[0].engine.register(register_text("RANGE 100ms STEP 100ms", stream=EX + "s"))
            stream.push([at("a", 150)])
        soon(lambda: all(node.store.stream(EX + "s").is_idle for node in nodes))
        time.sleep(0.2)
        assert closed(nodes, "s") == [100] * 3
        for node in nodes:
            assert "is more than a day behind the wall clock" in str(of_stream(node, "s")["idle_hold"])
        assert f"stream {EX}s is idle; its newest tuple, at " in query.why()
        wall.ms = day_ms
        soon(lambda: closed(nodes, "s") == [day_ms] * 3)
        assert of_stream(nodes[1], "s")["idle_hold"] is None


def test_all_of_a_round_are_one_message_to_each_node() -> None:
    with wired(2) as wires:
        wall, engine = Wall(wires.nodes, 10_050), wires.nodes[0].engine
        node = wires.nodes[0]
        mine = [name for name in map(str, range(20)) if writer_of(node.host.node, EX + name) == node.me.node][:3]
        for name in mine:
            engine.stream(EX + name, **WALL)
        soon(lambda: all(closed(wires.nodes, name) == [10_000] * 2 for name in mine))
        wires.asked.clear()
        wall.ms = 10_130
        soon(lambda: all(closed(wires.nodes, name) == [10_100] * 2 for name in mine))
        time.sleep(0.2)
        told = [packet.fields["feds"] for _, to, packet in wires.asked if packet.kind == FEED and to == 1]
        closing = [sorted(fed["stream"] for fed in feds) for feds in told if any("complete_ms" in fed for fed in feds)]
        assert closing == [sorted(EX + name for name in mine)]


def test_one_that_a_pipeline_feeds_is_closed_by_that_alone() -> None:
    """A partition's writer alone decides what is idle: what it sends later is not late."""
    with fed_cluster(2) as (nodes, addresses):
        wall = Wall(nodes, 10_000)
        with IngestLink(addresses) as link:
            with no_longer_idle():
                stream = nodes[0].engine.stream(S, **WALL)
                one = Writer(link, "one")
                one.send(3, ("a", "b"))
                one.close(3)
                stream.push([at("x", 310)])
            soon(lambda: nodes[0].store.stream(S).is_idle)
            time.sleep(0.2)
            assert nodes[0].store.stream(S).closed_ms == 300
            one.send(5, ("c", "d"))
            one.close(5)
            one.finish()
        wall.ms = 10_100
        soon(lambda: nodes[0].store.stream(S).closed_ms == 10_100)


def test_a_node_that_joins_knows_what_is_newest() -> None:
    with cluster(2, silence_pulses_max=PATIENT) as nodes:
        Wall(nodes, 86_500_000)
        with no_longer_idle():
            nodes[0].engine.stream(EX + "s", timing=True, **WALL).push([at("a", 150)])
        nodes[0].engine.stream(EX + "plain", timing=True, batch_ms=100).push([at("a", 150)])
        known = nodes[1].store.records.streams
        standings = {stream.state.iri: stream.standing() for stream in known.values()}
        assert standings[EX + "s"]["heard_ms"] == 200
        assert "heard_ms" not in standings[EX + "plain"]  # nodes of an earlier release do not know it
        for stream in known.values():
            stream.restore(standings[stream.state.iri])
            assert stream.state.heard_ms == (200 if stream.state.iri == EX + "s" else None)


@pytest.mark.slow
def test_an_idle_stream_goes_on_when_the_node_of_its_writer_is_lost() -> None:
    with cluster(3, 2) as nodes:
        nodes[0].engine.stream(EX + "s", batch_ms=100, idle_timeout_ms=50).push([at("a", 150)])
        lost = writer_of(nodes[0].host.node, EX + "s")
        left = [node for node in nodes if node.me.node != lost]
        busy = left[0].engine.stream(EX + "busy", batch_ms=100)
        busy.advance(1000)
        soon(lambda: all(node.store.stream(EX + "s").idle_ms == 1000 for node in left))
        nodes[lost].close()

        def is_taken(call: Callable[[], object]) -> bool:
            try:
                call()
            except NodeUnavailable:
                return False
            return True

        soon(lambda: is_taken(lambda: busy.advance(2000)))
        soon(lambda: all(node.store.stream(EX + "s").idle_ms == 2000 for node in left))
        stream = left[1].backend.declared(EX + "s")
        assert stream.push([at("late", 2000), at("b", 2001)]) == 1
        stream.advance(3000)
        busy.advance(3000)
        left[0].engine.settle(LONG_S)
        assert subjects(left[0].engine) == ["a", "b", "late"]


@pytest.mark.slow
def test_the_next_writer_follows_the_wall_clock_of_its_own_machine() -> None:
    with cluster(3, 2) as nodes:
        wall = Wall(nodes, 10_050)
        with no_longer_idle():
            nodes[0].engine.stream(EX + "s", timing=True, **WALL).push([at("a", 9_150)])
        soon(lambda: closed(nodes, "s") == [10_000] * 3)
        lost = writer_of(nodes[0].host.node, EX + "s")
        left = [node for node in nodes if node.me.node != lost]
        nodes[lost].close()
        wall.ms = 11_010
        soon(lambda: closed(left, "s") == [11_000] * 2)
        stream = left[1].backend.declared(EX + "s")
        assert stream.push([at("late", 11_000), at("b", 11_001)]) == 1
