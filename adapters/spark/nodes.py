"""`wukongs cluster --spark MASTER`: the nodes of a cluster run where Spark's executors do, and Spark brings them back.

* Each node is the one task of a job of its own, which lasts as long as the cluster. It is no barrier stage: when a node
  ends, its task fails and is run again, and the tasks of the others know nothing of it.
* Each executor has room for one task, and there are as many as nodes. A node belongs to a host: its addresses and its
  folder are there. Its task waits for an executor of this host. Where Spark has none any more, it tries another; the
  node cannot listen there, ends, and its task is run again.
* A node ends when its task does, also if the worker of the task is killed: its standard input is the task's.
"""

from __future__ import annotations

import logging
import pickle
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from wukongs.adapters.spark.session import StartingSession
from wukongs.errors import NodeUnavailable

AGAIN_S = 1.0
SAID_LENGTH = 2000
_LOOK_S = 0.1
_ALWAYS = str(1 << 30)
_SETTINGS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.locality.wait": "3650d",
    "spark.task.maxFailures": _ALWAYS,
    "spark.stage.maxConsecutiveAttempts": _ALWAYS,
    "spark.python.daemon.module": "pyspark.daemon",
}

log = logging.getLogger("wukongs")


@dataclass(frozen=True, slots=True)
class NodeSetup:
    """A node, the host where it runs, and the files that it reads there, by name: node.toml, and those it names."""

    number: int
    host: str
    files: Mapping[str, str]


class SparkNodes:
    """A session of Spark that runs nodes. Use it with `with`: the nodes end with it.

    Raises: SettingsError (no Java, or Spark does not start)."""

    def __init__(self, master: str, node_count: int) -> None:
        self._count = node_count
        self._is_over = threading.Event()
        self._starting = StartingSession(1, master, {**_SETTINGS, "spark.cores.max": str(node_count)})

    def __enter__(self) -> SparkNodes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over.set()
        self._starting.close()

    def hosts(self, timeout_s: float, stopped: threading.Event) -> list[str] | None:
        """Wait for as many executors as nodes; return their hosts, in order. None: it was stopped before.

        Raises: NodeUnavailable (there are fewer after timeout_s seconds), SettingsError (Spark does not start)."""
        found: list[str] = []
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if stopped.is_set():
                return None
            if self._starting.is_up(_LOOK_S):
                found = _executor_hosts(self._starting.session().sparkContext)
                if len(found) >= self._count:
                    return found[: self._count]
                time.sleep(_LOOK_S)
        raise NodeUnavailable(
            f"Spark has given {len(found)} executors of one core and 512 MB within {timeout_s:g} s, and {self._count} "
            "are needed: have its workers so many free cores?"
        )

    def run(self, setups: Sequence[NodeSetup]) -> None:
        """Begin to run nodes, each in a job of its own, until this is closed."""
        for setup in setups:
            threading.Thread(target=self._keep, args=(setup,), name=f"wukongs-node-{setup.number}", daemon=True).start()

    def _keep(self, setup: NodeSetup) -> None:
        while not self._is_over.is_set():
            try:
                _on_host(self._starting.session().sparkContext, setup).foreach(run_node)
            except Exception as error:
                if not self._is_over.is_set():
                    log.warning("the job of node %d has ended, and is begun anew: %s", setup.number, error)
            self._is_over.wait(AGAIN_S)


def _executor_hosts(context: Any) -> list[str]:
    """Return the hosts of the executors that there are, one for each. Spark lists its driver among them."""
    listed = context._jsc.sc().statusStore().executorList(True)
    infos = [listed.apply(number) for number in range(listed.size())]
    # One that has just come has no port yet.
    return sorted(re.sub(r":\d+$", "", info.hostPort()).strip("[]") for info in infos if info.id() != "driver")


def _on_host(context: Any, setup: NodeSetup) -> Any:
    """Return an RDD of one part with one value, the setup, whose task prefers the host of the node.

    pyspark has no call that names a preferred host."""
    from pyspark import RDD
    from pyspark.serializers import CPickleSerializer

    jvm = context._jvm
    value = jvm.scala.Tuple2(bytearray(pickle.dumps(setup)), jvm.PythonUtils.toSeq([setup.host]))
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    parts = context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq([value]), tag).toJavaRDD()
    return RDD(parts, context, CPickleSerializer())


def run_node(setup: NodeSetup) -> None:
    """Run a node until it ends, in a task of Spark's. Raises: NodeUnavailable, in each case."""
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is not None and task.attemptNumber():
        time.sleep(AGAIN_S)
    # Below the folder of the executor, which Spark removes.
    with tempfile.TemporaryDirectory(prefix="wukongs-node-", dir=Path.cwd()) as folder:
        for name, text in setup.files.items():
            Path(folder, name).write_text(text, "utf-8")
            Path(folder, name).chmod(0o600)
        said = Path(folder, "said")
        with said.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "wukongs", "node", "--config", "node.toml", "--until-stdin-ends"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=file,
                cwd=folder,
            )
        status = process.wait()
        raise NodeUnavailable(
            f"node {setup.number} at {setup.host} has ended with status {status}. "
            f"It said: {said.read_text('utf-8', 'replace')[-SAID_LENGTH:].strip()}"
        )
