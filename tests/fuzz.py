"""How much a property test tries: the same examples in each run, and more, fresh ones with WUKONGS_FUZZ=factor.

Un-jitted, an example takes up to a hundred times as long: a few show that each kernel runs as plain Python.

A large factor needs `-o faulthandler_timeout=0` too: a test is ended after five minutes otherwise.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

FACTOR = float(os.environ.get("WUKONGS_FUZZ", "1"))
_SHARE = 1.0 if os.environ.get("NUMBA_DISABLE_JIT", "0") == "0" else 0.25


def fuzzed(max_examples: int, steps: int = 50) -> settings:
    """Settings of a property test; numba compiles within the first example, so there is no deadline."""
    return settings(
        max_examples=max(1, int(max_examples * FACTOR * _SHARE)),
        stateful_step_count=steps,
        derandomize=FACTOR == 1,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
