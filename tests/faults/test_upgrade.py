"""Nodes of an earlier commit and of this one in one cluster: it is upgraded node by node, and nothing is lost.

`upgrade_from.txt` names the commit. Its tree is unpacked from the clone, and runs with the packages of this one.
"""

from __future__ import annotations

import io
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import NamedTuple

import pytest

import wukongs
from tests.faults.test_cluster_processes import END_S, EX
from tests.faults.test_random_faults import COUNT, QUERY, RANGE_MS, TUPLE_MS, Cluster, Reader, Writer, check, cluster_in

ROOT = Path(__file__).parents[2]
FROM = (Path(__file__).parent / "upgrade_from.txt").read_text().strip()

CLIENT = f"""
import sys, time, wukongs
address, name, end_ms = sys.argv[1], sys.argv[2], int(sys.argv[3])
with wukongs.connect(address) as client:
    stream = client.stream("{EX}" + name, batch_ms=100)
    query = client.register(
        f"REGISTER QUERY {{name}} AS SELECT ?s "
        f"FROM STREAM <{EX}{{name}}> [RANGE 100ms STEP 100ms] WHERE {{{{ ?s ?p ?o }}}}"
    )
    stream.push([("<{EX}" + name + ">", "<{EX}p>", '"1"', end_ms - 50)])
    stream.advance(end_ms)
    window = next(one for one in query.results(timeout_s={END_S}) if len(one))
    assert [str(row[0]) for row in window] == ["{EX}" + name], window
    assert window.end_ms == end_ms, window
    stream.close()
    query.close()
    deadline = time.monotonic() + {END_S}
    # A window of one stream does not wait for the writer's stream, the stored graph does.
    while len(client.query(f"SELECT ?o {{{{ <{EX}{{name}}> <{EX}p> ?o . <{EX}known> <{EX}k> ?k }}}}")) != 1:
        assert time.monotonic() < deadline
        time.sleep(0.05)
"""
"""A push, a subscription and a query of what another client has written."""

WHAT_IT_IS = """
import wukongs
from wukongs.store import jit
is_compiled = getattr(jit, "are_kernels_compiled", None) or jit.kernels_are_cached
print(wukongs.__file__, "compiled" if is_compiled() else "")
"""


class Release(NamedTuple):
    """A source tree whose programs this test runs."""

    source: Path

    def python(self, *given: str) -> list[str]:
        return ["env", f"PYTHONPATH={self.source}", sys.executable, "-P", *given]

    @property
    def node(self) -> list[str]:
        return self.python("-m", "wukongs", "node", "--config")

    def ask_as_client(self, address: str, name: str, writer: Writer) -> None:
        """Push a tuple to a stream of its own, somewhat later than what the writer has pushed by now, and read it."""
        end_ms = (TUPLE_MS * writer.number // 100 + 20) * 100
        command = self.python("-c", CLIENT, address, name, str(end_ms))
        ran = subprocess.run(command, capture_output=True, text=True, timeout=2 * END_S)
        assert ran.returncode == 0, ran.stderr


NEW = Release(ROOT / "src")


@pytest.fixture(scope="module")
def old() -> Release:
    """Its folder stays the same from run to run, since numba finds compiled kernels by the paths of their sources."""
    ran = subprocess.run(["git", "-C", str(ROOT), "archive", FROM], capture_output=True)
    if ran.returncode != 0:
        pytest.skip(f"the commit {FROM:.12} is not in this clone: fetch it, with all of the history")
    folder = ROOT / "build" / f"upgrade-from-{FROM:.12}"
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(ran.stdout)) as tree:
        tree.extractall(folder, filter="data")
    share_kernels(folder)
    release = Release(folder / "src")
    said = subprocess.run(release.python("-c", WHAT_IT_IS), capture_output=True, text=True)
    assert said.stdout.startswith(str(folder)), (said.stdout, said.stderr)
    if "compiled" not in said.stdout:  # a minute or two, once for each state of the kernels
        subprocess.run(release.python(str(folder / "tools" / "compile_kernels.py")), check=True)
    return release


def share_kernels(folder: Path) -> None:
    """Put links to our kernels in the place of those that are the same: they are compiled then."""
    for name in ("**/*_kernels.py", "store/addresses.py", "store/jit.py"):
        for file in folder.glob(name):
            mine = ROOT / file.relative_to(folder)
            if mine.exists() and mine.read_bytes() == file.read_bytes():
                file.unlink()
                file.symlink_to(mine)


def replace(cluster: Cluster, release: Release, *numbers: int) -> None:
    """End nodes, and start them by another release."""
    cluster.kill(*numbers, by=signal.SIGTERM)
    cluster.command = release.node
    cluster.heal()


def pushed(writer: Writer, count: int) -> None:
    """Wait until so many more changes were acknowledged."""
    before, deadline = len(writer.kept), time.monotonic() + 2 * END_S
    while len(writer.kept) < before + count:
        assert time.monotonic() < deadline, writer.errors[-3:]
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.rare
def test_a_cluster_is_upgraded_node_by_node_and_nothing_is_lost(tmp_path: Path, old: Release) -> None:
    """The writer and the reader are clients of this commit: they begin with nodes of the earlier one alone."""
    with cluster_in(tmp_path, old.node) as cluster:
        clients = cluster.nodes.clients
        with wukongs.connect(clients) as client:
            client.update(f"INSERT DATA {{ <{EX}known> <{EX}k> 1 }}")
            client.stream(f"{EX}s", batch_ms=100)
            next(client.register(QUERY).results(timeout_s=0.1, group="readers"), None)
        writer, reader = Writer(clients), Reader(clients)
        for thread in (writer, reader):
            thread.start()
        pushed(writer, 20)
        for number in range(COUNT):
            replace(cluster, NEW, number)
            pushed(writer, 20)
            if number != 1:
                old.ask_as_client(clients[0], f"old{number}", writer)
                NEW.ask_as_client(clients[COUNT - 1], f"new{number}", writer)
        assert not writer.errors
        writer.is_over.set()
        writer.join(2 * END_S)
        assert not writer.is_alive()
        with wukongs.connect(clients) as client:
            client.stream(f"{EX}s", batch_ms=100).advance(TUPLE_MS * writer.number + 2 * RANGE_MS)
            client.settle(END_S)
        writer.kept |= {"known", "old0", "new0", f"old{COUNT - 1}", f"new{COUNT - 1}"}
        writer.begun |= writer.kept
        check(cluster, writer, reader)
        reader.is_over.set()
        reader.join(END_S)


@pytest.mark.slow
@pytest.mark.rare
def test_data_folders_of_an_earlier_commit_are_opened(tmp_path: Path, old: Release) -> None:
    with cluster_in(tmp_path, old.node) as cluster:
        with wukongs.connect(cluster.nodes.clients) as client:
            stream = client.stream(f"{EX}s", batch_ms=100)
            client.register(QUERY)
            client.update(f"INSERT DATA {{ <{EX}known> <{EX}k> 1 }}")
            stream.push([(f"<{EX}a>", f"<{EX}p>", '"1"', 50)])
            stream.advance(2000)
            client.settle(END_S)
        replace(cluster, NEW, *range(COUNT))
        with wukongs.connect(cluster.nodes.clients) as client:
            assert len(client.query("SELECT ?s { ?s ?p ?o }")) == 2
            (query,) = client.queries()
            stream = client.stream(f"{EX}s", batch_ms=100)
            stream.push([(f"<{EX}b>", f"<{EX}p>", '"1"', 2050)])
            stream.advance(4000)
            client.settle(END_S)
            windows = {one.end_ms: [str(row[0]) for row in one] for one in query.results(timeout_s=1)}
            assert windows[2500] == [f"{EX}b"]
            assert len(client.query("SELECT ?s { ?s ?p ?o }")) == 3
