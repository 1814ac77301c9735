"""Firings on several nodes at once, each of which asks the other nodes: none waits for one that waits for it."""

from __future__ import annotations

import io

import wukongs
from tests.clusters import PATIENT, cluster

EX, STREAM = "http://ex/", "http://ex/s"
SETTLE_S = 60.0


def begin(engine: wukongs.Engine) -> wukongs.Stream:
    data = "\n".join(f"<{EX}o{i}> <{EX}kind> <{EX}K{i % 4}> ." for i in range(40))
    engine.load(io.BytesIO(data.encode()), format="nt")
    return engine.stream(STREAM, batch_ms=100)


def register(engine: wukongs.Engine, kind: int, window: str) -> wukongs.ContinuousQuery:
    """What has come that is of a kind, which the stored graph says, wherever it is."""
    return engine.register(
        f"REGISTER QUERY q{kind} AS SELECT ?s ?o FROM NAMED <urn:x-wukongs:default> FROM NAMED STREAM <{STREAM}> "
        f"[{window}] WHERE {{ GRAPH <{STREAM}> {{ ?s <{EX}p> ?o }} "
        f"GRAPH <urn:x-wukongs:default> {{ ?o <{EX}kind> <{EX}K{kind}> }} }}"
    )


def push(stream: wukongs.Stream) -> None:
    stream.push([(f"<{EX}t{t}>", f"<{EX}p>", f"<{EX}o{t % 40}>", t) for t in range(1000, 3160, 90)])


def windows(query: wukongs.ContinuousQuery) -> list[tuple[int, list[tuple[str | None, ...]]]]:
    return [(window.end_ms, sorted(map(tuple, window.texts()))) for window in query.results(timeout_s=0)]


def test_many_firings_of_one_step_in_time_wait_for_earlier_ones_only() -> None:
    """Each node comes to a firing long before the end of what is exposed, and the others read its graph there."""
    window = "RANGE 400ms STEP 200ms"
    with wukongs.Engine() as embedded, cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        stream, alone = begin(nodes[0].engine), begin(embedded)
        for one in (stream, alone):
            one.advance(900)
        queries = [register(node.engine, kind, window) for kind, node in enumerate(nodes)]
        expected = [register(embedded, kind, window) for kind in range(3)]
        for node in nodes:
            node.engine.settle(SETTLE_S)
        for one in (stream, alone):
            push(one)
            one.advance(3160)
        nodes[0].engine.settle(SETTLE_S)
        embedded.settle(SETTLE_S)
        assert [windows(query) for query in queries] == [windows(query) for query in expected]


def test_a_firing_beyond_what_is_exposed_reads_what_the_others_have() -> None:
    """The last one, when the streams have ended before it; and EXPLAIN ANALYZE of the next one."""
    window = "RANGE 1s STEP 1s"
    with wukongs.Engine() as embedded, cluster(3, silence_pulses_max=PATIENT) as nodes:
        stream, alone = begin(nodes[0].engine), begin(embedded)
        queries = [register(node.engine, kind, window) for kind, node in enumerate(nodes)]
        expected = [register(embedded, kind, window) for kind in range(3)]
        for one in (stream, alone):
            push(one)
        nodes[1].engine.settle(SETTLE_S)
        assert all("rows" in query.explain(analyze=True) for query in queries)
        for one in (stream, alone):
            one.close()
        nodes[1].engine.settle(SETTLE_S)
        embedded.settle(SETTLE_S)
        found = [windows(query) for query in queries]
        assert found == [windows(query) for query in expected]
        assert [end_ms for end_ms, _ in found[0]] == [1000, 2000, 3000, 4000]
