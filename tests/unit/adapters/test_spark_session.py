"""Spark as users meet it: no noise, the right Python without an activated environment, kill -9 at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.adapters.conftest import Listen
from tests.unit.adapters.helpers import PROJECT
from tests.unit.adapters.receiver import RecordingNode, StreamSettings
from wukongs.adapters.run_config import StreamConfig, TimestampedSource
from wukongs.adapters.scratch import ScratchFolder
from wukongs.adapters.spark.jvm import check_java
from wukongs.adapters.spark.pipeline import run_pipeline
from wukongs.adapters.spark.session import StartingSession
from wukongs.errors import SettingsError, StreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCRIPT = """
import sys
from wukongs.adapters.spark.pipeline import run_pipeline
from wukongs.adapters.spark.session import StartingSession
from wukongs.adapters.run_config import PipelineConfig, StreamConfig, TimestampedSource

path, address, speed, checkpoint = sys.argv[1:]
stream = StreamConfig(iri="http://ex/s", sources=(TimestampedSource(paths=(path,)),))
config = PipelineConfig(speed=float(speed), align_ms=500)
report = run_pipeline([stream], [address], config, checkpoint=checkpoint or None)
print(report.triples, report.finished)
"""


CLUSTER = """
import os, sys
from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
host, folder, project = sys.argv[2:]
settings = {
    "spark.driver.host": host,
    "spark.driver.bindAddress": host,
    "spark.executorEnv.PYTHONPATH": project,
    "spark.local.dir": folder,
    "spark.ui.enabled": "false",
}
builder = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=settings)
session = builder.getOrCreate()
session.sparkContext.setLogLevel("OFF")
from wukongs import Engine
from wukongs.adapters.run_config import PipelineConfig, StreamConfig, TimestampedSource
from wukongs.adapters.spark.pipeline import run_pipeline
from wukongs.adapters.spark.session import StartingSession

names = ("http://ex/1", "http://ex/2")
streams = [StreamConfig(iri=name, sources=(TimestampedSource(paths=(sys.argv[1],)),)) for name in names]
with Engine() as engine:
    for name in names:
        engine.stream(name, batch_ms=100)
    report = run_pipeline(streams, [engine.listen()], PipelineConfig(rows_per_epoch=100), session=session)
    engine.settle()
    print(report.triples, report.finished, engine.stats()["stored_triples"])
session.stop()
"""


def _file(folder: Path, count: int) -> tuple[Path, list[int]]:
    path, times = folder / "s.nt", [row * 10 for row in range(count)]
    path.write_text("".join(f'<http://ex/s> <http://ex/p> "{time}" . {time}\n' for time in times))
    return path, times


def _bare_environment() -> dict[str, str]:
    """A user's shell in which no environment is activated: another python3 comes first on the path."""
    kept = ("HOME", "JAVA_HOME", "WUKONGS_KERNEL_CACHE", "XDG_CACHE_HOME", "TMPDIR")
    java = os.path.dirname(os.path.realpath("/usr/bin/java"))
    paths = ["/usr/local/bin", "/usr/bin", "/bin", java]
    return {"PATH": ":".join(paths), **{name: os.environ[name] for name in kept if name in os.environ}}


@pytest.mark.slow
@pytest.mark.spark
def test_it_runs_without_an_activated_environment_and_prints_nothing_of_its_own(listen: Listen, tmp_path: Path) -> None:
    path, times = _file(tmp_path, 300)
    node = RecordingNode(s=StreamSettings(100))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), listen(node), "0", ""],
        env=_bare_environment(),
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "300 True\n", "")
    assert [time for time, _ in node.tuples["http://ex/s"]] == times


@pytest.mark.rare
@pytest.mark.slow
@pytest.mark.spark
def test_executors_may_be_jvms_of_their_own(tmp_path: Path) -> None:
    path, _ = _file(tmp_path, 300)
    done = subprocess.run(
        [sys.executable, "-c", CLUSTER, str(path), "127.0.0.2", str(tmp_path / "spark"), str(PROJECT)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["600 True 300"]), done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.spark
def test_a_pipeline_that_is_killed_goes_on_where_the_node_is(
    spark: SparkSession, listen: Listen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, times = _file(tmp_path, 1000)
    node = RecordingNode(s=StreamSettings(100))
    address, checkpoint = listen(node), str(tmp_path / "checkpoint")
    command = [sys.executable, "-c", SCRIPT, str(path), address, "1.0", checkpoint]
    temporary = tmp_path / "t"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    child = subprocess.Popen(command, cwd=PROJECT, start_new_session=True, stdin=subprocess.DEVNULL, env=environment)
    deadline = time.monotonic() + 300
    while len(node.tuples["http://ex/s"]) < 100:
        assert time.monotonic() < deadline, "the child sends nothing"
        assert child.poll() is None, "the child has ended too early"
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with ScratchFolder("test") as folder:
        assert list(temporary.iterdir()) == [folder]  # the next one has removed all that was left
    before = len(node.tuples["http://ex/s"])
    stream = StreamConfig(iri="http://ex/s", sources=(TimestampedSource(paths=(str(path),)),))
    report = run_pipeline([stream], [address], session=spark, checkpoint=checkpoint)
    assert report.finished
    assert before < 1000
    assert [time for time, _ in node.tuples["http://ex/s"]] == times


def test_a_machine_without_java_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(
        SettingsError, match=r"needs Java 17 or newer, found none at .*Install it .* or point JAVA_HOME"
    ):
        check_java()


def test_an_old_java_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SettingsError, match=r"found Java 11 at"):
        check_java()


def test_a_jvm_that_is_killed_while_spark_starts_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(starting: StartingSession) -> None:
        assert starting._jvm is not None
        starting._jvm.process.kill()
        raise ConnectionRefusedError

    monkeypatch.setattr(StartingSession, "_started", killed)
    starting = StartingSession()
    with pytest.raises(StreamError, match=r"Spark's JVM has ended, with status -9\. Start it again: it resumes"):
        starting.session()


KILLED = """
import glob, os, signal, tempfile
from pyspark import SparkContext
from wukongs.adapters.spark.session import start_session, stop_session
session = start_session()
assert session.range(3).count() == 3
process = SparkContext._gateway.proc
process.send_signal(signal.SIGKILL)
process.wait()
stop_session(session)
assert not glob.glob(os.path.join(tempfile.gettempdir(), "wukongs-scratch-*")), "its folder is gone"
again = start_session()
assert again.range(4).count() == 4
stop_session(again)
print("ended")
"""


@pytest.mark.slow
def test_a_session_whose_jvm_was_killed_is_stopped_and_another_one_started(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    done = subprocess.run(
        [sys.executable, "-c", KILLED], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.stdout == "ended\n", done.stderr
