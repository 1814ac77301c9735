"""Merges that updates owe: a thread does them beside the next update."""

from __future__ import annotations

import gc
import io
import threading
import time
import weakref

import pyarrow as pa
import pytest

import wukongs
from tests.inside import core_of
from wukongs.store import merge as merge_module
from wukongs.store import trace as trace_module


def table(numbers: range) -> pa.Table:
    subjects = [f"<http://e/{number}>" for number in numbers]
    return pa.table({"subject": subjects, "predicate": ["<http://p>"] * len(numbers), "object": subjects})


def test_batches_that_were_merged_are_let_go_of_though_no_query_comes() -> None:
    with wukongs.Engine() as engine:
        engine.apply(inserts=table(range(2_000)))
        assert len(engine.prepare("SELECT ?o { ?s ?p ?o }")(s="<http://e/5>")) == 1
        first = weakref.ref(core_of(engine).arrangement.trace.entries()[0].batch)
        for start in range(2_000, 8_000, 1_000):
            engine.apply(inserts=table(range(start, start + 1_000)))
        deadline_s = time.monotonic() + 60
        while first() is not None:
            assert time.monotonic() < deadline_s, engine.stats()
            time.sleep(0.05)
            gc.collect()


def test_a_merge_that_fails_is_no_error_of_an_update_and_is_done_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trace_module, "FUEL_MIN", 1 << 15)
    with wukongs.Engine() as engine:

        def fail(*_: object) -> int:
            raise MemoryError("no room")

        with monkeypatch.context() as failing:
            failing.setattr(merge_module, "merge_side", fail)
            for first in range(0, 400, 10):
                engine.apply(inserts=table(range(first, first + 10)), deletes=table(range(first - 5, first)))
            assert len(engine.query("SELECT * { ?s ?p ?o }").arrow()) == 205
            assert engine.stats()["stored_batches"] > 10  # here: in quiet time they are merged without an update
        assert "merging stored batches has failed; the next update begins it anew" in caplog.text
        assert "MemoryError: no room" in caplog.text
        engine.apply(inserts=table(range(1000, 1010)))
        deadline_s = time.monotonic() + 60
        while engine.stats()["stored_batches"] > 1:
            assert time.monotonic() < deadline_s, engine.stats()
            time.sleep(0.05)
        assert len(engine.query("SELECT * { ?s ?p ?o }").arrow()) == 215


@pytest.mark.parametrize("is_load", [False, True])
def test_without_a_thread_the_next_update_merges(
    is_load: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        if thread.name == "wukongs-merger":
            raise RuntimeError("can't start new thread")
        start(thread)

    with wukongs.Engine() as engine:
        with monkeypatch.context() as failing:
            failing.setattr(threading.Thread, "start", fail)
            for first in range(0, 80_000, 4_000):
                numbers = range(first, first + 4_000)
                if is_load:
                    lines = "".join(f"<http://e/{number}> <http://p> <http://e/{number}> .\n" for number in numbers)
                    engine.load(io.BytesIO(lines.encode()), format="nt")
                else:
                    engine.apply(inserts=table(numbers))
                assert engine.stats()["stored_batches"] <= 8
        assert "no thread to merge stored batches, the next update does it: can't start new thread" in caplog.text
        engine.apply(inserts=table(range(1)))
        deadline_s = time.monotonic() + 60
        while engine.stats()["stored_batches"] > 1:
            assert time.monotonic() < deadline_s, engine.stats()
            time.sleep(0.05)
