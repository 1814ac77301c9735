"""Engine.load: built beside the engine, joined to the stored graph at one snapshot number."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wukongs
from tests.engine_helpers import A, at, node
from tests.fuzz import fuzzed
from wukongs.errors import DataError
from wukongs.live import bulk_load
from wukongs.store.bulk import BulkPlan, FilePart


def lines(numbers: list[int]) -> io.BytesIO:
    return io.BytesIO("".join(f"{node(f's{n}')} {node('p')} {node('o')} .\n" for n in numbers).encode())


@pytest.fixture(autouse=True)
def tiny_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BulkPlan, "of", staticmethod(lambda bytes_max, workers=0: BulkPlan(2, 64, 3)))


def subjects(engine: wukongs.Engine) -> list[str]:
    return sorted(str(row[0]).removeprefix("http://ex/s") for row in engine.query("SELECT ?s WHERE { ?s ?p ?o }"))


@given(st.lists(st.tuples(st.sampled_from(["load", "push"]), st.lists(st.integers(0, 15), max_size=12)), max_size=8))
@fuzzed(25)
def test_loads_and_streams_make_one_set(writes: list[tuple[str, list[int]]]) -> None:
    with wukongs.Engine() as engine:
        stream, expected = engine.stream(A), set[int]()
        for t, (how, numbers) in enumerate(writes):
            if how == "load":
                engine.load(lines(numbers), format="nt")
            else:
                stream.push([at(f"s{n}", 100 * t + 1) for n in numbers])
                stream.advance(100 * t + 100)
                engine.settle()
            expected |= set(numbers)
        assert subjects(engine) == sorted(map(str, expected))
        assert engine.stats()["stored_triples"] == len(expected)


def test_what_comes_while_a_load_is_built_is_not_stored_twice(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.load(lines([1]), format="nt")
    stream, read = engine.stream(A), bulk_load.read_runs

    def read_slowly(*arguments: Any, **options: Any) -> Iterator[FilePart]:
        for number, run in enumerate(read(*arguments, **options)):
            yield run
            if number < 2:
                stream.push([at(f"s{n}", 100 * number + 50) for n in (2, 3 + number, 9)])
                stream.advance(100 * number + 100)
                engine.settle(timeout_s=300)

    monkeypatch.setattr(bulk_load, "read_runs", read_slowly)
    engine.load(lines([1, 2, 3, 4, 5, 6, 7, 8]), format="nt")
    assert subjects(engine) == list("123456789")
    assert engine.stats()["stored_triples"] == 9


def test_a_load_that_fails_adds_nothing_and_holds_nothing(engine: wukongs.Engine, tmp_path: Path) -> None:
    path = tmp_path / "x.nt"
    path.write_bytes(lines(list(range(40))).getvalue() + b"oops\n")
    before = engine.load(lines([1]), format="nt")
    with pytest.raises(DataError, match=r"x\.nt, line 41, "):
        engine.load(path, strict=True)
    assert subjects(engine) == ["1"]
    assert engine.stats()["handles"] == []
    assert engine.stats()["sn"] == before
    assert engine.load(path, on_malformed=lambda file, line: None) == before + 1
    assert len(subjects(engine)) == 40


def test_an_empty_file_is_no_new_snapshot(engine: wukongs.Engine) -> None:
    before = engine.load(lines([1]), format="nt")
    assert engine.load(lines([]), format="nt") == before


def test_an_empty_file_sees_what_was_closed_before(engine: wukongs.Engine) -> None:
    """Its SN does not hang on how far the engine's thread has come, which waits for the lock here."""
    stream = engine.stream(A)
    with engine._core.lock:
        stream.push([at("s1", 50)])
        stream.advance(100)
        before = engine.stats()["sn"]
        sn = engine.load(lines([]), format="nt")
        assert before < sn == engine.stats()["sn"] == engine.load(lines([2]), format="nt") - 1


def test_a_load_pays_for_its_merges_in_steps(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.live.core.STEP_ROWS", 1)
    for start in range(0, 60, 10):
        engine.load(lines(list(range(start, start + 10))), format="nt")
    assert engine.stats()["stored_batches"] < 6
    assert len(subjects(engine)) == 60


def test_loads_from_several_threads_are_all_there(engine: wukongs.Engine) -> None:
    threads = [
        threading.Thread(target=engine.load, args=(lines(list(range(n, n + 30))),), kwargs={"format": "nt"})
        for n in (0, 10, 20, 30)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert engine.stats()["stored_triples"] == len(subjects(engine)) == 60
