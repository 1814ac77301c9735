"""Absorption: which triples come to the stored graph, and which go, of all that joins it at one SN.

Tuples of either sign are ordered by (end of the stream batch, timestamp, stream, source partition, offset). The last
sign of each triple counts (docs/decisions/0065-retractions.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.encoded import NO_SIGNS, signs, signs_of
from wukongs.store.event_times import ABSENT, ERASED, EventTimes, packed
from wukongs.store.quads import NO_QUADS, Quads, joined, last_signs, taken


@dataclass(frozen=True, slots=True, eq=False)
class Timeless:
    """Timeless tuples of one stream that join at one SN, those of each source partition in order of their offsets.

    goes: as Encoded.goes; end_ms: of their stream batch; times : int64[n]; places : int64[n], of their partitions among
    those of the stream, by name."""

    quads: Quads
    goes: BoolArray
    stream: str
    end_ms: int
    times: Int64Array
    places: Int64Array
    clock_ms: int | None = None
    """The clock has passed this time when they join a stream with retractions="event_time". None: another stream."""
    counted_ms: int | None = None
    """Those up to this time were counted as late when they came."""

    def take(self, rows: Int64Array) -> Timeless:
        """Return the tuples with these numbers."""
        graphs, subjects, predicates, objects = (column[rows] for column in self.quads)
        goes = signs(self.goes[rows]) if len(self.goes) else NO_SIGNS
        times, places = self.times[rows], self.places[rows]
        quads = graphs, subjects, predicates, objects
        return Timeless(quads, goes, self.stream, self.end_ms, times, places, self.clock_ms, self.counted_ms)


def settled(parts: Sequence[Timeless]) -> tuple[Quads, Quads]:
    """Return the quads that go and those that come, repeats allowed; none does both."""
    quads = joined([part.quads for part in parts])
    if not any(len(part.goes) for part in parts):
        return NO_QUADS, quads
    names = sorted({part.stream for part in parts})
    return last_signs(quads, _signs(parts), _order_keys(parts, names))


def _signs(parts: Sequence[Timeless]) -> BoolArray:
    return np.concatenate([signs_of(part.goes, len(part.times)) for part in parts])


def _order_keys(
    parts: Sequence[Timeless], names: Sequence[str]
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Return by what the tuples are ordered, int64[n] each, the first key first. names: of the streams, in order."""
    sizes = [len(part.times) for part in parts]
    return (
        np.repeat([part.end_ms for part in parts], sizes),
        np.concatenate([part.times for part in parts]),
        np.repeat([names.index(part.stream) for part in parts], sizes),
        np.concatenate([part.places for part in parts]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class LateSigns:
    """Tuples of one stream that changed nothing, by their subjects.

    late : int64[n]       those that were not counted as late before
    dropped : int64[m]    those that were older than entries are kept"""

    late: Int64Array
    dropped: Int64Array

    @property
    def late_count(self) -> int:
        return len(self.late)

    @property
    def dropped_count(self) -> int:
        return len(self.dropped)


def settled_by_event_time(
    parts: Sequence[Timeless], entries: EventTimes, history_ms: int
) -> tuple[Quads, Quads, dict[str, LateSigns]]:
    """Return the quads that go and those that come, each once, and per stream what has changed nothing.

    Of the tuples of a stream with retractions="event_time", the newest of each triple counts, whenever it comes; equal
    times go by the order of `settled`. A tuple of another stream acts in its place, and erases the entry.

    entries: changed to those after this SN. history_ms: how far behind the clock an entry is kept."""
    names = sorted({part.stream for part in parts})
    keys, goes = _order_keys(parts, names), _signs(parts)
    times, streams = keys[1], keys[2]
    sizes = [len(part.times) for part in parts]
    is_plain = np.repeat([part.clock_ms is None for part in parts], sizes)
    bounds = [0 if part.clock_ms is None else part.clock_ms - history_ms for part in parts]
    is_dropped = ~is_plain & (times < np.repeat(np.array(bounds, np.int64), sizes))
    quads = joined([part.quads for part in parts])
    rows = np.flatnonzero(~is_dropped)
    rows = rows[np.lexsort((*(key[rows] for key in reversed(keys)), *(column[rows] for column in quads)))]
    ordered = _rows(quads, rows)
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (np.stack(ordered)[:, 1:] != np.stack(ordered)[:, :-1]).any(axis=0)
    of_group = np.cumsum(is_first) - 1
    distinct = taken(ordered, is_first)
    before = entries.find(distinct)
    # Before the last tuple of another stream nothing counts: it acts, and the entry is gone.
    plain_rows = np.flatnonzero(is_plain[rows])
    since: Int64Array = np.full(len(before), -1, np.int64)
    since[of_group[plain_rows]] = plain_rows  # the last one stays
    counts = np.arange(len(rows)) >= since[of_group]
    start = np.where(since >= 0, ABSENT, before)
    values = np.where(is_plain[rows], ABSENT, times[rows])
    newest = _newest_before(of_group, counts, values, np.where(start == ABSENT, ABSENT, start >> 1))
    is_older = counts & ~is_plain[rows] & (values < newest)
    acts = counts & ~is_older
    counted = [ABSENT if part.counted_ms is None else part.counted_ms for part in parts]
    is_news_to_count = times > np.repeat(np.array(counted, np.int64), sizes)
    is_late = is_older & is_news_to_count[rows]
    winners: Int64Array = np.full(len(before), -1, np.int64)
    winners[of_group[acts]] = np.flatnonzero(acts)
    changed = np.flatnonzero(winners >= 0)
    rows_of = rows[winners[changed]]
    now = np.where(is_plain[rows_of], ERASED, packed(times[rows_of], goes[rows_of]))
    found = _rows(distinct, changed)
    is_news = (now != ERASED) | (before[changed] != ABSENT)
    entries.put(taken(found, is_news), now[is_news])
    gone = goes[rows_of]
    late_rows = np.concatenate([rows[is_late], np.flatnonzero(is_dropped & is_news_to_count)])
    dropped_rows, subjects = np.flatnonzero(is_dropped), quads[1]
    told = {
        names[at]: LateSigns(*(subjects[some[streams[some] == at]] for some in (late_rows, dropped_rows)))
        for at in np.unique(streams[np.concatenate([late_rows, dropped_rows])]).tolist()
    }
    return taken(found, gone), taken(found, ~gone), told


def _rows(quads: Quads, rows: Int64Array) -> Quads:
    graphs, subjects, predicates, objects = (column[rows] for column in quads)
    return graphs, subjects, predicates, objects


def _newest_before(of_group: Int64Array, counts: BoolArray, values: Int64Array, start: Int64Array) -> Int64Array:
    """Return, for each tuple, the newest time before it in its group, int64[n]. of_group : int64[n], ascending; counts:
    which tuples do; values : int64[n]; start : int64[groups], the newest time before the first tuple of each."""
    times, ranks = np.unique(np.concatenate([start, np.where(counts, values, ABSENT)]), return_inverse=True)
    first_ranks, ranks = ranks[: len(start)], ranks[len(start) :]
    width = len(times) + 1
    places = np.searchsorted(of_group, np.arange(len(start)))
    steps = np.insert(of_group * width + ranks, places, np.arange(len(start)) * width + first_ranks)
    reached = np.maximum.accumulate(steps)
    own = np.arange(len(of_group)) + of_group + 1  # a start stands before each group
    found: Int64Array = times[reached[own - 1] % width]
    return found
