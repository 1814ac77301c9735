"""Random streams, windows and registrations: every window that the Engine reports against the naive stream oracle."""

from __future__ import annotations

import pytest
from hypothesis import given

import wukongs
from tests.differential.scenario import Advance, Harness, Register, Scenario, fuzz, scenarios

pytestmark = pytest.mark.nojit


@fuzz(50)
@given(scenarios())
def test_every_window_and_every_snapshot(scenario: Scenario) -> None:
    with wukongs.Engine() as engine:
        Harness(engine).run(scenario)


@fuzz(20)
@given(scenarios())
def test_what_no_query_can_match_is_not_missed(scenario: Scenario) -> None:
    """With index="matching" and all queries registered before the data, nothing changes, and nothing is partial.

    All streams have begun by then: those that begin late may find the stored graph merged beyond their first windows
    (decision 0006)."""
    begun = [Advance(stream.iri, -1000) for stream in scenario.streams]
    events = sorted(scenario.events, key=lambda event: not isinstance(event, Register))
    with wukongs.Engine() as engine:
        Harness(engine, index="matching").run(Scenario(scenario.streams, [*begun, *events]))
