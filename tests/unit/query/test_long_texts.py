"""Long texts cost in proportion to their length: a query of twice the parts makes about twice the calls.

Calls of Python are counted, not seconds: what is quadratic shows, and a busy machine does not."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

import wukongs
from wukongs.csparql.terms import XSD

GROWTH_MAX = 2.7
"""The growth of the calls for twice the parts. Quadratic is 4."""
PARTS = 60
FEWER_PARTS = {"subqueries": 20}
"""Each joins one more column to all those before: with many, that these are copied shows."""
EX = "http://ex/"


def repeated(part: Callable[[int], str], between: str = " ") -> Callable[[int], str]:
    return lambda count: between.join(map(part, range(count)))


def wrapped(before: str, parts: Callable[[int], str], after: str = " }") -> Callable[[int], str]:
    return lambda count: f"PREFIX : <{EX}> {before}{parts(count)}{after}"


S = "SELECT * { ?s :n ?o "
SHAPES: dict[str, Callable[[int], str]] = {
    "values": wrapped("SELECT * { VALUES ?o { ", repeated(lambda i: f"{i} :a{i} 'x{i}'"), " } ?s :n ?o }"),
    "an IN list": wrapped(S + "FILTER(?o IN (", repeated(lambda i: f"{i}, {i}.5, :a{i}", ", "), ")) }"),
    "patterns on one subject": wrapped("SELECT * { ", repeated(lambda i: f"?s :n{i % 3} ?o{i} .")),
    "a chain of patterns": wrapped("ASK { ", repeated(lambda i: f"?s{i} :next ?s{i + 1} .")),
    "patterns apart": wrapped("ASK { ", repeated(lambda i: f"?s{i} :next :s{i % 9} .")),
    "optionals": wrapped(S, repeated(lambda i: f"OPTIONAL {{ ?s :n{i % 3} ?o{i} }}")),
    "optionals of unions": wrapped(S, repeated(lambda i: f"OPTIONAL {{ {{ ?s :n ?o{i} }} UNION {{ ?s :m ?o{i} }} }}")),
    "unions": wrapped("SELECT * { ", repeated(lambda i: f"{{ ?s :n {i} }}", " UNION ")),
    "subqueries": wrapped(
        S, repeated(lambda i: f"{{ SELECT ?s (COUNT(*) AS ?c{i}) {{ ?s :n{i % 3} ?x }} GROUP BY ?s }}")
    ),
    "filters": wrapped(S, repeated(lambda i: f"FILTER(?o != {i})")),
    "filters of many patterns": wrapped(S, repeated(lambda i: f". ?s :n{i % 3} ?o{i} FILTER(?o{i} != {i})")),
    "binds": wrapped(S, repeated(lambda i: f"BIND(?o + {i} AS ?o{i})")),
    "a path": wrapped("SELECT * { ?s ", repeated(lambda i: ":next", "/"), " ?o }"),
    "alternatives": wrapped("SELECT * { ?s ", repeated(lambda i: f":n{i}", "|"), " ?o }"),
    "group keys": wrapped(
        "SELECT (COUNT(*) AS ?c) { ?s :n ?o } GROUP BY ", repeated(lambda i: f"(?o + {i} AS ?g{i})"), ""
    ),
    "aggregates": wrapped("SELECT ", repeated(lambda i: f"(SUM(?o + {i}) AS ?g{i})"), " { ?s :n ?o }"),
    "order keys": wrapped(S + "} ORDER BY ", repeated(lambda i: f"(?o + {i})"), ""),
    "graphs": wrapped(
        "SELECT * ", repeated(lambda i: f"FROM <{EX}g{i}> FROM NAMED <{EX}h{i}>"), " { GRAPH ?g { ?s ?p ?o } }"
    ),
    "GRAPH blocks": wrapped("SELECT * { ", repeated(lambda i: f"GRAPH :g{i} {{ ?s :n ?o }}")),
    "minus": wrapped(S, repeated(lambda i: f"MINUS {{ ?s :n{i % 3} {i} }}")),
    "not exists": wrapped(S, repeated(lambda i: f"FILTER NOT EXISTS {{ ?s :n{i % 3} {i} }}")),
    "prefixes": lambda count: " ".join(f"PREFIX p{i}: <{EX}>" for i in range(count)) + " ASK { ?s ?p p1:x }",
    "a template": wrapped("CONSTRUCT { ", repeated(lambda i: f"?s :n{i} ?o ."), " } { ?s :n ?o }"),
    "a list": wrapped("ASK { ?s ?p (", repeated(lambda i: f"{i}"), ") }"),
}


@pytest.fixture(scope="module")
def engine() -> wukongs.Engine:
    made = wukongs.Engine()
    rows = [f':s{i} :n {i} ; :n0 {i} ; :n1 "{i}"^^<{XSD}double> ; :next :s{(i + 1) % 9} .' for i in range(9)]
    made.update(f"PREFIX : <{EX}> INSERT DATA {{ {' '.join(rows)} }}")
    return made


def calls_of(engine: wukongs.Engine, text: str) -> int:
    """Return how many calls the answer to a query takes, those of built-in functions included."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        engine.query(text)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_the_parts_take_about_twice_the_calls(engine: wukongs.Engine, shape: str) -> None:
    engine.query(SHAPES[shape](3))  # what is imported, compiled and remembered once
    parts = FEWER_PARTS.get(shape, PARTS)
    once, twice = (calls_of(engine, SHAPES[shape](count)) for count in (parts, 2 * parts))
    assert twice < GROWTH_MAX * once, f"{once} calls for {parts} parts, {twice} for {2 * parts}"
