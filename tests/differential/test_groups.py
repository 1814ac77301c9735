"""Registered queries that differ in constants, which fire as one: each of them against the stream oracle."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, count
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import wukongs
from tests import strategies as make
from tests.clusters import PATIENT, cluster
from tests.differential.scenario import Advance, Harness, Register, Scenario, clauses, scenarios
from tests.fuzz import fuzzed, slow
from tests.oracles import query_ast as ast
from tests.oracles.query_ast import Query
from tests.oracles.rdf import iri
from tests.oracles.stream_oracle import OracleStream
from wukongs.live import joined_queries
from wukongs.query.plans import deltas

CONSTANTS = [*make.SUBJECTS, *make.SUBJECTS, *make.NUMBERS[:2], *make.PLAIN_LITERALS[6:8]]


@st.composite
def alike(draw: st.DrawFn, streams: list[OracleStream], name: str) -> list[Register]:
    """Two to five queries with one dataset clause and one pattern, but for constants and for what they make of it."""
    clause = draw(clauses(streams))
    ends = {"subject": st.sampled_from(make.SUBJECTS), "object": st.sampled_from(CONSTANTS)}
    shape = draw(make.bgps("q1")).triples
    holes = draw(st.lists(st.sampled_from([(at, end) for at in range(len(shape)) for end in ends]), min_size=1))
    block = draw(st.sampled_from([None, *(iri(window.name) for window in clause.windows)]))
    conditions = draw(st.sampled_from([(), (), (ast.Filter(draw(make.conditions())),)]))

    def where() -> ast.Group:
        triples = [list(triple) for triple in shape]
        for at, end in holes:
            triples[at][0 if end == "subject" else 2] = draw(ends[end])
        inside = [tuple(triple) for triple in triples]
        if block is None:
            return ast.Group((ast.Bgp(tuple(inside)), *conditions))
        is_divided = len(inside) > 1 and ast.Var("_:q1") not in chain(*inside)  # a blank node belongs to one part
        outside = (ast.Bgp((inside.pop(),)),) if is_divided else ()
        return ast.Group((ast.GraphPattern(block, ast.Group((ast.Bgp(tuple(inside)),))), *outside, *conditions))

    made = draw(make.queries(("select", "select", "grouped"), where=where()))
    found = []
    for number in range(draw(st.integers(2, 5))):
        again = draw(make.queries(("select", "grouped"), where=where())) if draw(st.integers(0, 3)) == 3 else made
        query: Query = replace(again, where=where())
        output = draw(st.sampled_from(["QUERY", "QUERY", "ISTREAM", "DSTREAM"]))
        # Aggregates may have several right values, and blank nodes no order by which LIMIT and OFFSET would keep rows.
        if query.has_aggregate or query.limit is not None or query.offset:
            output = "QUERY"
        found.append(Register(f"{name}n{number}", clause, query, output))
    return found


@st.composite
def lives(draw: st.DrawFn) -> Scenario:
    """A life with one or two groups more, each registered at one moment, or its last query later."""
    scenario = draw(scenarios())
    events: list[Any] = [Advance(stream.iri, -1001) for stream in scenario.streams]
    events += scenario.events
    for number in range(draw(st.integers(1, 2))):
        *first, last = draw(alike(scenario.streams, f"g{number}"))
        at = draw(st.integers(len(scenario.streams), len(events)))
        later = draw(st.sampled_from([at, at, len(events)]))
        events[later:later] = [last]
        events[at:at] = first
    return Scenario(scenario.streams, events)


def live(engine: wukongs.Engine, scenario: Scenario) -> int:
    """Return how many firings were answered together with others."""
    harness = Harness(engine)
    harness.run(scenario)
    return sum(handle.stats()["explored_together"] for handle in harness.handles.values())


@pytest.mark.parametrize(("alone_max", "rows_min"), [(0, 1000.0), slow(1, 0.0)])
def test_every_window_of_an_engine(alone_max: int, rows_min: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """alone_max: at most this many queries of a shape are not put into a group; rows_min: matches of patterns that make
    at least this many rows are kept."""
    monkeypatch.setattr(joined_queries, "ALONE_MAX", alone_max)
    monkeypatch.setattr(deltas, "ROWS_MIN", rows_min)
    together = []

    @settings(fuzzed(35), phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False)
    @given(lives())
    def run(scenario: Scenario) -> None:
        with wukongs.Engine() as engine:
            together.append(live(engine, scenario))

    run()
    assert sum(together) > 0


@pytest.mark.slow
@pytest.mark.parametrize("node_count", [2, 4])
def test_every_window_of_a_cluster(node_count: int) -> None:
    together, at = [], count()

    @settings(fuzzed(8), phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False)
    @given(lives())
    def run(scenario: Scenario) -> None:
        with cluster(node_count, silence_pulses_max=PATIENT) as nodes:
            together.append(live(nodes[next(at) % node_count].engine, scenario))

    run()
    assert sum(together) > 0
