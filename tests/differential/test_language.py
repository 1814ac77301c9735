"""Subqueries, MINUS, VALUES, EXISTS and GRAPH in all combinations: the Engine against the plain definitions.

The evaluator takes the algebra of our parser and evaluates it as the specification defines it, EXISTS by substitution;
pyoxigraph, which shares nothing with us, is asked too where it goes by the specification (`is_agreed`).
"""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Iterator

import pytest

import wukongs
from tests.unit.csparql.evaluator import Dataset, evaluate
from tests.unit.csparql.random_queries import ALL_KINDS, random_dataset, random_query
from tests.unit.csparql.test_translation import rows_of_oxigraph
from wukongs.csparql.parser import parse_query
from wukongs.csparql.rules import rewrite
from wukongs.query.terms.rdf_terms import canonical_of

Rows = Counter[frozenset[tuple[str, str]]]

pytestmark = pytest.mark.nojit


def engine_of(dataset: Dataset) -> wukongs.Engine:
    engine = wukongs.Engine()
    lines = [f"{' '.join(triple)} {graph} .\n" for graph, triples in dataset.items() for triple in sorted(triples)]
    engine.load(io.BytesIO("".join(lines).encode()), format="nq")
    return engine


def rows_of_engine(engine: wukongs.Engine, text: str) -> Rows:
    return rows_of_result(engine.query(text))


def rows_of_result(result: wukongs.Result | wukongs.WindowResult) -> Rows:
    rows = ([(n, canonical_of(x)) for n, x in zip(result.vars, row, strict=True) if x is not None] for row in result)
    return Counter(frozenset(row) for row in rows)


def rows_of_definitions(text: str, dataset: Dataset, rewritten: bool = False) -> Rows:
    query = parse_query(text)
    pattern = rewrite(query).pattern if rewritten else query.pattern
    kept = frozenset(query.variables)
    solutions = evaluate(pattern, dataset)
    return Counter(frozenset((n, t) for n, t in solution.items() if n in kept) for solution in solutions)


def is_agreed(text: str) -> bool:
    """Whether pyoxigraph does with a text what the specification says.

    It puts the graph's name into expressions, EXISTS and subqueries of a GRAPH ?g block, and forgets the name (or that
    there is no such graph) where the block has no triple pattern; and it joins the row to an EXISTS from the left,
    where substitution would reach into the MINUS, VALUES, BIND and subqueries of the pattern.
    """
    beyond_patterns = any(word in text for word in ("MINUS", "VALUES", "{ SELECT"))
    return not ("EXISTS" in text or ("GRAPH " in text and beyond_patterns))


@pytest.mark.parametrize("seed", range(120))
def test_random_queries(seed: int) -> None:
    rng = random.Random(seed)
    dataset = random_dataset(rng)
    with engine_of(dataset) as engine:
        for _ in range(4):
            text = random_query(rng, ALL_KINDS)
            expected = rows_of_definitions(text, dataset)
            assert rows_of_definitions(text, dataset, rewritten=True) == expected, text
            assert rows_of_engine(engine, text) == expected, text
            if is_agreed(text):
                assert rows_of_oxigraph(text, dataset) == expected, text


ONE, TWO, THREE = "<http://e/1>", "<http://e/2>", "<http://e/3>"
P, Q, R = "<http://e/p>", "<http://e/q>", "<http://e/r>"
DATA: Dataset = {
    "": {(ONE, P, TWO), (TWO, P, THREE), (THREE, P, ONE), (ONE, Q, THREE), (ONE, R, ONE)},
    "<http://e/g>": {(ONE, P, TWO), (TWO, Q, TWO)},
    "<http://e/h>": {(THREE, P, ONE), (THREE, P, TWO), (ONE, R, "<http://e/h>")},
}
PREFIXES = "PREFIX : <http://e/> "


@pytest.fixture(scope="module")
def engine() -> Iterator[wukongs.Engine]:
    with engine_of(DATA) as made:
        yield made


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        # EXISTS wherever an expression may stand
        ("SELECT ?a { ?a :p ?b FILTER EXISTS { ?a :q ?c } }", ["1"]),
        ("SELECT ?a { ?a :p ?b FILTER NOT EXISTS { ?a :q ?c } }", ["2", "3"]),
        ("SELECT ?a { ?a :p ?b FILTER(EXISTS { ?a :q ?c } || ?a = :3) }", ["1", "3"]),
        ("SELECT ?a ?e { ?a :p ?b BIND(EXISTS { ?a :q ?c } AS ?e) }", ["1 true", "2 false", "3 false"]),
        ("SELECT (IF(EXISTS { :1 :q ?c }, 'y', 'n') AS ?e) { }", ["y"]),
        ("SELECT (NOT EXISTS { :1 :q ?c } AS ?e) { }", ["false"]),
        ("SELECT ?a { ?a :p ?b } GROUP BY ?a HAVING (EXISTS { ?a :q ?c })", ["1"]),
        ("SELECT (SUM(IF(EXISTS { ?a :q ?c }, 10, 1)) AS ?n) { ?a :p ?b }", ["12"]),
        ("SELECT ?a ?c { ?a :p ?b OPTIONAL { ?a :q ?c FILTER NOT EXISTS { ?c :p ?a } } }", ["1 -", "2 -", "3 -"]),
        ("SELECT ?a ?c { ?a :p ?b OPTIONAL { ?b :p ?c FILTER EXISTS { ?a :q ?c } } }", ["1 3", "2 -", "3 -"]),
        ("SELECT ?a ?c { ?a :p ?b OPTIONAL { VALUES ?c { 7 } FILTER EXISTS { ?a :q ?b2 } } }", ["1 7", "2 -", "3 -"]),
        ("SELECT ?a { ?a :p ?b } ORDER BY EXISTS { ?a :q ?c } ?a LIMIT 2", ["2", "3"]),
        ("ASK { FILTER EXISTS { :1 :q ?c } FILTER NOT EXISTS { :2 :q ?c } }", True),
        ("ASK { FILTER EXISTS { } }", True),
        # EXISTS by substitution
        ("SELECT ?a { ?a :p ?b FILTER EXISTS { FILTER(?b = :2) } }", ["1"]),
        ("SELECT ?a { ?a :p ?b FILTER EXISTS { ?x :q ?y FILTER(?y = ?b && ?x = :1) } }", ["2"]),
        ("SELECT ?a { ?a :p ?b FILTER NOT EXISTS { ?x :q ?b MINUS { ?a :p ?b } } }", ["1", "3"]),
        ("SELECT ?a { ?a :p ?b FILTER EXISTS { ?a :p ?b FILTER NOT EXISTS { ?b :q ?c } } }", ["1", "2"]),
        ("SELECT ?a { ?a :p ?b FILTER EXISTS { { SELECT ?a { ?a :p ?x } ORDER BY ?a LIMIT 1 } } }", ["1", "2", "3"]),
        ("SELECT ?a { ?a :p ?b FILTER EXISTS { { SELECT (COUNT(*) AS ?n) { ?a :zz ?x } } } }", ["1", "2", "3"]),
        ("SELECT ?a { ?a :p ?b FILTER EXISTS { { SELECT ?a { ?a :p ?x } GROUP BY ?a HAVING(COUNT(*) > 1) } } }", []),
        ("SELECT ?a ?n { ?a :p ?b BIND(:1 AS ?n) FILTER EXISTS { BIND(?a AS ?n) } }", ["1 1"]),
        ("SELECT ?a { ?a :p ?b OPTIONAL { ?a :q ?c } FILTER EXISTS { ?x :q ?c } }", ["1", "2", "3"]),
        ("SELECT ?a { ?a :p ?b OPTIONAL { ?a :q ?c } FILTER EXISTS { FILTER BOUND(?c) } }", ["1"]),
        ("SELECT ?a { ?a :p ?b FILTER EXISTS { ?a :p+/:q ?c } }", ["1", "2", "3"]),
        ("SELECT ?a { ?a :p ?b FILTER EXISTS { VALUES (?a ?b) { (:1 UNDEF) (:2 :1) } } }", ["1"]),
        ("SELECT ?a { ?a :p ?b FILTER EXISTS { GRAPH ?g { ?a :p ?b } } }", ["1", "3"]),
        ("SELECT ?a ?g { GRAPH ?g { ?a :p ?b FILTER EXISTS { ?b :q ?c } } }", ["1 g"]),
        ("SELECT ?a ?g { GRAPH ?g { ?a ?p ?b FILTER EXISTS { ?x :r ?g } } }", ["1 h", "3 h", "3 h"]),
        # MINUS
        ("SELECT ?a { ?a :p ?b MINUS { ?a :q ?c } }", ["2", "3"]),
        ("SELECT ?a { ?a :p ?b MINUS { ?x :q ?y } }", ["1", "2", "3"]),
        ("SELECT ?a { ?a :p ?b MINUS { } }", ["1", "2", "3"]),
        ("SELECT ?a { ?a :p ?b MINUS { ?a :q ?c FILTER(?b = :2) } }", ["1", "2", "3"]),
        ("SELECT ?a { ?a :p ?b MINUS { :1 :q :3 } }", ["1", "2", "3"]),
        ("SELECT ?a ?c { ?a :p ?b OPTIONAL { ?a :q ?c } MINUS { VALUES ?c { :3 } } }", ["2 -", "3 -"]),
        ("SELECT ?a { ?a :p ?b MINUS { VALUES (?a ?b) { (UNDEF :3) (:3 UNDEF) (UNDEF UNDEF) } } }", ["1"]),
        ("SELECT ?a ?g { GRAPH ?g { ?a :p ?b MINUS { ?x :r ?y } } }", ["1 g", "3 h", "3 h"]),
        ("SELECT ?a ?g { GRAPH ?g { ?a :p ?b MINUS { ?x :p ?b . ?g :r ?y } } }", ["1 g"]),
        ("SELECT ?a ?g { GRAPH ?g { ?a :p ?b } MINUS { ?g :r ?y } }", ["1 g", "3 h", "3 h"]),
        # subqueries
        ("SELECT ?a ?b { ?a :p ?b { SELECT ?a (1 AS ?b2) { ?a :q ?b } } }", ["1 2"]),
        ("SELECT * { { SELECT ?a { ?a :p ?b } ORDER BY DESC(?a) LIMIT 1 } ?a ?p ?o }", ["3 p 1"]),
        ("SELECT ?a ?n { ?a :q ?x { SELECT ?a (COUNT(?b) AS ?n) { ?a ?p ?b } GROUP BY ?a } }", ["1 3"]),
        ("SELECT ?n { { SELECT (COUNT(*) AS ?n) { ?a :zz ?b } } }", ["0"]),
        ("SELECT ?n { { SELECT (COUNT(DISTINCT *) AS ?n) { ?a :p ?b } } }", ["3"]),
        (
            "SELECT ?a { { SELECT ?a { ?a :p ?b } } { SELECT ?a { ?a ?p ?b } } FILTER(!BOUND(?b)) }",
            [*"11123"],
        ),
        ("SELECT (MAX(?n) AS ?m) { { SELECT (COUNT(*) AS ?n) { ?a ?p ?b } GROUP BY ?a } }", ["3"]),
        ("SELECT ?g ?n { GRAPH ?g { SELECT (COUNT(*) AS ?n) { ?a :q ?b } } }", ["g 1", "h 0"]),
        ("SELECT ?g ?a { GRAPH ?g { SELECT ?a { ?a :p ?b } ORDER BY ?a LIMIT 1 } }", ["g 1", "h 3"]),
        ("SELECT ?g ?a { GRAPH ?g { SELECT ?a (COUNT(*) AS ?n) { ?a :p ?b } GROUP BY ?a } }", ["g 1", "h 3"]),
        ("SELECT ?g ?a { GRAPH ?g { SELECT DISTINCT ?a { ?a ?p ?b } } }", ["g 1", "g 2", "h 1", "h 3"]),
        ("SELECT ?g ?a { GRAPH ?g { SELECT ?a ?g { ?a :r ?g } } }", ["h 1"]),
        ("SELECT ?g { GRAPH ?g { SELECT ?a { ?a :r ?g } } }", ["h"]),
        ("SELECT ?n { GRAPH :none { SELECT (COUNT(*) AS ?n) { ?a :q ?b } } }", []),
        ("SELECT ?n { GRAPH :g { SELECT (COUNT(*) AS ?n) { ?a :zz ?b } } }", ["0"]),
        ("SELECT ?a ?g { GRAPH ?g { ?a ?p ?b FILTER EXISTS { { SELECT (COUNT(*) AS ?n) { ?x :q ?y } } } } }", None),
        # VALUES
        ("SELECT * { ?a :p ?b } VALUES (?a ?b) { (:1 UNDEF) (UNDEF :1) (:1 :2) }", ["1 2", "1 2", "3 1"]),
        ("SELECT * { VALUES () { () () } }", ["", ""]),
        ("SELECT * { VALUES ?x { } }", []),
        ("SELECT ?a (COUNT(*) AS ?n) { ?a ?p ?b } GROUP BY ?a VALUES ?m { 3 }", ["1 3", "2 1", "3 1"]),
        ("SELECT ?a (COUNT(*) AS ?n) { ?a ?p ?b } GROUP BY ?a VALUES ?a { :1 :9 }", ["1 3"]),
        ("SELECT ?g ?x { GRAPH ?g { VALUES ?x { 1 } } }", ["g 1", "h 1"]),
    ],
)
def test_what_a_query_answers(engine: wukongs.Engine, text: str, rows: list[str] | bool | None) -> None:
    result = engine.query(PREFIXES + text)
    if isinstance(rows, bool):
        assert result.boolean is rows
        return
    found = sorted(
        " ".join("-" if term is None else str(term).removeprefix("http://e/") for term in row) for row in result
    )
    assert found == rows or (rows is None and len(found) == 5)
