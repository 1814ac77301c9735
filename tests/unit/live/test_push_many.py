"""push_many in a data folder, and beside other callers."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, B, at, node, subjects
from tests.inside import core_of
from wukongs.errors import StreamError
from wukongs.store.wal import WriteAheadLog


def declare(engine: wukongs.Engine, **options: Any) -> None:
    for iri in (A, B):
        engine.stream(iri, batch_ms=100, **options)


def test_the_log_is_waited_for_once_and_has_it_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with wukongs.Engine(tmp_path) as engine:
        declare(engine)
        waits: list[int | None] = []
        journal = core_of(engine).journal
        wait = journal.wait
        monkeypatch.setattr(journal, "wait", lambda lsn=None: (waits.append(lsn), wait(lsn)))
        engine.push_many({A: [at("a1", 50)], B: [at("b1", 60)]}, advance_ms=100)
        assert len(waits) == 1
    with wukongs.Engine(tmp_path) as engine:
        engine.settle(60)
        assert subjects(engine) == ["a1", "b1"]
        assert [one["closed_ms"] for one in engine.stats()["streams"].values()] == [100, 100]
        with pytest.raises(StreamError, match="was not declared here"):
            engine.push_many({A: None}, advance_ms=200)
        declare(engine)
        engine.push_many({A: [at("a2", 150)], B: None}, advance_ms=200)
        engine.settle(60)
        assert subjects(engine) == ["a1", "a2", "b1"]


def test_a_crash_leaves_the_tuples_of_the_first_streams_or_all_before_any_progress(tmp_path: Path) -> None:
    folder = tmp_path / "whole"
    with wukongs.Engine(folder) as engine:
        declare(engine)
        segment = max(folder.glob("log/*.log"))
        size = segment.stat().st_size
        engine.push_many({B: [at("b1", 60), at("b2", 70)], A: [at("a1", 50)]}, advance_ms=100)
        log = segment.read_bytes()
        shutil.copytree(folder, tmp_path / "killed")
    found: dict[int, list[tuple[int, bool]]] = {}
    for cut in range(size, len(log) + 1):
        (tmp_path / "killed" / "log" / segment.name).write_bytes(log[:cut])
        count = sum(1 for _ in WriteAheadLog(tmp_path / "killed" / "log", is_read_only=True).read(1))
        if count not in found:
            target = tmp_path / f"cut at {cut}"
            shutil.copytree(tmp_path / "killed", target)
            with wukongs.Engine(target) as engine:
                streams = engine.stats()["streams"]
                found[count] = [(streams[name]["tuples"], streams[name]["closed_ms"] == 100) for name in (B, A)]
    assert [state for state, _ in itertools.groupby(found.values())] == [
        [(0, False), (0, False)],
        [(2, False), (0, False)],
        [(2, False), (1, False)],
        [(2, True), (1, False)],
        [(2, True), (1, True)],
    ]


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_call_that_another_one_overtakes_keeps_what_it_says_was_taken(tmp_path: Path, is_durable: bool) -> None:
    """Late tuples wait until what is closed is sealed; another thread may close a stream meanwhile."""
    late: list[Any] = []
    with wukongs.Engine(tmp_path / "first" if is_durable else None) as engine, pytest.MonkeyPatch.context() as patched:
        declare(engine, lateness_ms=100, on_late=lambda table: late.extend(table.column("subject").to_pylist()))
        first, second = core_of(engine).streams[A], core_of(engine).streams[B]
        engine.push_many({A: [at("a5", 500)], B: [at("b5", 500)]}, advance_ms=500)
        catch_up = engine._injector.catch_up

        def overtaken() -> None:
            catch_up()
            if first.tuple_count > 1:
                second.end()

        patched.setattr(engine._injector, "catch_up", overtaken)
        with pytest.raises(StreamError, match=r"closed.*The tuples of this call for .*streamA were taken"):
            engine.push_many({A: [at("lateA", 100), at("a6", 600)], B: [at("lateB", 100)]}, advance_ms=700)
        assert late == [node("lateA")]
        assert first.closed_ms is not None
        assert first.closed_ms < 700
        if is_durable:
            shutil.copytree(tmp_path / "first", tmp_path / "killed")
    if is_durable:
        with wukongs.Engine(tmp_path / "killed") as engine:
            assert engine.stats()["streams"][A]["tuples"] == 2
            assert "lateA" in subjects(engine)
            assert "lateB" not in subjects(engine)


def test_tuples_without_late_ones_are_safe_when_a_later_stream_is_refused(tmp_path: Path) -> None:
    with wukongs.Engine(tmp_path / "first") as engine, pytest.MonkeyPatch.context() as patched:
        declare(engine, lateness_ms=100, on_late="count")
        first, second = core_of(engine).streams[A], core_of(engine).streams[B]
        engine.push_many({A: [at("a5", 500)], B: [at("b5", 500)]}, advance_ms=500)
        patched.setattr(engine._injector, "catch_up", second.end)
        with pytest.raises(StreamError, match="streamA were taken"):
            engine.push_many({A: [at("a6", 600)], B: [at("lateB", 100)]})
        assert first.tuple_count == 2
        shutil.copytree(tmp_path / "first", tmp_path / "killed")
    with wukongs.Engine(tmp_path / "killed") as engine:
        assert engine.stats()["streams"][A]["tuples"] == 2
