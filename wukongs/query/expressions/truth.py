"""Three-valued truth by columns (SPARQL 1.1, 17.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wukongs.store.dtypes import BoolArray, Int64Array


@dataclass(frozen=True, slots=True)
class Truth:
    """Truth by rows: true, false, or an error where neither. No row is both."""

    true: BoolArray
    false: BoolArray

    @staticmethod
    def of(truths: BoolArray, valid: BoolArray) -> Truth:
        """Make it from two-valued truths that only count where valid."""
        return Truth(truths & valid, ~truths & valid)

    @staticmethod
    def of_each(truths: Sequence[bool | None]) -> Truth:
        """Make it from single truths, None for an error."""
        true = np.array([truth is True for truth in truths], np.bool_)
        return Truth(true, np.array([truth is False for truth in truths], np.bool_))

    def take(self, places: Int64Array) -> Truth:
        """Return the truths at these places."""
        return Truth(self.true[places], self.false[places])

    def __and__(self, other: Truth) -> Truth:
        return Truth(self.true & other.true, self.false | other.false)

    def __or__(self, other: Truth) -> Truth:
        return Truth(self.true | other.true, self.false & other.false)

    def __invert__(self) -> Truth:
        return Truth(self.false, self.true)
