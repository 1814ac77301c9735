"""`wukongs run` sends rows that come late to three nodes; the run, and nodes, are killed at random until all is sent.

Each window comes with the rows that the sources alone give, however often it comes. The clocks of sources are the
oracle's (tests/oracles/lateness.py): with late="drop", a late row is in no window; with "open", in those not closed.

One life of each here; `make faults-pipeline RUNS=200 SEED=n` makes more of them.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import wukongs
from tests.engine_helpers import register_text
from tests.faults.test_cluster_processes import END_S
from tests.faults.test_pipeline import RUNS, SEED
from tests.faults.test_random_faults import COUNT, Cluster, Reader, cluster_in
from tests.unit.cluster.test_late_pipelines import BATCH_MS, HISTORY_MS, RANGE_MS, A, Story, story

LIVES = 4


class Run:
    """`wukongs run` in a process of its own, which goes on where the one before was killed."""

    def __init__(self, folder: Path, addresses: list[str]) -> None:
        command = [sys.executable, "-m", "wukongs", "run", "--local", "--plain", "--server", ",".join(addresses)]
        self._said = (folder / "run.txt").open("a")
        self.process = subprocess.Popen(
            [*command, str(folder / "run.toml")], stdout=self._said, stderr=self._said, start_new_session=True
        )

    def wait(self, timeout_s: float) -> int | None:
        """Return its exit status; None: it runs."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._said.close()


def windows_of(reader: Reader, last_ms: int) -> dict[int, list[str]]:
    """Return the windows with rows once the last one has come. One that comes again comes with equal rows."""
    deadline = time.monotonic() + END_S
    while last_ms not in reader.windows:
        assert time.monotonic() < deadline, (last_ms, sorted(reader.windows)[-3:], reader.gaps)
        time.sleep(0.1)
    assert not reader.gaps
    assert all(len(set(came)) == 1 for came in reader.windows.values())
    return {end_ms: sorted(came[0]) for end_ms, came in sorted(reader.windows.items()) if came[0]}


def live(cluster: Cluster, folder: Path, rng: random.Random) -> None:
    """Let a run go for a while; then kill it, or nodes and it, at once or once it has gone on without or with them."""
    run = Run(folder, cluster.nodes.clients)
    try:
        time.sleep(rng.uniform(1.2, 2.5))
        victims = rng.choice([[rng.randrange(COUNT)], rng.sample(range(COUNT), 2), range(COUNT)])
        what = rng.choice(["run", "nodes", "both"])
        print(f"kill {what}: {victims if what != 'run' else ''}, after {run.wait(0)}", flush=True)
        if what != "run":
            cluster.kill(*victims)
            time.sleep(rng.choice((0, 0.5, 5)))
        if what == "nodes":
            run.wait(rng.choice((0, rng.uniform(1, 6))))
            cluster.heal()
            run.wait(rng.uniform(0, 3))
    finally:
        run.kill()
    cluster.heal()


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.parametrize("late", ["open", "drop"])
@pytest.mark.parametrize("number", range(max(1, RUNS // 20)))
def test_late_rows_are_in_their_windows_whoever_dies(tmp_path: Path, late: str, number: int) -> None:
    seed = SEED * 10_000 + number
    rng = random.Random(seed)
    print(f"seed {seed}")
    told = story(tmp_path, rng, late, ["one", "two"], count=2000, rows_per_epoch=15)
    with cluster_in(tmp_path) as cluster:
        addresses = cluster.nodes.clients
        with wukongs.connect(addresses) as client:
            client.stream(A, batch_ms=BATCH_MS, history_ms=HISTORY_MS, late=late, timing=True)  # type: ignore[arg-type]
            query = client.register(register_text(f"RANGE {RANGE_MS}ms STEP {BATCH_MS}ms"))
            next(query.results(timeout_s=0.1, group="readers"), None)
        reader = Reader(addresses)
        reader.start()
        for _ in range(LIVES):
            live(cluster, tmp_path, rng)
        last = Run(tmp_path, addresses)
        try:
            status = last.wait(2 * END_S)
        finally:
            last.kill()
        assert status == 0, (tmp_path / "run.txt").read_text()[-3000:]
        expected = told.windows()
        found = windows_of(reader, max(expected))
        reader.is_over.set()
        reader.join(END_S)
        assert found == expected
        check_counts(addresses, told)


def check_counts(addresses: list[str], told: Story) -> None:
    """Each node counts the late rows of the sources once."""
    for address in addresses:
        with wukongs.connect(address) as client:
            stats = client.stats()["streams"][A]
        assert [stats[name] for name in ("late", "carried", "passed_over")] == [told.carried_count] * 2 + [0]
