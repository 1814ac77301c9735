"""Engine(data_dir=...): what comes back, what is refused by name, full disks, backups."""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import EX, A, B, at, names, register_text, subjects, windows
from tests.inside import core_of, ingest_of
from tests.unit.wire.pieces import make_piece, many
from wukongs.adapters.feeds.spool import Spool
from wukongs.durable.durability import DurableJournal
from wukongs.live.firing import Firing
from wukongs.live.injector import Injector
from wukongs.live.pieces import Close, Finish, Open
from wukongs.live.query_firings import QueryFirings
from wukongs.store.checkpoint import CheckpointStore
from wukongs.store.disk import Disk

LINE = b"<http://ex/%b> <http://ex/p> <http://ex/o> .\n"
WINDOW = "RANGE 200ms STEP 100ms"


def load(engine: wukongs.Engine, name: bytes) -> int:
    return engine.load(io.BytesIO(LINE % name), format="nt")


def crashed(engine: wukongs.Engine, folder: Path) -> Path:
    """A copy of the folder as the process would leave it if it ended now."""
    copy = folder.with_name(folder.name + "-crashed")
    shutil.copytree(folder, copy)
    engine.close()
    return copy


def test_an_engine_without_a_checkpoint_at_its_end_gives_its_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    engine = wukongs.Engine(tmp_path / "data")
    load(engine, b"a")
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointStore, "commit", no_memory)
        with pytest.raises(MemoryError):
            engine.close()
    with wukongs.Engine(tmp_path / "data") as engine:
        assert subjects(engine) == ["a"]


def test_an_engine_that_cannot_start_its_thread_gives_its_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with wukongs.Engine(tmp_path) as engine:
        engine.stream(A, batch_ms=100)

    def refused(_: Injector) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(Injector, "start", refused)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            wukongs.Engine(tmp_path)
    with wukongs.Engine(tmp_path) as engine:
        assert engine.streams() == [A]


def test_the_stored_graph_streams_queries_and_unread_windows_come_back(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    engine = wukongs.Engine(folder)
    load(engine, b"loaded")
    stream = engine.stream(A, batch_ms=100, timing=[EX + "seen"])
    query = engine.register(register_text(WINDOW))
    stream.push([at("a", 50), at("b", 150, "seen")])
    stream.advance(300)
    engine.settle(timeout_s=60)
    results = query.results(timeout_s=0)
    assert [next(results).end_ms, next(results).end_ms] == [100, 200]  # the second is not acknowledged
    with wukongs.Engine(crashed(engine, folder)) as engine:
        assert subjects(engine) == ["a", "loaded"]
        assert engine.streams() == [A]
        assert [query.name for query in engine.queries()] == ["q"]
        found = []
        engine.register(register_text(WINDOW), on_result=lambda window: found.append((window.end_ms, names(window))))
        stream = engine.stream(A, batch_ms=100, timing=[EX + "seen"])
        stream.push([at("c", 350)])
        stream.advance(400)
        engine.settle(timeout_s=60)
        assert found == [(100, ["a"]), (200, ["a", "b"]), (300, ["b"]), (400, ["c"])]


def test_after_a_clean_end_acknowledged_windows_do_not_come_again(tmp_path: Path) -> None:
    with wukongs.Engine(tmp_path / "data") as engine:
        stream = engine.stream(A, batch_ms=100)
        query = engine.register(register_text(WINDOW))
        stream.push([at("a", 50)])
        stream.advance(300)
        engine.settle(timeout_s=60)
        assert sorted(windows(query)) == [100, 200, 300]
    with wukongs.Engine(tmp_path / "data") as engine:
        query = engine.register(register_text(WINDOW))
        engine.stream(A, batch_ms=100).advance(400)
        engine.settle(timeout_s=60)
        assert windows(query) == {400: []}


def test_other_options_and_another_text_are_refused_and_dropping_is_remembered(tmp_path: Path) -> None:
    with wukongs.Engine(tmp_path / "data") as engine:
        for iri in (A, B):
            engine.stream(iri, batch_ms=100).advance(0)
        engine.register(register_text(WINDOW))
        engine.register(register_text(WINDOW, name="gone")).close()
        engine.register(register_text(WINDOW, name="paused")).pause()
        engine.drop_stream(B)
    with wukongs.Engine(tmp_path / "data") as engine:
        assert engine.streams() == [A]
        assert sorted(query.name for query in engine.queries()) == ["paused", "q"]
        with pytest.raises(wukongs.StreamError, match=r"declared already, with .*'batch_ms': 100"):
            engine.stream(A, batch_ms=200)
        engine.stream(A, batch_ms=100)
        with pytest.raises(wukongs.StreamError, match="declared already: drop_stream"):
            engine.stream(A, batch_ms=100)
        with pytest.raises(wukongs.StreamError, match="in the data folder with another text"):
            engine.register(register_text("RANGE 300ms STEP 100ms"))
        assert engine.register(register_text(WINDOW, name="paused")).why() == "paused is paused"
        query = engine.register(register_text(WINDOW))
        with pytest.raises(wukongs.StreamError, match="registered already: close it first"):
            engine.register(register_text(WINDOW))
        query.close()
        engine.register(register_text("RANGE 300ms STEP 100ms"))


def test_a_writer_goes_on_where_its_rows_are_safe(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    stream = "http://ex/s"
    engine = wukongs.Engine(folder)
    engine.stream(stream, batch_ms=1000)
    service = ingest_of(engine)
    assert service.open_partition(Open(stream, "part-0", 1)).resume_offset == 0
    service.inject(make_piece(many(3), time=900))
    service.inject(make_piece(many(3), time=900))  # sent again: taken once
    service.close_batches(Close(stream, "part-0", 1, 3, 1000))
    with wukongs.Engine(crashed(engine, folder)) as engine:
        service = ingest_of(engine)
        with pytest.raises(wukongs.StreamError, match="locked out by the newer writer 1"):
            service.open_partition(Open(stream, "part-0", 0))
        assert service.open_partition(Open(stream, "part-0", 2)).resume_offset == 3
        service.inject(make_piece(many(3), epoch=2, time=900))
        service.inject(make_piece(many(2), first=3, number=2, epoch=2, time=1900))
        service.finish_partition(Finish(stream, "part-0", 2))
        engine.settle(timeout_s=60)
        assert engine.stats()["streams"][stream]["tuples"] == 5
        assert engine.stats()["streams"][stream]["closed_ms"] == 2000


def test_a_full_disk_stops_the_writing_not_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = wukongs.Engine(tmp_path / "data")
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text(WINDOW))
    stream.push([at("a", 50)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    original = Disk.write

    def write(disk: Disk, file: Any, data: Any) -> None:
        original(disk, file, memoryview(data)[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Disk, "write", write)
        with pytest.raises(wukongs.StorageError, match=r"No space left on device.*make room"):
            stream.push([at("b", 150)])
        for refused in (
            lambda: stream.push([at("c", 160)]),
            lambda: stream.advance(200),
            lambda: load(engine, b"x"),
            lambda: engine.stream(B),
            lambda: engine.register(register_text(WINDOW, name="more")),
            engine.checkpoint,
        ):
            with pytest.raises(wukongs.StorageError, match="No space left on device"):
                refused()
        assert subjects(engine) == ["a"]
        assert windows(query) == {100: ["a"]}
        assert "No space" in engine.stats()["durability"]["failure"]
        shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    with wukongs.Engine(tmp_path / "crashed") as crashed_engine:
        stream_again = crashed_engine.stream(A, batch_ms=100)
        stream_again.push([at("d", 150)])
        stream_again.advance(200)
        crashed_engine.settle(timeout_s=60)
        assert subjects(crashed_engine) == ["a", "d"]
    stream.push([at("d", 160)])
    assert engine.stats()["durability"]["failure"] is None
    load(engine, b"x")
    engine.stream(B).close()
    engine.register(register_text(WINDOW, name="more"))
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert subjects(engine) == ["a", "b", "d", "x"]
    engine.close()
    with wukongs.Engine(tmp_path / "data") as engine:
        assert subjects(engine) == ["a", "b", "d", "x"]
        assert [found.name for found in engine.queries()] == ["q", "more"]


def test_an_altered_log_and_another_hash_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with wukongs.Engine(folder) as engine:
        engine.stream(A, batch_ms=100).push([at("a", 50)])
        with pytest.raises(wukongs.StorageError, match="in use by this process"):
            wukongs.Engine(folder)
    with pytest.raises(wukongs.StorageError, match="hash_bits = 62"):
        wukongs.Engine(folder, settings=wukongs.Settings(hash_bits=16))
    segment = min((folder / "log").glob("*.log"))
    whole = segment.read_bytes()
    segment.write_bytes(whole[:60] + b"?" + whole[61:])
    with pytest.raises(wukongs.CorruptionError, match=segment.name):
        wukongs.Engine(folder)
    segment.write_bytes(whole)
    wukongs.Engine(folder).close()
    with pytest.raises(wukongs.SettingsError, match="expected a folder"):
        wukongs.Engine(segment)


def test_a_log_without_a_checkpoint_knows_its_hash_too(tmp_path: Path) -> None:
    engine = wukongs.Engine(tmp_path / "data", settings=wukongs.Settings(hash_bits=16))
    load(engine, b"a")
    copy = crashed(engine, tmp_path / "data")
    with pytest.raises(wukongs.StorageError, match="Set hash_bits = 16"):
        wukongs.Engine(copy)
    (copy / "MANIFEST").unlink()  # folders of before had none yet
    with pytest.raises(wukongs.StorageError, match="hash_bits = 16, and this engine has 62"):
        wukongs.Engine(copy)


def test_a_window_that_comes_again_reads_the_stored_graph_as_it_was(tmp_path: Path) -> None:
    where = f"{{ GRAPH <{A}> {{ ?s <{EX}seen> ?o }} ?s <{EX}p> ?x }}"
    text = (
        f"REGISTER QUERY q AS SELECT ?x FROM <urn:x-wukongs:default> FROM NAMED STREAM <{A}> [{WINDOW}] WHERE {where}"
    )
    engine = wukongs.Engine(tmp_path / "data")
    stream = engine.stream(A, batch_ms=100, timing=[EX + "seen"])
    engine.register(text)  # nobody reads it
    stream.push([at("a", 50), at("a", 50, "seen")])
    stream.advance(100)
    for number in range(8):  # small batches merge at once
        engine.load(io.BytesIO(f"<{EX}a> <{EX}p> <{EX}later{number}> .\n".encode()), format="nt")
        stream.advance(200 + 100 * number)
    engine.settle(timeout_s=60)
    engine.checkpoint()
    with wukongs.Engine(crashed(engine, tmp_path / "data")) as engine:
        engine.stream(A, batch_ms=100, timing=[EX + "seen"])
        first = next(engine.register(text).results(timeout_s=0))
        assert (first.end_ms, names(first)) == (100, ["o"])


def test_what_a_late_stream_brings_is_kept_while_a_window_holds_the_checkpoint_back(tmp_path: Path) -> None:
    settings = wukongs.Settings(log_segment_bytes=1024)
    engine = wukongs.Engine(tmp_path / "data", settings=settings)
    early = engine.stream(A, batch_ms=100, history_ms=0)
    engine.register(register_text(WINDOW))  # nobody reads it
    early.push([at("early", 50)])
    early.advance(5000)
    engine.settle(timeout_s=60)
    late = engine.stream(B, batch_ms=100, history_ms=0)
    late.push([at("late", 60)])  # sealed at an SN behind that of its time
    late.advance(6000)
    early.push([at("more", t) for t in range(5001, 6001, 10)])
    early.advance(6000)
    engine.settle(timeout_s=60)
    engine.checkpoint()
    with wukongs.Engine(crashed(engine, tmp_path / "data"), settings=settings) as engine:
        engine.settle(timeout_s=60)
        assert subjects(engine) == ["early", "late", "more"]


def test_what_a_late_stream_has_brought_and_an_update_deleted_stays_deleted(tmp_path: Path) -> None:
    """More is closed while the record is logged that lets the stream's first tuples join."""
    engine = wukongs.Engine(tmp_path / "data")
    engine.stream(A, batch_ms=1000).advance(1000)
    engine.settle(timeout_s=60)
    late = engine.stream(B, batch_ms=1000)
    late.push([at("late", 500)])
    late.advance(1000)
    engine.settle(timeout_s=60)
    assert subjects(engine) == ["late"]
    engine.update("DELETE WHERE { ?s ?p ?o }")
    with wukongs.Engine(crashed(engine, tmp_path / "data")) as engine:
        engine.settle(timeout_s=60)
        assert subjects(engine) == []


def test_unread_windows_of_another_text_come_again_whole(tmp_path: Path) -> None:
    """It reads what had come before the oldest unread window, of the text before."""
    engine = wukongs.Engine(tmp_path / "data")
    for iri in (A, B):
        engine.stream(iri, batch_ms=100, history_ms=1000, timing=True)
    engine.push_many({A: [], B: []}, 0)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    engine.push_many({A: [at("a", 450)], B: [at("b", 450)]}, 500)
    engine.settle(timeout_s=60)
    read = query.results(timeout_s=0)
    assert [next(read).end_ms for _ in range(5)] == [100, 200, 300, 400, 500]  # the last one is not acknowledged
    query.replace(register_text("RANGE 500ms STEP 100ms", stream=B))
    for end_ms in range(600, 3100, 100):
        engine.push_many({A: [at("a", end_ms)], B: [at("more", end_ms)]}, end_ms)
    engine.settle(timeout_s=60)
    engine.checkpoint()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    read.close()
    found = windows(query)
    assert found[600] == ["b", "more"]
    engine.close()
    with wukongs.Engine(tmp_path / "copy") as engine:
        engine.settle(timeout_s=60)
        assert windows(engine.queries()[0]) == {500: ["a"], **found}


STORED = f"REGISTER QUERY q AS SELECT ?s FROM <urn:x-wukongs:default> FROM NAMED STREAM <{A}> [%s] WHERE {{ ?s ?p ?o }}"


def test_a_window_that_is_closed_while_an_update_is_logged_comes_again_with_what_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = wukongs.Engine(tmp_path / "data")
    stream = engine.stream(A, batch_ms=1000)
    query = engine.register(STORED % "RANGE 1s STEP 1s")
    stream.push([at("a", 500)])
    stream.advance(1000)
    engine.settle(timeout_s=60)
    with monkeypatch.context() as patched:  # as in a thread that still waits for the log
        patched.setattr(DurableJournal, "wait", lambda *_: None)
        stream.advance(2000)
    engine.update(f"INSERT DATA {{ <{EX}b> <{EX}p> <{EX}o> }}")
    engine.settle(timeout_s=60)
    found = windows(query)
    assert found == {1000: ["a"], 2000: ["a", "b"]}
    with wukongs.Engine(crashed(engine, tmp_path / "data")) as engine:
        query = engine.register(STORED % "RANGE 1s STEP 1s")
        engine.settle(timeout_s=60)
        assert windows(query) == found


def test_windows_that_are_alike_come_again_without_what_was_stored_while_they_fired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a load that had waited for an earlier time."""
    waits, fires, is_loaded = threading.Event(), threading.Event(), threading.Event()
    run = QueryFirings.run

    def is_behind(*_: object) -> bool:
        waits.set()
        return not fires.is_set()

    def running(query: QueryFirings, firing: Firing, due_at_s: float) -> None:
        fires.set()
        assert is_loaded.wait(60)
        run(query, firing, due_at_s)

    def load_more() -> None:
        load(engine, b"b")
        is_loaded.set()

    engine = wukongs.Engine(tmp_path / "data")
    stream = engine.stream(A, batch_ms=1000)
    query = engine.register(STORED % "RANGE 1s STEP 1s")
    stream.push([at("a", 500)])
    stream.advance(1000)
    engine.settle(timeout_s=60)
    with monkeypatch.context() as patched:
        patched.setattr(Injector, "_is_behind", is_behind)
        patched.setattr(QueryFirings, "run", running)
        loading = threading.Thread(target=load_more)
        loading.start()
        assert waits.wait(60)
        stream.advance(5000)
        loading.join(60)
        engine.settle(timeout_s=60)
    stream.advance(6000)
    engine.settle(timeout_s=60)
    found = windows(query)
    assert found == {**{end: ["a"] for end in range(1000, 6000, 1000)}, 6000: ["a", "b"]}
    with wukongs.Engine(crashed(engine, tmp_path / "data")) as engine:
        query = engine.register(STORED % "RANGE 1s STEP 1s")
        engine.settle(timeout_s=60)
        assert windows(query) == found


def test_the_last_window_of_streams_comes_again_without_late_tuples_that_came_behind_it(tmp_path: Path) -> None:
    """It ends behind all that is exposed, and so reads the newest snapshot."""
    engine = wukongs.Engine(tmp_path / "data")
    stream, late = engine.stream(A, batch_ms=1000), engine.stream(B, batch_ms=1000, on_late="count")
    query = engine.register(STORED % "RANGE 3s STEP 3s")
    stream.push([at("a", 1500)])
    stream.advance(2000)
    engine.settle(timeout_s=60)
    late.push([at("waits", 500)])
    engine.settle(timeout_s=60)
    stream.close()
    engine.settle(timeout_s=60)
    late.push([at("late", 100)])
    assert subjects(engine) == ["a", "late"]
    found = windows(query)
    assert found == {3000: ["a"]}
    with wukongs.Engine(crashed(engine, tmp_path / "data")) as engine:
        query = engine.register(STORED % "RANGE 3s STEP 3s")
        engine.settle(timeout_s=60)
        assert windows(query) == found


def test_a_backup_is_a_data_folder_of_its_own(tmp_path: Path) -> None:
    with wukongs.Engine(tmp_path / "data") as engine:
        load(engine, b"before")
        stream = engine.stream(A, batch_ms=100)
        stream.push([at("waiting", 50)])
        engine.backup(tmp_path / "backup")
        load(engine, b"after")
        stream.advance(100)
        with pytest.raises(wukongs.StorageError, match="found files in it"):
            engine.backup(tmp_path / "backup")
    with wukongs.restore(tmp_path / "backup", tmp_path / "restored") as engine:
        engine.stream(A, batch_ms=100).advance(100)
        engine.settle(timeout_s=60)
        assert subjects(engine) == ["before", "waiting"]
    with wukongs.restore(tmp_path / "backup") as engine:
        assert subjects(engine) == ["before"]
    with pytest.raises(wukongs.StorageError, match="no MANIFEST"):
        wukongs.restore(tmp_path)
    with wukongs.Engine() as engine, pytest.raises(wukongs.StorageError, match="in memory"):
        engine.backup(tmp_path / "other")


def test_the_log_is_cut_behind_what_is_stored_and_no_window_needs(tmp_path: Path) -> None:
    settings = wukongs.Settings(log_segment_bytes=4096, checkpoint_bytes=1 << 30)
    with wukongs.Engine(tmp_path / "data", settings=settings) as engine:
        stream = engine.stream(A, batch_ms=100, history_ms=500)
        query = engine.register(register_text(WINDOW))
        for t in range(100, 20_000, 100):
            stream.push([at(f"n{t}", t)])
        engine.settle(timeout_s=60)
        engine.checkpoint()
        unread = engine.stats()["durability"]
        assert unread["log_start_lsn"] < 20  # nobody has taken the first windows
        assert len(windows(query)) > 190
        engine.checkpoint()
        read = engine.stats()["durability"]
        assert read["log_start_lsn"] > 150
        assert read["checkpoint_sn"] > unread["checkpoint_sn"]


def test_names_of_graphs_come_back_from_a_checkpoint_and_a_backup(tmp_path: Path) -> None:
    one, two = "http://g/one", "http://g/two"
    with wukongs.Engine(tmp_path / "data") as engine:
        engine.load(io.BytesIO(LINE % b"loaded"), graph=one, format="nt")
        stream = engine.stream(A, batch_ms=100, into=two)
        stream.push([at("a", 50)])
        stream.advance(100)
        engine.settle(timeout_s=60)
        engine.backup(tmp_path / "backup")
    for opened in (wukongs.Engine(tmp_path / "data"), wukongs.restore(tmp_path / "backup", tmp_path / "restored")):
        with opened as engine:
            assert engine.stats()["durability"]["checkpoint_sn"] == engine.stats()["sn"]
            assert engine.graph_names() == [one, two]
            rows = engine.query("SELECT ?g ?s { GRAPH ?g { ?s ?p ?o } }")
            assert sorted((str(g), str(s)) for g, s in rows) == [(one, EX + "loaded"), (two, EX + "a")]
            assert [engine.dump(tmp_path / "dump.nt", graph) for graph in (one, two)] == [1, 1]


@pytest.mark.parametrize("index", ["all", "matching"])
def test_the_log_keeps_the_slices_of_windows_that_nobody_has_read(tmp_path: Path, index: Any) -> None:
    folder = tmp_path / "data"
    with wukongs.Engine(folder) as engine:
        stream = engine.stream(A, batch_ms=100, timing=True, history_ms=0, index=index)
        query = engine.register(register_text("RANGE 300ms STEP 100ms", where="{ ?s <http://ex/p> ?o }"))
        for k in range(10):
            stream.push([at(f"s{k}", 100 * k + 50), at(f"s{k}", 100 * k + 50, "q")])
            engine.checkpoint()
        stream.advance(1000)
        engine.settle(timeout_s=60)
        first = [window.end_ms for _, window in zip(range(6), query.results(timeout_s=0), strict=False)]
        assert first == [100, 200, 300, 400, 500, 600]  # the sixth is not acknowledged
    with wukongs.Engine(folder) as engine:
        query = engine.register(register_text("RANGE 300ms STEP 100ms", where="{ ?s <http://ex/p> ?o }"))
        found = {window.end_ms: (window.partial, names(window)) for window in query.results(timeout_s=0)}
        assert found == {100 * k: (False, [f"s{k - 3}", f"s{k - 2}", f"s{k - 1}"]) for k in range(6, 11)}


@pytest.mark.parametrize("history_ms", [0, 300, 2000])
@pytest.mark.parametrize("is_read", [False, True])
def test_windows_that_lack_discarded_tuples_come_again_as_partial_as_they_were(
    tmp_path: Path, history_ms: int, is_read: bool
) -> None:
    def q(name: str, predicate: str, window: str = "RANGE 400ms STEP 100ms") -> str:
        return register_text(window, name, where=f"{{ ?s <http://ex/{predicate}> ?o }}")

    def push(stream: wukongs.Stream, batches: range) -> None:
        for k in batches:
            stream.push(
                [at(f"{predicate}{k}", 100 * k + 50, predicate) for predicate in ("pq" if 4 <= k < 10 else "pqr")]
            )
        stream.advance(100 * batches.stop)

    def declared(engine: wukongs.Engine) -> wukongs.Stream:
        return engine.stream(A, batch_ms=100, timing=True, history_ms=history_ms, index="matching")

    def outcome(query: Any) -> list[tuple[int, bool, list[str]]]:
        return [(window.end_ms, window.partial, names(window)) for window in query.results(timeout_s=0)]

    def lived(engine: wukongs.Engine, folder: Path | None) -> list[list[tuple[int, bool, list[str]]]]:
        stream = declared(engine)
        engine.register(q("first", "p", "RANGE 400ms STEP 2s"))
        push(stream, range(5))
        engine.settle(timeout_s=60)
        engine.checkpoint()
        second = engine.register(q("second", "q"))
        push(stream, range(5, 10))
        engine.settle(timeout_s=60)
        taken = outcome(second) if is_read else []
        engine.checkpoint()
        if folder is not None:
            copy = crashed(engine, folder)
            engine = wukongs.Engine(copy)
            stream, second = declared(engine), engine.register(q("second", "q"))
        with engine:
            third = engine.register(q("third", "r", "RANGE 1s STEP 100ms"))
            push(stream, range(10, 15))
            engine.settle(timeout_s=60)
            return [taken + outcome(second), outcome(third)]

    expected = lived(wukongs.Engine(), None)
    assert {partial for _, partial, _ in expected[0]} == {True, False} == {partial for _, partial, _ in expected[1]}
    assert lived(wukongs.Engine(tmp_path / "data"), tmp_path / "data") == expected


def test_stats_look_at_the_windows_that_nobody_has_taken_under_the_lock(tmp_path: Path) -> None:
    """A query that was registered or fired meanwhile made stats() end with a RuntimeError of a dictionary."""
    with wukongs.Engine(tmp_path) as engine:
        stream = engine.stream(A, batch_ms=100)
        engine.register(register_text("RANGE 100ms STEP 100ms"))
        journal = core_of(engine).journal
        assert isinstance(journal, DurableJournal)
        oldest, is_locked = journal.delivery.oldest, list[bool]()

        def take() -> None:
            is_free = lock.acquire(blocking=False)
            is_locked.append(not is_free)
            if is_free:
                lock.release()

        def looked() -> Any:
            taken = threading.Thread(target=take)
            taken.start()
            taken.join()
            return oldest()

        lock = core_of(engine).lock
        journal.delivery.oldest = looked  # type: ignore[method-assign]
        stream.push([at("a", 50)])
        engine.stats()
        assert is_locked == [True]


def test_folders_with_data_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Whatever the umask; a folder that is there keeps its mode."""
    there = tmp_path / "there"
    there.mkdir(0o755)
    before = os.umask(0)
    try:
        for folder in (tmp_path / "above" / "db", there):
            with wukongs.Engine(folder) as engine:
                engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
                engine.backup(tmp_path / f"backup of {folder.name}")
        Spool(tmp_path / "spool").close()
    finally:
        os.umask(before)
    made = ("above", "above/db", "above/db/log", "there/log", "backup of db", "backup of db/log", "spool")
    assert {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in made} == dict.fromkeys(made, 0o700)
    assert stat.S_IMODE(there.stat().st_mode) == 0o755
