"""Refusals: executions at which a way to an answer is not tried after it has failed."""

from __future__ import annotations

from dataclasses import dataclass

REFUSED, REFUSED_MAX = 16, 1 << 14
"""It is tried again after this number of executions, at first and at the most."""


@dataclass(slots=True)
class Refusals:
    """The executions that are left: each time twice as many as before."""

    left: int = 0
    count: int = 0

    def passed(self) -> bool:
        """Count an execution; return whether it may be tried."""
        self.left -= self.left > 0
        return not self.left

    def add(self, first: int = REFUSED) -> None:
        """Record a failure. first: executions that are left after the first one."""
        self.left = min(first << self.count, REFUSED_MAX)
        self.count += 1

    def forget(self) -> None:
        """Record a success."""
        self.count = 0
