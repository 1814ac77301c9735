"""Lives of continuous queries made for each mechanism by which a firing finds its answer, and the fuzzer itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.fuzz import SEED, TIER, scaled
from tests.fuzzing import continuous
from tests.fuzzing.continuous import MIXES, Tally, fuzz_life
from wukongs.query.mechanisms import Mechanism
from wukongs.query.plans.deltas import Deltas

LIVES = 1 if TIER == "fast" else scaled(8)
"""Lives of each mix. One of each is no sample of how often a mechanism is used."""
FEW, FEW_OF_ALL = 0.02, 0.001
"""The least shares of a mechanism in this number of lives; `make fuzz-windows` asks for more."""
SEED_TEXT = "tests" if SEED is None else str(SEED)


def test_windows_are_right_and_each_mechanism_finds_some() -> None:
    tally = Tally()
    for mix in MIXES:
        for number in range(LIVES):
            tally.add(fuzz_life(f"{SEED_TEXT}/{number}", mix))
    print(tally.shown())
    assert not tally.opened, "\n\n".join(tally.opened)
    faults = tally.faults(FEW, FEW_OF_ALL)
    assert TIER == "fast" or not faults, "\n".join([tally.shown(), *faults])


def test_each_mechanism_has_a_mix_that_is_made_for_it() -> None:
    assert {target for mix in MIXES.values() for target in mix.targets} == set(Mechanism)


def test_a_delta_plan_that_is_left_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong variant: what one pattern has new is not looked for once the plans have been written down."""
    renew = Deltas._renew

    def renew_all_but_one(self: Any) -> bool:
        can_run = renew(self)
        self._calls[-1:] = 0
        return can_run

    monkeypatch.setattr(Deltas, "_renew", renew_all_but_one)
    opened = [each for number in range(4) for each in fuzz_life(f"wrong/{number}", "bindings").opened]
    assert opened
    assert "pyoxigraph" in opened[0]


def test_a_mechanism_that_is_hardly_used_is_a_fault() -> None:
    used = {mix: Counter(dict.fromkeys(MIXES[mix].targets, 100)) for mix in MIXES}
    tally = Tally(windows=Counter(dict.fromkeys(MIXES, 100)), used=used)
    assert not tally.faults()
    used["paths"][Mechanism.PATHS] = 4
    assert len(tally.faults()) == 2, "it has found 4 % of its mix, and 0.3 % of all windows"
    used["groups"][Mechanism.PATHS] = 100
    assert len(tally.faults()) == 1, "of all windows it has found enough"
    assert "maintained_paths" in tally.shown()


def test_the_tally_shows_what_was_used() -> None:
    tally = fuzz_life("shown/0", "together")
    assert tally.windows["together"] > 0
    assert continuous.M.TOGETHER.value in tally.shown()
