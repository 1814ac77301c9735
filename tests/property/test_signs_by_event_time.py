"""Signs by event time in a data folder: restarts, crashes and checkpoints, against an engine that never ends."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import wukongs
from tests.engine_helpers import EX, A, B, subjects
from tests.fuzz import first_and_slow
from tests.inside import core_of
from tests.scenarios.test_signs_by_event_time import OPTIONS, push


@pytest.mark.parametrize("seed", first_and_slow(range(12)))
def test_restarts_crashes_and_checkpoints_change_nothing(seed: int, tmp_path: Path) -> None:
    rng, lives = random.Random(seed), 0
    settings = wukongs.Settings(log_segment_bytes=1 << 11, checkpoint_bytes=1 << 13, sync_interval_ms=1000)
    options = {**OPTIONS, "lateness_ms": rng.choice([0, 150]), "history_ms": rng.choice([200, 500, 60_000])}
    twin = wukongs.Engine(settings=settings)
    engine = wukongs.Engine(tmp_path / "0", settings=settings)
    both = [[one.stream(name, **options) for name in (A, B)] for one in (engine, twin)]
    now_ms = 1000
    for _ in range(60):
        what = rng.choice(["push"] * 6 + ["advance"] * 3 + ["update", "checkpoint", "restart", "crash"])
        if what == "push":
            place, now_ms = rng.randrange(2), now_ms + rng.choice([0, 30, 100])
            tuples = [
                (f"s{rng.randint(0, 8)}", now_ms - rng.choice([0, 0, 60, 200, 700]), rng.choice("+-"))
                for _ in range(rng.randint(1, 6))
            ]
            for streams in both:
                push(streams[place], *tuples)
        elif what == "advance":
            for streams in both:
                for stream in streams:
                    stream.advance(now_ms)
            for one in (engine, twin):
                one.settle(timeout_s=60)
        elif what == "update":
            text = rng.choice(["INSERT", "DELETE"]) + f" DATA {{ <{EX}s{rng.randint(0, 8)}> <{EX}p> <{EX}o> }}"
            for one in (engine, twin):
                one.settle(timeout_s=60)
                one.update(text)
        elif what == "checkpoint":
            engine.checkpoint()
        else:
            if what == "crash":
                with core_of(engine).journal._turn:
                    shutil.copytree(tmp_path / str(lives), tmp_path / str(lives + 1))
                engine.close()
                lives += 1
            else:
                engine.close()
            engine = wukongs.Engine(tmp_path / str(lives), settings=settings)
            both[0] = [engine.stream(name, **options) for name in (A, B)]
    for one, streams in zip((engine, twin), both, strict=True):
        for stream in streams:
            stream.close()
        one.settle(timeout_s=60)
    assert subjects(engine) == subjects(twin)
    for name in (A, B):
        counts = [one.stats()["streams"][name] for one in (engine, twin)]
        assert [counts[0][key] for key in ("late", "dropped")] == [counts[1][key] for key in ("late", "dropped")]
    engine.close()
    twin.close()
