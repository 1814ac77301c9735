"""Programs: windows of random queries with operators above and beside their patterns are those of pyoxigraph and of the
executor; each shape of the language that has operations is answered by a program; a program broken once is caught."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import wukongs
from tests.fuzz import SEED, TIER, scaled
from tests.fuzzing.continuous import MIXES, Tally, judged, lived
from wukongs.csparql.algebra import Call
from wukongs.csparql.terms import Variable
from wukongs.live import stored_reads
from wukongs.live.stored_reads import StoredReads
from wukongs.query.mechanisms import Mechanism
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.programs import program
from wukongs.query.programs import program_layout as layout
from wukongs.query.programs.compile import Compiler
from wukongs.query.programs.memo import Memo, TextMemo
from wukongs.query.programs.memo_kernels import look_up
from wukongs.query.programs.operations import Code
from wukongs.query.programs.program import Program
from wukongs.query.terms import query_terms
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.term_registry import TermRegistry

LIVES = {"fast": 1, "ci": 3}.get(TIER) or scaled(12)
LIVES_OF_MUTANTS = 10
S = "http://e/s"
SHAPES = {
    "count": ("(COUNT(*) AS ?n)", "?a :p ?b", ""),
    "count of nothing": ("(COUNT(*) AS ?n) (SUM(?b) AS ?m) (AVG(?b) AS ?o)", "?a :none ?b", ""),
    "groups": (
        "?a (SUM(?v) AS ?n) (AVG(?v) AS ?m) (MIN(?v) AS ?l) (COUNT(DISTINCT ?v) AS ?d)",
        "?a :v ?v",
        "GROUP BY ?a",
    ),
    "having": ("?a (COUNT(*) AS ?n)", "?a :p ?b", "GROUP BY ?a HAVING(COUNT(*) > 1)"),
    "optional": ("?a ?b ?v", "?a :p ?b OPTIONAL { ?b :v ?v FILTER(?v > 3) }", ""),
    "optional and condition": ("?a ?b ?v ?w", "?a :v ?w OPTIONAL { ?a :p ?b . ?b :v ?v FILTER(?v > ?w) }", ""),
    "union": ("?a ?b ?v", "{ ?a :p ?b } UNION { ?a :v ?v }", ""),
    "joined union": ("?a ?b ?v", "?a :p ?b { ?b :p ?v } UNION { ?b :v ?v }", ""),
    "optional union": ("?a ?b ?v", "?a :p ?b OPTIONAL { { ?b :p ?v } UNION { ?b :v ?v } }", ""),
    "not exists": ("?a ?b", "?a :p ?b FILTER NOT EXISTS { ?b :v ?v FILTER(?v > 2) }", ""),
    "exists": ("?a ?b", "?a :p ?b FILTER EXISTS { ?b :p ?c FILTER(?c != ?a) }", ""),
    "minus": ("?a ?b", "?a :p ?b MINUS { ?b :v ?v }", ""),
    "bind": ("?a ?x", "?a :v ?v BIND(?v * 2 + 0.5 AS ?x)", ""),
    "bind a text": ("?a ?x", "?a :p ?b BIND(CONCAT(STR(?a), '-', STR(?b)) AS ?x)", ""),
    "bind a constant": ("?a ?x", "?a :p ?b BIND('here' AS ?x)", ""),
    "text": ("?a ?b", "?a :p ?b FILTER(?b != 'z' && STRLEN(STR(?b)) > 4)", ""),
    "either": ("?a ?v", "?a :v ?v FILTER(?v < 2 || ?v > 7 || REGEX(STR(?a), '3$'))", ""),
    "order": ("?a ?b", "?a :p ?b", "ORDER BY DESC(?b) ?a LIMIT 4 OFFSET 1"),
    "order by numbers": ("?a ?v", "?a :v ?v", "ORDER BY ?v DESC(?a) LIMIT 5"),
    "order by an expression": ("?a ?v", "?a :v ?v", "ORDER BY DESC(?v * 2) LIMIT 5"),
    "limit of groups": ("?a (COUNT(*) AS ?n)", "?a :p ?b", "GROUP BY ?a ORDER BY DESC(?n) LIMIT 3"),
    "limit without order": ("?a ?v", "?a :p ?b OPTIONAL { ?b :v ?v }", "LIMIT 3"),
    "distinct": ("DISTINCT ?a ?v", "?a :p ?b OPTIONAL { ?b :v ?v }", ""),
    "subquery": ("?a ?n", "?a :p ?b { SELECT ?b (COUNT(*) AS ?n) { ?b :p ?c } GROUP BY ?b }", ""),
    "a filter between steps": ("?a ?w", "?a :v ?v . ?a :p ?b . ?b :v ?w FILTER(?v > 2) FILTER(?w > ?v)", ""),
    "a constant": ("?a ?v", "?a :p ?b . ?b :v ?v FILTER(?b = :n3)", ""),
}


INTEGER = "http://www.w3.org/2001/XMLSchema#integer"
THREE = f'"3"^^<{INTEGER}>'
SHAPES |= {
    "nested optional": ("?a ?b ?v ?w", "?a :p ?b OPTIONAL { ?b :v ?v OPTIONAL { ?b :p ?c . ?c :v ?w } }", ""),
    "optional that shares with what it surrounds": (
        "?a ?b ?v ?w",
        "?a :p ?b OPTIONAL { ?b :v ?v OPTIONAL { ?a :v ?w FILTER(?w < ?v) } }",
        "",
    ),
    "a variable that may be unbound": ("?a ?b ?v ?c", "?a :p ?b OPTIONAL { ?b :v ?v } OPTIONAL { ?c :v ?v }", ""),
    "a join on what may be unbound": ("?a ?v ?c", "{ ?a :p ?b } UNION { ?a :v ?v } . ?c :v ?v", ""),
    "values": ("?a ?b", "VALUES ?b { :n1 :n3 :unknown } ?a :p ?b", ""),
    "values with nothing": (
        "?a ?b ?v",
        "?a :p ?b OPTIONAL { ?b :v ?v } VALUES (?b ?v) { (:n1 UNDEF) (UNDEF 3) (:n2 5) }",
        "",
    ),
    "values alone": ("?a ?x", "VALUES (?a ?x) { (:n1 'a text') (:n2 'another text') (:n1 UNDEF) }", ""),
    "values behind": ("?a (COUNT(*) AS ?n)", "?a :p ?b", "GROUP BY ?a VALUES ?a { :n1 :n4 }"),
    "two subqueries": (
        "?a ?n ?m",
        "{ SELECT ?a (COUNT(*) AS ?n) { ?a :p ?b } GROUP BY ?a }"
        " { SELECT ?a (SUM(?v) AS ?m) { ?a :v ?v } GROUP BY ?a }",
        "",
    ),
    "an optional subquery": (
        "?a ?b ?m",
        "?a :p ?b OPTIONAL { SELECT ?b (MAX(?v) AS ?m) { ?b :v ?v } GROUP BY ?b }",
        "",
    ),
    "count of distinct solutions": ("(COUNT(DISTINCT *) AS ?n)", "?a :p ?b . ?b :p [] OPTIONAL { ?b :v ?v }", ""),
    "counts of distinct solutions": ("?a (COUNT(DISTINCT *) AS ?n)", "{ ?a :p ?b } UNION { ?a :p ?b }", "GROUP BY ?a"),
    "samples": ("?a (SAMPLE(?b) AS ?s) (MAX(?b) AS ?m) (MIN(STR(?b)) AS ?l)", "?a :p ?b", "GROUP BY ?a"),
    "a sample of what may be unbound": ("(SAMPLE(?v) AS ?s) (MAX(?v) AS ?m)", "?a :p ?b OPTIONAL { ?b :v ?v }", ""),
    "a sample of nothing": ("(SAMPLE(?b) AS ?s) (COUNT(DISTINCT ?b) AS ?n)", "?a :none ?b", ""),
    "texts of groups": (
        "?a (GROUP_CONCAT(DISTINCT ?b; SEPARATOR=', ') AS ?t) (COUNT(*) AS ?n) (AVG(?v) AS ?m)",
        "?a :p ?b OPTIONAL { ?a :v ?v }",
        "GROUP BY ?a ORDER BY ?t LIMIT 4",
    ),
    "texts of nothing": (
        "(GROUP_CONCAT(?b) AS ?t) (SUM(DISTINCT ?b) AS ?s) (AVG(DISTINCT ?b) AS ?m)",
        "?a :none ?b",
        "",
    ),
    "sums of distinct terms": ("?a (SUM(DISTINCT ?v) AS ?s) (AVG(DISTINCT ?v) AS ?m)", "?a :v ?v", "GROUP BY ?a"),
    "means of doubles": (
        "?a (AVG(?x) AS ?m) (SUM(?x) AS ?s) (MAX(?x) AS ?l)",
        "?a :v ?v BIND(?v / 3e0 AS ?x)",
        "GROUP BY ?a ORDER BY DESC(?m)",
    ),
    "an order of terms of all kinds": ("?a ?x", "{ ?a :p ?x } UNION { ?a :v ?x }", "ORDER BY DESC(?x) ?a LIMIT 6"),
    "extremes of terms of all kinds": (
        "?a (MIN(?x) AS ?l) (MAX(?x) AS ?h) (SAMPLE(?x) AS ?s)",
        "{ ?a :p ?x } UNION { ?a :v ?x }",
        "GROUP BY ?a",
    ),
    "exists apart": ("?a ?b", "?a :p ?b FILTER EXISTS { ?c :v 3 }", ""),
    "not exists apart": ("?a ?b", "?a :p ?b FILTER NOT EXISTS { ?c :v ?v . ?c :p ?d FILTER(?v > 6) }", ""),
    "exists in an optional": ("?a ?b ?v", "?a :p ?b OPTIONAL { ?b :v ?v FILTER EXISTS { ?a :v ?v } }", ""),
    "a subquery apart": ("?a ?b ?n", "?a :p ?b { SELECT (COUNT(*) AS ?n) { ?c :v ?v } }", ""),
}
ARGUMENTS = {
    "minus by an argument": ("?a ?b", "?a :p ?b MINUS { ?a :v ?b }", ""),
    "minus of nothing": ("?a ?b", "?a :p ?b MINUS { ?a :v 3 }", ""),
    "groups with an argument": ("?a ?b (COUNT(*) AS ?n)", "?a :p ?b . ?b :p ?c", "GROUP BY ?a ?b HAVING(COUNT(*) > 1)"),
    "a group of an argument in a subquery": ("?b ?n", "?a :p ?b { SELECT (COUNT(*) AS ?n) { ?a :p ?c } }", ""),
    "an argument in a filter": ("?b ?c", "?b :p ?c FILTER(STR(?c) > STR(?a))", ""),
    "an argument in an optional": ("?b ?v", "?b :p ?c OPTIONAL { ?a :v ?v FILTER(?c != ?a) }", ""),
    "an argument in exists": ("?b", "?b :p ?c FILTER NOT EXISTS { ?c :p ?a }", ""),
    "an argument that is computed": ("?a ?b", "{ ?a :p ?b } UNION { ?c :p ?b BIND(?c AS ?a) }", ""),
    "distinct solutions of a union": ("(COUNT(DISTINCT *) AS ?n)", "{ ?a :p ?b } UNION { ?b :v ?z }", ""),
    "distinct rows of a union": (
        "(COUNT(*) AS ?n)",
        "{ SELECT DISTINCT ?a ?b ?z { { ?a :p ?b } UNION { ?b :v ?z } } }",
        "",
    ),
    "texts of an argument": ("(GROUP_CONCAT(?a) AS ?t)", "FILTER(ISIRI(?a))", ""),
    "an argument alone": ("?a ?x", "BIND(CONCAT(STR(?a), '!') AS ?x)", ""),
}
HOSTED = {
    "a path": ("?a ?b", "?a :p+ ?b FILTER(STRLEN(STR(?b)) > 3)", ""),
    "a path from rows": ("?a ?v ?b", "?a :v ?v . ?a :p/:p* ?b FILTER(?v > 3)", ""),
    "a path between triples": ("?a ?c ?v", "?a :v 3 . ?a :p* ?c . ?c :v ?v", ""),
    "groups of a path": ("?a (COUNT(DISTINCT ?b) AS ?n)", "?a :p+ ?b", "GROUP BY ?a ORDER BY DESC(?n) ?a LIMIT 3"),
    "an optional path": ("?a ?v ?b", "?a :v ?v OPTIONAL { ?a :p+ ?b FILTER(?b != ?a) }", ""),
    "a path from what may be unbound": ("?a ?b ?c", "?a :v ?v OPTIONAL { ?a :p ?b } ?b :p? ?c", ""),
    "a path to a node": ("?a ?v", "?a :v ?v . ?a :p* :n3", ""),
    "minus a path": ("?a ?b", "?a :p ?b MINUS { ?b :p+ ?a }", ""),
    "exists a path": ("?a ?b", "?a :p ?b FILTER EXISTS { ?b :p* ?c . ?c :v ?v FILTER(?v > 5) }", ""),
    "a path in a union": ("?a ?b", "?a :v ?v { ?a :p+ ?b } UNION { ?b :p+ ?a }", ""),
    "a path in a subquery": ("?a ?n", "?a :v ?v { SELECT ?a (COUNT(*) AS ?n) { ?a :p+ ?b } GROUP BY ?a }", ""),
    "exists of what may be unbound": ("?a ?v", "?a :p ?b OPTIONAL { ?a :v ?v } FILTER EXISTS { ?c :v ?v }", ""),
    "exists in an expression": ("?a ?x", "?a :p ?b BIND(IF(EXISTS { ?b :v ?v }, 'yes', 'no') AS ?x)", ""),
    "exists or more": ("?a ?b", "?a :p ?b FILTER(NOT EXISTS { ?b :v ?v } || ?a = ?b)", ""),
    "exists with a group": ("?a ?b", "?a :p ?b FILTER EXISTS { SELECT ?b { ?b :v ?v } GROUP BY ?b }", ""),
    "exists of other variables in an optional": (
        "?a ?b ?v",
        "?a :p ?b OPTIONAL { ?b :v ?v FILTER(EXISTS { ?c :p ?a } || ?v > 4) }",
        "",
    ),
    "now": ("?a ?y", "?a :p ?b FILTER(YEAR(NOW()) > 1960) BIND(NOW() AS ?y)", ""),
    "five variables": (
        "?a ?v",
        "?a :v ?v . ?a :p ?b . ?c :p ?d FILTER(CONCAT(STR(?a), STR(?b), STR(?c), STR(?d), STR(?v)) > 'http://e/n3')",
        "",
    ),
    "distinct solutions beside a sum": (
        "?a (COUNT(DISTINCT *) AS ?n) (SUM(?v) AS ?s) (COUNT(*) AS ?m)",
        "{ ?a :v ?v } UNION { ?a :v ?v } OPTIONAL { ?a :p [] }",
        "GROUP BY ?a",
    ),
    "a graph by graph": ("?g ?n", "GRAPH ?g { SELECT (COUNT(*) AS ?n) { ?a :p ?b } } ?x :p ?y", ""),
    "names of graphs": ("?g ?a", "GRAPH ?g { } ?a :v ?v", ""),
    "minus of what may be unbound": ("?a ?v", "?a :p ?b OPTIONAL { ?a :v ?v } MINUS { ?c :p ?b . ?c :v ?v }", ""),
}
IN_GRAPHS = [
    f"<http://e/n{number}> <http://e/p> <http://e/n{number + 1}> <http://e/g{number % 2}> ." for number in range(5)
]
"""Quads of stored graphs."""


def windows_of(
    shape: str, patch: pytest.MonkeyPatch | None = None, terms: Sequence[str] = ()
) -> tuple[list[Any], dict[str, int]]:
    """Return the windows of a query over a small stream, and what has found them. patch: no program runs; terms: the
    query is asked for each of these in the place of ?a, and the windows have its number first."""
    head, where, tail = (SHAPES | ARGUMENTS | HOSTED)[shape]
    rng = random.Random(shape)
    if patch is not None:
        patch.setattr(Program, "run", lambda *_, **__: None)
    found: list[Any] = []
    bindings = [{"a": term} for term in terms]
    with wukongs.Engine() as engine:
        stream = engine.stream(S, timing=True, batch_ms=100)
        if "GRAPH" in where:
            engine.load(io.BytesIO("\n".join(IN_GRAPHS).encode()), format="nquads")
        named = "FROM NAMED <http://e/g0> FROM NAMED <http://e/g1>" if "GRAPH" in where else ""
        query: Any = engine.register(
            f"PREFIX : <http://e/> REGISTER QUERY q AS SELECT {head} {named} FROM STREAM <{S}> "
            f"[RANGE 400ms STEP 100ms] WHERE {{ {where} }} {tail}",
            bindings=bindings or None,
        )
        for number in range(1, 25):
            at_ms, node = 100 * number, lambda: f"<http://e/n{rng.randrange(6)}>"
            rows = [(node(), "<http://e/p>", node(), at_ms) for _ in range(rng.randrange(4))]
            rows += [(node(), "<http://e/v>", str(rng.randrange(9)), at_ms) for _ in range(rng.randrange(3))]
            literal = "http://www.w3.org/2001/XMLSchema#integer"
            stream.push([(s, p, o if o[0] == "<" else f'"{o}"^^<{literal}>', t) for s, p, o, t in rows])
            stream.advance(at_ms)
            engine.settle(60)
            for window in query.results(timeout_s=0):
                texts = window.texts()
                found.append((window.end_ms, texts if "ORDER" in tail else sorted(map(str, texts))))
        return found, dict(query.stats()["found_by"])


@pytest.mark.parametrize("shape", SHAPES)
def test_a_program_answers_as_the_executor_does(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, by = windows_of(shape)
    expected, without = windows_of(shape, monkeypatch)
    assert found == expected
    assert any(rows for _, rows in found)
    assert by.get(Mechanism.PROGRAM, 0) > 15, by
    assert Mechanism.PROGRAM not in without


@pytest.mark.parametrize("shape", HOSTED)
def test_the_executor_evaluates_parts_of_a_program(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, by = windows_of(shape)
    expected, without = windows_of(shape, monkeypatch)
    assert found == expected
    assert any(rows for _, rows in found)
    assert by.get(Mechanism.PROGRAM, 0) > 15, by
    assert by.get(Mechanism.HOSTED, 0) > 12 or shape == "distinct solutions beside a sum", by
    assert Mechanism.HOSTED not in without


def test_patterns_of_many_steps_are_evaluated_by_the_executor() -> None:
    steps = " . ".join(f"?v{at} <http://e/p> ?v{at + 1}" for at in range(20))
    with wukongs.Engine() as engine:
        stream = engine.stream(S, timing=True, batch_ms=100)
        query: Any = engine.register(
            f"REGISTER QUERY q AS SELECT (COUNT(*) AS ?n) FROM STREAM <{S}> [RANGE 200ms STEP 100ms] "
            f"WHERE {{ {steps} }}"
        )
        for tick in range(1, 4):
            edges = [(f"<http://e/n{at}>", "<http://e/p>", f"<http://e/n{at + 1}>", 100 * tick) for at in range(25)]
            stream.push(edges)
            stream.advance(100 * tick)
        engine.settle(60)
        assert [window.texts() for window in query.results(timeout_s=0)] == [[(f'"6"^^<{INTEGER}>',)]] * 3
        assert query.stats()["found_by"] == {Mechanism.PROGRAM: 3, Mechanism.HOSTED: 3}


@pytest.mark.parametrize("shape", [*(shape for shape, (_, where, _) in SHAPES.items() if "?a" in where), *ARGUMENTS])
def test_a_program_answers_rows_of_arguments_as_the_executor_does(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some rows are equal, and some have terms that never arrive."""
    terms = [f"<http://e/n{number}>" for number in (3, 0, 5, 3, 7, 1, 4)] + ['"a text"', THREE]
    found, by = windows_of(shape, terms=terms)
    expected, without = windows_of(shape, monkeypatch, terms)
    assert found == expected
    assert any(rows for _, rows in found)
    assert by.get(Mechanism.PROGRAM, 0) > 15, by
    assert Mechanism.PROGRAM not in without


@pytest.mark.parametrize("seed", range(LIVES))
def test_windows_are_those_of_pyoxigraph(seed: int) -> None:
    plan = MIXES["program"].make(random.Random(f"{SEED or 0}/{seed} programs"))
    found, used = lived(plan)
    assert not judged(plan, found, Tally(), "program")
    assert used[Mechanism.PROGRAM] > 0 or TIER == "fast"


@pytest.mark.parametrize("shape", [*SHAPES, *ARGUMENTS])
def test_a_one_shot_query_is_answered_by_a_program_as_by_the_executor(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, where, tail = (SHAPES | ARGUMENTS)[shape]
    rng, text = random.Random(shape), f"PREFIX : <http://e/> SELECT {head} {{ {where} }} {tail}"
    right, runs, names = Program.run, Counter[bool](), [f"http://e/n{number}" for number in range(8)]

    def run(self: Program, *given: Any, **named: Any) -> Any:
        found = right(self, *given, **named)
        runs[found is not None] += 1
        return found

    monkeypatch.setattr(Program, "run", run)
    with wukongs.Engine() as engine:
        prepared = engine.prepare(text)
        for _ in range(12):
            node = lambda: f"<{rng.choice(names[:6])}>"  # noqa: E731
            rows = [f"{node()} <http://e/p> {node()} ." for _ in range(5)]
            rows += [f"{node()} <http://e/v> {rng.randrange(9)} ." for _ in range(4)]
            engine.update(f"INSERT DATA {{ {' '.join(rows)} }}")
            terms = [f"<{name}>" for name in names] + ['"a text"', THREE, "_:b"]
            for given in [{}] + [{"a": term} for term in terms if "?a" in where]:
                found, expected = (sorted_texts(prepared(**given, at=at), tail) for at in (None, prepared().snapshot))
                assert found == expected, (text, given)
    assert runs[True] > 0.6 * runs.total() > 60 or shape in ("order", "limit without order"), runs


def sorted_texts(result: Any, tail: str) -> Any:
    rows = result.texts()
    if "ORDER" in tail:
        return rows
    return len(rows) if "LIMIT" in tail else sorted(map(str, rows))


def semijoins_keep_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Compiler, "_semijoin", lambda self, relation, pattern, shared, *, is_anti: relation)


def optionals_bind_nothing(patch: pytest.MonkeyPatch) -> None:
    right = Code.add

    def add(self: Code, code: int, out: int, left: int = -1, found: int = -1, *given: Any, **named: Any) -> None:
        right(self, code, out, left, self.table() if code == layout.BESIDE else found, *given, **named)

    patch.setattr(Code, "add", add)


def conditions_are_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Compiler, "_condition", lambda self, relation, condition: None)


def values_are_those_of_the_first_key(patch: pytest.MonkeyPatch) -> None:
    right = Memo._values
    patch.setattr(Memo, "_values", lambda self, table, terms: right(self, table, terms)[:1].repeat(table.length))


@pytest.mark.parametrize(
    "mutant",
    [
        semijoins_keep_all,
        optionals_bind_nothing,
        conditions_are_not_asked,
        values_are_those_of_the_first_key,
    ],
)
def test_a_broken_operation_is_caught(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    for number in range(LIVES_OF_MUTANTS):
        plan = MIXES["program"].make(random.Random(f"mutant/{number}"))
        found, _ = lived(plan)
        if judged(plan, found, Tally(), "program"):
            return
    raise AssertionError("no life has caught it")


def test_a_mean_of_what_is_unbound_is_unbound(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = ("?a (AVG(?v) AS ?n)", "?a :p ?b OPTIONAL { ?b :none ?v }", "GROUP BY ?a")
    monkeypatch.setitem(SHAPES, "means of nothing", shape)
    found, by = windows_of("means of nothing")
    assert by.get(Mechanism.PROGRAM, 0) > 15
    assert found == windows_of("means of nothing", monkeypatch)[0]


@pytest.mark.parametrize("shape", [*(shape for shape, (_, where, _) in SHAPES.items() if "?a" in where), *ARGUMENTS])
def test_many_rows_of_terms_are_answered_by_a_program_as_by_the_executor(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of some calls all terms are known to the graph; the number of rows changes by factors."""
    head, where, tail = (SHAPES | ARGUMENTS)[shape]
    rng, ran = random.Random(shape), Counter[bool]()
    answer_many = StoredReads.answer_many

    def counted(*arguments: Any) -> Any:
        found = answer_many(*arguments)
        ran[found is not None] += 1
        return found

    monkeypatch.setattr(StoredReads, "answer_many", counted)
    with wukongs.Engine() as engine:
        node = lambda: f"<http://e/n{rng.randrange(6)}>"  # noqa: E731
        facts = [f"{node()} <http://e/p> {node()}" for _ in range(12)]
        facts += [f"{node()} <http://e/v> {rng.randrange(9)}" for _ in range(9)]
        facts += [f"<http://e/n{number}> <http://e/q> 'here'" for number in range(6)]
        engine.update(f"INSERT DATA {{ {' . '.join(facts)} }}")
        asked = engine.prepare(f"PREFIX : <http://e/> SELECT {head} {{ {where} }} {tail}")
        calls = [[{"a": node()} for _ in range(count)] for count in (1, 3, 30, 200, 2, 40)]
        calls += [[{"a": node()}, {"a": "<http://e/unknown>"}, {"a": '"a text"'}, {"a": node()}]]

        def answers() -> list[Any]:
            found = [asked.answer_many(call).texts() for call in calls]
            return found if tail else [sorted(map(str, rows)) for rows in found]

        found = answers()
        assert ran[True] > 0, ran
        assert ran[False] > 0, "unknown terms"
        monkeypatch.setattr(StoredReads, "answer_many", lambda *_: None)
        expected = answers()
    assert found == expected


def test_a_key_that_nothing_binds_is_left_to_the_executor() -> None:
    text = "PREFIX : <http://e/> SELECT (COUNT(DISTINCT *) AS ?n) { ?a :p ?b } GROUP BY ?c"
    with wukongs.Engine() as engine:
        engine.update("PREFIX : <http://e/> INSERT DATA { :a :p 1, 2 }")
        assert [engine.query(text).texts() for _ in range(3)] == [[(f'"2"^^<{INTEGER}>',)]] * 3


def test_a_construct_query_is_answered_by_a_program() -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(S, timing=True, batch_ms=100)
        query = engine.register(
            f"PREFIX : <http://e/> REGISTER QUERY q AS CONSTRUCT {{ ?a :r ?v }} FROM STREAM <{S}> "
            "[RANGE 100ms STEP 100ms] WHERE { ?a :p ?b OPTIONAL { ?b :v ?v } }"
        )
        stream.push(
            [("<http://e/a>", "<http://e/p>", "<http://e/b>", 100), ("<http://e/b>", "<http://e/v>", '"1"', 100)]
        )
        stream.advance(100)
        engine.settle(60)
        (window,) = query.results(timeout_s=0)
        assert window.texts() == [("<http://e/a>", "<http://e/r>", '"1"')]
        assert query.stats()["found_by"] == {Mechanism.PROGRAM: 1}


def test_a_construct_query_asked_again_makes_blank_nodes_of_its_own() -> None:
    text = "PREFIX : <http://e/> CONSTRUCT { ?a :r [ :s ?b ] } { ?a :p ?b }"
    with wukongs.Engine() as engine:
        engine.update("INSERT DATA { <http://e/a> <http://e/p> <http://e/b>, <http://e/c> }")
        prepared = engine.prepare(text)
        results = [engine.query(text) for _ in range(3)] + [prepared(a="<http://e/a>") for _ in range(2)]
        assert [len(result) for result in results] == [4] * 5
        blanks = [{term for row in result.texts() for term in row if term.startswith("_:")} for result in results]
        assert len(set().union(*blanks)) == 2 * 5
        assert len(prepared(a="<http://e/b>")) == 0


def test_an_evaluation_that_fails_leaves_a_memo_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program has the address of the memo."""
    registry = TermRegistry()
    terms = QueryTerms(registry, registry.snapshot_reader())
    ids, texts = terms.ids([f"<http://e/{number}>" for number in range(4)]).reshape(-1, 1), TextMemo()
    texts.insert(ids[:2], np.zeros_like, terms, 1)
    address = texts.address

    def fail(*given: Any) -> Any:
        raise wukongs.QueryTimeout("too long")

    monkeypatch.setattr(terms, "texts", fail)
    with pytest.raises(wukongs.QueryTimeout):
        texts.insert(ids, np.zeros_like, terms, 1)
    assert texts.address == address


def test_computed_texts_of_two_conditions_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "Bounds", lambda: program.Bounds._replace(computed_size=2000))
    inserted: list[int] = []
    right = TextMemo.insert

    def insert(self: TextMemo, keys: Any, *given: Any) -> None:
        inserted.append(len(keys))
        right(self, keys, *given)

    monkeypatch.setattr(TextMemo, "insert", insert)
    query = (
        f"PREFIX : <http://e/> REGISTER QUERY q AS SELECT ?x ?y FROM STREAM <{S}> [RANGE 100ms STEP 100ms] "
        "WHERE { ?a :v ?v BIND(CONCAT('a text of ', ?v) AS ?x) BIND(CONCAT('of ', STR(?a)) AS ?y) } "
        "ORDER BY DESC(?x) ?y LIMIT 3"
    )
    with wukongs.Engine() as engine:
        stream = engine.stream(S, timing=True, batch_ms=100)
        asked = engine.register(query)
        for number in range(1, 9):
            values = range(10 * number, 10 * number + 40)
            stream.push([(f"<http://e/{at}>", "<http://e/v>", f'"text {at:04}"', 100 * number) for at in values])
            stream.advance(100 * number)
            engine.settle(60)
            (window,) = asked.results(timeout_s=0)
            assert [row[0] for row in window.texts()] == [f'"a text of text {at:04}"' for at in list(values)[:-4:-1]]
        assert asked.stats()["found_by"] == {Mechanism.PROGRAM: 8}
    assert 0 < len(inserted) <= 2 * 8


def test_computed_terms_are_dropped_after_a_run_with_many(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Program] = []
    right = Program.__post_init__
    monkeypatch.setattr(Program, "__post_init__", lambda self: (made.append(self), right(self))[1])
    monkeypatch.setattr(stored_reads, "SHORT", program.SHORT._replace(computed_size=5_000))
    text = "SELECT (CONCAT(?v, ?w) AS ?x) { ?a <http://e/v> ?v BIND(CONCAT(?v, '-') AS ?w) }"
    with wukongs.Engine() as engine:
        engine.update(f"INSERT DATA {{ <http://e/a> <http://e/v> '{'x' * 2_000}' }}")
        for _ in range(4):
            assert len(engine.query(text).texts()[0][0] or "") == 4_003
        (own,) = made
        assert own._terms is None
        assert not own._memos.known or not any(memo._count for memo in own._memos.known.values())
        engine.update(f"DELETE WHERE {{ ?a ?p ?v }}; INSERT DATA {{ <http://e/a> <http://e/v> '{'y' * 400}' }}")
        for _ in range(2):
            assert len(engine.query(text).texts()[0][0] or "") == 803
        assert own._terms is not None


def test_expressions_over_long_texts_are_not_evaluated_with_the_lock_held(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    right = wukongs.engine.ask
    monkeypatch.setattr(wukongs.engine, "ask", lambda *given, **named: (asked.append(""), right(*given, **named))[1])
    rows = " ".join(f"<http://e/{at}> <http://e/v> '{at}{'x' * 10_000}' ." for at in range(20))
    with wukongs.Engine() as engine:
        engine.update(f"INSERT DATA {{ {rows} }}")
        prepared = engine.prepare("SELECT ?a { ?a ?p ?v FILTER(STRLEN(REPLACE(?v, 'x', 'y')) > 3) }")
        for _ in range(3):
            assert len(prepared(p="<http://e/v>")) == 20
        assert len(asked) == 3
        sort = engine.prepare("SELECT ?a { ?a ?p ?v } ORDER BY ?v")
        for _ in range(2):
            assert len(sort(p="<http://e/v>")) == 20
        assert len(asked) == 3


def test_a_program_has_the_time_of_its_call() -> None:
    text = "SELECT ?x { ?a ?p ?v BIND(STRLEN(?v) AS ?x) }"
    with wukongs.Engine() as engine:
        engine.update("INSERT DATA { <http://e/a> <http://e/v> 'one', 'three' }")
        prepared = engine.prepare(text)
        with pytest.raises(wukongs.QueryTimeout):
            prepared(p="<http://e/v>", timeout_s=1e-9)
        assert len(prepared(p="<http://e/v>")) == 2


def test_a_large_answer_leaves_programs_to_small_ones() -> None:
    rows = " ".join(f"<http://e/hub> <http://e/p> <http://e/{at}> ." for at in range(40_000))
    runs: Counter[bool] = Counter()
    right = Program.run

    def run(self: Program, *given: Any, **named: Any) -> Any:
        found = right(self, *given, **named)
        runs[found is not None] += 1
        return found

    with wukongs.Engine() as engine, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "run", run)
        others = " ".join(f"<http://e/a{at}> <http://e/p> <http://e/b> ." for at in range(4000))
        engine.update(f"INSERT DATA {{ {rows} {others} <http://e/a> <http://e/p> <http://e/b> }}")
        prepared = engine.prepare("SELECT ?b ?c { ?a <http://e/p> ?b OPTIONAL { ?b <http://e/q> ?c } }")
        for number in range(300):
            is_large = number % 50 == 0
            assert len(prepared(a=f"<http://e/{'hub' if is_large else 'a'}>")) == (40_000 if is_large else 1)
    assert runs[True] > 270


def test_a_memo_keeps_no_more_than_it_may() -> None:
    registry = TermRegistry()
    terms, variable = QueryTerms(registry, registry.snapshot_reader()), Variable("x")
    lengths = Memo(Call("STRLEN", (variable,)), (variable,), is_condition=False, slots_max=64)
    for number in range(20):
        ids = terms.ids([f'"{"x" * (10 * number + at + 10)}"' for at in range(10)]).reshape(-1, 1)
        lengths.insert(ids, np.zeros_like, terms, 1)
        assert lengths._block[layout.MEMO_SLOTS] <= 64
        for at, term in enumerate(ids[:, 0]):
            found = look_up(lengths.address, np.array([term]), np.zeros(1, np.int64), 1)
            assert terms.texts(np.array([found])) == [f'"{10 * number + at + 10}"^^<{INTEGER}>']


def test_inlined_values_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_terms, "INLINED_MAX", 100)
    registry = TermRegistry()
    terms = QueryTerms(registry, registry.snapshot_reader())
    long_text = '"a text too long for an id"'
    known = terms.ids([long_text])
    for number in range(100):
        terms = terms.renewed(registry.snapshot_reader())
        terms.ids([f'"{10 * number + at}"' for at in range(10)])
    assert len(terms._ids) < 150
    assert terms.ids([long_text]).tolist() == known.tolist()
    assert terms.texts(known) == [long_text]


def test_a_program_with_plans_for_other_sizes_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[int] = []
    right = Compiler.query
    monkeypatch.setattr(Compiler, "query", lambda self, query: (compiled.append(1), right(self, query))[1])
    monkeypatch.setattr(PlanMemo, "is_stale", property(lambda self: True))
    _, by = windows_of("optional")
    assert len(compiled) >= by[Mechanism.PROGRAM] > 15
