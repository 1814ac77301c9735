"""A cluster against the oracles of the embedded engine: whichever node is asked, it answers as one engine would."""

from __future__ import annotations

import io

import pytest
from hypothesis import Phase, given, settings

import wukongs
from tests.clusters import PATIENT, PULSE_S, cluster, start_again
from tests.differential.scenario import Advance, Ask, Check, Harness, Scenario, scenarios
from tests.fuzz import TIER, fuzzed
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.protocol.records import Role
from wukongs.settings import Settings


@pytest.mark.parametrize(
    ("node_count", "replica_count", "hash_bits"),
    [
        pytest.param(1, 1, 62, marks=pytest.mark.slow),
        pytest.param(1, 1, 8, marks=pytest.mark.slow),
        (2, 1, 62),
        pytest.param(3, 3, 8, marks=pytest.mark.slow),
        pytest.param(4, 2, 62, marks=pytest.mark.slow),
    ],
)
def test_lives_of_a_cluster(node_count: int, replica_count: int, hash_bits: int) -> None:
    """Streams, loads, registered and one-shot queries; each life is told to another node. With 8 bits of hash nearly
    every term shares its hash with another."""
    lives = iter(range(1 << 30))

    # Shrinking a life costs minutes; what is printed is enough.
    @settings(fuzzed(2 if TIER == "fast" else 4), phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False)
    @given(scenarios())
    def live(scenario: Scenario) -> None:
        begun = [Advance(stream.iri, -1001) for stream in scenario.streams]
        with cluster(node_count, replica_count, Settings(hash_bits=hash_bits), PATIENT) as nodes:
            at = nodes[next(lives) % node_count]
            Harness(at.engine).run(Scenario(scenario.streams, [*begun, *scenario.events]))

    live()


@pytest.mark.slow
def test_lives_in_which_a_node_goes_and_comes_back() -> None:
    """The others go on without it; at the end another one goes, so that what it has taken over is asked for."""
    lives = iter(range(1 << 30))

    @settings(fuzzed(2), phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False)
    @given(scenarios())
    def live(scenario: Scenario) -> None:
        begun = [Advance(stream.iri, -1001) for stream in scenario.streams]
        at = next(lives) % 3
        gone, last = (at + 1) % 3, (at + 2) % 3
        third = len(scenario.events) // 3
        with cluster(3, 2) as nodes:
            harness = Harness(nodes[at].engine)
            harness.run(Scenario(scenario.streams, [*begun, *scenario.events[:third]]))
            end(nodes, gone, at)
            for event in scenario.events[third : 2 * third]:
                harness.do(event)
            try:
                start_again(nodes, gone, replica_count=2)
                for event in scenario.events[2 * third :]:
                    harness.do(event)
                end(nodes, last, at)
                for event in scenario.events:
                    if isinstance(event, Ask | Check):
                        harness.do(event)
            finally:
                nodes[gone].close()

    live()


def end(nodes: list[ClusterNode], gone: int, seen_by: int) -> None:
    """Let a node go when no window is being reported, and wait until the others go on without it."""
    nodes[seen_by].engine.settle(60)
    nodes[gone].close()
    host = nodes[seen_by].host
    host.wait_until(lambda node: node.control.members[gone].role is Role.OUT, 60, f"node {gone} to be out")


@pytest.mark.slow
def test_hashes_that_clash() -> None:
    """1,500 terms under 12 bits of hash, from a load, updates and a stream, as one engine with all bits has them."""
    lines = [f"<http://ex/s{i}> <http://ex/p{i % 7}> <http://ex/o{i % 400}> ." for i in range(900)]
    data = "\n".join(lines).encode()
    renamed = "DELETE { ?s ?p ?o } INSERT { ?n ?p ?o } WHERE { ?s ?p ?o BIND(IRI(CONCAT(STR(?s), 'x')) AS ?n) }"
    asked = "SELECT ?s ?p ?o WHERE { ?s ?p ?o }"
    answers = []
    with (
        wukongs.Engine() as embedded,
        cluster(2, settings=Settings(hash_bits=12), silence_pulses_max=PATIENT, pulse_s=PULSE_S) as nodes,
    ):
        for engine in (embedded, nodes[1].engine):
            engine.load(io.BytesIO(data), format="nt")
            engine.update(renamed)
            stream = engine.stream("http://ex/stream", batch_ms=100)
            stream.push([(f"<http://ex/u{i}>", "<http://ex/p1>", f"<http://ex/o{i % 400}>", i) for i in range(1, 300)])
            stream.advance(1000)
            engine.settle(60)
            answers.append(sorted(engine.query(asked).texts()))
        assert nodes[0].host.node.control.exceptions
        answers.append(sorted(nodes[0].engine.query(asked).texts()))
    assert answers[1] == answers[0]
    assert answers[2] == answers[0]
