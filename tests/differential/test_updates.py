"""Random updates and queries, at new and old snapshots: the Engine against rdflib, pyoxigraph, the plain evaluator."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wukongs
from tests import strategies as make
from tests.differential.scenario import compare_one_shot
from tests.fuzz import fuzzed
from tests.inside import core_of
from tests.oracles.query_ast import Query
from tests.oracles.rdf import Term, Triple, from_rdflib, nquad, ntriples
from tests.oracles.sparql_oracle import Dataset
from wukongs.store.encoded import Encoded
from wukongs.store.rdf_files import read_rdf

pytestmark = pytest.mark.nojit

Quad = tuple[Term | None, Triple]
QUADS = st.lists(st.tuples(st.sampled_from([None, *make.GRAPHS]), make.triples(blank=False)), max_size=12)
UPDATES = st.lists(st.tuples(st.lists(st.integers(0, 99), max_size=12), QUADS), min_size=2, max_size=6)
"""Each deletes some of what is there, by its place in the sorted list, and adds some."""


def encoded(engine: wukongs.Engine, quads: list[Quad]) -> list[Encoded]:
    data = "".join(nquad(triple, graph) for graph, triple in quads).encode()
    chunks = read_rdf(io.BytesIO(data), "nq", on_malformed=None, strict=True)
    return [core_of(engine).registry.confirm(chunk)[0] for chunk in chunks]


def update(engine: wukongs.Engine, deletes: list[Quad], inserts: list[Quad]) -> tuple[int, int, int]:
    core = core_of(engine)
    gone, come = encoded(engine, deletes), encoded(engine, inserts)
    with core.lock:
        sn = core.next_sn
        return sn, *core.apply(sn, gone, come, core.default_graph).counts


def dataset_of(quads: set[Quad]) -> Dataset:
    graphs: dict[Term | None, set[Triple]] = {None: set()}
    for graph, triple in quads:
        graphs.setdefault(graph, set()).add(triple)
    return Dataset(graphs[None], {name: triples for name, triples in graphs.items() if name is not None})


@fuzzed(20)
@given(UPDATES, st.lists(make.queries(), min_size=2, max_size=4), st.booleans())
def test_answers_after_updates(
    updates: list[tuple[list[int], list[Quad]]], queries: list[Query], merges_wait: bool
) -> None:
    """A handle on each snapshot keeps merges away, so that every one is read through its tombstones."""
    state: set[Quad] = set()
    snapshots: dict[int, set[Quad]] = {}
    with wukongs.Engine() as engine:
        core = core_of(engine)
        for places, inserts in updates:
            held = sorted(state, key=lambda quad: nquad(quad[1], quad[0]))
            deletes = [held[place % len(held)] for place in places] if held else []
            after = (state - set(deletes)) | set(inserts)
            sn, gone, come = update(engine, deletes, inserts)
            assert (gone, come) == (len(state - after), len(after - state))
            state = after
            assert engine.stats()["stored_triples"] == len(state)
            assert engine.graph_names() == sorted({graph.value for graph, _ in state if graph is not None})
            if merges_wait:
                with core.lock:
                    core.arrangement.open(sn, "test")
                snapshots[sn] = state
        snapshots[core.sn] = state
        for sn, quads in snapshots.items():
            for query in queries:
                compare_one_shot(engine.query(query.text(), at=sn), dataset_of(quads), query, query.text())
        with core.lock:
            core.arrangement.trace.revoke(0.0)
            core.arrangement.trace.merge_all()
            assert core.arrangement.trace.tombstone_count == 0
        for query in queries:
            compare_one_shot(engine.query(query.text()), dataset_of(state), query, query.text())


def test_what_is_deleted_is_gone_everywhere(tmp_path: Path) -> None:
    """Dump, graph(), graph names and counts read around tombstones as queries do; a window is left alone."""
    g0, g1 = make.GRAPHS
    some = list(itertools.product(make.SUBJECTS, make.PREDICATES, make.NUMBERS))
    quads: list[Quad] = [(graph, triple) for graph in (None, g0, g1) for triple in some]
    with wukongs.Engine() as engine:
        first, *_ = update(engine, [], quads)
        with core_of(engine).lock:
            core_of(engine).arrangement.open(first, "test")
        kept = [quad for at, quad in enumerate(quads) if quad[0] != g1 and at % 3]
        _, gone, come = update(engine, [quad for quad in quads if quad not in kept], [])
        assert (gone, come) == (len(quads) - len(kept), 0)
        assert core_of(engine).arrangement.trace.tombstone_count == gone
        assert engine.stats()["stored_triples"] == len(kept)
        assert engine.graph_names() == [g0.value]
        names = engine.query("SELECT ?g { GRAPH ?g {} }").texts()
        assert names == [(ntriples(g0),)]
        for graph in (None, g0, g1):
            expected = {triple for name, triple in kept if name == graph}
            name = None if graph is None else graph.value
            assert {tuple(map(from_rdflib, triple)) for triple in engine.graph(name)} == expected
            assert engine.dump(tmp_path / "dump.nt", name) == len(expected)
            lines = (tmp_path / "dump.nt").read_text().splitlines()
            assert sorted(lines) == sorted(nquad(triple, None).strip() for triple in expected)
        assert not engine.query(f"ASK {{ GRAPH <{g1.value}> {{ ?s ?p ?o }} }}").boolean
        assert engine.query(f"ASK {{ GRAPH <{g1.value}> {{ ?s ?p ?o }} }}", at=first).boolean
        update(engine, [], [(g1, some[0])])
        assert engine.graph_names() == [g0.value, g1.value]
