"""Streams with retractions="event_time" at a cluster: where the option is refused, and what erases event times."""

from __future__ import annotations

import io

import pytest

import wukongs
from tests.clusters import PATIENT, cluster
from tests.engine_helpers import EX, A, B, node, subjects
from tests.scenarios.test_signs_by_event_time import OPTIONS, push
from wukongs.cluster import building, cluster_node
from wukongs.cluster.cluster_node import ClusterNode

RULE = f"PREFIX : <{EX}> RULE copy: CONSTRUCT {{ ?x :q ?y }} WHERE {{ ?x :p ?y }}"
SETTLE_S = 60.0


def entry_counts(nodes: list[ClusterNode]) -> list[int]:
    counts = []
    for one in nodes:
        with one.store.core.lock:
            assert one.store.core.event_times is not None
            counts.append(one.store.core.event_times.entries().shape[1])
    return counts


def test_rules_and_signs_by_event_time_refuse_each_other() -> None:
    with cluster(2, silence_pulses_max=PATIENT) as nodes:
        engine, other = (one.engine for one in nodes)
        engine.stream(A, **OPTIONS)
        with pytest.raises(wukongs.RuleError, match=f"signs go by event time beside rules on a cluster, found {A}"):
            other.add_rules(RULE)
        engine.drop_stream(A)
        other.add_rules(RULE)
        with pytest.raises(wukongs.SettingsError, match='retractions = "event_time": expected no rules beside it'):
            engine.stream(B, **OPTIONS)
        assert engine.stream(B, **OPTIONS | {"retractions": None}).push([]) == 0
        other.drop_rules("copy")
        engine.drop_stream(B)
        push(engine.stream(B, **OPTIONS), ("a", 500, "+"))


def test_a_node_of_an_earlier_release_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(cluster_node, "KNOWS", ())
        with cluster(2, silence_pulses_max=PATIENT) as nodes:
            with pytest.raises(wukongs.SettingsError, match="node 0 is of an earlier release, which does not keep"):
                nodes[1].engine.stream(A, **OPTIONS)
            assert nodes[1].engine.stream(A, batch_ms=100).push([]) == 0


def test_a_load_that_is_built_ahead_erases_event_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does a CLEAR, on all nodes."""
    monkeypatch.setattr(building, "APART_ROWS", 1)
    with cluster(2, silence_pulses_max=PATIENT) as nodes:
        engine = nodes[0].engine
        stream = engine.stream(A, **OPTIONS)
        push(stream, ("a", 500, "-"), ("b", 500, "-"), ("c", 500, "-"))
        stream.advance(1000)
        engine.settle(timeout_s=SETTLE_S)
        assert sum(entry_counts(nodes)) >= 3
        nodes[1].engine.load(io.BytesIO(f"{node('a')} {node('p')} {node('o')} .\n".encode()), format="nt")
        push(stream, ("a", 400, "-"), ("b", 400, "+"))
        assert subjects(engine) == []
        push(stream, ("b", 600, "+"))
        nodes[1].engine.update("CLEAR DEFAULT")
        assert entry_counts(nodes) == [0, 0]
        push(stream, ("c", 300, "+"))
        assert subjects(engine) == ["c"]


def test_a_stream_with_a_longer_history_finds_no_older_entries() -> None:
    """Entries that may be forgotten are forgotten then, on all nodes: which ones were before hangs on each of them."""
    with cluster(2, 2, silence_pulses_max=PATIENT) as nodes:
        engine = nodes[0].engine
        first = engine.stream(A, **OPTIONS, history_ms=8000)
        push(first, ("a", 650, "-"))
        for time_ms in (8600, 8800):
            first.advance(time_ms)
            engine.settle(timeout_s=SETTLE_S)
        assert entry_counts(nodes) == [1, 1], "they are forgotten a thousand ms at a time"
        second = engine.stream(B, **OPTIONS, history_ms=60_000)
        assert entry_counts(nodes) == [0, 0]
        push(second, ("a", 400, "+"))
        second.advance(9000)
        first.advance(9000)
        engine.settle(timeout_s=SETTLE_S)
        assert subjects(engine) == ["a"]
