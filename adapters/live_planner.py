"""Plans epochs of sources that go on while they are read: which rows of which feed go in the next one.

Nobody knows the times of rows beforehand. So an epoch is a range of rows of each feed; the worker that reads them tells
the latest time (PushStats), and a feed is complete up to just before that, less what may come late.

* Fairness: an epoch takes at most rows_per_epoch rows, in equal parts of the feeds that have any. A feed that is ahead
  of the slowest one in event time, and has sent AHEAD_EPOCHS times that many rows since, waits: so what waits in the
  engine is bounded whatever event time does. With align_ms, it also waits if it is further ahead than that. The
  slowest one is among those that have rows, are cut off from their source, or never count as idle: windows wait for
  these. One that is about to be idle is waited for no longer than that.
* Silence: a feed that has had nothing for idle_timeout_ms, and is not cut off from its source, closes the stream batch
  of its newest row and then follows the slowest feed that is not idle. Rows that come before that later are late.
  With idle_advance = "wall" it follows the wall clock less lateness_ms instead, in steps of batch_ms, and counts as one
  that is not idle; not while its newest row differs from the wall clock by more than a day (docs/decisions/0113). A
  feed that knows by itself up to when it is complete (Look.complete_ms), as a clock does, is waited for no longer.
* A LivePosition holds all that the workers' answers depend on, so a repeated epoch is the same.
* Which rows are late, and which stream batches hold them, depends on the rows before them and on what was closed. A run
  that follows on one that was killed has to decide as that one did, since some nodes have rows of its last epoch. So it
  begins at the newest Close, which says both (docs/decisions/0114). Nodes drop the rows that they have. A feed is not
  declared complete for want of rows before it is behind all that any node has.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from wukongs.adapters.epochs import balanced, cuts_of
from wukongs.adapters.feeds.feed import Feed, Look
from wukongs.adapters.push import PartitionSetup, PushStats, WorkItem
from wukongs.adapters.run_config import PipelineConfig
from wukongs.adapters.source import NO_TIME
from wukongs.live.wall_clock import hold_told, is_of_another_day, wall_clock_ms, wall_end_ms
from wukongs.wire.messages import Opened

log = logging.getLogger("wukongs")
AHEAD_EPOCHS = 4
LOOK_S = 0.005
"""How often the feeds are looked at while there is nothing to do."""


@dataclass(frozen=True, slots=True)
class LivePosition:
    """All rows before rows[i] of feed i are sent, and everything up to complete_ms[i] is complete at the least.

    sent[i]: up to where the nodes have its rows before the epoch that ends here; floors[i]: the latest time of its rows
    before that epoch; carried[i]: how many tuples of these stream batches carry. ended[i]: nothing is left of feed i.
    """

    rows: tuple[int, ...]
    sent: tuple[int, ...]
    floors: tuple[int, ...]
    complete_ms: tuple[int, ...]
    ended: tuple[bool, ...]
    carried: tuple[int, ...]

    @property
    def finished(self) -> bool:
        return all(self.ended)

    def to_json(self) -> dict[str, Any]:
        return {**{name: list(getattr(self, name)) for name in _PARTS}, "finished": self.finished}


_PARTS = tuple(one.name for one in fields(LivePosition))


@dataclass(slots=True)
class _Track:
    """How far a feed has come. newest_ms: its latest time; complete_ms: up to where it is complete at the nodes;
    sent: up to where the nodes have its rows. ends: (newest_ms, end_row) of where it began and of its epochs with rows,
    as far as others are behind. opened_ms: complete_ms as it was found, which stands for rows of earlier runs.
    had_row: some node had the rows before this one; carried_count: how many tuples of its rows are carried."""

    newest_ms: int
    complete_ms: int
    sent: int
    end_row: int
    quiet_since_s: float
    ends: deque[tuple[int, int]]
    opened_ms: int
    had_row: int
    carried_count: int

    @property
    def known_ms(self) -> int | None:
        """The latest time of its rows, of earlier runs as well, as far as it is known. None: it is not."""
        known_ms = max(self.newest_ms, self.opened_ms)
        return None if known_ms == NO_TIME else known_ms


@dataclass(frozen=True, slots=True)
class _Begin:
    """Where a run takes up a partition: its row, the time up to which it is complete there (NO_TIME: none), and how
    many tuples of the rows before are carried."""

    row: int
    complete_ms: int
    carried_count: int


def _begin_of(node: Opened) -> _Begin:
    """Return where a run takes up a partition that nodes have opened: at the newest Close, if all nodes know it and
    have the rows before it."""
    closed_ms = NO_TIME if node.closed_ms is None else node.closed_ms
    if node.last_close is None or node.last_close[0] > node.resume_offset:
        return _Begin(node.resume_offset, closed_ms, 0 if node.last_close is None else node.last_close[2])
    row, complete_ms, carried_count = node.last_close
    return _Begin(row, closed_ms if complete_ms is None else max(closed_ms, complete_ms), carried_count)


class LivePlanner:
    """Plans from where the nodes are, which have answered with `opened`; takes up the feeds there. say: shows a line to
    the user; wall_ms: the wall clock, in ms since 1970."""

    def __init__(
        self,
        feeds: Sequence[Feed],
        opened: Sequence[Opened],
        epoch: int,
        config: PipelineConfig,
        say: Callable[[str], None] = log.info,
        wall_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.opened = tuple(opened)
        self.epoch = epoch
        begins, cuts = [_begin_of(node) for node in opened], [cuts_of(node) for node in opened]
        self.setups = tuple(
            PartitionSetup(
                stream=feed.stream,
                source=feed.source,
                epoch=epoch,
                batch_ms=node.batch_ms,
                timing=node.timing,
                hash_bits=node.hash_bits,
                is_last=feed.waits.is_last,
                cuts=rows,
            )
            for feed, node, rows in zip(feeds, opened, cuts, strict=True)
        )
        self._feeds, self._config, self._say, self._wall_ms = feeds, config, say, wall_ms
        self._said: set[str] = set()
        self._places = {(one.stream, one.source.partition): place for place, one in enumerate(self.setups)}
        self._lock = threading.Lock()
        now_s = time.monotonic()
        self._begun = [feed.begin(begin.row, rows) for feed, begin, rows in zip(feeds, begins, cuts, strict=True)]
        self._tracks = [
            _Track(
                newest_ms=NO_TIME,
                complete_ms=begin.complete_ms,
                sent=begin.row,
                end_row=row,
                quiet_since_s=now_s,
                ends=deque([(NO_TIME, row)]),
                opened_ms=begin.complete_ms,
                had_row=rows[-1],
                carried_count=begin.carried_count,
            )
            for begin, row, rows in zip(begins, self._begun, cuts, strict=True)
        ]
        self.start = self._position(self._begun, self._never, [False] * len(feeds))

    @property
    def _never(self) -> list[int]:
        return [NO_TIME] * len(self.setups)

    def position(self, value: dict[str, Any]) -> LivePosition:
        """Return a position as Spark has kept it."""
        nothing = [0] * len(self.setups)  # a checkpoint of an earlier release does not say what is carried
        return LivePosition(*(tuple(value.get(name, nothing)) for name in _PARTS))

    def taken(self, stats: PushStats) -> None:
        """Note what a worker says about the rows that it has sent, and add how many wait behind them."""
        place = self._places[stats.stream, stats.partition]
        with self._lock:
            track = self._tracks[place]
            track.newest_ms = max(track.newest_ms, stats.newest_ms)
            track.complete_ms = max(track.complete_ms, stats.complete_ms)
            track.sent = max(track.sent, stats.sent_offset)
            track.carried_count = max(track.carried_count, stats.carried_count)
            if stats.end_offset > track.ends[-1][1]:
                track.ends.append((track.newest_ms, stats.end_offset))
            stats.waiting = max(0, track.end_row - stats.end_offset)
        self._feeds[place].release(stats.sent_offset)

    def follow(self, position: LivePosition, released: threading.Event, wait_s: float) -> LivePosition:
        """Return where the next epoch ends. If there is nothing to do for wait_s, that is the same position."""
        deadline = time.monotonic() + wait_s
        while True:
            now_s = time.monotonic()
            following = self.next(position, now_s)
            if following != position or now_s >= deadline or released.wait(LOOK_S):
                return following

    def next(self, position: LivePosition, now_s: float) -> LivePosition:
        """Return where the next epoch ends; the same position if there is nothing to do at this time.

        Raises: why a feed cannot be read any more."""
        if position.finished:
            return position
        looks = [feed.look() for feed in self._feeds]
        with self._lock:
            waiting = [look.end_row - row for look, row in zip(looks, position.rows, strict=True)]
            for track, look, count in zip(self._tracks, looks, waiting, strict=True):
                if count or look.end_row != track.end_row or not look.is_heard:
                    track.end_row, track.quiet_since_s = look.end_row, now_s
            rows = [row + count for row, count in zip(position.rows, self._admitted(position, looks), strict=True)]
            ended = [not look.is_open and look.end_row == row for look, row in zip(looks, rows, strict=True)]
            is_all = [look.end_row == row for look, row in zip(looks, rows, strict=True)]
            known = [look.complete_ms if is_one else None for look, is_one in zip(looks, is_all, strict=True)]
            complete = self._beats(position, ended, known, now_s)
            if rows == list(position.rows) and ended == list(position.ended) and complete == list(position.complete_ms):
                return position
            return self._position(rows, complete, ended)

    def items(self, start: LivePosition, end: LivePosition) -> list[WorkItem]:
        """Return the work between two positions: of each feed that has rows, is to be declared complete, or ends."""
        found = []
        for place, (setup, feed) in enumerate(zip(self.setups, self._feeds, strict=True)):
            first, last = start.rows[place], end.rows[place]
            is_ending = end.ended[place] and not start.ended[place]
            complete = end.complete_ms[place]
            if first >= last and not is_ending and complete <= start.complete_ms[place]:
                continue
            sent, floor, lateness_ms = end.sent[place], end.floors[place], feed.waits.lateness_ms
            chunks = tuple(feed.ranges(first, last, floor)) if first < last else ()
            if floor > NO_TIME:
                complete = max(complete, floor - 1 - lateness_ms)
            rows = sent, max(first, last), chunks
            found.append(WorkItem(setup, *rows, complete, is_ending, lateness_ms, end.carried[place]))
        return found

    def tasks(self, start: LivePosition, end: LivePosition, task_count: int) -> list[list[WorkItem]]:
        """Divide the work between two positions among tasks."""
        return balanced(self.items(start, end), task_count)

    def reached_ms(self) -> None:
        """Say that no item waits for a clock: what has come is due."""

    def resumed(self, start: LivePosition, end: LivePosition) -> tuple[LivePosition, LivePosition]:
        """Return an epoch that an earlier run has planned moved to where the nodes are. The times that it knew may not
        hold there, and feeds that had ended may go on."""
        rows = [min(row, last) for row, last in zip(self._begun, end.rows, strict=True)]
        none_ended = [False] * len(rows)
        return self._position(rows, self._never, none_ended), self._position(end.rows, self._never, none_ended)

    def continued(self, position: LivePosition, repeated: LivePosition | None) -> LivePosition:
        """Return the position of an earlier run's checkpoint moved to where the nodes are, which alone count.

        repeated: the end of the epoch that this run has repeated from the checkpoint, if it has one."""
        if repeated != position:
            return self.start
        rows = [max(row, sent) for row, sent in zip(self._begun, position.rows, strict=True)]
        return self._position(rows, self._never, [False] * len(rows))

    def close(self) -> None:
        for feed in self._feeds:
            feed.close()

    def _position(self, rows: Sequence[int], complete: Sequence[int], ended: Sequence[bool]) -> LivePosition:
        return LivePosition(
            tuple(rows),
            tuple(track.sent for track in self._tracks),
            tuple(self._floor(place) for place in range(len(self._tracks))),
            tuple(complete),
            tuple(ended),
            tuple(track.carried_count for track in self._tracks),
        )

    def _floor(self, place: int) -> int:
        """Return the latest time of a feed's rows so far; no earlier than what makes all late that is complete."""
        track, lateness_ms = self._tracks[place], self._feeds[place].waits.lateness_ms
        if track.complete_ms == NO_TIME:
            return track.newest_ms
        return max(track.newest_ms, track.complete_ms + 1 + lateness_ms)

    def _admitted(self, position: LivePosition, looks: Sequence[Look]) -> list[int]:
        """Return how many rows of each feed go in the next epoch."""
        waiting = [look.end_row - row for look, row in zip(looks, position.rows, strict=True)]
        awaited = [
            place
            for place, (feed, look, count) in enumerate(zip(self._feeds, looks, waiting, strict=True))
            if count
            or (look.is_open and look.complete_ms is None and not (look.is_heard and feed.waits.idle_timeout_ms))
        ]
        slowest = min(awaited, key=lambda place: self._tracks[place].newest_ms, default=0)
        slowest_ms = self._tracks[slowest].newest_ms if awaited else NO_TIME
        may_go = [self._may_go(place, position.rows[place], slowest_ms) for place in range(len(looks))]
        if not waiting[slowest] and any(count and not may for count, may in zip(waiting, may_go, strict=True)):
            self._say_holds(slowest, looks[slowest])
        wants = [count if may else 0 for count, may in zip(waiting, may_go, strict=True)]
        admitted, left = [0] * len(wants), self._config.rows_per_epoch
        while left and any(wants):
            share = max(1, left // sum(count > 0 for count in wants))
            for place, count in enumerate(wants):
                taken = min(count, share, left)
                admitted[place] += taken
                wants[place] -= taken
                left -= taken
        return admitted

    def _say_holds(self, place: int, look: Look) -> None:
        """Say, the first time, that others wait for a feed which has no rows."""
        reason = "silent, with idle_timeout_ms = 0" if look.is_heard else "cut off from its source"
        setup = self.setups[place]
        text = f"{setup.stream}, {setup.source.partition}: {reason}; the others are far ahead, and wait for it"
        self._say_once(text, text)

    def _say_once(self, text: str, about: str) -> None:
        """Say a line, unless one about the same was said before."""
        if about not in self._said:
            self._said.add(about)
            self._say(text)

    def _may_go(self, place: int, row: int, slowest_ms: int) -> bool:
        track, span_ms = self._tracks[place], self._config.align_ms
        while len(track.ends) > 1 and track.ends[1][0] <= slowest_ms:
            track.ends.popleft()
        if track.newest_ms <= slowest_ms:
            return True
        if span_ms and slowest_ms > NO_TIME and track.newest_ms - slowest_ms > span_ms:
            return False
        return row - track.ends[0][1] < AHEAD_EPOCHS * self._config.rows_per_epoch

    def _beats(
        self, position: LivePosition, ended: Sequence[bool], known: Sequence[int | None], now_s: float
    ) -> list[int]:
        """Return up to where each feed is declared complete for want of rows. known: up to where it is complete as it
        knows by itself, if all its rows are planned."""
        found = list(position.complete_ms)
        idle = [
            bool(feed.waits.idle_timeout_ms)
            and not is_ended
            and now_s - track.quiet_since_s >= feed.waits.idle_timeout_ms / 1000
            for track, feed, is_ended in zip(self._tracks, self._feeds, ended, strict=True)
        ]
        active = [
            track.complete_ms
            for track, feed, is_idle, is_ended in zip(self._tracks, self._feeds, idle, ended, strict=True)
            if not ((is_idle and feed.waits.idle_advance is None) or is_ended)
        ]
        others_ms = min(active, default=NO_TIME)
        for place, (track, setup) in enumerate(zip(self._tracks, self.setups, strict=True)):
            if position.rows[place] < track.had_row:  # what is closed now would decide on rows that some nodes have
                continue
            own_ms = NO_TIME if track.newest_ms == NO_TIME else -(-track.newest_ms // setup.batch_ms) * setup.batch_ms
            known_ms = known[place]
            if known_ms is not None and not ended[place]:
                beat = wall_end_ms(known_ms, 0, setup.batch_ms)
            elif not idle[place]:
                continue
            elif self._feeds[place].waits.idle_advance is not None:
                beat = self._wall_beat(place)
            else:
                beat = max(own_ms, others_ms)
            if beat is not None and beat > max(track.complete_ms, found[place]):
                if idle[place] and found[place] <= own_ms:
                    log.info(
                        "stream %s, partition %s: silent for %.1f s, and goes with %s now, up to %d ms",
                        setup.stream,
                        setup.source.partition,
                        now_s - track.quiet_since_s,
                        "the others" if self._feeds[place].waits.idle_advance is None else "the wall clock",
                        beat,
                    )
                found[place] = beat
        return found

    def _wall_beat(self, place: int) -> int | None:
        """Return up to where a silent feed is complete by the wall clock. None: its rows are of another day."""
        track, setup, wall_ms = self._tracks[place], self.setups[place], self._wall_ms()
        if is_of_another_day(track.known_ms, wall_ms):
            assert track.known_ms is not None, setup
            self._say_once(
                f"{setup.stream}, {setup.source.partition}: silent; {hold_told(track.known_ms, wall_ms)}",
                f"{place}: silent since row {track.end_row}",
            )
            return None
        return wall_end_ms(wall_ms, self._feeds[place].waits.lateness_ms, setup.batch_ms)
