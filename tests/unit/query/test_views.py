"""Views of a graph: what rules have inferred in it, and the graph without that; hidden graphs are never seen otherwise.

The same queries are asked of an engine that has the views as ordinary graphs, under other names."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.inferred import Triple, infer
from wukongs import Engine

G = "http://ex/g"
VIEWS = {
    "urn:x-wukongs:inferred:http://ex/g": "http://view/inferred-g",
    "urn:x-wukongs:explicit:http://ex/g": "http://view/explicit-g",
    "urn:x-wukongs:inferred": "http://view/inferred",
    "urn:x-wukongs:explicit": "http://view/explicit",
}
CLAUSES = [
    "FROM <urn:x-wukongs:inferred>",
    "FROM <urn:x-wukongs:explicit>",
    "FROM <urn:x-wukongs:inferred> FROM <urn:x-wukongs:explicit>",
    "FROM <urn:x-wukongs:explicit> FROM <urn:x-wukongs:default>",
    "FROM <urn:x-wukongs:inferred:http://ex/g> FROM <http://ex/g2>",
    "FROM <urn:x-wukongs:explicit:http://ex/g> FROM NAMED <urn:x-wukongs:explicit> FROM NAMED <http://ex/g>",
    "FROM <urn:x-wukongs:default> FROM NAMED <urn:x-wukongs:inferred> FROM NAMED <urn:x-wukongs:inferred:http://ex/g>",
    "FROM NAMED <urn:x-wukongs:inferred:http://ex/nowhere> FROM NAMED <urn:x-wukongs:explicit:http://ex/g>",
]
PATTERNS = [
    "{ ?s ?p ?o }",
    "{ ?s :p ?o }",
    "{ :v1 ?p ?o }",
    "{ ?s ?p :v2 }",
    "{ :v1 :p ?o . ?o :q ?x }",
    "{ ?s :p ?o FILTER NOT EXISTS { ?o :q ?s } }",
    "{ ?s :p+ ?o }",
    "{ :v1 (:p|^:q)* ?o }",
    "{ GRAPH ?g { ?s ?p ?o } }",
    "{ GRAPH ?g { :v1 ?p ?o } }",
    "{ GRAPH ?g { :v1 :p ?o } }",
    "{ GRAPH ?g { ?s :p ?o . ?o :q ?x } }",
    "{ GRAPH ?g { ?s :p+ ?o } }",
    "{ GRAPH ?g { :v1 :p? ?o } }",
    "{ GRAPH ?g {} }",
    "{ ?s :p ?o GRAPH ?g { ?o ?p ?x } }",
    "{ GRAPH <urn:x-wukongs:inferred> { ?s ?p ?o } }",
    "{ GRAPH <urn:x-wukongs:explicit> { ?s ?p ?o } }",
    "{ GRAPH <urn:x-wukongs:explicit:http://ex/g> { :v1 :p ?o } }",
    "{ GRAPH <urn:x-wukongs:explicit:http://ex/g> {} }",
    "{ GRAPH <urn:x-wukongs:inferred:http://ex/g> {} }",
    "{ GRAPH <urn:x-wukongs:inferred:http://ex/nowhere> {} }",
    "{ GRAPH <urn:x-wukongs:inferred:http://ex/nowhere> { ?s ?p ?o } }",
    "{ GRAPH <urn:x-wukongs:inferred:http://ex/g> { ?s :p* ?o } }",
]


def _triples(rng: random.Random, count: int) -> set[Triple]:
    nodes = [f"<http://ex/v{n}>" for n in range(9)]
    return {(rng.choice(nodes), f"<http://ex/{rng.choice('pq')}>", rng.choice([*nodes, '"1"'])) for _ in range(count)}


def _data(triples: Iterable[Triple], graph: str | None) -> str:
    text = " . ".join(map(" ".join, sorted(triples)))
    return f"{{ {text} }}" if graph is None else f"{{ GRAPH <{graph}> {{ {text} }} }}"


@pytest.fixture(scope="module", params=[1, 2])
def engines(request: pytest.FixtureRequest) -> Iterator[tuple[Engine, Engine, Engine]]:
    """One with hidden graphs after some changes; one with the views as graphs; one without any."""
    rng = random.Random(request.param)
    with Engine() as engine, Engine() as with_views, Engine() as bare:
        stated: dict[str | None, set[Triple]] = {None: set(), G: set()}
        inferred: dict[str | None, set[Triple]] = {None: set(), G: set()}
        for at in range(6):
            for graph in (None, G):
                more = _triples(rng, 12) - inferred[graph]
                engine.update(f"INSERT DATA {_data(more, graph)}")
                stated[graph] |= more
                lost = set(rng.sample(sorted(stated[graph]), 4))
                engine.update(f"DELETE DATA {_data(lost, graph)}")
                stated[graph] -= lost
                come = _triples(rng, 12) - stated[graph] - inferred[graph]
                gone = set(rng.sample(sorted(inferred[graph]), min(at, len(inferred[graph]))))
                infer(engine, come, gone, graph)
                inferred[graph] = inferred[graph] - gone | come
            if at == 3:
                engine._core.arrangement.trace.merge_all()
        others = _data(_triples(rng, 9), "http://ex/g2")
        for one in (with_views, bare):
            for graph in (None, G):
                one.update(f"INSERT DATA {_data(stated[graph] | inferred[graph], graph)}")
        for one in (engine, with_views, bare):
            one.update(f"INSERT DATA {others}")
        for name, triples in zip(VIEWS.values(), (inferred[G], stated[G], inferred[None], stated[None]), strict=True):
            with_views.update(f"INSERT DATA {_data(triples, name)}")
        yield engine, with_views, bare


def _rows(engine: Engine, query: str, is_renamed: bool = False) -> Counter[tuple[str | None, ...]]:
    if is_renamed:
        for view, name in VIEWS.items():
            query = query.replace(f"<{view}>", f"<{name}>")
    found = Counter(engine.query(f"PREFIX : <http://ex/> {query}").texts())
    back = {f"<{name}>": f"<{view}>" for view, name in VIEWS.items()}
    return Counter({tuple(back.get(cell or "", cell) for cell in row): count for row, count in found.items()})


@pytest.mark.parametrize("pattern", PATTERNS)
def test_views_in_a_clause_are_read_as_graphs(engines: tuple[Engine, Engine, Engine], pattern: str) -> None:
    engine, with_views, _ = engines
    for clause in CLAUSES:
        query = f"SELECT * {clause} WHERE {pattern}"
        assert _rows(engine, query) == _rows(with_views, query, is_renamed=True), query


@pytest.mark.parametrize("pattern", PATTERNS)
def test_without_a_clause_views_are_read_by_their_names_only(
    engines: tuple[Engine, Engine, Engine], pattern: str
) -> None:
    engine, with_views, bare = engines
    query = f"SELECT * WHERE {pattern}"
    names_view = "x-wukongs" in pattern
    assert _rows(engine, query) == _rows(with_views if names_view else bare, query, is_renamed=names_view)


@pytest.mark.parametrize(
    "text", ["SELECT ?o { ?s :p ?o }", "SELECT ?o { GRAPH <urn:x-wukongs:explicit> { ?s :p ?o } }"]
)
def test_a_prepared_query_reads_views(engines: tuple[Engine, Engine, Engine], text: str) -> None:
    engine, with_views, _ = engines
    clause = "" if "GRAPH" in text else "FROM <urn:x-wukongs:explicit> "
    text = "PREFIX : <http://ex/> " + text.replace(" {", f" {clause}{{", 1)
    renamed = text.replace("urn:x-wukongs:explicit", VIEWS["urn:x-wukongs:explicit"])
    for node in range(9):
        bindings = {"s": f"<http://ex/v{node}>"}
        found, expected = engine.query(text, bindings).texts(), with_views.query(renamed, bindings).texts()
        assert sorted(map(str, found)) == sorted(map(str, expected))


def test_other_forms_read_views(engines: tuple[Engine, Engine, Engine]) -> None:
    engine, with_views, _ = engines
    assert len(engine.query("CONSTRUCT { ?s ?p ?o } FROM <urn:x-wukongs:explicit> { ?s ?p ?o }")) == len(
        with_views.query("CONSTRUCT { ?s ?p ?o } FROM <http://view/explicit> { ?s ?p ?o }")
    )
    described = "DESCRIBE <http://ex/v1> FROM <{}>"
    assert Counter(engine.query(described.format("urn:x-wukongs:explicit:http://ex/g")).texts()) == Counter(
        with_views.query(described.format("http://view/explicit-g")).texts()
    )
    assert not engine.query("ASK FROM <urn:x-wukongs:inferred:http://ex/g2> { ?s ?p ?o }")
    query = "SELECT * { ?s ?p ?o }"
    by_list = engine.query(query, default_graphs=["urn:x-wukongs:explicit"])
    assert Counter(by_list.texts()) == Counter(with_views.query(query, default_graphs=["http://view/explicit"]).texts())


def test_hidden_graphs_have_no_names(engines: tuple[Engine, Engine, Engine]) -> None:
    engine, with_views, bare = engines
    assert engine.graph_names() == bare.graph_names()
    assert engine.stats()["stored_triples"] == bare.stats()["stored_triples"]
    for view, name in VIEWS.items():
        assert len(engine.graph(view)) == len(with_views.graph(name)) > 0
        assert engine.warnings(f"SELECT * {{ GRAPH <{view}> {{ ?s <http://ex/p> ?o }} }}") == ()
    assert len(engine.warnings("SELECT * { GRAPH <http://ex/nowhere> { ?s <http://ex/p> ?o } }")) == 1


def test_a_view_is_read_as_of_its_snapshot() -> None:
    a, b = ("<http://ex/a>", "<http://ex/p>", "<http://ex/b>"), ("<http://ex/a>", "<http://ex/p>", "<http://ex/c>")
    query = "SELECT ?o FROM <urn:x-wukongs:explicit> { ?s ?p ?o }"
    with Engine() as engine:
        first = engine.update(f"INSERT DATA {_data([a, b], None)}")
        with engine._core.arrangement.open(first, "test"):
            engine.update(f"DELETE DATA {_data([b], None)}")
            infer(engine, come=[b])
            assert engine.query(query).texts() == [("<http://ex/b>",)]
            assert len(engine.query(query, at=first)) == 2
            infer(engine, gone=[b])
            engine.update(f"INSERT DATA {_data([b], None)}")
            assert len(engine.query(query)) == 2


def test_a_folder_keeps_hidden_graphs_and_restore_takes_what_was_stated(tmp_path: Path) -> None:
    triple = ("<http://ex/a>", "<http://ex/p>", "<http://ex/b>")
    with Engine(data_dir=tmp_path) as engine:
        engine.update("INSERT DATA { <http://ex/c> <http://ex/p> <http://ex/b> }")
        infer(engine, come=[triple])
        engine.checkpoint()
    with Engine(data_dir=tmp_path) as engine:
        assert len(engine.query("SELECT * { ?s ?p ?o }")) == 2
        assert len(engine.query("SELECT * FROM <urn:x-wukongs:inferred> { ?s ?p ?o }")) == 1
        assert len(engine.query("SELECT * FROM <urn:x-wukongs:explicit> { ?s ?p ?o }")) == 1
    with Engine() as other:
        other.restore(tmp_path)
        assert len(other.query("SELECT * { ?s ?p ?o }")) == 1, "rules have to infer the rest again"
