"""Restarts with streams whose stream batches have different lengths."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest

import wukongs
from tests.inside import core_of

EX = "http://ex/"


def test_a_checkpoint_in_the_middle_of_a_longer_stream_batch_loses_none_of_it(tmp_path: Path) -> None:
    """The oldest firing that nobody has read holds the checkpoint at 100 ms: the tuple at 1 ms of the stream whose
    stream batch ends at 200 ms is not in it, and has to come from the log."""
    query = f"REGISTER QUERY q AS SELECT * FROM STREAM <{EX}a> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
    with wukongs.Engine(tmp_path) as engine:
        short = engine.stream(EX + "a", batch_ms=100, history_ms=400)
        long = engine.stream(EX + "b", batch_ms=200, history_ms=400)
        for stream in (short, long):
            stream.advance(0)
        engine.register(query)
        long.push([(f"<{EX}s>", f"<{EX}p>", f"<{EX}o>", 1)])
        for stream in (short, long):
            stream.advance(600)
        engine.settle(60)
        assert engine.query("ASK { ?s ?p ?o }").boolean
    with wukongs.Engine(tmp_path) as engine:
        engine.settle(60)
        assert engine.query("ASK { ?s ?p ?o }").boolean


def test_streams_begin_in_the_order_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first tuple of one stream is logged behind the first advance of the other, and both become safe together."""
    with wukongs.Engine(tmp_path / "one") as engine:
        first, second = (engine.stream(EX + name, batch_ms=100) for name in "ab")
        journal = core_of(engine).journal
        with monkeypatch.context() as patched:
            patched.setattr(journal, "wait", lambda lsn=None: None)
            first.advance(100)
            second.push([(f"<{EX}s>", f"<{EX}p>", f"<{EX}o>", 1)])
            second.advance(100)
        journal.wait()
        engine.settle(60)
        before = engine.stats()
        assert before["stored_triples"] == 1
        copytree(tmp_path / "one", tmp_path / "two")
    with wukongs.Engine(tmp_path / "two") as engine:
        engine.settle(60)
        after = engine.stats()
    assert [(found["sn"], found["stored_triples"]) for found in (before, after)] == [(before["sn"], 1)] * 2
    assert after["durability"]["lsn"] - before["durability"]["lsn"] == 1, "the head of a segment, and no join"
