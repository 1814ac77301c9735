"""Exactly once through Spark: `wukongs run --checkpoint` and a durable node, each in processes of their own.

The driver, its JVM, a Python worker and the node are killed at random. Checkpoints are deleted or put back to an older
state, a second run begins beside the first one, runs are told to stop. Afterwards the node holds the source's tuples,
and a reader was told each window once. `make faults-pipeline RUNS=200 SEED=n` makes more lives.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from subprocess import Popen

import pytest

import wukongs
from tests.faults.exactly_once import BATCH_MS, FAST, SLOW, Node, Reader, check, declare, made, write_down
from tests.fuzz import first_and_rare
from tests.processes import child
from wukongs.errors import NodeUnavailable

pytestmark = pytest.mark.spark

LIVES = int(os.environ.get("WUKONGS_PIPELINE_SPARK_RUNS", "2"))
SEED = int(os.environ.get("WUKONGS_FAULTS_SEED", "1"))
EVENTS = 4
END_S = 60.0
SCRATCH = "wukongs-scratch-*"
RUN_FILE = "[pipeline]\nrows_per_epoch = ROWS\nalign_ms = 200\n" + "".join(
    f'[[stream]]\niri = "{iri}"\nbatch_ms = {BATCH_MS}\nsource = {{ kind = "timestamped", path = "{iri[-4:]}.nt" }}\n'
    for iri in (FAST, SLOW)
)


class Life:
    """A durable node, a reader of its windows, and runs one after the other, with the folders that they use."""

    def __init__(self, folder: Path, rng: random.Random, count: int, end_ms: int) -> None:
        self.folder, self.rng = folder, rng
        self.rows = made(rng, count, end_ms)
        self.tuple_count = sum(map(len, self.rows.values()))
        write_down(folder, self.rows)
        (folder / "run.toml").write_text(RUN_FILE.replace("ROWS", str(rng.choice((20, 50, 200)))))
        self.checkpoint = folder / "checkpoint"
        self.run: Popen[str] | None = None
        self._runs = ExitStack()
        self.node = Node(folder)
        declare(self.node.address)
        self.reader = Reader(self.node.address)

    def start(self, *, is_local: bool = False) -> None:
        """Start a run, beside the one that is there. is_local: without Spark."""
        command = [sys.executable, "-m", "wukongs", "run", "--server", self.node.address]
        command += ["--local"] if is_local else ["--checkpoint", str(self.checkpoint)]
        command += ["--plain", str(self.folder / "run.toml")]
        self.run = self._runs.enter_context(child(command))

    def tuples(self) -> int:
        """Return how many tuples the node has taken; 0 if it does not answer."""
        with suppress(NodeUnavailable), wukongs.connect(self.node.address, silence_s=5) as client:
            return sum(stream["tuples"] for stream in client.stats()["streams"].values())
        return 0

    def wait_for_tuples(self, count: int) -> None:
        """Wait until the node has so many tuples, or the run has ended."""
        assert self.run is not None
        deadline = time.monotonic() + END_S
        while self.run.poll() is None and time.monotonic() < deadline and self.tuples() < count:
            time.sleep(0.01)

    def wait_a_moment(self) -> None:
        """Wait until some time in the start of the run, or until it has sent some more."""
        if self.rng.random() < 0.3:
            time.sleep(self.rng.uniform(0, 6))
            return
        here = self.tuples()
        self.wait_for_tuples(self.rng.randint(here, max(here, self.tuple_count - 1)))
        time.sleep(self.rng.uniform(0, 0.1))

    def ended(self) -> tuple[int, str]:
        """Wait for the end of the run; return its status and what it said on standard error."""
        assert self.run is not None
        _, said = self.run.communicate(timeout=END_S)
        status, self.run = self.run.returncode, None
        return status, said

    def kill_driver(self) -> None:
        assert self.run is not None
        jvm = self.jvm()
        self.run.kill()
        self.ended()
        if jvm is not None:
            wait_until(lambda: not is_jvm(jvm))  # it notices that its driver has gone

    def jvm(self) -> int | None:
        """Return the JVM of the run, if there is one."""
        assert self.run is not None
        return next((pid for pid in children(self.run.pid) if is_jvm(pid)), None)

    def kill_jvm(self) -> None:
        """Kill the JVM: the run says so by name, in one line, and leaves nothing behind."""
        jvm = self.jvm()
        if jvm is None:
            return
        with suppress(ProcessLookupError):
            os.kill(jvm, signal.SIGKILL)
        status, said = self.ended()
        if status:
            assert status in (1, 2), said  # 2: it had not come up yet
            assert "Traceback" not in said, said
            assert said.splitlines()[-1].startswith("wukongs: Spark's JVM"), said
        assert scratch() == []

    def kill_worker(self) -> None:
        """Kill one of Spark's Python processes. The run goes on, or ends by a named error."""
        jvm = self.jvm()
        workers = [] if jvm is None else list(descendants(jvm))
        if workers:
            with suppress(ProcessLookupError):
                os.kill(self.rng.choice(workers), signal.SIGKILL)

    def kill_node(self) -> None:
        self.node.kill()
        time.sleep(self.rng.uniform(0, 1))
        self.node.start()

    def stop(self) -> None:
        """Tell the run to stop: it does, with its summary, and leaves nothing behind."""
        assert self.run is not None
        has_begun = self.jvm() is not None
        self.run.terminate()
        status, said = self.ended()
        if has_begun:
            assert status in (0, 143), said
            assert "Traceback" not in said, said
            assert scratch() == []

    def begin_another(self) -> None:
        """Begin a second run beside the first one, with a checkpoint of its own: one of the two goes on alone."""
        first, self.checkpoint = self.run, self.folder / f"checkpoint {self.rng.random()}"
        assert first is not None
        self.start()
        _, said = first.communicate(timeout=2 * END_S)
        assert first.returncode == 0 or "locked out by the newer writer" in said, said

    def change_checkpoint(self) -> None:
        """Delete the checkpoint, put an older one in its place, keep this one for later, or do nothing."""
        kept = self.folder / "kept"
        change = self.rng.choice(("delete", "put back", "keep", "none"))
        if change in ("delete", "put back"):
            shutil.rmtree(self.checkpoint, ignore_errors=True)
        if change == "put back" and kept.exists():
            shutil.copytree(kept, self.checkpoint)
        if change == "keep" and self.checkpoint.exists():
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(self.checkpoint, kept)

    def finish(self, *, is_local: bool = False) -> None:
        """Let a last run come to its end, and compare all that the node and the reader have with the rows."""
        if self.run is None or self.ended()[0] != 0:
            self.start(is_local=is_local)
            status, said = self.ended()
            assert status == 0, said
        assert scratch() == []
        check(self.node.address, self.rows, self.reader)

    def close(self) -> None:
        self._runs.close()
        self.reader.close()
        self.node.kill()


def scratch() -> list[str]:
    """Return the temporary folders that there are."""
    return [path.name for path in Path(tempfile.gettempdir()).glob(SCRATCH)]


def is_jvm(pid: int) -> bool:
    """Tell whether a process is Spark's JVM: `java -version` is asked before."""
    with suppress(OSError):
        return b"PythonGatewayServer" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def children(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(folder.name))
    return found


def descendants(pid: int) -> Iterator[int]:
    for own in children(pid):
        yield own
        yield from descendants(own)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + END_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for all that a life leaves; temporary files are in it, too. Its path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="w-", dir="/tmp") as name:
        (Path(name) / "t").mkdir()
        monkeypatch.setenv("TMPDIR", f"{name}/t")
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(name)
    monkeypatch.setattr(tempfile, "tempdir", None)


def lived(folder: Path, seed: int, count: int = 1000, end_ms: int = 4000) -> Life:
    return Life(folder, random.Random(seed), count, end_ms)


@pytest.mark.slow
@pytest.mark.parametrize("tuples", first_and_rare([0, 1]))
def test_a_run_whose_jvm_is_killed_says_so_and_one_without_spark_goes_on(folder: Path, tuples: int) -> None:
    life = lived(folder, 1, count=400, end_ms=1000)
    try:
        life.start()
        wait_until(lambda: life.jvm() is not None)
        life.wait_for_tuples(tuples)
        life.kill_jvm()
        life.finish(is_local=True)
    finally:
        life.close()


@pytest.mark.rare
@pytest.mark.slow
def test_a_stopped_run_sums_up_and_the_next_one_goes_on(folder: Path) -> None:
    life = lived(folder, 2)
    try:
        life.start()
        life.wait_for_tuples(100)
        assert life.run is not None
        life.run.terminate()
        out, said = life.run.communicate(timeout=END_S)
        assert life.run.returncode == 143, said
        life.run = None
        assert "interrupted: what was done until then" in said
        sent, here = int(out.split(" tuples in ")[0].replace(",", "")), life.tuples()
        assert sent == here < life.tuple_count
        assert scratch() == []
        shutil.rmtree(life.checkpoint)
        life.finish()
    finally:
        life.close()


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.parametrize("run", range(LIVES))
def test_all_processes_are_killed_at_random(folder: Path, run: int) -> None:
    seed = SEED * 10_000 + run
    print(f"seed {seed}")
    life = lived(folder, seed)
    events = [life.kill_driver, life.kill_jvm, life.kill_worker, life.kill_node, life.stop, life.begin_another]
    try:
        for _ in range(EVENTS):
            if life.run is not None and life.run.poll() is not None:
                status, said = life.ended()
                assert "Traceback" not in said, said
                assert status in (0, 1), said
                if status == 0:
                    break
            if life.run is None:
                life.change_checkpoint()
                life.start()
            life.wait_a_moment()
            event = life.rng.choice(events)
            print(f"{life.tuples()} of {life.tuple_count} tuples: {event.__name__}")
            event()
        life.finish()
    finally:
        life.close()
