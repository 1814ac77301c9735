"""Sweeps: what executions really allocate is reserved before, for each kind of operator (docs/decisions/0120). With
little memory, operators that cannot be evaluated in pieces fail by name before they allocate."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import wukongs
from tests.inside import core_of
from tests.traced_memory import ALLOWED_BYTES, ALLOWED_SHARE, Traced, trace_kernels, traced
from tests.unit.query.test_services import allowing, endpoint, told
from wukongs.errors import BudgetExceeded

MEGABYTE = 1 << 20
NODES = 50_000
FEW_NODES = 10_000
PREFIXES = "PREFIX : <http://ex/> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> "
LISTED = " ".join(f":h{number}" for number in range(20_000))
INSERTED = " ".join(f":z{number} :p {number} ." for number in range(30_000))

QUERIES = {
    "bgp": "SELECT * {?a :knows ?b . ?b :knows ?c . ?c :knows ?d}",
    "join of subqueries": ("SELECT * { { SELECT ?a ?h { ?a :in ?h } } { SELECT ?b ?h { ?b :in ?h } LIMIT 3000 } }"),
    "join filtered": (
        "SELECT * { { SELECT ?a ?x { ?a :age ?x } LIMIT 2000 } { SELECT ?b ?y { ?b :age ?y } LIMIT 2000 "
        "} FILTER (?x + ?y = 7) }"
    ),
    "filter numbers": "SELECT * {?a :age ?x . ?a :knows ?b . ?b :knows ?c . ?c :age ?y FILTER(?x+1 < ?y*2)}",
    "filter texts": "SELECT * {?a :name ?x . ?a :knows ?b . ?b :knows ?c FILTER(CONTAINS(?x, '9'))}",
    "filter regex": "SELECT * {?a :name ?x . ?a :knows ?b FILTER(REGEX(?x, 'n.*9$'))}",
    "path +": "SELECT * {?a :next+ ?b}",
    "path *": "SELECT * {?a :next* ?b}",
    "path from 1": "SELECT * {:n1 (:knows|^:knows)+ ?b}",
    "path count": "SELECT (COUNT(*) AS ?n) {?a :next+ ?b}",
    "path negated": "SELECT * {?a !(:next|:in)/:knows ?b}",
    "path graph": "SELECT * {GRAPH ?g {?a :in+ ?b}}",
    "path self": "SELECT * {?a :knows+ ?a}",
    "exists": "SELECT * {?a :knows ?b FILTER EXISTS {?b :knows ?c . ?c :mail ?m}}",
    "not exists": "SELECT * {?a :knows ?b FILTER NOT EXISTS {?b :knows ?c . ?c :age 3}}",
    "exists subq": (
        "SELECT * {?a :age 5 FILTER EXISTS {SELECT ?a (COUNT(*) AS ?n) {?a :knows ?b} GROUP BY ?a HAVING(?n>1)}}"
    ),
    "exists union": "SELECT * {?a :knows ?b FILTER EXISTS {{?b :mail ?m} UNION {?b :age 3}}}",
    "exists optional": (
        "SELECT * {?a :knows ?b FILTER EXISTS {?b :knows ?c OPTIONAL {?c :mail ?m} FILTER(BOUND(?m))}}"
    ),
    "graph": "SELECT * {GRAPH ?g {?a :in ?h . ?a :next ?b}}",
    "graph each": (
        "SELECT * { GRAPH ?g { SELECT ?h (COUNT(*) AS ?n) { ?a :in ?h . ?b :in ?h . ?a :next ?c } GROUP BY ?h } }"
    ),
    "graph pairs": "SELECT * { GRAPH ?g { SELECT ?a ?b { ?a :in ?h . ?b :in ?h } LIMIT 100000 } }",
    "graph minus": "SELECT * {GRAPH ?g {?a :in ?h MINUS {?a :next ?b . ?b :next ?c}}}",
    "graph optional": "SELECT * {GRAPH ?g {?a :in ?h OPTIONAL {?b :in ?h . ?b :next ?a}}}",
    "optional": "SELECT * {?a :knows ?b OPTIONAL {?b :mail ?m}}",
    "optional group": ("SELECT * {?a :knows ?b OPTIONAL {SELECT ?b (COUNT(*) AS ?n) {?b :knows ?c} GROUP BY ?b}}"),
    "optional condition": (
        "SELECT * {?a :age ?x OPTIONAL {SELECT ?a ?b ?y {?a :knows ?b . ?b :age ?y}} FILTER(!BOUND(?y) || ?x<?y)}"
    ),
    "optional unbound": (
        "SELECT * {{?a :age ?x OPTIONAL {?a :mail ?m}} OPTIONAL {SELECT ?a ?m ?h {?a :in ?h OPTIONAL {?a :mail ?m}}}}"
    ),
    "minus": "SELECT * {?a :knows ?b MINUS {?b :mail ?m}}",
    "minus group": "SELECT * {?a :knows ?b MINUS {SELECT ?b {?b :knows ?c . ?c :knows ?d}}}",
    "minus optional": ("SELECT * {?a :knows ?b MINUS {?b :age ?x OPTIONAL {?b :mail ?m} OPTIONAL{?b :knows ?a}}}"),
    "union": "SELECT * {{?a :knows ?b} UNION {?a :in ?c} UNION {?a :mail ?d}}",
    "count": "SELECT (COUNT(*) AS ?n) {?a :knows ?b . ?b :knows ?c}",
    "group": (
        "SELECT ?h (COUNT(*) AS ?n) (SUM(?x) AS ?s) (AVG(?x) AS ?v) (MIN(?x) AS ?l) (MAX(?x) AS ?m) {?a "
        ":in ?h . ?a :age ?x . ?a :knows ?b . ?b :knows ?c} GROUP BY ?h"
    ),
    "group many": ("SELECT ?b (COUNT(DISTINCT ?c) AS ?n) (SAMPLE(?c) AS ?s) {?a :knows ?b . ?b :knows ?c} GROUP BY ?b"),
    "sum distinct": "SELECT ?b (SUM(DISTINCT ?x) AS ?n) {?a :knows ?b . ?a :age ?x} GROUP BY ?b",
    "max texts": "SELECT ?h (MAX(?m) AS ?n) {?a :in ?h . ?a :name ?m} GROUP BY ?h",
    "group_concat": (
        "SELECT ?h (GROUP_CONCAT(?m; SEPARATOR=', ') AS ?n) {?a :in ?h . ?a :knows ?b . ?b :name ?m} GROUP BY ?h"
    ),
    "group_concat distinct": (
        "SELECT ?h (GROUP_CONCAT(DISTINCT ?m) AS ?n) {?a :in ?h . ?a :knows ?b . ?b :name ?m} GROUP BY ?h"
    ),
    "order numbers": "SELECT * {?a :age ?x . ?a :knows ?b . ?b :knows ?c} ORDER BY ?x DESC(?c)",
    "order texts": "SELECT * {?a :name ?x . ?a :knows ?b} ORDER BY DESC(?x)",
    "order expression": "SELECT * {?a :name ?x . ?a :knows ?b} ORDER BY STRLEN(?x) CONCAT(?x, STR(?b))",
    "order limit": "SELECT * {?a :age ?x . ?a :knows ?b . ?b :knows ?c} ORDER BY ?x ?c LIMIT 10",
    "distinct": "SELECT DISTINCT ?a ?c {?a :knows ?b . ?b :knows ?c}",
    "distinct one": "SELECT DISTINCT ?h {?a :in ?h . ?a :knows ?b . ?b :knows ?c}",
    "bind text": "SELECT * {?a :name ?x . ?a :knows ?b BIND(CONCAT(?x, ' of ', STR(?b)) AS ?y)}",
    "bind ucase": "SELECT * {?a :name ?x BIND(UCASE(?x) AS ?y) BIND(SUBSTR(?x, 5) AS ?z)}",
    "bind replace": "SELECT * {?a :name ?x BIND(REPLACE(?x, 'n', 'mm') AS ?y)}",
    "bind numbers": "SELECT * {?a :age ?x . ?a :knows ?b . ?b :age ?y BIND(?x * ?y + 1.5 AS ?z)}",
    "bind iri": (
        "SELECT * { { SELECT ?a ?x { ?a :name ?x } LIMIT 10000 } BIND(IRI(CONCAT('http://ex/', "
        "ENCODE_FOR_URI(?x))) AS ?y) }"
    ),
    "bind hash": "SELECT * { { SELECT ?a ?x { ?a :name ?x } LIMIT 10000 } BIND(SHA1(?x) AS ?y) }",
    "bind if": (
        "SELECT * {?a :age ?x . ?a :knows ?b OPTIONAL {?a :mail ?m} BIND(IF(?x > 5, COALESCE(?m, "
        "'none'), STR(?x)) AS ?z)}"
    ),
    "bind bnode": (
        "SELECT * { { SELECT ?a ?x { ?a :name ?x } LIMIT 10000 } BIND(BNODE() AS ?y) BIND(UUID() AS ?z) "
        "BIND(RAND() AS ?r) }"
    ),
    "bind strlen": ("SELECT * {?a :name ?x . ?a :knows ?b BIND(STRLEN(?x) AS ?y) BIND(STRBEFORE(?x,'of') AS ?z)}"),
    "bind dt": "SELECT * {?a :age ?x BIND(STRDT(STR(?x), <http://ex/t>) AS ?y) BIND(xsd:double(?x) AS ?z)}",
    "bind triple": "SELECT * { { SELECT ?a ?b { ?a :knows ?b } LIMIT 20000 } BIND(<<(?a :k ?b)>> AS ?y) }",
    "in": "SELECT * {?a :age ?x . ?a :knows ?b FILTER(?x IN (1,2,3) || ?b IN (:n1,:n2))}",
    "subquery": "SELECT * {?a :in ?h {SELECT ?h (AVG(?x) AS ?v) {?a :in ?h . ?a :age ?x} GROUP BY ?h}}",
    "subquery limit": ("SELECT * {?a :in ?h {SELECT ?a ?c {?a :knows ?b . ?b :knows ?c} ORDER BY ?c LIMIT 50000}}"),
    "construct": "CONSTRUCT {?a :fof ?c . ?c :fofi ?a} {?a :knows ?b . ?b :knows ?c}",
    "construct blank": "CONSTRUCT {_:b :of ?a ; :is ?c} {?a :knows ?c}",
    "describe": "DESCRIBE ?a {?a :in :h1}",
    "describe many": "DESCRIBE ?a {?a :age ?x}",
    "slice": "SELECT * {?a :knows ?b . ?b :knows ?c} LIMIT 100000 OFFSET 50000",
    "ask": "ASK {?a :knows ?b . ?b :knows ?c . ?c :knows ?a}",
    "everything": "SELECT * {?s ?p ?o}",
    "product": "SELECT ?x ?y { ?a :age ?x . ?a :in :h3 . ?b :mail ?y . ?b :in :h1 }",
    "path pairs": "SELECT * { ?a :in :h1 . ?a :age 1 . ?b :in :h2 . ?b :age 2 . ?a :next+ ?b }",
    "path from some": "SELECT * { { SELECT ?a { ?a :in :h1 } LIMIT 20 } ?a :knows+ ?b }",
    "values": f"SELECT * {{ VALUES ?h {{ {LISTED} }} ?a :in ?h }}",
}
UPDATES = {
    "insert where": "INSERT {?a :fof ?c} WHERE {?a :knows ?b . ?b :knows ?c}",
    "delete where": "DELETE WHERE {?a :knows ?b}",
    "modify": "DELETE {?a :age ?x} INSERT {?a :age ?y} WHERE {?a :age ?x BIND(?x+1 AS ?y)}",
    "insert graph": "INSERT {GRAPH ?g {?a :has ?h}} WHERE {GRAPH ?g {?a :in ?h}}",
    "insert blank": "INSERT {_:x :of ?a} WHERE {?a :knows ?b}",
    "insert text": "INSERT {?a :label ?y} WHERE {?a :name ?x BIND(CONCAT(?x, '!') AS ?y)}",
    "copy": "COPY GRAPH :g1 TO :g9",
    "clear": "CLEAR GRAPH :g2",
    "insert data": f"INSERT DATA {{ {INSERTED} }}",
}
FAST = ("path count", "count", "distinct one", "describe many", "path self")
"""Of these, too much was allocated once."""
SMALL_BYTES_MAX = 6 * MEGABYTE
WHOLE = ("path +", "path *", "exists optional", "graph pairs", "minus group")
"""Evaluated as a whole: without memory they fail by name."""


def written(nodes: int, folder: Path) -> Path:
    """Write a graph of ten triples for each node, some of them in named graphs."""
    rng = random.Random(nodes)
    lines = []
    for at in range(nodes):
        node, group, graph = f"<http://ex/n{at}>", f"<http://ex/h{at % 50}>", f"<http://ex/g{at % 8}>"
        after = at + 1 if (at + 1) % 100 else at - 99
        lines += [
            f'{node} <http://ex/name> "the name of number {at}" .',
            f'{node} <http://ex/age> "{at % 100}"^^<http://www.w3.org/2001/XMLSchema#integer> .',
            f"{node} <http://ex/in> {group} .",
            f"{node} <http://ex/next> <http://ex/n{after}> .",
            f"{node} <http://ex/in> {group} {graph} .",
            f"{node} <http://ex/next> <http://ex/n{at + 1}> {graph} .",
        ]
        lines += [f"{node} <http://ex/knows> <http://ex/n{rng.randrange(nodes)}> ." for _ in range(3)]
        if at % 2:
            lines.append(f'{node} <http://ex/mail> "m{at}@ex" .')
    path = folder / f"{nodes}.nq"
    path.write_text("\n".join(lines) + "\n")
    return path


def engine_of(nodes: int, folder: Path, **settings: int) -> wukongs.Engine:
    engine = wukongs.Engine(settings=settings)
    engine.load(written(nodes, folder))
    return engine


def warm_up(folder: Path, *names: str) -> None:
    """Do once what is done once: modules are imported, and kernels loaded."""
    trace_kernels()
    with engine_of(400, folder) as engine:
        for name in names:
            engine.query(PREFIXES + QUERIES[name]) if name in QUERIES else engine.update(PREFIXES + UPDATES[name])


def asked(engine: wukongs.Engine, name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Traced, BudgetExceeded | None]:
    """Ask a query, or apply an update; return what was traced, and how it failed."""
    error = None
    with traced(monkeypatch) as found:
        try:
            if name in QUERIES:
                engine.query(PREFIXES + QUERIES[name])
            else:
                engine.update(PREFIXES + UPDATES[name])
        except BudgetExceeded as failed:
            error = failed.with_traceback(None)
    return found, error


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("swept")


@pytest.fixture(scope="module")
def large(folder: Path) -> Iterator[wukongs.Engine]:
    with engine_of(NODES, folder) as engine:
        yield engine


def test_a_sample_allocates_what_it_reserves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warm_up(folder, *FAST)
    with engine_of(FEW_NODES, folder) as engine:
        for name in FAST:
            found, error = asked(engine, name, monkeypatch)
            assert error is None, name
            assert found.peak_bytes > MEGABYTE, name  # kernels are traced
            found.check(name, 2 * MEGABYTE)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_queries_allocate_what_they_reserve(
    large: wukongs.Engine, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm_up(folder, name)
    found, error = asked(large, name, monkeypatch)
    assert error is None, error
    found.check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", UPDATES)
def test_updates_allocate_what_they_reserve(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warm_up(folder, name)
    with engine_of(NODES, folder) as engine:  # a new one, which has no batches to merge meanwhile
        found, error = asked(engine, name, monkeypatch)
        assert error is None, error
        found.check(name)
        assert found.is_over
        held = core_of(engine).budget.stats()["held_bytes"]
        assert isinstance(held, dict)
        assert "updates" not in held  # nothing stays


@pytest.mark.slow
@pytest.mark.parametrize("name", ["insert where", "delete where", "insert data", "copy", "clear"])
def test_with_little_memory_updates_fail_by_name_and_change_nothing(name: str, folder: Path) -> None:
    with engine_of(NODES, folder, query_bytes_max=MEGABYTE) as engine:
        before = [engine.dump(folder / "before.nq", graph) for graph in (None, "http://ex/g2")]
        with pytest.raises(BudgetExceeded, match="query_bytes_max"):
            engine.update(PREFIXES + UPDATES[name])
        assert before[0] > 7 * NODES
        assert [engine.dump(folder / "after.nq", graph) for graph in (None, "http://ex/g2")] == before
        assert "http://ex/g9" not in engine.graph_names()
        engine.update("INSERT DATA { <http://ex/a> <http://ex/p> <http://ex/b> }")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_with_little_memory_queries_are_answered_or_fail_by_name(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm_up(folder, name)
    with engine_of(2 * FEW_NODES, folder, query_bytes_max=SMALL_BYTES_MAX) as engine:
        found, error = asked(engine, name, monkeypatch)
        assert found.peak_bytes <= (1 + ALLOWED_SHARE) * SMALL_BYTES_MAX + ALLOWED_BYTES, (found, error)
        assert found.held_bytes <= SMALL_BYTES_MAX
        if error is not None:
            assert f"query_bytes_max = {SMALL_BYTES_MAX}" in str(error)
        if name in WHOLE:
            assert error is not None
        assert len(engine.query(f"{PREFIXES} SELECT * {{ :n1 :knows ?b }}")) == 3


@pytest.mark.slow
@pytest.mark.parametrize("format", ["json", "xml", "csv", "tsv", "arrow", "nt"])
def test_writing_a_result_allocates_little(large: wukongs.Engine, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nowhere:
        size = 0

        def write(self, data: bytes) -> int:
            self.size += len(data)
            return len(data)

        def flush(self) -> None: ...

    trace_kernels()
    form = "CONSTRUCT { ?a :is ?x }" if format == "nt" else "SELECT *"
    text = f"{PREFIXES}{form} {{ ?a :name ?x . ?a :knows ?b }}"
    large.query(f"{text} LIMIT 10").serialize(format, Nowhere())  # type: ignore[arg-type]
    result, nowhere = large.query(text), Nowhere()
    with traced(monkeypatch) as found:
        result.serialize(format, nowhere)  # type: ignore[arg-type]
    assert nowhere.size > 2 * MEGABYTE
    found.check(format)


@pytest.mark.slow
@pytest.mark.parametrize("solutions", ["short", "empty"])
def test_an_answer_of_service_is_reserved_before_it_is_parsed(solutions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count, term = 400_000, {"type": "literal", "value": "1"}
    bindings = [{"x": term}] * (count // 8) if solutions == "short" else [{}] * count
    body = {"head": {"vars": ["x"]}, "results": {"bindings": bindings}}
    assert len(json.dumps(body)) < 3 * MEGABYTE
    with endpoint(told(body)) as address, allowing(address, query_bytes_max=12 * MEGABYTE, spill_bytes_max=0) as engine:
        text = f"SELECT * {{ SERVICE <{address}> {{ ?s ?p ?x }} }}"
        with traced(monkeypatch) as found, pytest.raises(BudgetExceeded, match="SERVICE"):
            engine.query(text)
    assert found.peak_bytes < 20 * MEGABYTE  # the endpoint is in this process: its body counts, too
