"""A local Spark session with little overhead and no noise.

The settings are those that measuring has shown to matter: no forks for checkpoints, a Unix socket between the JVM and
Python, one fast compiler tier. All that the JVM and its workers print goes to a log file in the session's own folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import wukongs
from wukongs.adapters.scratch import ScratchFolder
from wukongs.errors import SettingsError

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

JAVA_MIN = 17
TASK_ATTEMPTS = 3

_UNIX_SOCKET_PATH_LENGTH_MAX = 107
_SOCKET_NAME_LENGTH = 43
"""The names of the sockets that Spark makes take so many characters: a stop, a UUID and .sock; with the separator."""

_scratch: dict[str, ScratchFolder] = {}
"""The folders of sessions that run, by path."""

_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_SETTINGS = {
    "spark.app.name": "wukongs",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.adaptive.enabled": "false",
    "spark.locality.wait": "0",
    "spark.speculation": "false",
    # Checkpoints on a local disk without 18 of 20 forked processes per epoch.
    "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.pollingDelay": "5ms",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.driver.memory": "512m",
}


def start_session(parallelism: int = 2, master: str | None = None) -> SparkSession:
    """Start Spark in this process, or return the session that is there. master: of a Spark cluster (None: local).

    Raises: SettingsError (no Java of at least JAVA_MIN, or a JVM that does not start)."""
    check_java()
    # Workers run this very Python: without it they take the system's, also when the environment is not activated.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        active = active_session()
        if active is not None:
            return active
        scratch = ScratchFolder("spark")
        folder = scratch.path
        _scratch[str(folder)] = scratch
        conf = SparkConf()
        for name, value in {**_SETTINGS, **_local_settings(parallelism, folder)}.items():
            conf.set(name, value)
        if master is not None:
            conf.set("spark.master", master)
        try:
            gateway = _launch(conf, folder / "spark.log")
        except SettingsError:
            _scratch.pop(str(folder)).close()
            raise
        context = SparkContext(conf=conf, gateway=gateway)
        context.setLogLevel("OFF")
        return SparkSession(context)


def active_session() -> SparkSession | None:
    """Return the Spark session that runs in this process, if there is one; loads nothing to find out."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    return None if context is None else SparkSession.getActiveSession() or SparkSession(context)


def stop_session(session: SparkSession) -> None:
    """Stop Spark, end its JVM and remove its folder."""
    from pyspark import SparkContext

    folder = session.conf.get("spark.local.dir")
    gateway = SparkContext._gateway
    session.stop()
    if gateway is not None:
        SparkContext._gateway = SparkContext._jvm = None
        gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
    if folder in _scratch:
        _scratch.pop(folder).close()


def check_java() -> None:
    """Raises: SettingsError (no Java, or an old one)."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        answer = ""
    found = re.search(r'version "(\d+)', answer)
    if found is None or int(found[1]) < JAVA_MIN:
        raise SettingsError(
            f"the pipeline needs Java {JAVA_MIN} or newer, found {f'Java {found[1]}' if found else 'none'} at {java}. "
            "Install it (Debian: apt-get install openjdk-17-jre-headless) or point JAVA_HOME at one"
        )


def _local_settings(parallelism: int, folder: Path) -> dict[str, str]:
    return {
        "spark.master": f"local[{parallelism},{TASK_ATTEMPTS}]",
        "spark.sql.shuffle.partitions": str(parallelism),
        "spark.default.parallelism": str(parallelism),
        "spark.executorEnv.PYTHONPATH": str(Path(wukongs.__file__).absolute().parents[1]),
        "spark.local.dir": str(folder),
        "spark.driver.extraJavaOptions": f'-XX:+UseSerialGC -XX:TieredStopAtLevel=1 "-Djava.io.tmpdir={folder}"',
        # JVM to Python without 40 ms of delayed acknowledgement per task; the sockets are made in java.io.tmpdir.
        "spark.python.unix.domain.socket.enabled": str(
            len(str(folder)) + _SOCKET_NAME_LENGTH <= _UNIX_SOCKET_PATH_LENGTH_MAX
        ).lower(),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }


def _launch(conf: SparkConf, log: Path) -> object:
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    with log.open("wb") as file:
        try:
            gateway: object = launch_gateway(  # type: ignore[no-untyped-call]
                conf, popen_kwargs={"stdout": file, "stderr": file}
            )
            return gateway
        except (PySparkException, OSError) as error:
            tail = log.read_text("utf-8", "replace")[-500:]
            raise SettingsError(f"Spark's JVM does not start ({error}). It said: {tail}") from None
