"""Probe: how long the parts of firings take, measured by wrapping the functions that do them.

Direct firings, which are picked and run together, take an equal share each.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from wukongs.live import injector
from wukongs.live.joint_firings import DirectFirings, DueFirings
from wukongs.live.query_firings import QueryFirings

KERNELS = (
    ("wukongs.query.plans.plan_runner", "run_plan"),
    ("wukongs.query.plans.compiled", "run_call"),
    ("wukongs.query.plans.deltas", "go_on"),
    ("wukongs.query.programs.program", "run_programs"),
)
"""The calls in which plans run: a module, and the name by which it calls the kernel."""


@dataclass(slots=True)
class Times:
    """Times of one firing, in microseconds. began_s, ended_s: perf_counter."""

    engine_us: float = 0.0
    firing_us: float = 0.0
    began_s: float = 0.0
    ended_s: float = 0.0


@dataclass(slots=True)
class Probe:
    """While it is entered, each picking of a firing begins a new Times, to which its run and its kernel calls are
    added. engine_us: of all kernel calls so far."""

    firings: dict[str, list[Times]] = field(default_factory=dict)
    engine_us: float = 0.0
    _now: Times = field(default_factory=Times)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Probe:
        self._wrap(QueryFirings, "prepare", self._prepared)
        self._wrap(QueryFirings, "run", self._run)
        self._wrap(DirectFirings, "pick", self._picked_directly)
        self._wrap(injector, "run_jointly", self._run_jointly)
        for module, name in KERNELS:
            self._wrap(importlib.import_module(module), name, self._engine)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def all_times(self) -> list[Times]:
        """Return all firings, in no order."""
        return [times for firings in self.firings.values() for times in firings]

    def clear(self) -> None:
        """Forget the firings so far."""
        self.firings.clear()
        self.engine_us = 0.0

    def _wrap(self, owner: Any, name: str, with_times: Callable[..., Callable[..., Any]]) -> None:
        self._stack.enter_context(patch.object(owner, name, with_times(getattr(owner, name))))

    def _prepared(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def prepare(query: QueryFirings, *arguments: Any) -> Any:
            times = Times()
            self.firings.setdefault(query.name, []).append(times)
            times.began_s = time.perf_counter()
            firing = function(query, *arguments)
            times.ended_s = time.perf_counter()
            times.firing_us = (times.ended_s - times.began_s) * 1e6
            return firing

        return prepare

    def _run(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(query: QueryFirings, *arguments: Any) -> None:
            times = self.firings[query.name][-1]
            self._now = times
            began = time.perf_counter()
            function(query, *arguments)
            times.ended_s = time.perf_counter()
            times.firing_us += (times.ended_s - began) * 1e6

        return run

    def _picked_directly(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def pick(*arguments: Any) -> DirectFirings:
            began_s = time.perf_counter()
            found: DirectFirings = function(*arguments)
            ended_s = time.perf_counter()
            share_us = (ended_s - began_s) * 1e6 / len(found.firings)
            for query, _, _ in found.firings:
                times = Times(firing_us=share_us, began_s=began_s, ended_s=ended_s)
                self.firings.setdefault(query.name, []).append(times)
            return found

        return pick

    def _run_jointly(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(due: DueFirings, *arguments: Any) -> Any:
            queries = [query for direct in due.direct for query, _, _ in direct.firings]
            self._now, began_s = Times(), time.perf_counter()
            others = function(due, *arguments)
            ended_s = time.perf_counter()
            for query in queries:
                times = self.firings[query.name][-1]
                times.firing_us += (ended_s - began_s) * 1e6 / len(queries)
                times.engine_us += self._now.engine_us / len(queries)
                times.ended_s = ended_s
            return others

        return run

    def _engine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(*arguments: Any) -> Any:
            began = time.perf_counter()
            found = function(*arguments)
            took = (time.perf_counter() - began) * 1e6
            self._now.engine_us += took
            self.engine_us += took
            return found

        return kernel
