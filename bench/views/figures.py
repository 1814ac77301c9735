"""Figures of one view, kept back until all of its answers were compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from wukongs.bench.experiments.session import Session
from wukongs.bench.harness import WrongAnswer
from wukongs.bench.peers import WUKONGS, PeerFailed, PeerMissing
from wukongs.bench.record import MISSING

SETTLE_S = 3600.0


@dataclass(slots=True)
class Figures:
    """The figures of a view (`query`) so far. checked: with what its answers are compared."""

    session: Session
    experiment: str
    query: str
    checked: str
    _waiting: list[Callable[[float], None]] = field(default_factory=list)
    _checks: int = 0

    def check(self, what: str, expected: Any, found: Any) -> None:
        """Compare an answer with what it must be. Raises WrongAnswer."""
        if expected != found:
            raise WrongAnswer(f"{what}: expected {expected}, found {found}")
        self._checks += 1

    def add(
        self,
        metric: str,
        values: Sequence[float],
        unit: str = "ms",
        engine: str = WUKONGS,
        rows: int | None = None,
        **case: float,
    ) -> None:
        """Add samples of a metric."""
        key = (self.experiment, self.query, engine, {**self.session.case, **case}, metric)
        self._waiting.append(
            lambda busy: self.session.record.measured(
                *key, values, unit=unit, rows=rows, checked=self.checked, busy=busy
            )
        )

    def skip(self, engine: str, why: str, **case: float) -> None:
        """Add the reason why another engine has no figure."""
        key = (self.experiment, self.query, engine, {**self.session.case, **case})
        self._waiting.append(lambda _: self.session.record.skipped(*key, why))

    def write(self) -> None:
        """Write all down."""
        assert self._checks, f"{self.experiment}: {self.query}: nothing was compared"
        busy = self.session.busy()
        for one in self._waiting:
            one(busy)
        self._waiting.clear()


def measure(
    session: Session, experiment: str, query: str, checked: str, last: str, body: Callable[[Figures], None], **case: Any
) -> None:
    """Measure a view, unless that is done, and write its figures down once all answers were right; else the reason.

    last: the metric of ours that `body` adds last, in this case."""
    case = {**session.case, **case}
    if not session.wants(query) or session.record.is_done(experiment, query, WUKONGS, case, last):
        return
    session.begin(f"{experiment}: {query}")
    figures = Figures(session, experiment, query, checked)
    try:
        body(figures)
        figures.write()
    except WrongAnswer as error:
        session.record.skipped(experiment, query, WUKONGS, case, f"answers otherwise: {error}")
    except PeerMissing as error:
        session.record.skipped(experiment, query, WUKONGS, case, f"{MISSING}{error}")
    except PeerFailed as error:
        session.record.skipped(experiment, query, WUKONGS, case, f"failed: {error}")


def followed(engine: Any, views: Sequence[Any], change: Callable[[], object]) -> tuple[float, float, list[list[Any]]]:
    """Change an engine's data; return the milliseconds of that call, those until the columns of all reports are there,
    and the reports of each view."""
    began_s = time.perf_counter()
    change()
    stored_s = time.perf_counter()
    engine.settle(SETTLE_S)
    reports = [list(view.results(timeout_s=0)) for view in views]
    for of_view in reports:
        for one in of_view:
            one.ids(0, len(one))
    ended_s = time.perf_counter()
    return 1e3 * (stored_s - began_s), 1e3 * (ended_s - began_s), reports
