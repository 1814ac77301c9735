"""Random streams, windows and registrations: every window that the Engine reports against the naive stream oracle."""

from __future__ import annotations

import pytest
from hypothesis import given

import wukongs
from tests.differential.scenario import Advance, Harness, Register, Scenario, scenarios
from tests.fuzz import fuzzed

pytestmark = pytest.mark.nojit


@fuzzed(16)
@given(scenarios())
def test_every_window_and_every_snapshot(scenario: Scenario) -> None:
    """Where a query reads the stored graph, all streams have begun: the oracle knows of none that is late."""
    clauses = [event.clause for event in scenario.events if isinstance(event, Register)]
    reads_stored = any(clause.graphs or clause.named_graphs for clause in clauses)
    events = [*_begun(scenario), *scenario.events] if reads_stored else scenario.events
    with wukongs.Engine() as engine:
        Harness(engine).run(Scenario(scenario.streams, events))


@fuzzed(20)
@given(scenarios())
def test_what_no_query_can_match_is_not_missed(scenario: Scenario) -> None:
    """With index="matching" and all queries registered before the data, nothing changes, and nothing is partial.

    All streams have begun by then."""
    events = sorted(scenario.events, key=lambda event: not isinstance(event, Register))
    with wukongs.Engine() as engine:
        Harness(engine, index="matching").run(Scenario(scenario.streams, [*_begun(scenario), *events]))


def _begun(scenario: Scenario) -> list[Advance]:
    return [Advance(stream.iri, -1001) for stream in scenario.streams]
