"""Views over several graphs: what counts as a change, what wakes a view, and that none of them keeps anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

import wukongs
from tests.unit.incremental.followed import Followed, Row
from wukongs.incremental.interests import Interests
from wukongs.incremental.versions import Change
from wukongs.store.batch_set import BatchSet

A, B, C = (f"<http://e/{name}>" for name in "abc")
TRIPLE, OTHER = "<http://e/s> <http://e/p> <http://e/o>", "<http://e/s> <http://e/q> <http://e/o>"
MERGED = f"SELECT * FROM {A} FROM {B} {{ ?s ?p ?o }}"
ROW: Row = ("<http://e/s>", "<http://e/p>", "<http://e/o>")


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine() as engine:
        yield engine


def insert(engine: wukongs.Engine, graph: str, triple: str = TRIPLE) -> None:
    engine.update(f"INSERT DATA {{ GRAPH {graph} {{ {triple} }} }}")


def delete(engine: wukongs.Engine, graph: str, triple: str = TRIPLE) -> None:
    engine.update(f"DELETE DATA {{ GRAPH {graph} {{ {triple} }} }}")


def by_columns(followed: Followed, report: Counter[Row]) -> Counter[tuple[str | None, ...]]:
    """Return a report with its columns in the order s, p, o."""
    places = [[variable.name for variable in followed.view.variables].index(name) for name in "spo"]
    return Counter({tuple(row[at] for at in places): weight for row, weight in report.items()})


def test_a_triple_of_two_merged_graphs_is_inserted_with_the_first_and_deleted_with_the_last(
    engine: wukongs.Engine,
) -> None:
    followed = Followed(engine, MERGED)
    insert(engine, A)
    assert by_columns(followed, followed.advance()) == {ROW: 1}
    insert(engine, B)
    assert followed.advance() == {}
    delete(engine, A)
    assert followed.advance() == {}
    delete(engine, B)
    assert by_columns(followed, followed.advance()) == {ROW: -1}
    followed.close()


def test_a_triple_that_moves_between_merged_graphs_changes_nothing(engine: wukongs.Engine) -> None:
    insert(engine, A)
    followed = Followed(engine, MERGED)
    engine.update(f"DELETE DATA {{ GRAPH {A} {{ {TRIPLE} }} }} ; INSERT DATA {{ GRAPH {B} {{ {TRIPLE} }} }}")
    assert followed.advance() == {}
    assert by_columns(followed, followed.content) == {ROW: 1}
    followed.close()


def test_a_graph_exists_while_it_has_a_triple(engine: wukongs.Engine) -> None:
    followed = Followed(engine, "SELECT ?g { GRAPH ?g {} }")
    insert(engine, A)
    assert followed.advance() == {("<http://e/a>",): 1}
    insert(engine, A, OTHER)
    delete(engine, A)
    engine.update(f"INSERT DATA {{ {TRIPLE} }}")
    assert followed.advance() == {}
    delete(engine, A, OTHER)
    insert(engine, B)
    assert followed.advance() == {("<http://e/a>",): -1, ("<http://e/b>",): 1}
    followed.close()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT * { GRAPH ?g { ?s <http://e/p> ?o . ?o ?q ?x } }", "delta join (named graphs)"),
        (f"SELECT * FROM NAMED {A} FROM NAMED {B} {{ GRAPH ?g {{ ?s ?p ?o }} }}", "delta join (named graphs)"),
        (MERGED, "delta join (merged graphs)"),
        (f"SELECT * FROM <urn:x-wukongs:default> FROM {A} {{ ?s ?p ?o }}", "delta join (merged graphs)"),
        ("SELECT * FROM <urn:x-wukongs:inferred> { ?s ?p ?o }", "delta join"),
        ("SELECT * FROM <urn:x-wukongs:explicit> { ?s ?p ?o }", "delta join"),
        (
            f"SELECT * FROM {A} FROM {B} FROM NAMED {C} {{ ?s ?p ?o . GRAPH ?g {{ ?o ?q ?x }} }}",
            "delta join (named and merged graphs)",
        ),
        ("SELECT * { GRAPH ?g {} }", "graph names"),
        (f"SELECT * {{ GRAPH {A} {{}} }}", "graph names"),
        (f"SELECT * FROM NAMED {A} {{ GRAPH ?g {{}} }}", "constant"),
        ("SELECT * { GRAPH ?g { SELECT (COUNT(*) AS ?n) { ?s ?p ?o } } }", "per graph"),
        ("SELECT * { GRAPH ?g { SELECT ?s { ?s <http://e/p>+ ?o } ORDER BY ?s LIMIT 1 } }", "per graph"),
    ],
)
def test_views_over_graphs_have_a_rule_and_keep_nothing(engine: wukongs.Engine, text: str, kind: str) -> None:
    insert(engine, A)
    view = engine.register(f"REGISTER QUERY v AS {text}")
    engine.settle()
    insert(engine, B)
    engine.settle()
    assert view.explain().splitlines()[-1].strip() == kind
    assert view.stats()["kept_bytes"] == 0


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("?x :p ?y OPTIONAL { ?y :p ?z FILTER EXISTS { ?z :q ?x } }", "flag (with exists)"),
        ("{ SELECT ?x (SUM(IF(EXISTS { ?x :q ?z }, 1, 2)) AS ?n) { ?x :p ?y } GROUP BY ?x }", "exists"),
        ("{ SELECT ?x { ?x :p ?y } ORDER BY (EXISTS { ?x :q ?z }) LIMIT 2 }", "exists"),
        ("<< ?x :p ?y >> :q ?z", "delta join"),
        (f"GRAPH ?g {{ SELECT (COUNT(*) AS ?n) {{ ?x :p ?y . GRAPH {A} {{ ?y :q ?z }} }} }}", "per graph (and others)"),
        ("GRAPH ?g { :a :p+ ?y }", "search (from a constant)"),
    ],
)
def test_parts_that_were_evaluated_anew_have_a_rule(engine: wukongs.Engine, text: str, kind: str) -> None:
    view = engine.register(f"PREFIX : <http://e/> REGISTER QUERY v AS SELECT * {{ {text} }}")
    assert kind in [line.strip() for line in view.explain().splitlines()]


def test_a_pattern_of_any_graph_beside_one_of_a_named_graph(engine: wukongs.Engine) -> None:
    """A triple is inserted whose subject has the other pattern's triple for long."""
    insert(engine, A, OTHER)
    followed = Followed(engine, f"SELECT * {{ GRAPH ?g {{ ?s <http://e/p> ?o }} GRAPH {A} {{ ?s <http://e/q> ?x }} }}")
    insert(engine, B)
    assert followed.advance() == followed.asked()
    assert sum(followed.content.values()) == 1
    followed.close()


def test_the_parts_of_triple_terms_follow_what_binds_them(engine: wukongs.Engine) -> None:
    """The term is bound by a triple, or put together of its parts; and arguments give a part of it."""
    prologue, reifies = "PREFIX : <http://e/> ", "<http://www.w3.org/1999/02/22-rdf-syntax-ns#reifies>"
    parts = "?s :is ?p . ?o :is ?p . ?x :says <<( ?s :p ?o )>>"
    texts = ("<< ?s :p ?o >> :by ?x", parts, "?x ?says <<( ?s :p <<( ?s :q ?o )>> )>>")
    views = [Followed(engine, f"{prologue}SELECT * {{ {text} }}") for text in texts]
    given = Followed(engine, f"{prologue}SELECT * {{ {texts[0]} }}", ("s",))
    given.bind([("<http://e/a>",), ("<http://e/none>",)])
    followed = [*views, given]
    reports = 0
    for update in (
        f"INSERT DATA {{ :r {reifies} <<( :a :p :b )>> . :r :by :me . :you :says <<( :a :p :b )>> . :a :is 1 }}",
        "INSERT DATA { :b :is 1 . :you :says <<( :a :p <<( :a :q :b )>> )>> , <<( :a :p <<( :c :q :b )>> )>> }",
        "DELETE DATA { :r :by :me }",
        "DELETE DATA { :you :says <<( :a :p :b )>> , <<( :a :p <<( :a :q :b )>> )>> }",
    ):
        engine.update(prologue + update)
        for one in followed:
            reports += bool(one.advance())
            assert one.content == one.asked()
    assert reports == 2 * len(followed)
    for one in followed:
        one.close()


@pytest.mark.parametrize(
    ("text", "graphs"),
    [
        (MERGED, "ab"),
        (f"SELECT * FROM {C} {{ ?s <http://e/q> ?o }}", ""),
        ("SELECT * { GRAPH ?g { ?s ?p ?o } }", "abc"),
        (f"SELECT * FROM NAMED {A} FROM NAMED {C} {{ GRAPH ?g {{ ?s <http://e/p> ?o }} }}", "ac"),
        (f"SELECT * FROM NAMED {A} {{ GRAPH {B} {{ ?s ?p ?o }} }}", ""),
        (f"SELECT * FROM {A} {{ ?s <http://e/p>* ?o }}", "a"),
        ("SELECT * { GRAPH ?g { ?s <http://e/q>+ ?o } }", "abc"),
        (f"SELECT * FROM NAMED {A} {{ GRAPH ?g {{}} }}", ""),
        (f"SELECT * {{ GRAPH {B} {{}} }}", "b"),
        (f"SELECT * FROM NAMED {B} {{ GRAPH ?g {{ SELECT (COUNT(*) AS ?n) {{ ?s <http://e/p> ?o }} }} }}", "b"),
        ("SELECT * { ?s ?p ?o }", "-"),
    ],
)
def test_a_view_wakes_for_the_graphs_that_it_reads(engine: wukongs.Engine, text: str, graphs: str) -> None:
    followed = Followed(engine, text)
    reads, woken = Interests(followed.query.pattern, followed.view.evaluation), ""
    for name, graph in (("a", A), ("b", B), ("c", C), ("-", "<urn:x-wukongs:default>")):
        before = followed.view.stored
        insert(engine, graph)
        followed.advance()
        if reads(_between(before, followed.view.stored)):
            woken += name
    assert woken == graphs
    followed.close()


def _between(before: BatchSet, after: BatchSet) -> Change:
    return Change(before, after, BatchSet.of(after.batches[-1:], True), BatchSet.of((), True))


def test_a_view_for_some_graphs_reports_no_change_of_others(engine: wukongs.Engine) -> None:
    texts = (
        "SELECT * { ?s ?p ?o }",
        f"SELECT * {{ GRAPH {B} {{ ?s ?p ?o }} }}",
        f"SELECT * {{ GRAPH {B} {{}} }}",
        "SELECT ?g { GRAPH ?g { ?s ?p ?o } }",
        "SELECT ?g { GRAPH ?g {} }",
    )
    views = [
        engine.register(f"REGISTER QUERY v{at} AS {text}", graphs=["http://e/a"], snapshot=False)
        for at, text in enumerate(texts)
    ]
    engine.update(f"INSERT DATA {{ {TRIPLE} . GRAPH {A} {{ {TRIPLE} }} GRAPH {B} {{ {TRIPLE} }} }}")
    engine.settle()
    reported = [[row for report in view.results(timeout_s=0) for row in report.texts()] for view in views]
    assert reported == [[], [], [], [("<http://e/a>",)], [("<http://e/a>",)]]


def test_the_name_of_a_view_without_inferred_triples_is_reported(engine: wukongs.Engine) -> None:
    text = "REGISTER QUERY v AS SELECT ?g FROM NAMED <urn:x-wukongs:explicit> { GRAPH ?g { ?s ?p ?o } }"
    engine.update(f"INSERT DATA {{ {TRIPLE} }}")
    view = engine.register(text)
    reported = [[*report.texts()] for report in view.results(timeout_s=0)]
    engine.update(f"INSERT DATA {{ {OTHER} }}")
    engine.settle()
    reported += [[*report.texts()] for report in view.results(timeout_s=0)]
    assert reported == [[("<urn:x-wukongs:explicit>",)]] * 2
