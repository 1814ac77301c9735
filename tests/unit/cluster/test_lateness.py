"""Tuples out of order on clusters: all nodes judge and count alike, also with another writer and a node that joins."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.clusters import PATIENT, cluster, start_again
from tests.engine_helpers import EX, at, names, register_text, subjects, windows
from tests.faults.test_lost_nodes import in_time, wait_until_out
from tests.fuzz import slow
from tests.oracles.lateness import Arrivals, OpenArrivals
from tests.unit.cluster.test_idleness import of_stream, soon
from tests.unit.cluster.test_pipelines import S, Writer, fed_cluster
from tests.unit.cluster.wires import STREAM, encoded, wired
from wukongs.adapters.replay import replay
from wukongs.adapters.run_config import RunConfig, load_run_config
from wukongs.adapters.source import SetAside
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.feeding import FEED
from wukongs.cluster.writing import StreamWriter, writer_of
from wukongs.errors import NodeUnavailable, StreamError
from wukongs.wire.link import IngestLink

A = EX + "streamA"
LONG_S = 60.0
LATENESS_MS = 250


def in_windows(arrivals: Arrivals, end_ms: int, range_ms: int = 100) -> dict[int, list[str]]:
    """Return the windows with something in them."""
    ends = range(100, end_ms + 1, 100)
    found = {end: sorted({str(name) for name, _ in arrivals.window(end - range_ms, end)}) for end in ends}
    return {end: rows for end, rows in found.items() if rows}


def filled(query: Any) -> dict[int, list[str]]:
    return {end: rows for end, rows in windows(query).items() if rows}


def calls(draw: random.Random, count: int) -> list[list[tuple[str, int]]]:
    """Return calls with tuples around a time that goes on."""
    found, number, now_ms = [], 0, 1000
    for _ in range(count):
        now_ms += draw.choice((0, 30, 100, 350))
        call = []
        for _ in range(draw.randint(1, 5)):
            call.append((f"s{number}", now_ms + draw.randint(-400, 150)))
            number += 1
        found.append(call)
    return found


def pushed(node: ClusterNode, arrivals: Arrivals, call: list[tuple[str, int]]) -> None:
    before = len(arrivals.late)
    count = in_time(lambda: node.backend.declared(A).push([at(*one) for one in call]))
    arrivals.push(call)
    assert count == len(call) - (len(arrivals.late) - before)


@pytest.mark.parametrize(
    ("node_count", "replica_count"),
    [(1, 1), (2, 2), slow(2, 1), slow(3, 2)],
)
def test_random_arrivals_are_judged_as_one_after_the_other(node_count: int, replica_count: int) -> None:
    draw, arrivals = random.Random(node_count), Arrivals(LATENESS_MS)
    with cluster(node_count, replica_count, silence_pulses_max=PATIENT) as nodes:
        engine = nodes[0].engine
        stream = engine.stream(A, batch_ms=100, lateness_ms=LATENESS_MS)
        query = nodes[-1].engine.register(register_text("RANGE 100ms STEP 100ms"))
        for call in calls(draw, 40):
            pushed(draw.choice(nodes), arrivals, call)
            if draw.random() < 0.1:
                assert arrivals.newest_ms is not None
                time_ms = arrivals.newest_ms - draw.randint(0, 2 * LATENESS_MS)
                stream.advance(time_ms)
                arrivals.advance(time_ms)
        stream.advance(9000)
        nodes[-1].engine.settle(LONG_S)
        assert filled(query) == in_windows(arrivals, 9000)
        assert arrivals.late
        for node in nodes:
            node.engine.settle(LONG_S)
            stats = of_stream(node, "streamA")
            assert (stats["late"], stats["dropped"]) == (len(arrivals.late), 0)
            assert subjects(node.engine) == sorted({str(name) for name, _ in (*arrivals.on_time, *arrivals.late)})


def test_windows_that_count_have_the_newest_times() -> None:
    with cluster(2, silence_pulses_max=PATIENT) as nodes:
        stream = nodes[0].engine.stream(A, batch_ms=100, lateness_ms=LATENESS_MS)
        text = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE TRIPLES 2] WHERE {{ ?s ?p ?o }}"
        query = nodes[1].engine.register(text)
        stream.push([at("d", 480), at("b", 420)])
        stream.push([at("c", 450), at("a", 410)])
        stream.advance(500)
        nodes[1].engine.settle(LONG_S)
        assert [sorted(names(window)) for window in query.results(timeout_s=0)][-1] == ["c", "d"]


@pytest.mark.slow
@pytest.mark.parametrize("loses_the_writer", [True, False])
@pytest.mark.parametrize("late", ["drop", "open"])
def test_what_waits_survives_the_loss_of_a_node_and_one_that_joins(loses_the_writer: bool, late: Any) -> None:
    draw, lateness_ms, range_ms = random.Random(7), LATENESS_MS, 100
    arrivals = Arrivals(lateness_ms)
    if late == "open":
        lateness_ms, range_ms = 50, 500
        arrivals = OpenArrivals(lateness_ms)
    all_calls = calls(draw, 30)
    with cluster(3, 2) as nodes:
        nodes[0].engine.stream(A, batch_ms=100, lateness_ms=lateness_ms, late=late)
        writer = writer_of(nodes[0].host.node, A)
        lost = writer if loses_the_writer else (writer + 1) % 3
        left = [node for node in nodes if node.me.node != lost]
        query = left[0].engine.register(register_text(f"RANGE {range_ms}ms STEP 100ms"))
        for call in all_calls[:10]:
            pushed(draw.choice(nodes), arrivals, call)
        nodes[lost].close()
        wait_until_out(left[0], lost)
        for call in all_calls[10:20]:
            pushed(draw.choice(left), arrivals, call)
        start_again(nodes, lost, replica_count=2)
        assert writer_of(left[0].host.node, A) == writer
        for call in all_calls[20:]:
            pushed(draw.choice(nodes), arrivals, call)
        in_time(lambda: nodes[lost].backend.declared(A).advance(9000))
        left[0].engine.settle(LONG_S)
        carried = [one for one, _ in arrivals.carried] if isinstance(arrivals, OpenArrivals) else []
        assert bool(carried) == (late == "open")
        assert filled(query) == in_windows(arrivals, 9000, range_ms)
        for node in nodes:
            node.engine.settle(LONG_S)
            stats = of_stream(node, "streamA")
            counts = len(arrivals.late) + len(carried), len(carried), len(arrivals.on_time) + len(carried)
            assert (stats["late"], stats["carried"], stats["tuples"]) == counts
            taken = (*arrivals.on_time, *arrivals.late, *carried)
            assert subjects(node.engine) == sorted({str(name) for name, _ in taken})


def test_the_next_writer_knows_where_the_stream_stands() -> None:
    with wired(2) as wires:
        engine = wires.nodes[0].engine
        engine.stream(STREAM, batch_ms=100, lateness_ms=LATENESS_MS)
        query = engine.register(register_text("RANGE 100ms STEP 100ms", stream=STREAM))
        node, writer = wires.writer()
        assert writer.push(encoded(("a", 1000), ("b", 770)), LONG_S).tolist() == []
        other = next(one for one in wires.nodes if one is not node)
        following = StreamWriter(STREAM, other.host, other.store, other.intake, other.network)  # type: ignore[arg-type]
        assert following.push(encoded(("late", 749), ("c", 750), ("d", 760)), LONG_S).tolist() == [0]
        following.advance(1000, LONG_S)
        engine.settle(LONG_S)
        assert filled(query) == {800: ["b", "c", "d"], 1000: ["a"]}


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_call_out_of_order_that_some_nodes_have(goes_on: bool) -> None:
    """The writer finishes it, with what it said; or the next one goes on behind it."""
    with wired(2) as wires:
        engine = wires.nodes[0].engine
        engine.stream(STREAM, batch_ms=100, lateness_ms=LATENESS_MS)
        query = engine.register(register_text("RANGE 100ms STEP 100ms", stream=STREAM))
        node, writer = wires.writer()
        writer.push(encoded(("a", 1000)), LONG_S)
        call = encoded(("b", 1100), ("c", 900))
        wires.lose(FEED, 1, count=1 << 20)
        with pytest.raises(NodeUnavailable):
            writer.push(call, 0.3)
        wires.faults.clear()
        if not goes_on:
            other = next(one for one in wires.nodes if one is not node)
            writer = StreamWriter(STREAM, other.host, other.store, other.intake, other.network)  # type: ignore[arg-type]
        else:
            assert writer.push(call, LONG_S).tolist() == []
        assert writer.push(encoded(("d", 901)), LONG_S).tolist() == []
        writer.advance(1100, LONG_S)
        engine.settle(LONG_S)
        found = filled(query)
        assert {"a", "d"} <= {name for rows in found.values() for name in rows}
        if goes_on:
            assert found == {900: ["c"], 1000: ["a", "d"], 1100: ["b"]}
        assert [one.host.failure for one in wires.nodes] == [None, None]


def test_an_idle_stream_that_sorts_closes_the_stream_batch_of_its_newest_tuple() -> None:
    with cluster(2, silence_pulses_max=PATIENT) as nodes:
        late: list[int] = []
        stream = nodes[0].engine.stream(
            A,
            batch_ms=100,
            timing=True,
            lateness_ms=1000,
            idle_timeout_ms=100,
            on_late=lambda table: late.append(table.num_rows),
        )
        query = nodes[1].engine.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("b", 1550), at("a", 1250)])
        soon(lambda: all(of_stream(node, "streamA")["closed_ms"] == 1600 for node in nodes))
        nodes[1].engine.settle(LONG_S)
        assert filled(query) == {1300: ["a"], 1600: ["b"]}
        assert stream.push([at("late", 1600), at("c", 1700)]) == 1
        assert late == [1]
        assert [of_stream(node, "streamA")["dropped"] for node in nodes] == [1, 1]


def test_a_tuple_before_those_that_another_stream_has_passed_is_shown() -> None:
    """The stream begins behind the clock: its first tuples may be of any stream batch within lateness_ms."""
    with cluster(2, silence_pulses_max=PATIENT) as nodes:
        engine = nodes[0].engine
        busy = engine.stream(EX + "busy", batch_ms=100)
        busy.push([at("x", 50)])
        busy.advance(1200)
        engine.settle(LONG_S)
        stream = engine.stream(A, batch_ms=100, lateness_ms=1000)
        query = engine.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("b", 1550)])
        stream.push([at("a", 660)])
        stream.advance(2000)
        busy.advance(2000)
        for node in nodes:
            node.engine.settle(LONG_S)
            assert subjects(node.engine) == ["a", "b", "x"]
        assert filled(query) == {700: ["a"], 1600: ["b"]}


def test_another_node_declares_it_with_the_same_words() -> None:
    with cluster(2, silence_pulses_max=PATIENT) as nodes:
        nodes[0].engine.stream(A, lateness_ms=100)
        with pytest.raises(wukongs.SettingsError, match="lateness_ms"):
            nodes[1].engine.stream(EX + "other", lateness_ms=-1)
        assert nodes[1].store.stream(A).lateness_ms == 100


def test_a_pipeline_feeds_a_stream_that_sorts_what_is_pushed() -> None:
    with fed_cluster(2) as (nodes, addresses):
        engine = nodes[0].engine
        stream = engine.stream(S, batch_ms=100, lateness_ms=LATENESS_MS)
        query = engine.register(register_text("RANGE 100ms STEP 100ms", stream=S))
        with IngestLink(addresses) as link:
            pipeline = Writer(link, "one")
            stream.push([at("x", 510), at("y", 310)])
            pipeline.send(5, ("c", "d"))
            assert stream.push([at("z", 350), at("late", 259)]) == 1
            pipeline.close(6)
            pipeline.finish()
        stream.close()
        engine.settle(LONG_S)
        assert filled(query) == {400: ["y", "z"], 500: ["c"], 600: ["x"]}


# --- pipelines --------------------------------------------------------------------------------------------------------

RUN = """
[[stream]]
iri = "http://ex/streamA"
[stream.source]
kind = "folder"
path = "in"
format = "timestamped"
follow = false
lateness_ms = 250
"""


def write_records(folder: Path, arrivals: Arrivals, draw: random.Random) -> RunConfig:
    """Write records around a time that goes on, and note which of them are late; return the run that reads them."""
    (folder / "in").mkdir()
    lines, time_ms = list[str](), 1000
    for number in range(400):
        time_ms += draw.choice((0, 0, 10, 60))
        one = f"s{number}", time_ms + draw.randint(-300, 100)
        arrivals.push([one])
        lines.append(f"<{EX}{one[0]}> <{EX}p> <{EX}o> . {one[1]}\n")
    (folder / "in" / "a.nt").write_text("".join(lines))
    (folder / "run.toml").write_text(RUN)
    return load_run_config(folder / "run.toml")


@pytest.mark.parametrize(("node_count", "replica_count"), [(1, 1), slow(3, 2)])
def test_records_out_of_order_reach_a_cluster_through_a_pipeline(
    node_count: int, replica_count: int, tmp_path: Path
) -> None:
    arrivals = Arrivals(LATENESS_MS)
    config = write_records(tmp_path, arrivals, random.Random(node_count))
    config = replace(config, pipeline=replace(config.pipeline, rows_per_epoch=30))
    with fed_cluster(node_count, replica_count) as (nodes, _):
        engine = nodes[0].engine
        engine.stream(A, batch_ms=100, timing=True)
        query = nodes[-1].engine.register(register_text("RANGE 100ms STEP 100ms"))
        bad = list[SetAside]()
        with engine.link() as link:
            report = replay(config.streams, link, config.pipeline, on_bad=lambda part, _: bad.extend(part.rows))
        nodes[-1].engine.settle(LONG_S)
        assert report.finished
        assert len(bad) == len(arrivals.late) > 20
        assert filled(query) == in_windows(arrivals, 30_000)


def test_rows_of_a_closed_stream_batch_that_come_again_are_passed_over() -> None:
    """A node that goes on from an offset has some of the rows behind it, where they come out of order."""
    with fed_cluster(1) as (nodes, addresses):
        engine = nodes[0].engine
        engine.stream(S, batch_ms=100, timing=True)
        query = engine.register(register_text("RANGE 100ms STEP 100ms", stream=S))
        with IngestLink(addresses) as link:
            writer = Writer(link, "p", lateness_ms=LATENESS_MS)
            writer.send(5, ("a", "o"))
            writer.send(4, ("b", "o"))
            writer.close(5)
            writer.send(5, ("a", "o"))  # as if this were sent again
            writer.send(7, ("d", "o"))
            writer.send(6, ("c", "o"))
            writer.close(7)
            in_order = Writer(link, "q")
            in_order.send(5, ("x", "o"))
            with pytest.raises(StreamError, match="of stream batch 5, which is closed"):
                link.flush()
            link.finish(S, "q", 1)
        engine.settle(LONG_S)
        assert filled(query) == {400: ["b"], 500: ["a"], 600: ["c"], 700: ["d"]}
        assert of_stream(nodes[0], "s")["passed_over"] == 1
