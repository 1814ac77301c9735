"""Random lives of queries over streams with late="open": the windows have the same rows whether matches are kept from
firing to firing or each window is evaluated anew.

tests/scenarios/test_late_open.py holds the second against windows that are computed from the calls alone."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.differential.test_deltas import live, story
from tests.fuzz import SEED, TIER, scaled
from wukongs.incremental import maintained
from wukongs.query.plans import deltas

pytestmark = pytest.mark.nojit


def late_story(seed: int) -> list[tuple[Any, ...]]:
    """The story of a seed with some tuples of each push set back in time, in a random order."""
    rng = random.Random(seed)
    (_, timing, _), *events = story(seed)
    found: list[tuple[Any, ...]] = [("streams", timing, rng.choice([0, 50]), "open")]
    for what, *rest in events:
        if what == "push":
            stream, tuples = rest
            moved = [(t - rng.choice([0, 0, 0, 50, 100, 250, 900]), triple, sign) for t, triple, sign in tuples]
            rng.shuffle(moved)
            rest = [stream, moved]
        found.append((what, *rest))
    return found


@pytest.mark.slow
def test_windows_with_carried_tuples_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = 0
    for number in range(6 if TIER == "fast" else scaled(60)):
        seed = ((SEED or 0) << 16) + number
        events = late_story(seed)
        monkeypatch.setattr(deltas, "ROWS_MIN", 1e18)
        anew, none, _ = live(events)
        monkeypatch.setattr(deltas, "ROWS_MIN", 0.0)
        monkeypatch.setattr(maintained, "STAY_MIN", number % 3)
        found, count, _ = live(events)
        assert found == anew, seed
        assert none == 0
        ran += count
    assert ran > 0
