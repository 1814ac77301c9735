"""Failures in the middle of a firing: an error is raised at a random line of the code that keeps things from firing to
firing, or of what it calls. Such a firing has an error in the place of its window, or is answered in another way; all
windows behind it are right."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from wukongs.errors import BudgetExceeded, QueryTimeout
from wukongs.live import joint_firings
from wukongs.live.query_firings import QueryFirings

ALL = (
    "query/counted_rows.py", "query/rows.py", "query/binding_table.py", "query/plans/compiled.py",
    "query/plans/compiled_plans.py", "query/plans/deltas.py", "incremental/counted.py",
    "query/plans/plan_memo.py", "query/plans/plan_runner.py", "query/plans/plan_versions.py",
    "query/plans/lowering.py", "query/execution/answer.py", "query/execution/argument_rows.py",
    "query/execution/executor.py", "query/execution/exploration.py", "incremental/window_join.py",
    "incremental/maintained.py", "incremental/groups.py", "incremental/operators.py", "incremental/arranged.py",
    "incremental/lookups.py", "incremental/zset.py", "incremental/cuts.py", "incremental/searched.py",
    "query/operators/held_groups.py",
    "query/operators/aggregates.py", "query/operators/operators.py",
    "query/paths/forest.py", "query/paths/kept_paths.py", "query/paths/paths.py", "query/paths/path_search.py",
    "query/paths/reach.py",
    "live/answer_cache.py", "live/answering.py", "live/joint_firings.py", "live/reporting.py",
    "query/programs/program.py", "query/programs/compile.py", "query/programs/memo.py", "store/window_table.py",
)  # fmt: skip
"""The files that take part in a firing."""
SHARE = 0.3
"""So many of the firings are to fail."""
Made = Callable[[], BaseException]
ERRORS: tuple[Made, ...] = (
    lambda: QueryTimeout("injected"),
    lambda: BudgetExceeded("injected"),
    MemoryError,
    lambda: RuntimeError("injected"),
)
Trace = Callable[[FrameType, str, Any], Any]


class Failures:
    """raised: where errors were raised: file, line and kind."""

    def __init__(self, rng: random.Random, files: tuple[str, ...], lines_max: int) -> None:
        self.raised: list[str] = []
        self._rng, self._files, self._lines_max = rng, files, lines_max
        self._left = 0
        """Lines until an error is raised, 0: none is."""

    def arm(self) -> None:
        """Begin a firing."""
        is_to_fail = self._rng.random() < SHARE
        self._left = 1 + int(self._lines_max * self._rng.random() ** 2) if is_to_fail else 0

    def disarm(self) -> None:
        self._left = 0

    def trace(self, frame: FrameType, event: str, argument: Any) -> Trace | None:
        return self._line if self._left and frame.f_code.co_filename.endswith(self._files) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Trace:
        if event == "line" and self._left:
            self._left -= 1
            if not self._left:
                error = self._rng.choice(ERRORS)()
                name = Path(frame.f_code.co_filename).name
                self.raised.append(f"{name}:{frame.f_lineno} {frame.f_code.co_name} {type(error).__name__}")
                raise error
        return self._line


@contextmanager
def failing(rng: random.Random, files: tuple[str, ...], lines_max: int) -> Iterator[list[str]]:
    """Let some of the firings fail of the engines that are made meanwhile. Gives where errors were raised.

    files: ends of the names of the files in which errors are raised; lines_max: at most so many of their lines behind
    the begin of a firing."""
    failures = Failures(rng, files, lines_max)

    def armed(owner: object, name: str) -> Any:
        function = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            failures.arm()
            before = sys.gettrace()
            sys.settrace(failures.trace)
            try:
                return function(*given, **named)
            finally:
                sys.settrace(before)
                failures.disarm()

        return mock.patch.object(owner, name, call)

    places = (QueryFirings, "_execute"), (joint_firings, "run_together")
    with ExitStack() as stack:
        for owner, name in places:
            stack.enter_context(armed(owner, name))
        yield failures.raised
