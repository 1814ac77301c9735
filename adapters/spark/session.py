"""A local Spark session with little overhead and no noise.

The settings are those that measuring has shown to matter: no forks for checkpoints, a Unix socket between the JVM and
Python, one fast compiler tier. All that the JVM and its workers print goes to a log file in the session's own folder.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wukongs
from wukongs.adapters.milestones import passed
from wukongs.adapters.scratch import ScratchFolder
from wukongs.adapters.spark.daemon import EARLY_AT, start_daemon
from wukongs.adapters.spark.jvm import ARCHIVE_TO_MAKE, Jvm, check_java, command_for, end_with_input, is_plain
from wukongs.errors import SettingsError, StreamError, WukongsError

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

TASK_ATTEMPTS = 3

_UNIX_SOCKET_PATH_LENGTH_MAX = 107
_SOCKET_NAME_LENGTH = 43
"""The names of the sockets that Spark makes take so many characters: a stop, a UUID and .sock; with the separator."""

_scratch: dict[str, ScratchFolder] = {}
"""The folders of sessions that run, by path."""
_early: dict[str, subprocess.Popen[bytes]] = {}
"""Their early daemons, by the same paths."""
_folders: dict[int, str] = {}
"""Their paths, by the identity of their contexts."""

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
    "spark.python.daemon.module": "wukongs.adapters.spark.daemon",
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
    return active_session() or StartingSession(parallelism, master).session()


def start_early(parallelism: int) -> StartingSession | None:
    """Begin to start Spark, unless a session is there. Raises: SettingsError (no Java, or an old one)."""
    return None if active_session() else StartingSession(parallelism)


class StartingSession:
    """A session that starts in a thread of its own, while others load what they need. Call close at the end.

    Raises: SettingsError (no Java of at least JAVA_MIN, or a JVM that does not start): session does; a missing Java is
    said at once. settings: further ones of Spark."""

    def __init__(
        self, parallelism: int = 2, master: str | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        check_java()
        passed("Java check")
        # Workers run this very Python: without it they take the system's, also when the environment is not activated.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        scratch = ScratchFolder("spark")
        self._folder = str(scratch.path)
        _scratch[self._folder] = scratch
        self._log = scratch.path / "spark.log"
        self._settings = {**_SETTINGS, **_local_settings(parallelism, scratch.path)}
        if master is not None:
            self._settings["spark.master"] = master
            if "127.0.0.1" not in master and "localhost" not in master:  # executors elsewhere have to find the driver
                del self._settings["spark.driver.host"], self._settings["spark.driver.bindAddress"]
        self._settings.update(settings or {})
        self._session: SparkSession | None = None
        self._error: Exception | None = None
        self._is_closed = False
        try:
            self._jvm = Jvm(command_for(self._settings), self._log, {EARLY_AT: self._folder}) if is_plain() else None
        except SettingsError:
            _clear(self._folder)
            raise
        self._is_up = threading.Event()
        threading.Thread(target=self._start, name="wukongs-spark-start", daemon=True).start()

    def is_up(self, timeout_s: float) -> bool:
        """Wait up to timeout_s seconds; tell whether the start has ended, well or not."""
        return self._is_up.wait(timeout_s)

    def session(self) -> SparkSession:
        """Wait for the session. Raises: SettingsError (the JVM does not start)."""
        self._is_up.wait()
        if self._error is not None:
            self.close()
            raise self._error
        assert self._session is not None
        # The JVM keeps the active session by thread, and looks for data sources in the active one alone.
        self._session._jvm.SparkSession.setActiveSession(self._session._jsparkSession)  # type: ignore[union-attr]
        return self._session

    def explained(self, error: Exception) -> Exception:
        """Return the error to raise in place of one that came while Spark ran or started: the JVM may have gone."""
        if self._jvm is not None and not isinstance(error, WukongsError):
            with suppress(subprocess.TimeoutExpired):
                status = self._jvm.process.wait(1)
                return StreamError(f"Spark's JVM has ended, with status {status}. Start it again: it resumes")
        return error

    def close(self) -> None:
        """Stop Spark, end its JVM and remove its folder, however far the start has come. May be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._is_up.is_set() and self._jvm is not None:
            self._jvm.process.kill()  # the start fails then, soon
        self._is_up.wait()
        if self._session is not None and (self._jvm is None or self._jvm.process.poll() is None):
            stop_session(self._session)
            return
        if self._jvm is not None:
            _forget_context()
            self._jvm.end()
        _clear(self._folder)

    def _start(self) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._session = self._started()
            passed("session")
        except Exception as error:
            self._error = self.explained(error)
            master = self._settings["spark.master"]
            if not isinstance(self._error, WukongsError) and not master.startswith("local"):
                self._error = SettingsError(f"{master}: Spark does not start there: is it a master that runs?")
        finally:
            self._is_up.set()

    def _started(self) -> SparkSession:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        conf = SparkConf()
        for name, value in self._settings.items():
            conf.set(name, value)
        gateway = _launch(conf, self._log) if self._jvm is None else _connect(self._jvm)
        passed("JVM up")
        logging.getLogger().addFilter(_is_not_of_py4j)
        context = SparkContext(conf=conf, gateway=gateway)
        context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
        context.setLogLevel("OFF")
        session = SparkSession(context)
        _folders[id(context)] = self._folder
        if self._jvm is not None and self._settings["spark.master"].startswith("local["):
            # Sooner it would take from the JVM what time it gains.
            path = self._settings["spark.executorEnv.PYTHONPATH"]
            _early[self._folder] = start_daemon(Path(self._folder), self._log, path)
        return session


def active_session() -> SparkSession | None:
    """Return the Spark session that runs in this process, if there is one; loads nothing to find out."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    return None if context is None else SparkSession.getActiveSession() or SparkSession(context)


def stop_session(session: SparkSession) -> None:
    """Stop Spark, end its JVM and remove its folder; also if the JVM was killed."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import SparkContext

    gateway, folder = SparkContext._gateway, _folders.pop(id(session.sparkContext), None)
    for stop in (session.stop, session.sparkContext.stop):  # without its JVM the first one stops half way
        with suppress(Py4JError, OSError):
            stop()
    if gateway is not None:
        SparkContext._gateway = SparkContext._jvm = None
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(None if os.environ.get(ARCHIVE_TO_MAKE) else 10)
    _clear(folder)


def _clear(folder: str | None) -> None:
    """End the early daemon of a session and remove its folder. None: of a session that is not ours."""
    if folder is None:
        return
    if folder in _early:
        end_with_input(_early.pop(folder))
    if folder in _scratch:
        _scratch.pop(folder).close()


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


def _connect(jvm: Jvm) -> Any:
    """Return pyspark's gateway to a JVM that is about to listen. Raises: SettingsError (it does not start)."""
    from pyspark.java_gateway import launch_gateway

    port, secret = jvm.address()
    told = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(told)
    try:
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in told:
            os.environ.pop(name, None)
    gateway.proc = jvm.process
    return gateway


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Keep quiet what py4j tells the root logger when the JVM has gone: our error says it in a line."""
    return "py4j" not in record.pathname


def _forget_context() -> None:
    """Forget a context whose JVM has gone, so that another can be made in this process."""
    context = sys.modules.get("pyspark.core.context")
    if context is not None:
        context.SparkContext._gateway = context.SparkContext._jvm = None
        context.SparkContext._active_spark_context = None


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
