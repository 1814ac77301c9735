"""The clock of the stored graph, told from the log and the sources' own data: which SN shows which stream batches.

It says the rules in its own words, and asks no function of the protocol. A stream batch that no node could have shown
earlier is shown where a snapshot first has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.sim.data import StreamData
from wukongs.protocol.records import AdvanceGroup, BeginStream, Change, DropStream, EndStream, LateJoin

NEVER = 1 << 62


@dataclass(frozen=True)
class Course:
    """What the log says of a stream. counts_after: the tick after which it counts (NEVER: it has not begun, or is
    late); brought: by the SNs of records, the stream batch up to which they show it; last: where it ends, or is cut;
    gone_at: the SN where it goes."""

    counts_after: int = NEVER
    has_begun: bool = False
    brought: tuple[tuple[Any, int], ...] = ()
    last: int | None = None
    gone_at: Any = None


@dataclass(frozen=True)
class Clock:
    """streams: all that were declared, by their keys; it is shared by the clocks of all places in the log."""

    streams: Mapping[str, StreamData]
    courses: Mapping[str, Course] = field(default_factory=dict)
    advances: tuple[tuple[Any, str, int], ...] = ()
    last_sn: Any = (0, 0)
    minors: Mapping[int, int] = field(default_factory=dict)
    """How many records are behind each tick."""
    has_rules: bool = False
    followed: Mapping[str, int] = field(default_factory=dict)
    """The stream batch of each stream up to which changes have stored it, while there are rules."""

    def after(self, record: Any, sn: Any) -> Clock:
        """Return the clock behind one more record."""
        if sn is None:
            return self
        clock = replace(self, last_sn=tuple(sn), minors={**self.minors, sn.tick: sn.minor})
        match record:
            case BeginStream(stream=key, empty_to=empty_to):
                data = self.streams[key]
                if data.group != "live":
                    return clock._with(key, has_begun=True, counts_after=self._reached(data.group))
                is_late = empty_to < self._ended_by(key, sn.tick)
                return clock._with(key, has_begun=True, counts_after=NEVER if is_late else sn.tick)
            case LateJoin(stream=key, batch=batch):
                course = self.courses[key]
                counts_after = sn.tick if batch == self._ended_by(key, sn.tick) else NEVER
                return clock._with(key, counts_after=counts_after, brought=(*course.brought, (tuple(sn), batch)))
            case DropStream(stream=key) if not self.course(key).has_begun:
                return clock._with(key, gone_at=tuple(sn), last=0)
            case EndStream(stream=key, last_batch=batch, is_cut=True):
                return clock._with(key, gone_at=tuple(sn), last=batch)
            case EndStream(stream=key, last_batch=batch):
                return clock._with(key, last=batch)
            case Change(rules=rules, follows=follows):
                followed = dict(self.followed)
                if rules:
                    for key, batch in clock.vts(tuple(sn)).items():
                        followed[key] = max(batch, followed.get(key, 0))
                has_rules = self.has_rules if rules is None else bool(rules)
                return replace(clock, has_rules=has_rules, followed={**followed, **dict(follows)})
            case AdvanceGroup(group=group, tick=tick):
                return replace(clock, advances=(*self.advances, (tuple(sn), group, tick)))
        return clock

    def course(self, key: str) -> Course:
        return self.courses.get(key, Course())

    def _with(self, key: str, **changes: Any) -> Clock:
        return replace(self, courses={**self.courses, key: replace(self.course(key), **changes)})

    def _reached(self, group: str) -> int:
        return next((tick for _, of, tick in reversed(self.advances) if of == group), 0)

    def _ended_by(self, key: str, tick: int) -> int:
        """Return the last stream batch of a stream that ends by a tick."""
        data = self.streams[key]
        return max(0, (tick - data.first_tick) // data.batch_ticks)

    def is_late(self, key: str) -> bool:
        course = self.course(key)
        return course.has_begun and course.counts_after == NEVER

    def shown_at(self, key: str, batch: int) -> Any:
        """Return the first SN that has a stream batch, None if the log does not say."""
        course, data = self.course(key), self.streams[key]
        for sn, up_to in course.brought:
            if batch <= up_to:
                return sn
        if course.counts_after == NEVER:
            return None
        tick = max(data.first_tick + batch * data.batch_ticks, course.counts_after + 1)
        if data.group == "live":
            return tick, 0
        return next((sn for sn, group, to in self.advances if group == data.group and to >= tick), None)

    def vts(self, sn: Any) -> dict[str, int]:
        """Return the stream batches of an SN, as vector timestamps have them: the last that has ended, with rows or
        without."""
        found = {}
        for key, course in self.courses.items():
            if course.gone_at is not None and tuple(sn) >= course.gone_at:
                continue
            data, tick = self.streams[key], sn[0]
            if data.group != "live":
                tick = next((to for at, of, to in reversed(self.advances) if of == data.group and at <= sn), 0)
            batch = max((up_to for at, up_to in course.brought if at <= sn), default=0)
            if tick > course.counts_after:
                batch = (
                    self._ended_by(key, tick) if course.last is None else min(self._ended_by(key, tick), course.last)
                )
            if batch:
                found[key] = batch
        return found

    def newest(self, stable: Mapping[str, int]) -> Any:
        """Return the newest SN that may be shown by a stable VTS: with rules, as far as changes have stored it."""
        if self.has_rules:
            stable = {key: min(batch, self._stored_to(key, batch)) for key, batch in stable.items()}
        tick = self._tick(stable)
        sn = tick, self.minors.get(tick, 0)
        by_records = [(at, key, batch) for key, course in self.courses.items() for at, batch in course.brought]
        by_records += [
            (at, key, batch)
            for at, group, _ in self.advances
            for key, batch in self.vts(at).items()
            if self.streams[key].group == group
        ]
        missing = [
            at
            for at, key, batch in by_records
            if self.course(key).gone_at is None and stable.get(key, 0) < batch and at <= sn
        ]
        return min(((tick, minor - 1) for tick, minor in missing), default=sn)

    def _stored_to(self, key: str, batch: int) -> int:
        """Return up to where a stream that has come up to a stream batch is stored. Also where it counts: a partition
        may bring something of before."""
        return batch if self.streams[key].is_timing else self.followed.get(key, 0)

    def _tick(self, stable: Mapping[str, int]) -> int:
        """Return the last tick such that each stream that counts has all stream batches that end by it."""
        missing, ends = [], [self.last_sn[0]]
        for key, course in self.courses.items():
            data = self.streams[key]
            if data.group != "live" or course.counts_after == NEVER or course.gone_at is not None:
                continue
            has = stable.get(key, 0)
            if has == course.last:
                shown = self.shown_at(key, has)
                ends.append(data.first_tick + has * data.batch_ticks)
                ends.append(shown[0] if has else 0)
            else:
                first_missing = data.first_tick + (has + 1) * data.batch_ticks
                missing.append(max(first_missing, course.counts_after + 1) - 1)
        return min(missing) if missing else max(ends)
