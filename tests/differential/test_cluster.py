"""A cluster against the oracles of the embedded engine: whichever node is asked, it answers as one engine would."""

from __future__ import annotations

import io

import pytest
from hypothesis import Phase, given, settings

import wukongs
from tests.clusters import cluster
from tests.differential.scenario import Advance, Harness, Scenario, fuzz, scenarios
from wukongs.settings import Settings


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


def test_hashes_that_clash() -> None:
    """1,500 terms under 12 bits of hash, from a load, updates and a stream, as one engine with all bits has them."""
    lines = [f"<http://ex/s{i}> <http://ex/p{i % 7}> <http://ex/o{i % 400}> ." for i in range(900)]
    data = "\n".join(lines).encode()
    renamed = "DELETE { ?s ?p ?o } INSERT { ?n ?p ?o } WHERE { ?s ?p ?o BIND(IRI(CONCAT(STR(?s), 'x')) AS ?n) }"
    asked = "SELECT ?s ?p ?o WHERE { ?s ?p ?o }"
    answers = []
    with wukongs.Engine() as embedded, cluster(2, settings=Settings(hash_bits=12)) as nodes:
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
