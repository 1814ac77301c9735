"""Firing: what one firing of a registered query reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from store.term_registry import TermReader
from wukongs.query_windows import Reading

if TYPE_CHECKING:
    from wukongs.continuous import ContinuousQuery


@dataclass(frozen=True, slots=True, eq=False)
class Firing:
    """What one firing reads, picked at one moment."""

    query: ContinuousQuery
    at_ms: int
    reading: Reading
    reader: TermReader
