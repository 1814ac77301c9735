"""Nodes with data folders: power is cut, and they go on."""

from __future__ import annotations

import io
import json
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import wukongs.cluster.checkpoints as checkpoints_module
from tests.clusters import PATIENT, QUICK_PULSE_S, cluster, cut_off
from tests.fuzz import first_and_slow
from wukongs.cluster.boot import new_boot
from wukongs.cluster.changes import Changes, Staged
from wukongs.cluster.cluster_node import ClusterNode, ClusterShape
from wukongs.cluster.node_disk import NODE_FILE, NodeDisk, NodeFolder, Owner
from wukongs.engine import Engine
from wukongs.errors import BudgetExceeded, CorruptionError, SettingsError, StorageError, StreamError
from wukongs.live.query_firings import QueryFirings
from wukongs.protocol import events as ev
from wukongs.protocol.messages import Incarnation
from wukongs.protocol.records import Change
from wukongs.settings import Settings

EX = "http://ex/"
ALL = "SELECT ?s ?p ?o { ?s ?p ?o }"
QUERY = f"""REGISTER QUERY {{}} AS SELECT ?s ?o FROM STREAM <{EX}s> [RANGE 1s STEP 1s] WHERE {{{{ ?s <{EX}p> ?o }}}}"""
END_S = 60.0


def rows(node: ClusterNode) -> list[str]:
    return sorted(str([str(cell) for cell in row]) for row in node.engine.query(ALL))


def push(stream: Any, first: int, last: int) -> None:
    """Push a tuple each 100 ms, from number `first` to `last`."""
    stream.push([(f"<{EX}a{n}>", f"<{EX}p>", f"<{EX}b{n}>", n * 100 + 50) for n in range(first, last)])


def windows(reader: Iterator[Any], count: int) -> list[tuple[int, list[str]]]:
    found = islice(reader, count)
    return [(window.end_ms, sorted(str(row[0]).removeprefix(EX) for row in window)) for window in found]


def checkpoint(node: ClusterNode) -> None:
    assert node.checkpoints is not None
    node.checkpoints.make()


@pytest.mark.parametrize("checkpoints", first_and_slow(["some", "none", "all"]))
def test_everything_is_there_again(tmp_path: Path, checkpoints: str) -> None:
    with cluster(3, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        engine = nodes[0].engine
        text = "".join(f'<{EX}l{n}> <{EX}q> "{n}" .\n' for n in range(40))
        engine.load(io.BytesIO(text.encode()), format="nt")
        stream = engine.stream(EX + "s", batch_ms=100)
        push(stream, 0, 25)
        stream.advance(2000)
        if checkpoints != "none":
            for node in nodes if checkpoints == "all" else nodes[1:2]:
                assert node.checkpoints is not None
                node.checkpoints.make()
        engine.update(
            f"DELETE {{ ?s <{EX}q> ?o }} INSERT {{ ?s <{EX}r> ?o }} WHERE {{ ?s <{EX}q> ?o FILTER(?o < '2') }}"
        )
        other = nodes[1].engine.stream(EX + "t", batch_ms=200)
        other.push([(f"<{EX}t>", f"<{EX}p>", f"<{EX}u>", 2100)])
        other.advance(5000)
        push(stream, 25, 50)
        stream.advance(5000)
        engine.settle(END_S)
        before = rows(nodes[2])
        assert len(before) == 40 + 50 + 1
        cut_off(nodes)
    for _ in range(2):  # the second time, there was nothing new
        with cluster(3, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
            assert [rows(node) for node in nodes] == [before] * 3
    with cluster(3, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        stream = nodes[2].backend.declared(EX + "s")
        push(stream, 50, 60)
        stream.advance(6000)
        nodes[1].backend.declared(EX + "t").advance(6000)
        nodes[2].engine.settle(END_S)
        assert len(rows(nodes[0])) == len(before) + 10


def test_a_node_that_serves_again_shows_the_last_change(tmp_path: Path) -> None:
    """Nobody knows at first that it is committed."""
    for life in range(4):
        with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
            assert [len(rows(node)) for node in nodes] == [life, life]
            nodes[life % 2].engine.update(f"INSERT DATA {{ <{EX}a{life}> <{EX}p> 1 }}")
            cut_off(nodes)


@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("form", ["", "ISTREAM "])
def test_a_group_of_readers_gets_every_window_with_its_rows(tmp_path: Path, has_checkpoint: bool, form: str) -> None:
    text = QUERY.format("q").replace("SELECT", f"SELECT {form}")
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        engine = nodes[0].engine
        stream = engine.stream(EX + "s", batch_ms=100)
        query = engine.register(text)
        query.cursor("readers")
        push(stream, 0, 30)
        stream.advance(3000)
        engine.settle(END_S)
        reader = query.results(timeout_s=END_S, group="readers")
        found = windows(reader, 1)
        if has_checkpoint:
            for node in nodes:
                assert node.checkpoints is not None
                node.checkpoints.make()
        push(stream, 30, 50)
        stream.advance(5000)
        engine.settle(END_S)
        found += windows(reader, 1)
        assert nodes[0].deliveries is not None
        nodes[0].host.run(nodes[0].deliveries.pulse, END_S)
        cut_off(nodes)
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        engine = nodes[0].engine
        (query,) = engine.queries()
        stream = nodes[0].backend.declared(EX + "s")
        push(stream, 50, 60)
        stream.advance(6000)
        engine.settle(END_S)
        again = windows(query.results(timeout_s=END_S, group="readers"), 5)
    expected = [(n * 1000, sorted(f"a{k}" for k in range(n * 10 - 10, n * 10))) for n in range(1, 7)]
    assert found == expected[:2]
    assert again == expected[1:], "the last window that was read was not confirmed"


def test_a_window_that_is_due_at_a_checkpoint_and_not_reported_yet_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power is cut between the checkpoint and the report."""
    may_report, run = threading.Event(), QueryFirings._run

    def run_late(query: QueryFirings, firing: Any, due_at_s: float) -> None:
        assert may_report.wait(END_S)
        run(query, firing, due_at_s)

    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path / "before") as nodes:
        stream, home = nodes[0].engine.stream(EX + "s", batch_ms=100), nodes[0].store
        nodes[0].engine.register(QUERY.format("q")).cursor("readers")
        push(stream, 0, 10)
        stream.advance(1000)
        nodes[0].engine.settle(END_S)
        monkeypatch.setattr(QueryFirings, "_run", run_late)
        push(stream, 10, 30)
        stream.advance(3000)
        deadline = time.monotonic() + END_S
        while not home.injector.queries["q"].is_firing:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        monkeypatch.setattr(checkpoints_module, "REPORT_S", 0.2)
        with pytest.raises(StreamError, match="query q has not reported what is due within"):
            checkpoint(nodes[0])
        checkpoint(nodes[1])
        shutil.copytree(tmp_path / "before", tmp_path / "after")
        may_report.set()
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path / "after") as nodes:
        stream = nodes[0].backend.declared(EX + "s")
        push(stream, 30, 40)
        stream.advance(4000)
        nodes[0].engine.settle(END_S)
        (query,) = nodes[0].engine.queries()
        found = windows(query.results(timeout_s=END_S, group="readers"), 4)
    assert found == [(n * 1000, sorted(f"a{k}" for k in range(n * 10 - 10, n * 10))) for n in range(1, 5)]


def test_windows_wait_for_their_readers_though_their_node_ends_before_its_query_runs_again(tmp_path: Path) -> None:
    """It waits for slices of a node that is not there, and makes a last checkpoint."""
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        stream = nodes[0].engine.stream(EX + "s", batch_ms=100)
        nodes[0].engine.register(QUERY.format("q")).cursor("readers")
        push(stream, 0, 30)
        stream.advance(3000)
        nodes[0].engine.settle(END_S)
        for node in nodes:
            checkpoint(node)
        cut_off(nodes)
    shape, me = ClusterShape(2, 1, silence_pulses_max=PATIENT), Incarnation(0, 0, new_boot())
    folder = NodeFolder(tmp_path / "node0", 0, shape.told_of_data(Settings()))
    folder.give_to(Owner(0, 0, me.boot, shape.told_of_data(Settings())))
    alone = ClusterNode(me, shape, "tcp://127.0.0.1:0", Settings(), pulse_s=QUICK_PULSE_S, disk=NodeDisk(folder))
    alone.start({0: alone.address})
    assert alone.store.query("q") is None
    checkpoint(alone)
    alone.close()
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        stream = nodes[0].backend.declared(EX + "s")
        push(stream, 30, 40)
        stream.advance(4000)
        nodes[0].engine.settle(END_S)
        (query,) = nodes[0].engine.queries()
        found = windows(query.results(timeout_s=END_S, group="readers"), 4)
    assert found == [(n * 1000, sorted(f"a{k}" for k in range(n * 10 - 10, n * 10))) for n in range(1, 5)]


def test_a_window_longer_than_the_history_is_whole_after_a_restart(tmp_path: Path) -> None:
    settings, text = Settings(history_ms=500), QUERY.format("q").replace("RANGE 1s", "RANGE 3s")
    with cluster(2, 1, settings, PATIENT, folder=tmp_path) as nodes:
        engine = nodes[0].engine
        stream = engine.stream(EX + "s", batch_ms=100)
        engine.register(text).cursor("readers")
        push(stream, 0, 50)
        stream.advance(5000)
        engine.settle(END_S)
        for node in nodes:
            checkpoint(node)
        cut_off(nodes)
    with cluster(2, 1, settings, PATIENT, folder=tmp_path) as nodes:
        stream = nodes[0].backend.declared(EX + "s")
        push(stream, 50, 70)
        stream.advance(7000)
        nodes[0].engine.settle(END_S)
        (query,) = nodes[0].engine.queries()
        found = list(islice(query.results(timeout_s=END_S, group="readers"), 7))
    assert [(one.end_ms, one.partial) for one in found] == [(n * 1000, False) for n in range(1, 8)]
    expected = [(n * 1000, sorted(f"a{k}" for k in range(max(0, n * 10 - 30), n * 10))) for n in range(1, 8)]
    assert windows(iter(found), 7) == expected


def test_a_query_goes_on_that_reads_what_another_one_makes(tmp_path: Path) -> None:
    maker = (
        f"REGISTER STREAM <{EX}made> AS CONSTRUCT {{ ?s <{EX}q> ?o }} "
        f"FROM STREAM <{EX}s> [RANGE 1s STEP 1s] WHERE {{ ?s <{EX}p> ?o }}"
    )
    reader = f"REGISTER QUERY r AS SELECT ?s FROM STREAM <{EX}made> [RANGE 1s STEP 1s] WHERE {{ ?s <{EX}q> ?o }}"
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        stream = nodes[0].engine.stream(EX + "s", batch_ms=100)
        nodes[0].engine.register(maker)
        nodes[1].engine.register(reader).cursor("readers")
        push(stream, 0, 20)
        stream.advance(2000)
        nodes[0].engine.settle(END_S)
        for node in nodes:
            assert node.checkpoints is not None
            node.checkpoints.make()
        cut_off(nodes)
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        stream = nodes[1].backend.declared(EX + "s")
        push(stream, 20, 40)
        stream.advance(4000)
        nodes[1].engine.settle(END_S)
        query = next(query for query in nodes[1].engine.queries() if query.name == "r")
        found = windows(query.results(timeout_s=END_S, group="readers"), 4)
    assert found == [(n * 1000, sorted(f"a{k}" for k in range(n * 10 - 10, n * 10))) for n in range(1, 5)]


def test_a_long_majority_log_has_a_checkpoint_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would never be cut."""
    monkeypatch.setattr(checkpoints_module, "ENTRIES_MAX", 10)
    monkeypatch.setattr(checkpoints_module, "LOOK_S", 0.05)
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        for number in range(20):
            nodes[0].engine.update(f"INSERT DATA {{ <{EX}a{number}> <{EX}p> 1 }}")
        deadline = time.monotonic() + END_S
        while not all(node.host.node.settled for node in nodes):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        cut_off(nodes)
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        assert [len(rows(node)) for node in nodes] == [20, 20]


def test_whose_folder_it_is(tmp_path: Path) -> None:
    folder = NodeFolder(tmp_path / "a", 1, "nodes 3")
    with pytest.raises(StorageError):
        NodeFolder(tmp_path / "a", 1, "nodes 3")  # in use
    folder.give_to(Owner(1, 0, 7, "nodes 3"))
    folder.close()
    with pytest.raises(StorageError, match="it is the folder of a node of a cluster, and holds a part of the data"):
        Engine(tmp_path / "a")
    Engine(tmp_path / "b").close()
    with pytest.raises(SettingsError, match="it has the data of an engine without other nodes"):
        NodeFolder(tmp_path / "b", 1, "nodes 3")
    with pytest.raises(SettingsError, match="it is the folder of node 1, and this is node 2"):
        NodeFolder(tmp_path / "a", 2, "nodes 3")
    with pytest.raises(SettingsError, match="it was written with nodes 3, and this node is told nodes 4"):
        NodeFolder(tmp_path / "a", 1, "nodes 4")
    again = NodeFolder(tmp_path / "a", 1, "nodes 3")
    assert again.owner == Owner(1, 0, 7, "nodes 3")
    again.close()
    (tmp_path / "a" / NODE_FILE).write_text("{")
    with pytest.raises(CorruptionError, match="expected the node that it belongs to"):
        NodeFolder(tmp_path / "a", 1, "nodes 3")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"DELETE {{ ?s <{EX}p> ?o }} WHERE {{ ?s <{EX}p> ?o }}", {"l", "new"}),
        ("CLEAR DEFAULT", {"new"}),
        (f"DELETE DATA {{ <{EX}new> <{EX}p> <{EX}b1> . <{EX}a1> <{EX}p> <{EX}b1> }}", {"a0", "a2", "l", "new"}),
    ],
)
@pytest.mark.parametrize("lives", first_and_slow(["-c", "", "c", "cc"]))
def test_an_update_that_was_staged_at_a_checkpoint_removes_what_it_has_read(
    tmp_path: Path, text: str, left: set[str], lives: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two replicas makes a checkpoint, in some lives. What comes by a stream meanwhile is the same on both."""
    given: list[Any] = []

    def hold_back(_: Changes, staged: Staged, payload: Any, after: int | None) -> Any:
        given.append((json.dumps({"change": staged.name, **payload}), after))
        raise RuntimeError("its node is gone")

    def go_on(nodes: list[ClusterNode]) -> list[set[str]]:
        stream = nodes[0].backend.declared(EX + "s")
        stream.push([(f"<{EX}{name}>", f"<{EX}p>", f"<{EX}b1>", 1050) for name in ("a1", "new")])
        stream.advance(2000)
        nodes[0].engine.settle(END_S)
        ((told, after),) = given
        host = nodes[0].host
        applied = host.submit(ev.Submitted(Change("client", 1, told, after, host.node.control.view)), END_S)
        for node in nodes:
            node.store.wait_for(applied.sn, END_S)
        return [{str(row[0]).removeprefix(EX) for row in node.engine.query(ALL)} for node in nodes]

    with cluster(2, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        engine = nodes[0].engine
        stream = engine.stream(EX + "s", batch_ms=100)
        push(stream, 0, 3)
        stream.advance(1000)
        engine.load(io.BytesIO(f'<{EX}l> <{EX}q> "1" .\n'.encode()), format="nt")
        engine.settle(END_S)
        with monkeypatch.context() as patched:
            patched.setattr(Changes, "_submit", hold_back)
            patched.setattr(Staged, "abandon", lambda _: None)
            with pytest.raises(RuntimeError):
                engine.update(text)
        if not lives:
            found = go_on(nodes)
        else:
            if lives[0] == "c":
                checkpoint(nodes[1])
            cut_off(nodes)
    for life in lives[1:]:
        with cluster(2, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
            if life == "c":
                checkpoint(nodes[1])
            cut_off(nodes)
    if lives:
        with cluster(2, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
            found = go_on(nodes)
    assert found == [left, left]


def test_what_was_staged_is_taken_in_again_though_less_may_be_staged_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loads whose clients are gone leave chunks in the log that this node had let go long before."""

    def die(_: Staged) -> None:
        raise RuntimeError("its node is gone")

    text = "".join(f'<{EX}l{n}> <{EX}q> "{n}" .\n' for n in range(20_000)).encode()
    with cluster(2, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        with monkeypatch.context() as patched:
            patched.setattr(Staged, "finish", die)
            patched.setattr(Staged, "abandon", lambda _: None)
            with pytest.raises(RuntimeError):
                nodes[0].engine.load(io.BytesIO(text), format="nt")
        assert [node.store.stats()["staged_changes"] for node in nodes] == [1, 1]
        cut_off(nodes)
    with cluster(2, 2, Settings(load_bytes_max=1 << 20), PATIENT, folder=tmp_path) as nodes:
        assert rows(nodes[0]) == []
        with pytest.raises(BudgetExceeded):
            nodes[0].engine.load(io.BytesIO(b"<e:s> <e:p> 1 .\n"), format="nt")


def test_a_checkpoint_before_the_first_firing_of_a_life_keeps_what_that_is_compared_with(tmp_path: Path) -> None:
    text = (
        f"""REGISTER QUERY q AS SELECT ISTREAM ?s ?o FROM STREAM <{EX}s> [RANGE 2s STEP 1s] WHERE {{ ?s <{EX}p> ?o }}"""
    )
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        stream = nodes[0].engine.stream(EX + "s", batch_ms=100)
        nodes[0].engine.register(text).cursor("readers")
        push(stream, 0, 20)
        stream.advance(2000)
        nodes[0].engine.settle(END_S)
        cut_off(nodes)
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        checkpoint(nodes[0])
        cut_off(nodes)
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        stream = nodes[0].backend.declared(EX + "s")
        push(stream, 20, 30)
        stream.advance(3000)
        nodes[0].engine.settle(END_S)
        (query,) = nodes[0].engine.queries()
        found = windows(query.results(timeout_s=END_S, group="readers"), 3)
    assert found == [(n * 1000, sorted(f"a{k}" for k in range(n * 10 - 10, n * 10))) for n in range(1, 4)]


def test_a_stream_that_began_behind_the_checkpoint_feeds_what_a_query_makes(tmp_path: Path) -> None:
    """Its first advance is known again before the query runs again."""
    maker = f"""REGISTER STREAM <{EX}m> AS CONSTRUCT {{ ?s <{EX}seen> ?o }}
        FROM STREAM <{EX}s> [RANGE 200ms STEP 200ms] WHERE {{ ?s ?p ?o }}"""
    reader = f"REGISTER QUERY r AS SELECT ?s ?o FROM STREAM <{EX}m> [RANGE 400ms STEP 400ms] WHERE {{ ?s ?p ?o }}"
    with cluster(2, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        stream = nodes[0].engine.stream(EX + "s", batch_ms=100)
        nodes[0].engine.register(maker)
        nodes[0].engine.register(reader).cursor("readers")
        for node in nodes:
            checkpoint(node)
        stream.advance(100)
        nodes[0].engine.settle(END_S)
        cut_off(nodes)
    with cluster(2, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        assert {query.times.from_ms for query in nodes[0].store.injector.queries.values()} <= {None, 100}
        stream = nodes[0].backend.declared(EX + "s")
        push(stream, 1, 8)
        stream.advance(800)
        nodes[0].engine.settle(END_S)
        (query,) = (query for query in nodes[0].engine.queries() if query.name == "r")
        found = windows(query.results(timeout_s=END_S, group="readers"), 2)
    assert found == [(400, ["a1", "a2", "a3"]), (800, ["a4", "a5", "a6", "a7"])]


def test_a_chunk_that_is_staged_while_a_checkpoint_begins_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged before the head of the checkpoint, which was collected before that."""
    is_collected, is_staged, is_begun = threading.Event(), threading.Event(), threading.Event()
    send = Staged._send

    def send_late(staged: Staged, shares: Any, fields: Any) -> None:
        assert (is_begun if fields.get("is_last") else is_collected).wait(END_S)
        send(staged, shares, fields)
        is_staged.set()

    with cluster(2, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        engine = nodes[0].engine
        engine.update(f"INSERT DATA {{ <{EX}a> <{EX}p> <{EX}b> . <{EX}b> <{EX}p> <{EX}a> }}")
        disk = nodes[0]._disk
        assert disk is not None
        begin = disk.begin

        def begin_late(*given: Any) -> int:
            is_collected.set()
            assert is_staged.wait(END_S)
            return begin(*given)

        monkeypatch.setattr(Staged, "_send", send_late)
        monkeypatch.setattr(disk, "begin", begin_late)
        with ThreadPoolExecutor(1) as other:
            text = f"<{EX}a> <{EX}p> <{EX}a> .\n".encode()  # terms that are agreed on
            loading = other.submit(engine.load, io.BytesIO(text), format="nt")
            checkpoint(nodes[0])
            is_begun.set()
            loading.result(END_S)
        before = rows(nodes[0])
        assert len(before) == 3
        cut_off(nodes)
    monkeypatch.undo()
    with cluster(2, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        assert [rows(node) for node in nodes] == [before] * 2


def test_a_call_for_several_streams_is_made_safe_at_once(tmp_path: Path) -> None:
    """Each node syncs once for the terms and once for the tuples of a writer's streams, however many these are."""
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        engine = nodes[0].engine
        names = [f"{EX}s{number}" for number in range(8)]
        for name in names:
            engine.stream(name, batch_ms=100)

        def syncs() -> list[int]:
            return [one["log_syncs"] for one in engine.stats()["durability"].values()]

        def call(at_ms: int) -> None:
            tuples = [(f"<{EX}a{at_ms}-{row}>", f"<{EX}p>", f"<{EX}b>", at_ms) for row in range(4)]
            engine.push_many(dict.fromkeys(names, tuples), at_ms)

        call(1000)
        engine.settle(END_S)
        for count in range(1, 4):
            engine.settle(END_S)
            before = syncs()
            call(1000 + count * 100)
            found = [now - old for now, old in zip(syncs(), before, strict=True)]
            assert all(0 < one <= 6 for one in found), found
