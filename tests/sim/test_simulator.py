"""The protocol under everything that may go wrong, by a few seeds; `python -m tests.sim.run` runs more of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.conftest import PROJECT_ROOT
from tests.fuzz import first_and_slow, rare
from tests.sim import (
    compaction_stories,
    late_stories,
    lease_stories,
    log_stories,
    log_world,
    partition_stories,
    report_stories,
    run,
    stories,
)
from tests.sim.mutants import Changed, caught_by, loaded
from tests.sim.traffic import measured, settled
from tests.sim.world import ADDING_FROM, GROWING_FROM, LEASED_FROM, MIXED_FROM, RULED_FROM, WRITING_FROM
from tests.sim.wrong_logs import Mutant
from tests.sim.wrong_variants import MUTANTS
from wukongs.protocol.gossip import GOSSIP_NODES

SEEDS = 240
RARE_SEEDS = (
    313,
    698,
    2470,
    173243,
    201653,
    212311,
    216154,
    231171,
    7001282,
    7007618,
    3000130,
    3000762,
    3001188,
    3005413,
)
"""Far seeds that once failed: a node that has skipped records of the log, while it was out, is read before it has taken
over what they did; a node that is on its way back skips records a second time; a node that was spare takes rows that
were divided before it joined, after a restart; a node that was founded alone needs the vote
of one that was added; a stream batch is under way to the disk when a state is installed that ends before it; two spares
take a drained node's place at the same time; a node that goes on from a control state shows nothing yet; a drained node
loses its disk before it is taken out; a node starts again, and does not know that it has what the leader cut off; a
drained node that does not know yet that it is drained refuses a text that the others have agreed on without it; a node
that was HOLDING starts again, installs anew, and becomes IN before a restart would find that; a node that was alone
starts again, and is read before it leads and shows what it had (twice); a single voter crashes after it has applied an
entry and before that is safe."""
GROWING = [*range(GROWING_FROM, GROWING_FROM + 100, 20), *range(ADDING_FROM, ADDING_FROM + 60, 20)]
RULED = [*range(RULED_FROM, RULED_FROM + 60, 20), *range(WRITING_FROM, WRITING_FROM + 60, 20)]
LEASED = [LEASED_FROM, LEASED_FROM + 20]
LOG_SEEDS = 300
BROKEN = re.compile(r"^(Attribute|Import|ModuleNotFound|Name|Syntax|Type)Error", re.MULTILINE)
"""How a simulator ends whose parts do not fit together: that catches nothing."""
MUTANT_SEEDS = 30
"""At most; mutants name the first seed that caught them, so one or two are run until the simulator changes."""


@pytest.mark.parametrize(
    "first",
    [
        *first_and_slow([*range(0, SEEDS, 40), MIXED_FROM, *GROWING[::2], *RULED[::2], LEASED[0]]),
        *map(rare, [*range(20, SEEDS, 40), MIXED_FROM + 20, *GROWING[1::2], *RULED[1::2], *LEASED[1:]]),
    ],
)
def test_what_must_hold_holds(first: int) -> None:
    failed = {seed: failure for seed in range(first, first + 20) if (failure := run.failure(seed))}
    assert not failed, "\n\n".join(f"seed {seed}: {failure}" for seed, failure in failed.items())


@pytest.mark.slow
def test_rows_out_of_order_are_sealed_whole() -> None:
    failed = {seed: failure for seed in range(MIXED_FROM + 40, MIXED_FROM + 60) if (failure := run.failure(seed))}
    assert not failed, "\n\n".join(f"seed {seed}: {failure}" for seed, failure in failed.items())


@pytest.mark.parametrize("seed", RARE_SEEDS)
def test_rare_lives(seed: int) -> None:
    assert run.failure(seed) is None


@pytest.mark.parametrize("first", first_and_slow(range(0, LOG_SEEDS, 100)))
def test_the_log_holds_in_any_order_of_events(first: int) -> None:
    failed = {seed: failure for seed in range(first, first + 100) if (failure := log_world.failure(seed))}
    assert not failed, "\n\n".join(f"seed {seed}: {failure}" for seed, failure in failed.items())


@pytest.mark.parametrize(
    "story",
    [
        *log_stories.STORIES,
        *stories.STORIES,
        *compaction_stories.STORIES,
        *partition_stories.STORIES,
        *late_stories.STORIES,
        *report_stories.STORIES,
        *lease_stories.STORIES,
    ],
    ids=lambda story: story.__name__,
)
def test_stories_that_break_protocols_end_well(story: Callable[[], None]) -> None:
    story()


def test_each_wrong_variant_replaces_a_text_that_is_there() -> None:
    for mutant in MUTANTS:
        Changed(mutant)


def test_modules_are_as_they_were_after_a_variant() -> None:
    import wukongs.cluster.node_records

    with loaded(MUTANTS[0]):
        pass
    assert wukongs.cluster.node_records is sys.modules["wukongs.cluster.node_records"]
    assert sys.modules["wukongs"].cluster is sys.modules["wukongs.cluster"]


@pytest.mark.parametrize("mutant", first_and_slow(MUTANTS), ids=lambda mutant: mutant.name)
def test_a_wrong_variant_is_caught(mutant: Mutant) -> None:
    caught = caught_by(mutant, range(mutant.first, mutant.first + MUTANT_SEEDS))
    assert caught is not None
    assert not BROKEN.search(caught[1]), f"it does not run at all: {caught[1]}"


def test_a_seed_repeats_its_run_in_every_process() -> None:
    """Sets of texts have another order in each process: nothing may depend on it."""
    command = "from tests.sim.run import run_seed; print([run_seed(seed) for seed in (12, 18)])"
    told = [
        subprocess.run(
            [sys.executable, "-c", command],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=PROJECT_ROOT,
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert b"Report(seed=18, failure=None" in told[0]


def test_a_failure_tells_its_story() -> None:
    caught = caught_by(MUTANTS[0], range(MUTANTS[0].first, MUTANTS[0].first + 1))
    assert caught is not None
    reason, *story = caught[1].splitlines()
    assert "stable on node" in reason
    assert len(story) > 10
    assert all("node" in line for line in story)


def test_streams_add_bytes_and_nodes_add_reports_but_neither_adds_messages() -> None:
    few, more, many = measured(4, 1, 4), measured(4, 6, 4), measured(9, 1, 4)
    assert few.messages == more.messages
    assert more.report_bytes > few.report_bytes
    assert more.size_bytes < few.size_bytes * more.report_bytes / few.report_bytes
    assert many.gossips <= few.gossips == 2 * GOSSIP_NODES
    assert max(few.lag_batches, more.lag_batches, many.lag_batches) <= 1


@pytest.mark.parametrize("streams", [10, 300])
def test_a_report_has_what_has_changed_however_many_streams_there_are(streams: int) -> None:
    quiet = settled(3, streams)
    quiet.all_bring(1)
    for _ in range(4):
        quiet.pulse()  # All have told all of them what is whole.
    quiet.reported.clear()
    for batch in range(2, 22):
        quiet.brings(quiet.streams[0], batch)
        quiet.pulse()
    assert quiet.reported
    assert sum(quiet.reported) / len(quiet.reported) <= 1
    assert quiet.nodes[0].progress.stable[quiet.streams[0]] >= 20


def test_the_command_tells_of_failures_by_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--seeds", "2", "--from", "3"]) == 0
    assert "2 seeds, 0 failed" in capsys.readouterr().out
