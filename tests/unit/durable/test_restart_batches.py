"""Restarts with streams whose stream batches have different lengths."""

from __future__ import annotations

from pathlib import Path

import wukongs

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
