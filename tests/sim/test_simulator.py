"""The protocol under everything that may go wrong, a few seeds of each; `python -m tests.sim.run` runs more."""

from __future__ import annotations

import pytest

from tests.sim import log_world, run
from tests.sim.mutants import MUTANTS, Mutant, caught_by
from tests.sim.world import World

SEEDS = 60
LOG_SEEDS = 300
MUTANT_SEEDS = 2


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_what_must_hold_holds(first: int) -> None:
    failed = {seed: failure for seed in range(first, first + 10) if (failure := run.failure(seed))}
    assert not failed, "\n\n".join(f"seed {seed}: {failure}" for seed, failure in failed.items())


@pytest.mark.parametrize("first", range(0, LOG_SEEDS, 100))
def test_the_log_holds_in_any_order_of_events(first: int) -> None:
    failed = {seed: failure for seed in range(first, first + 100) if (failure := log_world.failure(seed))}
    assert not failed, "\n\n".join(f"seed {seed}: {failure}" for seed, failure in failed.items())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_wrong_variant_is_caught(mutant: Mutant) -> None:
    assert caught_by(mutant, range(mutant.first, mutant.first + MUTANT_SEEDS)) is not None


def test_a_seed_repeats_its_run() -> None:
    runs = [World(11), World(11)]
    reports = [world.run() for world in runs]
    assert (reports[0].ended, reports[0].messages) == (reports[1].ended, reports[1].messages)
    assert list(runs[0].events) == list(runs[1].events)


def test_a_failure_tells_its_story() -> None:
    caught = caught_by(MUTANTS[0], range(MUTANTS[0].first, MUTANTS[0].first + 1))
    assert caught is not None
    reason, *story = caught[1].splitlines()
    assert "in-sync replica, but stable" in reason
    assert len(story) > 10
    assert all("node" in line for line in story)


def test_the_command_tells_of_failures_by_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--seeds", "2", "--from", "3"]) == 0
    assert "2 seeds, 0 failed" in capsys.readouterr().out
