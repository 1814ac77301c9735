"""Which ends of stream batches are snapshots of their own: with tick_ms, and in a backlog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, B, at, node, rows, subjects
from wukongs.cluster.node_config import load_node_config
from wukongs.settings import Settings
from wukongs.store.snapshot import tick_sn
from wukongs.store.trace import Trace

JOIN = (
    f"REGISTER QUERY q AS SELECT ?s ?o FROM <urn:x-wukongs:default> FROM NAMED STREAM <{B}> [RANGE 100ms STEP %dms] "
    f"WHERE {{ GRAPH <{B}> {{ ?any {node('is')} ?b }} ?s {node('p')} ?o }}"
)


@pytest.fixture
def seals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The snapshot numbers, first and last, of what was sealed."""
    found, seal = list[tuple[int, int]](), Trace.seal

    def sealing(trace: Trace, sn: int, *more: Any) -> None:
        found.append((sn if more[3] is None else more[3], sn))
        seal(trace, sn, *more)

    monkeypatch.setattr(Trace, "seal", sealing)
    return found


def begun(folder: Path | None = None, **settings: int) -> tuple[wukongs.Engine, Any, Any]:
    engine = wukongs.Engine(folder, settings=Settings(batch_ms=100, **settings))
    streams = engine.stream(A), engine.stream(B)
    for stream in streams:
        stream.advance(0)
    return engine, *streams


def fill(a: Any, *ends: int) -> None:
    a.push([at(f"s{end:04}", end) for end in ends])
    a.advance(ends[-1])


def counted(query: Any) -> dict[int, int]:
    """Window end -> how many rows."""
    return {window.end_ms: len(rows(window)) for window in query.results(timeout_s=0)}


# --- a backlog --------------------------------------------------------------------------------------------------------


def test_ends_that_nobody_reads_between_join_together(seals: list[tuple[int, int]]) -> None:
    engine, a, b = begun()
    with engine:
        fill(a, *range(100, 5001, 100))
        b.advance(5000)
        engine.settle(60)
        assert seals == [(tick_sn(100), tick_sn(5000))]
        assert len(subjects(engine)) == 50
        with pytest.raises(wukongs.CompactedError):
            engine.query("SELECT * { ?s ?p ?o }", at=tick_sn(2500))


@pytest.mark.parametrize("step_ms", [100, 300, 700])
def test_each_firing_reads_the_stored_graph_of_its_time(seals: list[tuple[int, int]], step_ms: int) -> None:
    engine, a, _ = begun()
    with engine:
        query = engine.register(JOIN % step_ms)
        fill(a, *range(100, 2101, 100))
        engine.push_many({B: [at("x", end, "is") for end in range(100, 2101, 100)]}, 2100)
        engine.settle(60)
        assert counted(query) == {end: end // 100 for end in range(step_ms, 2101, step_ms)}
        lasts = sorted({*range(step_ms, 2101, step_ms), 2100})
        assert [last for _, last in seals] == [tick_sn(end) for end in lasts]


def test_windows_that_count_say_only_then_when_they_fire(seals: list[tuple[int, int]]) -> None:
    engine, a, b = begun()
    with engine:
        query = engine.register(
            f"REGISTER QUERY q AS SELECT ?s ?o FROM <urn:x-wukongs:default> FROM NAMED STREAM <{B}> [RANGE TRIPLES 1] "
            f"WHERE {{ GRAPH <{B}> {{ ?any {node('is')} ?b }} ?s {node('p')} ?o }}"
        )
        fill(a, *range(100, 1001, 100))
        b.push([at("x", end, "is") for end in (300, 800)])
        b.advance(1000)
        engine.settle(60)
        assert counted(query) == {300: 3, 800: 8}
        assert len(seals) == 10


def test_a_long_backlog_joins_in_parts(seals: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.live.core.SEALED_TOGETHER", 15)
    engine, a, b = begun()
    with engine:
        fill(a, *range(100, 5001, 100))
        b.advance(5000)
        engine.settle(60)
        assert [(last - first) // tick_sn(100) < 16 for first, last in seals] == [True] * 4
        assert len(subjects(engine)) == 50


def test_a_load_stands_where_it_came(seals: list[tuple[int, int]]) -> None:
    engine, a, b = begun()
    with engine:
        fill(a, *range(100, 1001, 100))
        b.advance(500)
        engine.update(f"DELETE WHERE {{ {node('s0300')} ?p ?o }} ; DELETE WHERE {{ {node('s0700')} ?p ?o }}")
        b.advance(1000)
        engine.settle(60)
        assert subjects(engine) == [f"s{end:04}" for end in range(100, 1001, 100) if end != 300]


# --- coarse ticks -----------------------------------------------------------------------------------------------------


def test_with_tick_ms_stream_batches_join_at_its_multiples(seals: list[tuple[int, int]]) -> None:
    engine, a, b = begun(tick_ms=300)
    with engine:
        query = engine.register(JOIN % 100)
        seen = {}
        for end in range(100, 1001, 100):
            fill(a, end)
            b.push([at("x", end, "is")])
            b.advance(end)
            engine.settle(60)
            seen[end] = len(engine.query("SELECT ?s { ?s ?p ?o }"))
        assert counted(query) == {end: end // 300 * 3 for end in seen}
        assert seen == {end: end // 300 * 3 + (end >= 300) for end in seen}  # what B brings is one triple
        a.close()
        b.close()
        engine.settle(60)
        assert len(subjects(engine)) == 11


def test_a_stream_that_begins_behind_the_clock_joins_by_records_all_the_same() -> None:
    engine, a, b = begun(tick_ms=1000)
    with engine:
        fill(a, 100, 1200)
        b.advance(1200)
        engine.settle(60)
        assert subjects(engine) == ["s0100"]
        late = engine.stream("http://ex/late")
        late.push([at("late", 500)])
        late.advance(1200)
        engine.settle(60)
        assert subjects(engine) == ["late", "s0100"]


@pytest.mark.parametrize("is_checkpoint", [False, True])
def test_a_data_folder_goes_on_with_its_ticks(tmp_path: Path, *, is_checkpoint: bool) -> None:
    engine, a, b = begun(tmp_path, tick_ms=1000)
    with engine:
        fill(a, 100, 900, 1100)
        b.advance(1500)
        a.advance(1500)
        engine.settle(60)
        if is_checkpoint:
            engine.checkpoint()
        assert subjects(engine) == ["s0100", "s0900"]
    with pytest.raises(wukongs.StorageError, match="tick_ms = 1000, and this engine has 0"):
        wukongs.Engine(tmp_path)
    with wukongs.Engine(tmp_path, settings=Settings(batch_ms=100, tick_ms=1000)) as engine:
        assert subjects(engine) == ["s0100", "s0900"]
        for stream in (engine.stream(A), engine.stream(B)):
            stream.advance(2000)
        engine.settle(60)
        assert subjects(engine) == ["s0100", "s0900", "s1100"]


def test_a_cluster_has_the_ticks_of_its_streams(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        '[[node]]\npeers = "tcp://127.0.0.1:7001"\nclients = "tcp://127.0.0.1:7002"\n[engine]\ntick_ms = 1000\n'
    )
    with pytest.raises(wukongs.SettingsError, match="tick_ms"):
        load_node_config(file)
