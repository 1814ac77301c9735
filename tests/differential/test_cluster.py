"""A cluster against the oracles of the embedded engine: whichever node is asked, it answers as one engine would."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings

from tests.clusters import cluster
from tests.differential.scenario import Advance, Harness, Scenario, fuzz, scenarios


@pytest.mark.parametrize(("node_count", "replica_count"), [(1, 1), (2, 1), (4, 2)])
def test_lives_of_a_cluster(node_count: int, replica_count: int) -> None:
    """Streams, loads, registered and one-shot queries; each life is told to another node."""
    lives = iter(range(1 << 30))

    # Shrinking a life costs minutes; what is printed is enough.
    @settings(fuzz(6), phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False)
    @given(scenarios())
    def live(scenario: Scenario) -> None:
        begun = [Advance(stream.iri, -1000) for stream in scenario.streams]
        with cluster(node_count, replica_count) as nodes:
            at = nodes[next(lives) % node_count]
            Harness(at.engine).run(Scenario(scenario.streams, [*begun, *scenario.events]))

    live()
