"""Firing: what one firing of a registered query reads, picked at one moment, and what it has found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from wukongs.csparql.algebra import Query
from wukongs.incremental.maintained import Maintained
from wukongs.live.answer_cache import CachedAnswer
from wukongs.live.query_windows import QueryWindows, Reading
from wukongs.live.stretch import Stretch
from wukongs.query.paths.kept_paths import PathChanges
from wukongs.query.plans.compiled_plans import CompiledPlans
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.programs.program import Program
from wukongs.query.terms.moment import Moment
from wukongs.store.dtypes import Int64Array
from wukongs.store.term_registry import TermReader


class Firer(Protocol):
    """The registered query of a firing (QueryFirings)."""

    name: str

    @property
    def query(self) -> Query: ...
    @property
    def windows(self) -> QueryWindows: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def is_quick(self) -> bool:
        """Whether its last firing took little time."""

    @property
    def plans(self) -> PlanMemo:
        """Its plans, for datasets of all sizes."""

    def run(self, firing: Firing, due_at_s: float) -> None:
        """Execute a firing and report its window."""

    @property
    def waits_for_lane(self) -> bool:
        """Whether its next firing, which is due, may not run in the slow lane, where others wait before it."""

    def note_offloaded(self) -> None:
        """Record that the first of its firings in the slow lane has been reported. Called with the lock held."""


@dataclass(frozen=True, slots=True)
class Picked:
    """The things that firings share which are picked at one moment. upper: they read below this snapshot number;
    is_before: tuples that match none of them are about to join the stored graph at their time; readings: by the beat of
    compiled queries; same_to_ms: up to when others of the beat read the same."""

    reader: TermReader
    upper: int
    is_before: bool
    readings: dict[object, Reading] = field(default_factory=dict)
    same_to_ms: dict[object, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Firing:
    """The batches and terms that one firing reads, picked at one moment.

    stretch           The firings that have its answer; None: it is by itself.
    plans             Its plans over the engine's table of windows; None if the firing has a dataset of its own.
    maintained        What finds rows of the query by those of the firing before.
    path_changes      What has changed since then, if paths may be kept.
    cached            Its answer, also for other firings; None: it is for this one alone.
    is_repeated       Another firing has found that answer, or is about to.
    program           What finds its answer over that table, from the second firing on.
    rows              int64[columns, n]: what the program has found, if it was run with others.
    joint_us          Its share of the time of that run.
    is_offloaded          It is run in the slow lane (slow_lane.py)."""

    query: Firer
    at_ms: int
    reading: Reading
    reader: TermReader
    plans: CompiledPlans | None
    maintained: Maintained | None = None
    stretch: Stretch | None = None
    path_changes: PathChanges | None = None
    cached: CachedAnswer | None = None
    is_repeated: bool = False
    program: Program | None = None
    rows: Int64Array | None = None
    joint_us: float = 0.0
    is_offloaded: bool = False

    @property
    def last_ms(self) -> int:
        """The last firing that has its answer."""
        return self.at_ms if self.stretch is None else self.stretch.last_ms

    @property
    def count(self) -> int:
        """How many firings have its answer."""
        return 1 if self.stretch is None else self.stretch.count

    def count_after(self, time_ms: int) -> int:
        """Return how many firings it stands for that come after a time, of which there is at least one."""
        return 1 if self.stretch is None else self.stretch.after(time_ms).count

    @property
    def is_maintained(self) -> bool:
        """Whether rows of the query can be had from those of the firing before."""
        return self.maintained is not None and self.maintained.is_ready

    @property
    def dataset(self) -> Dataset:
        """The data that it reads. For the thread that fires, while the table of windows is unchanged."""
        if self.reading.dataset is not None:
            return self.reading.dataset
        assert self.plans is not None, self.query.name
        return self.plans.dataset()

    def moment(self) -> Moment:
        """NOW() is the window's end, and a firing that is repeated draws the same random values."""
        return Moment.of_firing(self.query.name, self.at_ms)
