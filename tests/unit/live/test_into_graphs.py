"""register(into=) a stored graph: a CONSTRUCT that is a rule."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wukongs

EX = "PREFIX : <http://ex/> "
G = "http://ex/g"
Triple = tuple[str | None, ...]
Facts = set[tuple[str, str, str]]


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine() as found:
        found.update(EX + "INSERT DATA { :a :p :b . :b :p :c }")
        yield found


def register(engine: wukongs.Engine, text: str, into: str = G, name: str = "q", **options: Any) -> Any:
    return engine.register(f"{EX}REGISTER QUERY {name} AS {text}", into=into, **options)


def graph(engine: wukongs.Engine, name: str | None = G) -> set[Triple]:
    pattern = "?s ?p ?o" if name is None else f"GRAPH <{name}> {{ ?s ?p ?o }}"
    found = engine.query(f"SELECT ?s ?p ?o WHERE {{ {pattern} }}").texts()
    assert len(set(found)) == len(found)
    return {tuple(cell and cell.replace("http://ex/", "")[1:-1] for cell in row) for row in found}


# --- the graph has what the text says of other graphs -----------------------------------------------------------------


def _pairs(facts: Facts, own: Facts) -> Facts:
    return {(x, "far", z) for x, p, y in facts if p == "p" for u, q, z in facts if u == y and q == "p"}


def _not_bad(facts: Facts, own: Facts) -> Facts:
    bad = {x for x, p, _ in facts if p == "q"}
    return {(x, "good", y) for x, p, y in facts if p == "p" and x not in bad}


def _closure(facts: Facts, own: Facts) -> Facts:
    found = {(x, "reach", y) for x, p, y in facts if p == "p"}
    while True:
        more = found | {(x, "reach", z) for x, _, y in found for u, p, z in facts if u == y and p == "p"}
        if more == found:
            return found
        found = more


def _own(facts: Facts, own: Facts) -> Facts:
    return {(x, "both", y) for x, p, y in facts if p == "p" and (x, "p", y) in own}


CASES: list[tuple[str, Callable[[Facts, Facts], Facts]]] = [
    ("CONSTRUCT { ?x :far ?z } WHERE { ?x :p ?y . ?y :p ?z }", _pairs),
    ("CONSTRUCT { ?x :good ?y } WHERE { ?x :p ?y FILTER NOT EXISTS { ?x :q ?w } }", _not_bad),
    ("CONSTRUCT { ?x :both ?y } WHERE { ?x :p ?y GRAPH :g { ?x :p ?y } }", _own),
    (
        "CONSTRUCT { ?x :reach ?z } WHERE { { ?x :p ?z } UNION { GRAPH :g { ?x :reach ?y } ?y :p ?z } }",
        _closure,
    ),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_the_graph_follows_the_default_graph(text: str, expected: Callable[[Facts, Facts], Facts]) -> None:
    """The oracle keeps the explicit triples of both graphs, and evaluates each text by loops."""
    chance = random.Random(7)
    names = "abcd"
    with wukongs.Engine() as engine:
        known: dict[bool, Facts] = {False: set(), True: set()}
        for step in range(25):
            if step == 5:
                register(engine, text)
            inside = chance.random() < 0.3
            triple = chance.choice(names), chance.choice("ppq"), chance.choice(names)
            word, change = ("INSERT", known[inside].add) if chance.random() < 0.6 else ("DELETE", known[inside].discard)
            data = " ".join(f":{part}" for part in triple)
            engine.update(f"{EX}{word} DATA {{ {f'GRAPH :g {{ {data} }}' if inside else data} }}")
            change(triple)
            if step >= 5:
                assert graph(engine) == known[True] | expected(known[False], known[True]), step
            assert graph(engine, None) == known[False]


def test_the_default_graph_takes_conclusions_as_of_other_rules(engine: wukongs.Engine) -> None:
    register(engine, "CONSTRUCT { ?x :far ?z } WHERE { ?x :p ?y . ?y :p ?z }", "default")
    assert graph(engine, None) == {("a", "p", "b"), ("b", "p", "c"), ("a", "far", "c")}
    [rule] = engine.rules()
    assert (rule.name, rule.into, rule.reads, rule.is_paused) == ("q", None, None, False)


def test_a_view_follows_what_a_query_puts_into_a_graph(engine: wukongs.Engine) -> None:
    register(engine, "CONSTRUCT { ?x :far ?z } WHERE { ?x :p ?y . ?y :p ?z }")
    view: Any = engine.register(f"REGISTER QUERY v AS SELECT ?x WHERE {{ GRAPH <{G}> {{ ?x ?p ?o }} }}", snapshot=False)
    engine.update(EX + "INSERT DATA { :c :p :d }")
    engine.settle(30)
    [report] = view.results(timeout_s=0)
    assert [(row, weight) for row, weight in zip(report.texts(), report.weights, strict=True)] == [
        (("<http://ex/b>",), 1)
    ]


def test_a_triple_has_its_reasons_in_both_graphs(engine: wukongs.Engine) -> None:
    register(engine, "CONSTRUCT { ?x :far ?z } WHERE { ?x :p ?y . ?y :p ?z }")
    found = engine.why(("<http://ex/a>", "<http://ex/far>", "<http://ex/c>"), G)
    assert found is not None
    assert (found.rule, found.graph, [part.graph for part in found.parts]) == ("q", G, [None, None])


# --- the query --------------------------------------------------------------------------------------------------------


def test_pause_replace_and_close(engine: wukongs.Engine) -> None:
    query = register(engine, "CONSTRUCT { ?x :far ?z } WHERE { ?x :p ?y . ?y :p ?z }")
    query.pause()
    query.pause()
    assert graph(engine) == set()
    assert "its query is paused" in query.why()
    engine.update(EX + "INSERT DATA { :c :p :d }")
    query.resume()
    assert graph(engine) == {("a", "far", "c"), ("b", "far", "d")}
    query.replace(EX + "REGISTER QUERY q AS CONSTRUCT { ?y :near ?x } WHERE { ?x :p ?y }")
    assert graph(engine) == {("b", "near", "a"), ("c", "near", "b"), ("d", "near", "c")}
    with pytest.raises(wukongs.RuleError, match="no LIMIT in a rule"):
        query.replace(EX + "REGISTER QUERY q AS CONSTRUCT { ?y :near ?x } WHERE { ?x :p ?y } LIMIT 1")
    with pytest.raises(wukongs.StreamError, match="registered as other"):
        query.replace(EX + "REGISTER QUERY other AS CONSTRUCT { ?y :near ?x } WHERE { ?x :p ?y }")
    assert len(graph(engine)) == 3
    query.close()
    query.close()
    assert (graph(engine), engine.rules(), query.is_closed) == (set(), [], True)
    with pytest.raises(wukongs.StreamError, match="query q is closed"):
        query.pause()
    register(engine, "CONSTRUCT { ?x :far ?z } WHERE { ?x :p ?y . ?y :p ?z }")


def test_optional_minus_and_paths(engine: wukongs.Engine) -> None:
    query = register(engine, "CONSTRUCT { ?x :far ?y } WHERE { ?x :p+ ?y MINUS { ?x :q ?y } OPTIONAL { ?y :q ?z } }")
    assert graph(engine) == {("a", "far", "b"), ("a", "far", "c"), ("b", "far", "c")}
    engine.update(EX + "INSERT DATA { :a :q :c } ; DELETE DATA { :b :p :c }")
    assert graph(engine) == {("a", "far", "b")}
    query.close()
    assert graph(engine) == set()


def test_it_reports_nothing(engine: wukongs.Engine) -> None:
    query = register(engine, "CONSTRUCT { ?x :far ?z } WHERE { ?x :p ?y . ?y :p ?z }")
    for call in (query.results, query.aresults, query.content):
        with pytest.raises(wukongs.UnsupportedFeatureError, match=r"which is a rule.*GRAPH <http://ex/g>"):
            call()
    assert query.stats() == {"kind": "rule", "is_paused": False, "into": G}
    assert "RULE q: CONSTRUCT" in query.explain()


def test_a_dropped_rule_closes_its_query(engine: wukongs.Engine) -> None:
    query = register(engine, "CONSTRUCT { ?x :far ?z } WHERE { ?x :p ?y . ?y :p ?z }")
    engine.drop_rules("q")
    assert query.is_closed
    assert query.why() == "query q is closed"


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "error"),
    [
        (
            "CONSTRUCT { _:n :of ?x } WHERE { ?x :p ?y }",
            {},
            r"query q, line 1.*no blank node in the template.*name",
        ),
        ("CONSTRUCT { [] :of ?x } WHERE { ?x :p ?y }", {}, "no blank node in the template"),
        ("CONSTRUCT { ?x :q ?n } WHERE { SELECT (COUNT(*) AS ?n) WHERE { ?x :p ?y } }", {}, "GROUP BY"),
        ("CONSTRUCT { ?x :q ?y } WHERE { GRAPH ?g { ?x :p ?y } }", {}, "the IRI of a graph after GRAPH"),
        ("CONSTRUCT { ?x :q ?y } WHERE { ?x :p ?y } LIMIT 3", {}, "no LIMIT in a rule"),
        ("CONSTRUCT { ?x :q ?y } FROM :h WHERE { ?x :p ?y }", {}, "FROM in a query into a stored graph.*GRAPH <iri>"),
        ("SELECT * WHERE { ?x :p ?y }", {}, "into= of SELECT"),
        ("ASK { ?x :p ?y }", {}, "into= of ASK"),
        ("CONSTRUCT ISTREAM { ?x :q ?y } WHERE { ?x :p ?y }", {}, "ISTREAM beside into="),
        ("CONSTRUCT { ?x :q ?y } WHERE { ?x :p ?y }", {"every_ms": 100}, "there is no such stream.*declare the stream"),
        ("CONSTRUCT { ?x :q ?y } WHERE { ?x :p ?y }", {"keep": True}, "keep = True: a query into a stored graph"),
        ("CONSTRUCT { ?x :q ?y } WHERE { ?x :p ?y }", {"snapshot": False}, "snapshot = False: a query into a stored"),
        ("CONSTRUCT { ?x :q ?y } WHERE { ?x :p ?y }", {"output": "istream"}, "output = 'istream': a query into a st"),
        ("CONSTRUCT { ?x :q ?y } WHERE { ?x :p ?y }", {"on_result": print}, "on_result: a query into a stored graph"),
        ("CONSTRUCT { ?x :q ?y } WHERE { ?x :p ?y }", {"into": "urn:x-wukongs:inferred"}, "urn:x-wukongs:inferred"),
        ("CONSTRUCT { ?x :q ?y } WHERE { ?x :p ?y }", {"into": "a b"}, "expected an IRI"),
        ("CONSTRUCT { ?x :q ?y } WHERE { ?x :p ?y }", {"name": "<http://ex/q>"}, "http://ex/q.*|a name of letters"),
    ],
)
def test_what_no_rule_can_be_is_refused_by_name(
    engine: wukongs.Engine, text: str, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(wukongs.WukongsError, match=error):
        register(engine, text, **options)
    assert (engine.rules(), engine.queries(), graph(engine)) == ([], [], set())


def test_a_refusal_says_where(engine: wukongs.Engine) -> None:
    text = "PREFIX : <http://ex/>\nREGISTER QUERY q AS\n  CONSTRUCT { ?x :q ?y }\n  WHERE { ?x :p ?y } LIMIT 1"
    with pytest.raises(wukongs.RuleError, match=r"query q, line 4, column 22: .*found 'LIMIT'"):
        engine.register(text, into=G)
    text = EX + "REGISTER QUERY q AS CONSTRUCT { ?x :q ?y } WHERE { ?x :p ?y } LIMIT 1"
    with pytest.raises(wukongs.RuleError, match=rf"query q, line 1, column {text.index('LIMIT') + 1}: .*found 'LIMIT'"):
        engine.register(text, into=G)


def test_a_circle_through_not_exists_is_refused_over_graphs(engine: wukongs.Engine) -> None:
    register(engine, "CONSTRUCT { ?x :c ?y } WHERE { ?x :b ?y }")
    absent = "FILTER NOT EXISTS { GRAPH :g { ?x :c ?y } }"
    with pytest.raises(wukongs.RuleError, match="without a circle through NOT EXISTS"):
        register(engine, f"CONSTRUCT {{ ?x :b ?y }} WHERE {{ ?x :p ?y {absent} }}", "default", "other")
    register(engine, f"CONSTRUCT {{ ?x :d ?y }} WHERE {{ ?x :p ?y {absent} }}", "default", "other")


def test_a_name_is_taken_by_a_rule(engine: wukongs.Engine) -> None:
    text = "CONSTRUCT { ?x :far ?z } WHERE { ?x :p ?y . ?y :p ?z }"
    register(engine, text)
    with pytest.raises(wukongs.RuleError, match="rule q, which is there already"):
        register(engine, text, "http://ex/h")
    assert graph(engine, "http://ex/h") == set()


def test_a_query_with_a_window_has_no_into(engine: wukongs.Engine) -> None:
    engine.stream("http://ex/s", batch_ms=100)
    text = "CONSTRUCT { ?x :q ?y } FROM STREAM :s [RANGE 100ms STEP 100ms] WHERE { ?x :p ?y }"
    with pytest.raises(wukongs.SettingsError, match="into = 'http://ex/g': only for live views"):
        register(engine, text)


def test_an_engine_that_may_read_some_graphs_only_puts_nothing_elsewhere(engine: wukongs.Engine) -> None:
    text = "CONSTRUCT { ?x :far ?z } WHERE { ?x :p ?y . ?y :p ?z }"
    with pytest.raises(wukongs.AccessError, match="may not use in a rule the default graph"):
        register(engine, text, graphs=[G])
    assert engine.rules() == []
    register(engine, text, graphs=[G, "default"])
