"""Firing: what one firing of a registered query reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from csparql.algebra import StreamWindow
from store.term_registry import TermReader
from wukongs.dataset import Dataset
from wukongs.errors import BudgetExceeded
from wukongs.windows import Interval

if TYPE_CHECKING:
    from wukongs.continuous import ContinuousQuery


@dataclass(frozen=True, slots=True, eq=False)
class Firing:
    """What one firing reads, picked at one moment; error: why it cannot be reported."""

    query: ContinuousQuery
    at_ms: int
    dataset: Dataset
    intervals: dict[StreamWindow, Interval]
    partial: bool
    reader: TermReader
    error: BudgetExceeded | None = None
