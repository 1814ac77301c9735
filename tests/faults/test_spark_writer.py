"""kill -9 of a Spark driver and its JVM at any moment of writeStream: afterwards the engine has each row once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import wukongs
from tests.faces import served
from tests.fuzz import SEED
from tests.inside import ingest_of
from wukongs.engine import Engine
from wukongs.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.slow]
STREAM = "http://ex/s"
FILES, ROWS, KILLS = 12, 300, 3
DRIVER = """
import sys
from wukongs.adapters.spark import WukongsDataSource
from wukongs.adapters.spark.session import start_session, stop_session

address, source, checkpoint = sys.argv[1:]
spark = start_session()
spark.dataSource.register(WukongsDataSource)
rows = spark.readStream.schema("subject string, predicate string, object string, time long")
rows = rows.option("maxFilesPerTrigger", 1).json(source).repartition(3, "subject")
query = (
    rows.writeStream.format("wukongs").options(address=address, stream="http://ex/s", partitions="3", advance="all")
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
)
query.awaitTermination()
stop_session(spark)
"""


def test_a_driver_that_is_killed_writes_each_row_once(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        numbers = range(file * ROWS + 1, file * ROWS + ROWS + 1)
        names = ("subject", "predicate", "object", "time")
        rows = [(f"<http://ex/s{n % 50}>", "<http://ex/p>", f'"row {n}"', n) for n in numbers]
        path = tmp_path / "in" / f"{file:02}.json"
        path.write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows), "utf-8")
        os.utime(path, (1_700_000_000 + file, 1_700_000_000 + file))  # Spark takes the oldest first
    with ExitStack() as stack:
        engine = stack.enter_context(Engine())
        engine.stream(STREAM, batch_ms=ROWS)
        window = f"FROM STREAM <{STREAM}> [RANGE {ROWS}ms STEP {ROWS}ms]"
        query = engine.register(f"REGISTER QUERY q AS SELECT ?s ?o {window} WHERE {{ ?s ?p ?o }}")
        address = stack.enter_context(served(engine, Settings(), ingest_of(engine)))
        for _ in range(KILLS):
            here = engine.stats()["streams"][STREAM]["tuples"]
            _run(tmp_path, address, engine, here + draw.randrange(1, 3 * ROWS), draw.random() * 0.2)
        _run(tmp_path, address, engine, None, 0)
        engine.settle(30)
        assert engine.stats()["streams"][STREAM]["tuples"] == FILES * ROWS
        windows = {one.end_ms: sorted(str(o) for _, o in one) for one in query.results(timeout_s=0)}
    assert windows == {
        (file + 1) * ROWS: sorted(f"row {n}" for n in range(file * ROWS + 1, file * ROWS + ROWS + 1))
        for file in range(FILES)
    }


def _run(folder: Path, address: str, engine: Engine, until: int | None, later_s: float) -> None:
    """Run the driver; kill it, with its JVM, a moment after the engine has so many tuples (None: let it end)."""
    log = folder / "driver.log"
    environment = {**os.environ, "PYTHONPATH": str(Path(wukongs.__file__).absolute().parents[1])}
    command = [sys.executable, "-c", DRIVER, address, str(folder / "in"), str(folder / "checkpoint")]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
        try:
            deadline = time.monotonic() + 180
            while process.poll() is None and time.monotonic() < deadline:
                if until is not None and engine.stats()["streams"][STREAM]["tuples"] >= until:
                    time.sleep(later_s)
                    break
                time.sleep(0.005)
            if until is None:
                assert process.poll() == 0, log.read_text("utf-8", "replace")[-3000:]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # the driver and its JVM; both were started here
            process.wait()
