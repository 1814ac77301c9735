"""Random streams, windows, loads and registrations on clusters of nodes: what the naive oracle of an Engine says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, given, reject, settings
from hypothesis import strategies as st

import wukongs
from tests.differential.scenario import Advance, Harness, Scenario, fuzz, scenarios
from tests.node_cluster import Cluster
from wukongs.settings import Settings

pytestmark = pytest.mark.nojit


def few(examples: int) -> settings:
    """Without making a failure smaller: an example takes a second."""
    return settings(fuzz(examples), phases=(Phase.explicit, Phase.reuse, Phase.generate))


def live(cluster: Any, scenario: Scenario) -> None:
    """All streams have begun and closed something before anything else happens: what a stream has closed at the tick at
    which it begins is only seen at the next one."""
    begun = [Advance(stream.iri, t) for t in (-2000, -1000) for stream in scenario.streams]
    whole = Scenario(scenario.streams, [*begun, *scenario.events])
    fault = fault_of(cluster, whole)
    if fault is not None:
        with wukongs.Engine() as engine:
            if fault_of(engine, whole) == fault:  # the naive oracle does not know what queries let go of
                reject()
    assert fault is None, fault


def fault_of(engine: Any, scenario: Scenario) -> str | None:
    """Return what the oracle has against an engine."""
    try:
        Harness(engine).run(scenario)
    except AssertionError as error:
        return str(error)
    return None


@few(12)
@given(scenarios(), st.sampled_from([62, 62, 8]))
def test_one_node_is_an_engine(scenario: Scenario, hash_bits: int) -> None:
    with Cluster(1, settings=Settings(hash_bits=hash_bits)) as cluster:
        live(cluster, scenario)


@few(6)
@given(scenarios(), st.sampled_from([62, 8]), st.integers(0, 2))
def test_a_home_puts_the_slices_of_three_nodes_together(scenario: Scenario, hash_bits: int, home: int) -> None:
    """Each node has the whole graph, but only shares of the slices count."""
    with Cluster(3, settings=Settings(hash_bits=hash_bits)) as cluster:
        cluster.home = home
        live(cluster, scenario)
