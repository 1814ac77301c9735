"""Errors of users and files: each is refused by name, saying what, where and what next, and changes nothing."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, B, at, names, node, register_text, windows
from tests.faces import Face


def count(engine: wukongs.Engine) -> int:
    return len(list(engine.query("SELECT * { ?s ?p ?o }")))


# streams


def test_a_decreasing_timestamp_is_refused_and_nothing_of_the_call_is_applied(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 1s STEP 1s"))
    stream.push([at("before", 500)])
    with pytest.raises(wukongs.StreamError) as caught:
        stream.push([at("one", 600), at("two", 700), at("three", 650)])
    assert "streamA" in str(caught.value)
    assert "650" in str(caught.value)
    stream.push([at("after", 510)])  # 600 and 700 have not happened
    stream.advance(1000)
    engine.settle(timeout_s=60)
    assert windows(query) == {1000: ["after", "before"]}
    assert names(engine.query("SELECT ?s { ?s ?p ?o }")) == ["after", "before"]


def test_a_push_behind_the_last_push_is_refused(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    stream.push([at("a", 500)])
    with pytest.raises(wukongs.StreamError, match="499"):
        stream.push([at("b", 499)])
    stream.push([at("c", 500)])  # the same time again is no step back


def test_a_push_behind_an_advance_is_refused(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    stream.advance(1000)
    with pytest.raises(wukongs.StreamError, match="950"):
        stream.push([at("a", 950)])
    stream.push([at("b", 1001)])


def test_a_malformed_term_is_refused_and_nothing_of_the_call_is_applied(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    with pytest.raises(wukongs.WukongsError):
        stream.push([at("a", 50), ("no term", node("p"), node("o"), 60)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    assert count(engine) == 0


def test_a_literal_is_no_subject_of_a_pushed_tuple(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    with pytest.raises(wukongs.WukongsError):
        stream.push([('"literal"', node("p"), node("o"), 60)])
    with pytest.raises(wukongs.WukongsError):
        stream.push([(node("s"), "_:blank", node("o"), 60)])


def test_a_stream_is_not_declared_again_with_other_settings(engine: wukongs.Engine) -> None:
    engine.stream(A, batch_ms=100)
    with pytest.raises(wukongs.WukongsError, match="streamA"):
        engine.stream(A, batch_ms=200)


def test_an_unknown_stream_is_named(engine: wukongs.Engine) -> None:
    engine.stream(A, batch_ms=100)
    with pytest.raises(wukongs.StreamError) as caught:
        engine.register(register_text("RANGE 100ms STEP 100ms", stream=B))
    assert "streamB" in str(caught.value)
    assert list(engine.queries()) == []


def test_an_unknown_stream_cannot_be_dropped(engine: wukongs.Engine) -> None:
    with pytest.raises(wukongs.StreamError, match="streamB"):
        engine.drop_stream(B)


@pytest.mark.parametrize(
    ("window", "wrong"),
    [("RANGE 250ms STEP 100ms", "250"), ("RANGE 200ms STEP 150ms", "150"), ("RANGE 50ms STEP 50ms", "50")],
)
def test_a_window_that_is_no_multiple_of_the_stream_batch_is_refused(
    engine: wukongs.Engine, window: str, wrong: str
) -> None:
    engine.stream(A, batch_ms=100)
    with pytest.raises(wukongs.StreamError) as caught:
        engine.register(register_text(window))
    text = str(caught.value)
    assert wrong in text  # what
    assert "streamA" in text  # where
    assert "batch_ms" in text  # what next
    assert "100" in text
    assert list(engine.queries()) == []


def test_two_queries_cannot_have_one_name(engine: wukongs.Engine) -> None:
    engine.stream(A, batch_ms=100)
    engine.register(register_text("RANGE 100ms STEP 100ms", name="same"))
    with pytest.raises(wukongs.WukongsError, match="same"):
        engine.register(register_text("RANGE 200ms STEP 100ms", name="same"))


def test_a_closed_stream_takes_no_tuple(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    stream.close()
    with pytest.raises(wukongs.StreamError, match="streamA"):
        stream.push([at("a", 50)])


def test_a_dropped_stream_takes_no_tuple(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    engine.drop_stream(A)
    with pytest.raises(wukongs.StreamError, match="streamA"):
        stream.push([at("a", 50)])


@pytest.mark.parametrize("batch_ms", [0, -100])
def test_a_stream_batch_lasts_at_least_a_millisecond(engine: wukongs.Engine, batch_ms: int) -> None:
    with pytest.raises(wukongs.WukongsError, match="batch_ms"):
        engine.stream(A, batch_ms=batch_ms)


def test_timing_is_a_list(engine: wukongs.Engine) -> None:
    """A text is a sequence too, of its letters: none of them would be a predicate that comes."""
    with pytest.raises(wukongs.SettingsError, match=r"timing = 'http://ex/p': expected a list of predicates' IRIs"):
        engine.stream(A, timing="http://ex/p")


@pytest.mark.parametrize("name", ["graph.rdf", "graph.JSONLD", "graph.nt.gz"])
def test_a_dump_is_not_named_as_what_it_is_not(engine: wukongs.Engine, tmp_path: Path, name: str) -> None:
    with pytest.raises(wukongs.DataError, match=r"dump writes N-Triples: expected a name such as graph\.nt"):
        engine.dump(tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_dump_that_cannot_be_written_is_named(engine: wukongs.Engine, tmp_path: Path) -> None:
    with pytest.raises(wukongs.StorageError, match=r"cannot write .*nowhere/g\.nt: No such file or directory"):
        engine.dump(tmp_path / "nowhere" / "g.nt")
    with pytest.raises(wukongs.StorageError, match="Is a directory"):
        engine.dump(tmp_path)


# arguments of another type


def test_a_text_is_a_str(engine: wukongs.Engine) -> None:
    message = "expected the text of a query or an update as a str, found (NoneType|bytes|int)"
    for call in (engine.query, engine.update, engine.register, engine.explain, wukongs.parse_query):
        for text in (None, b"ASK {}", 5):
            with pytest.raises(wukongs.QuerySyntaxError, match=message):
                call(text)  # type: ignore[operator]


def test_a_source_is_a_path_or_a_binary_file(engine: wukongs.Engine) -> None:
    with pytest.raises(wukongs.DataError, match="expected a path or a binary file object, found a value of type int"):
        engine.load(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("at", ["x", 0.5])
def test_a_snapshot_number_is_an_integer(engine: wukongs.Engine, at: object) -> None:
    with pytest.raises(wukongs.CompactedError, match=rf"at = {at!r}: expected a snapshot number from 0 to 0"):
        engine.query("ASK {}", at=at)  # type: ignore[arg-type]


# queries


def test_a_syntax_error_has_line_and_column(engine: wukongs.Engine) -> None:
    with pytest.raises(wukongs.QuerySyntaxError) as caught:
        engine.query("SELECT ?s\nWHERE { ?s ?p }")
    error = caught.value
    assert (error.line, error.column) == (2, 15)
    assert "line 2, column 15" in str(error)
    assert "expected" in str(error)
    assert "'}'" in str(error)


def test_a_syntax_error_in_a_window_has_line_and_column(engine: wukongs.Engine) -> None:
    engine.stream(A, batch_ms=100)
    with pytest.raises(wukongs.QuerySyntaxError) as caught:
        engine.register(f"REGISTER QUERY q AS\nSELECT ?s\nFROM STREAM <{A}>\nWHERE {{ ?s ?p ?o }}")
    assert (caught.value.line, caught.value.column) == (4, 1)
    assert "[RANGE" in str(caught.value)


def test_a_feature_that_is_not_there_is_named_with_its_place(engine: wukongs.Engine) -> None:
    engine.stream(A, batch_ms=100)
    head = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE 1s STEP 1s]"
    text = head + " {\n  SERVICE <http://ex/other> { ?s ?p ?o } }"
    with pytest.raises(wukongs.UnsupportedFeatureError) as caught:
        engine.register(text)
    assert "SERVICE" in str(caught.value)
    assert (caught.value.line, caught.value.column) == (2, 3)


def test_a_one_shot_query_has_no_windows(engine: wukongs.Engine) -> None:
    engine.stream(A, batch_ms=100)
    with pytest.raises(wukongs.WukongsError):
        engine.query(f"SELECT ?s FROM STREAM <{A}> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }}")


def test_a_query_without_a_window_is_a_live_view(engine: Any) -> None:
    assert list(engine.register("REGISTER QUERY q AS SELECT ?s WHERE { ?s ?p ?o }").content()) == []


def test_an_error_in_one_query_leaves_the_others_alone(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    with pytest.raises(wukongs.WukongsError):
        engine.register("REGISTER QUERY broken AS SELEKT")
    stream.push([at("a", 50)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a"]}


# data


def test_a_malformed_line_is_reported_and_set_aside(
    engine: wukongs.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "broken.nt"
    path.write_text("<http://ex/b> <http://ex/p> .\n<http://ex/a> <http://ex/p> <http://ex/o> .\n")
    engine.load(str(path))
    assert "broken.nt, line 1, column 29: " in caplog.text
    assert count(engine) == 1
    assert engine.stats()["malformed_lines"] == 1


@pytest.mark.faces("embedded", "connect")
def test_a_long_malformed_line_is_cut_in_the_log(engine: wukongs.Engine, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "wukongs"):
        engine.load(io.BytesIO(b'<http://e/s> <http://e/p> "' + 9999 * b"x" + b" .\n"), format="nt")
    (told,) = [record.getMessage() for record in caplog.records if "set aside" in record.getMessage()]
    assert told.endswith("x...")
    assert len(told) < 400


def test_a_malformed_line_stops_a_strict_load(engine: wukongs.Engine, tmp_path: Path) -> None:
    path = tmp_path / "broken.nt"
    path.write_text("<http://ex/a> <http://ex/p> <http://ex/o> .\n\n<http://ex/b> <http://ex/p> .\n")
    with pytest.raises(wukongs.DataError) as caught:
        engine.load(str(path), strict=True)
    assert caught.value.line == 3
    assert "broken.nt, line 3" in str(caught.value)
    assert count(engine) == 0


def test_a_malformed_turtle_file_is_named_and_nothing_is_loaded(engine: wukongs.Engine, tmp_path: Path) -> None:
    path = tmp_path / "broken.ttl"
    path.write_text("@prefix : <http://ex/> .\n:a :p :o .\n:b :p ;;; ] .\n")
    with pytest.raises(wukongs.DataError) as caught:
        engine.load(str(path))
    assert "broken.ttl" in str(caught.value)
    assert caught.value.line == 3
    assert count(engine) == 0


def test_a_file_that_is_not_there_is_named(engine: wukongs.Engine, tmp_path: Path) -> None:
    with pytest.raises((wukongs.DataError, FileNotFoundError), match=r"absent\.nt"):
        engine.load(str(tmp_path / "absent.nt"))


def test_an_unknown_format_is_named(engine: wukongs.Engine) -> None:
    with pytest.raises(wukongs.WukongsError, match="docx"):
        engine.load(io.BytesIO(b""), format="docx")


# life cycle


@pytest.mark.faces("embedded", "durable")
def test_a_closed_engine_refuses_all_work(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    engine.close()
    engine.close()  # once more is harmless
    for work in (
        lambda: engine.query("ASK { ?s ?p ?o }"),
        lambda: engine.stream(B),
        lambda: engine.load(io.BytesIO(b""), format="nt"),
        lambda: engine.register(register_text("RANGE 100ms STEP 100ms")),
        lambda: stream.push([at("a", 50)]),
    ):
        with pytest.raises(wukongs.WukongsError, match="closed"):
            work()


def test_the_engine_is_a_context_manager_that_closes(face: Face) -> None:
    with face.open() as engine:
        assert not engine.query("ASK { ?s ?p ?o }").boolean
    with pytest.raises(wukongs.WukongsError, match="closed"):
        engine.query("ASK { ?s ?p ?o }")


def test_closing_the_engine_ends_its_queries(engine: wukongs.Engine) -> None:
    engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    engine.close()
    assert list(query.results()) == []


@pytest.mark.parametrize("time_ms", [1 << 63, -(1 << 70), 1.5, "5", None, True])
def test_what_is_no_time_is_refused_by_name(engine: wukongs.Engine, time_ms: object) -> None:
    stream = engine.stream(A, batch_ms=100)
    with pytest.raises(wukongs.StreamError, match=r"at tuple 0 of the call: expected an integer of 64 bits"):
        stream.push([(node("a"), node("p"), node("o"), time_ms)])  # type: ignore[list-item]
    with pytest.raises(wukongs.StreamError, match=r"streamA: timestamp .*: expected an integer of 64 bits"):
        stream.advance(time_ms)  # type: ignore[arg-type]


def test_times_that_are_too_far_apart_to_subtract_are_compared_all_the_same(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    with pytest.raises(wukongs.StreamError, match="the timestamp falls from 9223372036854775807 to"):
        stream.push([at("a", 0), at("b", (1 << 63) - 1), at("c", -(1 << 62)), at("d", 5)])


def test_an_update_is_no_query_to_ask_or_explain(engine: wukongs.Engine) -> None:
    for ask in (engine.query, engine.explain):
        with pytest.raises(wukongs.QuerySyntaxError) as caught:
            ask("DELETE WHERE { ?s ?p ?o }")
        assert str(caught.value) == (
            "query, line 1, column 1: expected a query (SELECT, ASK ...); an update is given to Engine.update or "
            "parse_update, found 'DELETE'"
        )
