"""Streams that queries make, on clusters whose nodes go: readers see what they see in an engine, each firing once.

In one process, where a node that is closed is gone for the others at once, as if it was killed."""

from __future__ import annotations

import time
from typing import Any

import pytest

import wukongs
from tests.clusters import PATIENT, cluster
from tests.engine_helpers import EX, A, at, names
from tests.faults.test_lost_nodes import in_time, wait_until_out
from tests.fuzz import first_and_rare
from wukongs.cluster import cluster_backend, made_feeds, writing
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.host import Host
from wukongs.cluster.writing import StreamWriter, writer_of
from wukongs.errors import NodeUnavailable

SETTLE_S = 60.0


def maker(name: str, source: str = A, window: str = "RANGE 200ms STEP 100ms") -> str:
    return f"""REGISTER STREAM <{name}> AS CONSTRUCT {{ ?s <{EX}seen> ?o }}
        FROM STREAM <{source}> [{window}] WHERE {{ ?s ?p ?o }}"""


def reader(source: str, window: str = "RANGE 100ms STEP 100ms") -> str:
    return f"REGISTER QUERY r AS SELECT ?s FROM STREAM <{source}> [{window}] WHERE {{ ?s ?p ?o }}"


def name_written_by(nodes: list[ClusterNode], number: int) -> str:
    """Return the name of a stream whose writer is a node."""
    state = nodes[0].host.node
    return next(name for name in (f"{EX}made{k}" for k in range(100)) if writer_of(state, name) == number)


def read(query: Any, found: dict[int, list[str]]) -> dict[int, list[str]]:
    """Add the windows that have come to those before; none comes twice."""
    for window in query.results(timeout_s=0):
        assert window.end_ms not in found
        found[window.end_ms] = names(window)
    return found


def of_an_engine(made: str, times: list[int], end_ms: int) -> dict[int, list[str]]:
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True)
        engine.register(maker(made))
        query = engine.register(reader(made))
        stream.push([at(f"n{t}", t) for t in times])
        stream.advance(end_ms)
        engine.settle(timeout_s=SETTLE_S)
        return read(query, {})


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["its home", "its writer"])
def test_nothing_is_lost_and_nothing_comes_twice_when_a_node_goes(lost: str) -> None:
    with cluster(3, 2) as nodes:
        made = name_written_by(nodes, 2 if lost == "its writer" else 0)
        number = 2 if lost == "its writer" else 1
        home, there = nodes[1].engine, nodes[0].engine
        there.stream(A, batch_ms=100, timing=True)
        home.register(maker(made))
        query = there.register(reader(made))
        stream = nodes[0].backend.declared(A)
        stream.push([at(f"n{t}", t) for t in range(50, 1050, 100)])
        stream.advance(1000)
        there.settle(SETTLE_S)
        found = read(query, {})
        assert max(found) == 1000
        nodes[number].close()
        in_time(lambda: stream.push([at(f"n{t}", t) for t in range(1050, 2050, 100)]))
        wait_until_out(nodes[0], number)
        in_time(lambda: stream.advance(2000))
        if lost == "its home":
            nodes[0].host.wait_until(lambda node: 1 not in node.control.queries[made].nodes, SETTLE_S, "its move")
        in_time(lambda: there.settle(SETTLE_S))
        read(query, found)
        assert found == of_an_engine(made, [*range(50, 2050, 100)], 2000)


def test_a_writer_that_goes_between_the_rows_and_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some nodes have the rows of a firing then: the next writer brings them to the others. Nobody has them twice."""
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        made = name_written_by(nodes, 1)
        engine = nodes[0].engine
        stream = engine.stream(A, batch_ms=100, timing=True)
        engine.register(maker(made))
        query = engine.register(reader(made))
        counted = engine.register(f"""REGISTER QUERY c AS SELECT ?s FROM STREAM <{made}> [RANGE TRIPLES 4]
            WHERE {{ ?s ?p ?o }}""")
        asked, failed = writing.ask_members, list[int]()

        def ask(host: Host, peers: Any, packets: Any, timeout_s: float) -> Any:
            told = packets(host.node.control) if callable(packets) else packets
            to_rows = any("batch_numbers" in packet.fields for packet in told.values())
            stream_of = {fed["stream"] for packet in told.values() for fed in packet.fields["feds"]}
            if host.me.node == 1 and stream_of == {made} and to_rows and len(failed) < 3:
                failed.append(1)
                asked(host, peers, {2: told[2]}, timeout_s)
                writer = nodes[1].backend._sink._writers.writer(made)
                writer._epoch = 0  # as one that begins anew
                raise NodeUnavailable("gone")
            return asked(host, peers, packets, timeout_s)

        monkeypatch.setattr(writing, "ask_members", ask)
        stream.push([at(f"n{t}-{k}", t) for t in range(50, 650, 100) for k in range(3)])
        stream.advance(600)
        deadline = time.monotonic() + SETTLE_S
        found: dict[int, list[str]] = {}
        while len(found) < 6 and time.monotonic() < deadline:
            engine.settle(SETTLE_S)
            read(query, found)
        assert len(failed) == 3
        want = {t: sorted(f"n{u - 50}-{k}" for u in (t - 100, t) if u for k in range(3)) for t in range(100, 700, 100)}
        assert found == want
        assert all(len(rows) <= 4 for rows in read(counted, {}).values())
        assert engine.stats()["streams"][made]["tuples"] == 3 + 5 * 6


def test_a_firing_that_is_said_again_counts_once() -> None:
    with cluster(1) as (node,):
        engine = node.engine
        stream = engine.stream(A, batch_ms=100, timing=True)
        engine.register(maker(EX + "made"))
        query = engine.register(reader(EX + "made"))
        decide, said = StreamWriter.decide, list[int]()

        def twice(writer: StreamWriter, at_ms: int, *args: Any) -> None:
            for _ in range(2):
                decide(writer, at_ms, *args)
            said.append(at_ms)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StreamWriter, "decide", twice)
            stream.push([at(f"n{t}", t) for t in range(50, 550, 100)])
            stream.advance(500)
            engine.settle(SETTLE_S)
        assert said
        assert read(query, {}) == of_an_engine(EX + "made", [*range(50, 550, 100)], 500)
        assert engine.stats()["streams"][EX + "made"]["tuples"] == 9


@pytest.mark.parametrize("first_ms", first_and_rare([50, 730]))
@pytest.mark.parametrize("has_rows", [True, False])
def test_readers_begin_with_the_firing_of_an_engine(first_ms: int, has_rows: bool) -> None:
    """They know from when on the stream is there, whether its first firing has brought something or not."""

    def run(engine: Any, stream: Any) -> list[int]:
        engine.register(maker(EX + "made", window="RANGE 100ms STEP 100ms"))
        query = engine.register(reader(EX + "made", "RANGE 1s STEP 200ms"))
        if has_rows:
            stream.push([at("a", first_ms)])
        stream.advance(first_ms + 10)
        stream.advance(2000)
        engine.settle(timeout_s=SETTLE_S)
        return [window.end_ms for window in query.results(timeout_s=0)]

    with wukongs.Engine() as engine:
        want = run(engine, engine.stream(A, batch_ms=100, timing=True))
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        assert run(nodes[1].engine, nodes[1].engine.stream(A, batch_ms=100, timing=True)) == want


def test_of_two_texts_that_would_make_a_cycle_the_log_takes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = EX + "one", EX + "two"
    with cluster(2, 2, silence_pulses_max=PATIENT) as nodes:
        first, second = (node.engine for node in nodes)
        stream = first.stream(A, batch_ms=100, timing=True)
        first.stream(EX + "three", batch_ms=100, timing=True)
        queries = [first.register(maker(one)), second.register(maker(two))]
        first.settle(SETTLE_S)
        queries[0].replace(maker(one, two))
        # The other node has not heard of that one: it would find nothing wrong.
        monkeypatch.setattr(cluster_backend, "check_made", lambda *_: False)
        with pytest.raises(wukongs.StreamError, match="a cycle, by a query that was registered or changed at the same"):
            queries[1].replace(maker(two, one))
        with pytest.raises(wukongs.StreamError, match="a cycle, by a query that was registered or changed at the same"):
            second.register(maker(EX + "three", EX + "three"))
        monkeypatch.undo()
        query = first.register(reader(one))
        stream.push([at("a", 50)])
        stream.advance(300)
        first.settle(SETTLE_S)
        assert read(query, {})[200] == ["a"]
        assert nodes[0].host.node.control.queries[two].streams == (A,)
        assert f"<{A}>" in queries[1].source.text
        second.register(maker(EX + "three"))


@pytest.mark.slow
def test_a_stream_that_does_not_go_on_holds_no_other_and_loses_nothing() -> None:
    slow, quick = EX + "slow", EX + "quick"
    with cluster(1) as (node,):
        engine = node.engine
        stream = engine.stream(A, batch_ms=100, timing=True)
        for name in (slow, quick):
            engine.register(maker(name))
        readers = [engine.register(reader(quick)), engine.register(reader(slow).replace("QUERY r", "QUERY q"))]
        decide = StreamWriter.decide
        holds = [True]

        def held(writer: StreamWriter, at_ms: int, *args: Any) -> None:
            if writer._stream == slow and holds[0]:
                raise NodeUnavailable("away")
            decide(writer, at_ms, *args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StreamWriter, "decide", held)
            times = [*range(50, 10050, 100)]
            stream.push([at(f"n{t}", t) for t in times])
            stream.advance(10000)
            deadline = time.monotonic() + SETTLE_S
            found: dict[int, list[str]] = {}
            while len(found) < 100 and time.monotonic() < deadline:
                read(readers[0], found)
            assert found == of_an_engine(quick, times, 10000)
            made = node.store.injector.made.get(slow)
            assert made is not None
            assert made.is_full
            holds[0] = False
            found, deadline = {}, time.monotonic() + SETTLE_S
            while len(found) < 100 and time.monotonic() < deadline:
                read(readers[1], found)
            assert found == of_an_engine(slow, times, 10000)


def test_a_stream_that_takes_nothing_more_is_told() -> None:
    made = EX + "made"
    with cluster(1) as (node,):
        engine = node.engine
        stream = engine.stream(A, batch_ms=100, timing=True)
        engine.register(maker(made))
        query = engine.register(reader(made))

        def refused(*_: Any) -> None:
            raise wukongs.StreamError("never")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StreamWriter, "decide", refused)
            patch.setattr(made_feeds, "REFUSED_MAX", 2)
            stream.push([at("a", 50)])
            stream.advance(300)
            deadline = time.monotonic() + SETTLE_S
            while "never" not in query.why() and time.monotonic() < deadline:
                time.sleep(0.05)
        assert f"the query that makes {made} brings nothing more: never" in query.why()
