"""An engine as it is for a token with some graphs: as if only these had been loaded, for queries and for updates."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wukongs
from tests import strategies as make
from tests.differential.scenario import compare_one_shot
from tests.differential.test_updates import dataset_of
from tests.fuzz import fuzzed
from tests.oracles.query_ast import Query
from tests.oracles.rdf import Term, iri, nquad
from tests.oracles.update_ast import Modify, Operation, Quads
from tests.oracles.values import Undefined
from tests.update_requests import GRAPHS, REQUESTS, canonical, outcome, request_text, stored
from wukongs.errors import AccessError, UpdateError
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI

QUADS = st.lists(st.tuples(st.sampled_from([None, *GRAPHS]), make.triples(blank=False)), max_size=16).map(set)
SEEN = st.sets(st.sampled_from([None, *GRAPHS]), max_size=3)
DECLARED = st.lists(st.sampled_from(GRAPHS), max_size=2, unique=True)


def loaded(engine: wukongs.Engine, quads: Quads) -> None:
    engine.load(io.BytesIO("".join(nquad(triple, graph) for graph, triple in quads).encode()), format="nq")


def seeing(engine: wukongs.Engine, seen: set[Term | None]) -> wukongs.Engine:
    return engine._seeing([DEFAULT_GRAPH_IRI if graph is None else graph.value for graph in seen])


@fuzzed(40)
@given(QUADS, SEEN, st.lists(make.queries(named=tuple(GRAPHS)), min_size=3, max_size=6))
def test_queries_read_the_graphs_of_the_list_alone(quads: Quads, seen: set[Term | None], queries: list[Query]) -> None:
    held = {quad for quad in quads if quad[0] in seen}
    with wukongs.Engine() as engine:
        loaded(engine, quads)
        view = seeing(engine, seen)
        assert view.graph_names() == sorted({graph.value for graph, _ in held if graph is not None})
        for query in queries:
            compare_one_shot(view.query(query.text()), dataset_of(held), query, query.text())


@fuzzed(30)
@given(QUADS, SEEN, DECLARED, DECLARED, st.lists(make.queries(named=tuple(GRAPHS)), min_size=3, max_size=6))
def test_a_dataset_that_a_query_gives_has_the_graphs_of_the_list_alone(
    quads: Quads, seen: set[Term | None], default: list[Term], named: list[Term], queries: list[Query]
) -> None:
    """Another engine has the same graphs of the list, and is asked the same with the same dataset."""
    graphs = {"default_graphs": [one.value for one in default], "named_graphs": [one.value for one in named]}
    with wukongs.Engine() as engine, wukongs.Engine() as alone:
        loaded(engine, quads)
        loaded(alone, {quad for quad in quads if quad[0] in seen})
        view = seeing(engine, seen)
        for query in queries:
            text = query.text()
            if "GRAPH" in text and not seen.issuperset(named):
                continue  # the name of a graph of FROM NAMED is there for GRAPH ?g {}, unless it is hidden
            found, expected = view.query(text, **graphs), alone.query(text, **graphs)
            assert found.boolean == expected.boolean
            if query.kind != "construct" and "LIMIT" not in text and "OFFSET" not in text:
                assert sorted(map(str, found.texts())) == sorted(map(str, expected.texts())), text


def names_hidden(request: list[Operation], seen: set[Term | None]) -> bool:
    """Whether a request may write a graph that is not on the list: it names one, or the variable of one."""
    text = request_text(request)
    of_variables = any(isinstance(one, Modify) for one in request)
    return None not in seen or of_variables or any(str(graph.value) in text for graph in {*GRAPHS} - seen)


@fuzzed(60)
@given(QUADS, SEEN, REQUESTS)
def test_updates_read_and_write_the_graphs_of_the_list_alone(
    quads: Quads, seen: set[Term | None], requests: list[list[Operation]]
) -> None:
    hidden = {quad for quad in quads if quad[0] not in seen}
    held = quads - hidden
    with wukongs.Engine() as engine:
        loaded(engine, quads)
        view = seeing(engine, seen)
        for request in requests:
            try:
                expected, _ = outcome(held, request)
            except Undefined:
                return
            try:
                view.update(request_text(request))
            except AccessError:
                assert names_hidden(request, seen), request_text(request)
            except UpdateError:
                assert expected is None, request_text(request)
            else:
                assert expected is not None, request_text(request)
                assert canonical(stored(view)) == canonical(expected), request_text(request)
                held = stored(view)
            now = stored(engine)
            assert canonical({quad for quad in now if quad[0] not in seen}) == canonical(hidden), request_text(request)
            assert canonical({quad for quad in now if quad[0] in seen}) == canonical(held), request_text(request)


A, B, NEW = "<http://ex/a>", "<http://ex/b>", "<http://ex/new>"
FILLED = """PREFIX : <http://ex/>
INSERT DATA { :s :p 'default' . GRAPH :a { :s :p 'a' } GRAPH :b { :s :p 'secret' . :b :q :c } }"""


@pytest.fixture(scope="module")
def engine() -> wukongs.Engine:
    return wukongs.Engine()


@pytest.fixture
def filled(engine: wukongs.Engine) -> wukongs.Engine:
    engine.update(f"DROP ALL; {FILLED}")
    return engine


@pytest.mark.parametrize(
    "update",
    [
        f"COPY {B} TO {A}",
        f"ADD SILENT {B} TO {A}",
        f"MOVE SILENT {B} TO {A}",
        f"MOVE {A} TO {B}",
        "COPY <urn:x-wukongs:explicit:http://ex/b> TO <http://ex/a>",
        "ADD SILENT <urn:x-wukongs:inferred:http://ex/b> TO <http://ex/a>",
        f"INSERT {{ GRAPH {A} {{ ?s ?p ?o }} }} USING {B} WHERE {{ ?s ?p ?o }}",
        f"INSERT {{ GRAPH {A} {{ ?s ?p ?o }} }} USING NAMED {B} WHERE {{ GRAPH ?g {{ ?s ?p ?o }} }}",
        f"WITH {B} INSERT {{ GRAPH {A} {{ ?s ?p ?o }} }} WHERE {{ ?s ?p ?o }}",
        f"WITH {B} DELETE {{ ?s ?p ?o }} WHERE {{ ?s ?p ?o }}",
        f"INSERT {{ GRAPH {A} {{ ?s ?p ?o }} }} WHERE {{ GRAPH {B} {{ ?s ?p ?o }} }}",
        f"INSERT {{ GRAPH {A} {{ ?s {NEW} ?o }} }} WHERE {{ GRAPH {B} {{ ?s (<http://ex/q>|!<http://ex/q>)+ ?o }} }}",
        f"INSERT {{ GRAPH {A} {{ <http://ex/x> ?p 1 }} }} WHERE {{ {{ SELECT ?p {{ GRAPH {B} {{ ?s ?p ?o }} }} }} }}",
        f"INSERT {{ GRAPH {A} {{ {NEW} {NEW} 1 }} }} WHERE {{ FILTER EXISTS {{ GRAPH {B} {{ ?s ?p ?o }} }} }}",
        "DELETE WHERE { GRAPH ?g { ?s ?p 'secret' } }",
        f"DELETE DATA {{ GRAPH {B} {{ <http://ex/s> <http://ex/p> 'secret' }} }}",
        f"CLEAR SILENT GRAPH {B}",
        f"DROP GRAPH {B}",
        f"CREATE GRAPH {B}",
        f"CREATE SILENT GRAPH {NEW}",
        "CLEAR DEFAULT",
        "CLEAR SILENT DEFAULT; DROP SILENT NAMED",
    ],
)
def test_no_update_brings_or_takes_what_is_hidden(filled: wukongs.Engine, update: str) -> None:
    view, before = filled._seeing(["http://ex/a"]), stored(filled)
    try:
        view.update(update)
    except (AccessError, UpdateError):
        assert stored(filled) == before
    now = stored(filled)
    a = iri("http://ex/a")
    assert {quad for quad in now if quad[0] != a} == {quad for quad in before if quad[0] != a}
    assert {triple for graph, triple in now if graph == a} <= {triple for graph, triple in before if graph == a}


@pytest.mark.parametrize(
    "query",
    [
        "ASK { ?s ?p 'secret' }",
        "ASK { GRAPH ?g { ?s ?p 'secret' } }",
        f"ASK FROM {B} {{ ?s ?p ?o }}",
        f"ASK FROM NAMED {B} {{ GRAPH ?g {{ ?s ?p ?o }} }}",
        f"ASK FROM {A} FROM NAMED {B} {{ GRAPH {B} {{ ?s ?p ?o }} }}",
        "ASK FROM <urn:x-wukongs:explicit:http://ex/b> { ?s ?p ?o }",
        "ASK { GRAPH <urn:x-wukongs:explicit:http://ex/b> { ?s ?p ?o } }",
        "ASK { GRAPH <urn:x-wukongs:explicit> { ?s ?p ?o } }",
        "ASK { GRAPH <urn:x-wukongs:default> { ?s ?p ?o } }",
        "ASK { GRAPH <urn:x-wukongs:default> {} }",
        f"ASK {{ GRAPH {B} {{}} }}",
        "ASK { GRAPH ?g {} FILTER(?g != <http://ex/a>) }",
        f"ASK {{ GRAPH {B} {{ <http://ex/b> <http://ex/q>+ ?x }} }}",
        "ASK { GRAPH ?g { <http://ex/b> <http://ex/q>* <http://ex/c> } }",
        "ASK { GRAPH ?g { <http://ex/b> !<http://ex/p> ?x } }",
        "ASK { { SELECT ?s { GRAPH ?g { ?s <http://ex/q> ?o } } } }",
        f"ASK {{ FILTER EXISTS {{ GRAPH {B} {{ ?s ?p ?o }} }} }}",
        "ASK { GRAPH ?g { { SELECT (COUNT(*) AS ?n) { ?s ?p ?o } } FILTER(?n > 1) } }",
        "ASK { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } FILTER(?o = 'secret' || ?o = 'default') }",
        f"ASK {{ VALUES ?g {{ {B} }} GRAPH ?g {{ ?s ?p ?o }} }}",
    ],
)
def test_no_query_sees_what_is_hidden(filled: wukongs.Engine, query: str) -> None:
    assert not filled._seeing(["http://ex/a"]).query(query)
    assert not filled._seeing([]).query(query)
    with wukongs.Engine() as alone:
        alone.update("INSERT DATA { GRAPH <http://ex/a> { <http://ex/s> <http://ex/p> 'a' } }")
        view = filled._seeing(["http://ex/a"])
        for text in ("SELECT * { GRAPH ?g { ?s ?p ?o } }", "SELECT (COUNT(*) AS ?n) { GRAPH ?g { ?s ?p ?o } }"):
            assert view.explain(text) == alone.explain(text)  # nor are their estimates those of all


def test_descriptions_dumps_names_and_warnings(filled: wukongs.Engine, tmp_path: Path) -> None:
    view = filled._seeing(["http://ex/a"])
    described = view.query("DESCRIBE <http://ex/s> <http://ex/b>").texts()
    assert described == [("<http://ex/s>", "<http://ex/p>", '"a"')]
    assert view.graph_names() == ["http://ex/a"]
    for read in (lambda: view.graph("http://ex/b"), view.graph, lambda: view.dump(f"{tmp_path}/b.nt", "http://ex/b")):
        with pytest.raises(AccessError, match="may not read"):
            read()
    wanted = "SELECT * { GRAPH <http://ex/bb> { ?s <http://ex/qq> ?o } }"
    assert "there is no graph" in str(filled.warnings(wanted))
    assert view.warnings(wanted) == ()
    assert view.prepare("SELECT ?o { GRAPH ?g { ?s ?p ?o } }")(p="<http://ex/p>").texts() == [('"a"',)]
    many = view.prepare("SELECT ?o { GRAPH ?g { ?s ?p ?o } }").many([{"s": "<http://ex/s>"}, {"s": "<http://ex/b>"}])
    assert many.to_pylist() == [{"argument": 0, "o": '"a"'}]


@pytest.mark.parametrize("format", ["nq", "trig"])
def test_what_is_loaded_has_the_graphs_of_the_list(filled: wukongs.Engine, format: str) -> None:
    view, before = filled._seeing(["http://ex/a"]), stored(filled)
    triple = '<http://ex/n> <http://ex/p> "1"'
    in_b, in_a, in_default = (
        f"{graph} {{ {triple} }}" if format == "trig" else f"{triple} {graph} ." for graph in (B, A, "")
    )
    for text in (in_b, f"{in_a}\n{in_b}", in_default):
        with pytest.raises(AccessError, match="may not write"):
            view.load(io.BytesIO(text.encode()), format=format)
        assert stored(filled) == before
    view.load(io.BytesIO(in_a.encode()), format=format)
    view.load(io.BytesIO(in_default.encode()), "http://ex/a", format=format)
    assert len(stored(filled)) == len(before) + 1
    columns = {"subject": ["<http://ex/n>"], "predicate": ["<http://ex/p>"], "object": ['"2"'], "graph": [B]}
    import pyarrow

    with pytest.raises(AccessError, match="may not write <http://ex/b>"):
        view.apply(pyarrow.table(columns))
    for graph in (B, NEW):  # whether it is there or not
        with pytest.raises(AccessError, match="may not write <http://ex/"):
            view.apply(deletes=pyarrow.table(columns | {"graph": [graph]}))
    with pytest.raises(AccessError, match="may not write the default graph"):
        view.apply(deletes=pyarrow.table({name: columns[name] for name in ("subject", "predicate", "object")}))


RULE = """PREFIX : <http://ex/>
RULE leak: CONSTRUCT { ?s :leaked ?o } WHERE { GRAPH :b { ?s :p ?o } }
"""


def test_what_rules_conclude_is_seen_with_all_that_they_read() -> None:
    with wukongs.Engine() as engine:
        engine.update(FILLED)
        view, both = engine._seeing(["http://ex/a"]), engine._seeing(["http://ex/a", "http://ex/b"])
        with pytest.raises(AccessError, match="may not use in a rule <http://ex/b>"):
            view.add_rules(RULE, into="http://ex/a")
        both.add_rules(RULE, into="http://ex/a")
        asked = "SELECT ?o { GRAPH ?g { ?s <http://ex/leaked> ?o } }"
        assert both.query(asked).texts() == [('"secret"',)]
        assert view.query(asked).texts() == []
        assert view.query("ASK { GRAPH <http://ex/a> { ?s ?p ?o } }").boolean is False  # the graph as a whole
        assert view.rules() == []
        with pytest.raises(wukongs.RuleError):
            view.drop_rules("leak")
        assert [rule.name for rule in both.rules()] == ["leak"]
        triple = ["<http://ex/s>", "<http://ex/leaked>", '"secret"']
        assert both.why(triple, "http://ex/a") is not None
        with pytest.raises(AccessError):
            view.why(triple, "http://ex/a")
        both.drop_rules("leak")
        assert view.query("ASK { GRAPH <http://ex/a> { ?s ?p ?o } }").boolean is True
        engine.add_rules(
            "PREFIX : <http://ex/>\nRULE own: CONSTRUCT { ?s :own ?o } WHERE { ?s :p ?o }", into="http://ex/a"
        )
        assert view.query("SELECT ?o { GRAPH ?g { ?s <http://ex/own> ?o } }").texts() == [('"a"',)]
        assert [rule.name for rule in view.rules()] == ["own"]


def test_no_rule_brings_into_a_query_what_it_may_not_read() -> None:
    registered = (
        "REGISTER QUERY q AS SELECT ?o FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] FROM <http://ex/a> { ?s ?p ?o }"
    )
    with wukongs.Engine() as engine:
        engine.stream("http://ex/s", batch_ms=1000, timing=True)
        query = engine._seeing(["http://ex/a", "http://ex/s"]).register(registered)
        with pytest.raises(
            wukongs.RuleError, match=r"query q, which is registered for http://ex/a, http://ex/s.*close"
        ):
            engine.add_rules(RULE, into="http://ex/a")
        engine.add_rules(RULE, into="http://ex/other")
        query.close()
        engine.add_rules(RULE.replace("leak", "again"), into="http://ex/a")
        assert engine._seeing(["http://ex/a", "http://ex/s"]).register(registered).source.only == ("http://ex/s",)


def test_a_query_keeps_its_graphs_in_a_data_folder(tmp_path: Path) -> None:
    text = "REGISTER QUERY q AS SELECT ?o FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] FROM NAMED <http://ex/a> "
    text += "FROM NAMED <http://ex/b> { ?s ?p ?x . GRAPH ?g { ?y <http://ex/p> ?o } }"
    only = ["http://ex/a", "http://ex/s"]
    with wukongs.Engine(tmp_path / "db") as engine:
        engine.update(FILLED)
        engine.stream("http://ex/s", batch_ms=1000, timing=True)
        engine._seeing(only).register(text)
        engine.checkpoint()
    for number in (1, 2):  # from the log, then from a checkpoint with a text in the place of the first
        with wukongs.Engine(tmp_path / "db") as engine:
            (query,) = engine._seeing(only).queries()
            assert engine._seeing(["http://ex/a"]).queries() == []
            stream = engine.stream("http://ex/s", batch_ms=1000, timing=True)
            stream.push([("<http://ex/x>", "<http://ex/p>", "<http://ex/y>", number * 1000 - 500)])
            stream.advance(number * 1000)
            assert [window.texts() for window in query.results(timeout_s=1)][-1] == [('"a"',)]
            query.replace(text + " ")
            engine.checkpoint()


def test_why_a_query_waits_names_nothing_that_is_hidden() -> None:
    text = "REGISTER QUERY {} AS SELECT ?o FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] FROM <http://ex/a> "
    text += "{{ ?s <http://ex/p> ?o . ?o <http://ex/new> ?x }}"
    with wukongs.Engine() as engine:
        engine.update(FILLED)
        stream = engine.stream("http://ex/s", batch_ms=1000, timing=True)
        hidden = engine.stream("http://ex/hidden", batch_ms=1000, timing=True)
        some = engine._seeing(["http://ex/a", "http://ex/s"]).register(text.format("some"))
        whole = engine.register(text.format("whole"))
        hidden.push([("<http://ex/x>", "<http://ex/p>", "<http://ex/y>", 100)])
        stream.push([("<http://ex/x>", "<http://ex/p>", "<http://ex/y>", 100)])
        stream.advance(5000)
        assert "http://ex/hidden (closed up to" in whole.why()
        assert "http://ex/hidden" not in some.why()
        assert "for another stream (closed up to" in some.why()
        hidden.advance(5000)
        engine.settle(60)
        told = some.why()
        assert "no data has predicate <http://ex/new>" in whole.why()
        engine.update("INSERT DATA { GRAPH <http://ex/b> { <http://ex/x> <http://ex/new> 1 } }")
        assert "no data has predicate" not in whole.why()
        assert some.why() == told
