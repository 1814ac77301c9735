"""Warnings of registered queries: logged when they come, and shown by explain()."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import wukongs
from tests.engine_helpers import EX, A, at, register_text
from wukongs.settings import Settings

STORED = b"<http://ex/a> <http://ex/knows> <http://ex/b> .\n"


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine(settings=Settings(batch_ms=100)) as engine:
        yield engine


def test_a_warning_is_logged_and_explained_and_the_query_runs(
    engine: wukongs.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.stream(A)
    query = engine.register(register_text("RANGE 1s STEP 1s", where="{ GRAPH <x> { ?s ?p ?o } }"))
    assert len(query.warnings()) == 2
    for warning in query.warnings():
        assert f"query q, {warning}" in caplog.text
        assert f"\nwarning: {warning}\n" in query.explain()
    assert engine.queries() == [query]


def test_a_predicate_that_only_stored_data_has(engine: wukongs.Engine, caplog: pytest.LogCaptureFixture) -> None:
    engine.load(io.BytesIO(STORED), format="nt")
    stream = engine.stream(A, timing=True)
    text = register_text("RANGE 1s STEP 1s", where=f"{{ ?s <{EX}p> ?o . ?s <{EX}knows> ?x }}")
    early = engine.register(text)
    assert early.warnings() == ()  # the stream has brought nothing that could tell
    stream.push([at("a", 50)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    warning = (
        "line 1, column 63: patterns with <http://ex/knows> are matched in windows only, and so far it has come in "
        "stored data only: add FROM <urn:x-wukongs:default> if that is meant"
    )
    assert early.warnings() == (warning,)
    assert "warning" not in caplog.text
    engine.register(text.replace("QUERY q", "QUERY late"))
    assert "query late, " + warning.replace("63", "66") in caplog.text
    stream.push([at("a", 150, "knows")])
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert early.warnings() == ()


def test_equal_readings_of_a_sensor_that_stored_data_describe(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, timing=True)
    readings = f"{{ ?s <{EX}p> ?o ; <{EX}knows> ?x }} GROUP BY ?x"
    text = register_text("RANGE 1s STEP 1s", where=readings, select="?x (AVG(?o) AS ?mean)")
    query = engine.register(text.replace(" WHERE", " FROM <urn:x-wukongs:default> WHERE"))
    assert query.warnings() == ()  # ?s may be a node for each reading: nothing has come that says otherwise
    engine.load(io.BytesIO(STORED), format="nt")
    (warning,) = query.warnings()
    assert "AVG(?o) counts equal readings once: a window is a set of triples" in warning
    stream.push([(f"<{EX}a>", f"<{EX}p>", 20, 100 * i) for i in range(1, 5)])
    stream.push([(f"<{EX}a>", f"<{EX}p>", 30, 500)])
    stream.advance(1000)
    engine.settle(timeout_s=60)
    (window,) = query.results(timeout_s=0)
    assert [row[1] for row in window.texts()] == ['"25"^^<http://www.w3.org/2001/XMLSchema#decimal>']


def test_no_warning_with_the_stored_graph_in_the_clause(engine: wukongs.Engine) -> None:
    engine.load(io.BytesIO(STORED), format="nt")
    stream = engine.stream(A, timing=True)
    stream.push([at("a", 50)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    text = register_text("RANGE 1s STEP 1s", where=f"{{ ?s <{EX}p> ?o . ?s <{EX}knows> ?x }}")
    query = engine.register(text.replace(" WHERE", " FROM <urn:x-wukongs:default> WHERE"))
    assert query.warnings() == ()
    assert "warning" not in query.explain()


@pytest.mark.slow
def test_a_run_shows_them_on_standard_error(tmp_path: Path) -> None:
    (tmp_path / "s.nt").write_text("")
    (tmp_path / "run.toml").write_text(
        f"""[[stream]]
iri = "{A}"
source = {{ kind = "timestamped", path = "s.nt" }}
[[query]]
name = "q"
text = '''{register_text("RANGE 1s STEP 1s", where="{ GRAPH <x> { ?s ?p ?o } }")}'''
"""
    )
    program = """
import sys, wukongs.adapters.spark.pipeline, wukongs.adapters.spark.session, wukongs.cli
from wukongs.adapters.replay import PipelineReport
wukongs.adapters.spark.pipeline.run_pipeline = lambda *_, **__: PipelineReport()
wukongs.adapters.spark.session.start_early = lambda parallelism: None
sys.exit(wukongs.cli.main(sys.argv[1:]))
"""
    command = [sys.executable, "-c", program, "run", str(tmp_path / "run.toml")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "query q, line 6, column 73: no pattern reads the window over <http://ex/streamA>" in ended.stderr
    assert "GRAPH <x> matches nothing" in ended.stderr
    assert "GRAPH <x>" not in ended.stdout
