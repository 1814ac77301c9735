"""EXPLAIN with actual rows: each step's, and each operator's."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import pytest

from wukongs import Engine, StreamError

P, Q = "<urn:p>", "<urn:q>"


@pytest.fixture
def engine() -> Iterator[Engine]:
    """Ten subjects with three <p> each; every second of these objects has two <q>."""
    lines = [f"<urn:s{i}> {P} <urn:o{i}{j}> ." for i in range(10) for j in range(3)]
    lines += [f"<urn:o{i}{j}> {Q} {n} ." for i in range(0, 10, 2) for j in range(3) for n in range(2)]
    with Engine() as made:
        made.load(io.BytesIO("\n".join(lines).encode()), format="ttl")
        yield made


def actual(text: str) -> list[int]:
    """Return the actual rows of the steps, in order."""
    return [int(found) for found in re.findall(r"rows +(\d+) rows$", text, re.MULTILINE)]


def test_steps_show_the_rows_that_they_made(engine: Engine) -> None:
    text = engine.explain(f"SELECT * {{ ?s {P} ?o . ?o {Q} ?n }}", analyze=True)
    steps = re.findall(r"^ +\d  (\w+) .*?(\S+) +~\S+ rows +(\d+) rows$", text, re.MULTILINE)
    assert [int(rows) for *_, rows in steps] == [30, 30]
    assert re.search(r"Project \?s \?o \?n  \[30 rows, \d+\.\d\d ms\]", text)
    assert re.search(r"Bgp of 2  \[from 1 rows, \d+\.\d\d ms\]", text)


def test_a_step_over_many_chunks_counts_all_its_rows() -> None:
    lines = [f"<urn:a{i % 50}> {P} <urn:b{i}> ." for i in range(5000)]
    lines += [f"<urn:b{i}> {Q} <urn:c{i % 7}> ." for i in range(5000)]
    with Engine() as engine:
        engine.load(io.BytesIO("\n".join(lines).encode()), format="nt")
        assert actual(engine.explain(f"SELECT * {{ ?a {P} ?b . ?b {Q} ?c }}", analyze=True)) == [5000, 5000]
        assert actual(engine.explain(f"SELECT * {{ <urn:a3> {P} ?b . ?b {Q} ?c }}", analyze=True)) == [100, 100]


def test_optional_parts_show_the_rows_that_they_start_from(engine: Engine) -> None:
    text = engine.explain(f"SELECT * {{ ?s {P} ?o OPTIONAL {{ ?o {Q} ?n FILTER(?n > 0) }} }}", analyze=True)
    assert "LeftJoin" in text
    assert re.search(r"Bgp of 1 from \?o  \[from 30 rows", text)
    assert actual(text) == [30, 30]
    assert re.search(r"Project \?s \?o \?n  \[30 rows", text)


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
    query = engine.register(
        f"REGISTER QUERY q AS SELECT * FROM STREAM <urn:stream> [RANGE 200ms STEP 100ms] {{ ?s {P} ?o }}"
    )
    stream.push([(f"<urn:s{i}>", P, f"<urn:o{i}>", 50) for i in range(4)])
    stream.advance(100)
    engine.settle(30)
    assert actual(query.explain(analyze=True)) == [4]
    assert [len(window) for window in query.results(timeout_s=0)] == [4], "explaining reports nothing"
    with pytest.raises(StreamError):
        engine.explain(query.source[0], analyze=True)
