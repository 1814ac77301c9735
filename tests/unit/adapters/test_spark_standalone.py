"""format("wukongs") on a standalone Spark master with two workers, all from the pyspark package and on loopback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.faces import served
from tests.inside import ingest_of
from tests.unit.adapters.helpers import PROJECT
from wukongs.engine import Engine
from wukongs.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.slow]
STREAM = "http://ex/s"
READY_S = 180.0
DRIVER = """
import os, sys
from pyspark.sql import SparkSession
from wukongs.adapters.spark import WukongsDataSource

master, address, source, checkpoint, path = sys.argv[1:]
settings = {
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false",
    "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2",
    "spark.executorEnv.PYTHONPATH": path, "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}
spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
spark.dataSource.register(WukongsDataSource)
rows = spark.readStream.schema("subject string, predicate string, object string, time long").json(source)
query = (
    rows.repartition(4, "subject").writeStream.format("wukongs")
    .options(address=address, stream="http://ex/s", partitions="4").option("checkpointLocation", checkpoint)
    .trigger(availableNow=True).start()
)
query.awaitTermination()
count = spark.read.format("wukongs").options(address=address, query="SELECT ?s WHERE { ?s ?p ?o }").load().count()
hosts = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
print(count, hosts)
spark.stop()
"""


@contextmanager
def daemon(folder: Path, name: str, *arguments: str) -> Iterator[Path]:
    """Run a class of Spark's in a JVM of its own, which ends with the block; give the file of its log."""
    import pyspark

    home = Path(pyspark.__file__).parent
    log = folder / f"{name}.log"
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as file:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments], stdout=file, stderr=file, env=environment, cwd=folder
        )
        try:
            yield log
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def said(log: Path, pattern: str) -> str:
    """Wait until a log says something; return the first group."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text("utf-8", "replace"))
        if found is not None:
            return found[1]
        time.sleep(0.2)
    raise AssertionError(log.read_text("utf-8", "replace")[-2000:])


@contextmanager
def standalone(folder: Path, cores: Sequence[int]) -> Iterator[str]:
    """Start a master, and a worker for each number of cores; give the address of the master."""
    kind = "org.apache.spark.deploy"
    at = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        log = stack.enter_context(daemon(folder, "master", f"{kind}.master.Master", *at))
        master = said(log, r"Starting Spark master at (spark://\S+)")
        for number, count in enumerate(cores):
            own = ("--cores", str(count), "--memory", f"{count}g", "--work-dir", str(folder / f"work{number}"))
            log = stack.enter_context(daemon(folder, f"worker{number}", f"{kind}.worker.Worker", *at, *own, master))
            said(log, r"(Successfully registered with master)")
        yield master


@pytest.mark.rare
def test_two_workers_of_a_standalone_master_write_and_read(tmp_path: Path) -> None:
    import json

    (tmp_path / "in").mkdir()
    for file in range(4):
        numbers = range(file * 50, file * 50 + 50)
        names = ("subject", "predicate", "object", "time")
        rows = [(f"<http://ex/s{n}>", "<http://ex/p>", f'"{n}"', 1000 + n) for n in numbers]
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
        (tmp_path / "in" / f"{file}.json").write_text("\n".join(lines), "utf-8")
    with ExitStack() as stack:
        engine = stack.enter_context(Engine())
        engine.stream(STREAM, batch_ms=100)
        engine.load(_triples(tmp_path))
        address = stack.enter_context(served(engine, Settings(), ingest_of(engine)))
        master = stack.enter_context(standalone(tmp_path, (1, 1)))
        source = str(Path(PROJECT, "src"))
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, master, address, str(tmp_path / "in"), str(tmp_path / "checkpoint"), source],
            env={**os.environ, "PYTHONPATH": source, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert engine.stats()["streams"][STREAM]["tuples"] == 200
        count, executors = map(int, done.stdout.split())
        assert (count >= 3, executors) == (True, 2)


def _triples(folder: Path) -> Path:
    path = folder / "stored.nt"
    path.write_text("".join(f"<http://ex/t{n}> <http://ex/q> <http://ex/o> .\n" for n in range(3)), "utf-8")
    return path
