"""Property paths through the Engine: graphs and windows, what a search costs, and what stops it."""

from __future__ import annotations

import io

import pytest

import wukongs
from tests.engine_helpers import EX, A, at, names, register_text, rows
from wukongs.errors import BudgetExceeded, QueryTimeout
from wukongs.query.paths import path_search

PREFIX = f"PREFIX : <{EX}> "


def engine_with(triples: str, rows_max: int = 50_000_000) -> wukongs.Engine:
    engine = wukongs.Engine(settings=wukongs.Settings(rows_max=rows_max))
    engine.load(io.BytesIO(f"@prefix : <{EX}> . {triples}".encode()), format="trig")
    return engine


def ask(engine: wukongs.Engine, where: str, select: str = "*") -> list[tuple[str, ...]]:
    return rows(engine.query(f"{PREFIX} SELECT {select} {{ {where} }}"))


def test_a_path_stays_in_its_graph() -> None:
    engine = engine_with(":a :p :b . :g { :b :p :c . :c :p :d } :h { :d :p :e }")
    assert ask(engine, ":a :p+ ?x") == [("b",)]
    assert ask(engine, "GRAPH :g { :b :p+ ?x }") == [("c",), ("d",)]
    assert ask(engine, "GRAPH ?g { ?x :p+ ?y }", "?g ?x ?y") == [
        ("g", "b", "c"), ("g", "b", "d"), ("g", "c", "d"), ("h", "d", "e")
    ]  # fmt: skip
    assert ask(engine, "GRAPH ?g { ?x :p* :d }", "?g ?x") == [("g", "b"), ("g", "c"), ("g", "d"), ("h", "d")]
    text = f"{PREFIX} SELECT ?x FROM :g FROM :h {{ :b :p+ ?x }}"
    assert names(engine.query(text)) == ["c", "d", "e"]


def test_a_path_without_length() -> None:
    engine = engine_with(":a :p :b . :g { :b :p 5 }")
    assert ask(engine, ":nowhere :p* ?x") == [("nowhere",)]
    assert ask(engine, "?x :p? 7") == [("7",)]
    assert ask(engine, "?x :q* ?y") == [("a", "a"), ("b", "b")]
    assert ask(engine, "BIND(:nowhere AS ?x) ?x :p* ?y") == [], "a variable ranges over the nodes of the graph"
    assert ask(engine, "GRAPH ?g { :nowhere :p* ?x }", "?g ?x") == [("g", "nowhere")]
    assert ask(engine, "GRAPH :nowhere { :a :p* ?x }") == [], "the dataset has no such graph"
    assert ask(engine, "GRAPH :g { ?x :p* ?x }") == [("5",), ("b",)]
    assert ask(engine, ":a :p* :a", "(1 AS ?one)") == [("1",)]


def test_bags_and_sets() -> None:
    engine = engine_with(":a :p :b ; :q :b . :b :p :c ; :q :c .")
    assert ask(engine, ":a :p|:q ?x") == [("b",), ("b",)]
    assert ask(engine, ":a (:p|:q)/(:p|:q) ?x") == [("c",)] * 4
    assert ask(engine, ":a (:p|:q)? ?x") == [("a",), ("b",)]
    assert ask(engine, ":a (:p|:q)+ ?x") == [("b",), ("c",)]
    assert ask(engine, ":a !:r ?x") == [("b",), ("b",)], "one solution for each triple"
    assert ask(engine, ":b !(:p|^:p) ?x") == [("a",), ("c",)]
    assert ask(engine, ":a :p*/:q* ?x") == [("a",), ("b",), ("b",), ("c",), ("c",), ("c",)]


def test_optional_paths_and_paths_beside_optionals() -> None:
    engine = engine_with(":a :p :b . :b :p :c . :x :q :y .")
    assert ask(engine, "?s :q|:p ?o OPTIONAL { ?o :p+ ?end }", "?s ?end") == [
        ("a", "c"), ("b", ""), ("x", "")
    ]  # fmt: skip
    assert ask(engine, "OPTIONAL { :x :p ?s } ?s :p+ ?end") == [("a", "b"), ("a", "c"), ("b", "c")]
    assert ask(engine, "OPTIONAL { ?s :p+ :c FILTER(?s != :a) }") == [("b",)]


def test_deleted_triples_lead_nowhere() -> None:
    engine = engine_with(":a :p :b . :b :p :c . :c :p :d . :z :q :c .")
    engine.update(f"{PREFIX} DELETE DATA {{ :b :p :c . :z :q :c }}")
    assert ask(engine, ":a :p+ ?x") == [("b",)]
    assert ask(engine, "?x :r? ?x") == [("a",), ("b",), ("c",), ("d",)]
    assert ask(engine, ":a :p+ :d", "(1 AS ?one)") == []


# --- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["all", "matching"])
def test_paths_through_a_window_and_the_stored_graph(index: str) -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True, index=index)
        where = f"{{ <{EX}a> <{EX}p>+ ?s }}"
        query = engine.register(register_text("RANGE 200ms STEP 100ms", where=where))
        zero = engine.register(register_text("RANGE 100ms STEP 100ms", "zero", where=f"{{ ?s <{EX}q>* ?s }}"))
        stream.push([at("a", 50, "p", "b"), at("b", 150, "p", "c"), at("c", 250, "other", "d")])
        stream.advance(400)
        engine.settle(timeout_s=60)
        found = {window.end_ms: names(window) for window in query.results(timeout_s=0)}
        assert found == {100: ["b"], 200: ["b", "c"], 300: [], 400: []}
        nodes = {window.end_ms: names(window) for window in zero.results(timeout_s=0)}
        assert nodes == {100: ["a", "b"], 200: ["b", "c"], 300: ["c", "d"], 400: []}


# --- costs and limits -------------------------------------------------------------------------------------------------


def star(leaves: int) -> str:
    """A hub with many leaves, and one long chain that ends at one of them."""
    return " ".join(f":hub :p :l{i} ." for i in range(leaves)) + " ".join(f":c{i} :p :c{i + 1} ." for i in range(50))


def visited_count(engine: wukongs.Engine, where: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many pairs the searches of a query had room for in the end."""
    made: list[path_search.Search] = []
    kept = path_search.Search.__init__

    def remember(self: path_search.Search, *arguments: object) -> None:
        kept(self, *arguments)  # type: ignore[arg-type]
        made.append(self)

    with monkeypatch.context() as patched:
        patched.setattr(path_search.Search, "__init__", remember)
        ask(engine, where, "(1 AS ?one)")
    assert made
    return sum(len(search.visited.pairs) for search in made)


def test_a_search_costs_what_it_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_with(star(3_000) + ":x :q :hub . :l7 :q :end .")
    assert visited_count(engine, "?x :p+ :l7", monkeypatch) < 200, "backward from the bound object"
    assert visited_count(engine, ":c3 :p+ ?x", monkeypatch) < 500
    assert visited_count(engine, ":hub :p+ :c9", monkeypatch) < 1_000, "from both sides: one sees soon that it is lost"
    assert visited_count(engine, ":x :q/:p+/:q :end", monkeypatch) < 1_000
    assert visited_count(engine, "?x :p+ ?y . ?y :q :end", monkeypatch) < 200, "the path comes after what binds its end"
    assert visited_count(engine, "?x :q :hub . ?x (:q/:p)* ?y . ?y :q :end", monkeypatch) < 1_000
    assert visited_count(engine, ":hub :p+ ?x", monkeypatch) > 3_000


def test_a_search_ends_in_time_and_within_its_budget() -> None:
    complete = " ".join(f":n{i} :p :n{(i * 7 + k) % 1500} ." for i in range(1500) for k in range(6))
    engine = engine_with(complete, rows_max=100_000)
    with pytest.raises(QueryTimeout, match="timeout_s"):
        engine.query(f"{PREFIX} SELECT * {{ ?x :p+ ?y }}", timeout_s=0.005)
    with pytest.raises(BudgetExceeded, match="a property path has more than rows_max = 100000 solutions"):
        ask(engine, "?x :p+ ?y")
    assert len(ask(engine, ":n0 :p+ ?y")) == 1500
    assert engine.query(f"{PREFIX} ASK {{ ?x :p+ ?y }}").boolean, "one walk is enough"


def test_a_search_from_too_many_nodes_is_refused() -> None:
    engine = engine_with(star(3_000), rows_max=1_000)
    with pytest.raises(BudgetExceeded, match="would start from more than rows_max = 1000 nodes"):
        ask(engine, "?x :p* ?y")


def test_explain_shows_paths() -> None:
    engine = engine_with(":a :p :b .")
    text = engine.explain(f"{PREFIX} SELECT * {{ ?x :q ?y . ?y (:p|^:q)+ ?z }}")
    assert f"Path ?y (<{EX}p>|^<{EX}q>)+ ?z" in text
