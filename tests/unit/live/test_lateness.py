"""Lateness: which tuples are late, what of a call is kept, and how late ones are handed on."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

import wukongs
from tests.engine_helpers import EX, A, B, at, node, register_text, rows, subjects, windows
from tests.fuzz import fuzzed
from tests.oracles.lateness import Arrivals
from wukongs.live.lateness import LateTuples, late_mask, sort_in
from wukongs.live.pieces import Piece, Pushed, from_frames, pushed_frames
from wukongs.store.encoder import encode_columns

OPTIONS = pytest.mark.parametrize("option", [{"lateness_ms": 100}, {"on_late": "count"}])
times_of_a_call = st.lists(st.integers(-40, 400), min_size=1, max_size=20)


def pushed(times: list[int], stands_ms: int | None = None, sn: int | None = None) -> Pushed:
    """A call of one timeless predicate p and one timing predicate q, by turns."""
    names = [node(f"s{number}") for number in range(len(times))]
    predicates = [node("pq"[number % 2]) for number in range(len(times))]
    encoded = encode_columns(names, predicates, names, times, scope=b"s")
    timing = np.arange(len(times)) % 2 == 1
    return Pushed(Piece("s", "", 0, 7, 7 + len(times), 0, 0, encoded, timing), stands_ms, sn)


@fuzzed(200)
@given(times_of_a_call, st.none() | st.integers(-40, 400), st.integers(0, 200))
def test_late_tuples_are_those_of_a_plain_list(times: list[int], stands_ms: int | None, lateness_ms: int) -> None:
    arrivals = Arrivals(lateness_ms, closed_ms=stands_ms)
    arrivals.push(enumerate(times))
    found = late_mask(np.array(times, np.int64), stands_ms, lateness_ms)
    assert np.flatnonzero(found).tolist() == [number for number, _ in arrivals.late]

    call = sort_in(pushed(times, stands_ms), lateness_ms)
    in_order = sorted(arrivals.on_time, key=lambda one: one[1])  # type: ignore[arg-type, return-value]
    assert call.piece.encoded.timestamps.tolist() == [t for _, t in in_order]
    assert call.piece.timing.tolist() == [number % 2 == 1 for number, _ in in_order]  # type: ignore[operator]
    texts = {node(f"s{number}") for number, _ in arrivals.on_time}
    assert texts <= set(call.piece.encoded.terms.texts())
    assert not arrivals.late or texts == {one for one in call.piece.encoded.terms.texts() if "/s" in one}
    timeless = [number for number, _ in arrivals.late if number % 2 == 0]  # type: ignore[operator]
    assert (0 if call.late is None else len(call.late)) == len(timeless)
    assert call.complete_ms == max([max(times) - lateness_ms - 1, *([] if stands_ms is None else [stands_ms])])


@pytest.mark.parametrize(("stands_ms", "sn"), [(None, None), (-5, 12), (60, None)])
def test_a_call_goes_through_the_log_as_it_came(stands_ms: int | None, sn: int | None) -> None:
    call = pushed([300, 50, 100], stands_ms, sn)
    found = from_frames([bytes(frame) for frame in pushed_frames(call)])
    assert isinstance(found, Pushed)
    assert (found.stands_ms, found.sn, found.piece.first_offset, found.piece.end_offset) == (stands_ms, sn, 7, 10)
    assert found.piece.encoded.timestamps.tolist() == [300, 50, 100]
    assert found.piece.timing.tolist() == [False, True, False]


def test_a_tuple_exactly_lateness_ms_behind_is_on_time() -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, lateness_ms=250)
        assert stream.push([at("newest", 500), at("behind", 250), at("late", 249)]) == 2
        stats = engine.stats()["streams"][A]
        assert (stats["tuples"], stats["late"], stats["dropped"]) == (2, 1, 0)
        assert stats["closed_ms"] == 200  # 500 - 250 - 1 closes what ends at 200


def test_a_call_that_is_late_as_a_whole_is_no_error_and_leaves_no_terms() -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(A, timing=True, batch_ms=100, on_late="count")
        stream.advance(1000)
        before = engine.stats()["terms"]
        assert stream.push([at("late", 500), at("later", 400)]) == 0
        after = engine.stats()
        assert (after["terms"], after["streams"][A]["late"], after["streams"][A]["dropped"]) == (before, 2, 2)


def test_without_either_option_a_falling_time_is_an_error_and_nothing_is_applied() -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100)
        with pytest.raises(wukongs.StreamError, match=r"falls from 500 to 499 ms.*lateness_ms or on_late"):
            stream.push([at("a", 500), at("b", 499)])
        assert engine.stats()["streams"][A]["tuples"] == 0


@OPTIONS
def test_a_time_that_no_sn_can_name_is_an_error_with_lateness_too(option: dict[str, Any]) -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, **option)
        with pytest.raises(wukongs.StreamError, match="outside of what can be named"):
            stream.push([at("a", 500), at("b", 1 << 60)])
        assert engine.stats()["streams"][A]["tuples"] == 0
        stream.close()
        with pytest.raises(wukongs.StreamError, match="is closed"):
            stream.push([at("a", 500)])


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"lateness_ms": -1}, "lateness_ms = -1: expected an integer of at least 0, in milliseconds"),
        ({"lateness_ms": 1.5}, "lateness_ms = 1.5: expected"),
        ({"lateness_ms": 1 << 63}, "lateness_ms = 9223372036854775808: expected an integer of at most"),
        (
            {"batch_ms": 1 << 50},
            "batch_ms = 1125899906842624: expected an integer of at most 274877906944, in milliseconds",
        ),
        ({"on_late": 7}, 'on_late = 7: expected a callable, the path of a file, or "count"'),
        ({"on_late": ""}, "on_late = '': expected a callable"),
        ({"on_late": "/no/such/folder/late.nq"}, "cannot write this file: No such file"),
    ],
)
def test_options_that_will_not_do(option: dict[str, Any], text: str) -> None:
    with wukongs.Engine() as engine:
        with pytest.raises(wukongs.SettingsError) as caught:
            engine.stream(A, **option)
        assert text in str(caught.value)
        assert engine.streams() == []


def test_late_timeless_tuples_join_at_an_sn_of_their_own() -> None:
    """Behind all firings up to where the streams are closed; the next firing sees them."""
    with wukongs.Engine() as engine:
        stream = engine.stream(A, timing=[EX + "ga"], batch_ms=100, into=EX + "g", on_late="count")
        query = engine.register(
            f"REGISTER QUERY q AS SELECT ?s FROM <{EX}g> FROM NAMED STREAM <{A}> [RANGE 100ms STEP 100ms] "
            "WHERE { ?s ?p ?o }"
        )
        stream.push([at("a", 50)])
        stream.advance(200)
        before = engine.stats()["sn"]
        stream.push([at("late", 150), at("gone", 150, predicate="ga")])
        assert engine.stats()["sn"] > before
        found = engine.query("SELECT ?s ?g { GRAPH ?g { ?s ?p ?o } }")
        assert rows(found) == [("a", "g"), ("late", "g")]
        stream.advance(300)
        engine.settle(timeout_s=60)
        assert windows(query) == {100: ["a"], 200: ["a"], 300: ["a", "late"]}


def test_a_graph_term_of_a_late_tuple_wins() -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, on_late="count")
        stream.advance(200)
        columns = {"subject": [node("a")], "predicate": [node("p")], "object": [node("o")], "graph": [node("own")]}
        stream.push_arrow(pa.table({**columns, "timestamp_ms": pa.array([150], pa.int64())}))
        assert rows(engine.query("SELECT ?s ?g { GRAPH ?g { ?s ?p ?o } }")) == [("a", "own")]


def test_counted_windows_are_in_order_of_time() -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(A, timing=True, batch_ms=100, lateness_ms=100)
        query = engine.register(register_text("RANGE TRIPLES 2 STEP 1"))
        stream.push([at("d", 80)])
        stream.push([at("b", 20), at("a", 10)])
        stream.push([at("c", 50)])
        stream.advance(100)
        engine.settle(timeout_s=60)
        found = [[row[0] for row in rows(window)] for window in query.results(timeout_s=0)]
        assert found == [["c", "d"]]


# --- on_late ----------------------------------------------------------------------------------------------------------


def test_a_callable_gets_a_table_that_another_stream_takes() -> None:
    with wukongs.Engine() as engine:
        other = engine.stream(B, timing=True, batch_ms=100)
        stream = engine.stream(A, timing=True, batch_ms=100, on_late=other.push_arrow)
        query = engine.register(register_text("RANGE 100ms STEP 100ms", stream=B))
        stream.push([at("a", 150), at("late", 50), at("late2", 60)])
        other.advance(100)
        stream.advance(200)
        engine.settle(timeout_s=60)
        assert windows(query) == {100: ["late", "late2"]}


def test_a_callable_may_use_the_engine() -> None:
    """It is called without the engine's lock, by the thread that pushes."""
    with wukongs.Engine() as engine:
        seen: list[list[str]] = []
        stream = engine.stream(A, batch_ms=100, on_late=lambda _: seen.append(subjects(engine)))
        stream.push([at("a", 150), at("late", 50)])
        assert seen == [["late"]]


def test_a_path_grows_by_lines_of_nquads(tmp_path: Path) -> None:
    path = tmp_path / "late.nq"
    with wukongs.Engine() as engine:
        stream = engine.stream(A, timing=True, batch_ms=100, on_late=path)
        stream.push([at("a", 150), (node("late"), node("p"), '"two\\nlines"@en', 50)])
        columns = {"subject": [node("b")], "predicate": [node("p")], "object": ["_:x"], "graph": [node("g")]}
        stream.push_arrow(pa.table({**columns, "timestamp_ms": pa.array([60], pa.int64())}))
    lines = [
        '<http://ex/late> <http://ex/p> "two\\nlines"@en . # 50 ms',
        "<http://ex/b> <http://ex/p> _:x <http://ex/g> . # 60 ms",
    ]
    assert path.read_text("utf-8").splitlines() == lines
    with wukongs.Engine() as engine:
        engine.load(path)
        assert engine.stats()["stored_triples"] == 2


def test_errors_of_on_late_are_logged_once_a_second_with_their_count(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0

    def fails(_: pa.Table) -> None:
        raise ValueError("no room")

    late = LateTuples(A, fails, lambda: now)
    columns = [node("a")], [node("p")], [node("o")], np.array([1], np.int64)
    with caplog.at_level(logging.ERROR, "wukongs"):
        for now in (0.0, 0.1, 0.9, 1.0, 1.5, 2.5):  # noqa: B007
            late.give(columns, np.array([0]))
    told = [record.getMessage() for record in caplog.records]
    assert [text.partition("(")[2].partition(" times")[0] for text in told] == ["1", "3", "2"]
    assert all(text.startswith(f"stream {A}: on_late failed") and "no room" in text for text in told)


def test_an_error_of_on_late_is_no_error_of_the_push() -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(A, timing=True, batch_ms=100, on_late=lambda table: table.no_such_method())
        assert stream.push([at("a", 150), at("late", 50)]) == 1


@pytest.mark.parametrize("lateness_ms", [2**63 - 2, 2**63 - 1])
def test_with_a_lateness_beyond_all_times_nothing_is_late(lateness_ms: int, tmp_path: Path) -> None:
    with wukongs.Engine(tmp_path / "db") as engine:
        stream = engine.stream(A, batch_ms=100, lateness_ms=lateness_ms)
        assert stream.push([at("b", 900), at("a", -1000)]) == 2
        assert stream.push([at("c", -2000)]) == 1
        shutil.copytree(tmp_path / "db", tmp_path / "copy")
    with wukongs.Engine(tmp_path / "copy") as engine:
        stream = engine.stream(A, batch_ms=100, lateness_ms=lateness_ms)
        stream.advance(1000)
        engine.settle(60)
        assert subjects(engine) == ["a", "b", "c"]
