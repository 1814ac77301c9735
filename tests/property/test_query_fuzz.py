"""Broken and odd texts: the parsers say no by a named error with a place inside of the text, and by nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.unit.csparql.counted_triples import CountedTriples
from wukongs.csparql.explain import explain
from wukongs.csparql.parser import parse_query
from wukongs.csparql.parser_update import parse_update
from wukongs.csparql.rules import rewrite
from wukongs.csparql.tokens import tokenize
from wukongs.errors import QuerySyntaxError, UnsupportedFeatureError

CORPUS = (
    """REGISTER QUERY q-1 COMPUTED EVERY 2s AS BASE <http://b/> PREFIX : <x#> # comment
SELECT DISTINCT ?x (COUNT(DISTINCT ?y) + 1 AS ?n) (GROUP_CONCAT(?z; SEPARATOR=', ') AS ?all)
FROM <g> FROM NAMED :h FROM STREAM :s [RANGE 10s STEP 1 s] FROM NAMED STREAM <t> [RANGE TRIPLES 5 STEP 2]
WHERE { ?x a :T ; :p ?y, [ :q 'a\\n"b'@en ] . (1 -2.5 true) :r _:b
  GRAPH ?g { ?y ?p "1"^^<int> FILTER(?g != :x && !BOUND(?q) || ?y IN (1, 2e3)) OPTIONAL { ?y :q ?z } }
  { ?x :p 1 } UNION { BIND(IF(?x = -1, ?y / 2, COALESCE(?z, 3)) AS ?w) } FILTER(isIRI(?x))
} GROUP BY ?x (STR(?y) AS ?k) HAVING (SUM(?y) > 3) ORDER BY DESC(?n) ?x LIMIT 10 OFFSET 5""",
    "CONSTRUCT { ?s <p> [ <q> ?o ] } WHERE { ?s ?p ?o . GRAPH <g> {} } ORDER BY (?s) LIMIT 3",
    "ASK { ?s <p>/<q>*|^(<r>?/!(<a>|^<b>))+ ?o MINUS { ?s ?p ?x } VALUES (?x ?y) { (1 UNDEF) } FILTER NOT EXISTS {} }",
    "SELECT * { { SELECT ?s (MAX(?v) AS ?m) { ?s ?p ?v } GROUP BY ?s } } VALUES ?s { <a> 'b' }",
    "DESCRIBE ?x <y> WHERE { ?x ?p '''long\nstring''' }",
    "PREFIX : <x> INSERT DATA { :s :p 'o' . GRAPH :g { :s :p 1.5e3 } } ; CLEAR SILENT NAMED ; COPY :g TO DEFAULT",
    "WITH <g> DELETE { ?s ?p ?o } INSERT { ?s ?p 2 } USING <h> USING NAMED <i> WHERE { ?s ?p ?o FILTER(?o < 2) }",
    "LOAD <file.ttl> INTO GRAPH <g> ; DELETE WHERE { ?s ?p _:b } ; CREATE GRAPH <x> ; DROP ALL",
)
_ODD = ("", " ", "\x00", "\ufeff", "\u00a0", "\ud800", "\\u12", "\\U00110000", "\r", "\u2028", "é", "日", "\U0001f600")


def check(text: str) -> None:
    """Parse a text as a query and as an update, and do with it what is done next."""
    query_error, update_error = _error_of(parse_query, text), _error_of(parse_update, text)
    if query_error is None:
        assert explain(rewrite(parse_query(text)), CountedTriples({}))
    for error in (query_error, update_error):
        if error is not None:
            _check_place(error, text)


def _error_of(parse: Callable[[str], object], text: str) -> QuerySyntaxError | UnsupportedFeatureError | None:
    try:
        parse(text)
    except (QuerySyntaxError, UnsupportedFeatureError) as error:
        return error
    return None


def _check_place(error: QuerySyntaxError | UnsupportedFeatureError, text: str) -> None:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert 1 <= error.line <= len(lines)
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1
    assert "\n" not in str(error)
    shown, marks = error.excerpt.splitlines()
    assert shown.startswith(f"{error.line} |")
    assert marks.strip(" |^") == ""
    assert "^" in marks


@cache
def pieces(text: str) -> tuple[str, ...]:
    """Cut a text into tokens with the blanks before them."""
    ends = [0, *(token.end for token in tokenize(text))]
    return tuple(text[start:end] for start, end in pairwise(ends))


@st.composite
def mutants(draw: st.DrawFn) -> str:
    """Texts of the corpus after some deletions, repetitions, swaps and strange insertions of tokens, perhaps cut."""
    parts = list(pieces(draw(st.sampled_from(CORPUS))))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(parts) - 1))
        match draw(st.integers(0, 5)):
            case 0:
                del parts[at]
            case 1:
                parts.insert(at, parts[at])
            case 2:
                other = draw(st.integers(0, len(parts) - 1))
                parts[at], parts[other] = parts[other], parts[at]
            case 3:
                parts.insert(at, " " + draw(st.sampled_from(pieces(draw(st.sampled_from(CORPUS))))))
            case 4:
                parts.insert(at, draw(st.sampled_from(_ODD)))
            case 5:
                parts[at] = draw(st.text(max_size=4))
        parts = parts or [""]
    text = "".join(parts)
    return text[: draw(st.integers(0, len(text)))] if draw(st.integers(0, 3)) == 0 else text


@pytest.mark.slow
@fuzzed(300)
@given(mutants())
@example("ASK { ?s ?p '\\ud800' }")
@example("ASK { ?s ?p '\\U0000D800' }")
@example("ASK { <\\u00> ?p ?o }")
@example("SELECT (1 AS ?x) (?x AS ?y) { } GROUP BY ?z")
def test_mutated_texts(text: str) -> None:
    check(text)


@fuzzed(200)
@given(st.text(max_size=60) | st.text(st.sampled_from("{}()[]<>?:.;,'\"\\@^|/*!&=-+_ axAS\n#"), max_size=40))
def test_random_texts(text: str) -> None:
    check(text)


@pytest.mark.parametrize("text", CORPUS)
def test_every_prefix_of_a_text(text: str) -> None:
    step = max(1, len(text) // 150)
    for end in range(0, len(text), step):
        check(text[:end])


@pytest.mark.parametrize("seed", range(8))
def test_texts_of_shuffled_tokens(seed: int) -> None:
    rng = random.Random(seed)
    tokens = [piece for text in CORPUS for piece in pieces(text)]
    for _ in range(40):
        check("".join(" " + rng.choice(tokens) for _ in range(rng.randint(1, 25))))


@pytest.mark.parametrize("odd", _ODD)
def test_odd_characters_anywhere(odd: str) -> None:
    for text in CORPUS:
        for at in range(0, len(text), 17):
            check(text[:at] + odd + text[at:])


def test_line_ends_of_three_kinds_are_blanks_alike() -> None:
    for text in CORPUS[1:2]:
        plain = parse_query(text)
        for end in ("\n", "\r\n", "\r"):
            assert parse_query(text.replace(" ", end)) == plain
