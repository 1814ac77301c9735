"""Broken texts end in a named error with a place inside of the text, never in anything else."""

from __future__ import annotations

import random

import pytest

from wukongs.csparql.parser import parse_query
from wukongs.csparql.tokens import tokenize
from wukongs.errors import QuerySyntaxError, UnsupportedFeatureError

WHOLE = [
    """REGISTER QUERY q-1 COMPUTED EVERY 2s AS BASE <http://b/> PREFIX : <x#> # comment
SELECT DISTINCT ?x (COUNT(DISTINCT ?y) + 1 AS ?n) (GROUP_CONCAT(?z; SEPARATOR=', ') AS ?all)
FROM <g> FROM NAMED :h FROM STREAM :s [RANGE 10s STEP 1 s] FROM NAMED STREAM <t> [RANGE 5 MIN TUMBLING]
WHERE { ?x a :T ; :p ?y, [ :q 'a\\n"b'@en ] . (1 -2.5 true) :r _:b
  GRAPH ?g { ?y ?p "1"^^<int> FILTER(?g != :x && !BOUND(?q) || ?y IN (1, 2e3)) OPTIONAL { ?y :q ?z } }
  { ?x :p 1 } UNION { BIND(IF(?x = -1, ?y / 2, COALESCE(?z, 3)) AS ?w) } FILTER(isIRI(?x))
} GROUP BY ?x (STR(?y) AS ?k) HAVING (SUM(?y) > 3) ORDER BY DESC(?n) ?x LIMIT 10 OFFSET 5""",
    "CONSTRUCT { ?s <p> [ <q> ?o ] } WHERE { ?s ?p ?o . GRAPH <g> {} } ORDER BY (?s) LIMIT 3",
    "ASK { ?s <p>/<q>* ?o MINUS { << ?s ?p ?o >> a ?x } VALUES ?x { 1 } FILTER NOT EXISTS { ?s ?p '''x''' } }",
    "ASK { <<( ?s ?p 1 )>> <p> ?o ~ _:r {| <q> 'x'@en--ltr |} BIND(<<(?s ?p 'a')>> AS ?t) SERVICE <s> {} }",
]


def check(text: str) -> None:
    """Parse a text; if it is refused, its place must be inside of the text."""
    error = error_of(text)
    if error is not None:
        lines = (text + "\n").splitlines(keepends=True)
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(lines[error.line - 1]) + 1


def error_of(text: str) -> QuerySyntaxError | UnsupportedFeatureError | None:
    try:
        parse_query(text)
    except (QuerySyntaxError, UnsupportedFeatureError) as error:
        return error
    return None


def test_the_whole_texts() -> None:
    assert error_of(WHOLE[0]) is None
    assert error_of(WHOLE[1]) is None
    assert error_of(WHOLE[2]) is None
    assert error_of(WHOLE[3]) is None


@pytest.mark.parametrize("seed", range(60))
def test_mutated_texts(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        text = rng.choice(WHOLE)
        for _ in range(rng.randint(1, 3)):
            start = rng.randrange(len(text))
            end = min(len(text), start + rng.choice((0, 1, 1, 5)))
            text = (
                text[:start]
                + rng.choice(("", "", " ", "{", "}", "(", ")", "'", '"', "<", ".", "\\", "é", "0"))
                + text[end:]
            )
        check(text)


@pytest.mark.parametrize("whole", WHOLE)
def test_texts_without_some_token(whole: str) -> None:
    tokens = tokenize(whole)
    for index, token in enumerate(tokens):
        check(whole[: token.start] + whole[token.end :])
        check(whole[: token.start])
        check(whole[: token.end] + " " + tokens[(index * 7) % len(tokens)].text + " " + whole[token.end :])
