"""A group of queries from a table: the rows of each against those of the query alone, with its terms put in."""

from __future__ import annotations

import io
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wukongs
from tests.clusters import cluster
from tests.fuzz import fuzzed
from wukongs.csparql.algebra import DatasetClause, Query
from wukongs.csparql.parser import parse_query
from wukongs.csparql.rules import rewrite
from wukongs.csparql.terms import Term, Variable
from wukongs.csparql.warnings import STORED as STORED_GRAPH
from wukongs.live.core import Core
from wukongs.live.declarations import parse_continuous
from wukongs.live.journal import NoJournal
from wukongs.live.query_group import QueryGroup, bindings_text
from wukongs.live.query_source import QuerySource
from wukongs.live.reading import dataset_of, terms_of
from wukongs.query.execution import argument_rows
from wukongs.query.execution.answer import answer
from wukongs.query.execution.bindings import bind
from wukongs.query.limits import Limits
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.terms.decoding import column_texts
from wukongs.settings import Settings
from wukongs.store.encoder import encode_ntriples

XSD = "http://www.w3.org/2001/XMLSchema#"
NODES = [f"<http://e/{name}>" for name in "abcd"]
NUMBERS = [f'"{number}"^^<{XSD}integer>' for number in (1, 2, 3)]
LONG = '"longer than what is inlined"'
TERMS = [*NODES, *NUMBERS, LONG]
CORES = [
    "?x :p ?y",
    "?x :p ?y . ?y :p ?z",
    "?x :p ?y . ?x :q ?z",
    "?x ?r ?y",
    "?x :p ?y . ?y :q ?z . ?u :p ?x",
    "?x :p ?y FILTER(?y != ?z)",
    "?x :q ?y FILTER(?y > ?z)",
    "?x :q ?y FILTER(?y >= 2)",
    "?x :p ?y . ?x :q ?z FILTER(?z < 3 && ?y != :a)",
    "?x :p ?y FILTER EXISTS { ?y :q ?z }",
    "?x :p ?y FILTER NOT EXISTS { ?z :q ?y }",
    "?x :p ?x",
]
WHOLE = [
    "%s OPTIONAL { ?y :q ?n }",
    "%s OPTIONAL { ?z :p ?n FILTER(?n != ?x) }",
    "%s OPTIONAL { ?y :p ?m OPTIONAL { ?m :q ?n } }",
    "%s MINUS { ?y :q ?z }",
    "%s MINUS { ?x :p ?n . ?n :p ?z }",
    "{ %s } UNION { ?y :p ?x }",
    "{ %s } UNION { ?z :q ?n }",
    "%s . ?y :p* ?n",
    "?x :p+ ?y",
    "?y (:p|:q)* ?n . %s",
    "%s BIND(?y AS ?n)",
    "%s BIND(STR(?z) AS ?n) FILTER(BOUND(?n))",
    "%s VALUES (?y ?n) { (:a 1) (UNDEF 2) (:b UNDEF) }",
    "VALUES ?x { :a :b } %s",
    "{ SELECT ?x (COUNT(*) AS ?n) { %s } GROUP BY ?x }",
    "{ SELECT (COUNT(?y) AS ?n) { %s } }",
    "{ SELECT ?y ?n { %s . ?y :q ?n } ORDER BY ?n LIMIT 1 }",
    "?x :q ?z { SELECT DISTINCT ?y { %s } }",
    "GRAPH ?g { ?x :p ?y }",
    "GRAPH ?g { ?x :p ?y OPTIONAL { ?y :p ?n } }",
    "GRAPH ?g { SELECT ?x (COUNT(*) AS ?n) { ?x :p ?y } GROUP BY ?x }",
    "GRAPH ?g { SELECT (COUNT(*) AS ?n) { ?x :p ?y } }",
    "GRAPH ?g { ?x :p* ?y }",
    "?x :p? ?y",
    "?x (:p/:q*)? ?n . %s",
    "?x (^:p)*/:q? ?y",
    "%s OPTIONAL { ?z :p* ?n }",
    "%s MINUS { ?x :q? ?z }",
    "%s FILTER EXISTS { SELECT ?y { ?y :q ?n . ?n ?r ?x } LIMIT 1 }",
    "%s FILTER NOT EXISTS { SELECT ?x (COUNT(*) AS ?n) { ?x :p ?z } GROUP BY ?x }",
    "%s FILTER(EXISTS { ?y :p ?n MINUS { ?n :p ?x } } || ?z = 2)",
    "{ %s } UNION { ?x :q ?n } UNION { SELECT (MAX(?z) AS ?n) { ?x :q ?z } }",
    "%s . { { ?x :p ?n } UNION { ?x :q ?n } }",
    "{ %s MINUS { ?z :p ?u } } { SELECT ?x { ?x :p ?u } OFFSET 1 }",
    "{ SELECT * { %s } LIMIT 3 } OPTIONAL { SELECT ?x (SUM(?m) AS ?n) { ?x :q ?m } GROUP BY ?x }",
    "{ SELECT (?y AS ?n) { %s } }",
    "{ BIND(:a AS ?x) } UNION { %s }",
    "%s FILTER(?x IN (:a, :b))",
]
HEADS = [
    ("SELECT *", ""),
    ("SELECT ?x ?y", ""),
    ("SELECT DISTINCT ?y", ""),
    ("SELECT ?x ?y ?z", "ORDER BY DESC(?y) ?x ?z LIMIT 2"),
    ("SELECT ?y", "LIMIT 1 OFFSET 1"),
    ("SELECT DISTINCT ?y ?z", "LIMIT 2"),
    ("SELECT (COUNT(*) AS ?count)", ""),
    ("SELECT (SUM(?y) AS ?sum) (GROUP_CONCAT(?y) AS ?all)", ""),
    ("SELECT ?y (COUNT(DISTINCT ?x) AS ?count) (MAX(?z) AS ?most)", "GROUP BY ?y"),
    ("SELECT ?x (COUNT(*) AS ?count)", "GROUP BY ?x HAVING (COUNT(*) > 1)"),
    ("SELECT ?x (MIN(?y) AS ?least)", "GROUP BY ?x ORDER BY ?least LIMIT 1"),
    ("SELECT (COUNT(DISTINCT *) AS ?count)", ""),
    ("SELECT ?y (COUNT(*) AS ?count)", "GROUP BY ?y VALUES ?y { :a :b }"),
    ("SELECT ?x (COUNT(*) AS ?count)", "GROUP BY ?x VALUES ?x { :a :b UNDEF }"),
    ("SELECT (COUNT(*) AS ?count)", "HAVING (COUNT(*) > 1)"),
    ("SELECT (COUNT(*) + 1 AS ?count)", "HAVING (COUNT(*) < 1 || EXISTS { ?x :p ?x })"),
    ("SELECT DISTINCT (STR(?y) AS ?name) ?z", "ORDER BY ?name ?z OFFSET 1"),
]


@st.composite
def queries(draw: st.DrawFn) -> str:
    where = draw(st.sampled_from(CORES))
    if draw(st.booleans()):
        whole = draw(st.sampled_from(WHOLE))
        where = whole % where if "%s" in whole else whole
    head, tail = draw(st.sampled_from(HEADS))
    return f"PREFIX : <http://e/> {head} WHERE {{ {where} }} {tail}"


@st.composite
def graphs(draw: st.DrawFn) -> str:
    links = draw(st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)), max_size=12))
    values = draw(st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from([*NUMBERS, LONG])), max_size=8))
    lines = [f"{s} <http://e/p> {o} ." for s, o in links] + [f"{s} <http://e/q> {o} ." for s, o in values]
    lines += [f"{s} <http://e/p> {o} <http://e/g{len(o) % 2}> ." for s, o in links[:3]]
    return "".join(line + "\n" for line in lines)


def rows_of(columns: tuple[np.ndarray, ...], length: int, terms: object) -> list[tuple[str | None, ...]]:
    return list(zip(*(column_texts(column, terms) for column in columns), strict=True)) if columns else [()] * length


def check(text: str, data: str, names: list[str], table: list[tuple[str, ...]]) -> None:
    core = Core(Settings(), NoJournal())
    encoded, _ = encode_ntriples(data.encode(), b"")
    with core.lock:
        core.absorb(1, [core.registry.confirm(encoded)[0]], core.default_graph)
    query: Query = rewrite(parse_query(text))
    rows = [dict(zip(names, row, strict=True)) for row in table]
    group = QueryGroup(core, query, bindings_text(rows))
    dataset = dataset_of(core, DatasetClause(), core.arrangement.trace.read(core.arrangement.trace.upper - 1), 1)
    terms = terms_of(core)
    found = group.arguments.rows.answer(dataset, terms, Limits(), PlanMemo())
    assert group.arguments.rows.variables == ("argument", *query.variables)
    by_row: dict[str | None, list[tuple[str | None, ...]]] = defaultdict(list)
    for number, *row in rows_of(found.columns, found.length, terms):
        by_row[number].append(tuple(row))
    numbers = [int(str(number).split('"')[1]) for number in by_row]
    assert numbers == sorted(numbers)
    for number, row in enumerate(rows):
        bound = bind(query, {Variable(name): Term(term) for name, term in row.items()})
        alone = answer(bound, dataset, terms, Limits(), PlanMemo(), "alone", in_order=True)
        expected = rows_of(alone.columns, alone.length, terms)
        actual = by_row.get(f'"{number}"^^<{XSD}integer>', [])
        if "ORDER BY" in text:
            assert actual == expected, (text, data, row)
        assert sorted(actual, key=repr) == sorted(expected, key=repr), (text, data, row)


def variables_in(text: str) -> list[str]:
    where = text.split("WHERE", 1)[1].rsplit("}", 1)[0]
    return [name for name in "xyzun" if f"?{name} " in where + " " or f"?{name})" in where]


@pytest.mark.parametrize("way", ["chosen", "start", "probe"])
def test_each_row_as_alone(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way != "chosen":
        # The start is told by its rows, more than one; a probe begins with one row that binds nothing.
        cost = {"start": lambda _, rows: -rows, "probe": lambda _, rows: rows}[way]
        monkeypatch.setattr(argument_rows, "_work", cost)

    @settings(fuzzed(150))
    @given(queries(), graphs(), st.data())
    def run(text: str, data: str, drawn: st.DataObject) -> None:
        names = drawn.draw(st.lists(st.sampled_from(variables_in(text)), min_size=1, max_size=3, unique=True))
        row = st.tuples(*[st.sampled_from(TERMS) for _ in names])
        check(text, data, names, drawn.draw(st.lists(row, min_size=2, max_size=6)))

    run()


DATA = "".join(
    f"{NODES[s]} <http://e/p> {NODES[o]} .\n" for s, o in ((0, 0), (0, 1), (0, 2), (1, 2), (1, 3), (2, 0), (2, 2))
) + "".join(f"{NODES[s]} <http://e/q> {value} .\n" for s, value in ((0, NUMBERS[0]), (1, NUMBERS[1]), (1, LONG)))


@pytest.mark.parametrize("head", HEADS, ids=" ".join)
def test_each_shape_under_each_clause(head: tuple[str, str]) -> None:
    for where in [*CORES, *(whole % CORES[0] if "%s" in whole else whole for whole in WHOLE)]:
        text = f"PREFIX : <http://e/> {head[0]} WHERE {{ {where} }} {head[1]}"
        check(text, DATA, ["x"], [(NODES[0],), (NODES[1],), (NODES[3],), (NODES[0],)])


STORED = "".join(f"{NODES[at]} <http://e/k> {NODES[(at + 1) % 4]} .\n" for at in range(4))
OF_STREAMS = [
    ("FROM STREAM <http://e/s> [RANGE 200ms STEP 100ms]", "?x :p ?y FILTER(timestamp(?y) > 120)"),
    ("FROM STREAM <http://e/s> [RANGE 200ms STEP 100ms]", "?x :p ?y BIND(timestamp(?x) AS ?z)"),
    (f"FROM {STORED_GRAPH} FROM STREAM <http://e/s> [RANGE 200ms STEP 100ms]", "?x :k ?y . ?y :p ?z"),
    (f"FROM {STORED_GRAPH} FROM STREAM <http://e/s> [RANGE 200ms STEP 100ms]", "?x :k+ ?y . ?z :p ?y"),
    ("FROM NAMED STREAM <http://e/s> [RANGE 300ms STEP 100ms]", "?x :k ?y GRAPH <http://e/s> { ?y :p ?z }"),
    ("FROM NAMED STREAM <http://e/s> [RANGE 300ms STEP 100ms]", "GRAPH ?g { ?x :p ?y } OPTIONAL { ?y :k ?z }"),
    ("FROM STREAM <http://e/s> [RANGE TRIPLES 4 STEP 2]", "?x :p ?y"),
    ("FROM STREAM <http://e/s> [RANGE 200ms STEP 100ms]", "?x :p ?y FILTER(?y > NOW() || ?y != :a)"),
]


@pytest.mark.parametrize("output", ["rstream", "istream"])
@pytest.mark.parametrize(("clause", "where"), OF_STREAMS)
def test_the_windows_of_an_engine(clause: str, where: str, output: str) -> None:
    text = f"PREFIX : <http://e/> REGISTER QUERY %s AS SELECT * {clause} WHERE {{ {where} }}"
    rows = [{"x": node} for node in (NODES[0], NODES[2], NODES[0], "<http://e/none>")]
    with wukongs.Engine() as engine:
        engine.load(io.BytesIO(STORED.encode()), format="nt")
        stream = engine.stream("http://e/s", timing=True, batch_ms=100)
        group = engine.register(text % "g", output=output, bindings=rows)
        alone = []
        for number, row in enumerate(rows):
            source = QuerySource(text % f"q{number}", output=output)
            bound = bind(parse_continuous(source), {Variable(name): Term(term) for name, term in row.items()})
            alone.append(engine._backend.register(bound, source, None))
        for at in range(12):
            stream.push([(NODES[at % 3], "<http://e/p>", NODES[(at * at) % 4], 10 + 40 * at)])
        stream.advance(700)
        engine.settle(60)
        windows = list(group.results(timeout_s=0))
        assert any(len(window) for window in windows)
        for number, query in enumerate(alone):
            expected = [(window.end_ms, sorted(window.texts(), key=repr)) for window in query.results(timeout_s=0)]
            name = f'"{number}"^^<{XSD}integer>'
            found = [(w.end_ms, sorted((row[1:] for row in w.texts() if row[0] == name), key=repr)) for w in windows]
            assert found == expected, (number, where)


@pytest.mark.slow
@pytest.mark.parametrize("hash_bits", [62, 8])
def test_the_windows_of_a_cluster(hash_bits: int) -> None:
    """Two nodes, each of which has a share of the stored graph, give what one engine gives. hash_bits: with 8, nearly
    every term shares its hash with another."""
    rows = [{"x": node} for node in (*NODES, NODES[0], "<http://e/none>", LONG)]
    cases = [(clause, where) for clause, where in OF_STREAMS if "TRIPLES" not in clause]
    wholes = [one.replace("%s", "?x :k ?y").replace(":q", ":p") for one in WHOLE if "GRAPH" not in one]
    cases += [(OF_STREAMS[2][0], f"{{{{ {where} }}}} ?x :k ?own") for where in wholes]
    answers = []
    with wukongs.Engine() as embedded, cluster(2, settings=Settings(hash_bits=hash_bits)) as nodes:
        for engine in (embedded, nodes[1].engine):
            engine.load(io.BytesIO(STORED.encode()), format="nt")
            stream = engine.stream("http://e/s", timing=True, batch_ms=100)
            stream.advance(0)
            groups = []
            for number, (clause, where) in enumerate(cases):
                text = f"PREFIX : <http://e/> REGISTER QUERY g{number} AS SELECT * {clause} WHERE {{ {where} }}"
                groups.append(engine.register(text, bindings=rows))
            for at in range(12):
                stream.push([(NODES[at % 3], "<http://e/p>", NODES[(at * at) % 4], 10 + 40 * at)])
            stream.advance(700)
            engine.settle(60)
            found = [[(w.end_ms, sorted(w.texts(), key=repr)) for w in group.results(timeout_s=0)] for group in groups]
            answers.append(dict(zip(cases, found, strict=True)))
    assert answers[1] == answers[0]
    assert sum(any(rows for _, rows in windows) for windows in answers[0].values()) > len(cases) / 2
