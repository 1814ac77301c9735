"""The one place where tests reach behind an Engine: for storage, locks and sockets that have no public name."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import wukongs
from wukongs.live.core import Core
from wukongs.live.embedded import EmbeddedBackend
from wukongs.wire.ingest_service import IngestService


def core_of(engine: wukongs.Engine) -> Core:
    """Return the state of an engine."""
    return engine._core


class ManualClock:
    """The clock of the machine for one engine, which stands still but for what tests move it on."""

    def __init__(self, engine: wukongs.Engine) -> None:
        self.passed_s = 0.0
        self._began_s = time.monotonic()
        self._began_ms = time.time_ns() // 1_000_000
        self.engine = engine
        engine._core.now_s = self
        engine._core.wall_ms = self.wall_ms

    def __call__(self) -> float:
        return self._began_s + self.passed_s

    def wall_ms(self) -> int:
        """Return the time of its wall clock, in ms since 1970."""
        return self._began_ms + round(1000 * self.passed_s)

    def set_wall(self, wall_ms: int) -> None:
        """Set the wall clock alone, as an administrator does."""
        self._began_ms = wall_ms - round(1000 * self.passed_s)

    def pass_s(self, seconds: float) -> None:
        """Let time pass, and have the engine look at the clock."""
        self.passed_s += seconds
        assert isinstance(self.engine._backend, EmbeddedBackend)
        self.engine._backend.watch.look()


class SteppedInjector:
    """The injector of an engine without its thread: the test takes its steps one by one.

    Made before the engine declares a stream. `settle` and whatever waits for firings must not be called by the test's
    own thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, engine: wukongs.Engine) -> None:
        monkeypatch.setattr(engine._injector, "start", lambda: None)
        self.engine, self._injector = engine, engine._injector

    def moments(self) -> Iterator[None]:
        """Yield before each step: before stream batches are sealed or firings are picked, and before these run. Ends
        when nothing is left to do."""
        injector, is_done = self._injector, False
        while not is_done:
            yield
            with self.engine._core.lock:
                firings, is_done = injector._step()
            if firings is not None:
                yield
                injector._fire(firings, time.perf_counter())
            injector._renew()


def ingest_of(engine: wukongs.Engine) -> IngestService:
    """Return the handler of the messages that pipelines send to an engine."""
    return engine._ingest_handler()
