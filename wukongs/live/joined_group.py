"""JoinedGroup: queries of one shape that fire as one (docs/decisions/0042-groups-at-registration.md).

The constants in which the queries differ are arguments of one ContinuousQuery, the lead (arguments_input.py): it has
one plan, one due time and one reading of windows. Each of its windows is a block: the rows of all queries, in the order
of their numbers (joined_blocks.py). So a query that nobody looks at costs nothing at a firing.

A group whose firing exceeds its limits is divided, and each half does the firing anew, until the query that is too much
is alone.

Which queries are in a group is guarded by the engine's lock; blocks, and which queries wait for them, by the lock of
the window logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from wukongs.live.arguments_input import ROOM, ArgumentsInput, with_room
from wukongs.live.continuous import ContinuousQuery
from wukongs.live.core import Core
from wukongs.live.firing import Firer
from wukongs.live.injector import Injector
from wukongs.live.joined_blocks import Block, Blocks
from wukongs.live.joined_windows import JoinedWindows
from wukongs.live.query_shapes import Shape, hole
from wukongs.live.query_source import QuerySource
from wukongs.live.reporting import Row
from wukongs.live.window_log import LAST_MS, LoggedWindow
from wukongs.query.execution.answer import Answer
from wukongs.query.output.results import WindowResult
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.term_ids import decimal_parts

GROUP_MAX = 1 << 16
"""Queries of one group. Its table is made anew when one comes or goes."""
COUNTS = ("windows", "rows", "errors", "not_reported", "last_rows")
"""The counts of each query (QueryCounts); errors: of firings."""
_GONE_MS = np.iinfo(np.int64).max
"""The first firing of a query that has left."""


class Member(Protocol):
    """A query of a group (JoinedQuery). fires_ms: its first firing."""

    windows: JoinedWindows
    fires_ms: int

    def stand(self, group: JoinedGroup, number: int) -> None:
        """Have a number in a group, from its next firing on."""


class JoinedGroup:
    """The queries that the lead is asked for (query_text.Rows). Their numbers are those of their arguments, and rise in
    the order in which they have come."""

    def __init__(
        self,
        core: Core,
        injector: Injector,
        shape: Shape,
        ids: Int64Array,
        name: str,
        from_ms: int | None,
        before: tuple[Blocks, ...] = (),
    ) -> None:
        """ids: of the constants of the shape, which are those of some query; name: of the lead; from_ms: the event time
        from which the first query counts; before: blocks of a group that was divided, with windows of its queries.
        Called with the lock held."""
        registration = shape.query.registration
        assert registration is not None
        self._core, self._injector, self._shape, self._first_ids = core, injector, shape, ids
        self.is_compared = registration.output != "rstream"
        """Whether a window has the rows that were inserted or deleted since the firing before."""
        self.members: dict[int, Member] = {}
        """By number; without those that have left."""
        holes = [hole(at) for at in range(len(ids))]
        first = dict(zip(holes, zip(shape.constants, ids.tolist(), strict=True), strict=True))
        self.arguments = ArgumentsInput(core, shape.query, holes, first)
        self._counts: Int64Array = np.zeros((ROOM, len(COUNTS)), np.int64)
        """COUNTS of each."""
        self._since_ms: Int64Array = np.zeros(ROOM, np.int64)
        """The first window of each, _GONE_MS of those that have left."""
        self._fires_ms: Int64Array = np.zeros(ROOM, np.int64)
        """The first firing of each, with which the first window may be compared, _GONE_MS of those that have left."""
        self._over: tuple[int, dict[int, int]] = 0, {}
        """The last firing, and queries that have more rows there than they may, with the numbers of rows."""
        self._stats: tuple[int, dict[str, Any]] | None = None
        """Those of the lead, and how many blocks there were then."""
        is_silent = "non-empty result" in registration.report
        self.blocks, self._before = Blocks(is_silent, core.unread), before
        asked = replace(shape.query, registration=replace(registration, name=name, report=()))
        lsn = core.journal.delivery.gather(self)
        self.lead = ContinuousQuery(core, injector, asked, None, QuerySource(""), lsn, from_ms, rows=self)
        self.lead.cursor().close()  # it would acknowledge what only the lead has taken
        self._cursor = self.lead.log.cursor()
        self.lead.log.listen(self._take)

    # --- who is in it; called with the engine's lock held -------------------------------------------------------------

    def can_join(self, first_ms: int | None) -> bool:
        """Tell whether a query that fires first at a time has no window before the next one of this group. None: it is
        not known yet."""
        if self.arguments.end >= GROUP_MAX or self.lead.is_closed:
            return False
        next_ms = self.lead.times.next_firing()
        return next_ms is None if first_ms is None else next_ms is not None and first_ms >= next_ms

    def add(self, member: Member, ids: Int64Array, is_taken: BoolArray, counts: Mapping[str, int]) -> None:
        """ids, is_taken: of its constants, as ArgumentsInput.bind takes them; counts: those that it has from before."""
        with self._core.unread.lock:
            number = self.arguments.bind(ids[None], is_taken[None])
            self._counts = with_room(self._counts, number + 1)
            self._since_ms, self._fires_ms = (with_room(one, number + 1) for one in (self._since_ms, self._fires_ms))
            self._counts[number] = [counts[name] for name in COUNTS]
            self._since_ms[number], self._fires_ms[number] = member.windows.since_ms, member.fires_ms
            self.members[number] = member
            member.stand(self, number)

    def remove(self, number: int) -> None:
        """Ask for a query no more, which has taken what it will take. The last one takes the lead with it. Called with
        both locks held."""
        del self.members[number]
        self._since_ms[number] = self._fires_ms[number] = _GONE_MS
        self.blocks.watched.pop(number, None)
        self.arguments.unbind(number)
        if not self.members:
            self._end_lead()

    def _end_lead(self) -> None:
        self.lead.log.unlisten(self._take)
        self.lead.end()
        self.blocks.end_here()
        self._core.journal.delivery.forget(self.lead.lsn)

    @property
    def streams(self) -> set[str]:
        """The streams of its windows."""
        return {window.stream for window in self._shape.query.dataset.windows}

    def stats(self) -> dict[str, Any]:
        """Return those of the lead."""
        if self._stats is None or self._stats[0] != self.blocks.end:
            self._stats = self.blocks.end, self.lead.stats()
        return self._stats[1]

    def counts_of(self, number: int) -> dict[str, int]:
        """Return the COUNTS of a query."""
        return dict(zip(COUNTS, self._counts[number].tolist(), strict=True))

    # --- what the lead asks -------------------------------------------------------------------------------------------

    def had(self, at_ms: int) -> bool:
        """Implement query_text.Rows.had."""
        return not self._has_begun(at_ms).any()

    def taken_ms(self, taken_of: Callable[[int], int | None]) -> int:
        """Do as journal.FiredAsOne.taken_ms."""
        with self._core.unread.lock:
            last_ms = self.blocks.last_ms  # a later firing may be picked, and not reported yet
            found = [-LAST_MS if last_ms is None else last_ms]
            for one in (member.windows for member in self.members.values()):
                if one.is_read:
                    if self.blocks.is_silent:
                        one.draw()  # it may have no rows for long
                    taken_ms = taken_of(one.lsn)
                    found.append(max(one.since_ms - 1, -LAST_MS if taken_ms is None else taken_ms))
            found += [ms - 1 for blocks in (*self._before, self.blocks) if (ms := blocks.untaken_ms()) is not None]
            return min(found)

    def alike_to_ms(self, at_ms: int) -> int:
        """Implement query_text.Rows.alike_to_ms; until another query has its first firing, or window."""
        firsts = np.concatenate([of_each[: self.arguments.end] for of_each in (self._since_ms, self._fires_ms)])
        return int(np.min(firsts[firsts > at_ms], initial=_GONE_MS)) - 1

    def begins_at(self, at_ms: int) -> bool:
        """Implement query_text.Rows.begins_at."""
        return bool((self._fires_ms[: self.arguments.end] == at_ms).any())

    def found(self, answer: Answer, at_ms: int) -> Answer:
        """Implement query_text.Rows.found: without queries that fire later, and without those that have more rows than
        they may, which are noted."""
        numbers, fires_ms = decimal_parts(answer.columns[0])[0], self._fires_ms  # others may join meanwhile
        counts = np.bincount(numbers, minlength=len(fires_ms))
        is_asked, is_over = fires_ms <= at_ms, counts > self._core.settings.rows_max
        self._over = at_ms, dict(zip(np.flatnonzero(is_over).tolist(), counts[is_over].tolist(), strict=True))
        if (is_kept := (is_asked & ~is_over)[numbers]).all():
            return answer
        return replace(answer, columns=tuple(one[is_kept] for one in answer.columns), length=int(is_kept.sum()))

    def untaken_ms(self) -> int | None:
        """Implement query_text.Rows.untaken_ms."""
        with self._core.unread.lock:
            found = [ms for blocks in (*self._before, self.blocks) if (ms := blocks.untaken_ms()) is not None]
            read = [one.windows.readers for one in self.members.values() if one.windows.is_read]
            found += [ms for one in read if (ms := one.untaken_ms(is_stream=False)) is not None]
            return min(found, default=None)

    def told(self) -> str:
        """Implement query_text.Rows.told."""
        return f"each firing answers {len(self.members)} queries of one shape together"

    def divide(self, at_ms: int) -> Sequence[Firer]:
        """Implement query_text.Rows.divide."""
        with self._core.lock:
            members = [*self.members.items()]
            if len(members) < 2 or self.lead.is_closed:
                return []
            half = len(members) // 2
            leads = [self._part(number, part, at_ms) for number, part in enumerate((members[:half], members[half:]))]
            with self._core.unread.lock:
                self._end_lead()
            return leads

    def _part(self, number: int, part: Sequence[tuple[int, Member]], at_ms: int) -> Firer:
        """Return the lead of a group of some of the queries, which stands where this one stands at a firing."""
        name = f"{self.lead.name}, part {number}"
        if len(part) == 1:
            name = f"{part[0][1].windows.name} in a group of its own"
        before, from_ms = (*self._before, self.blocks), self.lead.times.from_ms
        group = JoinedGroup(self._core, self._injector, self._shape, self._first_ids, name, from_ms, before)
        group.lead.firings.stand_behind(at_ms)
        self._core.journal.delivery.hand_on(self.lead.lsn, group.lead.lsn, -LAST_MS)
        for at, member in part:
            group.add(member, *self.arguments.take_out(at), self.counts_of(at))
            self.lead.text.reporter.hand_over(at, group.lead.text.reporter, member.windows.number)
        self._injector.add(group.lead)
        return group.lead.firings

    def remembered(self) -> tuple[int, list[int], dict[int, list[Row]]] | None:
        """Return what the next firing is compared with: the time of the last one, the LSNs of all queries, and the rows
        of those that have some. None: there is nothing. Called with the engine's lock held."""
        told = self.lead.text.reporter.progress_of(self.members) if self.is_compared else None
        if told is None:
            return None
        lsns = {number: one.windows.lsn for number, one in self.members.items()}
        at_ms, rows = told
        return at_ms, [*lsns.values()], {lsns[number]: own for number, own in rows.items()}

    # --- windows; called with the lock of the logs held ---------------------------------------------------------------

    def _take(self) -> None:
        """Take what the lead has reported."""
        while (taken := self._cursor.fetch(0, is_whole=True)) is not None:
            self._add(taken)
            self._cursor.confirm(taken)
        if self.lead.log.is_closed:
            for member in list(self.members.values()):
                member.windows.close()

    def _add(self, taken: LoggedWindow) -> None:
        has_begun = self._has_begun(taken.end_ms)
        block = Block(taken.end_ms, taken.item, taken.gap, taken.stretch, np.empty(0, np.int64), int(has_begun.sum()))
        told: Iterable[int] = list(self.blocks.watched)
        if isinstance(taken.item, WindowResult):
            if len(taken.item):
                block.numbers = decimal_parts(taken.item.ids(0, len(taken.item))[0])[0]
            counts = np.bincount(block.numbers, minlength=len(has_begun))
            is_over = counts > self._core.settings.rows_max
            block.over = dict(zip(np.flatnonzero(is_over).tolist(), counts[is_over].tolist(), strict=True))
            if self.is_compared and self._over[0] == taken.end_ms:
                block.over = self._over[1]
            self._count(has_begun, counts, taken.count, list(block.over))
            if self.blocks.is_silent:
                counts[list(block.over)] = 1
                found = np.flatnonzero((counts > 0) & has_begun).tolist()
                block.left, block.taken = len(found), np.flatnonzero((counts > 0) & ~has_begun).tolist()
                told = [number for number in found if number in self.blocks.watched]
        elif taken.gap is None and taken.end_ms < LAST_MS:
            self._counts[: len(has_begun), COUNTS.index("errors")] += has_begun * taken.count
        self.blocks.add(block)
        for number in told:
            if (watcher := self.blocks.watched.get(number)) is not None:
                watcher.draw()

    def _has_begun(self, end_ms: int) -> BoolArray:
        """Tell of each query whether it is there and has the window with this end."""
        has_begun: BoolArray = self._since_ms[: self.arguments.end] <= end_ms
        return has_begun

    def _count(self, has_begun: BoolArray, rows: Int64Array, count: int, over: list[int]) -> None:
        """Count windows that are alike. has_begun : bool[members]; rows : int64[members], how many rows of each of them
        a query has; count: how many they are; over: queries that have more rows than they may."""
        is_error = np.zeros(len(rows), np.bool_)
        is_error[over] = has_begun[over]
        is_told = has_begun & ~is_error & ((rows > 0) | (not self.blocks.is_silent))
        windows, all_rows, errors, not_reported, last_rows = self._counts[: len(rows)].T
        windows += is_told * count
        all_rows += rows * is_told * count
        errors += is_error * count
        not_reported += (has_begun & ~is_error & ~is_told) * count
        last_rows[is_told] = rows[is_told]
