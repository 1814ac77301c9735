"""Firing: what one firing of a registered query reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wukongs.csparql.functions import depends_on_moment
from wukongs.live.query_windows import Reading
from wukongs.query.binding_table import BindingTable
from wukongs.query.terms.moment import Moment
from wukongs.store.term_registry import TermReader

if TYPE_CHECKING:
    from wukongs.live.continuous import ContinuousQuery


@dataclass(frozen=True, slots=True, eq=False)
class Firing:
    """What one firing reads, picked at one moment. explored: what the core of the query's template matches, where that
    was found together with other queries."""

    query: ContinuousQuery
    at_ms: int
    reading: Reading
    reader: TermReader
    explored: BindingTable | None = None

    @property
    def is_over_nothing(self) -> bool:
        """Whether the windows are empty and nothing else is read."""
        clause = self.query.query.dataset
        return not (len(self.reading.dataset.descriptors) or clause.default_graphs or clause.named_graphs)

    def moment(self) -> Moment:
        """NOW() is the window's end, and a firing that is repeated draws the same random values."""
        return Moment.of_firing(self.query.name, self.at_ms)

    def depends_on_moment(self) -> bool:
        """Whether another moment may give another answer over the same data."""
        return depends_on_moment(self.query.query.pattern)
