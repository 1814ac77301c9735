"""Random arrivals at a durable stream that sorts, cut off and opened again, against a plain list of what was taken.

A crash leaves what the process had written: a copy of the folder, taken while the engine is open, opens in its place.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

import wukongs
from tests.engine_helpers import EX, A, B, node, rows
from tests.fuzz import fuzzed
from tests.inside import ManualClock, core_of
from tests.oracles.lateness import Arrivals, OpenArrivals

TIMING = EX + "seen"
RANGE_MS = 300
TEXT = f"REGISTER QUERY q AS SELECT ?s ?p FROM STREAM <{A}> [RANGE {RANGE_MS}ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
STORED = (
    f"REGISTER QUERY stored AS SELECT ?s ?seen FROM <urn:x-wukongs:default> FROM NAMED STREAM <{A}> "
    f"[RANGE {RANGE_MS}ms STEP 100ms] WHERE {{ ?s ?p <{EX}o> OPTIONAL {{ GRAPH <{A}> {{ ?s ?seen ?o }} }} }}"
)

steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("push"),
            st.lists(st.tuples(st.sampled_from(["p", "seen"]), st.integers(-600, 400)), min_size=1, max_size=8),
        ),
        st.tuples(st.just("advance"), st.integers(-200, 300)),
        st.tuples(st.just("other"), st.integers(0, 300)),
        st.tuples(st.just("idle"), st.just(0)),
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
    """A durable engine with a stream that sorts and one that holds it back; the plain list; and a twin in memory that
    is told the same and never ends, for what firings see of the stored graph."""

    folder: Path
    lateness_ms: int
    settings: wukongs.Settings
    late: str = "drop"
    history_ms: int = 60_000
    lives: int = 0
    now_ms: int = 0
    """About where the stream is: times are drawn around it."""
    count: int = 0
    other_ms: int = 0
    given: list[Any] = field(default_factory=list)
    is_idle: bool = False

    def __post_init__(self) -> None:
        is_open = self.late == "open"
        self.arrivals = (
            OpenArrivals(self.lateness_ms, history_ms=self.history_ms) if is_open else Arrivals(self.lateness_ms)
        )
        self.twin = wukongs.Engine(settings=self.settings)
        self.twin_clock = ManualClock(self.twin)
        self.twin_streams, (_, self.twin_query) = self._declare(self.twin, "count")
        self._open()
        for stream in (*self.streams, *self.twin_streams):
            stream.advance(0)
        self.arrivals.advance(0)

    def _open(self) -> None:
        self.engine = wukongs.Engine(self.folder / str(self.lives), settings=self.settings)
        self.clock = ManualClock(self.engine)
        self.streams, (self.query, self.stored_query) = self._declare(
            self.engine, lambda table: self.given.extend(table.to_pylist())
        )

    def _declare(self, engine: wukongs.Engine, on_late: Any) -> tuple[list[Any], list[Any]]:
        options = {"timing": [TIMING], "batch_ms": 100, "lateness_ms": self.lateness_ms, "idle_timeout_ms": 3_600_000}
        options |= {"late": self.late, "history_ms": self.history_ms}
        stream = engine.stream(A, **options, on_late=on_late)  # type: ignore[arg-type]
        other = engine.stream(B, timing=True, batch_ms=100)
        return [stream, other], [engine.register(text) for text in (TEXT, STORED)]

    def push(self, drawn: list[tuple[str, int]]) -> None:
        tuples = []
        for predicate, gap in drawn:
            self.count += 1
            tuples.append((node(f"n{self.count}"), node(predicate), node("o"), self.now_ms + gap))
        self.leave()
        late_before = len(self.arrivals.late)
        self.arrivals.push(tuples)
        self.now_ms = max(self.now_ms, self.arrivals.newest_ms or 0)
        late = len(self.arrivals.late) - late_before
        counts = {stream.push(tuples) for stream in (self.streams[0], self.twin_streams[0])}
        assert counts == {len(tuples) - late}
        told = [tuple(row[name] for name in ("subject", "predicate", "object", "timestamp_ms")) for row in self.given]
        assert told == self.arrivals.late[late_before:]
        self.given.clear()

    def advance(self, gap: int) -> None:
        self.leave()
        for stream in (self.streams[0], self.twin_streams[0]):
            stream.advance(self.now_ms + gap)
        self.arrivals.advance(self.now_ms + gap)

    def idle(self, _: int) -> None:
        """The last stream batch with a tuple closes; then it follows the other stream."""
        for clock in (self.clock, self.twin_clock):
            clock.pass_s(3601)
        if not self.is_idle and isinstance(self.arrivals, OpenArrivals):
            if (end_ms := self.arrivals.newest_end_ms()) is not None:
                self.arrivals.advance(end_ms)
        elif not self.is_idle and self.arrivals.on_time:
            self.arrivals.advance(-(-max(one[-1] for one in self.arrivals.on_time) // 100) * 100)  # type: ignore[type-var, operator]
        self.is_idle = True

    def leave(self) -> None:
        if self.is_idle:
            self.arrivals.advance(self.other_ms // 100 * 100)
        self.is_idle = False

    def other(self, gap: int) -> None:
        self.other_ms += gap
        for stream in (self.streams[1], self.twin_streams[1]):
            stream.advance(self.other_ms)

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
        end_ms = (max(self.now_ms, self.other_ms) // 100 + 8) * 100
        for stream in (*self.streams, *self.twin_streams):
            stream.advance(end_ms)
        for engine in (self.engine, self.twin):
            engine.settle(timeout_s=60)
        found = {window.end_ms: rows(window) for window in self.query.results(timeout_s=0)}
        assert list(found) == list(range(0, end_ms + 1, 100))
        for at_ms, window in found.items():
            expected = self.arrivals.window(at_ms - RANGE_MS, at_ms)
            assert window == sorted((_bare(one[0]), _bare(one[1])) for one in expected), at_ms
        of_twin = {window.end_ms: rows(window) for window in self.twin_query.results(timeout_s=0)}
        assert {window.end_ms: rows(window) for window in self.stored_query.results(timeout_s=0)} == of_twin
        carried = [one for one, _ in self.arrivals.carried] if isinstance(self.arrivals, OpenArrivals) else []
        timeless = [one for one in (*self.arrivals.on_time, *self.arrivals.late, *carried) if one[1] == node("p")]
        assert rows(self.engine.query("SELECT ?s { ?s ?p ?o }")) == sorted((_bare(one[0]),) for one in timeless)
        stats = self.engine.stats()["streams"][A]
        dropped = sum(one[1] == node("seen") for one in self.arrivals.late)
        found_counts = stats["tuples"], stats["late"], stats["dropped"], stats["carried"]
        taken_count, late_count = len(self.arrivals.on_time) + len(carried), len(self.arrivals.late) + len(carried)
        assert found_counts == (taken_count, late_count, dropped, len(carried))


def _bare(term: object) -> str:
    return str(term).strip("<>").removeprefix(EX)


@fuzzed(40)
@given(steps, st.sampled_from([0, 1, 99, 100, 250, 1000]), st.sampled_from([1 << 10, 1 << 12, 1 << 20]))
def test_windows_and_stored_triples_are_those_of_a_plain_list(
    drawn: list[tuple[str, Any]], lateness_ms: int, segment_bytes: int
) -> None:
    check(drawn, lateness_ms, segment_bytes)


@fuzzed(40)
@given(
    steps,
    st.sampled_from([0, 1, 99, 100, 250]),
    st.sampled_from([1 << 10, 1 << 12, 1 << 20]),
    st.sampled_from([0, 100, 250, 60_000]),
)
def test_windows_with_carried_tuples_are_those_of_a_plain_list(
    drawn: list[tuple[str, Any]], lateness_ms: int, segment_bytes: int, history_ms: int
) -> None:
    """Of a stream with late="open" (DESIGN.md, section 6)."""
    check(drawn, lateness_ms, segment_bytes, "open", history_ms)


def check(
    drawn: list[tuple[str, Any]], lateness_ms: int, segment_bytes: int, late: str = "drop", history_ms: int = 60_000
) -> None:
    folder = Path(tempfile.mkdtemp())
    settings = wukongs.Settings(
        log_segment_bytes=segment_bytes, checkpoint_bytes=4 * segment_bytes, sync_interval_ms=1000
    )
    life = Life(folder, lateness_ms, settings, late, history_ms)
    try:
        for name, argument in [*drawn, ("crash", 0)]:
            getattr(life, name)(argument)
        life.end()
    finally:
        life.engine.close()
        life.twin.close()
        shutil.rmtree(folder)
