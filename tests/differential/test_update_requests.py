"""Random SPARQL Update requests: the Engine against updates on plain sets, and against pyoxigraph."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wukongs
from tests.fuzz import fuzzed
from tests.inside import core_of
from tests.oracles.libraries import keeps_lexical_forms
from tests.oracles.rdf import to_oxigraph
from tests.oracles.sparql_oracle import Dataset, TooBig
from tests.oracles.update_ast import Operation, Quads, Transfer, Whole
from tests.oracles.values import Undefined
from tests.update_requests import REQUESTS, canonical, outcome, request_text, stored

pytestmark = pytest.mark.nojit


def ask_oxigraph(before: Quads, request: list[Operation]) -> Quads | None:
    import pyoxigraph as ox

    from tests.oracles.rdf import from_oxigraph

    library = ox.Store()
    for graph, triple in before:
        subject, predicate, term = map(to_oxigraph, triple)
        library.add(ox.Quad(subject, predicate, term, to_oxigraph(graph) if graph else ox.DefaultGraph()))
    silent = [
        replace(operation, silent=True) if isinstance(operation, Whole | Transfer) else operation
        for operation in request
    ]
    library.update(request_text(silent))
    return {
        (
            None if isinstance(quad.graph_name, ox.DefaultGraph) else from_oxigraph(quad.graph_name),
            (from_oxigraph(quad.subject), from_oxigraph(quad.predicate), from_oxigraph(quad.object)),
        )
        for quad in library
    }


@fuzzed(60)
@given(REQUESTS, st.booleans())
def test_requests(requests: list[list[Operation]], merges_wait: bool) -> None:
    snapshots: dict[int, Quads] = {}
    with wukongs.Engine() as engine:
        for request in requests:
            before = stored(engine)
            text = request_text(request)
            try:
                expected, missed = outcome(before, request)
            except (TooBig, Undefined):
                return
            sn = engine.stats()["sn"]
            if expected is None:
                with pytest.raises(wukongs.UpdateError):
                    engine.update(text)
                assert (stored(engine), engine.stats()["sn"]) == (before, sn), text
                continue
            assert engine.update(text) == sn + 1
            after = stored(engine)
            assert canonical(after) == canonical(expected), text
            assert engine.stats()["stored_triples"] == len(after)
            if merges_wait:
                with core_of(engine).lock:
                    core_of(engine).arrangement.open(sn + 1, "test")
                snapshots[sn + 1] = after
            if not missed and keeps_lexical_forms(Dataset({triple for _, triple in before | expected}, {})):
                found = ask_oxigraph(before, request)
                assert found is not None
                assert canonical(found) == canonical(expected), f"pyoxigraph: {text}"
        for sn, quads in snapshots.items():
            assert stored(engine, at=sn) == quads
