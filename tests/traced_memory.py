"""Compares what the executions of a process allocate with what their limits hold, at every moment.

numpy reports its arrays to tracemalloc, and Python its objects. Arrays that a compiled kernel makes are allocated by
numba's runtime, which is switched to Python's allocator here. So tracemalloc sees all of them, and reads no clock.

`Limits.held` changes at few places. Between two of them the most that was traced is compared with what was held, so
bytes that are reserved too late are found as well as bytes that never are.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from wukongs.query.limits import Limits

ALLOWED_BYTES = 8 << 20
ALLOWED_SHARE = 0.25
"""What an execution may allocate beyond what it holds: so many bytes, and this share of what it holds."""


@dataclass(slots=True)
class Traced:
    """What was found out about the executions in a block."""

    start_bytes: int
    excess_bytes: int = 0
    """The most by which traced bytes exceeded held ones, ALLOWED_SHARE of these taken off."""
    operator: str = ""
    """The operator that ran then."""
    peak_bytes: int = 0
    """The most that was allocated at once."""
    held_bytes: int = 0
    """The most that was held at once."""
    is_over: bool = False
    """Whether the execution has handed over what stays: it may be stored then, and the store merge its batches."""

    def look(self, limits: Limits) -> None:
        """Compare the peak since the look before with what is held. Limits that reserve nothing hold nothing."""
        peak = tracemalloc.get_traced_memory()[1] - self.start_bytes
        tracemalloc.reset_peak()
        if self.is_over:
            return
        held = 0 if limits.budget is None else limits.held
        excess = peak - int((1 + ALLOWED_SHARE) * held)
        self.peak_bytes, self.held_bytes = max(self.peak_bytes, peak), max(self.held_bytes, held)
        if excess > self.excess_bytes:
            self.excess_bytes, self.operator = excess, limits.operator

    def check(self, name: str, allowed_bytes: int = ALLOWED_BYTES) -> None:
        """Fail by name if too much was allocated that nothing held."""
        assert self.excess_bytes <= allowed_bytes, (
            f"{name}: {self.operator} had allocated {self.excess_bytes} bytes more than 1.25 times what was held "
            f"(at most {self.peak_bytes} allocated, {self.held_bytes} held)"
        )


def trace_kernels() -> None:
    """Have compiled kernels allocate by Python's allocator, for the rest of the process."""
    from numba.core.registry import cpu_target
    from numba.core.runtime import _nrt_python, rtsys

    if sys.flags.dev_mode or os.environ.get("PYTHONMALLOC"):
        pytest.skip("arrays of before were not allocated by this allocator")
    rtsys.initialize(cpu_target.target_context)
    _nrt_python.memsys_use_cpython_allocator()


@contextlib.contextmanager
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traced]:
    """Trace the executions of a block."""

    def looking(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(limits: Limits, *args: Any, **kwargs: Any) -> Any:
            found.look(limits)
            found.is_over = method.__name__ == "hand_over" or (found.is_over and method.__name__ != "__enter__")
            return method(limits, *args, **kwargs)

        return call

    gc.collect()
    tracemalloc.start()
    found = Traced(tracemalloc.get_traced_memory()[0])
    try:
        with monkeypatch.context() as patch:
            for name in ("__enter__", "hold", "give_back", "back_to", "check", "hand_over", "__exit__"):
                patch.setattr(Limits, name, looking(getattr(Limits, name)))
            yield found
    finally:
        tracemalloc.stop()
