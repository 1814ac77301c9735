"""Cursors, gaps, pauses and other texts of queries over the end of a process."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, B, at, names, register_text
from tests.inside import core_of
from wukongs.live.injector import Injector
from wukongs.store.snapshot import tick_sn

STEP = "RANGE 100ms STEP 100ms"


def opened(folder: Path, **options: Any) -> tuple[wukongs.Engine, wukongs.Stream, wukongs.ContinuousQuery]:
    engine = wukongs.Engine(folder)
    stream = engine.stream(A, batch_ms=100, history_ms=0)
    return engine, stream, engine.register(register_text(STEP), **options)


def fill(engine: wukongs.Engine, stream: wukongs.Stream, first: int, last: int) -> None:
    stream.push([at(f"s{number}", number * 100 - 50) for number in range(first, last + 1)])
    stream.advance(last * 100)
    engine.settle(timeout_s=60)


def crashed(engine: wukongs.Engine, folder: Path) -> Path:
    copy = folder.with_name(folder.name + "-crashed")
    shutil.copytree(folder, copy)
    engine.close()
    return copy


def ends(found: Any) -> list[int]:
    return [window.end_ms for window in found]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_group_goes_on_after_a_crash_and_the_own_cursor_too(tmp_path: Path, checkpoint: bool) -> None:
    engine, stream, query = opened(tmp_path / "data")
    fill(engine, stream, 1, 5)
    group = query.results(timeout_s=0, group="g")
    assert [next(group).end_ms for _ in range(3)] == [100, 200, 300]  # the third is not confirmed
    assert ends(query.results(timeout_s=0)) == [100, 200, 300, 400, 500]
    engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")  # what was confirmed goes along
    if checkpoint:
        engine.checkpoint()
    engine, stream, query = opened(crashed(engine, tmp_path / "data"))
    fill(engine, stream, 6, 6)
    with engine:
        assert ends(query.results(timeout_s=0)) == [600]
        assert ends(query.results(timeout_s=0, group="g")) == [300, 400, 500, 600]
        assert ends(query.results(timeout_s=0, group="h")) == []
        assert engine.stats()["durability"]["oldest_unacknowledged_ms"] is None
    engine, stream, query = opened(tmp_path / "data-crashed")
    with engine:
        fill(engine, stream, 7, 7)
        for name in (None, "g", "h"):
            assert ends(query.results(timeout_s=0, group=name)) == [700]


def test_a_group_that_began_before_the_first_window_misses_none(tmp_path: Path) -> None:
    engine, stream, query = opened(tmp_path / "data")
    assert ends(query.results(timeout_s=0, group="g")) == []
    fill(engine, stream, 1, 2)
    assert ends(query.results(timeout_s=0)) == [100, 200]
    engine.checkpoint()
    engine, stream, query = opened(crashed(engine, tmp_path / "data"))
    with engine:
        engine.settle(timeout_s=60)
        assert ends(query.results(timeout_s=0, group="g")) == [100, 200]


@pytest.mark.parametrize("is_read", [False, True])
def test_a_group_that_begins_after_a_restart_has_no_window_from_before(tmp_path: Path, is_read: bool) -> None:
    """is_read: results() was asked first, beside on_result."""
    engine, stream, query = opened(tmp_path / "data", on_result=lambda _: None)
    fill(engine, stream, 1, 3)
    engine.close()
    engine, stream, query = opened(tmp_path / "data", on_result=lambda _: None)
    if is_read:
        assert ends(query.results(timeout_s=0)) == []
    assert ends(query.results(timeout_s=0, group="g")) == []
    engine.close()
    engine, stream, query = opened(tmp_path / "data", on_result=lambda _: None)
    with engine:
        fill(engine, stream, 4, 4)
        assert ends(query.results(timeout_s=0, group="g")) == [400]


def test_a_gap_that_nobody_was_told_is_told_after_a_crash(tmp_path: Path) -> None:
    bounds = {"unread_bytes_max": 3 * 1100}
    engine, stream, query = opened(tmp_path / "data", **bounds)
    assert ends(query.results(timeout_s=0, group="g")) == []
    fill(engine, stream, 1, 8)
    assert engine.stats()["durability"]["oldest_unacknowledged_ms"] == 600
    stream.advance(801)
    engine, stream, query = opened(crashed(engine, tmp_path / "data"), **bounds)
    with engine:
        fill(engine, stream, 9, 9)
        for name in (None, "g"):
            with pytest.raises(wukongs.GapError) as caught:
                list(query.results(timeout_s=0, group=name))
            assert (caught.value.from_ms, caught.value.to_ms, caught.value.count) == (100, 600, 6)
            assert ends(query.results(timeout_s=0, group=name)) == [700, 800, 900]


@pytest.mark.parametrize("is_read", [False, True])
def test_a_gap_of_windows_that_were_not_made_is_told_after_a_crash(tmp_path: Path, is_read: bool) -> None:
    def declared(folder: Path) -> tuple[wukongs.Engine, wukongs.Stream, wukongs.Stream, wukongs.ContinuousQuery]:
        engine = wukongs.Engine(folder)
        ahead, late = engine.stream(A, batch_ms=100, slice_bytes_max=20_000), engine.stream(B, batch_ms=100)
        text = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [{STEP}] FROM STREAM <{B}> [{STEP}] {{ ?s ?p ?o }}"
        return engine, ahead, late, engine.register(text)

    engine, ahead, late, query = declared(tmp_path / "data")
    fill(engine, ahead, 1, 300)
    late.advance(100)
    engine.settle(timeout_s=60)
    lost_to = engine._core.streams[A].ring.lost_to
    assert lost_to is not None
    assert lost_to > 100
    if is_read:
        with pytest.raises(wukongs.GapError):
            list(query.results(timeout_s=0))
    late.advance(200)
    engine.checkpoint()
    engine, ahead, late, query = declared(crashed(engine, tmp_path / "data"))
    with engine:
        late.advance(30_000)
        engine.settle(timeout_s=60)
        if not is_read:
            with pytest.raises(wukongs.GapError) as caught:
                list(query.results(timeout_s=0))
            gap = caught.value
            assert (gap.from_ms, gap.to_ms, gap.count, gap.gone) == (100, lost_to * 100, lost_to, lost_to)
        assert ends(query.results(timeout_s=0)) == list(range(lost_to * 100 + 100, 30_001, 100))


def test_on_result_goes_on_with_the_window_that_it_did_not_return_from(tmp_path: Path) -> None:
    entered, leave = threading.Event(), threading.Event()

    def stuck(window: wukongs.WindowResult) -> None:
        if window.end_ms == 200:
            entered.set()
            leave.wait(60)

    engine, stream, _ = opened(tmp_path / "data", on_result=stuck)
    stream.push([at("a", 50)])
    stream.advance(400)
    assert entered.wait(60)
    stream.advance(401)  # the first acknowledgement goes along
    folder = tmp_path / "copy"
    shutil.copytree(tmp_path / "data", folder)
    leave.set()
    engine.close()
    seen: list[int] = []
    engine, stream, _ = opened(folder, on_result=lambda window: seen.append(window.end_ms))
    with engine:
        engine.settle(timeout_s=60)
    assert seen == [200, 300, 400]


def test_an_on_result_that_raises_is_logged_once_a_second(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: object) -> None:
        raise LookupError("mine")

    began_s = time.monotonic()
    with caplog.at_level(logging.ERROR):
        engine, stream, query = opened(tmp_path / "data", on_result=fail)
        with engine:
            fill(engine, stream, 1, 50)
            assert query.stats()["errors"] == 50
    logged = len([record for record in caplog.records if "on_result failed" in record.message])
    assert 1 <= logged <= 1 + time.monotonic() - began_s


@pytest.mark.parametrize("checkpoint", [None, "before", "after"])
def test_another_text_counts_from_the_same_window_end_when_the_log_is_replayed(
    tmp_path: Path, checkpoint: str | None
) -> None:
    engine, stream, query = opened(tmp_path / "data")
    assert ends(query.results(timeout_s=0, group="all")) == []
    fill(engine, stream, 1, 3)
    if checkpoint == "before":
        engine.checkpoint()
    query.replace(register_text("RANGE 200ms STEP 100ms"))
    fill(engine, stream, 4, 5)
    engine.stream(B, batch_ms=100).advance(500)
    both = register_text("RANGE 100ms STEP 100ms").replace("WHERE", f"FROM STREAM <{B}> [{STEP}] WHERE", 1)
    query.replace(both)
    fill(engine, stream, 6, 6)
    if checkpoint == "after":
        engine.checkpoint()
    expected = {100: ["s1"], 200: ["s2"], 300: ["s3"], 400: ["s3", "s4"], 500: ["s4", "s5"]}
    assert {window.end_ms: names(window) for window in query.results(timeout_s=0)} == expected
    engine = wukongs.Engine(crashed(engine, tmp_path / "data"))
    with engine:
        with pytest.raises(wukongs.StreamError, match="with another text"):
            engine.register(register_text(STEP))
        query = engine.register(both)
        engine.stream(B, batch_ms=100).advance(600)
        engine.settle(timeout_s=60)
        found = {window.end_ms: names(window) for window in query.results(timeout_s=0, group="all")}
        assert found == {**expected, 600: ["s6"]}


def test_a_pause_counts_from_the_same_window_end_when_the_log_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query is paused in the middle of a backlog, where the stored graph is ahead of its firings: the windows that
    are due by then are still reported (docs/decisions/0112-event-time-of-changes.md)."""
    monkeypatch.setattr(Injector, "_due_first", lambda *_: None)  # or else it fires before the stored graph moves on
    with wukongs.Engine(tmp_path / "data") as engine:
        engine.stream(A, batch_ms=100, history_ms=0)
        engine.register(register_text(STEP, "first", where="{ ?s <http://ex/p>+ ?o }"))  # is picked alone, and first
    engine, stream, query = opened(tmp_path / "data")
    assert ends(query.results(timeout_s=0, group="all")) == []
    fill(engine, stream, 1, 2)
    step, pauses = Injector._step, list[threading.Thread]()

    def pausing(injector: Injector, *args: Any) -> Any:
        firings, is_done = step(injector, *args)
        is_first = firings is not None and [firing.query.name for firing in firings.others] == ["first"]
        if is_first and injector._core.sealed_ms == 1000 and not pauses:  # its own firing at 1000 is not picked
            pauses.append(threading.Thread(target=query.pause, daemon=True))
            pauses[0].start()
        return firings, is_done

    with monkeypatch.context() as patched:
        patched.setattr(Injector, "_step", pausing)
        with core_of(engine).lock:  # all is due before the first of it fires
            stream.push([at(f"s{number}", number * 100 - 50) for number in range(3, 41)])
            stream.advance(4000)
        engine.settle(timeout_s=60)
        pauses[0].join(60)
    paused = ends(query.results(timeout_s=0))
    assert paused == list(range(100, 4100, 100))
    query.resume()
    stream.push([at("s41", 4050)])
    stream.advance(4100)
    engine.settle(timeout_s=60)
    resumed = ends(query.results(timeout_s=0))
    assert resumed == [4100]
    engine, stream, query = opened(crashed(engine, tmp_path / "data"))
    with engine:
        engine.settle(timeout_s=60)
        assert ends(query.results(timeout_s=0, group="all")) == paused + resumed


def test_a_query_that_ended_for_want_of_readers_stays_ended(tmp_path: Path) -> None:
    engine, stream, _ = opened(tmp_path / "data", unread_bytes_max=3 * 1100, unread="end")
    fill(engine, stream, 1, 10)
    assert engine.queries() == []
    with wukongs.Engine(crashed(engine, tmp_path / "data")) as engine:
        assert engine.queries() == []


def test_the_bounds_of_a_query_are_found_again(tmp_path: Path) -> None:
    bounds: dict[str, Any] = {"unread_bytes_max": 3 * 1100, "unread": "end"}
    for checkpoint in (False, True, True):
        engine, _, query = opened(tmp_path / "data", **bounds)
        assert (query.source.unread_bytes_max, query.source.unread) == (3 * 1100, "end")
        if checkpoint:
            engine.checkpoint()
        engine.close()


def test_the_log_keeps_what_brings_windows_that_came_before_the_clock(tmp_path: Path) -> None:
    """B is behind, so the clock stands still, and the replay fires what A has closed at the end of the log. The heads
    of later segments say that it has fired: from these on it would not come again."""
    settings = wukongs.Settings(log_segment_bytes=1024)
    engine = wukongs.Engine(tmp_path / "data", settings=settings)
    stream, other = (engine.stream(iri, batch_ms=100) for iri in (A, B))
    stream.advance(0)
    other.advance(0)
    engine.register(register_text(STEP))
    stream.advance(100)
    engine.settle(timeout_s=60)
    for number in range(30):  # some segments
        stream.push([at(f"s{number}", 101)])
    with wukongs.Engine(crashed(engine, tmp_path / "data"), settings=settings) as engine:
        journal = core_of(engine).journal
        assert len(journal._marks) > 2
        oldest, _ = journal.delivery.oldest()
        assert (oldest.end_ms, oldest.lsn) == (100, journal._marks[0].lsn + 1)
        (query,) = engine.queries()
        assert ends(query.results(timeout_s=0)) == [100]


def test_a_checkpoint_goes_no_further_than_the_oldest_snapshot_that_a_window_reads(tmp_path: Path) -> None:
    """When firings over windows alone are replayed, they need the log from further back than older ones of another
    query, which read the stored graph."""
    both = (
        f"REGISTER QUERY both AS SELECT ?s FROM <urn:x-wukongs:default> "
        f"FROM NAMED STREAM <{A}> [RANGE 600ms STEP 300ms] WHERE {{ GRAPH <{A}> {{ ?s ?p ?o }} ?s ?p ?x }}"
    )
    folder, settings = tmp_path / "data", wukongs.Settings(log_segment_bytes=1024)

    def windows_of(engine: wukongs.Engine, name: str) -> dict[int, list[str]]:
        engine.settle(60)
        (query,) = (one for one in engine.queries() if one.name == name)
        return {window.end_ms: names(window) for window in query.results(timeout_s=0)}

    with wukongs.Engine(folder, settings=settings) as engine:
        stream = engine.stream(A, batch_ms=100)
        stream.advance(0)
        for text in (register_text(STEP, "alone"), both):
            engine.register(text)
        stream.push([at("a", 50), at("b", 250)])
        stream.advance(400)
        engine.settle(60)
        engine.update("DELETE WHERE { ?s ?p ?o }")
        assert list(windows_of(engine, "alone")) == [100, 200, 300, 400]
        stream.push([at(f"c{end}", end) for end in range(450, 600, 10)])
        stream.advance(500)
        engine.settle(60)
    with wukongs.Engine(folder, settings=settings) as engine:
        delivery = core_of(engine).journal.delivery
        oldest, sn = delivery.oldest()
        assert (oldest.end_ms, sn) == (500, tick_sn(300))
        engine.checkpoint()
        assert engine.stats()["durability"]["checkpoint_sn"] <= sn
    with wukongs.Engine(folder, settings=settings) as engine:
        assert windows_of(engine, "both") == {300: ["a", "b"]}
