"""JoinedWindows: the windows of one query that fires with others, which it takes out of the blocks of its group.

A window is made when somebody reads, and at once only where somebody waits. Nobody acknowledges the windows of a query
that is not read: a checkpoint asks how far it has come (`come`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from wukongs.errors import BudgetExceeded, WukongsError
from wukongs.live.core import Core
from wukongs.live.joined_blocks import Block, Blocks
from wukongs.live.query_source import QuerySource
from wukongs.live.readers import Readers
from wukongs.live.window_log import LAST_MS, OWN, WINDOW_BYTES, Come, Gap, WindowLog
from wukongs.query.limits import limits_of
from wukongs.query.output.results import WindowResult

_ADVICE = "Let its patterns share variables, or start from a constant"


class JoinedWindows:
    """Those of one query. Called with the lock of the window logs held, but for `readers` and `check`.

    since_ms: its first window, -LAST_MS if that is the first of its group.
    step_ms: how often it fires."""

    __slots__ = (
        "_before",
        "_blocks",
        "_came",
        "_come_ms",
        "_core",
        "_is_closed",
        "_place",
        "_readers",
        "_vars",
        "lsn",
        "name",
        "number",
        "since_ms",
        "source",
        "step_ms",
    )

    def __init__(
        self,
        core: Core,
        name: str,
        source: QuerySource,
        variables: tuple[str, ...],
        since_ms: int,
        step_ms: int,
        lsn: int,
        came: Mapping[str, Come],
    ) -> None:
        """lsn: the record of the log that registered the query; came: how far its cursors had come before a restart, by
        name."""
        self._core, self.name, self.source, self.lsn = core, name, source, lsn
        self._vars, self.since_ms, self.step_ms = variables, since_ms, step_ms
        self._came = came
        self._readers: Readers | None = None
        self._is_closed = False
        self._blocks: Blocks | None = None
        """Those of its group; None: it has left."""
        self.number = -1
        """Its number in the group."""
        self._place = 0
        """From there on it has to take the blocks."""
        self._before: tuple[tuple[Blocks, int, int], ...] = ()
        """Blocks of groups that were divided: with the number it had there, and from which place on it has to take."""
        self._come_ms: int | None = None
        """The last firing that was taken."""

    @property
    def readers(self) -> Readers:
        with self._core.unread.lock:
            if self._readers is None:
                log = WindowLog(self.name, self._core.unread, self.source.unread_bytes_max, source=self)
                readers = Readers(self._core, log, self.lsn)
                readers.restore(self._came)
                self._readers = readers
                self.draw()  # from now on it acknowledges by itself, and that begins with what it has not to take
                if self._is_closed:
                    log.close()
            return self._readers

    @property
    def is_read(self) -> bool:
        """Whether somebody has asked for its windows since the engine was opened: then it acknowledges them itself."""
        return self._readers is not None

    # --- its place in the blocks --------------------------------------------------------------------------------------

    def _places(self) -> tuple[tuple[Blocks, int, int], ...]:
        """Return the blocks from which it has to take, with its number there, and from which place on."""
        blocks = self._blocks
        return self._before if blocks is None else (*self._before, (blocks, self.number, self._place))

    def stand(self, blocks: Blocks, number: int) -> None:
        """Have a number in a group from its next block on."""
        if (before := self._blocks) is not None:
            self._before = (*self._before, (before, self.number, self._place))
            if before.watched.pop(self.number, None) is not None:
                blocks.watched[number] = self
        self._blocks, self.number, self._place = blocks, number, blocks.end

    def leave(self) -> None:
        """Keep what it has not taken from the blocks of its group, and take no more."""
        self._before = tuple((blocks.rest(n, place, self.since_ms), n, place) for blocks, n, place in self._places())
        self._blocks = None

    def close(self) -> None:
        """End the log: readers end once they have read what is there."""
        self._is_closed = True
        if self._readers is not None:
            self.draw()
            self._readers.close()

    @property
    def place(self) -> Hashable:
        """A value that is equal for all that have come equally far while nobody reads them; None: it is not known to be
        equal for any other."""
        blocks = self._blocks
        if blocks is None or self._before or self.number in blocks.dropped:
            return None
        return blocks, self._place, self.since_ms, self._came.get(OWN)

    def waiting_count(self) -> int:
        """Return how many windows and gaps wait while nobody reads them."""
        waiting = sum(blocks.count_for(number, place, self.since_ms) for blocks, number, place in self._places())
        come, told = self._begins()
        return waiting + (come is not None and come.gap is not None) - told

    def come(self) -> Come | None:
        """Return how far it has come while nobody reads it: before the first window that is there for it. None: nothing
        was fired."""
        come, _ = self._begins()
        return come

    def _begins(self) -> tuple[Come | None, int]:
        """Return the same, and how many blocks are gaps before that window."""
        came, come_ms = self._came.get(OWN), self._come_ms
        gaps = [] if came is None or came.gap is None else [came.gap]
        through_ms, told = None if came is None else came.through_ms, 0
        for blocks, number, place in self._places():
            if (lost := self._lost(blocks, number, place, come_ms)) is not None:
                gaps.append(lost)
            for _, block in blocks.held_from(place):
                if self.since_ms <= block.end_ms < LAST_MS:
                    if block.gap is None:
                        through_ms = max(block.begin_ms - 1, self.since_ms - 1 if through_ms is None else through_ms)
                        return Come(through_ms, Gap.joined(gaps) if gaps else None), told
                    gaps.append(self._gone_in(block))
                    told += 1
            if place < blocks.end and blocks.last_ms is not None:
                come_ms = blocks.last_ms
                through_ms = come_ms if through_ms is None else max(come_ms, through_ms)
        if through_ms is None:
            return None, told
        return Come(through_ms, Gap.joined(gaps) if gaps else None), told

    # --- as window_log.Source -----------------------------------------------------------------------------------------

    def watch(self, is_watched: bool) -> None:
        """Do as window_log.Source.watch."""
        if self._blocks is not None:
            if is_watched:
                self._blocks.watched[self.number] = self
            else:
                self._blocks.watched.pop(self.number, None)

    def draw(self) -> None:
        """Do as window_log.Source.draw."""
        readers = self._readers
        if readers is None:
            return
        if not self._before and self._blocks is not None:
            place, self._place = self._place, self._blocks.end
            self._draw(readers, self._blocks, self.number, place)
            return
        places, self._before = self._places(), ()
        if self._blocks is not None:
            self._place = self._blocks.end
        for blocks, number, place in places:
            self._draw(readers, blocks, number, place)

    def _draw(self, readers: Readers, blocks: Blocks, number: int, place: int) -> None:
        """Put the windows of some blocks, from a place on, into the log, and gaps in the place of what was dropped."""
        if place >= blocks.end:
            return
        last_ms, newest = blocks.last_ms, blocks.at(place) if place == blocks.end - 1 else None
        held = list(blocks.held_from(place)) if newest is None else [(place, newest)]
        is_known = newest is not None and not blocks.is_silent  # nothing is lost before the newest one
        lost = None if is_known else self._lost(blocks, number, place, self._come_ms)
        if lost is not None:
            readers.log.lack(lost)
            blocks.dropped.pop(number, None)
        for at, block in held:
            if block.end_ms >= self.since_ms and blocks.concerns(block, number):
                blocks.done(at, block, number)
                if blocks.is_silent and block.begin_ms < LAST_MS:
                    readers.log.skip(block.begin_ms - self.step_ms)
                self._put(readers, block, number)
        if last_ms is not None:
            if blocks.is_silent and last_ms >= self.since_ms:
                readers.log.skip(last_ms)
            self._come_ms = last_ms

    def _lost(self, blocks: Blocks, number: int, place: int, come_ms: int | None) -> Gap | None:
        """Return the windows of some blocks, from a place on, that were dropped before it has taken them. come_ms: the
        last firing before that it has taken, or lost."""
        if blocks.is_silent:
            return blocks.dropped.get(number)
        first_ms, to_ms = blocks.first_ms, blocks.last_ms
        at, block = next(blocks.held_from(place), (blocks.end, None))
        if first_ms is None or to_ms is None or at <= place:
            return None
        before_ms = (first_ms if self.since_ms == -LAST_MS else self.since_ms) - self.step_ms
        come_ms = before_ms if come_ms is None else max(come_ms, before_ms)
        if block is not None:
            to_ms = min(block.begin_ms - self.step_ms, to_ms)
        return None if come_ms >= to_ms else Gap(come_ms + self.step_ms, to_ms, (to_ms - come_ms) // self.step_ms)

    def _gone_in(self, block: Block) -> Gap:
        """Return what it has lost by a block that is a gap."""
        first_ms = max(block.begin_ms, self.since_ms)
        count = (block.end_ms - first_ms) // self.step_ms + 1
        return Gap(first_ms, block.end_ms, count, count)

    def _put(self, readers: Readers, block: Block, number: int) -> None:
        whole = block.item
        if block.gap is not None:
            gap = self._gone_in(block)
            readers.log.lose(gap.from_ms, gap.to_ms, self.step_ms)
            return
        if isinstance(whole, WukongsError):
            readers.log.put(block.end_ms, whole, stretch=block.stretch)
            return
        if (row_count := block.over.get(number)) is not None:
            try:
                limits_of(self._core.settings, None).check_rows(row_count, _ADVICE, f"query {self.name}")
            except BudgetExceeded as error:
                readers.log.put(block.end_ms, error, stretch=block.stretch)
                return
        lo, hi = block.rows_of(number)
        window = self._window(whole, lo, hi)
        own, latency_us = readers.counts, whole.latency_us
        own.report(hi - lo, latency_us, latency_us, block.end_ms, block.count, is_partial=whole.partial)
        readers.log.put(block.end_ms, window, WINDOW_BYTES + window.size_bytes, block.stretch)

    def _window(self, whole: WindowResult, lo: int, hi: int) -> WindowResult:
        """Return some rows of a window of the group as one of the query."""
        columns: tuple[Any, ...] = tuple(column.copy() for column in whole.ids(lo, hi)[1:])
        return WindowResult(
            "select",
            self._vars,
            columns,
            whole.reader,
            whole.snapshot,
            length=hi - lo,
            query=self.name,
            start_ms=whole.start_ms,
            end_ms=whole.end_ms,
            windows=whole.windows,
            partial=whole.partial,
            latency_us=whole.latency_us,
            text=self.source.text,
        )
