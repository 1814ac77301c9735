"""Plans of registered queries follow their windows, between the firings and not more often than it pays."""

from __future__ import annotations

import io
import re
from collections import Counter

import wukongs

STREAM, STEP_MS = "urn:stream", 10


def register_text(range_ms: int) -> str:
    return f"""REGISTER QUERY q AS SELECT ?s ?n FROM NAMED STREAM <{STREAM}> [RANGE {range_ms}ms STEP {STEP_MS}ms]
FROM <urn:x-wukongs:default> {{ ?s <urn:kind> ?n GRAPH <{STREAM}> {{ ?s <urn:at> ?place }} }}"""


def run(sizes: list[int], range_ms: int = STEP_MS) -> tuple[wukongs.Engine, wukongs.ContinuousQuery]:
    """Fire over windows of these sizes, one after the other; of n tuples the first n subjects have a kind."""
    engine = wukongs.Engine()
    engine.load(io.BytesIO("".join(f"<urn:s{i}> <urn:kind> {i} .\n" for i in range(60)).encode()), format="ttl")
    stream = engine.stream(STREAM, timing=True, batch_ms=STEP_MS)
    query = engine.register(register_text(range_ms))
    stream.push(
        [
            (f"<urn:s{i}>", "<urn:at>", f"<urn:place{i}>", at * STEP_MS + 1)
            for at, size in enumerate(sizes)
            for i in range(size)
        ]
    )
    stream.advance(len(sizes) * STEP_MS)
    engine.settle(60)
    return engine, query


def test_a_thousand_firings_of_a_window_that_goes_up_and_down_make_a_few_plans() -> None:
    sizes = [(1, 4, 20, 60, 25, 6)[at % 6] for at in range(1000)]
    engine, query = run(sizes)
    with engine:
        found = Counter(len(window) for window in query.results(timeout_s=0))
        assert found == Counter(sizes)
        assert 2 <= query.stats()["plans_made"] <= 4


def test_a_plan_that_was_made_of_a_nearly_empty_window_is_made_anew() -> None:
    engine, query = run([1, 1, 1, 5, 5], range_ms=2 * STEP_MS)  # explained is the window that comes next
    with engine:
        (shown,) = re.findall(r"<urn:at> .*~(\S+) rows +5 rows$", query.explain(analyze=True), re.MULTILINE)
        assert 5 <= float(shown) <= 10
        assert query.stats()["plans_made"] == 2
