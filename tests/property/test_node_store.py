"""Random streams, windows, loads and registrations on clusters of nodes: what the naive oracle of an Engine says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differential.scenario import Advance, Harness, Scenario, fuzz, scenarios
from tests.node_cluster import Cluster
from wukongs.settings import Settings

pytestmark = pytest.mark.nojit


def live(cluster: Any, scenario: Scenario) -> None:
    """All streams have begun and closed something before anything else happens: what a stream has closed at the tick at
    which it begins is only seen at the next one."""
    begun = [Advance(stream.iri, t) for t in (-2000, -1000) for stream in scenario.streams]
    Harness(cluster).run(Scenario(scenario.streams, [*begun, *scenario.events]))


@fuzz(25)
@given(scenarios(), st.sampled_from([62, 62, 8]))
def test_one_node_is_an_engine(scenario: Scenario, hash_bits: int) -> None:
    with Cluster(1, settings=Settings(hash_bits=hash_bits)) as cluster:
        live(cluster, scenario)


@fuzz(10)
@given(scenarios(), st.sampled_from([62, 8]), st.integers(0, 2))
def test_a_home_puts_the_slices_of_three_nodes_together(scenario: Scenario, hash_bits: int, home: int) -> None:
    """Each node has the whole graph, but only shares of the slices count."""
    with Cluster(3, settings=Settings(hash_bits=hash_bits)) as cluster:
        cluster.home = home
        live(cluster, scenario)
