"""JoinedQueries: which registered queries fire as one (docs/decisions/0042-groups-at-registration.md).

Queries of one shape (query_shapes.py) are a group (joined_group.py) if they are more than a few; each of them is a
JoinedQuery (joined_query.py). In a data folder each registration is a record of its own; groups are derived from these,
also when the log is replayed. The journal notes a firing of a group once (Deliveries.gather). Queries that are not read
acknowledge nothing: a checkpoint asks how far they have come (`come_unread`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping

import numpy as np

from wukongs.csparql.algebra import Query
from wukongs.live.continuous import ContinuousQuery
from wukongs.live.core import Core
from wukongs.live.injector import Injector
from wukongs.live.joined_group import COUNTS, JoinedGroup
from wukongs.live.joined_query import JoinedQuery
from wukongs.live.joined_windows import JoinedWindows
from wukongs.live.journal import ReportedBy
from wukongs.live.query_shapes import shape_of
from wukongs.live.query_source import QuerySource
from wukongs.live.reporting import Remembered, Row
from wukongs.live.stream_state import StreamState
from wukongs.live.window_log import LAST_MS, OWN, Come
from wukongs.live.windows import firing_step, first_firing, first_multiple
from wukongs.query.output.results import WindowResult

ALONE_MAX = 8
"""At most this many queries of a shape stay alone: a few are quicker by compiled plans of their own."""
ALONE_IN_CLUSTER_MAX = 1
"""The same at a node of a cluster, where each query that is alone asks the other nodes."""
SWEPT_MIN = 256
_NOT_READ: Mapping[str, Come] = {}


class JoinedQueries:
    """The groups of one engine, and who is in them. Called with the engine's lock held."""

    def __init__(self, core: Core, injector: Injector) -> None:
        self.core, self.injector = core, injector
        self.members: dict[str, JoinedQuery] = {}
        """By name; without those that have left their groups."""
        self._alone: dict[Query, set[str]] = {}
        """Shape -> the queries of it that were left alone, being few."""
        self._groups: dict[Query, JoinedGroup] = {}
        """Shape -> the newest group."""
        self._made = 0
        self._swept_at = SWEPT_MIN
        """With so many shapes, those without a query are forgotten."""

    @staticmethod
    def is_lead(query: ContinuousQuery) -> bool:
        """Tell whether a query is asked for a group, and was registered by nobody."""
        return isinstance(query.text.group, JoinedGroup)

    def join(
        self,
        query: Query,
        source: QuerySource,
        on_result: Callable[[WindowResult], object] | None,
        from_ms: int | None,
        lsn: int = 0,
        came: Mapping[str, Come] | None = None,
        next_ms: int | None = None,
        remembered: Iterable[Remembered] = (),
    ) -> JoinedQuery | None:
        """Register a query in a group of its shape; None if it is to be registered alone. from_ms: the event time from
        which it counts; lsn: the record of the log that registered it; came, next_ms: how far its cursors, and it, had
        come before a restart; remembered: what its firings had to be compared with at some times before."""
        registration = query.registration
        assert registration is not None
        shape = None if source != QuerySource(source.text, source.base, source.output) else shape_of(query)
        if shape is None:
            return None
        if len(self._alone) + len(self._groups) >= self._swept_at:
            self._sweep()
        name, group = registration.name, self._groups.get(shape.query)
        if group is None:
            alone = self._alone.setdefault(shape.query, set())
            alone_max = ALONE_MAX if self.core.reach is None else min(ALONE_MAX, ALONE_IN_CLUSTER_MAX)
            if len(alone) >= alone_max:
                alone.intersection_update(self.injector.queries)
            if len(alone) < alone_max:
                alone.add(name)
                return None
        states: list[StreamState] = [self.core.stream(window.stream) for window in query.dataset.windows]
        step_ms = firing_step(query)
        assert step_ms is not None, name
        first_ms = first_firing(step_ms, states, from_ms) if next_ms is None else next_ms
        ids, taken = self.core.registry.reserve([term.text for term in shape.constants])
        if group is None or not group.can_join(first_ms):
            self._made += 1
            lead = f"group {self._made} of queries like {name}"
            group = self._groups[shape.query] = JoinedGroup(self.core, self.injector, shape, ids, lead, from_ms)
            if first_ms is not None:
                group.lead.times.skip_to(first_ms - step_ms)
            self.injector.add(group.lead)
        since_ms = fires_ms = -LAST_MS if first_ms is None else first_ms
        came = came or _NOT_READ
        if (had_ms := min((come.through_ms for come in came.values()), default=-LAST_MS)) > -LAST_MS and OWN in came:
            since_ms = max(since_ms, first_multiple(step_ms, had_ms, is_strict=True))
        if not group.is_compared:
            fires_ms = since_ms
        windows = JoinedWindows(self.core, name, source, query.variables, since_ms, step_ms, lsn, came)
        member = JoinedQuery(self.core, self.injector, self.members, windows, fires_ms)
        group.add(member, ids, np.isin(ids, taken), dict.fromkeys(COUNTS, 0))
        group.lead.text.reporter.record(windows.number, remembered)
        self.members[name] = member
        if on_result is not None:
            member.readers.call(self.injector.callbacks, on_result)
        elif not {OWN}.issuperset(came):
            _ = member.readers  # groups of readers hold windows as well
        return member

    def get(self, name: str) -> JoinedQuery | ContinuousQuery | None:
        """Return a registered query, None if there is none of this name."""
        return self.members.get(name) or self.injector.queries.get(name)

    def find(self, name: str) -> JoinedQuery | ContinuousQuery:
        """Return a registered query."""
        return self.members.get(name) or self.injector.queries[name]

    def registered(self) -> list[JoinedQuery | ContinuousQuery]:
        """Return all registered queries."""
        alone = (one for one in self.injector.queries.values() if not self.is_lead(one))
        return [*alone, *self.members.values()]

    # --- for checkpoints ----------------------------------------------------------------------------------------------

    def reporters(self) -> list[ReportedBy]:
        """Return all registered queries as those that report windows."""
        alone = (one.firings for one in self.injector.queries.values() if not self.is_lead(one))
        return [*alone, *self.members.values()]

    def progress(self) -> list[tuple[int | None, int | None, list[int]]]:
        """Return where queries stand: their next firing, the event time from which they count, and the LSNs of all of
        whom that is true."""
        found: defaultdict[tuple[int | None, int | None], list[int]] = defaultdict(list)
        for member in self.members.values():
            found[member.progress()].append(member.lsn)
        return [(*place, lsns) for place, lsns in found.items()]

    def remembered(self) -> list[tuple[int, list[int], dict[int, list[Row]]]]:
        """Return what the next firings of groups are compared with, as JoinedGroup.remembered has it."""
        leads = [one.text.group for one in self.injector.queries.values()]
        groups = [one.remembered() for one in leads if isinstance(one, JoinedGroup)]
        return [found for found in groups if found is not None]

    def come_unread(self) -> list[tuple[list[int], list[int]]]:
        """Return how far those have come that nobody has read since the engine was opened: a Come as a list, and the
        LSNs of all of whom it is true."""
        found: defaultdict[Come, list[int]] = defaultdict(list)
        known: dict[Hashable, Come | None] = {}
        with self.core.unread.lock:
            for member in self.members.values():
                if member.windows.is_read:
                    continue
                place = member.windows.place
                if place is None or place not in known:
                    known[place] = member.windows.come()
                if (come := known[place]) is not None:
                    found[come].append(member.lsn)
        return [([come.through_ms, *(come.gap or ())], lsns) for come, lsns in found.items()]

    def _sweep(self) -> None:
        """Forget shapes of which no query is left."""
        self._groups = {shape: group for shape, group in self._groups.items() if not group.lead.is_closed}
        queries = self.injector.queries.keys()
        self._alone = {shape: names for shape, names in self._alone.items() if not names.isdisjoint(queries)}
        self._swept_at = max(SWEPT_MIN, 2 * (len(self._alone) + len(self._groups)))

    def named(self, query: str) -> str:
        """Name those who have registered a query, if it is a lead."""
        group = self.injector.queries[query].text.group
        if not isinstance(group, JoinedGroup):
            return query
        first, *others = (member.windows.name for member in group.members.values())
        return f"{first} and {len(others)} queries of its shape" if others else first
