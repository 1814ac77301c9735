"""stats(), streams() and queries(): what an engine says of itself. A cluster's counts are the cluster's."""

from __future__ import annotations

import io
import itertools

import pytest

import wukongs
from tests.engine_helpers import A, B, at, node, register_text, windows


def test_stored_triples_are_those_of_the_whole_graph(engine: wukongs.Engine) -> None:
    lines = [f"{node(f's{number}')} {node('p')} {node(f'o{number}')} .\n" for number in range(300)]
    engine.load(io.BytesIO("".join(lines).encode()), format="nt")
    assert engine.stats()["stored_triples"] == 300
    engine.update(f"DELETE DATA {{ {lines[0]} }}")
    assert engine.stats()["stored_triples"] == 299
    assert engine.stats()["sn"] == 2


def test_a_stream_counts_its_tuples(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100, timing=True)
    stream.push([at(f"s{number}", number + 1) for number in range(90)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    told = engine.stats()["streams"]
    assert list(told) == [A]
    assert (told[A]["tuples"], told[A]["closed_ms"]) == (90, 100)


def test_streams_and_queries_are_listed_until_they_are_gone(engine: wukongs.Engine) -> None:
    one, _ = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms", "first"))
    engine.register(register_text("RANGE 100ms STEP 100ms", "second", stream=B))
    assert sorted(engine.streams()) == [A, B]
    assert sorted(each.name for each in engine.queries()) == ["first", "second"]
    one.push([at("a", 50)])
    one.advance(200)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a"], 200: []}
    told = engine.stats()["queries"]["first"]
    assert (told["windows"], told["errors"]) == (2, 0)
    query.close()
    engine.settle(timeout_s=60)
    assert [each.name for each in engine.queries()] == ["second"]
    engine.drop_stream(A)
    engine.settle(timeout_s=60)
    assert engine.streams() == [B]
    assert list(engine.stats()["queries"]) == ["second"]


def test_updates_are_counted_by_what_they_did(engine: wukongs.Engine) -> None:
    engine.update(f"INSERT DATA {{ {node('a')} {node('p')} 1, 2 }}")
    engine.update(f"INSERT DATA {{ {node('a')} {node('p')} 2, 3 }} ; CLEAR DEFAULT")
    with pytest.raises(wukongs.UpdateError):
        engine.update(f"DROP GRAPH {node('none')}")
    assert engine.stats()["updates"] == {"requests": 2, "operations": 3, "deleted": 2, "inserted": 2}


def test_malformed_lines_are_counted(engine: wukongs.Engine) -> None:
    for _ in range(2):
        engine.load(io.BytesIO(b"no triple\n"), format="nt", on_malformed=lambda file, line: None)
    assert engine.stats()["malformed_lines"] == 2


def test_who_holds_time_back_is_named(engine: wukongs.Engine) -> None:
    one, two = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
    query = engine.register(
        register_text("RANGE 100ms STEP 100ms").replace("FROM STREAM", "FROM <urn:x-wukongs:default> FROM STREAM")
    )
    for stream, time_ms in itertools.product((one, two), (0, 100)):
        stream.advance(time_ms)
    one.push([at("a", 150)])
    one.advance(500)
    engine.settle(timeout_s=60)
    assert list(engine.stats()["held_back_by"]) == [B]
    assert B in query.why()
    two.advance(500)
    engine.settle(timeout_s=60)
    assert engine.stats()["held_back_by"] == {}
