"""Property paths through the Engine: graphs and windows, what a search costs, and what stops it."""

from __future__ import annotations

import io
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import EX, A, at, names, register_text, rows
from tests.fuzz import slow
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


def test_exists_puts_terms_in_the_place_of_variables() -> None:
    """So a path of no length leads from a term that the graph does not know to itself (18.6 and 18.4)."""
    engine = engine_with(":a :p :b . :g { :b :p 5 }")
    given = "VALUES (?x ?y) { (:nowhere :nowhere) (:a :nowhere) (:a :b) (UNDEF :nowhere) }"
    for path in (":p*", ":p?", ":p{0,3}", ":p|:p?", "(:p?)+"):
        assert ask(engine, f"{given} FILTER EXISTS {{ ?x {path} ?y }}") == [
            ("", "nowhere"), ("a", "b"), ("nowhere", "nowhere")
        ], path  # fmt: skip
        assert ask(engine, f"{given} FILTER EXISTS {{ GRAPH :g {{ ?y {path} ?y }} }}", "(1 AS ?one)") == [("1",)] * 4
        assert ask(engine, f"{given} FILTER EXISTS {{ GRAPH ?z {{ ?y {path} ?z }} }}") == []
        assert set(ask(engine, f"{given} ?x {path} ?y FILTER EXISTS {{ ?z {path} ?x }}")) == {("a", "b")}, path
        assert ask(engine, f"{given} FILTER(BOUND(?x) && !EXISTS {{ ?x {path} ?z . ?z :q{{,2}} ?y }})") == [
            ("a", "nowhere")
        ]
    assert ask(engine, f"{given} FILTER EXISTS {{ ?x :p?/:p? ?y }}") == [
        ("a", "b"), ("nowhere", "nowhere")
    ], "between the parts is a variable"  # fmt: skip
    assert ask(engine, f"{given} FILTER EXISTS {{ FILTER EXISTS {{ ?z :p* ?y }} BIND(?x AS ?z) }}") == ask(
        engine, f"{given} FILTER EXISTS {{ ?x :p* ?y }}"
    )


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
        twice = engine.register(
            register_text("RANGE 200ms STEP 100ms", "two", where=f"{{ <{EX}a> <{EX}p>{{2,4}} ?s }}")
        )
        stream.push([at("a", 50, "p", "b"), at("b", 150, "p", "c"), at("c", 250, "other", "d")])
        stream.advance(400)
        engine.settle(timeout_s=60)
        found = {window.end_ms: names(window) for window in query.results(timeout_s=0)}
        assert found == {100: ["b"], 200: ["b", "c"], 300: [], 400: []}
        found = {window.end_ms: names(window) for window in twice.results(timeout_s=0)}
        assert found == {100: [], 200: ["c"], 300: [], 400: []}
        nodes = {window.end_ms: names(window) for window in zero.results(timeout_s=0)}
        assert nodes == {100: ["a", "b"], 200: ["b", "c"], 300: ["c", "d"], 400: []}


# --- costs and limits -------------------------------------------------------------------------------------------------


def star(leaves: int) -> str:
    """A hub with many leaves, and one long chain that ends at one of them."""
    return " ".join(f":hub :p :l{i} ." for i in range(leaves)) + " ".join(f":c{i} :p :c{i + 1} ." for i in range(50))


def visited_count(engine: wukongs.Engine, where: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many pairs the searches of a query were given room for."""
    rooms: list[int] = []
    kept = path_search._room

    def remember(capacity: int) -> object:
        rooms.append(capacity)
        return kept(capacity)

    with monkeypatch.context() as patched:
        patched.setattr(path_search, "_room", remember)
        ask(engine, where, "(1 AS ?one)")
    assert rooms
    return sum(rooms)


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


def test_a_walk_between_two_ends_does_not_enter_a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = " ".join(f":hub :p :l{i} ." for i in range(3_000)) + ":hub :p :far1 . :far1 :p :far2 . :far2 :p :end ."
    engine = engine_with(f":x :p :hub . {hub}")
    for path in (":p+", ":p{1,9}", "(:p|^:q)*"):
        assert ask(engine, f":x {path} :end", "(1 AS ?one)") == [("1",)]
        assert visited_count(engine, f":x {path} :end", monkeypatch) < 1_000, path
        assert visited_count(engine, f":x {path} :x2", monkeypatch) < 1_000, path
    assert ask(engine, ":x :p{1,3} :end", "(1 AS ?one)") == []
    assert ask(engine, ":x :p{4} :end", "(1 AS ?one)") == [("1",)]


def test_circles() -> None:
    engine = engine_with(" ".join(f":n{i} :p :n{(i + 1) % 500} ." for i in range(500)) + ":n9 :q :n9 . :n7 :p :end .")
    for path, holds in (
        (":p+", True), (":p{1,500}", True), (":p{1,499}", False), (":p{2,}", True), (":q+", False), (":p*", True),
        (":p{0}", True), ("(:p|^:p){2}", True), (":p{500}", None),
    ):  # fmt: skip
        if holds is not None:
            assert engine.query(f"{PREFIX} ASK {{ :n3 {path} :n3 }}").boolean is holds, path
    assert engine.query(f"{PREFIX} ASK {{ :n9 :q{{1,3}} :n9 }}").boolean
    assert not engine.query(f"{PREFIX} ASK {{ :end :p+ :end }}").boolean
    assert ask(engine, "?x :p{1,499} ?x") == []
    assert len(ask(engine, "?x :p{250} ?y")) == 500 + 1


@pytest.mark.parametrize("path", [":p+", "(:p|:q)+", "(:p/:p)+", "^:p{2,}", "(:p/:q?)+"])
def test_circles_are_found_in_one_walk(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long chain into a circle of 7: a search from each node would look at two million triples."""
    chain = " ".join(f":n{i} :p :n{i + 1} ." for i in range(2_000))
    engine = engine_with(f"{chain} :n2000 :p :n1994 . :n5 :q :n5 . :n3 :a :It . :n1999 :a :It .")
    edges: list[int] = []
    for name in ("search_paths", "search_pairs"):
        kernel = getattr(path_search, name)

        def spied(*given: Any, kernel: Any = kernel) -> int:
            before = int(given[-1][0])
            status: int = kernel(*given)
            edges.append(before - int(given[-1][0]))
            return status

        monkeypatch.setattr(path_search, name, spied)
    monkeypatch.setattr(path_search, "EDGES_PER_CALL", 1_000)
    expected = sorted({f"n{i}" for i in range(1994, 2001)} | ({"n5"} if path == "(:p|:q)+" else set()))
    assert [x for (x,) in ask(engine, f"?x {path} ?x")] == expected
    assert [x for (x,) in ask(engine, f"?x :p ?y . ?x {path} ?x", "?x")] == expected
    assert engine.query(f"{PREFIX} ASK {{ ?x {path} ?x }}").boolean
    assert sum(edges) < 100_000
    assert [x for (x,) in ask(engine, f"?x :a :It . ?x {path} ?x", "?x")] == ["n1999"]
    assert ask(engine, "?x :q/:p+ ?x") == [], "the path alone leads back from n5, the sequence does not"
    engine.update(f"{PREFIX} DELETE DATA {{ :n2000 :p :n1994 }}")
    assert [x for (x,) in ask(engine, f"?x {path} ?x")] == ["n5"] * (path == "(:p|:q)+")


def test_bounded_repetitions() -> None:
    engine = engine_with(":a :p :b , :c . :b :p :d . :c :p :d . :d :p :e . :e :p :a . :x :q :y .")
    assert ask(engine, ":a :p{1} ?x") == [("b",), ("c",)]
    assert ask(engine, ":a :p{2} ?x") == [("d",)], "each pair once, though two walks lead there"
    assert ask(engine, ":a :p{2,3} ?x") == [("d",), ("e",)]
    assert ask(engine, ":a :p{,1} ?x") == [("a",), ("b",), ("c",)]
    assert ask(engine, ":a :p{0} ?x") == [("a",)]
    assert ask(engine, ":nowhere :p{0,2} ?x") == [("nowhere",)]
    assert ask(engine, ":a :p{5,} ?x") == ask(engine, ":a :p+ ?x"), "round and round"
    assert ask(engine, "?x :p{3} :a") == [("b",), ("c",)]
    assert ask(engine, "?x ^:p{3} :b") == ask(engine, ":b :p{3} ?x") == [("a",)]
    assert ask(engine, ":b ^:p{3} ?x") == ask(engine, "?x :p{3} :b") == [("d",)]
    assert ask(engine, ":a (:p/:p){1,2} ?x") == [("a",), ("d",)]
    assert ask(engine, ":a (:p|:q){1} ?x") == [("b",), ("c",)]
    assert ask(engine, "?x :p{0,0} ?x") == ask(engine, "?x :p? ?x")
    assert f"Path :a <{EX}p>{{1,4}} ?z".replace(":a", f"<{EX}a>") in engine.explain(
        f"{PREFIX} SELECT * {{ :a :p{{1,4}} ?z }}"
    )


def test_bounds_hold_between_two_ends_in_whatever_graph() -> None:
    line = " ".join(f":n{n} :p :n{n + 1} ." for n in range(9))
    engine = engine_with(f":g {{ {line} }} :h {{ :n0 :p :n5 }} :n0 :p :n1 .")
    for high in (2, 4, 5, 8):
        graphs = [(name,) for name, length in (("g", 5), ("h", 1)) if length <= high]
        assert ask(engine, f"GRAPH ?g {{ :n0 :p{{1,{high}}} :n5 }}", "?g") == graphs
        assert ask(engine, f"VALUES ?x {{ :n5 }} GRAPH ?g {{ :n0 :p{{1,{high}}} ?x }}", "?g") == graphs
    strangers = " ".join(f"(:s{n} :n5)" for n in range(60))
    where = f"VALUES (?x ?y) {{ (:n0 :n5) {strangers} }} GRAPH :g {{ ?x :p{{,3}} ?y }}"
    assert ask(engine, where, "?x") == [], "of many pairs, few have a subject that the graph knows"


@pytest.mark.slow
@pytest.mark.parametrize("path", ["{1,4}", "{,3}", "+", slow("*"), "?", "{2,3}"])
def test_many_pairs_at_once(path: str) -> None:
    """All pairs of some nodes, and pairs of all nodes, asked together and one by one."""
    edges = {(n, (n * 7 + k * k) % 300) for n in range(300) for k in range(1, 3)}
    engine = engine_with(" ".join(f":n{a} :p :n{b} ." for a, b in edges) + ":n0 :q :n1 .")
    low, high = {"{1,4}": (1, 4), "{,3}": (0, 3), "+": (1, 300), "*": (0, 300), "?": (0, 1), "{2,3}": (2, 3)}[path]
    after: dict[int, set[int]] = {n: {b for a, b in edges if a == n} for n in range(300)}

    def reached(start: int) -> set[int]:
        found, level = set[int](), {start}
        for count in range(high + 1):
            found |= level if count >= low else set()
            level = {b for a in level for b in after[a]}
        return found

    prepared = engine.prepare(f"{PREFIX} SELECT ?x {{ ?x :p{path} ?y }}")
    few = [(a, b) for a in range(0, 300, 60) for b in range(0, 300, 7)]
    many = [(n, n * 17 % 300) for n in range(300)]
    for pairs in (few, many):
        arguments = [{"x": f"<{EX}n{a}>", "y": f"<{EX}n{b}>"} for a, b in pairs]
        expected = [at for at, (a, b) in enumerate(pairs) if b in reached(a)]
        assert prepared.many(arguments).column("argument").to_pylist() == expected
        assert [at for at, each in enumerate(arguments[:40]) if len(prepared(each))] == [e for e in expected if e < 40]


def test_explain_shows_paths() -> None:
    engine = engine_with(":a :p :b .")
    text = engine.explain(f"{PREFIX} SELECT * {{ ?x :q ?y . ?y (:p|^:q)+ ?z }}")
    assert f"Path ?y (<{EX}p>|^<{EX}q>)+ ?z" in text


CHAINS = {
    ":p/:p?": (1, 2),
    ":p/:p?/:p?/:p?": (1, 4),
    ":p?/:p/:p?": (1, 3),
    ":p/:p*": (1, None),
    ":p?/:p+/:p?": (1, None),
    "^:p/^:p?": (-1, -2),
    ":p/:p{0,3}": (1, 4),
}


def few_steps(edges: set[tuple[int, int]], low: int, high: int | None) -> set[tuple[int, int]]:
    """The pairs that low to high edges lead between, along them or (below 0) against them."""
    if low < 0:
        assert high is not None
        return {(b, a) for a, b in few_steps(edges, -low, -high)}
    found, level = set[tuple[int, int]](), {(node, node) for edge in edges for node in edge}
    for count in range((30 if high is None else high) + 1):
        found |= level if count >= low else set()
        level = {(a, c) for a, b in level for b2, c in edges if b == b2}
    return found


@pytest.mark.parametrize("path", CHAINS)
def test_a_chain_of_one_link_is_a_path_where_nobody_counts(path: str) -> None:
    edges = {(n, (n * 5 + k) % 19) for n in range(0, 19, 2) for k in (1, 4)}
    engine = engine_with(" ".join(f":n{a} :p :n{b} ." for a, b in edges) + ":n0 :q :n1 .")
    expected = sorted((f"n{a}", f"n{b}") for a, b in few_steps(edges, *CHAINS[path]))
    assert ask(engine, f"?x {path} ?y", "DISTINCT ?x ?y") == expected
    assert ask(engine, f"?x {path} ?y FILTER(?x != :n4) OPTIONAL {{ ?y {path} :n3 }}", "DISTINCT ?y ?x") == sorted(
        (y, x) for x, y in expected if x != "n4"
    )
    assert ask(engine, f"{{ ?x {path} ?y }} UNION {{ ?x :q ?y }}", "DISTINCT ?x ?y") == sorted(
        {*expected, ("n0", "n1")}
    )
    assert ask(engine, f":n0 :q ?x . ?x {path} ?y", "DISTINCT ?y") == [(y,) for x, y in expected if x == "n1"]
    for b in range(19):
        assert engine.query(f"{PREFIX} ASK {{ :n2 {path} :n{b} }}").boolean is (("n2", f"n{b}") in expected)
    assert len(ask(engine, f"?x {path} ?y", "?x ?y")) >= len(expected)
    for head in (f"SELECT DISTINCT ?x {{ ?x {path} ?y }}", f"ASK {{ ?x {path} ?y }}"):
        assert engine.explain(f"{PREFIX} {head}").count("Path ") == 1
        assert "Bgp" not in engine.explain(f"{PREFIX} {head}")


@pytest.mark.parametrize(
    ("text", "paths", "triples"),
    [
        ("SELECT ?x { ?x :p/:p? ?y }", 1, 1),
        ("SELECT DISTINCT ?x { ?x :p/:q? ?y }", 1, 1),
        ("SELECT DISTINCT ?x { ?x :p?/:p? ?y }", 2, 0),
        ("SELECT DISTINCT ?x { ?x :p ?b . ?b :p? ?y }", 1, 1),
        ("SELECT DISTINCT ?x { ?x :p _:b . _:b :p? ?y }", 1, 0),
        ("SELECT DISTINCT ?x { ?x :p _:b . _:b :p? ?y ; :q ?z }", 1, 2),
        ("SELECT DISTINCT ?x { ?x :p/:p? ?y BIND(RAND() AS ?r) }", 1, 1),
        ("SELECT DISTINCT ?x { { SELECT ?x { ?x :p/:p? ?y } LIMIT 2 } }", 1, 1),
        ("SELECT DISTINCT (COUNT(*) AS ?n) { ?x :p/:p? ?y }", 1, 1),
        ("SELECT DISTINCT ?x { ?x :p/:p/:p? ?y }", 1, 1),
        ("SELECT DISTINCT ?x { { SELECT ?x ?y { ?x :p/:p? ?y } } } ORDER BY ?y LIMIT 3", 1, 0),
        ("SELECT DISTINCT ?x { GRAPH ?g { ?x :p/:p?/:p? ?y } }", 1, 0),
    ],
)
def test_which_chains_become_paths(text: str, paths: int, triples: int) -> None:
    engine = engine_with(":a :p :b . :b :p :c ; :q :d .")
    shown = engine.explain(f"{PREFIX} {text}")
    assert shown.count("Path ") == paths, shown
    assert sum(int(line.split("Bgp of ")[1].split()[0]) for line in shown.splitlines() if "Bgp of" in line) == triples


def test_a_chain_counts_where_it_should() -> None:
    engine = engine_with(":a :p :b , :c . :b :p :d . :c :p :d . :b :q :d .")
    assert ask(engine, ":a :p/:p? ?y", "?y") == [("b",), ("c",), ("d",), ("d",)]
    assert ask(engine, ":a :p/:p? ?y", "DISTINCT ?y") == [("b",), ("c",), ("d",)]
    assert ask(engine, "{ SELECT (COUNT(*) AS ?n) { :a :p/:p? ?z } }", "DISTINCT ?n") == [("4",)]
    for offset, answer in ((0, True), (1, True), (2, False)):
        assert engine.query(f"{PREFIX} ASK {{ :a :p/:p? :d }} OFFSET {offset}").boolean is answer, offset
    assert ask(engine, ":nowhere :p?/:p? ?y", "DISTINCT ?y") == [], "between the two parts stands a node of the graph"
