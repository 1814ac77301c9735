"""How much the tests try. WUKONGS_TIER and WUKONGS_SEED are read here and nowhere else; docs/testing.md has the tiers.

fast (the default): a fifth of the examples, the same ones in each run.
ci: a third of them, by a fresh seed (`make test-ci`: by one of the commit). all: five times as many, by a fresh seed.

A fresh seed is printed with what fails; WUKONGS_SEED=n repeats it. The last tier needs `-o faulthandler_timeout=0` too:
a test is ended after ten minutes otherwise.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

FACTORS = {"fast": 0.2, "ci": 0.3, "all": 5.0}
TIER = os.environ.get("WUKONGS_TIER", "fast")
if TIER not in FACTORS:
    raise ValueError(f"WUKONGS_TIER = {TIER!r}: expected one of {', '.join(FACTORS)}")
_IS_JITTED = os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"
FACTOR = FACTORS[TIER] if _IS_JITTED else FACTORS["fast"]
"""Numbers of examples are multiplied by it. Un-jitted, an example takes up to a hundred times as long."""
HANDFUL = 5
"""No test tries less, unless it never has."""
_FRESH_SEED = str(random.SystemRandom().randrange(10**6))
SEED = None if TIER == "fast" else int(os.environ.setdefault("WUKONGS_SEED", _FRESH_SEED))
"""Set in the environment too, so that all processes of a test run have the same one."""


def scaled(count: int) -> int:
    """Return how many of so many examples this tier tries."""
    return max(min(count, HANDFUL), int(count * FACTOR))


def fuzzed(max_examples: int, steps: int = 50) -> settings:
    """Settings of a property test; numba compiles within the first example, so there is no deadline."""
    return settings(
        max_examples=scaled(max_examples),
        stateful_step_count=steps,
        derandomize=SEED is None,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


def first_and_slow(values: Iterable[Any]) -> list[Any]:
    """Give values for pytest.mark.parametrize. The first one is in the fast tier, all are in the others."""
    return [value if at == 0 else slow(value) for at, value in enumerate(values)]


def first_and_rare(values: Iterable[Any]) -> list[Any]:
    """Give values for pytest.mark.parametrize of a slow test. The first one is in the ci tier, all are in the last."""
    return [value if at == 0 else rare(value) for at, value in enumerate(values)]


def rare(*values: Any) -> Any:
    """Give the values of one case for pytest.mark.parametrize, which `make test-all` alone runs."""
    return pytest.param(*values, marks=[pytest.mark.slow, pytest.mark.rare])


def slow(*values: Any) -> Any:
    """Give the values of one case for pytest.mark.parametrize, which is left out of the fast tier."""
    return pytest.param(*values, marks=pytest.mark.slow)
