"""The examples in examples/spark, run in this process against an engine that is served."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.faces import served
from tests.golden.test_taxi import TAXI, expected_windows, row
from tests.inside import ingest_of
from tests.unit.adapters.helpers import PROJECT
from wukongs.adapters.run_config import load_run_config
from wukongs.engine import Engine
from wukongs.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]
STREAM = "http://example.org/trips"


def _main(name: str) -> Callable[..., None]:
    spec = importlib.util.spec_from_file_location(
        f"spark_example_{name}", PROJECT / "examples" / "spark" / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., None] = module.main
    return found


@contextmanager
def _engine() -> Iterator[tuple[Engine, str]]:
    with Engine() as engine, served(engine, Settings(), ingest_of(engine)) as address:
        engine.stream(STREAM, batch_ms=1000)
        yield engine, address


def _tuples(engine: Engine) -> Any:
    return engine.stats()["streams"][STREAM]["tuples"]


def test_a_frame_is_written_and_its_windows_are_read(spark: SparkSession, tmp_path: Path) -> None:
    with _engine() as (engine, address):
        places = address, str(tmp_path / "out"), str(tmp_path / "checkpoint")
        _main("read_windows")(*places)
        assert [query.name for query in engine.queries()] == ["fares"]
        _main("write")(address)
        assert _tuples(engine) == 1000
        engine.settle(30)
        for _ in range(2):
            _main("read_windows")(*places)
            rows = spark.read.json(places[1]).collect()
            assert len(rows) == 1 + 10 * 7
            assert sum(int(row.trips) for row in rows) == 1000


def test_a_mapping_writes_what_a_run_file_does(spark: SparkSession) -> None:
    config = load_run_config(TAXI / "taxi.toml")
    with Engine() as engine, served(engine, Settings(), ingest_of(engine)) as address:
        engine.load(config.stored[0].file)
        engine.stream(config.streams[0].iri, batch_ms=config.streams[0].batch_ms, timing=True)
        query = engine.register(config.queries[0].text)
        _main("write_mapped")(address, str(TAXI / "trips.csv"), str(TAXI / "trips-mapping.toml"))
        engine.settle(30)
        found = {window.end_ms: [row(texts) for texts in window.texts()] for window in query.results(timeout_s=0)}
    expected = expected_windows()
    del expected[max(expected)]  # its time is not over yet
    assert {end_ms: rows for end_ms, rows in found.items() if rows} == expected


def test_a_folder_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "trips").mkdir()
    with _engine() as (engine, address):
        for minute in range(2):
            lines = [{"id": n, "fare": n % 7, "at": f"2023-11-14T22:0{minute}:{n % 60:02}Z"} for n in range(120)]
            (tmp_path / "trips" / f"{minute}.json").write_text("\n".join(map(json.dumps, lines)), "utf-8")
            _main("write_stream")(address, str(tmp_path / "trips"), str(tmp_path / "checkpoint"))
            assert _tuples(engine) == 120 * (minute + 1)


def test_foreach_batch_writes_to_both_and_a_query_reads(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trips").mkdir()
    names = ("subject", "predicate", "object", "time")
    rows = [
        (f"<http://example.org/trip{n}>", f"<http://example.org/{name}>", value, 1_700_000_000_000 + n * 100)
        for n in range(60)
        for name, value in (("fare", f'"{n}"'), ("zone", f'"zone {n % 3}"'))
    ]
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    (tmp_path / "trips" / "1.json").write_text("\n".join(lines), "utf-8")
    with _engine() as (engine, address):
        _main("foreach_batch")(address, str(tmp_path / "trips"), str(tmp_path / "checkpoint"))
        assert _tuples(engine) == 60
        assert len(engine.query("SELECT ?s WHERE { ?s <http://example.org/zone> ?z }")) == 60
        _main("read_query")(address)
    assert capsys.readouterr().out.count("|20   |") == 3
