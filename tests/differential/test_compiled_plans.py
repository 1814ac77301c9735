"""Random registered queries, over compiled plans and over a dataset made at each firing: the windows are the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wukongs
from tests import strategies as make
from tests.differential.scenario import Event, Harness, Register, Scenario, registrations, scenarios
from tests.fuzz import fuzzed
from wukongs.query.plans.compiled_plans import CompiledPlans

pytestmark = pytest.mark.nojit


@contextmanager
def over_datasets() -> Iterator[None]:
    """Let no query be compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledPlans, "is_for", staticmethod(lambda query: False))
        yield


@st.composite
def lives(draw: st.DrawFn) -> Scenario:
    """A life with more queries, of all forms."""
    scenario = draw(scenarios())
    events: list[Any] = list(scenario.events)
    for number in range(draw(st.integers(1, 4))):
        made = draw(registrations(scenario.streams, f"m{number}"))
        query = draw(make.queries(where=made.query.where))
        events.insert(draw(st.integers(0, len(events))), Register(made.name, made.clause, query))
    return Scenario(scenario.streams, events)


class Reader(Harness):
    """A harness that notes the windows in place of judging them. Rows without ORDER BY come as the plan finds them, and
    sizes are looked at in other moments."""

    def __init__(self, engine: wukongs.Engine) -> None:
        super().__init__(engine)
        self.windows: dict[str, list[Any]] = {}

    def do(self, event: Event) -> None:
        """When a query comes, all is settled: when it fires first does not hang on how far the engine has come."""
        self.engine.settle(60)
        super().do(event)

    def check(self, name: str) -> None:
        form = self.registered[name].query.kind
        for window in self.handles[name].results(timeout_s=0):
            rows: Any = bool(window) if form == "ask" else sorted(map(str, window.texts()))
            self.windows.setdefault(name, []).append((window.end_ms, rows))


def lived(scenario: Scenario) -> tuple[dict[str, list[Any]], int]:
    """Return the windows of each query, and how many queries were compiled."""
    with wukongs.Engine() as engine:
        reader = Reader(engine)
        reader.run(scenario)
        return reader.windows, sum(handle.text.answering.compiled is not None for handle in reader.handles.values())


@pytest.mark.slow
def test_windows_are_the_same() -> None:
    compiled = []

    @fuzzed(40)
    @given(lives())
    def run(scenario: Scenario) -> None:
        windows, count = lived(scenario)
        with over_datasets():
            expected, none = lived(scenario)
        assert none == 0
        assert windows == expected
        compiled.append(count)

    run()
    assert sum(compiled) > 0
