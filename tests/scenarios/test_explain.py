"""EXPLAIN with actual rows: each step's, and each operator's."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from tests.faces import Face
from wukongs import Engine, StreamError

P, Q = "<urn:p>", "<urn:q>"


@pytest.fixture
def engine(face: Face) -> Any:
    """Ten subjects with three <p> each; every second of these objects has two <q>."""
    lines = [f"<urn:s{i}> {P} <urn:o{i}{j}> ." for i in range(10) for j in range(3)]
    lines += [f"<urn:o{i}{j}> {Q} {n} ." for i in range(0, 10, 2) for j in range(3) for n in range(2)]
    made = face.open()
    made.load(io.BytesIO("\n".join(lines).encode()), format="ttl")
    return made


def actual(text: str) -> list[int]:
    """Return the actual rows of the steps, in order."""
    return [int(found) for found in re.findall(r"rows +(\d+) rows(?:  .*)?$", text, re.MULTILINE)]


def test_steps_show_the_rows_that_they_made(engine: Engine) -> None:
    text = engine.explain(f"SELECT * {{ ?s {P} ?o . ?o {Q} ?n }}", analyze=True)
    steps = re.findall(r"^ +\d  (\w+) .*?(\S+) +~\S+ rows +(\d+) rows(?:  .*)?$", text, re.MULTILINE)
    assert [int(rows) for *_, rows in steps] == [30, 30]
    assert re.search(r"Project \?s \?o \?n  \[30 rows, \d+\.\d\d ms\]", text)
    assert re.search(r"Bgp of 2  \[from 1 rows, \d+\.\d\d ms\]", text)


@pytest.mark.slow_on("cluster-3")
def test_a_step_over_many_chunks_counts_all_its_rows(face: Face) -> None:
    engine = face.open()
    lines = [f"<urn:a{i % 50}> {P} <urn:b{i}> ." for i in range(5000)]
    lines += [f"<urn:b{i}> {Q} <urn:c{i % 7}> ." for i in range(5000)]
    engine.load(io.BytesIO("\n".join(lines).encode()), format="nt")
    assert actual(engine.explain(f"SELECT * {{ ?a {P} ?b . ?b {Q} ?c }}", analyze=True)) == [5000, 5000]
    assert actual(engine.explain(f"SELECT * {{ <urn:a3> {P} ?b . ?b {Q} ?c }}", analyze=True)) == [100, 100]


def test_optional_parts_show_the_rows_that_they_start_from(engine: Engine) -> None:
    text = engine.explain(f"SELECT * {{ ?s {P} ?o OPTIONAL {{ ?o {Q} ?n FILTER(?n > 0) }} }}", analyze=True)
    assert "LeftJoin" in text
    assert re.search(r"Bgp of 1 from \?o  \[from 30 rows", text)
    assert actual(text) == [30, 30]
    assert re.search(r"Project \?s \?o \?n  \[30 rows", text)


CHAIN = "<urn:s0> <urn:r> <urn:s1> . <urn:s1> <urn:r> <urn:s2> . <urn:s2> <urn:r> <urn:s3> ."


@pytest.mark.parametrize(
    ("text", "rows", "rows_in"),
    [
        (f"SELECT * {{ ?s {P} <urn:o10> . ?s <urn:r>+ ?t }}", [2], [1]),
        (f"CONSTRUCT {{ ?s <urn:x> ?t }} {{ ?s {P} ?o . ?s <urn:r>+ ?t }}", [6], [1]),
        ("CONSTRUCT { ?s <urn:x> ?t } { ?s <urn:r>+ ?t }", [6], [1]),
        ("DESCRIBE ?s { ?s <urn:r>+ <urn:s2> }", [2], [1]),
        (f"SELECT * {{ ?s {P} ?o OPTIONAL {{ ?s <urn:r>* ?t }} }}", [48], [30]),
        (f"SELECT * {{ ?s {P} ?o MINUS {{ ?s <urn:r>+ <urn:s3> }} }}", [3], [10]),
        (f"SELECT * {{ ?s {P} ?o FILTER EXISTS {{ ?s <urn:r>+ <urn:s3> }} }}", [3], [10]),
        (f"SELECT * {{ ?s {P} <urn:o10> {{ ?s <urn:r>+ ?t }} UNION {{ ?t ^<urn:r>+ ?s }} }}", [2, 2], [1, 1]),
        ("SELECT * { <urn:nobody> <urn:r>+ ?t }", [0], [1]),
    ],
)
def test_paths_show_their_rows_wherever_they_are_explored(
    engine: Engine, text: str, rows: list[int], rows_in: list[int]
) -> None:
    engine.load(io.BytesIO(CHAIN.encode()), format="ttl")
    assert rows_of_paths(engine, text) == list(zip(rows, rows_in, strict=True))


@pytest.mark.faces(
    "embedded", "durable", "connect", "cluster-1"
)  # of three nodes, one may send more rows than are asked
def test_a_path_of_an_ask_ends_with_its_first_row(engine: Engine) -> None:
    engine.load(io.BytesIO(CHAIN.encode()), format="ttl")
    assert rows_of_paths(engine, f"ASK {{ <urn:s2> {P} ?o . <urn:s0> <urn:r>+ <urn:s2> }}") == [(1, 1)]


def rows_of_paths(engine: Engine, text: str) -> list[tuple[int, int]]:
    """Return the rows of each path that EXPLAIN ANALYZE shows, and the rows that it was explored from."""
    shown = engine.explain(text, analyze=True)
    found = re.findall(r"Path .*~\S+ rows  \[(\d+) rows from (\d+), \d+\.\d\d ms\]$", shown, re.MULTILINE)
    return [(int(rows), int(rows_in)) for rows, rows_in in found]


def test_unions_that_are_explored_show_their_rows(engine: Engine) -> None:
    text = f"SELECT * {{ ?s {P} ?o {{ ?o {Q} 0 }} UNION {{ ?o {Q} 1 }} UNION {{ ?s {P}/{Q} 1 }} }}"
    shown = engine.explain(text, analyze=True)
    assert re.findall(r"Union  \[(\d+) rows from (\d+), ", shown) == [("75", "30"), ("30", "30")]


def test_a_constant_that_no_data_have_makes_no_rows(engine: Engine) -> None:
    assert actual(engine.explain(f"SELECT * {{ <urn:nobody> {P} ?o . ?o {Q} ?n }}", analyze=True)) == [0, 0]


def test_equality_with_an_iri_is_a_constant_of_the_plan(engine: Engine) -> None:
    text = engine.explain(f"SELECT * {{ ?s {P} ?o . ?o {Q} ?n FILTER(?s = <urn:s2>) }}", analyze=True)
    assert "with ?s = <urn:s2>" in text
    assert actual(text) == [3, 6]
    rows = engine.query(f"SELECT * {{ ?s {P} ?o . ?o {Q} ?n FILTER(?s = <urn:s2>) }}")
    assert {str(row[0]) for row in rows} == {"urn:s2"}
    assert len(rows) == 6


def test_without_analyze_nothing_is_run(engine: Engine) -> None:
    text = engine.explain(f"SELECT * {{ ?s {P} ?o }}")
    assert actual(text) == []
    assert " ms]" not in text


def test_a_query_with_windows_is_explained_by_its_registration(engine: Engine) -> None:
    stream = engine.stream("urn:stream", timing=True, batch_ms=100)
    registration = f"REGISTER QUERY q AS SELECT * FROM STREAM <urn:stream> [RANGE 200ms STEP 100ms] {{ ?s {P} ?o }}"
    query = engine.register(registration)
    stream.push([(f"<urn:s{i}>", P, f"<urn:o{i}>", 50) for i in range(4)])
    stream.advance(100)
    engine.settle(60)
    assert actual(query.explain(analyze=True)) == [4]
    assert [len(window) for window in query.results(timeout_s=0)] == [4], "explaining reports nothing"
    with pytest.raises(StreamError):
        engine.explain(registration, analyze=True)
