"""Random arrivals, silences, clocks that are set and restarts at a stream with idle_advance = "wall", against a plain
list. All windows are read at the end: what a replay fires is what would have been fired without an end."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

import wukongs
from tests.engine_helpers import EX, A, node, rows
from tests.fuzz import fuzzed
from tests.inside import ManualClock, core_of
from tests.oracles.lateness import Arrivals, WallArrivals

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
BATCH_MS, RANGE_MS, STEP_MS = 10 * MINUTE_MS, HOUR_MS, 20 * MINUTE_MS
IDLE_MS = 30 * MINUTE_MS
T0 = 1_790_000_000_000 // HOUR_MS * HOUR_MS
TEXT = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE 1h STEP 20m] WHERE {{ ?s ?p ?o }}"
gaps_ms = st.integers(-90, 30).map(lambda minutes: minutes * MINUTE_MS + minutes)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.lists(gaps_ms, min_size=1, max_size=6)),
        st.tuples(st.just("advance"), gaps_ms),
        *[st.tuples(st.just("pass_ms"), st.integers(1, 60).map(lambda minutes: minutes * MINUTE_MS))] * 3,
        st.tuples(st.just("set_wall"), st.sampled_from([-30 * HOUR_MS, -HOUR_MS, HOUR_MS, 30 * HOUR_MS])),
        st.tuples(st.just("settle"), st.just(0)),
        st.tuples(st.just("checkpoint"), st.just(0)),
        st.tuples(st.just("crash"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    min_size=3,
    max_size=25,
)


@dataclass
class Life:
    """A durable engine over several processes, and the plain list of what it was told. begins: with what the stream
    begins: an advance, or nothing but its silence."""

    folder: Path
    lateness_ms: int
    begins: str
    settings: wukongs.Settings
    lives: int = 0
    count: int = 0

    def __post_init__(self) -> None:
        self.model = WallArrivals(Arrivals(self.lateness_ms), BATCH_MS, IDLE_MS, T0)
        self._open()
        if self.begins == "advance":
            self.stream.advance(T0)
            self.model.advance(T0)
        else:
            self.pass_ms(HOUR_MS)
        self.first_ms = self.model.arrivals.closed_ms

    def _open(self) -> None:
        self.engine = wukongs.Engine(self.folder / str(self.lives), settings=self.settings)
        self.clock = ManualClock(self.engine)
        self.clock.set_wall(self.model.wall_ms)
        self.stream = self.engine.stream(
            A,
            timing=True,
            batch_ms=BATCH_MS,
            lateness_ms=self.lateness_ms,
            on_late="count",
            idle_timeout_ms=IDLE_MS,
            idle_advance="wall",
        )
        self.query = self.engine.register(TEXT)
        self.model.open()

    def push(self, gaps_ms: list[int]) -> None:
        tuples: list[tuple[Any, ...]] = []
        for gap_ms in gaps_ms:
            self.count += 1
            tuples.append((node(f"n{self.count}"), node("p"), node("o"), self.model.wall_ms + gap_ms))
        late_before = len(self.model.arrivals.late)
        self.model.push(tuples)
        assert self.stream.push(tuples) == len(tuples) - (len(self.model.arrivals.late) - late_before)

    def advance(self, gap_ms: int) -> None:
        self.stream.advance(self.model.wall_ms + gap_ms)
        self.model.advance(self.model.wall_ms + gap_ms)

    def pass_ms(self, ms: int) -> None:
        self.clock.pass_s(ms / 1000)
        self.model.pass_ms(ms)
        found, closed_ms = self.engine.stats()["streams"][A], self.model.arrivals.closed_ms
        stands = [ms for ms in (closed_ms, self._newest_ms()) if ms is not None]
        assert found["closed_ms"] == (max(stands) // BATCH_MS * BATCH_MS if stands else None)
        is_held = found["is_idle"] and self.model.is_of_another_day
        assert (found["idle_hold"] is not None) == is_held

    def _newest_ms(self) -> int | None:
        newest_ms = self.model.arrivals.newest_ms
        return None if newest_ms is None else newest_ms - self.lateness_ms - 1

    def set_wall(self, by_ms: int) -> None:
        self.model.wall_ms += by_ms
        self.clock.set_wall(self.model.wall_ms)
        self.pass_ms(0)

    def settle(self, _: int) -> None:
        self.engine.settle(timeout_s=60)

    def checkpoint(self, _: int) -> None:
        self.engine.checkpoint()

    def crash(self, _: int) -> None:
        copy = self.folder / str(self.lives + 1)
        with core_of(self.engine).journal._turn:  # no checkpoint meanwhile: a copy takes time, a crash does not
            shutil.copytree(self.folder / str(self.lives), copy)
        self.engine.close()
        self.lives += 1
        self._open()

    def restart(self, _: int) -> None:
        self.engine.close()
        self._open()

    def end(self) -> None:
        arrivals = self.model.arrivals
        assert self.first_ms is not None
        last_ms = max(ms for ms in (arrivals.closed_ms, arrivals.newest_ms, T0) if ms is not None)
        end_ms = (last_ms // HOUR_MS + 2) * HOUR_MS
        self.stream.advance(end_ms)
        self.engine.settle(timeout_s=60)
        found = {window.end_ms: rows(window) for window in self.query.results(timeout_s=0)}
        first_ms = -(-self.first_ms // STEP_MS) * STEP_MS
        assert list(found) == list(range(first_ms, end_ms + 1, STEP_MS))
        for at_ms, window in found.items():
            expected = arrivals.window(at_ms - RANGE_MS, at_ms)
            assert window == sorted((str(one[0]).strip("<>").removeprefix(EX),) for one in expected), at_ms - T0
        stats = self.engine.stats()["streams"][A]
        assert (stats["tuples"], stats["late"]) == (len(arrivals.on_time), len(arrivals.late))


@fuzzed(40)
@given(steps, st.sampled_from([0, 1, MINUTE_MS, 25 * MINUTE_MS]), st.sampled_from(["advance", "silence"]))
def test_windows_are_those_of_a_plain_list(drawn: list[tuple[str, Any]], lateness_ms: int, begins: str) -> None:
    folder = Path(tempfile.mkdtemp())
    settings = wukongs.Settings(log_segment_bytes=1 << 12, checkpoint_bytes=1 << 14, sync_interval_ms=1000)
    life = Life(folder, lateness_ms, begins, settings)
    try:
        for name, argument in [*drawn, ("crash", 0)]:
            getattr(life, name)(argument)
        life.end()
    finally:
        life.engine.close()
        shutil.rmtree(folder)
