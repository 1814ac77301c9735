"""A query of a cluster gets another text, pauses and goes on: from any node, while it moves, and when its node goes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

import wukongs
from tests.clusters import PATIENT, READY_S, cluster, start_again
from tests.engine_helpers import A, B, at, names, register_text, windows
from tests.fuzz import first_and_slow
from tests.unit.cluster.test_counting import client_of
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.node_payloads import read_registration
from wukongs.protocol import events as ev
from wukongs.protocol.records import MoveQuery

STEP, WIDE = "RANGE 100ms STEP 100ms", "RANGE 200ms STEP 100ms"
SETTLE_S = 60


def fill(stream: wukongs.Stream, first: int, last: int) -> None:
    stream.push([at(f"s{number}", number * 100 - 50) for number in range(first, last + 1)])
    stream.advance(last * 100)


def taken_over(nodes: list[ClusterNode]) -> Any:
    """Return the query, once a node has taken it over from the one that was gone."""
    found: list[Any] = []

    def is_there() -> bool:
        found[:] = [query for node in nodes if (query := node.store.query("q")) is not None]
        return bool(found)

    nodes[0].host.wait_until(lambda _: is_there(), READY_S, "its new home")
    return found[0]


def begun(nodes: Sequence[ClusterNode]) -> wukongs.Stream:
    """A stream with two stream batches that came by the first node, and a query over it at the third."""
    nodes[0].engine.stream(A, batch_ms=100)
    stream = nodes[0].backend.declared(A)
    nodes[2].engine.register(register_text(STEP))
    fill(stream, 1, 2)
    nodes[0].engine.settle(SETTLE_S)
    return stream


def test_all_nodes_agree_on_the_text_and_a_query_is_altered_from_each() -> None:
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        engines = [node.engine for node in nodes]
        stream = engines[0].stream(A, batch_ms=100)
        query = engines[1].register(register_text(STEP))
        fill(stream, 1, 2)
        engines[0].settle(SETTLE_S)
        (distant,) = engines[0].queries()
        distant.replace(register_text(WIDE))
        assert {one.source.text for engine in engines for one in engine.queries()} == {register_text(WIDE)}
        assert {read_registration(n.host.node.control.queries["q"].payload, "q").source.text for n in nodes} == {
            register_text(WIDE)
        }
        fill(stream, 3, 4)
        engines[2].settle(SETTLE_S)
        (other,) = engines[2].queries()
        other.pause()
        assert query.is_paused
        fill(stream, 5, 6)
        engines[0].settle(SETTLE_S)
        distant.replace(register_text(STEP))
        assert query.is_paused, "another text does not let it go on"
        distant.resume()
        fill(stream, 7, 8)
        engines[0].settle(SETTLE_S)
        assert windows(query) == {
            100: ["s1"],
            200: ["s2"],
            300: ["s2", "s3"],
            400: ["s3", "s4"],
            700: ["s7"],
            800: ["s8"],
        }
        with pytest.raises(wukongs.StreamError, match="give the text the same name"):
            distant.replace(register_text(STEP, name="other"))
        with pytest.raises(wukongs.StreamError, match=B):
            distant.replace(register_text(STEP, stream=B))
        query.close()
        # The log hears of it a moment later: until then another node may alter it.
        nodes[0].host.wait_until(lambda node: "q" not in node.control.queries, SETTLE_S, "the end of the query")
        with pytest.raises(wukongs.StreamError, match="query q is closed: register the text anew"):
            distant.replace(register_text(STEP))


def test_a_change_counts_after_what_was_closed_at_another_node() -> None:
    """A stream comes by one node, the query runs at a second one, and a third one pauses it: nobody settles."""
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        stream = nodes[0].engine.stream(A, batch_ms=100)
        query = nodes[2].engine.register(register_text(STEP))
        (distant,) = nodes[1].engine.queries()
        expected = []
        for number in range(1, 121, 6):
            fill(stream, number, number + 2)
            expected += [number * 100, (number + 1) * 100, (number + 2) * 100]
            distant.pause()
            fill(stream, number + 3, number + 5)
            distant.resume()
        nodes[0].engine.settle(SETTLE_S)
        assert [*windows(query)] == expected


@pytest.mark.slow
def test_changes_from_all_nodes_at_once_all_count_and_no_window_is_lost() -> None:
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        stream = nodes[0].engine.stream(A, batch_ms=100)
        query = nodes[2].engine.register(register_text(STEP))
        texts = [register_text(f"RANGE {width}00ms STEP 100ms") for width in (1, 2, 3)]
        failed: list[BaseException] = []

        def alter(node: int) -> None:
            try:
                (own,) = nodes[node].engine.queries()
                for _ in range(5):
                    own.replace(texts[node])
                    own.resume()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=alter, args=(node,)) for node in range(3)]
        for thread in threads:
            thread.start()
        for number in range(1, 61):
            fill(stream, number, number)
        for thread in threads:
            thread.join(SETTLE_S)
        assert not failed
        assert nodes[0].host.node.control.queries["q"].changes <= 30, "equal ones at the same time are one"
        nodes[0].engine.settle(SETTLE_S)
        found = {window.end_ms: names(window) for window in query.results(timeout_s=0.2)}
        assert list(found) == list(range(100, 6001, 100))
        for end_ms, subjects in found.items():
            number = end_ms // 100
            whole = [sorted(f"s{one}" for one in range(max(1, number - width), number + 1)) for width in (0, 1, 2)]
            assert subjects in whole


def test_another_text_may_read_other_streams() -> None:
    with cluster(3, 1, silence_pulses_max=PATIENT) as nodes:
        first, second = (nodes[0].engine.stream(name, batch_ms=100) for name in (A, B))
        query = nodes[2].engine.register(register_text(STEP))
        for stream in (first, second):
            fill(stream, 1, 3)
        nodes[0].engine.settle(SETTLE_S)
        (distant,) = nodes[1].engine.queries()
        distant.replace(register_text("RANGE 300ms STEP 100ms", stream=B))
        records = nodes[2].store.records
        assert [records.streams[name].is_home for name in (A, B)] == [False, True]
        nodes[1].engine.drop_stream(A)
        with pytest.raises(wukongs.StreamError, match="is read by q"):
            nodes[1].engine.drop_stream(B)
        fill(second, 4, 4)
        nodes[0].engine.settle(SETTLE_S)
        assert windows(query) == {100: ["s1"], 200: ["s2"], 300: ["s3"], 400: ["s2", "s3", "s4"]}


def test_a_query_that_moves_keeps_its_other_text_and_its_pause() -> None:
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        stream = nodes[0].engine.stream(A, batch_ms=100)
        first = nodes[0].engine.register(register_text(STEP))
        fill(stream, 1, 2)
        nodes[0].engine.settle(SETTLE_S)
        first.replace(register_text(WIDE))
        first.pause()
        nodes[2].host.carry_out(ev.Submitted(MoveQuery("q", (2,))), SETTLE_S)
        second = nodes[2].store.query("q")
        assert second is not None
        assert (second.is_paused, second.source.text) == (True, register_text(WIDE))
        fill(stream, 3, 4)
        nodes[0].engine.settle(SETTLE_S)
        second.resume()
        fill(stream, 5, 6)
        nodes[0].engine.settle(SETTLE_S)
        assert windows(first) == {100: ["s1"], 200: ["s2"]}
        assert windows(second) == {500: ["s4", "s5"], 600: ["s5", "s6"]}


@pytest.mark.slow
@pytest.mark.parametrize("comes_back", first_and_slow([False, True]))
def test_a_query_is_altered_while_its_node_is_away(comes_back: bool) -> None:
    with cluster(3, 2) as nodes:
        stream = begun(nodes)
        nodes[2].close()
        nodes[0].host.wait_until(lambda node: node.control.members[2].role.value == "out", READY_S, "it is out")
        (distant,) = nodes[1].engine.queries()
        distant.replace(register_text(WIDE))
        if comes_back:
            start_again(nodes, 2, replica_count=2)
            query = taken_over(nodes)
        else:
            query = nodes[0].engine.register(register_text(WIDE))
        assert query.source.text == register_text(WIDE)
        fill(stream, 3, 5)
        nodes[0].engine.settle(SETTLE_S)
        lost: list[tuple[int, int]] = []
        try:
            found = windows(query)
        except wukongs.GapError as gap:
            lost.append((gap.from_ms, gap.to_ms))
            found = windows(query)
        before = {end_ms: found.pop(end_ms) for end_ms in (100, 200) if end_ms in found}
        assert found == {300: ["s2", "s3"], 400: ["s3", "s4"], 500: ["s4", "s5"]}
        # Nobody has read these: they are fired again if another node has taken the query over before it was altered.
        # Else their text is gone, and they are a gap if their home has said that nobody has read them.
        assert (before, lost) in (({}, []), ({}, [(100, 200)]), ({100: ["s1"], 200: ["s2"]}, []))


def test_a_client_of_another_node_alters_a_query_and_its_readers_go_on() -> None:
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes, client_of(nodes[2]) as home, client_of(nodes[0]) as client:
        stream = home.stream(A, batch_ms=100)
        query = home.register(register_text(STEP))
        reader = query.results(timeout_s=30)
        fill(stream, 1, 2)
        assert [names(next(reader)) for _ in range(2)] == [["s1"], ["s2"]]
        (distant,) = client.queries()
        distant.replace(register_text(WIDE))
        fill(stream, 3, 3)
        assert names(next(reader)) == ["s2", "s3"]
        distant.pause()
        fill(stream, 4, 4)
        client.settle(timeout_s=SETTLE_S)
        distant.resume()
        fill(stream, 5, 5)
        window = next(reader)
        assert (window.end_ms, names(window)) == (500, ["s4", "s5"])
        assert [one.source.text for one in nodes[1].engine.queries()] == [register_text(WIDE)]


@pytest.mark.slow
def test_a_change_is_in_the_log_when_the_node_of_the_query_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node has the record, and is killed before it has carried it out."""
    with cluster(3, 2) as nodes:
        stream = begun(nodes)
        monkeypatch.setattr(nodes[2].store.exposure, "go_on", lambda core: False)
        (distant,) = nodes[0].engine.queries()
        distant.replace(register_text(WIDE))
        old = nodes[2].store.query("q")
        assert old is not None
        assert old.source.text == register_text(STEP)
        nodes[2].close()
        start_again(nodes, 2, replica_count=2)
        query = taken_over(nodes)
        assert query.source.text == register_text(WIDE)
        fill(stream, 3, 4)
        nodes[0].engine.settle(SETTLE_S)
        with pytest.raises(wukongs.GapError, match="from 100 to 200 ms"):  # of the old text, which the log has no more
            windows(query)
        assert windows(query) == {300: ["s2", "s3"], 400: ["s3", "s4"]}


@pytest.mark.parametrize("ends", [False, True])
def test_slices_that_wait_go_with_the_query_that_needed_them(ends: bool) -> None:
    """B holds the ticks back, so slices of A have come and wait when the query leaves A, or ends."""
    with cluster(1, 1, silence_pulses_max=PATIENT) as nodes:
        engine = nodes[0].engine
        ahead, behind = (engine.stream(name, batch_ms=100) for name in (A, B))
        text = f"REGISTER QUERY q AS SELECT ?s FROM <urn:g> FROM STREAM <{A}> [{WIDE}] {{ ?s ?p ?o }}"
        query = engine.register(text)
        fill(behind, 1, 1)
        fill(ahead, 1, 9)
        state = nodes[0].store.core.streams[A]
        nodes[0].host.wait_until(lambda _: bool(state.whole), READY_S, "slices that wait")
        if ends:
            query.close()
        else:
            query.replace(register_text(STEP, stream=B))
        nodes[0].host.wait_until(lambda _: not nodes[0].store.records.streams[A].is_home, READY_S, "it is left")
        fill(behind, 2, 9)
        engine.settle(SETTLE_S)
        assert len(engine.query("SELECT * { ?s ?p ?o }")) == 9
